// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The defaults of Kubernetes 1.36: kubelet's renewal of its Lease with its jitter, and kube-controller-manager's
// --node-monitor-period and --node-monitor-grace-period. The cloud component's monitor of Nodes has the same period.
const (
	kubeletRenews = 10 * time.Second
	kubeletJitter = 400 * time.Millisecond
	monitorPeriod = 5*time.Second + time.Millisecond // it begins when a reconcile ends
	monitorGrace  = 50 * time.Second
)

// defaults is a cluster with the timings of the product and of Kubernetes, in simulated time.
type defaults struct {
	*world

	random *rand.Rand
	ctx    context.Context //nolint:containedctx // it is the life of kubelets
	alive  sync.WaitGroup

	mu       sync.Mutex // guards all below
	silent   map[string]bool
	renewed  map[string]time.Time
	notReady map[string]time.Time
	set      map[string]time.Time // when Nodes got the taint last
	wrong    []string             // taints on Nodes whose droplets were active
}

// withDefaults runs a test on so many machines, each with its kubelet, and a controller manager.
func withDefaults(t *testing.T, lag time.Duration, n int, seed uint64, body func(d *defaults)) {
	t.Helper()
	simulated(t, n, func(t *testing.T, w *world) {
		w.timing, w.config = Timing{}, outofservice.DefaultConfig()
		w.pace, w.monitor = machines.DefaultConfig(), monitorPeriod
		w.Sim.SetConsistency(sim.Consistency{List: lag})
		ctx, cancel := context.WithCancel(t.Context())
		d := &defaults{
			world: w, ctx: ctx, random: rand.New(rand.NewPCG(seed, uint64(n))), //nolint:gosec // it is to be repeated
			silent: map[string]bool{}, renewed: map[string]time.Time{}, notReady: map[string]time.Time{},
			set: map[string]time.Time{},
		}
		defer d.alive.Wait()
		defer cancel()
		w.Kube.Set(d.patched)
		w.run()
		for _, droplet := range w.droplets {
			begin := time.Duration(d.random.Int64N(int64(kubeletRenews)))
			jitter := rand.New(rand.NewPCG(seed, uint64(droplet.ID))) //nolint:gosec // it is to be repeated
			d.alive.Go(func() { d.kubelet(droplet.Name, begin, jitter) })
		}
		begin := time.Duration(d.random.Int64N(int64(monitorPeriod)))
		d.alive.Go(func() { d.controllerManager(begin) })
		body(d)
	})
}

// pause waits, and reports whether the cluster goes on.
func (d *defaults) pause(of time.Duration) bool {
	select {
	case <-time.After(of):
		return d.ctx.Err() == nil
	case <-d.ctx.Done():
		return false
	}
}

// kubelet renews a Lease while it is not silent.
func (d *defaults) kubelet(name string, begin time.Duration, random *rand.Rand) {
	for next := begin; d.pause(next); next = kubeletRenews + time.Duration(random.Int64N(int64(kubeletJitter))) {
		d.mu.Lock()
		silent := d.silent[name]
		d.mu.Unlock()
		if silent {
			continue
		}
		d.renew(name)
		d.mu.Lock()
		d.renewed[name] = time.Now()
		d.mu.Unlock()
	}
}

// controllerManager sets Nodes to not ready whose Leases it has seen unchanged for the grace period, and back.
func (d *defaults) controllerManager(begin time.Duration) {
	type probe struct {
		renewed string
		at      time.Time
	}
	probes := map[string]probe{}
	for next := begin; d.pause(next); next = monitorPeriod {
		leases, err := d.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(d.ctx, metav1.ListOptions{})
		if d.ctx.Err() != nil {
			return
		}
		must.Do(d.T, err)
		for _, lease := range leases.Items {
			if renewed := lease.Spec.RenewTime.String(); probes[lease.Name].renewed != renewed {
				probes[lease.Name] = probe{renewed, time.Now()}
			}
			out := time.Since(probes[lease.Name].at) > monitorGrace
			d.mu.Lock()
			_, before := d.notReady[lease.Name]
			if out && !before {
				d.notReady[lease.Name] = time.Now()
			} else if !out {
				delete(d.notReady, lease.Name)
			}
			d.mu.Unlock()
			if out != before {
				status := map[bool]string{true: "Unknown", false: "True"}[out]
				d.PatchNode(lease.Name, fmt.Sprintf(
					`{"status":{"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`,
					status, time.Now().UTC().Format(time.RFC3339)), "status")
			}
		}
	}
}

// patched sees what the program writes to Nodes: whether one has the taint then, and what its droplet truly is.
func (d *defaults) patched(r *http.Request, served bool) error {
	_, name, found := strings.Cut(r.URL.Path, "/nodes/")
	if !served || r.Method != http.MethodPatch || !found {
		return nil
	}
	ours, _ := outofservice.Taints(d.Node(name).Spec.Taints)
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, before := d.set[name]; !ours || before {
		if !ours {
			delete(d.set, name)
		}
		return nil
	}
	d.set[name] = time.Now()
	i := slices.IndexFunc(d.droplets, func(droplet sim.Droplet) bool { return droplet.Name == name })
	if droplet, err := d.Account.Droplet(fmt.Sprint(d.droplets[i].ID)); err != nil || droplet.Status != "off" {
		d.wrong = append(d.wrong, fmt.Sprintf("%s at %s, droplet %s (%v)", name, time.Now(), droplet.Status, err))
	}
	return nil
}

// cut switches a machine off, or on again.
func (d *defaults) cut(i int, off bool) {
	d.SetDropletStatus(d.droplets[i].ID, map[bool]string{true: "off", false: "active"}[off])
	d.hush(i, off)
}

// hush makes a kubelet silent, or lets it go on.
func (d *defaults) hush(i int, silent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent[d.droplets[i].Name] = silent
}

// when is when something is in a map for a machine, as long as a minute and a half from now at most.
func (d *defaults) when(in map[string]time.Time, i int) time.Time {
	d.T.Helper()
	for range 1500 {
		d.mu.Lock()
		at, ok := in[d.droplets[i].Name]
		d.mu.Unlock()
		if ok {
			return at
		}
		cloud.Elapse(100 * time.Millisecond)
	}
	d.T.Fatalf("it has not happened to machine %d", i)
	return time.Time{}
}

// phased switches a machine off so long after its kubelet has renewed its Lease, and returns after how long its Node was
// not ready and had the taint.
func (d *defaults) phased(i int, phase time.Duration) (notReady, tainted time.Duration) {
	d.T.Helper()
	name := d.droplets[i].Name
	d.mu.Lock()
	delete(d.renewed, name)
	d.mu.Unlock()
	cloud.Elapse(time.Until(d.when(d.renewed, i).Add(phase)))
	off := time.Now()
	d.cut(i, true)
	return d.when(d.notReady, i).Sub(off), d.when(d.set, i).Sub(off)
}

// TestOutOfServiceInAMinute: with the defaults of Kubernetes a machine is out of service a minute after it was switched
// off, at whatever moment between two renewals of its Lease that was, however far DigitalOcean's lists lag.
func TestOutOfServiceInAMinute(t *testing.T) {
	t.Parallel()
	seed := cases.Seed(t)
	for _, lag := range assumed.ListLags() {
		t.Run(lag.String(), func(t *testing.T) {
			t.Parallel()
			phases := cases.Number(t, 5, 20, 100)
			var least, most, worstAfter time.Duration
			for n := range phases {
				withDefaults(t, lag, 4, seed+uint64(n), func(d *defaults) {
					cloud.Elapse(time.Minute + time.Duration(d.random.Int64N(int64(10*time.Second))))
					phase := kubeletRenews * time.Duration(n) / time.Duration(phases)
					notReady, tainted := d.phased(1, phase)
					t.Logf("off %4.1f s after a renewal: not ready after %4.1f s, the taint after %4.1f s",
						phase.Seconds(), notReady.Seconds(), tainted.Seconds())
					if tainted > time.Minute {
						t.Errorf("off %s after a renewal: the taint after %s", phase, tainted)
					}
					if n == 0 || tainted < least {
						least = tainted
					}
					most, worstAfter = max(most, tainted), max(worstAfter, tainted-notReady)
					if len(d.wrong) > 0 {
						t.Error(d.wrong)
					}
				})
			}
			t.Logf("lists %s behind: the taint after %s to %s, %s after the Node is not ready at most",
				lag, least, most, worstAfter)
		})
	}
}

// TestCallsOfAnOutage: an hour in which a machine is off for half of it does not cost more calls than when evidence was
// gathered only once the Node was not ready: 44, and 46 where lists lag 30 s.
func TestCallsOfAnOutage(t *testing.T) {
	t.Parallel()
	for _, lag := range assumed.ListLags() {
		t.Run(lag.String(), func(t *testing.T) {
			t.Parallel()
			withDefaults(t, lag, 4, 1, func(d *defaults) {
				cloud.Elapse(5 * time.Minute)
				before := d.Sim.Stats().Total
				d.phased(1, 3*time.Second)
				cloud.Elapse(30 * time.Minute)
				d.cut(1, false)
				cloud.Elapse(30 * time.Minute)
				calls := d.Sim.Stats().Total - before
				if t.Logf("%d calls", calls); calls > 44+int(lag/(15*time.Second)) {
					t.Errorf("%d calls in an hour", calls)
				}
			})
		})
	}
}

// TestFlappingIsNotOff: machines that go off and on, and kubelets that pause, at random: no Node has the taint from a
// moment on at which its droplet is active.
func TestFlappingIsNotOff(t *testing.T) {
	t.Parallel()
	seed := cases.Seed(t)
	for _, lag := range assumed.ListLags() {
		t.Run(lag.String(), func(t *testing.T) {
			t.Parallel()
			withDefaults(t, lag, 8, seed, func(d *defaults) {
				cloud.Elapse(time.Minute)
				seen := 0
				for range cases.Number(t, 40, 100, 1000) {
					if d.random.IntN(3) == 0 {
						d.hush(1, true) // it runs, and is cut off
					} else {
						d.cut(1, true)
					}
					cloud.Elapse(time.Duration(d.random.Int64N(int64(90 * time.Second))))
					d.cut(1, false)
					d.hush(1, d.random.IntN(3) == 0) // its kubelet is not there yet
					cloud.Elapse(time.Duration(d.random.Int64N(int64(40 * time.Second))))
					d.hush(1, false)
					cloud.Elapse(time.Duration(d.random.Int64N(int64(30 * time.Second))))
					if d.random.IntN(4) == 0 {
						cloud.Elapse(2 * time.Minute)
					}
					d.mu.Lock()
					if _, is := d.set[d.droplets[1].Name]; is {
						seen++
					}
					d.mu.Unlock()
				}
				if len(d.wrong) > 0 {
					t.Errorf("%d taints on active machines, the first %s", len(d.wrong), d.wrong[0])
				}
				t.Logf("the Node had the taint at the end of %d rounds", seen)
			})
		})
	}
}
