// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	defaultLeaseInterval  = 10 * time.Second // kubelet: a quarter of nodeLeaseDurationSeconds (40)
	defaultStatusInterval = 5 * time.Minute  // kubelet: nodeStatusReportFrequency
	defaultVersion        = "v1.37.2"

	heartbeatWorkers = 16
	podWorkers       = 8

	heartbeatTimeout = 10 * time.Second // of one heartbeat, all its calls together
	podTimeout       = 90 * time.Second // of the work on one pod, CNI included
)

// Config is what a fleet needs and how its kubelets are tuned.
type Config struct {
	// Client talks to the API server. Its QPS bounds the fleet's: a fleet of N machines needs about
	// N/LeaseInterval requests a second to stay Ready.
	Client kubernetes.Interface
	// LeaseInterval is the time between two renewals of a Lease, 10 s if zero. The Lease's duration is four times that,
	// in whole seconds.
	LeaseInterval time.Duration
	// StatusInterval is the time between two reports of an unchanged Node status, 5 min if zero. As in kubelet, the
	// first report after a change comes up to half an interval earlier or later.
	StatusInterval time.Duration
	// KubeletVersion is what the Nodes report, v1.37.2 if empty.
	KubeletVersion string
	// Seed makes the jitter of heartbeats that of another run, or the same again.
	Seed uint64
	// Logger gets one line per change at level 0, nothing for heartbeats.
	Logger logr.Logger
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Fleet is a set of machines that share one connection to the API server. Its methods may be called at any time, from
// any goroutine, before and during [Fleet.Run].
type Fleet struct {
	cfg       Config
	scheduler *scheduler
	nodes     cache.SharedIndexInformer // stripped, see transform.go
	pods      cache.SharedIndexInformer // stripped, see transform.go
	podQueue  workqueue.TypedRateLimitingInterface[podKey]

	mu        sync.Mutex // guards everything below
	random    *rand.Rand
	machines  map[string]*machine
	sandboxes map[podKey]sandbox
}

// NewFleet returns a fleet without machines. Nothing happens before [Fleet.Run].
func NewFleet(cfg Config) *Fleet {
	if cfg.LeaseInterval <= 0 {
		cfg.LeaseInterval = defaultLeaseInterval
	}
	if cfg.StatusInterval <= 0 {
		cfg.StatusInterval = defaultStatusInterval
	}
	if cfg.KubeletVersion == "" {
		cfg.KubeletVersion = defaultVersion
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return &Fleet{
		cfg:       cfg,
		scheduler: newScheduler(cfg.Clock),
		podQueue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](backoff(1), time.Minute)),
		random:    rand.New(rand.NewPCG(cfg.Seed, 0)),
		machines:  map[string]*machine{},
		sandboxes: map[podKey]sandbox{},
	}
}

// Run keeps the machines alive until ctx ends, and returns nil when nothing is in flight any more. It may be called
// once. What it stops doing at the end is what a fleet does whose machines all lose their power: nothing is cleaned up.
func (f *Fleet) Run(ctx context.Context) error {
	if f.cfg.Client == nil {
		return errors.New("running the simulated kubelets: no client for the API server was given")
	}
	if err := f.buildInformers(); err != nil {
		return fmt.Errorf("preparing the watches of the simulated kubelets: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer f.podQueue.ShutDown()
	running.Go(func() { f.nodes.RunWithContext(ctx) })
	running.Go(func() { f.pods.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), f.nodes.HasSynced, f.pods.HasSynced) {
		return nil
	}
	for range podWorkers {
		running.Go(func() { f.workOnPods(ctx) })
	}
	f.scheduler.run(ctx, heartbeatWorkers)
	return nil
}

// Add switches a machine on. Its Node is registered as soon as the fleet runs and the API server allows it, and tried
// again until then. A name that is not valid or that belongs to a machine of this fleet already is an error; the name of
// a destroyed machine may be used again, for a new machine.
func (f *Fleet) Add(spec Machine) error {
	if err := spec.validate(); err != nil {
		return fmt.Errorf("adding machine %q: %w", spec.Name, err)
	}
	spec.Labels = maps.Clone(spec.Labels)
	m := &machine{Machine: spec, bootID: string(uuid.NewUUID())}
	m.registering = newTask(f.task(m, f.register))
	m.renewing = newTask(f.task(m, f.renewLease))
	m.reporting = newTask(f.task(m, f.reportStatus))

	f.mu.Lock()
	defer f.mu.Unlock()
	if _, exists := f.machines[spec.Name]; exists {
		return fmt.Errorf("adding machine %q: there is a machine of that name already", spec.Name)
	}
	f.machines[spec.Name] = m
	f.scheduler.schedule(m.registering, 0)
	return nil
}

// Freeze stops a machine as a hung kernel does: no heartbeats and no work on pods until [Fleet.Thaw]. Calls in flight
// are waited for (each ends within its timeout), so that nothing is written after Freeze has returned. To freeze a
// frozen machine is not an error; an unknown name is.
func (f *Fleet) Freeze(name string) error {
	m, err := f.lookup(name, "freezing")
	if err != nil {
		return err
	}
	m.control.Lock()
	defer m.control.Unlock()
	m.enter(frozen)
	f.cfg.Logger.Info("Froze machine", "node", name)
	return nil
}

// Thaw lets a frozen machine go on where it stopped. To thaw a machine that is not frozen is not an error; an unknown
// name is.
func (f *Fleet) Thaw(name string) error {
	m, err := f.lookup(name, "thawing")
	if err != nil {
		return err
	}
	m.control.Lock()
	defer m.control.Unlock()
	m.enter(alive)
	f.resume(m)
	f.cfg.Logger.Info("Thawed machine", "node", name)
	return nil
}

// Restart restarts the machine's kubelet: the Node is registered again if it is missing, which nothing else brings about,
// and its status is reported at once. The pods keep their addresses. A frozen machine thaws. An unknown name is an
// error.
func (f *Fleet) Restart(name string) error {
	m, err := f.lookup(name, "restarting")
	if err != nil {
		return err
	}
	m.control.Lock()
	defer m.control.Unlock()
	m.enter(frozen)
	m.mu.Lock()
	m.registered, m.lease, m.lastReport, m.reportJitter = false, nil, time.Time{}, 0
	m.mu.Unlock()
	m.enter(alive)
	f.resume(m)
	f.cfg.Logger.Info("Restarted kubelet", "node", name)
	return nil
}

// Destroy makes a machine disappear without a word: calls in flight are waited for (each ends within its timeout), and
// after Destroy has returned nothing is written in the machine's name. An unknown name is an error.
func (f *Fleet) Destroy(name string) error {
	m, err := f.lookup(name, "destroying")
	if err != nil {
		return err
	}
	m.control.Lock()
	defer m.control.Unlock()
	m.enter(gone)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.machines[name] == m {
		delete(f.machines, name)
	}
	for key, sb := range f.sandboxes {
		if sb.machine == m {
			delete(f.sandboxes, key)
		}
	}
	f.cfg.Logger.Info("Destroyed machine", "node", name)
	return nil
}

// Machines returns the names of the machines, frozen ones included, sorted.
func (f *Fleet) Machines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sortedKeys(f.machines)
}

func (f *Fleet) machine(name string) *machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machines[name]
}

func (f *Fleet) lookup(name, deed string) (*machine, error) {
	if m := f.machine(name); m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%s machine %q: there is no machine of that name", deed, name)
}

// jitter draws from the interval from zero to d.
func (f *Fleet) jitter(d time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.random.Int64N(int64(d) + 1))
}

// resume makes everything that a machine may have missed due now.
func (f *Fleet) resume(m *machine) {
	if !m.isRegistered() {
		f.scheduler.schedule(m.registering, 0)
		return
	}
	f.scheduler.schedule(m.renewing, 0)
	f.scheduler.schedule(m.reporting, 0)
	f.enqueuePodsOf(m)
}

// task makes an operation of a machine a task for the scheduler: nothing is done, and nothing is scheduled again, while
// the machine is not alive. A negative duration from the operation means that it is not due again.
func (f *Fleet) task(m *machine, do func(context.Context, *machine) (time.Duration, error),
) func(context.Context, *task) (time.Duration, bool) {
	return func(ctx context.Context, t *task) (time.Duration, bool) {
		if !m.begin() {
			return 0, false
		}
		defer m.end()
		ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
		defer cancel()
		next, err := do(ctx, m)
		if err != nil && !errors.Is(err, context.Canceled) {
			f.cfg.Logger.V(1).Info("Heartbeat failed and will be tried again", "node", m.Name, "error", err.Error())
		}
		return t.settle(err, next)
	}
}

// buildInformers makes the fleet's two watches. They are made by Run because they need the client.
func (f *Fleet) buildInformers() error {
	f.nodes, f.pods = newNodeInformer(f.cfg.Client), newPodInformer(f.cfg.Client)
	if _, err := f.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f.nodeSeen,
		UpdateFunc: func(_, node any) { f.nodeSeen(node) },
	}); err != nil {
		return err
	}
	_, err := f.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    f.enqueuePod,
		UpdateFunc: func(_, pod any) { f.enqueuePod(pod) },
		DeleteFunc: f.enqueuePod,
	})
	return err
}

// nodeSeen makes a status report due when the Node is not as its kubelet would have it. A kubelet looks at its Node every
// 10 s, so that two writers which disagree do not turn into a storm.
func (f *Fleet) nodeSeen(obj any) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	m := f.machine(node.Name)
	if m == nil || !m.isRegistered() {
		return
	}
	m.mu.Lock()
	last := m.lastReport
	m.mu.Unlock()
	if now := f.cfg.Clock.Now(); statusDiffers(node, f.desiredNode(m, node, now)) {
		f.scheduler.schedule(m.reporting, max(0, last.Add(f.cfg.LeaseInterval).Sub(now)))
	}
}
