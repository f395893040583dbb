// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// calicoPod is a running calico-node pod with a NODENAME of its own.
func (s *stage) calicoPod(node, nodename string) {
	s.t.Helper()
	pod := podOn(node, "calico-node")
	pod.Labels = map[string]string{"k8s-app": "calico-node"}
	pod.Spec.Containers = []corev1.Container{{Name: "calico-node", Image: "i", Env: []corev1.EnvVar{{Name: "NODENAME", Value: nodename}}}}
	pod.Spec.AutomountServiceAccountToken = new(bool)
	stored := must.Get(s.api.Client.CoreV1().Pods("default").Create(s.t.Context(), pod, metav1.CreateOptions{})).Or(s.t)
	stored.Status.Phase = corev1.PodRunning
	must.Get(s.api.Client.CoreV1().Pods("default").UpdateStatus(s.t.Context(), stored, metav1.UpdateOptions{})).Or(s.t)
}

// A machine's calico-node runs with another NODENAME, and its old Calico Node, which bears the Kubernetes Node's
// name, is stale. By name the stale one is removed with all its keys; the one that the machine uses keeps all of its
// own, and the reason is true.
func TestTheStaleOneOfTwoCalicoNodesGoesByName(t *testing.T) {
	s := newStage(t, 3)
	s.api.AllowPods(t, "default", "default")
	r := s.serving()
	s.round(r)
	without := s.etcd.Dump(t)
	s.createNode("9")
	live := "c-" + s.name("9")
	used, err := s.calico.Start(t.Context(), caliconode.Host{Name: live, KubernetesNode: s.name("9"), Address: netip.AddrFrom4([4]byte{172, 31, 0, 9}), IPIP: true})
	if err != nil {
		t.Fatal(err)
	}
	must.Get(used.PodNetwork().Add(t.Context(), podOn(live, "first"))).Or(t)
	with := s.etcd.Dump(t)
	s.startCalicoNode("9")
	forget := func(id, name string, ignore bool) string {
		t.Helper()
		s.ask(Request{ID: id, Verb: VerbForget, Names: []string{name}, IgnoreSigns: ignore, Until: s.clock.Now().Add(10 * time.Minute)})
		s.round(r)
		return strings.Join(s.answer().Lines, "\n")
	}
	both := s.etcd.Dump(t)
	if answer := forget("1", s.name("9"), false); !strings.Contains(answer, "which NODENAME does it run with") {
		t.Errorf("while nothing shows which one is used: %s", answer)
	}
	s.calicoPod(s.name("9"), live)
	if answer := forget("2", live, false); !strings.Contains(answer, "runs with NODENAME "+`"`+live+`"`) || strings.Contains(answer, "is gone") {
		t.Errorf("the one that is used: %s", answer)
	}
	s.expectUnchanged(both)
	if answer := forget("3", s.name("9"), false); s.answer().State != AnswerDone || !strings.Contains(answer, "done: remove Calico Node "+s.name("9")) {
		t.Errorf("the stale one: %s", answer)
	}
	s.expectUnchanged(with)
	// Once it is the only one it is the machine's, whatever a person says.
	if answer := forget("4", used.Host().Name, true); !strings.Contains(answer, "its Kubernetes Node exists") {
		t.Errorf("the only one: %s", answer)
	}
	s.expectUnchanged(with)
	// A person insists on the one that is used, while there are two.
	s.startCalicoNode("9")
	must.Do(t, used.PodNetwork().Del(t.Context(), podOn(live, "first")))
	forget("5", live, true)
	forget("6", s.name("9"), true)
	if left := s.etcd.Dump(t); left["/calico/resources/v3/projectcalico.org/nodes/"+live] != "" || len(left) <= len(without) {
		t.Errorf("a person has no last word: %d keys, %d before", len(left), len(without))
	}
}
