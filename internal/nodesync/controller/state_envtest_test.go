// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// A restart neither shortens a grace period nor begins it again.
func TestARestartKeepsTheGracePeriod(t *testing.T) {
	s := newStage(t, 3)
	s.leave("0")
	rounds := func(r *Reconciler) {
		t.Helper()
		for range 2 {
			if _, err := r.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	node := "/calico/resources/v3/projectcalico.org/nodes/" + s.name("0")
	rounds(s.reconciler())
	s.clock.Step(s.config.Grace - time.Second)
	rounds(s.reconciler())
	if s.etcd.Dump(t)[node] == "" {
		t.Fatal("the Node was removed before its grace period was over")
	}
	s.clock.Step(2 * time.Second)
	rounds(s.reconciler())
	if s.etcd.Dump(t)[node] != "" {
		t.Error("the Node is still there: the restart began its grace period again")
	}
}

// blind is a cluster that watched nothing go: as after a restart.
type blind struct{ Cluster }

func (blind) Sightings() []nodesync.Sighting { return nil }

func TestAConfirmationLetsTheMassGuardPass(t *testing.T) {
	s := newStage(t, 9)
	before := s.etcd.Dump(t)
	for _, machine := range []string{"0", "1", "2", "3"} {
		s.leave(machine)
	}
	want := s.etcd.Revision(t)
	r := s.reconciler()
	r.Cluster = blind{s.cluster}
	hash := ""
	for range 3 {
		if _, err := r.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(s.config.Grace)
	}
	world, err := r.observe(t.Context(), nodesync.World{Now: s.clock.Now(), Memory: r.memory})
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`confirm=([0-9a-f]{12})/`).FindStringSubmatch(nodesync.MakePlan(world, r.Config).String()); found != nil {
		hash = found[1]
	}
	if hash == "" {
		t.Fatalf("the plan names no hash to confirm:\n%s", nodesync.MakePlan(world, r.Config))
	}
	hour := s.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	past := s.clock.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for name, confirmation := range map[string]string{
		"of other nodes": "0123456789ab/" + hour, "that expired": hash + "/" + past, "without a time": hash, "that is nonsense": "yes",
	} {
		s.confirm(confirmation)
		for range 2 {
			if _, err := r.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.etcd.Revision(t); got != want {
			t.Fatalf("a confirmation %s: the store moved from revision %d to %d", name, want, got)
		}
	}
	s.confirm(hash + "/" + hour)
	s.settle(r)
	for key := range s.etcd.Dump(t) {
		for _, machine := range []string{"0", "1", "2", "3"} {
			if strings.Contains(key, "nodes/"+s.name(machine)) {
				t.Errorf("%s is still there", key)
			}
		}
	}
	if left := len(s.etcd.Dump(t)); left >= len(before) {
		t.Errorf("keys: had %d, have %d", len(before), left)
	}
}

// confirm is what the refusal tells a person to do.
func (s *stage) confirm(confirmation string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, nodesync.ConfirmAnnotation, confirmation)
	_, err := s.api.Client.CoreV1().ConfigMaps(s.state.Namespace).Patch(s.t.Context(), s.state.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}
