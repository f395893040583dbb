// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/nodesync"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
)

// serve answers requests as a calico-node-sync does that begins, and then says what it is told, until the test ends.
func (s *confirmStage) serve(state string, lines ...string) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.Cleanup(func() { stop(); <-done })
	at := s.stateIn(s.namespace)
	if _, _, err := at.Pending(ctx); err != nil { // makes the ConfigMap
		s.Fatal(err)
	}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			text, answer, err := at.Pending(ctx)
			request, wrong := nodesynccontroller.ParseRequest(text)
			if err == nil && text != "" && answer.ID != request.ID {
				_ = at.Answer(ctx, text, nodesynccontroller.Answer{ID: request.ID, State: nodesynccontroller.AnswerRunning, At: time.Now()})
				all := append([]string{request.Verb}, request.Names...)
				if wrong != nil || request.DryRun {
					all = append(all, "dry run")
				}
				_ = at.Answer(ctx, text, nodesynccontroller.Answer{ID: request.ID, State: state, Lines: append(all, lines...), At: time.Now()})
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
}

func (s *confirmStage) request(words ...string) []string {
	return append([]string{"--kubeconfig", s.cluster.Kubeconfig, "--mooring-namespace", s.namespace}, words...)
}

// A request reaches the controller, and its answer is printed with the exit code that it deserves.
func TestRequestsByName(t *testing.T) {
	t.Parallel()
	for state, code := range map[string]int{nodesynccontroller.AnswerDone: 0, nodesynccontroller.AnswerHeld: 2, nodesynccontroller.AnswerFailed: 1} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := newConfirmStage(t, "request-"+state)
			expect(t, 1, "", s.request("node", "forget", "worker-7"), "there is no ConfigMap calico-node-sync-state in the namespaces request-"+state)
			s.serve(state, "a line with \x1b[2J")
			expect(t, code, "", s.request("node", "forget", "worker-7", "worker-8"), "forget\nworker-7\nworker-8\na line with \\x1b[2J\n")
			expect(t, 0, "", s.request("restore", "--list"), "the journal in namespace request-"+state+" has no entry\n")
			expect(t, 1, "", s.request("restore"), "name a machine or an entry of the journal; 'kubectl mooring restore --list' shows which entries there are")
			expect(t, code, "", s.request("restore", "worker-7", "--dry-run"), "restore\nworker-7\ndry run\n")
			expect(t, 1, "", s.request("node", "forget", "worker-7", "--also-remove=IPAMHandle"), "each must be one of")
			expect(t, 1, "", s.request("restore", "worker-7", "--wait=1s"), "it must be between 1m and 1h0m0s")
		})
	}
}

// Which of two controllers is meant is for a person to say, and one request waits for the other.
func TestRequestsAreForOneController(t *testing.T) {
	t.Parallel()
	s := newConfirmStage(t, "request-one")
	other := newConfirmStage(t, "request-two")
	s.serve(nodesynccontroller.AnswerDone)
	if _, _, err := other.stateIn(other.namespace).Pending(t.Context()); err != nil {
		t.Fatal(err)
	}
	both := []string{"--kubeconfig", s.cluster.Kubeconfig, "--mooring-namespace", "request-one,request-two", "node", "forget", "worker-7"}
	expect(t, 1, "", both, "there is a calico-node-sync in each of the namespaces request-one, request-two: choose one with -n")
	expect(t, 0, "", append(both, "-n", "request-one"), "forget\nworker-7\n")

	busy, err := s.cluster.Client.CoreV1().ConfigMaps("request-two").Get(t.Context(), nodesynccontroller.StateName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	busy.Annotations = map[string]string{
		nodesync.RequestAnnotation: `{"id":"a","verb":"restore","names":["worker-1"],"until":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`,
	}
	if _, err := s.cluster.Client.CoreV1().ConfigMaps("request-two").Update(t.Context(), busy, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, 1, "", append(both, "-n", "request-two"), "calico-node-sync already has a request to restore worker-1, valid until ")
}

// What pods that are gone have left waits under a hash of its own, and is shown as that.
func TestConfirmLeftovers(t *testing.T) {
	t.Parallel()
	s := newConfirmStage(t, "confirm-leftovers")
	memory := nodesync.Memory{SavedAt: time.Now()}
	memory.AwaitingLeftovers = nodesync.Awaiting{
		Hash: "0123456789ab", Gate: nodesync.GateLeftoverGuard, Why: "they are many", Machines: []string{"node-1"}, Count: 60,
		Items: []string{"address 10.0.0.1 of pod default/web-0 on node-1"},
	}
	if _, _, err := s.state.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.state.Save(t.Context(), memory); err != nil {
		t.Fatal(err)
	}
	expect(t, 2, "", s.args(), "60 leftovers are held back by the gate leftover-guard of calico-node-sync\n",
		"which:      address 10.0.0.1 of pod default/web-0 on node-1 and 59 more\n", "to confirm: kubectl mooring confirm nodes 0123456789ab\n")
	expect(t, 0, "", s.args("nodes", "0123456789ab"), "calico-node-sync removes 60 leftovers of pods that are gone (address 10.0.0.1")
	object, err := s.cluster.Client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), nodesynccontroller.StateName, metav1.GetOptions{})
	if err != nil || object.Annotations[nodesync.ConfirmAnnotation] == "" {
		t.Errorf("not annotated: %v, %v", object.Annotations, err)
	}
}
