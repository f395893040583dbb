// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// crowd lets Nodes join one after another and returns how long each waited until it was described; the second is how
// many calls about machines that took.
func (b *bubble) crowd(n int, between time.Duration, join func(name string)) (waited []time.Duration, calls int) {
	b.t.Helper()
	began := map[string]time.Time{}
	ready := func() {
		for name, at := range began {
			if node := b.node(name); node.Spec.ProviderID != "" && len(node.Spec.Taints) == 0 {
				waited = append(waited, time.Since(at))
				delete(began, name)
			}
		}
	}
	stats := b.spent(func() {
		for i := range n {
			name := fmt.Sprintf("new-%d", i)
			join(name)
			began[name] = time.Now()
			elapse(between)
			ready()
		}
		for end := time.Now().Add(10 * time.Minute); len(began) > 0 && time.Now().Before(end); {
			elapse(100 * time.Millisecond)
			ready()
		}
	})
	if len(began) > 0 {
		b.t.Fatalf("%d Nodes were not described within ten minutes", len(began))
	}
	slices.Sort(waited)
	return waited, stats.Total - balancerCalls(stats)
}

// named makes a Node name its droplet, as a kubelet does with --provider-id.
func (b *bubble) named(name string) func(*corev1.Node) {
	b.t.Helper()
	d := must.Get(b.cloud.Account("").Droplet(name)).Or(b.t)
	return func(n *corev1.Node) { n.Spec.ProviderID = fmt.Sprintf("digitalocean://%d", d.ID) }
}

// A hundred Nodes that join within 15 s share a few lists: each is described within five seconds, whether its kubelet
// names the droplet or not, and whether the droplet is as young as its Node or not.
func TestACrowdIsDescribedAtOnce(t *testing.T) {
	t.Parallel()
	for _, names := range []bool{false, true} {
		for _, old := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := settled(t, 30, 6)
				defer b.stop()
				for i := range 100 {
					if old {
						b.boot(fmt.Sprintf("new-%d", i))
					}
				}
				elapse(time.Minute)
				waited, calls := b.crowd(100, 150*time.Millisecond, func(name string) {
					if !old {
						b.boot(name)
					}
					if names {
						b.join(name, b.named(name))
					} else {
						b.join(name)
					}
				})
				t.Logf("provider IDs %t, old droplets %t: %s in the middle, %s at most, %d calls about machines",
					names, old, waited[50], waited[99], calls)
				if waited[99] > 5*time.Second || calls > 20 {
					t.Errorf("provider IDs %t, old droplets %t: %s at most, want 5 s, and %d calls, want 20", names, old, waited[99], calls)
				}
			})
		}
	}
}

// A Node whose droplet has no address yet is described soon after it has one, and one whose lookups failed as soon as
// DigitalOcean serves again: a Node waits for at most a quarter of the time that the trouble lasted.
func TestNodesThatWaitAreWoken(t *testing.T) {
	t.Parallel()
	const nodes = 8
	for _, trouble := range []string{"no address", "outage"} {
		for _, lasts := range []time.Duration{20 * time.Second, time.Minute, 10 * time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				b := settled(t, 5, 1)
				defer b.stop()
				var end []func() error
				for i := range nodes {
					name := fmt.Sprintf("new-%d", i)
					b.boot(name)
					end = append(end, b.trouble(trouble, name))
				}
				waited, calls := b.crowd(nodes, 0, func(name string) {
					b.join(name)
					if name == fmt.Sprintf("new-%d", nodes-1) {
						elapse(lasts)
						for _, cure := range end {
							must.Do(t, cure())
						}
					}
				})
				after := waited[nodes-1] - lasts
				t.Logf("%s for %s: the last was described %s later, %d calls", trouble, lasts, after, calls)
				if most := 6*time.Second + lasts/4; after > most || calls > 60+int(lasts/(3*time.Second)) {
					t.Errorf("%s for %s: the last was described %s later, want %s at most; %d calls", trouble, lasts, after, most, calls)
				}
			})
		}
	}
}

// trouble keeps a droplet's Node waiting until the function that it returns is called.
func (b *bubble) trouble(kind, name string) (end func() error) {
	b.t.Helper()
	account := b.cloud.Account("")
	d, err := account.Droplet(name)
	if err == nil && kind == "outage" {
		err = b.cloud.Inject(fault.Rule{Kind: fault.Error, Status: http.StatusBadGateway, Nth: 1, Times: -1})
		end = func() error { b.cloud.ClearFaults(); return nil }
	} else if err == nil {
		err = account.SetDropletNetworks(name, sim.Networks{})
		end = func() error { return account.SetDropletNetworks(name, d.Networks) }
	}
	must.Do(b.t, err)
	return end
}
