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
	rbacv1 "k8s.io/api/rbac/v1"

	cloud "github.com/mooring-dev/mooring/internal/docloud/app"
	storage "github.com/mooring-dev/mooring/internal/etcdstorage/controller"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	reflectors "github.com/mooring-dev/mooring/internal/routereflector/controller"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// declared are the writes to Kubernetes that the programs declare, by the manifests that grant them, in the form of flatWrites.
func declared() map[string][]outputs.Write {
	write := func(kind string, verbs ...string) outputs.Write {
		return outputs.Write{System: outputs.Kubernetes, Kind: kind, Verbs: verbs}
	}
	sync := func(inKubernetes bool) (all []outputs.Write) {
		for _, r := range nodesync.Rights(inKubernetes) {
			all = append(all, reconcile.Granted([]rbacv1.PolicyRule{{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{r.Verb}}})...)
		}
		return all
	}
	reviews := []outputs.Write{write("tokenreviews.authentication.k8s.io", "create"), write("subjectaccessreviews.authorization.k8s.io", "create")}
	leads := append(slices.Clone(reviews), write("leases.coordination.k8s.io", "create", "update"), write("events", "create"))
	operators := map[string][]outputs.Write{
		"dist/calico-route-reflector-operator-kubernetes.yaml": reconcile.Granted(reflectors.Rights()),
		"dist/calico-route-reflector-operator-etcdv3.yaml":     reconcile.Granted(reflectors.EtcdRights()),
		"dist/etcd-storage-operator.yaml":                      storage.Writes(),
	}
	for file, writes := range operators {
		operators[file] = append(writes, leads...)
	}
	operators["dist/calico-node-sync-etcdv3.yaml"], operators["dist/calico-node-sync-kubernetes.yaml"] = sync(false), sync(true)
	for _, file := range []string{release, "dist/" + cloudName + "-token-file.yaml", "dist/" + cloudName + "-out-of-service.yaml", "dist/" + cloudName + "-startup-taint.yaml"} {
		operators[file] = append(cloud.Writes(), reviews...)
	}
	return operators
}

// granted are the writes that the roles of a manifest grant.
func granted(t *testing.T, file string) (rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, role := range objects.OfKind[rbacv1.ClusterRole](t, files(t)[file], "ClusterRole") {
		rules = append(rules, role.Rules...)
	}
	for _, role := range objects.OfKind[rbacv1.Role](t, files(t)[file], "Role") {
		rules = append(rules, role.Rules...)
	}
	return rules
}

// flatWrites are the verbs with their kinds in Kubernetes, sorted, each once.
func flatWrites(writes []outputs.Write) (out []string) {
	for _, w := range writes {
		for _, verb := range w.Verbs {
			if w.System == outputs.Kubernetes {
				out = append(out, verb+" "+w.Kind)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestGrantedWritesAreDeclared compares what controllers declare to write with the roles, both ways, for all components.
func TestGrantedWritesAreDeclared(t *testing.T) {
	t.Parallel()
	for file, writes := range declared() {
		if diff := cmp.Diff(flatWrites(writes), flatWrites(reconcile.Granted(granted(t, file)))); diff != "" {
			t.Errorf("%s (- declared, + granted):\n%s", file, diff)
		}
	}
}

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

// TestSecurityPageNamesEveryWrite compares the table of privileges in SECURITY.md with the roles, both ways.
func TestSecurityPageNamesEveryWrite(t *testing.T) {
	t.Parallel()
	page := string(must.Get(os.ReadFile("../../SECURITY.md")).Or(t))
	nouns := map[string]string{
		"nodes": "Nodes", "services": "Services", "events": "Events", "leases": "Lease", "configmaps": "ConfigMaps", "secrets": "Secrets",
		"deployments": "Deployments", "bgppeers": "(BGPPeers|per-host resources)", "caliconodestatuses": "(CalicoNodeStatuses|per-host resources)", "etcdstorages": "EtcdStorages",
		"routereflectortopologies": "topologies", "ipamblocks": "IPAM", "pods": "writes Pods",
	}
	for program, all := range map[string][]string{
		cloudName: {release}, "calico-node-sync": {"dist/calico-node-sync-etcdv3.yaml", "dist/calico-node-sync-kubernetes.yaml"},
		reflectorsName: {"dist/calico-route-reflector-operator-kubernetes.yaml"}, etcdName: {"dist/etcd-storage-operator.yaml"},
	} {
		var rules []rbacv1.PolicyRule
		for _, file := range all {
			rules = append(rules, granted(t, file)...)
		}
		writes := flatWrites(reconcile.Granted(rules))
		row := regexp.MustCompile("(?m)^\\| `" + program + "` \\| (.*) \\| .* \\|$").FindStringSubmatch(page)
		if row == nil {
			t.Fatalf("SECURITY.md has no row of %s", program)
		}
		text, _, _ := strings.Cut(row[1], "; with `--out-of-service-taint`")
		text, _, _ = strings.Cut(text, " It reads ")
		for service, noun := range map[string]string{"Auth": "users, roles", "KV": "records", "Lease": "leases", "Maintenance": "alarms"} {
			is := slices.ContainsFunc(declared()[all[0]], func(w outputs.Write) bool { return w.System == outputs.CoreEtcd && w.Kind == service })
			if says := regexp.MustCompile(`\b`+noun+`\b.*core etcd`).MatchString(text) || regexp.MustCompile(`core etcd.*\b`+noun+`\b`).MatchString(text); is != says {
				t.Errorf("SECURITY.md, %s: it writes %s of the core etcd: %v, and the page says %v", program, service, is, says)
			}
		}
		for resource, noun := range nouns {
			is := slices.ContainsFunc(writes, func(w string) bool { return regexp.MustCompile(` ` + resource + `($|[./])`).MatchString(w) })
			if named := regexp.MustCompile(`\b` + noun + `s?\b`).MatchString(text); is != named {
				t.Errorf("SECURITY.md, %s: the roles let it write %s: %t; the page names %s: %t", program, resource, is, noun, named)
			}
		}
	}
}
