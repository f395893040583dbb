// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// A machine whose name begins the names of others goes, and machines whose names are as long as names can be. The others stay, byte for
// byte, and so does what cannot be told from a machine that lives: names in capitals, and a short name that is the full name's beginning.
func TestNamesThatBeginOthersOrAreNone(t *testing.T) {
	t.Parallel()
	s := newDirtySite(t, "names")
	host := byte(10)
	install := func(calico, kubernetes string, pods int) {
		t.Helper()
		host++
		agent, err := s.calico.Start(t.Context(), caliconode.Host{
			Name: calico, KubernetesNode: kubernetes, Address: netip.AddrFrom4([4]byte{172, 31, 0, host}), IPIP: true, VXLANv6: true,
		})
		s.must(err)
		for i := range pods {
			pod := s.pod("of-"+fmt.Sprint(host), i)
			pod.Spec.NodeName = calico
			_, err := agent.PodNetwork().Add(t.Context(), pod)
			s.must(err)
		}
	}
	// Alive.
	for _, machine := range []string{"n10", "n1-0", "n1a", "m2.example"} {
		s.addNode(machine)
		install(s.name(machine), s.name(machine), 2)
	}
	s.addNode("capital")
	// Gone, but perhaps not: in capitals it is not a name of a Node, and the short name may mean the full one that lives.
	install(s.name("odd"), strings.ToUpper(s.name("odd")), 2)
	install(s.name("folded"), strings.ToUpper(s.name("capital")), 2)
	install(s.name("m2"), s.name("m2"), 2)
	upper := s.rawNode(strings.ToUpper(s.name("raw")))
	want := s.etcd.Dump(t)
	// Gone.
	install(s.name("n1"), s.name("n1"), 2)
	long := s.name("") + strings.Repeat("x", 248-len(s.name(""))) // with which calico-node can still start
	install(long, long, 0)
	s.rawNode(long + "yyyyy")

	process := s.start(s.through, unboundFlags()...)
	testkit.Eventually(t, "the three to be cleaned up, and nothing else", func() string {
		if diff := cmp.Diff(want, s.etcd.Dump(t)); diff != "" {
			return diff + "\nits log:\n" + tail(process)
		}
		return ""
	})
	s.awaitRounds(2)
	process.Stop()
	if diff := cmp.Diff(want, s.etcd.Dump(t)); diff != "" {
		t.Errorf("it went on (-want +got):\n%s", diff)
	}
	_, said := s.plan(unboundFlags("--grace-period=0s")...)
	for name, reason := range map[string]string{
		s.name("odd"):    `"NAMES-ODD" is not a valid name of a Kubernetes Node`,
		s.name("folded"): `"NAMES-CAPITAL" is not a valid name of a Kubernetes Node`,
		s.name("m2"):     `Kubernetes Node "names-m2.example" may be the same machine as "names-m2"`,
		upper:            `"NAMES-RAW" is not a valid name of a Kubernetes Node`,
	} {
		if !strings.Contains(said, "left alone: "+name+": "+reason) || !strings.Contains(said, "(ambiguous-name)") {
			t.Errorf("the plan does not say of %s %q:\n%s", name, reason, said)
		}
	}
}

// rawNode puts a Calico Node with a name that libcalico-go would not take, with an affinity, and returns the name.
func (s *dirtySite) rawNode(name string) string {
	s.t.Helper()
	template := s.name("stays-0")
	for key, value := range s.etcd.Dump(s.t) {
		if key == nodePrefix+template || strings.HasSuffix(key, "felixconfigurations/node."+template) {
			_, err := s.etcd.Client.Put(s.t.Context(), strings.ReplaceAll(key, template, name), strings.ReplaceAll(value, template, name))
			s.must(err)
		}
	}
	_, err := s.etcd.Client.Put(s.t.Context(), ipamPrefix+"host/"+name+"/ipv4/block/10.244.250.0-26", `{"state":"confirmed","deleted":false}`)
	s.must(err)
	return name
}

// What restore is told to put back but cannot, it names, and then it writes nothing: unknown machines and entries, files that are none or
// not there, and the journal of another cluster. The machine that it knows it puts back.
func TestRestoreOfWhatIsNotThereWritesNothing(t *testing.T) {
	t.Parallel()
	s := newDirtySite(t, "restoring", goes)
	dirty := s.before
	process := s.start(s.through, unboundFlags()...)
	testkit.Eventually(t, "the machine to be cleaned up", func() string {
		if s.etcd.Dump(t)[nodePrefix+s.name(goes)] != "" {
			return "its log:\n" + tail(process)
		}
		return s.within(s.remembersNoAbsence)
	})
	process.Stop()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		s.must(os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	foreign := `{"clusterUID":"another", "host":"n1", "objects":[{"key":"` + nodePrefix + `n1","revision":1,"value":"{}"}]}`
	s.through = s.interpose()
	s.photograph()
	restore := func(args ...string) (int, string) {
		t.Helper()
		args = append([]string{"restore", "--kubeconfig", s.through.Kubeconfig, "--namespace", s.namespace}, args...)
		return s.run([]string{"ETCD_ENDPOINTS=" + s.through.EtcdURL}, args...)
	}
	for _, c := range []struct{ what, want string }{
		{s.name("nobody"), s.name("nobody")},
		{s.name(goes) + "-2", s.name(goes) + "-2"},
		{strings.ToUpper(s.name(goes)), strings.ToUpper(s.name(goes))},
		{strings.Repeat("y", 253), strings.Repeat("y", 253)},
		{filepath.Join(dir, "none.json"), "no such file"},
		{file("garbage.json", "{"), "is not an entry of the journal"},
		{file("empty.json", "{}"), "is not an entry of the journal"},
		{file("foreign.json", foreign), "check ETCD_ENDPOINTS"},
	} {
		code, said := restore(c.what)
		if code != 1 || !strings.HasPrefix(said, "error: ") || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
			t.Errorf("restore %s: got exit code %d and %q, want 1 and one sentence with %q", c.what, code, said, c.want)
		}
		// One that is known does not make up for one that is not.
		if code, said := restore(s.name(goes), c.what); code != 1 || strings.Contains(said, "restored") {
			t.Errorf("restore %s alongside one that is known: got exit code %d and %q", c.what, code, said)
		}
		s.expectUntouched("restore " + c.what)
	}
	code, said := restore(s.name(goes))
	if code != 0 {
		t.Errorf("restore of what is known: got exit code %d and %q", code, said)
	}
	restored := s.etcd.Dump(t)
	maps.DeleteFunc(dirty, func(key, _ string) bool { return strings.HasPrefix(key, ipamPrefix) || key == clusterInformationKey })
	maps.DeleteFunc(restored, func(key, _ string) bool { return strings.HasPrefix(key, ipamPrefix) || key == clusterInformationKey })
	if diff := cmp.Diff(dirty, restored); diff != "" {
		t.Errorf("what was put back differs (-before +after):\n%s", diff)
	}
}
