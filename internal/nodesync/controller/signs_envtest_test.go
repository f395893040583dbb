// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
)

// neighbor is a machine of another cluster that uses the same etcd, with a pod.
func (s *stage) neighbor(calico, kubernetes string, number byte) *caliconode.Agent {
	s.t.Helper()
	agent, err := s.calico.Start(s.t.Context(), caliconode.Host{
		Name: calico, KubernetesNode: kubernetes, Address: netip.AddrFrom4([4]byte{172, 31, 0, number}), IPIP: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.connects(agent, "first")
	return agent
}

// connects gives a machine a pod, with an address and an endpoint.
func (s *stage) connects(agent *caliconode.Agent, name string) {
	s.t.Helper()
	if _, err := agent.PodNetwork().Add(s.t.Context(), podOn(agent.Host().Name, name)); err != nil {
		s.t.Fatal(err)
	}
}

// Two clusters use one etcd by mistake. Whatever the machines of the other one are called, and whichever of Calico's
// programs shows that they live, they keep every key, also the one that is silent; a machine of this cluster that is
// gone is cleaned up meanwhile, as ever.
func TestAnotherClusterOnThisDatastoreKeepsEverything(t *testing.T) {
	t.Parallel()
	alive := map[string]func(s *stage, agent *caliconode.Agent, round int){
		"Felix reports": func(s *stage, agent *caliconode.Agent, _ int) {
			if err := agent.ReportStatus(s.t.Context(), s.clock.Now()); err != nil {
				s.t.Fatal(err)
			}
		},
		"pods come": func(s *stage, agent *caliconode.Agent, round int) { s.connects(agent, fmt.Sprint("pod-", round)) },
	}
	for scheme, names := range map[string]func(kubernetes string) string{
		"equal names": func(kubernetes string) string { return kubernetes },
		"short names": func(kubernetes string) string { short, _, _ := strings.Cut(kubernetes, "."); return short },
		"NODENAME":    func(kubernetes string) string { return "calico-" + kubernetes },
	} {
		for how, speaks := range alive {
			t.Run(scheme+" "+how, func(t *testing.T) {
				t.Parallel()
				s := newStage(t, 5)
				own := s.etcd.Dump(t)
				full := s.name("other") + ".example.com"
				speaking, silent := s.neighbor(names(full), full, 1), s.neighbor(names("silent-"+full), "silent-"+full, 2)
				want := s.etcd.Dump(t)
				maps.DeleteFunc(want, func(key, _ string) bool { return own[key] != "" })
				r := s.reconciler()
				s.round(r)
				s.leave("4")
				for round := range 36 {
					s.clock.Step(s.config.Resync)
					speaks(s, speaking, round)
					s.round(r)
					if round == 18 {
						r = s.reconciler() // a restart forgets nothing of it
					}
				}
				left := s.etcd.Dump(t)
				for key := range want {
					if left[key] == "" {
						t.Errorf("%s is gone", key)
					}
				}
				if len(want) < 14 {
					t.Errorf("the other cluster has %d keys alone", len(want))
				}
				if got := s.gone("0", "1", "2", "3", "4"); got != "4" {
					t.Errorf("gone are the machines %q of this cluster, want 4", got)
				}
				plan, err := r.Preview(t.Context())
				if err != nil || !strings.Contains(plan.String(), "another cluster on this datastore") || !strings.Contains(plan.String(), silent.Host().Name) {
					t.Errorf("the question is not asked: %v, %s", err, plan)
				}
			})
		}
	}
}

// calicoPod is a running calico-node pod with a NODENAME of its own.
func (s *stage) calicoPod(node, nodename string) {
	s.t.Helper()
	pod := podOn(node, "calico-node")
	pod.Labels = map[string]string{"k8s-app": "calico-node"}
	pod.Spec.Containers = []corev1.Container{{Name: "calico-node", Image: "i", Env: []corev1.EnvVar{{Name: "NODENAME", Value: nodename}}}}
	pod.Spec.AutomountServiceAccountToken = new(bool)
	stored, err := s.api.Client.CoreV1().Pods("default").Create(s.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	stored.Status.Phase = corev1.PodRunning
	if _, err := s.api.Client.CoreV1().Pods("default").UpdateStatus(s.t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
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
	used := s.neighbor(live, s.name("9"), 9)
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
	if err := used.PodNetwork().Del(t.Context(), podOn(live, "first")); err != nil {
		t.Fatal(err)
	}
	forget("5", live, true)
	forget("6", s.name("9"), true)
	if left := s.etcd.Dump(t); left["/calico/resources/v3/projectcalico.org/nodes/"+live] != "" || len(left) <= len(without) {
		t.Errorf("a person has no last word: %d keys, %d before", len(left), len(without))
	}
}
