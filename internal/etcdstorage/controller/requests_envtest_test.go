// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// requests counts, by what they are about.
type requests struct {
	mu sync.Mutex
	n  map[string]int
}

// roundTripper counts what is sent to the API server.
type roundTripper struct {
	*requests

	next http.RoundTripper
}

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	path := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if i := slices.Index(path, "namespaces"); i >= 0 && len(path) > i+2 {
		path = path[i+2:]
	}
	r.mu.Lock()
	r.n[request.Method+" "+strings.Join(path, "/")]++
	r.mu.Unlock()
	return r.next.RoundTrip(request)
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper { return roundTripper{r, next} }

// kubernetes returns what was counted.
func (r *requests) kubernetes() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.n)
}

// received is what the core counts itself: its requests by their method, without those of streams.
func (g *stage) received() map[string]int {
	g.t.Helper()
	pair := g.authority.Issue(g.t, testkit.Leaf{CommonName: "scraper"})
	out := map[string]int{}
	for series, n := range testkit.Scrape(g.t, g.etcd.Endpoint, pair.Client(g.t, g.authority)) {
		rest, ours := strings.CutPrefix(series, `grpc_server_started_total{grpc_method="`)
		if name, labels, _ := strings.Cut(rest, `"`); ours && strings.Contains(labels, `grpc_type="unary"`) {
			out["etcd "+name] += int(n)
		}
	}
	return out
}

// operate runs the operator with its informers, as the program does; what it asks the API server for, beyond its informers, is counted.
func (g *stage) operate() *requests {
	g.t.Helper()
	counted := &requests{n: map[string]int{}}
	config := rest.CopyConfig(g.cluster.Config)
	config.Wrap(counted.wrap)
	scheme := must.Get(NewScheme()).Or(g.t)
	g.r.Client = must.Get(client.New(config, client.Options{Scheme: scheme})).Or(g.t)
	skip := true
	options := ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Cache: must.Get(CacheOptions(g.namespace)).Or(g.t),
	}
	options.Controller.SkipNameValidation = &skip
	mgr := must.Get(ctrl.NewManager(g.cluster.Config, options)).Or(g.t)
	o := g.r.Options
	o.Reader, o.Clock, o.Random, o.Timing = mgr.GetCache(), clock.RealClock{}, rand.Reader, DefaultTiming()
	o.Timing.Glance, o.Timing.Measure, o.Timing.History = time.Hour, time.Hour, 0 // what is done for all tenants together
	o.Timing.Settle = time.Hour                                                   // however slow the machine is
	g.r = New(o)
	must.Do(g.t, g.r.SetupWithManager(mgr))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	g.t.Cleanup(func() {
		stop()
		must.Do(g.t, <-done)
	})
	return counted
}

// appears creates an EtcdStorage with a destination of each kind, lets its proxies become ready, and waits until it is.
func (g *stage) appears(name, namespace string) {
	g.t.Helper()
	g.storage(name, toTenant(namespace, ""))
	waits := func(condition string, status metav1.ConditionStatus) {
		testkit.Eventually(g.t, name, func() string {
			if meta.IsStatusConditionPresentAndEqual(g.get(name).Status.Conditions, condition, status) {
				return ""
			}
			return "its conditions are\n" + g.conditions(name)
		})
	}
	waits(v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue)
	g.deployed(name)
	waits("Ready", metav1.ConditionTrue)
}

// quiet returns what was sent in all, once it has been the same for longer than reconciles wait for each other.
func (g *stage) quiet(sent *requests) map[string]int {
	g.t.Helper()
	var out map[string]int
	same := 0
	testkit.Eventually(g.t, "reconciles to end", func() string {
		is := g.received()
		maps.Copy(is, sent.kubernetes())
		before := out
		if out = is; !maps.Equal(before, is) {
			same = 0
		}
		if same++; same < 10 {
			return "more requests may be sent"
		}
		return ""
	})
	return out
}

// A new tenant, from its creation until its proxies are ready, costs the operator at most 40 requests to the API server and
// to the core together, however many tenants there are.
func TestANewTenantCostsFewRequests(t *testing.T) {
	t.Parallel()
	g := newStage(t, cluster.Own(t, definition(t))) // of its own: this operator takes all EtcdStorages
	g.enableAuth()
	sent := g.operate()
	others := cases.Number(t, 4, 16, 500)
	for i := range others {
		g.appears(fmt.Sprintf("many-%d", i), g.tenant())
	}
	namespace := g.tenant()
	before := g.quiet(sent)
	g.appears("many-new", namespace)
	after := g.quiet(sent)
	total, list := 0, []string{}
	for name, n := range after {
		if n -= before[name]; n > 0 {
			total += n
			list = append(list, fmt.Sprintf("%3d %s", n, name))
		}
	}
	slices.Sort(list)
	t.Logf("%d requests with %d other tenants:\n%s", total, others, strings.Join(list, "\n"))
	if total > 40 {
		t.Errorf("a new tenant costs %d requests, want at most 40", total)
	}
}
