// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	cloud "github.com/mooring-dev/mooring/internal/docloud/app"
	storage "github.com/mooring-dev/mooring/internal/etcdstorage/controller"
	nodes "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	reflectors "github.com/mooring-dev/mooring/internal/routereflector/controller"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestDeclaredCallsAreDocumented compares what controllers declare to write to DigitalOcean with the page's table of calls, from which the
// scopes of a token are made, both ways.
func TestDeclaredCallsAreDocumented(t *testing.T) {
	t.Parallel()
	var declares, documents []string
	for _, w := range cloud.Writes() {
		for _, method := range w.Verbs {
			if w.System == outputs.DigitalOcean {
				declares = append(declares, method+" /"+nameless(w.Kind))
			}
		}
	}
	for call := range documentedCalls(t) {
		if !strings.HasPrefix(call, "GET ") {
			documents = append(documents, call)
		}
	}
	slices.Sort(declares)
	slices.Sort(documents)
	if diff := cmp.Diff(slices.Compact(declares), documents); diff != "" {
		t.Errorf("%s (- declared, + documented):\n%s", cloudPage, diff)
	}
}

// TestSecurityPageNamesEveryField compares the table of fields in SECURITY.md with those that controllers declare, both ways.
func TestSecurityPageNamesEveryField(t *testing.T) {
	t.Parallel()
	var declares []string
	for program, all := range map[string][]outputs.Write{
		cloudName: cloud.Writes(), reflectorsName: (&reflectors.KubernetesDatastore{}).Writes(), etcdName: storage.Writes(),
		"calico-node-sync": nodes.Writes(),
	} {
		fields := map[string][]string{}
		for _, w := range all {
			for _, field := range w.Fields {
				kind := regexp.MustCompile(`\.[^/]*`).ReplaceAllString(w.Kind, "")
				fields[kind] = append(fields[kind], "`"+field+"`")
			}
		}
		for kind, names := range fields {
			slices.Sort(names)
			declares = append(declares, "| `"+program+"` | "+kind+" | "+strings.Join(slices.Compact(names), ", ")+" |")
		}
	}
	page := string(must.Get(os.ReadFile("../../SECURITY.md")).Or(t))
	documents := regexp.MustCompile("(?m)^\\| `.*` \\| \\S+ \\| `/.*\\|$").FindAllString(page, -1)
	slices.Sort(declares)
	slices.Sort(documents)
	if !slices.Equal(declares, documents) {
		t.Errorf("SECURITY.md has\n%s\nand should have\n%s", strings.Join(documents, "\n"), strings.Join(declares, "\n"))
	}
}

// TestSecurityPageNamesTheCoresData compares what the operator declares to write in the core etcd with its row in SECURITY.md, both ways.
func TestSecurityPageNamesTheCoresData(t *testing.T) {
	t.Parallel()
	page := string(must.Get(os.ReadFile("../../SECURITY.md")).Or(t))
	row := regexp.MustCompile("(?m)^\\| `" + etcdName + "` \\| (.*core etcd.*) \\| .* \\|$").FindStringSubmatch(page)
	if row == nil {
		t.Fatalf("SECURITY.md has no row of %s and the core etcd", etcdName)
	}
	for service, noun := range map[string]string{"Auth": "users, roles", "KV": "records", "Lease": "leases", "Maintenance": "alarms"} {
		is := slices.ContainsFunc(storage.Writes(), func(w outputs.Write) bool { return w.System == outputs.CoreEtcd && w.Kind == service })
		if says := regexp.MustCompile(`\b` + noun + `\b`).MatchString(row[1]); is != says {
			t.Errorf("SECURITY.md: it writes %s of the core etcd: %v, and the page says %v", service, is, says)
		}
	}
}
