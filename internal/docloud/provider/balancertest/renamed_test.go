// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// cutPost cuts the connection after the first POST of a load balancer was served, and all that comes after it until the returned function is
// called; the channel is closed when it has happened.
func (w *world) cutPost() (<-chan struct{}, func()) {
	cut, restored := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.API.Set(func(r *http.Request, served bool) error {
		select {
		case <-restored:
			return nil
		default:
		}
		if r.Method == http.MethodPost && served {
			once.Do(func() { close(cut) })
		}
		select {
		case <-cut:
			return cloud.ErrCut
		default:
			return nil
		}
	})
	return cut, func() { close(restored) }
}

func TestRenameWhileAPostIsUnansweredMakesNoDuplicate(t *testing.T) {
	t.Parallel()
	for name, lag := range map[string]time.Duration{"": 0, "late": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
				w.Sim.SetConsistency(digitalocean.Consistency{List: lag})
				cut, restore := w.cutPost()
				w.run()
				w.create("web", "name", w.Name+"-old")
				<-cut
				w.annotate("web", "name", w.Name+"-new")
				restore()
				lb := w.balancer("web")
				w.eventually("the new name", lb.ID, func(lb digitalocean.LoadBalancer) bool { return lb.Name == w.Name+"-new" })
				w.resyncs()
				if all := w.Account.LoadBalancers(); len(all) != 1 {
					t.Errorf("%d load balancers: %+v", len(all), all)
				}
			})
		})
	}
}

// noted is the name in the note of an attempt on a Service, empty for none.
func (w *world) noted(name string) string {
	if c := meta.FindStatusCondition(w.Service(name).Status.Conditions, loadbalancer.ConditionAttempted); c != nil {
		return c.Message
	}
	return ""
}

// Anyone who asked for the load balancer is gone, and the Service is to have another name: the note on the Service tells under which name to look.
func TestRenameAfterACrashMakesNoDuplicate(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		cut, restore := w.cutPost()
		w.timing.FirstRetry = time.Hour
		w.run()
		w.create("web", "name", w.Name+"-old")
		<-cut
		w.Stop()
		if noted := w.noted("web"); noted != w.Name+"-old" {
			t.Fatalf("the note says %q", noted)
		}
		w.annotate("web", "name", w.Name+"-new")
		restore()
		w.timing.FirstRetry = 200 * time.Millisecond
		w.run()
		lb := w.balancer("web")
		w.eventually("the new name", lb.ID, func(lb digitalocean.LoadBalancer) bool { return lb.Name == w.Name+"-new" })
		w.resyncs()
		if all := w.Account.LoadBalancers(); len(all) != 1 {
			t.Errorf("%d load balancers: %+v", len(all), all)
		}
		if noted := w.noted("web"); noted != "" {
			t.Errorf("the note is still there: %q", noted)
		}
	})
}

// A Service that is deleted after a crash, before anybody knows what became of the POST, does not leave its load balancer behind.
func TestDeletionAfterACrashLeavesNothing(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		cut, restore := w.cutPost()
		w.timing.FirstRetry = time.Hour
		w.run()
		w.create("web", "name", w.Name+"-old")
		<-cut
		w.Stop()
		w.annotate("web", "name", w.Name+"-new")
		must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(t.Context(), "web", *deleteNow()))
		restore()
		w.timing.FirstRetry = 200 * time.Millisecond
		w.run()
		w.gone("web")
		if all := w.Account.LoadBalancers(); len(all) != 0 {
			t.Errorf("left behind: %+v", all)
		}
	})
}

// A name that was refused is not tried again: nothing was made under it.
func TestRenameAfterARefusalUsesTheNewName(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		must.Do(w.T, w.Sim.Inject(fault.Rule{Route: createRoute, Kind: fault.Error, Status: http.StatusUnprocessableEntity, Nth: 1, Times: -1}))
		w.run()
		w.create("web", "name", w.Name+"-old")
		testkit.Eventually(t, "a refusal", func() string {
			if w.Writes(0)[createRoute] == 0 {
				return w.Story()
			}
			return ""
		})
		testkit.Eventually(t, "no note of what was refused", func() string {
			return map[bool]string{true: w.Story()}[w.noted("web") != ""]
		})
		w.annotate("web", "name", w.Name+"-new")
		w.Sim.ClearFaults()
		if lb := w.balancer("web"); lb.Name != w.Name+"-new" {
			t.Errorf("load balancer %q", lb.Name)
		}
	})
}

// A load balancer of this cluster's that nothing leads to, as the upstream project leaves behind when it dies between a POST and its note,
// is told of once.
func TestALeftoverIsToldOfOnce(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.create("web", "name", w.Name+"-old")
		w.balancer("web")
		w.Stop()
		w.annotate("web", "name", w.Name+"-new")
		w.PatchService("web", map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation.LoadBalancerID: nil}}})
		lost := w.Service("web")
		lost.Status = corev1.ServiceStatus{}
		must.Get(w.Client.CoreV1().Services(lost.Namespace).UpdateStatus(t.Context(), lost, metav1.UpdateOptions{})).Or(w.T)
		w.run()
		testkit.Eventually(t, "a second load balancer", func() string {
			if all := w.Account.LoadBalancers(); len(all) != 2 {
				return w.Story()
			}
			return ""
		})
		w.ReportedOnce("web", "LoadBalancerLeftOver", w.Name+"-old", annotation.Name, annotation.LoadBalancerID)
		w.resyncs()
		w.ReportedOnce("web", "LoadBalancerLeftOver", w.Name+"-old")
	})
}

// Tags that others give stay when the load balancer is changed; ours comes back with the change if somebody took it away, and identity does not
// hang on it.
func TestTagsOfOthersStayAndALostOneDoesNotMatter(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.create("web")
		lb := w.balancer("web")
		must.Do(w.T, w.Account.EditLoadBalancer(lb.ID, func(lb *digitalocean.LoadBalancer) { lb.Tags = []string{"team-a", "prod"} }))
		w.resyncs()
		w.annotate("web", "enable-backend-keepalive", "true")
		w.eventually("the change, with all tags", lb.ID, func(lb digitalocean.LoadBalancer) bool {
			return lb.EnableBackendKeepalive && len(lb.Tags) == 3
		})
		if again := w.balancer("web"); again.ID != lb.ID {
			t.Errorf("load balancer %s, want %s", again.ID, lb.ID)
		}
		must.Do(w.T, w.Account.EditLoadBalancer(lb.ID, func(lb *digitalocean.LoadBalancer) { lb.Tags = nil }))
		w.remove("web")
		testkit.Eventually(t, "the load balancer to be gone", func() string {
			if _, err := w.Account.LoadBalancer(lb.ID); err == nil {
				return w.Story()
			}
			return ""
		})
	})
}
