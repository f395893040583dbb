// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package migration

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/projectcalico/calico/libcalico-go/lib/options"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// privateDomain is what AWS appends to the names of machines.
const privateDomain = "ec2.internal"

// kopsWorkers are machines as old manifests of kops made them: Kubernetes knows them by their full names, Calico by their short ones, and no
// orchRef ties the two.
func kopsWorkers(n int) []machine {
	out := make([]machine, n)
	for i := range out {
		short := fmt.Sprintf("ip-10-0-0-%d", i)
		out[i] = machine{node: short + "." + privateDomain, calico: short}
	}
	return out
}

// Machines without orchRef and under two names, one of them dead since before, and a route reflector that was never in Kubernetes.
func TestClustersThatKopsMade(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	m := kopsWorkers(8)
	s.join(m[:6]...)
	_, err := s.calico.Start(t.Context(), caliconode.Host{Name: "reflector-1", Address: netip.MustParseAddr("172.30.1.250")})
	s.must(err)
	dead := s.destroy(m[5])
	names := []string{"--adopt-unreferenced", "--domain=" + privateDomain}

	t.Log("what is shown")
	revision := s.etcd.Revision(t)
	s.shows(0, "(no-identity)")
	s.shows(2, "--domain names the difference (ambiguous-name)", "--adopt-unreferenced")
	s.shows(2, "ip-10-0-0-5, reflector-1: nothing but its name shows that it was ever a Kubernetes Node", names...)
	if now := s.etcd.Revision(t); now != revision {
		t.Errorf("%d writes by plans", now-revision)
	}

	t.Log("without --domain nothing goes")
	ours := s.ours("--adopt-unreferenced")
	s.says(ours, `"gate":"ambiguous-name","host":"ip-10-0-0-5"`)
	want := s.dump()
	gone := s.destroy(m[4])
	s.says(ours, `"gate":"ambiguous-name","host":"ip-10-0-0-4"`)
	ours.Stop()
	s.same(want)

	t.Log("what is watched goes, what died before waits")
	s.keep("reflector-1")
	ours = s.ours(names...)
	s.says(ours, `"gate":"mass-guard","host":"ip-10-0-0-5"`)
	want = s.without(m[3])
	s.destroy(m[3])
	s.becomes(want, "nothing but the machines that live and those that nobody saw go")
	s.confirm(ours)
	want = less(less(want, dead), gone)
	s.becomes(want, "nothing but the machines that live, and the route reflector")

	ours.Stop()

	t.Log("calico-node with CALICO_K8S_NODE_REF, and no flags any more")
	for i := range 3 {
		m[i].ref = m[i].node
		s.boot(m[i])
	}
	ours = s.ours()
	s.join(m[6]) // without
	s.says(ours, "Starting")
	s.settle()
	want = s.without(m[0])
	s.destroy(m[0])
	s.becomes(want, "nothing but the machines that live, and the route reflector")
	s.destroy(m[6])
	s.settle()
	s.replace(machine{node: "ip-10-0-0-9." + privateDomain, calico: "ip-10-0-0-9", ref: "ip-10-0-0-9." + privateDomain}, m[1])
	ours.Stop()
	s.shows(0, "ip-10-0-0-6, reflector-1: it has no orchRef")

	t.Log("two Calico Nodes for one machine")
	s.join(m[7])
	_, err = s.calico.Start(t.Context(), caliconode.Host{Name: m[7].node, Address: netip.MustParseAddr("172.30.1.251")})
	s.must(err)
	s.shows(2, "2 Calico Nodes would be Kubernetes Node \""+m[7].node+"\" (ambiguous-name)", names...)
}

// same fails unless the datastore holds just that.
func (s *site) same(want map[string]string) {
	s.t.Helper()
	s.settle()
	if diff := cmp.Diff(want, s.dump()); diff != "" {
		s.t.Errorf("the datastore has changed:\n%s", diff)
	}
}

// shows runs plan and fails unless it ends with the code, says so, and shows no removal.
func (s *site) shows(code int, what string, args ...string) {
	s.t.Helper()
	got, out := s.plan(append([]string{"--grace-period=0s"}, args...)...)
	if got != code || !strings.Contains(out, what) || strings.Contains(out, ". remove") || strings.Contains(out, ". fence") {
		s.t.Errorf("plan %q: exit code %d and\n%s\nwant %d, %q and nothing to remove", args, got, out, code, what)
	}
}

// hash is what a person confirms, as the log or a plan says it.
var hash = regexp.MustCompile(regexp.QuoteMeta(nodesync.ConfirmAnnotation) + `=([0-9a-f]+/\S+Z)`)

// confirm gives the confirmation that the program asked for last.
func (s *site) confirm(p *testkit.Process) {
	s.t.Helper()
	s.says(p, nodesync.ConfirmAnnotation+"=")
	all := hash.FindAllStringSubmatch(p.Output(), -1)
	if len(all) == 0 {
		s.t.Fatalf("the log names no confirmation:\n%s", p.Output())
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{nodesync.ConfirmAnnotation: all[len(all)-1][1]}}})
	s.must(err)
	_, err = s.api.Client.CoreV1().ConfigMaps(s.namespace).Patch(s.t.Context(), "calico-node-sync-state", types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(err)
}

// keep annotates a Calico Node as `calicoctl` or `etcdctl` would.
func (s *site) keep(calicoNode string) {
	s.t.Helper()
	nodes := s.calico.Client().Nodes()
	node, err := nodes.Get(s.t.Context(), calicoNode, options.GetOptions{})
	s.must(err)
	node.Annotations = map[string]string{nodesync.KeepAnnotation: "true"}
	_, err = nodes.Update(s.t.Context(), node, options.SetOptions{})
	s.must(err)
}
