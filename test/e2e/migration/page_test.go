// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package migration

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// page is the migration page.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(t), "docs", "migration", "calico-node-sync.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// shell is a shell block of the page.
var shell = regexp.MustCompile("(?s)```sh\n(.*?)```")

// runFromPage runs the one shell block of the page that holds the text, as it stands there, but in the site's namespace.
func (s *site) runFromPage(text string) {
	s.t.Helper()
	var found []string
	for _, match := range shell.FindAllStringSubmatch(page(s.t), -1) {
		if strings.Contains(match[1], text) {
			found = append(found, match[1])
		}
	}
	if len(found) != 1 {
		s.t.Fatalf("the page has %d shell blocks with %q, want one", len(found), text)
	}
	cmd := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(found[0], "kube-system", s.namespace))
	cmd.Dir = testkit.Root(s.t)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.api.Kubeconfig, "PATH="+filepath.Dir(testkit.Binary(s.t, "kubectl"))+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%s\n%v\n%s", found[0], err, out)
	}
}

// table returns the cells of the rows of the page's first table behind a heading, without its head.
func table(t *testing.T, heading string) [][]string {
	t.Helper()
	_, text, found := strings.Cut(page(t), "\n"+heading+"\n")
	if !found {
		t.Fatalf("the page has no heading %q", heading)
	}
	var rows [][]string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("behind %q there is no table", heading)
	}
	return rows[2:]
}

// What the page says that its rights grant is what config/calico-node-sync/base/rbac.yaml grants, as its command applies it; the right on all ConfigMaps, which
// is more than anybody would expect, stands in a sentence of its own.
func TestThePageNamesTheRights(t *testing.T) {
	t.Parallel()
	named := map[string][]string{}
	for _, row := range table(t, "## From kube-calico-controller") {
		resources, name, one := strings.Cut(row[1], " named ")
		for resource := range strings.SplitSeq(resources, ", ") {
			what := row[0] + " " + resource
			if one {
				what += " named " + name
			}
			named[what] = strings.Split(row[2], ", ")
		}
	}
	if diff := cmp.Diff(grantedRights(t), named); diff != "" {
		t.Errorf("the rights (-granted +on the page):\n%s", diff)
	}
	if text := strings.Join(strings.Fields(page(t)), " "); !strings.Contains(text, "may list and delete *all* ConfigMaps in `kube-system`") {
		t.Error("the page does not say that all ConfigMaps of kube-system may be listed and deleted")
	}
}

// grantedRights are the verbs of rbac.yaml, by what they are on in the words of the page.
func grantedRights(t *testing.T) map[string][]string {
	t.Helper()
	file, err := os.Open(filepath.Join(testkit.Root(t), "config", "calico-node-sync", "base", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	granted := map[string][]string{}
	for decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var role rbacv1.ClusterRole // a Role has the same rules
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			return granted
		}
		if err != nil {
			t.Fatal(err)
		}
		where := map[string]string{"ClusterRole": "cluster", "Role": "`kube-system`"}[role.Kind]
		if where == "" || strings.HasSuffix(role.Name, "-metrics-reader") { // bound to nobody
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				what := where + " `" + resource + "`"
				for _, name := range rule.ResourceNames {
					if resource == "deployments" {
						name = oldAccount // the command changes it
					}
					what += " named `" + name + "`"
				}
				granted[what] = append(granted[what], rule.Verbs...)
			}
		}
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// quotedIn are the words in backticks.
func quotedIn(text string) []string {
	var out []string
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		out = append(out, match[1])
	}
	return out
}

var (
	command  = regexp.MustCompile("`calico-node-sync ([a-z]+)[^`]*`")
	longFlag = regexp.MustCompile(`--([a-z][a-z-]+)`)
)

// Every command and every long flag that the page names exists.
func TestThePageNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	_, help := run(t, nil, "--help")
	text := shell.ReplaceAllString(page(t), "")
	commands := map[string]bool{}
	for _, match := range command.FindAllStringSubmatch(text, -1) {
		commands[match[1]] = true
	}
	if len(commands) < 3 {
		t.Errorf("the page names just the commands %v", commands)
	}
	for name := range commands {
		code, out := run(t, nil, name, "--help")
		if code != 0 || !strings.Contains(out, "calico-node-sync "+name) {
			t.Errorf("the page names the command %s: exit code %d and %q", name, code, out)
		}
		help += out
	}
	flags := longFlag.FindAllStringSubmatch(strings.Join(quotedIn(text), "\n"), -1)
	if len(flags) < 10 {
		t.Errorf("the page names just the flags %v", flags)
	}
	for _, match := range flags {
		if !strings.Contains(help, "--"+match[1]+" ") {
			t.Errorf("the page names --%s, which no command of it has", match[1])
		}
	}
}
