// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

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

// What a person asks for by name is done with the controller's gates and answered; a machine that lives stays.
func TestAForgetByName(t *testing.T) {
	s := newStage(t, 3)
	before := s.etcd.Dump(t)
	r := s.serving()
	s.round(r) // makes the ConfigMap
	s.join("9")
	with := s.etcd.Dump(t)
	forget := func(id string, dryRun bool, names ...string) Answer {
		t.Helper()
		s.ask(Request{ID: id, Verb: VerbForget, Names: names, DryRun: dryRun, Until: s.clock.Now().Add(10 * time.Minute)})
		s.round(r)
		return s.answer()
	}
	if a := forget("1", false, s.name("9")); a.ID != "1" || a.State != AnswerRunning && a.State != AnswerHeld || !strings.Contains(strings.Join(a.Lines, "\n"), "Kubernetes Node exists") {
		t.Errorf("a machine that lives: %+v", a)
	}
	s.expectUnchanged(with)
	if a := forget("2", false, "nobody"); a.State != AnswerHeld || len(a.Lines) != 1 || !strings.Contains(strings.Join(a.Lines, "\n"), "nothing in Calico's datastore is about it") {
		t.Errorf("a name of nothing: %+v", a)
	}
	// Nobody has watched this one go, so that the grace period would have to pass.
	s.dropNode(t.Context(), s.name("9"))
	if a := forget("3", true, s.name("9")); a.State != AnswerDone || !strings.Contains(strings.Join(a.Lines, "\n"), "remove Calico Node "+s.name("9")) {
		t.Errorf("a dry run: %+v", a)
	}
	s.expectUnchanged(with)
	if a := forget("4", false, s.name("9")); a.State != AnswerDone || !strings.Contains(strings.Join(a.Lines, "\n"), "done: remove Calico Node "+s.name("9")) {
		t.Errorf("by name: %+v", a)
	}
	s.expectUnchanged(before)
	revision := s.etcd.Revision(t)
	s.round(r)
	if s.etcd.Revision(t) != revision || s.answer().ID != "4" {
		t.Error("a request that is done was served again")
	}
	if err := r.Requests.Answer(t.Context(), "another", Answer{}); !errors.Is(err, errWithdrawn) {
		t.Errorf("an answer to a request that is another by now: %v", err)
	}
	s.ask(Request{ID: "5", Verb: VerbForget, Names: []string{s.name("1")}, Until: s.clock.Now().Add(-time.Second)})
	if s.round(r); s.answer().State != AnswerFailed || !strings.Contains(s.answer().Lines[0], "too late") {
		t.Errorf("a request that is too old: %+v", s.answer())
	}
}

// A process that dies before it has answered leaves a request that the next one ends alike.
func TestAForgetIsGoneOnWith(t *testing.T) {
	s := newStage(t, 3)
	before := s.etcd.Dump(t)
	s.round(s.serving())
	for n := 1; n <= writesOfOneMachine; n++ {
		s.join("9")
		s.round(s.serving())
		s.dropNode(t.Context(), s.name("9"))
		s.ask(Request{ID: "n" + string(rune('0'+n)), Verb: VerbForget, Names: []string{s.name("9")}, Until: s.clock.Now().Add(10 * time.Minute)})
		r := s.serving()
		r.Datastore = &interrupted{Datastore: s.store, before: func(write int) error {
			if write >= n {
				return errKilled
			}
			return nil
		}}
		s.round(r)
		if a := s.answer(); a.State != AnswerRunning {
			t.Errorf("write %d: %+v", n, a)
		}
		for range 5 {
			s.clock.Step(requestAgain)
			s.round(s.serving())
		}
		if a := s.answer(); a.State != AnswerDone {
			t.Errorf("write %d, later: %+v", n, a)
		}
		s.expectUnchanged(before)
	}
}

// What was left of pods goes back where it was as long as it is free; what is another's by now is named, and a machine that is another gets nothing.
func TestLeftoverIsRestored(t *testing.T) {
	s := newLeftoverStage(t)
	s.ready["2"] = false
	r := s.reconciler()
	s.rounds(r, 90*time.Minute)
	s.expectHeld("1", "b", 0)
	restore := func(dryRun bool, entries ...Entry) (bool, string) {
		t.Helper()
		var lines []string
		all := must.Get(Restore(t.Context(), s.stage.store, "", entries, dryRun, func(line string) error {
			lines = append(lines, line)
			return nil
		})).Or(t)
		return all, strings.Join(lines, "\n")
	}
	entries := s.journal.entries
	if all, text := restore(true, entries...); !all || !strings.Contains(text, "would restore address") {
		t.Errorf("a dry run: %t\n%s", all, text)
	}
	s.expectHeld("1", "b", 0)
	if all, text := restore(false, entries...); !all {
		t.Errorf("restored: %t\n%s", all, text)
	}
	s.expectHeld("1", "b", 1)
	if all, text := restore(false, entries...); !all || !strings.Contains(text, "unchanged: address") {
		t.Errorf("again: %t\n%s", all, text)
	}

	var address Entry
	for _, entry := range entries {
		if len(entry.Addresses) > 0 {
			address = entry
		}
	}
	other := address
	other.Addresses = []calico.HeldAddress{address.Addresses[0]}
	other.Addresses[0].Handle = "k8s-pod-network.other"
	if all, text := restore(false, other); all || !strings.Contains(text, "is assigned to handle "+address.Addresses[0].Handle+" by now") {
		t.Errorf("an address of another: %t\n%s", all, text)
	}
	if all, text := restore(false, address, other); all || !strings.Contains(text, "is in an older entry as well") {
		t.Errorf("two entries of one address: %t\n%s", all, text)
	}
	s.dropNode(t.Context(), s.name("1"))
	stranger := address
	stranger.MachineUID = "another"
	if all, text := restore(false, stranger); all || !strings.Contains(text, "is another machine than the one") {
		t.Errorf("another machine: %t\n%s", all, text)
	}
}

// A machine's addresses come back with it: its block as long as an IPPool has it, and under the same handles.
func TestAddressesOfAMachineAreRestored(t *testing.T) {
	s := newStage(t, 2)
	s.join("9")
	pods := []*corev1.Pod{podOn(s.name("9"), "a"), podOn(s.name("9"), "b")}
	journal := &recordingJournal{}
	r := s.reconciler()
	r.Journal = journal
	s.leave("9")
	s.settle(r)
	if len(journal.entries) != 1 || len(journal.entries[0].Addresses) < 3 {
		t.Fatalf("journaled: %+v", journal.entries)
	}
	pools := "/calico/resources/v3/projectcalico.org/ippools/"
	say := func(string) error { return nil }
	for key, value := range s.etcd.Dump(t) {
		if strings.HasPrefix(key, pools) {
			must.Get(s.etcd.Client.Delete(t.Context(), key)).Or(t)
			if all, err := Restore(t.Context(), s.store, "", journal.entries, true, say); all || err != nil {
				t.Errorf("without an IPPool: %t, %v", all, err)
			}
			must.Get(s.etcd.Client.Put(t.Context(), key, value)).Or(t)
		}
	}
	if all, err := Restore(t.Context(), s.store, "", journal.entries, false, say); !all || err != nil {
		t.Errorf("restored: %t, %v", all, err)
	}
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
