// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/docloud/leftovers"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// countedLists are DigitalOcean's lists, and how often they were read. Whatever else is called is a panic.
type countedLists struct {
	API

	balancers    []loadbalancer.Observed
	certificates []loadbalancer.Certificate
	calls        int
}

func (l *countedLists) Epoch() uint64 { return 1 }

func (l *countedLists) LoadBalancers(context.Context) ([]loadbalancer.Observed, error) {
	l.calls++
	return l.balancers, nil
}

func (l *countedLists) Certificates(context.Context) ([]loadbalancer.Certificate, error) {
	l.calls++
	return l.certificates, nil
}

// What nothing refers to is counted from lists that were read anyway, and is unknown before, and when they are old: scraping calls nobody.
func TestUnreferencedCostsNoCall(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC))
	balancer := func(id string, tags ...string) loadbalancer.Observed {
		return loadbalancer.Observed{ID: id, Name: id, Tags: tags, CreatedAt: clock.Now().Add(-time.Hour)}
	}
	lists := &countedLists{
		balancers: []loadbalancer.Observed{balancer("left", "k8s:c"), balancer("held", "k8s:c"), balancer("theirs", "k8s:d"), balancer("persons", "web")},
		certificates: []loadbalancer.Certificate{
			{ID: "1", Name: loadbalancer.ManagedName([]string{"a.example.com"})}, {ID: "2", Name: loadbalancer.ManagedName([]string{"b.example.com"})}, {ID: "3", Name: "wildcard"},
		},
	}
	registry := prometheus.NewRegistry()
	c := New(Options{
		API: lists, Fleet: sureFleet{}, Cluster: loadbalancer.Cluster{ID: "c"}, Metrics: NewMetrics(prometheus.NewRegistry()), Clock: clock, Log: logr.Discard(),
	})
	metrics := leftovers.NewMetrics(registry)
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	held := waitingService("web")
	held.Status.Conditions = []metav1.Condition{{Type: loadbalancer.ConditionHeld, Status: metav1.ConditionTrue, Message: "held"}}
	must.Do(t, services.Add(held))
	c.services, c.nodes = corelisters.NewServiceLister(services), corelisters.NewNodeLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil))
	scraped := func(when, balancers, certificates string) {
		t.Helper()
		want := `# HELP mooring_digitalocean_unreferenced Objects of the cluster at DigitalOcean to which nothing refers, by kind, in the lists that are read anyway; -1 while that is unknown.
# TYPE mooring_digitalocean_unreferenced gauge
mooring_digitalocean_unreferenced{kind="certificate"} ` + certificates + `
mooring_digitalocean_unreferenced{kind="load_balancer"} ` + balancers + "\n"
		before := lists.calls
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "mooring_digitalocean_unreferenced"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if lists.calls != before {
			t.Errorf("%s: a scrape made %d calls", when, lists.calls-before)
		}
	}
	scraped("before there is a controller", "-1", "-1")
	metrics.Count(c.Known)
	scraped("before anything runs", "-1", "-1")
	c.loop.Follow()
	scraped("before a list is read", "-1", "-1")
	must.Get(c.LoadBalancers(t.Context(), time.Minute)).Or(t)
	scraped("without certificates", "1", "-1")
	must.Get(c.certificates.Get(t.Context(), 0, time.Minute)).Or(t)
	scraped("with both", "1", "2")
	held.Annotations = map[string]string{"service.beta.kubernetes.io/do-loadbalancer-certificate-domains": "a.example.com"}
	c.list.gone("left", 1)
	scraped("one is deleted, and one certificate is asked for", "0", "1")
	must.Do(t, services.Delete(&corev1.Service{ObjectMeta: held.ObjectMeta}))
	scraped("the Service is gone", "1", "2")
	clock.Step(2 * time.Hour)
	scraped("the lists are old", "-1", "-1")
}
