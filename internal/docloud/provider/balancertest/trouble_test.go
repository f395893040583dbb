// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestPostThatWasCutAfterItWasAppliedMakesNoDuplicate(t *testing.T) {
	t.Parallel()
	for _, kind := range []fault.Kind{fault.CutAfterApply, fault.ErrorAfterApply, fault.TruncatedJSON, fault.ShortBody} {
		for name, consistency := range map[string]digitalocean.Consistency{"": {}, "-late": {List: 2 * time.Second}} {
			t.Run(string(kind)+name, func(t *testing.T) {
				t.Parallel()
				simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
					w.Sim.SetConsistency(consistency)
					must.Do(w.T, w.Sim.Inject(fault.Rule{Route: createRoute, Kind: kind, Nth: 1}))
					w.run()
					w.create("web")
					w.create("named", "name", w.Name)
					w.balancer("web")
					w.balancer("named")
					w.resyncs()
					if all := w.Account.LoadBalancers(); len(all) != 2 {
						t.Errorf("%d load balancers: %+v", len(all), all)
					}
				})
			})
		}
	}
}

// TestCrashBeforeAndAfterEachWrite stops the program at the n-th write to DigitalOcean, just before or just after it is made, and starts another.
// However it went, the end is the same.
func TestCrashBeforeAndAfterEachWrite(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 6; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%t", n, after), func(t *testing.T) {
				t.Parallel()
				simulated(t, digitalocean.Options{}, func(_ *testing.T, w *world) {
					crashed := w.API.CrashAt(n, after)
					w.timing.FirstRetry = time.Hour
					w.run()
					w.lifeOfThree(crashed)
					w.API.Set(nil)
					w.timing.FirstRetry = 200 * time.Millisecond
					w.run()
					w.endOfThree()
				})
			})
		}
	}
}

// lifeOfThree makes three POSTs, a PUT, a change of droplets and a DELETE in this order, unless the program crashes before.
func (w *world) lifeOfThree(crashed <-chan struct{}) {
	w.T.Helper()
	until := func(what string, holds func() bool) {
		testkit.Eventually(w.T, what, func() string {
			select {
			case <-crashed:
				return ""
			default:
			}
			if holds() {
				return ""
			}
			return w.Story()
		})
	}
	for _, name := range []string{"one", "two", "three"} {
		w.create(name)
		until("service "+name, func() bool { return published(w.Service(name)) != "" })
	}
	w.annotate("one", "enable-proxy-protocol", "true")
	until("the PUT", func() bool { return w.Writes(0)["PUT /v2/load_balancers/{lb_id}"] > 0 })
	must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(w.T.Context(), "three", *deleteNow()))
	until("the DELETE", func() bool { return w.Writes(0)["DELETE /v2/load_balancers/{lb_id}"] > 0 })
	w.node("c")
	until("the droplets", func() bool { return w.Writes(0)["POST /v2/load_balancers/{lb_id}/droplets"] > 0 })
	<-crashed
	w.Stop()
}

func (w *world) endOfThree() {
	w.T.Helper()
	w.gone("three")
	one, two := w.balancer("one"), w.balancer("two")
	w.eventually("the PUT and the droplets", one.ID, func(lb digitalocean.LoadBalancer) bool { return lb.EnableProxyProtocol && len(lb.DropletIDs) == 3 })
	w.eventually("the droplets", two.ID, func(lb digitalocean.LoadBalancer) bool { return len(lb.DropletIDs) == 3 })
	w.resyncs()
	if all := w.Account.LoadBalancers(); len(all) != 2 {
		w.T.Errorf("%d load balancers: %+v", len(all), all)
	}
}

func TestListsThatFailOrAreNotWholeChangeNothing(t *testing.T) {
	t.Parallel()
	for _, rule := range []fault.Rule{
		{Route: "GET /v2/load_balancers", Kind: fault.OmitItems, Fraction: 1}, {Route: "GET /v2/load_balancers", Kind: fault.Error},
		{Route: "GET /v2/load_balancers", Kind: fault.ShortBody}, {Route: "GET /v2/load_balancers*", Kind: fault.TruncatedJSON},
		{Route: "GET *", Kind: fault.ProxyError}, {Route: "GET *", Kind: fault.TooManyRequests, Delay: time.Second},
		{Route: "GET /v2/load_balancers*", Kind: fault.Error, Status: 404},
	} {
		t.Run(fmt.Sprintf("%s-%d", rule.Kind, rule.Status), func(t *testing.T) {
			t.Parallel()
			simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
				w.run()
				w.create("web")
				w.create("later-deleted")
				lb := w.balancer("web")
				w.balancer("later-deleted")
				w.create("untouched", "hostname", "x.example.com")
				w.balancerID("untouched")
				rule.Nth, rule.Times = 1, -1
				must.Do(w.T, w.Sim.Inject(rule))
				mark := w.Sim.Mark()
				w.Struck(mark, 3) // what was read before is too old by now
				must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(t.Context(), "later-deleted", *deleteNow()))
				strikes := 10
				if rule.Kind == fault.TooManyRequests {
					strikes = 2 // nothing is asked before it is time
				}
				w.Struck(w.Sim.Mark(), strikes)
				if got := w.Writes(mark); len(got) != 0 {
					t.Errorf("writes %v, want none", got)
				}
				if s := w.Service("later-deleted"); len(s.Finalizers) == 0 {
					t.Error("the deleted service was let go")
				}
				w.Sim.ClearFaults()
				w.gone("later-deleted")
				if again := w.balancer("web"); again.ID != lb.ID || len(w.Account.LoadBalancers()) != 2 {
					t.Errorf("load balancers %+v", w.Account.LoadBalancers())
				}
			})
		})
	}
}

// balancerID waits for a Service's load balancer without regard to its status.
func (w *world) balancerID(name string) {
	w.T.Helper()
	testkit.Eventually(w.T, "a load balancer of service "+name, func() string {
		if w.Service(name).Annotations[annotation.LoadBalancerID] == "" || published(w.Service(name)) == "" {
			return w.Story()
		}
		return ""
	})
}

func TestNothingIsMadeOrGivenUpOnAnotherAccount(t *testing.T) {
	t.Parallel()
	simulated(t, cloud.TwoAccounts(), func(t *testing.T, w *world) {
		w.run()
		w.create("web")
		w.create("deleted")
		lb := w.balancer("web")
		w.balancer("deleted")
		w.Token.Set("theirs")
		mark := w.Sim.Mark()
		must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(t.Context(), "deleted", *deleteNow()))
		w.create("new")
		for _, name := range []string{"web", "new", "deleted"} {
			w.ReportedOnce(name, "DigitalOceanAccountInDoubt", "account")
		}
		w.resyncs()
		if got := w.Writes(mark); len(got) != 0 || len(w.Service("deleted").Finalizers) == 0 {
			t.Errorf("writes %v, finalizers %v", got, w.Service("deleted").Finalizers)
		}
		w.Token.Set(digitalocean.DefaultToken)
		w.gone("deleted")
		if again := w.balancer("web"); again.ID != lb.ID {
			t.Errorf("load balancer %s, want %s", again.ID, lb.ID)
		}
		w.balancer("new")
		if theirs := w.Sim.Account("theirs").LoadBalancers(); len(theirs) != 0 {
			t.Errorf("the other account has %+v", theirs)
		}
	})
}

// That there is no such load balancer counts as deleted, but not when another account says so: the token is replaced while a deletion is on its way.
func TestAnotherAccountDoesNotConfirmADeletion(t *testing.T) {
	t.Parallel()
	simulated(t, cloud.TwoAccounts(), func(t *testing.T, w *world) {
		w.run()
		w.create("web")
		w.balancer("web")
		asked := make(chan struct{}, 100)
		w.API.Set(func(r *http.Request, served bool) error {
			if r.Method != http.MethodDelete {
				return nil
			}
			if !served {
				w.Token.Set("theirs")
				r.Header.Set("Authorization", "Bearer theirs")
				return nil
			}
			asked <- struct{}{}
			return nil
		})
		must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(t.Context(), "web", *deleteNow()))
		select {
		case <-asked:
		case <-t.Context().Done():
			t.Fatal("nothing was deleted")
		}
		w.ReportedOnce("web", "DigitalOceanAccountInDoubt", "account")
		if len(w.Service("web").Finalizers) == 0 || len(w.Sim.Account("ours").LoadBalancers()) != 1 {
			t.Error("the Service was let go, and its load balancer is still there")
		}
		w.API.Set(nil)
		w.Token.Set(digitalocean.DefaultToken)
		w.gone("web")
		if left := w.Sim.Account("ours").LoadBalancers(); len(left) != 0 {
			t.Errorf("these are left: %+v", left)
		}
	})
}

func TestEachWrongAnnotationIsToldOnceAndOthersGoOn(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		wrong := map[string][]string{
			"bad-type": {"type", "GLOBAL"}, "bad-protocol": {"protocol", "gopher"}, "bad-size": {"size-unit", "many"},
			"bad-bool": {"enable-proxy-protocol", "maybe"}, "bad-network": {"network", "LOCAL"}, "bad-interval": {"healthcheck-check-interval-seconds", "soon"},
			"no-certificate": {"protocol", "https", "certificate-name", "missing"}, "bad-disown": {annotation.Disown, "perhaps"},
		}
		for name, pairs := range wrong {
			w.create(name, pairs...)
		}
		w.create("two-wrong", "size-unit", "many", "enable-proxy-protocol", "maybe")
		w.create("fine")
		w.balancer("fine")
		for name, pairs := range wrong {
			w.ReportedOnce(name, "LoadBalancerConfigError", pairs[len(pairs)-2], pairs[len(pairs)-1])
		}
		w.ReportedOnce("two-wrong", "LoadBalancerConfigError", "size-unit", "many")
		w.ReportedOnce("two-wrong", "LoadBalancerConfigError", "enable-proxy-protocol", "maybe")
		w.resyncs()
		for name, pairs := range wrong {
			w.ReportedOnce(name, "LoadBalancerConfigError", pairs[len(pairs)-1])
		}
		if got := w.Writes(0); len(got) != 1 || got[createRoute] != 1 {
			t.Errorf("writes %v, want one POST", got)
		}
		w.annotate("bad-type", "type", annotation.TypeRegional)
		w.balancer("bad-type")
	})
}

func TestDropletThatIsGoneDoesNotKeepOthersFromBeingServed(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(_ *testing.T, w *world) {
		w.timing.Resync = time.Hour
		w.run()
		w.create("web")
		lb := w.balancer("web")
		must.Do(w.T, w.Account.DeleteDroplet(w.NodeName("b"))) // its Node stays
		c := w.node("c")
		w.eventually("the new Node to be a target", lb.ID, func(lb digitalocean.LoadBalancer) bool { return w.hasTarget(lb, c) })
	})
}

func TestBusyLoadBalancerIsChangedLater(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.create("web")
		lb := w.balancer("web")
		must.Do(w.T, w.Account.MakeBusy(lb.ID, 2*time.Second))
		w.annotate("web", "enable-backend-keepalive", "true")
		w.eventually("the change", lb.ID, func(lb digitalocean.LoadBalancer) bool { return lb.EnableBackendKeepalive })
		if told := w.events("LoadBalancerRepaired"); len(told) > 0 {
			t.Errorf("the owner's own change is told as one made elsewhere: %s", w.Story())
		}
	})
}

// stormy are options of a DigitalOcean on a bad day.
func stormy(seed uint64) digitalocean.Options {
	return with(func(o *digitalocean.Options) {
		o.Seed, o.Faults = seed, fault.Storm(0.04)
		o.LoadBalancers.BusyAfterUpdate, o.LoadBalancers.ActiveAfterReads = 50*time.Millisecond, 2
		o.Consistency = digitalocean.Consistency{Get: 50 * time.Millisecond, List: 150 * time.Millisecond}
	})
}

func TestFaultsOfAllKindsEndWell(t *testing.T) {
	t.Parallel()
	first := cases.Seed(t)
	for day := range uint64(cases.Number(t, 2, 3, 20)) {
		t.Run(fmt.Sprint("day ", day), func(t *testing.T) {
			t.Parallel()
			simulated(t, stormy(first+day), func(t *testing.T, w *world) {
				w.run()
				for i := range 4 {
					w.create(fmt.Sprintf("s%d", i))
				}
				w.node("c")
				w.annotate("s0", "enable-proxy-protocol", "true")
				w.resyncs()
				w.Stop()
				w.DeleteNode(w.NodeName("a"))
				w.run()
				w.annotate("s1", "name", w.Name+"-renamed")
				must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(t.Context(), "s3", *deleteNow()))
				w.resyncs()
				w.Sim.ClearFaults()
				w.gone("s3")
				for i := range 3 {
					lb := w.balancer(fmt.Sprintf("s%d", i))
					w.eventually("the end", lb.ID, func(lb digitalocean.LoadBalancer) bool {
						return len(lb.DropletIDs) == 2 && lb.EnableProxyProtocol == (i == 0) && (lb.Name == w.Name+"-renamed") == (i == 1)
					})
				}
				w.resyncs()
				mark := w.Sim.Mark()
				w.resyncs()
				if got := w.Writes(mark); len(got) != 0 {
					t.Errorf("writes %v after the end", got)
				}
				if all := w.Account.LoadBalancers(); len(all) != 3 {
					t.Errorf("%d load balancers: %+v", len(all), all)
				}
			})
		})
	}
}

// Why a load balancer is not what its Service asks for is a condition for as long as that is so: an Event ends after an
// hour.
func TestRefusalsAreConditions(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		synced := func() *metav1.Condition {
			s := must.Get(w.Client.CoreV1().Services(w.Name).Get(t.Context(), "web", metav1.GetOptions{})).Or(t)
			return meta.FindStatusCondition(s.Status.Conditions, loadbalancer.ConditionSynced)
		}
		is := func(what, reason, part string) {
			t.Helper()
			testkit.Eventually(t, what, func() string {
				c := synced()
				if reason == "" && c == nil || reason != "" && c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, part) {
					return ""
				}
				return fmt.Sprintf("condition %+v; %s", c, w.Story())
			})
		}
		w.run()
		w.create("web", "size-unit", "-1")
		is("a refused annotation to be a condition", loadbalancer.ReasonConfig, "size-unit")
		w.annotate("web", "size-unit", "2")
		w.balancer("web")
		is("the condition to go", "", "")
		must.Do(t, w.Sim.Inject(fault.Rule{
			Route: "PUT /v2/load_balancers/{lb_id}", Kind: fault.Error, Status: http.StatusInternalServerError,
			Nth: 1, Times: -1,
		}))
		w.annotate("web", "size-unit", "3")
		is("a failure to be a condition", loadbalancer.ReasonSyncFailed, "500")
	})
}
