// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/ui"
)

// What DigitalOcean says stands for minutes, and for less when there are Nodes that it was not asked about, or when it did not respond.
func TestDropletsAreAskedForSeldom(t *testing.T) {
	var asked atomic.Int32
	var down atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case down.Load():
			http.Error(w, `{"id":"forbidden","message":"no"}`, http.StatusForbidden)
		case strings.HasSuffix(r.URL.Path, "/account"):
			asked.Add(1)
			_, _ = w.Write([]byte(`{"account":{"uuid":"a"}}`))
		default:
			_, _ = w.Write([]byte(`{"droplets":[{"id":1,"name":"w1","status":"active"}],"meta":{"total":1}}`))
		}
	}))
	defer api.Close()
	t.Setenv("DO_ACCESS_TOKEN", "token")
	t.Setenv("DO_ACCESS_TOKEN_FILE", "")
	t.Setenv("DO_OVERRIDE_URL", api.URL)
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	u := &Reader{cluster: &observe.Cluster{Typed: fake.NewClientset()}, clock: c}
	node := func(name, id string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "digitalocean://" + id}}
	}
	old := []*corev1.Node{node("w1", "1")}
	more := append([]*corev1.Node{node("w2", "1")}, old...)
	changed := func() []*corev1.Node { // a Node that is no longer Ready, since just now
		n := node("w1", "1")
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(c.Now())}}
		return []*corev1.Node{n}
	}
	for i, step := range []struct {
		after time.Duration
		nodes []*corev1.Node
		down  bool
		want  int32
	}{
		{0, old, false, 1}, {4 * time.Minute, old, false, 1}, {time.Minute, old, false, 2},
		{50 * time.Second, more, false, 2}, {10 * time.Second, more, false, 3}, {50 * time.Second, old, false, 3},
		{5 * time.Minute, old, true, 3}, {50 * time.Second, old, false, 3}, {10 * time.Second, old, false, 4},
	} {
		c.SetTime(c.Now().Add(step.after))
		down.Store(step.down)
		cloud, err := u.droplets(t.Context(), step.nodes)
		if err != nil || asked.Load() != step.want || step.down && cloud.Problem == "" {
			t.Errorf("step %d: asked %d times, want %d; %+v, %v", i, asked.Load(), step.want, cloud.Side, err)
		}
	}
	down.Store(false)
	for i, step := range []struct {
		after time.Duration
		want  int32
	}{{time.Minute, 4}, {time.Second, 5}, {50 * time.Second, 5}} { // asked again after a minute, and not after five
		c.SetTime(c.Now().Add(step.after))
		nodes := old
		if i > 0 {
			nodes = changed()
		}
		if _, err := u.droplets(t.Context(), nodes); err != nil || asked.Load() != step.want {
			t.Errorf("step %d with a Node that has changed: asked %d times, want %d; %v", i, asked.Load(), step.want, err)
		}
	}
	// A droplet that was switched off, and whose Node is Ready again, is asked for at once.
	u.cloud.Droplets[0].Off = true
	c.SetTime(c.Now().Add(time.Second))
	ready := changed()
	ready[0].Status.Conditions[0].Status = corev1.ConditionTrue
	if cloud, err := u.droplets(t.Context(), ready); err != nil || asked.Load() != 6 || cloud.Droplets[0].Off {
		t.Errorf("a droplet that is on again: asked %d times, want 6; %+v, %v", asked.Load(), cloud.Droplets, err)
	}
}

// The page runs the doctor again after a while only, and shows how old its findings are.
func TestFindingsStandForAWhile(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	u := &Reader{
		clock: clocktesting.NewFakePassiveClock(now), findings: []finding.Finding{{What: "found"}}, checkedAt: now.Add(-doctorStands + time.Second),
	}
	var w ui.World
	u.doctor(t.Context(), nil, &w) // it would need an examination to run
	if len(w.Findings) != 1 || w.Findings[0].What != "found" || !w.CheckedAt.Equal(u.checkedAt) {
		t.Errorf("%+v of %s", w.Findings, w.CheckedAt)
	}
}

// What could not be read of volumes is tried again soon, and what was read stands.
func TestVolumesThatCouldNotBeReadAreTriedAgain(t *testing.T) {
	t.Setenv("DO_ACCESS_TOKEN", "")
	t.Setenv("DO_ACCESS_TOKEN_FILE", "")
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	typed, c := fake.NewClientset(), clocktesting.NewFakePassiveClock(now)
	u := &Reader{cluster: &observe.Cluster{Typed: typed}, clock: c, cloudAt: now}
	var failing atomic.Bool
	typed.PrependReactor("list", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing.Load(), nil, errors.New("it hangs")
	})
	var w ui.World
	failing.Store(true)
	u.readVolumes(t.Context(), &w)
	if w.Volumes.Problem == "" {
		t.Fatalf("%+v", w.Volumes)
	}
	c.SetTime(now.Add(time.Second))
	u.readVolumes(t.Context(), &w)
	if !w.Volumes.At.Equal(c.Now()) {
		t.Errorf("what failed at %s was not tried again at %s", w.Volumes.At, c.Now())
	}
	u.cloud.Volumes.Problem = "it hangs"
	c.SetTime(now.Add(cloudStandsNew))
	if cloud, err := u.droplets(t.Context(), nil); err != nil || cloud.Volumes.Problem != "" {
		t.Errorf("it was not tried again: %+v, %v", cloud.Volumes.Side, err)
	}
	u.volumes = ui.Volumes{At: now}
	u.readVolumes(t.Context(), &w)
	if !w.Volumes.At.Equal(now) {
		t.Errorf("what was read a minute ago does not stand: %+v", w.Volumes)
	}
	if left := observe.ReadTime - doctorTime - volumesTime; left < observe.ReadTime/4 {
		t.Errorf("when both hang, %s are left for all else", left)
	}
}
