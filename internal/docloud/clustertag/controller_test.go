// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package clustertag_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/clustertag"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	own       = "clustertagtest"
	tagRoute  = "POST /v2/tags/{tag_id}/resources"
	makeRoute = "POST /v2/tags"
)

// world is a cluster's Services and an account. It is the controller's surroundings, too: its lists are read again each time, and doubt is what
// the account's trust says.
type world struct {
	t      *testing.T
	sim    *digitalocean.Simulator
	client kubernetes.Interface
	api    *doapi.Client
	name   string

	mu     sync.Mutex
	doubt  error
	passes int
	frozen []loadbalancer.Observed // a list that is old, nil to read a new one
}

func (w *world) Trusted(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.doubt
}

func (w *world) LoadBalancers(ctx context.Context, _ time.Duration) ([]loadbalancer.Observed, error) {
	w.mu.Lock()
	w.passes++
	w.mu.Unlock()
	if w.frozen != nil {
		return w.frozen, nil
	}
	return w.api.LoadBalancers(ctx)
}

func (w *world) ClusterDroplets() ([]int, error) { return nil, nil }

func (w *world) set(doubt error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubt = doubt
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(t.Name()))
	w := &world{t: t, sim: digitalocean.New(digitalocean.Options{Seed: 1}), client: controlplane.Shared(t).Client, name: fmt.Sprintf("t%08x", hash.Sum32())}
	var err error
	w.api, err = doapi.New(doapi.Options{
		URL: "http://api.example/", Token: doapi.StaticToken(digitalocean.DefaultToken), UserAgent: "test", Transport: w.sim.Transport(), Clock: clock.RealClock{},
	})
	w.must(err)
	_, err = w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.name}}, metav1.CreateOptions{})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// service makes a Service and its load balancer, with tags, which the Service's annotation names.
func (w *world) service(name string, tags ...string) string {
	w.t.Helper()
	made, err := w.client.CoreV1().Services(w.name).Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.name, Labels: map[string]string{own: w.name}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	w.must(err)
	body, err := json.Marshal(map[string]any{
		"name": loadbalancer.DefaultName(made), "region": "nyc1", "type": "REGIONAL_NETWORK", "tags": tags,
		"forwarding_rules": []any{map[string]any{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 80}},
	})
	w.must(err)
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://api.example/v2/load_balancers", strings.NewReader(string(body)))
	w.must(err)
	request.Header.Set("Authorization", "Bearer "+digitalocean.DefaultToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := w.sim.Transport().RoundTrip(request)
	w.must(err)
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		LoadBalancer digitalocean.LoadBalancer `json:"load_balancer"`
	}
	w.must(json.NewDecoder(response.Body).Decode(&answer))
	made.Annotations = map[string]string{annotation.LoadBalancerID: answer.LoadBalancer.ID}
	_, err = w.client.CoreV1().Services(w.name).Update(w.t.Context(), made, metav1.UpdateOptions{})
	w.must(err)
	return answer.LoadBalancer.ID
}

// run starts a controller whose passes follow each other closely.
func (w *world) run(again time.Duration) {
	w.t.Helper()
	controller := clustertag.New(clustertag.Options{
		API: w.api, Surroundings: w, ClusterID: "c1", Metrics: clustertag.NewMetrics(prometheus.NewRegistry()), Clock: clock.RealClock{}, Log: logr.Discard(),
		Timing: clustertag.Timing{First: time.Millisecond, Every: 200 * time.Millisecond, Again: again},
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = own + "=" + w.name
	}))
	controller.Follow(factory)
	controller.Start(w.client, ctx.Done())
	factory.Start(ctx.Done())
}

// tags are those of a load balancer.
func (w *world) tags(id string) []string {
	w.t.Helper()
	lb, err := w.sim.Account("").LoadBalancer(id)
	w.must(err)
	return lb.Tags
}

func (w *world) tagged(ids ...string) {
	w.t.Helper()
	testkit.Eventually(w.t, "the tag", func() string {
		for _, id := range ids {
			if !slices.Contains(w.tags(id), "k8s:c1") {
				return fmt.Sprintf("%s has %v; writes %v", id, w.tags(id), w.writes())
			}
		}
		return ""
	})
}

// more waits for some passes more.
func (w *world) more() {
	w.t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.passes
	}
	before := count()
	testkit.Eventually(w.t, "more passes", func() string {
		if n := count() - before; n < 3 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

// writes counts what was asked about tags.
func (w *world) writes() map[string]int {
	out := map[string]int{}
	for _, e := range w.sim.Requests(journal.Filter{Route: "POST /v2/tags"}) {
		out[e.Route]++
	}
	return out
}

func TestAllThatLackTheTagGetItInOneCall(t *testing.T) {
	w := newWorld(t)
	one, two := w.service("one"), w.service("two", "people", "k8s:c1")
	three, foreign := w.service("three", "people"), w.service("foreign", "k8s:c2")
	before := w.sim.Stats().Total
	w.run(time.Hour)
	w.tagged(one, two, three)
	w.more()
	if !slices.Equal(w.tags(foreign), []string{"k8s:c2"}) || !slices.Equal(w.tags(three), []string{"k8s:c1", "people"}) {
		t.Errorf("tags %v and %v", w.tags(foreign), w.tags(three))
	}
	// The tag exists since load balancer two has it.
	if got := w.writes(); got[tagRoute] != 1 || got[makeRoute] != 0 || before == 0 {
		t.Errorf("writes %v, want one in all", got)
	}
}

func TestATagThatDoesNotExistIsMade(t *testing.T) {
	w := newWorld(t)
	one := w.service("one")
	w.run(time.Hour)
	w.tagged(one)
	w.more()
	if got := w.writes(); got[makeRoute] != 1 || got[tagRoute] != 2 {
		t.Errorf("writes %v, want a POST that responds with 404, the tag, and the POST again", got)
	}
}

// One that has shown its tag is not one that cannot: it need not wait for the time after which those are tagged again.
func TestATagThatIsTakenOffComesBack(t *testing.T) {
	w := newWorld(t)
	one := w.service("one")
	w.run(time.Hour)
	for range 2 {
		w.tagged(one)
		w.more()
		w.must(w.sim.Account("").EditLoadBalancer(one, func(lb *digitalocean.LoadBalancer) { lb.Tags = []string{"people"} }))
	}
	w.tagged(one)
}

func TestOneThatIsGoneDoesNotStopTheOthers(t *testing.T) {
	w := newWorld(t)
	one, gone, two := w.service("one"), w.service("gone"), w.service("two")
	var err error
	w.frozen, err = w.api.LoadBalancers(t.Context())
	w.must(err)
	w.must(w.sim.Account("").DeleteLoadBalancer(gone))
	w.run(time.Hour)
	w.tagged(one, two)
}

func TestNothingIsTaggedInDoubt(t *testing.T) {
	w := newWorld(t)
	one := w.service("one")
	w.set(errors.New("whose account is it?"))
	w.run(time.Hour)
	w.more()
	if got := w.writes(); len(got) > 0 {
		t.Errorf("writes %v", got)
	}
	w.must(w.sim.Inject(fault.Rule{Route: tagRoute, Kind: fault.CutAfterApply, Nth: 1}, fault.Rule{Route: makeRoute, Kind: fault.Error, Status: 503, Nth: 1}))
	w.set(nil)
	w.tagged(one)
}
