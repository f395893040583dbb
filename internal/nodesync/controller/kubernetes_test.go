// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func nodeObject(name string) *metav1.PartialObjectMetadata {
	n := NodeMetadata()
	n.Name, n.UID = name, types.UID("uid-"+name)
	return n
}

// A deletion counts as watched only if it was: a tombstone says that the Node was missing from a list.
func TestSightings(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	k := NewKubernetesCluster(nil, clock)
	k.went(toolscache.DeletedFinalStateUnknown{Key: "relisted", Obj: nodeObject("relisted")})
	k.went(nodeObject("watched"))
	k.went(nodeObject("back"))
	k.appeared(nodeObject("back"))
	if got := k.Sightings(); len(got) != 1 || got[0] != (nodesync.Sighting{Node: "watched", UID: "uid-watched"}) {
		t.Errorf("sightings: got %v, want just that of the Node that was watched going and is gone", got)
	}
	select {
	case <-k.Wake():
	default:
		t.Error("nobody was woken")
	}
	k.ForgetSightings(nil)
	if got := k.Sightings(); len(got) != 1 {
		t.Errorf("a fresh sighting was forgotten: %v", got)
	}
	clock.SetTime(clock.Now().Add(2 * sightingLife))
	k.ForgetSightings(map[string]bool{"watched": true})
	if got := k.Sightings(); len(got) != 1 {
		t.Errorf("a sighting that is needed was forgotten: %v", got)
	}
	k.ForgetSightings(nil)
	if got := k.Sightings(); len(got) != 0 {
		t.Errorf("an old sighting that nobody needs is kept: %v", got)
	}
	clock.SetTime(clock.Now().Add(2 * longestSighting))
	k.went(nodeObject("later"))
	clock.SetTime(clock.Now().Add(2 * longestSighting))
	k.went(nodeObject("latest"))
	if got := k.Sightings(); len(got) != 1 || got[0].Node != "latest" {
		t.Errorf("sightings in a replica that never leads: got %v, want the latest alone", got)
	}
}

// Only the API server's own "there is no such Node" is that; a proxy's 404 or a missing API is not.
func TestNotFoundNode(t *testing.T) {
	t.Parallel()
	nodes := schema.GroupResource{Resource: "nodes"}
	cases := map[string]struct {
		err  error
		want bool
	}{
		"no such Node":      {apierrors.NewNotFound(nodes, "n1"), true},
		"another Node":      {apierrors.NewNotFound(nodes, "n2"), false},
		"another kind":      {apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "n1"), false},
		"a proxy's 404":     {apierrors.NewGenericServerResponse(404, "GET", nodes, "n1", "<html>", 0, true), false},
		"forbidden":         {apierrors.NewForbidden(nodes, "n1", errors.New("no")), false},
		"gone":              {apierrors.NewResourceExpired("n1"), false},
		"an error of ours":  {errors.New("nodes \"n1\" not found"), false},
		"a 404 without all": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404}}, false},
	}
	for name, c := range cases {
		if got := isNotFound(c.err, "nodes", "n1"); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestLiveReads(t *testing.T) {
	s := newStage(t, 1)
	alive, gone := s.name("0"), s.name("gone")
	if got := s.cluster.LookUp(t.Context(), alive); got.Verdict != nodesync.VerdictAlive {
		t.Errorf("a Node that exists: got %+v", got)
	}
	if got := s.cluster.LookUp(t.Context(), gone); got.Verdict != nodesync.VerdictGone {
		t.Errorf("a Node that does not exist: got %+v", got)
	}
	if got := s.cluster.LookUp(t.Context(), "no/name"); got.Verdict == nodesync.VerdictGone {
		t.Errorf("a name that no Node can have: got %+v, want anything but gone", got)
	}
	s.api.AllowPods(t, "default", "default")
	s.runPod(gone, "runs", corev1.PodRunning, "10.9.9.1")
	s.runPod(gone, "waits", corev1.PodPending, "10.9.9.2")
	if got, err := s.cluster.RunningPods(t.Context(), gone); err != nil || got.Count != 1 || got.Example != "default/"+gone+"-runs" {
		t.Errorf("running pods: got %+v (%v), want the one that runs", got, err)
	}
	if got, err := s.cluster.RunningPods(t.Context(), alive); err != nil || got.Count != 0 {
		t.Errorf("running pods of another Node: got %+v (%v), want none", got, err)
	}
	// Few addresses or many, the response is the same, and many cost no more lists than there are pages of pods.
	s.runPod(gone, "ended", corev1.PodSucceeded, "10.9.9.3")
	lists := 0
	cluster := NewKubernetesCluster(countedLists{s.cluster.reader, &lists}, s.clock)
	few := []netip.Addr{netip.MustParseAddr("10.9.9.1"), netip.MustParseAddr("10.9.9.2"), netip.MustParseAddr("10.9.9.3"), netip.MustParseAddr("10.9.9.9")}
	many := slices.Clone(few)
	for a := netip.MustParseAddr("10.98.0.1"); len(many) < 500; a = a.Next() {
		many = append(many, a)
	}
	for _, addresses := range [][]netip.Addr{few, many} {
		lists = 0
		got := must.Get(cluster.PodsWithAddresses(t.Context(), addresses)).Or(t)
		if len(got) != 1 || got[0] != (nodesync.PodAddress{Address: few[0], Pod: "default/" + gone + "-runs"}) || lists > 4 {
			t.Errorf("asked for %d addresses: got %+v with %d lists", len(addresses), got, lists)
		}
	}
}

// countedLists counts the lists that are asked for.
type countedLists struct {
	client.Reader
	lists *int
}

func (c countedLists) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	*c.lists++
	return c.Reader.List(ctx, list, opts...)
}

// runPod makes a pod that is bound to a Node, in a phase and with an address as its kubelet reported them last.
func (s *stage) runPod(node, name string, phase corev1.PodPhase, address string) {
	s.t.Helper()
	pod := podOn(node, name)
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	pod.Spec.AutomountServiceAccountToken = new(bool)
	pods := s.api.Client.CoreV1().Pods("default")
	stored := must.Get(pods.Create(s.t.Context(), pod, metav1.CreateOptions{})).Or(s.t)
	s.t.Cleanup(func() {
		now := int64(0)
		_ = pods.Delete(context.Background(), stored.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	stored.Status.Phase, stored.Status.PodIP, stored.Status.PodIPs = phase, address, []corev1.PodIP{{IP: address}}
	must.Get(pods.UpdateStatus(s.t.Context(), stored, metav1.UpdateOptions{})).Or(s.t)
}
