// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
)

// isList reports whether a request reads the list of load balancers.
func isList(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/v2/load_balancers")
}

// Another leader makes the load balancer while the first list is on its way: a second list is read before anything is made, so that nothing is.
func TestWhatAppearsAfterTheFirstListIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		var once sync.Once
		var made atomic.Pointer[digitalocean.LoadBalancer]
		w.API.Set(func(r *http.Request, served bool) error {
			if !served || !isList(r) {
				return nil
			}
			once.Do(func() {
				s, err := w.Client.CoreV1().Services(w.Name).Get(r.Context(), "web", metav1.GetOptions{})
				if err != nil {
					t.Errorf("a list was read before there was a Service: %v", err)
					return
				}
				lb, err := w.Account.CreateLoadBalancer(digitalocean.LoadBalancer{
					Name: cloudprovider.DefaultLoadBalancerName(s), Type: annotation.TypeRegional, Tags: []string{"k8s:" + w.Name},
				})
				if err != nil {
					t.Errorf("the other leader: %v", err)
					return
				}
				made.Store(&lb)
			})
			return nil
		})
		w.run()
		w.create("web")
		lb := w.balancer("web")
		if theirs := made.Load(); theirs == nil || theirs.ID != lb.ID {
			t.Errorf("the Service has %s, the other leader has made %+v", lb.ID, theirs)
		}
		if n := w.Writes(0)[createRoute]; n != 0 {
			t.Errorf("%d attempts to make a load balancer that was there; %s", n, w.Story())
		}
	})
}

// The ID is noted on the Service by the pass that has made the load balancer: anyone who comes next may see lists without it.
func TestTheIDIsNotedAtOnce(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		var after atomic.Bool
		w.API.Set(func(r *http.Request, served bool) error {
			switch {
			case r.Method == http.MethodPost && served:
				after.Store(true)
			case after.Load():
				return cloud.ErrCut // nothing can be read any more
			}
			return nil
		})
		w.run()
		w.create("web")
		testkit.Eventually(t, "the ID on the Service", func() string {
			all := w.Account.LoadBalancers()
			if len(all) != 1 {
				return w.Story()
			}
			if s := w.Service("web"); s.Annotations[annotation.LoadBalancerID] != all[0].ID || s.Annotations[annotation.Type] != annotation.TypeRegional {
				return "annotations " + strings.TrimSpace(s.Annotations[annotation.LoadBalancerID]) + "; " + w.Story()
			}
			return ""
		})
	})
}
