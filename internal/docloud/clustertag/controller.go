// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package clustertag

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/loop"
)

// API is what tagging needs of DigitalOcean's API; *doapi.Client has it. Errors are of doapi's kinds.
type API interface {
	CreateTag(ctx context.Context, name string) error
	TagLoadBalancers(ctx context.Context, name string, ids []string) error
}

// Surroundings is what the controller needs of the rest of the program.
type Surroundings interface {
	// Trusted returns nil if what the API answers is about this cluster, and else one sentence that says why that is in doubt.
	Trusted(ctx context.Context) error
	// LoadBalancers returns the load balancers of the account, from a list that is not older than age.
	LoadBalancers(ctx context.Context, age time.Duration) ([]loadbalancer.Observed, error)
	// ClusterDroplets returns the droplets of the cluster's Nodes.
	ClusterDroplets() ([]int, error)
}

// Timing says when what is done. The zero value of a field is its default.
type Timing struct {
	// First is how long the first pass waits at most; how long it does is left to chance, which keeps clusters apart (10 min, as the upstream project).
	First time.Duration
	// Every is the time between passes (15 min, as the upstream project).
	Every time.Duration
	// ListAge is how old the list of load balancers may be (5 min, which is how often it is read anyway).
	ListAge time.Duration
	// Again is how long a load balancer is left alone that has been tagged and does not show it (1 h).
	Again time.Duration
}

func (t Timing) withDefaults() Timing {
	return Timing{
		First: cmp.Or(t.First, 10*time.Minute), Every: cmp.Or(t.Every, 15*time.Minute), ListAge: cmp.Or(t.ListAge, 5*time.Minute),
		Again: cmp.Or(t.Again, time.Hour),
	}
}

// passTime bounds one pass.
const passTime = 2 * time.Minute

// Options are what [New] needs. Timing may be zero; Log may discard.
type Options struct {
	API          API
	Surroundings Surroundings
	// ClusterID is the cluster's (DO_CLUSTER_ID), not empty.
	ClusterID string
	Metrics   *Metrics
	Clock     clock.WithTicker
	Log       logr.Logger
	Timing    Timing
	// Gate is what all writes pass, nil for one of its own.
	Gate *loop.Gate
}

// Metrics report on tagging. Their names are a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	passes *prometheus.CounterVec
	tagged prometheus.Counter
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_tag_syncs_total",
			Help: "Resyncs that search for load balancers without the cluster's tag, by outcome: unchanged, tagged or failed.",
		}, []string{"outcome"}),
		tagged: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mooring_digitalocean_tagged_total", Help: "Load balancers that were given the cluster's tag.",
		}),
	}
	registry.MustRegister(m.passes, m.tagged)
	return m
}

// Controller puts the tag on. Its methods are called once each: Follow and Start, in either order.
type Controller struct {
	Options
	timing   Timing
	loop     *loop.Loop
	services corelisters.ServiceLister // set by Follow, before the loop follows

	// sent is when load balancers were tagged, by ID. It is used by the one worker that makes passes.
	sent map[string]time.Time
}

// New makes a Controller that does nothing until it is started and follows Services.
func New(o Options) *Controller {
	o.Log = o.Log.WithName("tags")
	c := &Controller{Options: o, timing: o.Timing.withDefaults(), sent: map[string]time.Time{}}
	c.loop = loop.New(loop.Options{
		Name: "digitalocean-tags", Clock: o.Clock, Gate: o.Gate, Pass: c.look, Keys: func() []string { return []string{c.tag()} },
		First: c.timing.First, Resync: c.timing.Every, FirstRetry: c.timing.Every, LastRetry: c.timing.Every,
	})
	return c
}

// Follow reads Services, and the Nodes that the surroundings look at, from informers that somebody else starts.
func (c *Controller) Follow(factory informers.SharedInformerFactory) {
	services, nodes := factory.Core().V1().Services(), factory.Core().V1().Nodes()
	c.services = services.Lister()
	c.loop.Follow(services.Informer().HasSynced, nodes.Informer().HasSynced)
}

// Start makes passes until stop is closed; it waits for Follow.
func (c *Controller) Start(_ kubernetes.Interface, stop <-chan struct{}) {
	c.loop.Start(loop.Until(stop))
}

// Wake tries now what waits after a failure: its cause may be over.
func (c *Controller) Wake() { c.loop.Wake() }

// look makes a pass and tells how it went. A pass that failed is made again when the next one is due: a tag is in no hurry.
func (c *Controller) look(ctx context.Context, _ string) loop.Result {
	tagged, err := c.pass(ctx)
	outcome := "unchanged"
	switch {
	case ctx.Err() != nil:
		return loop.Result{}
	case err != nil:
		outcome = "failed"
		c.Log.Error(err, "Load balancers could not be tagged, will try again", "tag", c.tag())
	case tagged > 0:
		outcome = "tagged"
	}
	c.Metrics.passes.WithLabelValues(outcome).Inc()
	c.Metrics.tagged.Add(float64(tagged))
	return loop.Result{}
}

func (c *Controller) tag() string { return loadbalancer.ClusterTag(c.ClusterID) }

// pass tags what lacks the tag, and returns how many that were.
func (c *Controller) pass(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, passTime)
	defer cancel()
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("listing services: %w", err)
	}
	list, err := c.Surroundings.LoadBalancers(ctx, c.timing.ListAge)
	if err != nil {
		return 0, fmt.Errorf("listing load balancers: %w", err)
	}
	droplets, err := c.Surroundings.ClusterDroplets()
	if err != nil {
		return 0, err
	}
	c.forget(list)
	missing := c.due(loadbalancer.Untagged(services, list, c.ClusterID, droplets))
	if len(missing) == 0 {
		return 0, nil
	}
	if err := c.Surroundings.Trusted(ctx); err != nil {
		return 0, fmt.Errorf("nothing is tagged: %w", err)
	}
	c.Log.Info("Tagging load balancers", "tag", c.tag(), "ids", strings.Join(missing, ", "))
	return c.put(ctx, missing)
}

// forget is about load balancers that have been tagged and show it: should they lose the tag they get it again at once.
func (c *Controller) forget(list []loadbalancer.Observed) {
	for _, lb := range list {
		if slices.Contains(lb.Tags, c.tag()) {
			delete(c.sent, lb.ID)
		}
	}
}

// due returns the IDs of those that were not tagged a while ago: what does not show its tags, be it for a token that may not see them, is not
// tagged again and again.
func (c *Controller) due(untagged []loadbalancer.Observed) []string {
	maps.DeleteFunc(c.sent, func(_ string, at time.Time) bool { return c.Clock.Since(at) >= c.timing.Again })
	var ids []string
	for _, lb := range untagged {
		if _, ok := c.sent[lb.ID]; !ok {
			ids = append(ids, lb.ID)
		}
	}
	return ids
}

// put tags load balancers. A tag that does not exist is made, and where one load balancer is gone the others are tagged one by one.
func (c *Controller) put(ctx context.Context, ids []string) (int, error) {
	err := c.API.TagLoadBalancers(ctx, c.tag(), ids)
	if errors.Is(err, doapi.ErrNotFound) {
		if err := c.API.CreateTag(ctx, c.tag()); err != nil {
			return 0, fmt.Errorf("making tag %s: %w", c.tag(), err)
		}
		err = c.API.TagLoadBalancers(ctx, c.tag(), ids)
	}
	switch {
	case err == nil:
		for _, id := range ids {
			c.sent[id] = c.Clock.Now()
		}
		return len(ids), nil
	case !errors.Is(err, doapi.ErrNotFound):
		return 0, fmt.Errorf("tagging load balancers: %w", err)
	case len(ids) == 1: // it is gone
		return 0, nil
	}
	tagged := 0
	for _, id := range ids {
		switch err := c.API.TagLoadBalancers(ctx, c.tag(), []string{id}); {
		case err == nil:
			c.sent[id] = c.Clock.Now()
			tagged++
		case !errors.Is(err, doapi.ErrNotFound):
			return tagged, fmt.Errorf("tagging load balancer %s: %w", id, err)
		}
	}
	return tagged, nil
}
