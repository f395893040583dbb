// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package clustertag_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/clustertag"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { cloud.Main(m) }

const (
	tagRoute  = "POST /v2/tags/{tag_id}/resources"
	makeRoute = "POST /v2/tags"
)

// world is a cluster's Services and an account. It is the controller's surroundings, too: its lists are read again each time, and doubt is what
// the account's trust says.
type world struct {
	*cloud.World

	program *cloud.Program

	mu         sync.Mutex
	doubt      error
	reconciles int
	frozen     []loadbalancer.Observed // a list that is old, nil to read a new one
}

func (w *world) Trusted(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt
}

func (w *world) LoadBalancers(ctx context.Context, _ time.Duration) ([]loadbalancer.Observed, error) {
	w.mu.Lock()
	w.reconciles++
	w.mu.Unlock()
	if w.frozen != nil {
		return w.frozen, nil
	}
	return w.program.DigitalOcean.LoadBalancers(ctx)
}

func (w *world) ClusterDroplets() ([]int, error) { return nil, nil }

func (w *world) set(doubt error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubt = doubt
}

func simulated(t *testing.T, body func(t *testing.T, w *world)) {
	t.Helper()
	cloud.Simulated(t, digitalocean.Options{}, func(t *testing.T, base *cloud.World) { body(t, &world{World: base, program: base.NewProgram(nil)}) })
}

// both runs a story on a real API server as well.
func both(t *testing.T, body func(t *testing.T, w *world)) {
	t.Helper()
	cloud.Both(t, digitalocean.Options{}, func(t *testing.T, base *cloud.World) { body(t, &world{World: base, program: base.NewProgram(nil)}) })
}

// service makes a Service and its load balancer, with tags, which the Service's annotation names.
func (w *world) service(name string, tags ...string) string {
	w.T.Helper()
	made := w.CreateService(name, corev1.ServiceTypeLoadBalancer, nil, []corev1.ServicePort{cloud.Port(80)})
	lb, err := w.Account.CreateLoadBalancer(digitalocean.LoadBalancer{
		Name: loadbalancer.DefaultName(made), Type: "REGIONAL_NETWORK", Tags: tags,
		ForwardingRules: []digitalocean.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 80}},
	})
	must.Do(w.T, err)
	w.Annotate(name, annotation.LoadBalancerID, lb.ID)
	return lb.ID
}

// run starts a controller whose reconciles follow each other closely.
func (w *world) run(again time.Duration) {
	w.T.Helper()
	p := w.program
	controller := clustertag.New(clustertag.Options{
		API: p.DigitalOcean, Surroundings: w, ClusterID: "c1", Metrics: clustertag.NewMetrics(prometheus.NewRegistry()), Clock: clock.RealClock{}, Log: logr.Discard(),
		Timing: clustertag.Timing{First: time.Millisecond, Every: 200 * time.Millisecond, Again: again},
	})
	controller.Follow(p.Informers)
	p.Run(controller.Start)
	p.Start()
}

// tags are those of a load balancer.
func (w *world) tags(id string) []string {
	w.T.Helper()
	lb := must.Get(w.Account.LoadBalancer(id)).Or(w.T)
	return lb.Tags
}

func (w *world) tagged(ids ...string) {
	w.T.Helper()
	testkit.Eventually(w.T, "the tag", func() string {
		for _, id := range ids {
			if !slices.Contains(w.tags(id), "k8s:c1") {
				return fmt.Sprintf("%s has %v; writes %v", id, w.tags(id), w.writes())
			}
		}
		return ""
	})
}

// more waits for some reconciles more.
func (w *world) more() {
	w.T.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.reconciles
	}
	before := count()
	testkit.Eventually(w.T, "more reconciles", func() string {
		if n := count() - before; n < 3 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// writes counts what was asked about tags.
func (w *world) writes() map[string]int {
	return map[string]int{tagRoute: w.Writes(0)[tagRoute], makeRoute: w.Writes(0)[makeRoute]}
}

func TestAllThatLackTheTagGetItInOneCall(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		one, two := w.service("one"), w.service("two", "people", "k8s:c1")
		three, foreign := w.service("three", "people"), w.service("foreign", "k8s:c2")
		w.run(time.Hour)
		w.tagged(one, two, three)
		w.more()
		if !slices.Equal(w.tags(foreign), []string{"k8s:c2"}) || !slices.Equal(w.tags(three), []string{"k8s:c1", "people"}) {
			t.Errorf("tags %v and %v", w.tags(foreign), w.tags(three))
		}
		// The tag exists since load balancer two has it.
		if got := w.writes(); got[tagRoute] != 1 || got[makeRoute] != 0 {
			t.Errorf("writes %v, want one in all", got)
		}
	})
}

func TestATagThatDoesNotExistIsMade(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		one := w.service("one")
		w.run(time.Hour)
		w.tagged(one)
		w.more()
		if got := w.writes(); got[makeRoute] != 1 || got[tagRoute] != 2 {
			t.Errorf("writes %v, want a POST that responds with 404, the tag, and the POST again", got)
		}
	})
}

// One that has shown its tag is not one that cannot: it need not wait for the time after which those are tagged again.
func TestATagThatIsTakenOffComesBack(t *testing.T) {
	t.Parallel()
	simulated(t, func(_ *testing.T, w *world) {
		one := w.service("one")
		w.run(time.Hour)
		for range 2 {
			w.tagged(one)
			w.more()
			must.Do(w.T, w.Account.EditLoadBalancer(one, func(lb *digitalocean.LoadBalancer) { lb.Tags = []string{"people"} }))
		}
		w.tagged(one)
	})
}

func TestOneThatIsGoneDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, w *world) {
		one, gone, two := w.service("one"), w.service("gone"), w.service("two")
		var err error
		w.frozen, err = w.program.DigitalOcean.LoadBalancers(t.Context())
		must.Do(w.T, err)
		must.Do(w.T, w.Account.DeleteLoadBalancer(gone))
		w.run(time.Hour)
		w.tagged(one, two)
	})
}

func TestNothingIsTaggedInDoubt(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, w *world) {
		one := w.service("one")
		w.set(errors.New("whose account is it?"))
		w.run(time.Hour)
		w.more()
		if got := w.Writes(0); len(got) > 0 {
			t.Errorf("writes %v", got)
		}
		must.Do(w.T, w.Sim.Inject(fault.Rule{Route: tagRoute, Kind: fault.CutAfterApply, Nth: 1}, fault.Rule{Route: makeRoute, Kind: fault.Error, Status: 503, Nth: 1}))
		w.set(nil)
		w.tagged(one)
	})
}
