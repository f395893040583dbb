// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls

import (
	"cmp"
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	events "k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// API is what the firewall needs of DigitalOcean's API; *doapi.Client has it. Lists are whole or an error, and errors are of doapi's kinds.
type API interface {
	Firewalls(ctx context.Context) ([]firewall.Observed, error)
	Firewall(ctx context.Context, id string) (firewall.Observed, error)
	CreateFirewall(ctx context.Context, r firewall.Request) (firewall.Observed, error)
	UpdateFirewall(ctx context.Context, id string, r firewall.Request) (firewall.Observed, error)
	// Epoch grows when what was read before may be about another account.
	Epoch() uint64
}

// Surroundings is what the controller needs of the rest of the program.
type Surroundings interface {
	// Trusted returns nil if what the API answers is about this cluster, and else one sentence that says why that is in doubt: then nothing is
	// written.
	Trusted(ctx context.Context) error
	// LoadBalancerIDs returns the IDs of all load balancers of the account, as they were not long ago.
	LoadBalancerIDs(ctx context.Context) ([]string, error)
	// Notes returns the annotations of the account's Lease, which hold the firewall's record, and Note writes one of them.
	Notes(ctx context.Context) (map[string]string, error)
	Note(ctx context.Context, name, value string) error
}

// Timing says when what is done. The zero value of a field is its default.
type Timing struct {
	// Gather is how long changes of Services are gathered (1 s).
	Gather time.Duration
	// Resync is how often the firewall is read again, one call by its ID (1 min, and up to a fifth more by chance): until then what somebody else has
	// opened is open.
	Resync time.Duration
	// FirstRetry and LastRetry bound the waits after failures (1 s and 5 min, as the upstream project).
	FirstRetry, LastRetry time.Duration
	// Pass bounds one pass (2 min).
	Pass time.Duration
}

func (t Timing) withDefaults() Timing {
	return Timing{
		Gather: cmp.Or(t.Gather, time.Second), Resync: cmp.Or(t.Resync, time.Minute), FirstRetry: cmp.Or(t.FirstRetry, time.Second),
		LastRetry: cmp.Or(t.LastRetry, 5*time.Minute), Pass: cmp.Or(t.Pass, 2*time.Minute),
	}
}

// Options are what [New] needs. Timing may be zero; Log may discard.
type Options struct {
	API          API
	Surroundings Surroundings
	// Config names the firewall; it has a name and at least one tag.
	Config  firewall.Config
	Metrics *Metrics
	Clock   clock.WithTicker
	Log     logr.Logger
	Timing  Timing
	// Gate is what all writes pass, nil for one of its own.
	Gate *reconcile.Gate
	Mode outputs.Mode
	// Namespace bounds the Services that are looked at, empty for all. It is for tests that share an API server.
	Namespace string
}

// Controller keeps the firewall. Its methods are called once each: Follow and Start, in any order.
type Controller struct {
	api          API
	surroundings Surroundings
	config       firewall.Config
	metrics      *Metrics
	clock        clock.WithTicker
	log          logr.Logger
	timing       Timing
	mode         outputs.Mode
	namespace    string

	*reconcile.Runner[*scene, need, step, reconcile.None]

	client   kubernetes.Interface      // set by Start, before anything runs
	services corelisters.ServiceLister // set by Follow, before the runner follows

	// memory is used by the one worker that makes rounds.
	memory memory
}

// marks of the queue. One round serves both; a resync is one that reads the firewall first. The first is the upstream project's, for those
// who watch it.
const (
	markServices = "service"
	markResync   = "resync"
)

// New makes a Controller that does nothing until it is started and follows Services.
func New(o Options) *Controller {
	t := o.Timing.withDefaults()
	c := &Controller{
		api: instrumented{o.API, o.Metrics, o.Clock}, surroundings: o.Surroundings, config: o.Config, metrics: o.Metrics, clock: o.Clock,
		log: o.Log.WithName("firewall"), timing: t, mode: o.Mode, namespace: o.Namespace,
	}
	c.Runner = reconcile.New(reconcile.Options[*scene, need, step, reconcile.None]{
		LoopOptions: reconcile.LoopOptions{
			Name: "firewall", Clock: o.Clock, Gate: o.Gate, // the upstream project's name, which is a label of metrics
			Keys: func() []string { return []string{markResync} }, Resync: t.Resync, FirstRetry: t.FirstRetry, LastRetry: t.LastRetry,
			RetryAs: markResync,
		},
		Log: c.log.WithValues("name", o.Config.Name), Failure: "The reconcile of the firewall failed, will try again", Time: t.Pass, Keyless: true, Mode: o.Mode,
		Writes: Writes(), Epoch: o.API.Epoch,
		Observe: c.observe, Plan: c.plan, Satisfy: c.satisfy, Trusted: o.Surroundings.Trusted, Apply: c.write, NotBefore: doapi.NotBefore, Report: c.report,
	})
	c.Events = &events.FakeRecorder{}
	return c
}

// Writes are all that a round writes.
func Writes() []outputs.Write {
	return []outputs.Write{
		{System: outputs.DigitalOcean, Kind: "v2/firewalls", Verbs: []string{"POST"}},
		{System: outputs.DigitalOcean, Kind: "v2/firewalls/{id}", Verbs: []string{"PUT"}},
		{
			System: outputs.Kubernetes, Kind: "services/status", Verbs: []string{"patch"},
			Fields: []string{outputs.Field("status", "conditions")}, Bound: true,
		},
		{System: outputs.Kubernetes, Kind: "leases.coordination.k8s.io", Verbs: []string{"create", "update"}}, // the account's record
	}
}

// Follow reads Services from an informer that somebody else starts.
func (c *Controller) Follow(factory informers.SharedInformerFactory) {
	informer := factory.Core().V1().Services()
	c.services = informer.Lister()
	changed := func() { c.AddAfter(markServices, c.timing.Gather) }
	// An informer that has been stopped takes no handlers; it gives no events either.
	_, _ = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	})
	c.Runner.Follow(informer.Informer().HasSynced)
}

// Start keeps the firewall until ctx ends; it waits for Follow.
func (c *Controller) Start(ctx context.Context, client kubernetes.Interface, recorder events.EventRecorder) {
	c.client, c.Events = client, recorder
	c.Add(markServices) // without a Service there is no event, and the firewall is wanted all the same
	c.Runner.Start(ctx)
}
