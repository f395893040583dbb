// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	events "k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/cached"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// API is what load balancers need of DigitalOcean's API; *doapi.Client has it. Lists are whole or an error, and errors are of doapi's kinds.
type API interface {
	LoadBalancers(ctx context.Context) ([]loadbalancer.Observed, error)
	LoadBalancer(ctx context.Context, id string) (loadbalancer.Observed, error)
	CreateLoadBalancer(ctx context.Context, r loadbalancer.Request, only loadbalancer.CreateOnly) (loadbalancer.Observed, error)
	UpdateLoadBalancer(ctx context.Context, id string, r loadbalancer.Request) (loadbalancer.Observed, error)
	DeleteLoadBalancer(ctx context.Context, id string) error
	AddDroplets(ctx context.Context, id string, droplets []int) error
	RemoveDroplets(ctx context.Context, id string, droplets []int) error
	Certificates(ctx context.Context) ([]loadbalancer.Certificate, error)
	CreateCertificate(ctx context.Context, r loadbalancer.CertificateRequest) (loadbalancer.Certificate, error)
	// Epoch grows when what was read before may be about another account.
	Epoch() uint64
}

// Fleet is what load balancers need to know of the machines.
type Fleet interface {
	// Droplets returns all droplets of the account, as they were not long ago, or an error.
	Droplets(ctx context.Context) ([]instance.Droplet, error)
	// Trusted returns nil if what the API answers is about this cluster, and else one sentence that says why that is in doubt: then nothing is
	// concluded from what is not there. TrustedNow queries the account first.
	Trusted(ctx context.Context) error
	TrustedNow(ctx context.Context) error
	// Since returns when this program ran first in the cluster, the zero time if that is not known; it makes no call.
	Since() time.Time
}

// Timing says when what is done. The zero value of a field is its default.
type Timing struct {
	// Quiet and Most debounce changes of Nodes: load balancers are looked at when nothing changed for Quiet (2 s), and after Most (15 s) at the latest,
	// but not again within Most after a change was sent: however long Nodes come and go, that is one change of each in each Most.
	Quiet, Most time.Duration
	// Resync is how often all Services are reconciled (5 min, and up to Drift more).
	Resync time.Duration
	// Drift is how often the list of load balancers is compared with the one before, one call for 200 of them (57 s, so
	// that what was changed elsewhere is repaired within a minute; Resync if that is shorter).
	Drift time.Duration
	// Pending is how soon to look again at a load balancer that is busy (15 s), twice as long each time up to eight times that.
	Pending time.Duration
	// Change is in what time one change of a load balancer's settings is sent (15 s), after three at once; see loadbalancer.Turns.
	Change time.Duration
	// Poll is how soon to look again at load balancers that are new (5 s), all of them in one list; three times as long after two minutes, and
	// twelve times after a quarter of an hour.
	Poll time.Duration
	// ListAge is how old the list of load balancers may be that a look relies on (10 s). What is about to be made is looked for in a new one.
	ListAge time.Duration
	// CertificateAge is the same for certificates (15 min), CertificateDoubt where something does not fit: a name that is not there, or an ID
	// that is not the load balancer's (1 min).
	CertificateAge, CertificateDoubt time.Duration
	// Settle is how long after a change lists may still show what was before it (15 s).
	Settle time.Duration
	// Unanswered is how long what a POST without a response may have made is waited for (1 min), longer than lists lag.
	Unanswered time.Duration
	// FirstRetry and LastRetry bound the waits after failures (5 s, 5 min).
	FirstRetry, LastRetry time.Duration
}

func (t Timing) withDefaults() Timing {
	return Timing{
		Quiet: cmp.Or(t.Quiet, 2*time.Second), Most: cmp.Or(t.Most, 15*time.Second), Resync: cmp.Or(t.Resync, 5*time.Minute),
		Drift:   cmp.Or(t.Drift, min(57*time.Second, cmp.Or(t.Resync, time.Minute))),
		Pending: cmp.Or(t.Pending, 15*time.Second), Change: cmp.Or(t.Change, 15*time.Second), Poll: cmp.Or(t.Poll, 5*time.Second), ListAge: cmp.Or(t.ListAge, 10*time.Second),
		CertificateAge: cmp.Or(t.CertificateAge, 15*time.Minute), CertificateDoubt: cmp.Or(t.CertificateDoubt, time.Minute),
		Settle: cmp.Or(t.Settle, 15*time.Second), Unanswered: cmp.Or(t.Unanswered, time.Minute),
		FirstRetry: cmp.Or(t.FirstRetry, 5*time.Second), LastRetry: cmp.Or(t.LastRetry, 5*time.Minute),
	}
}

// Options are what [New] needs. Timing may be zero; Log may discard.
type Options struct {
	API     API
	Fleet   Fleet
	Cluster loadbalancer.Cluster
	Metrics *Metrics
	Clock   clock.WithTicker
	Log     logr.Logger
	Timing  Timing
	Gate    *reconcile.Gate
	// Mode is whether plans are applied. In mode report a Service that the framework has in hand counts as one with its
	// finalizer, which the framework could not write.
	Mode outputs.Mode
	// TakeOverAny lets every Service take over any load balancer of the account by naming its ID, as the upstream project does.
	TakeOverAny bool
	// Domains are those for which the Services of all namespaces may have certificates, in the form of
	// [loadbalancer.DomainsAnnotation].
	Domains []string
	// Identities returns which Nodes may not be the droplets that they name, by what was read so far; nil for no such
	// check.
	Identities func([]*corev1.Node) *instance.Identities
}

// lookers is how many load balancers are looked at at a time, so that one that hangs does not hold up the others.
const lookers = 4

// Controller keeps the load balancers of Services as they must be. It implements cloudprovider.LoadBalancer for the framework's service
// controller, which writes finalizers and statuses, and looks by itself at all that the framework does not see:
//
//	Service changes ──> framework ── EnsureLoadBalancer ── call ──┐
//	Node changes ──> Mark ───────┐                                ├──> round: observe, plan, at most one change
//	UpdateLoadBalancer ──────────┼──> queue ── observe ───────────┘
//	the list shows a change ─────┤
//	every few minutes ───────────┘
type Controller struct {
	o            Options
	timing       Timing
	log          logr.Logger
	list         *balancerList
	certificates *cached.List[[]loadbalancer.Certificate]
	endpoints    *endpoints
	loop         *reconcile.Runner[*scene, loadbalancer.Needs, loadbalancer.Step, memory]

	mu       sync.Mutex // guards all below
	memories map[string]memory
	limited  time.Time            // until when no call may be made at all
	turns    map[string]time.Time // of namespaces, and of all, whose name is empty; see loadbalancer.Turns

	// Set by Start, before anything runs.
	client kubernetes.Interface
	// Set by Follow, before the loop follows.
	nodes    corelisters.NodeLister
	services corelisters.ServiceLister
	synced   cache.InformerSynced
}

var _ cloudprovider.LoadBalancer = (*Controller)(nil)

// memory is what is remembered of one Service.
type memory struct {
	key string
	uid types.UID
	of  loadbalancer.Memory
}

// recall returns what is remembered of a Service: of another one of its name that is nothing.
func (c *Controller) recall(service *corev1.Service) loadbalancer.Memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.memories[keyOf(service)]; m.uid == service.UID {
		return m.of
	}
	return loadbalancer.Memory{}
}

// remember keeps what a plan remembers. It is lost with the process; see loadbalancer.Memory.
func (c *Controller) remember(_ context.Context, m memory) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memories[m.key] = m
	return nil
}

// forget is for a Service that is gone.
func (c *Controller) forget(key string) {
	c.endpoints.forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.memories, key)
}

// unchecked says nothing against any Node.
func unchecked([]*corev1.Node) *instance.Identities { return nil }

// New makes a Controller that does nothing until it is started and follows.
func New(o Options) *Controller {
	t := o.Timing.withDefaults()
	o.Gate = cmp.Or(o.Gate, &reconcile.Gate{})
	if o.Identities == nil {
		o.Identities = unchecked
	}
	c := &Controller{
		o: o, log: o.Log.WithName("balancers"), timing: t,
		list:         newBalancerList(o.API, o.Clock, t.Settle),
		certificates: cached.New(o.API.Certificates, o.API.Epoch, o.Clock),
		memories:     map[string]memory{}, turns: map[string]time.Time{},
	}
	c.loop = c.rounds()
	c.endpoints = newEndpoints(o.Clock, func(key string) { c.loop.AddAfter(key, t.Quiet) })
	cached.RegisterAge(o.Metrics.registry, "load_balancers", o.Clock, func() time.Time { return c.listedAt(c.list.At) })
	cached.RegisterAge(o.Metrics.registry, "certificates", o.Clock, func() time.Time { return c.listedAt(c.certificates.At) })
	return c
}

// rounds says what a round over one Service consists of.
func (c *Controller) rounds() *reconcile.Runner[*scene, loadbalancer.Needs, loadbalancer.Step, memory] {
	t := c.timing
	r := reconcile.New(reconcile.Options[*scene, loadbalancer.Needs, loadbalancer.Step, memory]{
		LoopOptions: reconcile.LoopOptions{
			Name: "digitalocean-loadbalancer", Clock: c.o.Clock, Gate: c.o.Gate, Workers: lookers, Keys: c.keys,
			Quiet: t.Quiet, Most: t.Most, FirstRetry: t.FirstRetry, LastRetry: t.LastRetry,
		},
		Log: c.log, Failure: "The reconcile of a load balancer failed, will try again",
		Time: time.Hour, // each call has its own bound
		Mode: c.o.Mode, Because: func(s *scene, step loadbalancer.Step) string { return s.because(step) },
		Writes: Writes(), Epoch: c.o.API.Epoch,
		Observe: c.observe, Plan: (*scene).plan, Save: c.remember, Report: c.report,
		Satisfy: func(ctx context.Context, s *scene, n loadbalancer.Needs) (reconcile.Learned, error) {
			return s.read(ctx, n), nil
		},
		Apply: func(ctx context.Context, s *scene, step loadbalancer.Step) error { return s.apply(ctx, step) },
	})
	r.Events = &events.FakeRecorder{}
	return r
}

// Writes are all that a round writes.
func Writes() []outputs.Write {
	own := func(name string) string { return outputs.Field("metadata", "annotations", name) }
	return []outputs.Write{
		{System: outputs.DigitalOcean, Kind: "v2/load_balancers", Verbs: []string{"POST"}},
		{System: outputs.DigitalOcean, Kind: "v2/load_balancers/{id}", Verbs: []string{"PUT", "DELETE"}},
		{System: outputs.DigitalOcean, Kind: "v2/load_balancers/{id}/droplets", Verbs: []string{"POST", "DELETE"}},
		{System: outputs.DigitalOcean, Kind: "v2/certificates", Verbs: []string{"POST"}},
		{System: outputs.Kubernetes, Kind: "services", Verbs: []string{"patch"}, Fields: []string{
			own(annotation.LoadBalancerID), own(annotation.Type), own(annotation.CertificateID),
		}, Bound: true},
		{System: outputs.Kubernetes, Kind: "services/status", Verbs: []string{"patch"}, Fields: []string{
			outputs.Field("status", "loadBalancer"), outputs.Field("status", "conditions"),
		}, Bound: true},
		// The account's record.
		{System: outputs.Kubernetes, Kind: "leases.coordination.k8s.io", Verbs: []string{"create", "update"}},
	}
}

// listedAt is when something was listed, the zero time while no Service wants a load balancer: then nothing is.
func (c *Controller) listedAt(at func() time.Time) time.Time {
	if !c.loop.Followed() || len(c.keys()) == 0 {
		return time.Time{}
	}
	return at()
}

// Start looks at load balancers by itself until ctx ends; it waits for Follow.
func (c *Controller) Start(ctx context.Context, client kubernetes.Interface, recorder events.EventRecorder) {
	c.client, c.loop.Events, c.endpoints.until = client, recorder, ctx.Done()
	c.loop.Start(ctx)
	c.startDrift(ctx)
}

// Follow reads Nodes and Services from informers that somebody else starts.
func (c *Controller) Follow(factory informers.SharedInformerFactory) {
	nodes, services := factory.Core().V1().Nodes(), factory.Core().V1().Services()
	c.nodes, c.services = nodes.Lister(), services.Lister()
	c.watch(nodes.Informer(), services.Informer())
	c.synced = func() bool { return nodes.Informer().HasSynced() && services.Informer().HasSynced() }
	c.loop.Follow(c.synced)
}

// Wake tries now what waits after a failure: its cause may be over.
func (c *Controller) Wake() { c.loop.Wake() }

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (c *Controller) GetLoadBalancerName(_ context.Context, _ string, service *corev1.Service) string {
	return loadbalancer.NameOf(service)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. The framework asks when it is about to delete: a load balancer that is not the Service's
// does not exist for it, and one is not said to be gone while the account is in doubt.
func (c *Controller) GetLoadBalancer(ctx context.Context, _ string, service *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	if disowned(service) {
		return nil, false, nil
	}
	end, err := c.call(ctx, service, loadbalancer.Find, budget.Vital)
	if err != nil || end.LoadBalancer == nil {
		return nil, false, err
	}
	published := loadbalancer.Publish(service, *end.LoadBalancer)
	return &published.Status, true, nil
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
//
// While the load balancer is being made, is busy, or something failed, it returns cloudprovider.ImplementedElsewhere, which the framework takes for
// "another controller does it": it sends no warning, leaves the status alone and does not come back. So it is: all load balancers that are new are
// looked at together, the address is published as soon as there is one, and a failure is told once and tried again.
func (c *Controller) EnsureLoadBalancer(ctx context.Context, _ string, service *corev1.Service, _ []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	if err := loadbalancer.Asks(service); err != nil {
		return nil, err
	}
	if disowned(service) {
		return service.Status.LoadBalancer.DeepCopy(), nil
	}
	end, err := c.call(ctx, service, loadbalancer.Keep, budget.Change)
	switch {
	case err != nil && end.Refusal == nil: // the process is about to end
		return nil, err
	case err != nil || !end.Published.Ready:
		return nil, cloudprovider.ImplementedElsewhere
	}
	return &end.Published.Status, nil
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer. Nodes have changed: many do at a time, and they are the same for all Services, so
// this only notes it.
func (c *Controller) UpdateLoadBalancer(context.Context, string, *corev1.Service, []*corev1.Node) error {
	c.loop.Mark()
	return nil
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. It deletes only what loadbalancer.MayDelete allows.
func (c *Controller) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *corev1.Service) error {
	if disowned(service) {
		return nil
	}
	if _, err := c.call(ctx, service, loadbalancer.Remove, budget.Vital); err != nil {
		return fmt.Errorf("deleting the load balancer of service %s: %w", keyOf(service), err)
	}
	return nil
}

// call makes a round for the framework, which waits for its end: an error is why what was to be done is not done.
func (c *Controller) call(
	ctx context.Context, service *corev1.Service, intent loadbalancer.Intent, urgent budget.Priority,
) (loadbalancer.End, error) {
	begin := func(ctx context.Context, _ string) (*scene, error) { return c.begin(ctx, service, intent, true), nil }
	done, err := c.loop.Call(doapi.Urgent(ctx, urgent), keyOf(service), begin)
	if err != nil {
		return loadbalancer.End{}, err
	}
	end := done.World.end
	if end.Refusal != nil {
		return end, end.Refusal.Err
	}
	return end, nil
}

func disowned(service *corev1.Service) bool {
	let, err := annotation.IsDisowned(service.Annotations)
	return err == nil && let
}

func keyOf(service *corev1.Service) string { return service.Namespace + "/" + service.Name }

// observe begins a round over a Service that the framework has in hand; over no other there is anything to do.
func (c *Controller) observe(ctx context.Context, key string) (*scene, error) {
	c.o.Metrics.dirty.Set(float64(c.loop.Len()))
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, fmt.Errorf("reading service %s: %w", key, err)
	}
	service, err := c.services.Services(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err):
		c.forget(key)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading service %s: %w", key, err)
	case !loadbalancer.InHand(c.rehearsed(service)):
		return nil, nil
	}
	return c.begin(ctx, service, loadbalancer.Keep, false), nil
}

// keys are the Services that want a load balancer.
func (c *Controller) keys() []string {
	all, err := c.wanting()
	if err != nil {
		return nil
	}
	keys := make([]string, len(all))
	for i, service := range all {
		keys[i] = keyOf(service)
	}
	return keys
}

// watch marks load balancers when Nodes change in a way that matters, and looks at Services that are gone.
func (c *Controller) watch(nodes, services cache.SharedIndexInformer) {
	// An informer that has been stopped takes no handlers; it gives no events either.
	_, _ = nodes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial {
				c.loop.Mark()
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*corev1.Node)
			node, ok2 := after.(*corev1.Node)
			if ok1 && ok2 && !sameTarget(old, node) {
				c.loop.Mark()
			}
		},
		DeleteFunc: func(any) { c.loop.Mark() },
	})
	_, _ = services.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(gone any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(gone); err == nil {
			c.loop.Add(key) // it is forgotten after the round that may be under way
		}
	}})
}

// sameTarget reports whether a change of a Node cannot matter to any load balancer: its provider ID, its addresses, its labels and what
// excludes it are the same.
func sameTarget(a, b *corev1.Node) bool {
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && a.Spec.ProviderID == b.Spec.ProviderID && slices.Equal(a.Status.Addresses, b.Status.Addresses) &&
		loadbalancer.Excluded(a) == loadbalancer.Excluded(b)
}
