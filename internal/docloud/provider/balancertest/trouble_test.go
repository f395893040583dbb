// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func TestPostThatWasCutAfterItWasAppliedMakesNoDuplicate(t *testing.T) { //nolint:tparallel // newWorld makes each case parallel
	for _, kind := range []fault.Kind{fault.CutAfterApply, fault.ErrorAfterApply, fault.TruncatedJSON, fault.ShortBody} {
		for name, consistency := range map[string]digitalocean.Consistency{"": {}, "-late": {List: 2 * time.Second}} {
			t.Run(string(kind)+name, func(t *testing.T) {
				w := newWorld(t)
				w.sim.SetConsistency(consistency)
				w.must(w.sim.Inject(fault.Rule{Route: createRoute, Kind: kind, Nth: 1}))
				w.run()
				w.create("web")
				w.create("named", "name", w.name)
				w.balancer("web")
				w.balancer("named")
				w.looked()
				if all := w.account.LoadBalancers(); len(all) != 2 {
					t.Errorf("%d load balancers: %+v", len(all), all)
				}
			})
		}
	}
}

// errCrash is what a program that has died sees.
var errCrash = errors.New("crashed")

// TestCrashBeforeAndAfterEachWrite stops the program at the n-th write to DigitalOcean, just before or just after it is made, and starts another.
// However it went, the end is the same.
func TestCrashBeforeAndAfterEachWrite(t *testing.T) { //nolint:tparallel // newWorld makes each case parallel
	for n := 1; n <= 6; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%t", n, after), func(t *testing.T) {
				w := newWorld(t)
				crashed := make(chan struct{})
				writes := 0
				var mu sync.Mutex
				w.wire.set(func(r *http.Request, served bool) error {
					mu.Lock()
					defer mu.Unlock()
					select {
					case <-crashed:
						return errCrash
					default:
					}
					if r.Method == http.MethodGet || served != after {
						return nil
					}
					if writes++; writes == n {
						close(crashed)
						return errCrash
					}
					return nil
				})
				w.timing.FirstRetry = time.Hour
				w.run()
				w.lifeOfThree(crashed)
				w.wire.set(nil)
				w.timing.FirstRetry = 200 * time.Millisecond
				w.run()
				w.endOfThree()
			})
		}
	}
}

// lifeOfThree makes three POSTs, a PUT, a change of droplets and a DELETE in this order, unless the program crashes before.
func (w *world) lifeOfThree(crashed <-chan struct{}) {
	w.t.Helper()
	until := func(what string, holds func() bool) {
		testkit.Eventually(w.t, what, func() string {
			select {
			case <-crashed:
				return ""
			default:
			}
			if holds() {
				return ""
			}
			return w.story()
		})
	}
	for _, name := range []string{"one", "two", "three"} {
		w.create(name)
		until("service "+name, func() bool { return published(w.service(name)) != "" })
	}
	w.annotate("one", "enable-proxy-protocol", "true")
	until("the PUT", func() bool { return w.writes(0)["PUT /v2/load_balancers/{lb_id}"] > 0 })
	w.must(w.client.CoreV1().Services(w.name).Delete(w.t.Context(), "three", *deleteNow()))
	until("the DELETE", func() bool { return w.writes(0)["DELETE /v2/load_balancers/{lb_id}"] > 0 })
	w.node("c")
	until("the droplets", func() bool { return w.writes(0)["POST /v2/load_balancers/{lb_id}/droplets"] > 0 })
	<-crashed
	w.stop()
}

func (w *world) endOfThree() {
	w.t.Helper()
	w.gone("three")
	one, two := w.balancer("one"), w.balancer("two")
	w.eventually("the PUT and the droplets", one.ID, func(lb digitalocean.LoadBalancer) bool { return lb.EnableProxyProtocol && len(lb.DropletIDs) == 3 })
	w.eventually("the droplets", two.ID, func(lb digitalocean.LoadBalancer) bool { return len(lb.DropletIDs) == 3 })
	w.looked()
	if all := w.account.LoadBalancers(); len(all) != 2 {
		w.t.Errorf("%d load balancers: %+v", len(all), all)
	}
}

func TestListsThatFailOrAreNotWholeChangeNothing(t *testing.T) { //nolint:tparallel // newWorld makes each case parallel
	for _, rule := range []fault.Rule{
		{Route: "GET /v2/load_balancers", Kind: fault.OmitItems, Fraction: 1}, {Route: "GET /v2/load_balancers", Kind: fault.Error},
		{Route: "GET /v2/load_balancers", Kind: fault.ShortBody}, {Route: "GET /v2/load_balancers*", Kind: fault.TruncatedJSON},
		{Route: "GET *", Kind: fault.ProxyError}, {Route: "GET *", Kind: fault.TooManyRequests, Delay: time.Second},
		{Route: "GET /v2/load_balancers*", Kind: fault.Error, Status: 404},
	} {
		t.Run(fmt.Sprintf("%s-%d", rule.Kind, rule.Status), func(t *testing.T) {
			w := newWorld(t)
			w.run()
			w.create("web")
			w.create("later-deleted")
			lb := w.balancer("web")
			w.balancer("later-deleted")
			w.create("untouched", "hostname", "x.example.com")
			w.balancerID("untouched")
			rule.Nth, rule.Times = 1, -1
			w.must(w.sim.Inject(rule))
			mark := w.sim.Mark()
			w.struck(mark, 3) // what was read before is too old by now
			w.must(w.client.CoreV1().Services(w.name).Delete(t.Context(), "later-deleted", *deleteNow()))
			strikes := 10
			if rule.Kind == fault.TooManyRequests {
				strikes = 2 // nothing is asked before it is time
			}
			w.struck(w.sim.Mark(), strikes)
			if got := w.writes(mark); len(got) != 0 {
				t.Errorf("writes %v, want none", got)
			}
			if s := w.service("later-deleted"); len(s.Finalizers) == 0 {
				t.Error("the deleted service was let go")
			}
			w.sim.ClearFaults()
			w.gone("later-deleted")
			if again := w.balancer("web"); again.ID != lb.ID || len(w.account.LoadBalancers()) != 2 {
				t.Errorf("load balancers %+v", w.account.LoadBalancers())
			}
		})
	}
}

// struck waits until some more requests have met the fault.
func (w *world) struck(mark uint64, times int) {
	w.t.Helper()
	testkit.Eventually(w.t, "requests that fail", func() string {
		n := 0
		for _, e := range w.sim.Requests(journal.Filter{After: mark}) {
			if e.Fault != "" {
				n++
			}
		}
		if n < times {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// balancerID waits for a Service's load balancer without regard to its status.
func (w *world) balancerID(name string) {
	w.t.Helper()
	testkit.Eventually(w.t, "a load balancer of service "+name, func() string {
		if w.service(name).Annotations[annotation.LoadBalancerID] == "" || published(w.service(name)) == "" {
			return w.story()
		}
		return ""
	})
}

func TestNothingIsMadeOrGivenUpOnAnotherAccount(t *testing.T) {
	w := newWorld(t, func(o *digitalocean.Options) {
		o.Accounts = []digitalocean.AccountOptions{
			{Name: "ours", Tokens: []digitalocean.Token{{Value: digitalocean.DefaultToken}}}, {Name: "theirs", Tokens: []digitalocean.Token{{Value: "theirs"}}},
		}
	})
	w.run()
	w.create("web")
	w.create("deleted")
	lb := w.balancer("web")
	w.balancer("deleted")
	w.token.set("theirs")
	mark := w.sim.Mark()
	w.must(w.client.CoreV1().Services(w.name).Delete(t.Context(), "deleted", *deleteNow()))
	w.create("new")
	for _, name := range []string{"web", "new", "deleted"} {
		w.told(name, "DigitalOceanAccountInDoubt", "account")
	}
	w.looked()
	if got := w.writes(mark); len(got) != 0 || len(w.service("deleted").Finalizers) == 0 {
		t.Errorf("writes %v, finalizers %v", got, w.service("deleted").Finalizers)
	}
	w.token.set(digitalocean.DefaultToken)
	w.gone("deleted")
	if again := w.balancer("web"); again.ID != lb.ID {
		t.Errorf("load balancer %s, want %s", again.ID, lb.ID)
	}
	w.balancer("new")
	if theirs := w.sim.Account("theirs").LoadBalancers(); len(theirs) != 0 {
		t.Errorf("the other account has %+v", theirs)
	}
}

// That there is no such load balancer counts as deleted, but not when another account says so: the token is replaced while a deletion is on its way.
func TestAnotherAccountDoesNotConfirmADeletion(t *testing.T) {
	w := newWorld(t, func(o *digitalocean.Options) {
		o.Accounts = []digitalocean.AccountOptions{
			{Name: "ours", Tokens: []digitalocean.Token{{Value: digitalocean.DefaultToken}}}, {Name: "theirs", Tokens: []digitalocean.Token{{Value: "theirs"}}},
		}
	})
	w.run()
	w.create("web")
	w.balancer("web")
	asked := make(chan struct{}, 100)
	w.wire.set(func(r *http.Request, served bool) error {
		if r.Method != http.MethodDelete {
			return nil
		}
		if !served {
			w.token.set("theirs")
			r.Header.Set("Authorization", "Bearer theirs")
			return nil
		}
		asked <- struct{}{}
		return nil
	})
	w.must(w.client.CoreV1().Services(w.name).Delete(t.Context(), "web", *deleteNow()))
	select {
	case <-asked:
	case <-t.Context().Done():
		t.Fatal("nothing was deleted")
	}
	w.told("web", "DigitalOceanAccountInDoubt", "account")
	if len(w.service("web").Finalizers) == 0 || len(w.sim.Account("ours").LoadBalancers()) != 1 {
		t.Error("the Service was let go, and its load balancer is still there")
	}
	w.wire.set(nil)
	w.token.set(digitalocean.DefaultToken)
	w.gone("web")
	if left := w.sim.Account("ours").LoadBalancers(); len(left) != 0 {
		t.Errorf("these are left: %+v", left)
	}
}

func TestEachWrongAnnotationIsToldOnceAndOthersGoOn(t *testing.T) {
	w := newWorld(t)
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
		w.told(name, "LoadBalancerConfigError", pairs[len(pairs)-2], pairs[len(pairs)-1])
	}
	w.told("two-wrong", "LoadBalancerConfigError", "size-unit", "many")
	w.told("two-wrong", "LoadBalancerConfigError", "enable-proxy-protocol", "maybe")
	w.looked()
	for name, pairs := range wrong {
		w.told(name, "LoadBalancerConfigError", pairs[len(pairs)-1])
	}
	if got := w.writes(0); len(got) != 1 || got[createRoute] != 1 {
		t.Errorf("writes %v, want one POST", got)
	}
	w.annotate("bad-type", "type", annotation.TypeRegional)
	w.balancer("bad-type")
}

func TestDropletThatIsGoneDoesNotKeepOthersFromBeingServed(t *testing.T) {
	w := newWorld(t)
	w.timing.Resync = time.Hour
	w.run()
	w.create("web")
	lb := w.balancer("web")
	w.must(w.account.DeleteDroplet(w.nodeName("b"))) // its Node stays
	c := w.node("c")
	w.eventually("the new Node to be a target", lb.ID, func(lb digitalocean.LoadBalancer) bool { return w.hasTarget(lb, c) })
}

func TestBusyLoadBalancerIsChangedLater(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.create("web")
	lb := w.balancer("web")
	w.must(w.account.MakeBusy(lb.ID, 2*time.Second))
	w.annotate("web", "enable-backend-keepalive", "true")
	w.eventually("the change", lb.ID, func(lb digitalocean.LoadBalancer) bool { return lb.EnableBackendKeepalive })
	if told := w.events("LoadBalancerRepaired"); len(told) > 0 {
		t.Errorf("the owner's own change is told as one made elsewhere: %s", w.story())
	}
}

func TestFaultsOfAllKindsEndWell(t *testing.T) { //nolint:tparallel // newWorld makes each case parallel
	for seed := uint64(1); seed <= uint64(cases.Number(t, 2, 3, 20)); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, func(o *digitalocean.Options) {
				o.Seed = seed
				o.LoadBalancers.BusyAfterUpdate = 50 * time.Millisecond
				o.Consistency = digitalocean.Consistency{Get: 50 * time.Millisecond, List: 150 * time.Millisecond}
				o.LoadBalancers.ActiveAfterReads = 2
				o.Faults = fault.Storm(0.04)
			})
			w.run()
			for i := range 4 {
				w.create(fmt.Sprintf("s%d", i))
			}
			w.node("c")
			w.annotate("s0", "enable-proxy-protocol", "true")
			w.looked()
			w.stop()
			w.removeNode("a")
			w.run()
			w.annotate("s1", "name", w.name+"-renamed")
			w.must(w.client.CoreV1().Services(w.name).Delete(t.Context(), "s3", *deleteNow()))
			w.looked()
			w.sim.ClearFaults()
			w.gone("s3")
			for i := range 3 {
				lb := w.balancer(fmt.Sprintf("s%d", i))
				w.eventually("the end", lb.ID, func(lb digitalocean.LoadBalancer) bool {
					return len(lb.DropletIDs) == 2 && lb.EnableProxyProtocol == (i == 0) && (lb.Name == w.name+"-renamed") == (i == 1)
				})
			}
			w.looked()
			mark := w.sim.Mark()
			w.looked()
			if got := w.writes(mark); len(got) != 0 {
				t.Errorf("writes %v after the end", got)
			}
			if all := w.account.LoadBalancers(); len(all) != 3 {
				t.Errorf("%d load balancers: %+v", len(all), all)
			}
		})
	}
}
