// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// API is what the controller needs of DigitalOcean.
type API interface {
	// Droplet returns one droplet; errors.Is(err, doapi.ErrNotFound) holds only if the API itself says that there is none.
	Droplet(ctx context.Context, id int) (instance.Droplet, error)
	// Epoch grows when what was read before may be about another account.
	Epoch() uint64
}

// Surroundings is what the controller needs of the rest of the program; *machines.Instances has it.
type Surroundings interface {
	// Doubtful returns the list of droplets as new as Nodes that are not ready need it.
	Doubtful(ctx context.Context, since time.Time) (*machines.DropletList, error)
	// Trusted returns nil if what the API answers is about this cluster, TrustedNow after the account was read again.
	Trusted(ctx context.Context) error
	TrustedNow(ctx context.Context) error
}

// Timing says when what is done. The zero value of a field is its default.
type Timing struct {
	// Every is the time between reconciles while a machine is in doubt (5 s).
	Every time.Duration
	// LeaseEvery is how old what is known of the kubelets' Leases may be before they are listed again (8 s), and the time between reconciles while
	// no machine is in doubt.
	LeaseEvery time.Duration
	// AskBurst and AskEvery bound GETs of droplets by ID: so many at once, and one more in each AskEvery (30, 5 s).
	AskBurst int
	AskEvery time.Duration
	// RecordEvery is how often the record is written where only its time has changed, while a machine is in doubt (2 min).
	RecordEvery time.Duration
	// Departure is how long a Node whose machine is gone is kept at most for its volumes to be detached (2 min).
	Departure time.Duration
}

func (t Timing) withDefaults() Timing {
	return Timing{
		Every: cmp.Or(t.Every, 5*time.Second), LeaseEvery: cmp.Or(t.LeaseEvery, 8*time.Second), AskBurst: cmp.Or(t.AskBurst, 30),
		AskEvery: cmp.Or(t.AskEvery, 5*time.Second), RecordEvery: cmp.Or(t.RecordEvery, 2*time.Minute), Departure: cmp.Or(t.Departure, 2*time.Minute),
	}
}

// Options are what [New] needs.
type Options struct {
	API          API
	Surroundings Surroundings
	// Enabled reports whether taints may be set. They are removed in any case.
	Enabled bool
	// Config bounds what may be done; see [outofservice.DefaultConfig].
	Config  outofservice.Config
	Timing  Timing
	Metrics *Metrics
	Clock   clock.WithTicker
	Log     logr.Logger
	// Gate is what all writes pass, nil for one of its own.
	Gate *reconcile.Gate
	Mode outputs.Mode
	// RecordName is the name of the Lease with the record; empty for [outofservice.RecordName].
	RecordName string
}

// Controller sets and removes the taint. Follow and Start are called once each, in either order.
type Controller struct {
	Options
	*reconcile.Runner[*scene, need, outofservice.Step, outofservice.Record]

	timing Timing
	turns  *budget.Turns // of Plan.Ask
	later  *budget.Turns // of Plan.AskLater

	client kubernetes.Interface   // set by Start, before the loop starts
	nodes  corelisters.NodeLister // set by Follow, before the loop follows
	record recordKeeper

	// What follows is used by the one worker that reconciles.
	seen     map[types.UID]*sighting
	epoch    uint64
	leasesAt time.Time // when the kubelets' Leases were last listed
	unlisted string    // why they could not be, the last time

	mu      sync.Mutex // guards all below
	leaving map[types.UID]time.Time
}

// New makes a Controller that does nothing until it is started and follows Nodes.
func New(o Options) *Controller {
	o.Log = o.Log.WithName("out-of-service")
	c := &Controller{
		Options: o, timing: o.Timing.withDefaults(), seen: map[types.UID]*sighting{}, leaving: map[types.UID]time.Time{},
		record: recordKeeper{name: cmp.Or(o.RecordName, outofservice.RecordName)},
	}
	// A third of the calls is for droplets that are called active, so that both together are what Timing says.
	later := max(1, c.timing.AskBurst/3)
	c.turns = budget.NewTurns(o.Clock.Now(), max(1, c.timing.AskBurst-later), c.timing.AskEvery*3/2, 3*c.timing.Every)
	c.later = budget.NewTurns(o.Clock.Now(), later, c.timing.AskEvery*3, 3*c.timing.Every)
	c.Runner = c.reconcile()
	return c
}

// reconcile says what a round consists of. All machines are decided on together.
func (c *Controller) reconcile() *reconcile.Runner[*scene, need, outofservice.Step, outofservice.Record] {
	return reconcile.New(reconcile.Options[*scene, need, outofservice.Step, outofservice.Record]{
		LoopOptions: reconcile.LoopOptions{
			Name: "digitalocean-out-of-service", Clock: c.Clock, Gate: c.Gate, First: time.Second,
			Resync: time.Minute, FirstRetry: c.timing.Every, LastRetry: time.Minute,
		},
		Log: c.Log, Failure: "Machines that are off were not taken out of service, will try again", Mode: c.Mode,
		Writes:  Writes(),
		Observe: c.observe, Plan: c.plan, Satisfy: c.ask, Always: removes,
		Trusted: func(ctx context.Context) error { return c.Surroundings.TrustedNow(ctx) },
		Subject: func(s outofservice.Step) string { _, uid := s.On(); return uid },
		Save:    c.record.save, Apply: c.apply, Report: c.report,
	})
}

// Writes are all that a round writes.
func Writes() []outputs.Write {
	return []outputs.Write{
		{
			System: outputs.Kubernetes, Kind: "nodes", Verbs: []string{"patch"}, Fields: []string{outputs.Field("spec", "taints")},
			Bound: true,
		},
		{System: outputs.Kubernetes, Kind: "leases.coordination.k8s.io", Verbs: []string{"create", "update"}}, // the record, and the account's
	}
}

// Follow reads Nodes from an informer that somebody else starts. A Node that becomes ready or not ready is looked at now.
func (c *Controller) Follow(factory informers.SharedInformerFactory) {
	nodes := factory.Core().V1().Nodes()
	c.nodes = nodes.Lister()
	_, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			old, okOld := before.(*corev1.Node)
			node, okNew := after.(*corev1.Node)
			if okOld && okNew && ready(old) != ready(node) {
				c.Add(reconcile.Only)
			}
		},
	})
	if err != nil {
		c.Log.Error(err, "Nodes cannot be watched; they are listed every minute")
	}
	c.Runner.Follow(nodes.Informer().HasSynced)
}

// Start reconciles until ctx ends; it waits for Follow.
func (c *Controller) Start(ctx context.Context, client kubernetes.Interface, events record.EventRecorder) {
	c.client, c.Events = client, events
	c.record.leases = client.CoordinationV1().Leases(outofservice.RecordNamespace)
	c.Runner.Start(ctx)
}

// plan lets package outofservice decide, once it is known whose the account is where that matters.
func (c *Controller) plan(s *scene) (p reconcile.Plan[need, outofservice.Step, outofservice.Record]) {
	w, trust := c.world(s)
	if trust && !s.asked {
		p.Needs = []need{{}}
		return p
	}
	s.plan = outofservice.MakePlan(w, c.Config)
	p.Needs, p.Steps = needs(s.plan), s.plan.Steps
	switch {
	case s.doubt:
		p.Next = c.timing.Every
	case c.Enabled:
		p.Next = c.timing.LeaseEvery
	}
	if s.unread != nil {
		p.Unread = []error{s.unread}
		return p
	}
	p.Memory, p.Notes = c.remember(s.plan, s.doubt), c.notes(s.plan)
	return p
}

func needs(p outofservice.Plan) (all []need) {
	for i, id := range slices.Concat(p.Ask, p.AskLater) {
		all = append(all, need{droplet: id, later: i >= len(p.Ask), spare: len(p.AskLater) == 0})
	}
	return all
}

// world is all that is known, and whether it matters whose the account is. Without the record taints are removed, which needs none, and none is set.
func (c *Controller) world(s *scene) (w outofservice.World, trust bool) {
	w = outofservice.World{
		Now: c.Clock.Now(), Enabled: c.Enabled && s.unread == nil, Distrust: s.distrust, Memory: c.record.now.Memory, Confirmation: c.record.confirmation,
	}
	for _, s := range c.seen {
		w.Machines = append(w.Machines, s.Machine)
		trust = trust || !s.Ready && s.State.Out() || s.Ours && (s.Ready || s.State == outofservice.StateActive)
	}
	return w, trust
}

// ready reports whether a Node's condition Ready is True.
func ready(node *corev1.Node) bool { return readiness(node) == corev1.ConditionTrue }

// reporting reports whether it is False, which only a kubelet writes: of one that is silent it becomes Unknown.
func reporting(node *corev1.Node) bool { return readiness(node) == corev1.ConditionFalse }

func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}
