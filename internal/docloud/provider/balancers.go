// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	events "k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// BalancerAPI is what load balancers need of DigitalOcean's API; *doapi.Client has it. Lists are whole or an error, and errors are of doapi's kinds.
type BalancerAPI interface {
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

// Fleet is what load balancers need to know of the machines; [Machines] is it.
type Fleet interface {
	// Droplets returns all droplets of the account, as they were not long ago, or an error.
	Droplets(ctx context.Context) ([]instance.Droplet, error)
	// Trusted returns nil if what the API answers is about this cluster, and else one sentence that says why that is in doubt: then nothing is
	// concluded from what is not there.
	Trusted(ctx context.Context) error
}

var _ Fleet = (*Machines)(nil)

// BalancerTiming says when what is done. The zero value of a field is its default.
type BalancerTiming struct {
	// Quiet and Most debounce changes of Nodes: load balancers are looked at when nothing changed for Quiet (2 s), and after Most (15 s) at the latest,
	// but not again within Most: however long Nodes come and go, that is one look in each Most.
	Quiet, Most time.Duration
	// Resync is how often all load balancers are looked at for what was changed elsewhere (5 min, and up to a fifth more by chance).
	Resync time.Duration
	// Pending is how soon to look again at a load balancer that is busy (15 s), twice as long each time up to eight times that.
	Pending time.Duration
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
	// Unanswered is how long what a POST without an answer may have made is waited for (1 min), longer than lists lag.
	Unanswered time.Duration
	// FirstRetry and LastRetry bound the waits after failures (5 s, 5 min).
	FirstRetry, LastRetry time.Duration
}

func (t BalancerTiming) withDefaults() BalancerTiming {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Quiet, 2 * time.Second}, {&t.Most, 15 * time.Second}, {&t.Resync, 5 * time.Minute}, {&t.Pending, 15 * time.Second},
		{&t.Poll, 5 * time.Second}, {&t.ListAge, 10 * time.Second}, {&t.CertificateAge, 15 * time.Minute}, {&t.CertificateDoubt, time.Minute},
		{&t.Settle, 15 * time.Second}, {&t.Unanswered, time.Minute},
		{&t.FirstRetry, 5 * time.Second}, {&t.LastRetry, 5 * time.Minute},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return t
}

// BalancerOptions are what [NewBalancers] needs. Timing may be zero; Log may discard.
type BalancerOptions struct {
	API     BalancerAPI
	Fleet   Fleet
	Cluster loadbalancer.Cluster
	Metrics *BalancerMetrics
	Clock   clock.WithTicker
	Log     logr.Logger
	Timing  BalancerTiming
}

// Balancers keeps the load balancers of Services as they must be. It implements cloudprovider.LoadBalancer for the framework's service
// controller, which writes finalizers and statuses, and looks by itself at all that the framework does not see:
//
//	Service changes ──> framework ── EnsureLoadBalancer ─────────┐
//	Node changes ──> debounced ──┐                               ├──> reconcile: observe, decide, at most one write
//	UpdateLoadBalancer ──────────┼──> queue ── look, retry ──────┘
//	every few minutes ───────────┘
//
// Passes over one Service never overlap, whoever asks for them.
type Balancers struct {
	api     BalancerAPI
	fleet   Fleet
	cluster loadbalancer.Cluster
	metrics *BalancerMetrics
	clock   clock.WithTicker
	log     logr.Logger
	timing  BalancerTiming

	list         *balancerList
	certificates *shared[[]loadbalancer.Certificate]
	certifying   keyedLock // by name of the certificate, which Services may share
	passes       keyedLock
	gate         gate
	marks        *debouncer
	queue        workqueue.TypedRateLimitingInterface[string]

	mu       sync.Mutex // guards memories, and nothing in them: that is guarded by the Service's own lock in passes
	memories map[string]*memory
	limited  time.Time // until when no call may be made at all, guarded by mu

	// Set by initialize, before anything runs.
	client   kubernetes.Interface
	recorder events.EventRecorder
	// Set by follow, before followed is closed.
	followed chan struct{}
	nodes    corelisters.NodeLister
	services corelisters.ServiceLister
	synced   []cache.InformerSynced
}

// NewBalancers makes Balancers that do nothing until they are initialized and followed.
func NewBalancers(o BalancerOptions) *Balancers {
	t := o.Timing.withDefaults()
	b := &Balancers{
		api: o.API, fleet: o.Fleet, cluster: o.Cluster, metrics: o.Metrics, clock: o.Clock, log: o.Log.WithName("balancers"), timing: t,
		list:         newBalancerList(o.API, o.Clock, t.Settle),
		certificates: newShared(o.API.Certificates, o.API.Epoch, o.Clock),
		marks:        newDebouncer(o.Clock, t.Quiet, t.Most),
		memories:     map[string]*memory{},
		followed:     make(chan struct{}),
		recorder:     &events.FakeRecorder{},
	}
	b.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](t.FirstRetry, t.LastRetry),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "digitalocean-loadbalancer", Clock: o.Clock},
	)
	registerAge(o.Metrics.registry, "load_balancers", o.Clock, func() time.Time { return b.listedAt(b.list.shared.at) })
	registerAge(o.Metrics.registry, "certificates", o.Clock, func() time.Time { return b.listedAt(b.certificates.at) })
	return b
}

// listedAt is when something was listed, the zero time while no Service wants a load balancer: then nothing is.
func (b *Balancers) listedAt(at func() time.Time) time.Time {
	select {
	case <-b.followed:
	default:
		return time.Time{}
	}
	if all, err := b.wanting(); err != nil || len(all) == 0 {
		return time.Time{}
	}
	return at()
}

// initialize starts what looks at load balancers by itself; it waits for follow.
func (b *Balancers) initialize(client kubernetes.Interface, stop <-chan struct{}) {
	b.client = client
	ctx, cancel := context.WithCancel(context.Background())
	b.recorder = b.startRecorder(ctx)
	go func() {
		<-stop
		cancel()
	}()
	go b.run(ctx)
}

// follow reads Nodes and Services from informers that somebody else starts.
func (b *Balancers) follow(nodes coreinformers.NodeInformer, services coreinformers.ServiceInformer) {
	b.nodes, b.services = nodes.Lister(), services.Lister()
	b.synced = []cache.InformerSynced{nodes.Informer().HasSynced, services.Informer().HasSynced}
	b.watch(nodes.Informer(), services.Informer())
	close(b.followed)
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (b *Balancers) GetLoadBalancerName(_ context.Context, _ string, service *corev1.Service) string {
	return loadbalancer.NameOf(service)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. The framework asks when it is about to delete: a load balancer that is not the Service's
// does not exist for it, and one is not said to be gone while the account is in doubt.
func (b *Balancers) GetLoadBalancer(ctx context.Context, _ string, service *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	if disowned, err := annotation.IsDisowned(service.Annotations); err == nil && disowned {
		return nil, false, nil
	}
	p, unlock := b.begin(service)
	defer unlock()
	if err := p.mayAsk(); err != nil {
		return nil, false, err
	}
	lb, err := p.find(doapi.Urgent(ctx, budget.Vital))
	err = p.heed(err)
	p.tell()
	if err != nil || lb == nil {
		return nil, false, err
	}
	published := loadbalancer.Publish(service, *lb)
	return &published.Status, true, nil
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer. It returns api.RetryError while the load balancer is busy or calls have to wait.
//
// While the load balancer is being made it returns cloudprovider.ImplementedElsewhere, which the framework takes for "somebody else sees to it":
// it sends no warning, leaves the status alone and does not come back. So it is: all load balancers that are new are looked at together, and the
// address is published as soon as there is one (publish).
func (b *Balancers) EnsureLoadBalancer(ctx context.Context, _ string, service *corev1.Service, _ []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	if err := loadbalancer.Asks(service); err != nil {
		return nil, err
	}
	if disowned, err := annotation.IsDisowned(service.Annotations); err == nil && disowned {
		return service.Status.LoadBalancer.DeepCopy(), nil
	}
	published, err := b.reconcile(doapi.Urgent(ctx, budget.Change), service, false)
	later, waiting := laterError{}, waitError{}
	switch {
	case errors.As(err, &waiting): // as for one that is being made
		b.queue.AddAfter(keyOf(service), waiting.wait)
		return nil, cloudprovider.ImplementedElsewhere
	case errors.As(err, &later):
		return nil, api.NewRetryError(err.Error(), max(later.wait, b.timing.Pending))
	case errors.Is(err, doapi.ErrBusy), errors.Is(err, doapi.ErrRateLimited):
		return nil, api.NewRetryError(err.Error(), b.timing.Pending)
	case err != nil:
		return nil, err
	case published.Failed:
		return nil, errors.New(published.Message)
	case !published.Ready:
		b.queue.AddAfter(keyOf(service), b.timing.Poll)
		return nil, cloudprovider.ImplementedElsewhere
	}
	return &published.Status, nil
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer. Nodes have changed: many do at a time, and they are the same for all Services, so
// this only notes it.
func (b *Balancers) UpdateLoadBalancer(context.Context, string, *corev1.Service, []*corev1.Node) error {
	b.mark()
	return nil
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. It deletes only what loadbalancer.MayDelete allows, and is an error otherwise.
func (b *Balancers) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *corev1.Service) error {
	if disowned, err := annotation.IsDisowned(service.Annotations); err == nil && disowned {
		return nil
	}
	leave, err := b.gate.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	p, unlock := b.begin(service)
	defer unlock()
	if err = p.mayAsk(); err == nil {
		err = p.heed(p.remove(doapi.Urgent(ctx, budget.Vital)))
	}
	p.tell()
	b.metrics.sync(p.outcome, err)
	if err != nil {
		return fmt.Errorf("deleting the load balancer of service %s: %w", keyOf(service), err)
	}
	return nil
}

func keyOf(service *corev1.Service) string { return service.Namespace + "/" + service.Name }
