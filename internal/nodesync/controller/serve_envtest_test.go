// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// ask writes a request as the plugin does.
func (s *stage) ask(request Request) {
	s.t.Helper()
	text, err := json.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{nodesync.RequestAnnotation: string(text)}}})
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = s.api.Client.CoreV1().ConfigMaps(s.state.Namespace).Patch(s.t.Context(), s.state.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) answer() Answer {
	s.t.Helper()
	object := must.Get(s.api.Client.CoreV1().ConfigMaps(s.state.Namespace).Get(s.t.Context(), s.state.Name, metav1.GetOptions{})).Or(s.t)
	return ParseAnswer(object.Annotations[nodesync.AnswerAnnotation])
}

// round runs one round of a controller that serves requests.
func (s *stage) round(r *Reconciler) {
	s.t.Helper()
	must.Get(r.pass(s.t.Context())).Or(s.t)
}

func (s *stage) serving() *Reconciler {
	r := s.reconciler()
	r.Requests, r.RestoreStore = r.State.(*ConfigMapState), s.store
	return r
}

// A machine's addresses come back with it: its block as long as an IPPool has it, and under the same handles. What is another's by now is named, and a
// machine that is another gets nothing of what pods had left.
func TestAddressesOfAMachineAreRestored(t *testing.T) {
	s := newStage(t, 2)
	s.join("9")
	pods := []*corev1.Pod{podOn(s.name("9"), "a"), podOn(s.name("9"), "b")}
	journal := &world{}
	r := s.reconciler()
	r.Journal = journal
	s.leave("9")
	s.settle(r)
	if len(journal.entries) != 1 || len(journal.entries[0].Addresses) < 3 {
		t.Fatalf("journaled: %+v", journal.entries)
	}
	restore := func(what string, all bool, says string, dryRun bool, entries ...Entry) {
		t.Helper()
		var text strings.Builder
		got := must.Get(Restore(t.Context(), s.store, "", entries, dryRun, func(line string) error {
			text.WriteString(line + "\n")
			return nil
		})).Or(t)
		if got != all || !strings.Contains(text.String(), says) {
			t.Errorf("%s: %t\n%swant %t and %q", what, got, text.String(), all, says)
		}
	}
	entry, dump := journal.entries[0], s.etcd.Dump(t)
	for key, value := range dump {
		if strings.HasPrefix(key, "/calico/resources/v3/projectcalico.org/ippools/") {
			must.Get(s.etcd.Client.Delete(t.Context(), key)).Or(t)
			restore("without an IPPool", false, "IPPool", true, entry)
			must.Get(s.etcd.Client.Put(t.Context(), key, value)).Or(t)
		}
	}
	restore("a dry run", true, "would restore address", true, entry)
	restore("two entries of one clean-up", true, "would restore address", true, entry, entry)
	s.expectUnchanged(dump)
	restore("restored", true, "restored address", false, entry)
	left := Entry{Host: entry.Host, Leftovers: true, Addresses: entry.Addresses, MachineUID: must.Get(s.store.MachineUID(t.Context(), entry.Host)).Or(t)}
	restore("again, by an entry of leftovers", true, "unchanged: address", false, left)
	other := left
	other.Addresses = []calico.HeldAddress{entry.Addresses[0]}
	other.Addresses[0].Handle = "k8s-pod-network.other"
	restore("an address of another", false, "is assigned to handle "+entry.Addresses[0].Handle+" by now", false, other)
	restore("two entries of one address", false, "is in an older entry as well", false, left, other)
	left.MachineUID = "another"
	restore("another machine", false, "is another machine than the one", false, left)
	for _, pod := range pods {
		addresses, err := s.calico.Client().IPAM().IPsByHandle(t.Context(), caliconode.HandleID(pod))
		if err != nil || len(addresses) != 1 {
			t.Errorf("pod %s: %v, %v", pod.Name, addresses, err)
		}
		if !strings.Contains(s.etcd.Dump(t)["/calico/ipam/v2/handle/"+caliconode.HandleID(pod)], `:1`) {
			t.Errorf("the handle of pod %s does not count one address", pod.Name)
		}
	}
}
