// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// unboundFlags let as many machines go as a test likes.
func unboundFlags(more ...string) []string {
	return append([]string{"--mass-guard-nodes=1000", "--min-overlap-percent=0", "--nodes-per-round=100", "--resync-period=1s"}, more...)
}

// Of six machines that are gone, five have something that cannot be parsed. The sixth is cleaned up; of the five not a byte changes, and
// the plan names the key that is wrong.
func TestUnreadableObjectsHoldTheirMachineBack(t *testing.T) {
	t.Parallel()
	broken := []string{"node", "endpoint", "block", "affinity", "config", "hostendpoint"}
	s := newDirtySite(t, "unreadable", broken...)
	want := s.etcd.Dump(t)
	keys := map[string]string{} // of what is broken, by machine
	for _, machine := range broken {
		keys[machine] = s.breakSomething(machine)
		want[keys[machine]] = s.etcd.Dump(t)[keys[machine]]
	}
	s.install(goes, 200, 2)
	process := s.start(s.through, unboundFlags()...)
	testkit.Eventually(t, "the machine without fault to be cleaned up, and nothing else", func() string {
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
	code, said := s.plan(unboundFlags("--grace-period=0s")...)
	if code != 2 {
		t.Errorf("the plan: got exit code %d, want 2", code)
	}
	for machine, key := range keys {
		if !slices.ContainsFunc(strings.Split(said, "\n"), func(line string) bool {
			return strings.Contains(line, key) && strings.HasSuffix(line, "(unreadable)") && (machine == "node" || strings.Contains(line, s.name(machine)))
		}) {
			t.Errorf("the plan does not say that %s is unreadable:\n%s", key, said)
		}
	}
}

// breakSomething makes one object of a machine unreadable, and returns its key.
func (s *dirtySite) breakSomething(machine string) string {
	s.t.Helper()
	name := s.name(machine)
	kind := map[string]string{
		"node": nodePrefix + name, "endpoint": "/calico/resources/v3/projectcalico.org/workloadendpoints/default/" + strings.ReplaceAll(name, "-", "--"),
		"affinity": ipamPrefix + "host/" + name + "/ipv4/block/", "config": "/calico/resources/v3/projectcalico.org/felixconfigurations/node." + name,
		"block": ipamPrefix + "assignment/ipv4/block/", "hostendpoint": "/calico/resources/v3/projectcalico.org/hostendpoints/" + name,
	}[machine]
	key := kind // of what is not there yet
	dump := s.etcd.Dump(s.t)
	for _, other := range slices.Sorted(maps.Keys(dump)) {
		if strings.HasPrefix(other, kind) && (machine != "block" || strings.Contains(dump[other], name)) {
			key = other
		}
	}
	_, err := s.etcd.Client.Put(s.t.Context(), key, `{"kind": "that of `+name+`", but no JSON`)
	s.must(err)
	return key
}

// plan runs the plan command.
func (s *dirtySite) plan(flags ...string) (code int, said string) {
	s.t.Helper()
	args := append([]string{"plan", "--kubeconfig", s.through.Kubeconfig, "--leader-election-namespace", s.namespace}, flags...)
	return s.run([]string{"ETCD_ENDPOINTS=" + s.through.EtcdURL}, args...)
}

// awaitRounds waits until so many more rounds have begun.
func (s *dirtySite) awaitRounds(n int) {
	s.t.Helper()
	seen := s.through.Rounds()
	testkit.Eventually(s.t, "rounds", func() string {
		if s.through.Rounds() >= seen+n {
			return ""
		}
		return "none"
	})
}

// Without a ClusterInformation that can be read nothing is written into the datastore.
func TestAnUnreadableClusterInformationHoldsEverythingBack(t *testing.T) {
	t.Parallel()
	s := newDirtySite(t, "no-information", goes)
	_, err := s.etcd.Client.Put(t.Context(), clusterInformationKey, "{")
	s.must(err)
	s.photograph()
	process := s.start(s.through, unboundFlags()...)
	testkit.Eventually(t, "the reason", func() string {
		if log := process.Output(); strings.Contains(log, string(nodesync.GateDatastoreNotReady)) && strings.Contains(log, "does not report datastoreReady") {
			return ""
		}
		return "its log:\n" + tail(process)
	})
	s.awaitRounds(3)
	process.Stop()
	s.expectSameDatastore("everything was held back")
}

// expectSameDatastore fails if anything was written to etcd.
func (s *dirtySite) expectSameDatastore(when string) {
	s.t.Helper()
	if now := s.etcd.Revision(s.t); now != s.revision || s.through.Writes()[etcdWrites] > 0 {
		s.t.Fatalf("%s: etcd has moved from revision %d to %d (-before +after):\n%s", when, s.revision, now, cmp.Diff(s.before, s.etcd.Dump(s.t)))
	}
}

// Five machines are gone whose deletion was not observed, more than the mass guard lets pass. A confirmation that has expired, that is for
// other nodes, that holds too long or that is none lets nothing pass, and the log says why; the right one does.
func TestConfirmationsThatDoNotHold(t *testing.T) {
	t.Parallel()
	s := newDirtySite(t, "confirm", "a", "b", "c", "d", "e")
	process := s.start(s.through, "--min-overlap-percent=0", "--resync-period=1s")
	hash := ""
	testkit.Eventually(t, "the mass guard to name its hash", func() string {
		_, after, _ := strings.Cut(process.Output(), nodesync.ConfirmAnnotation+"=")
		if hash, _, _ = strings.Cut(after, "/"); hash == "" {
			return "its log:\n" + tail(process)
		}
		return ""
	})
	for _, c := range []struct{ confirmation, want string }{
		{hash + "/2001-02-03T04:05:06Z", "the confirmation expired at 2001-02-03T04:05:06Z"},
		{"0123456789ab/2099-02-03T04:05:06Z", `the confirmation is for \"0123456789ab\", which are other nodes`},
		{hash + "/2099-02-03T04:05:06Z", "the confirmation ends at 2099-02-03T04:05:06Z, more than 24h0m0s from now"},
		{hash, "is not of the form HASH/TIME"},
		{"all of them", "is not of the form HASH/TIME"},
	} {
		s.confirm(c.confirmation)
		testkit.Eventually(t, fmt.Sprintf("the verdict on %q", c.confirmation), func() string {
			if strings.Contains(process.Output(), c.want) {
				return ""
			}
			return fmt.Sprintf("it does not say %q; its log:\n%s", c.want, tail(process))
		})
		s.awaitRounds(2)
		s.expectSameDatastore(c.confirmation)
	}
	s.confirm(hash + "/" + time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z"))
	testkit.Eventually(t, "all five to be cleaned up", func() string {
		for key := range s.etcd.Dump(t) {
			if name, ok := strings.CutPrefix(key, nodePrefix); ok && !strings.Contains(name, "stays") {
				return name + " is there; the log:\n" + tail(process)
			}
		}
		return ""
	})
	process.Stop()
}

// Most of the datastore is stale, and the person who is called has a kubeconfig alone: the plugin shows what the running program holds back,
// and what it confirms is acted on long before the next resync, which is an hour away.
func TestThePluginConfirmsWhatAProgramHoldsBack(t *testing.T) {
	t.Parallel()
	s := newDirtySite(t, "plugin", "a", "b", "c", "d", "e")
	process := s.start(s.through, "--resync-period=1h", "--mass-guard-nodes=1000")
	confirm := func(args ...string) (code int, said string) {
		cmd := exec.CommandContext(t.Context(), testkit.Binary(t, "kubectl-mooring"),
			append([]string{"--kubeconfig", s.api.Kubeconfig, "--mooring-namespace", s.namespace, "confirm"}, args...)...)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	hash := ""
	testkit.Eventually(t, "the plugin to show what waits", func() string {
		code, said := confirm()
		_, after, _ := strings.Cut(said, "to confirm: kubectl mooring confirm nodes ")
		if hash, _, _ = strings.Cut(after, "\n"); code == 2 && hash != "" && strings.Contains(said, "5 machines are held back by the gate overlap of calico-node-sync\n") {
			return ""
		}
		return fmt.Sprintf("exit code %d, %s; the log:\n%s", code, said, tail(process))
	})
	if code, said := confirm("nodes", "0123456789ab"); code != 1 || !strings.Contains(said, "is not the current one, which is "+hash) {
		t.Errorf("another hash: exit code %d, %s", code, said)
	}
	s.expectSameDatastore("nothing was confirmed")
	if code, said := confirm("nodes", hash); code != 0 || !strings.HasPrefix(said, "Confirmed until ") {
		t.Fatalf("exit code %d, %s", code, said)
	}
	testkit.Eventually(t, "all five to be cleaned up", func() string {
		for key := range s.etcd.Dump(t) {
			if name, ok := strings.CutPrefix(key, nodePrefix); ok && !strings.Contains(name, "stays") {
				return name + " is there; the log:\n" + tail(process)
			}
		}
		return ""
	})
	if code, said := confirm(); code != 0 || said != "nothing waits for a confirmation\n" {
		t.Errorf("afterwards: exit code %d, %s", code, said)
	}
	process.Stop()
}

// confirm is what a person does by kubectl annotate.
func (s *dirtySite) confirm(text string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, nodesync.ConfirmAnnotation, text)
	_, err := s.api.Client.CoreV1().ConfigMaps(s.namespace).
		Patch(s.t.Context(), "calico-node-sync-state", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.must(err)
}
