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
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// API is what tagging needs of DigitalOcean's API; *doapi.Client has it. Errors are of doapi's kinds.
type API interface {
	CreateTag(ctx context.Context, name string) error
	TagLoadBalancers(ctx context.Context, name string, ids []string) error
	// Epoch changes with the token; see [doapi.Client.Epoch].
	Epoch() uint64
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
	Gate *reconcile.Gate
	Mode outputs.Mode
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
	*reconcile.Runner[*untagged, reconcile.None, *untagged, reconcile.None]

	timing   Timing
	services corelisters.ServiceLister // set by Follow, before the runner follows

	// sent is when load balancers were tagged, by ID. It is used by the one worker that makes rounds.
	sent map[string]time.Time
}

// untagged is what a round observes, and what its one step tags: load balancers that lack the tag, and how many of them were given it.
type untagged struct {
	ids    []string
	tagged int
}

// String implements fmt.Stringer.
func (u *untagged) String() string { return "tagging load balancers " + strings.Join(u.ids, ", ") }

// New makes a Controller that does nothing until it is started and follows Services.
func New(o Options) *Controller {
	c := &Controller{Options: o, timing: o.Timing.withDefaults(), sent: map[string]time.Time{}}
	c.Log = o.Log.WithName("tags").WithValues("tag", c.tag())
	c.Runner = reconcile.New(reconcile.Options[*untagged, reconcile.None, *untagged, reconcile.None]{
		// A round that failed is made again when the next one is due: a tag is in no hurry.
		LoopOptions: reconcile.LoopOptions{Name: "digitalocean-tags", Clock: o.Clock, Gate: o.Gate, First: c.timing.First, Resync: c.timing.Every},
		Log:         c.Log, Failure: "Load balancers could not be tagged, will try again", Time: 2 * time.Minute, Mode: o.Mode,
		Writes: Writes(), Epoch: o.API.Epoch,
		Observe: c.observe, Plan: plan, Trusted: o.Surroundings.Trusted, Apply: c.put, Report: c.report,
	})
	return c
}

// Writes are all that a round writes.
func Writes() []outputs.Write {
	return []outputs.Write{
		{System: outputs.DigitalOcean, Kind: "v2/tags", Verbs: []string{"POST"}},
		{System: outputs.DigitalOcean, Kind: "v2/tags/{name}/resources", Verbs: []string{"POST"}},
		{System: outputs.Kubernetes, Kind: "leases.coordination.k8s.io", Verbs: []string{"create", "update"}}, // the account's record
	}
}

// Follow reads Services, and the Nodes that the surroundings look at, from informers that somebody else starts.
func (c *Controller) Follow(factory informers.SharedInformerFactory) {
	services, nodes := factory.Core().V1().Services(), factory.Core().V1().Nodes()
	c.services = services.Lister()
	c.Runner.Follow(services.Informer().HasSynced, nodes.Informer().HasSynced)
}

// Start makes rounds until ctx ends; it waits for Follow. There are no Events about tags.
func (c *Controller) Start(ctx context.Context, _ kubernetes.Interface, _ record.EventRecorder) {
	c.Runner.Start(ctx)
}

func (c *Controller) tag() string { return loadbalancer.ClusterTag(c.ClusterID) }

// observe returns what lacks the tag and was not tagged a while ago: what does not show its tags, be it for a token that may not see them, is not tagged
// again and again. What shows the tag gets it again at once, should it lose it.
func (c *Controller) observe(ctx context.Context, _ string) (*untagged, error) {
	u := &untagged{}
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return u, fmt.Errorf("listing services: %w", err)
	}
	list, err := c.Surroundings.LoadBalancers(ctx, c.timing.ListAge)
	if err != nil {
		return u, fmt.Errorf("listing load balancers: %w", err)
	}
	droplets, err := c.Surroundings.ClusterDroplets()
	if err != nil {
		return u, err
	}
	for _, lb := range list {
		if slices.Contains(lb.Tags, c.tag()) {
			delete(c.sent, lb.ID)
		}
	}
	maps.DeleteFunc(c.sent, func(_ string, at time.Time) bool { return c.Clock.Since(at) >= c.timing.Again })
	for _, lb := range loadbalancer.Untagged(services, list, c.ClusterID, droplets) {
		if _, ok := c.sent[lb.ID]; !ok {
			u.ids = append(u.ids, lb.ID)
		}
	}
	return u, nil
}

// plan tags all in one call.
func plan(u *untagged) (p reconcile.Plan[reconcile.None, *untagged, reconcile.None]) {
	if len(u.ids) > 0 {
		p.Steps = append(p.Steps, u)
	}
	return p
}

// put tags load balancers. A tag that does not exist is made, and where one load balancer is gone the others are tagged one by one.
func (c *Controller) put(ctx context.Context, _, u *untagged) error {
	c.Log.Info("Tagging load balancers", "ids", strings.Join(u.ids, ", "))
	err := c.send(ctx, u, u.ids)
	if errors.Is(err, doapi.ErrNotFound) {
		if err := c.API.CreateTag(ctx, c.tag()); err != nil {
			return fmt.Errorf("making tag %s: %w", c.tag(), err)
		}
		err = c.send(ctx, u, u.ids)
	}
	switch {
	case !errors.Is(err, doapi.ErrNotFound):
		return err
	case len(u.ids) == 1:
		return reconcile.As(reconcile.Gone, err)
	}
	for id := range slices.Chunk(u.ids, 1) {
		if err := c.send(ctx, u, id); err != nil && !errors.Is(err, doapi.ErrNotFound) {
			return fmt.Errorf("%s: %w", id[0], err)
		}
	}
	return nil
}

// send makes one call and notes what it has tagged.
func (c *Controller) send(ctx context.Context, u *untagged, ids []string) error {
	err := c.API.TagLoadBalancers(ctx, c.tag(), ids)
	for _, id := range ids {
		if err == nil {
			c.sent[id] = c.Clock.Now()
			u.tagged++
		}
	}
	return err
}

// report counts.
func (c *Controller) report(_ context.Context, r *reconcile.Round[*untagged, reconcile.None, *untagged, reconcile.None]) {
	outcome := "unchanged"
	switch {
	case r.Err != nil:
		outcome = "failed"
	case r.World.tagged > 0:
		outcome = "tagged"
	}
	c.Metrics.passes.WithLabelValues(outcome).Inc()
	c.Metrics.tagged.Add(float64(r.World.tagged))
}
