// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls_test

import (
	"fmt"
	"reflect"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// somebodys makes a firewall with the name and the tags of the cluster's, as a person or another cluster does.
func (w *world) somebodys() digitalocean.Firewall { return w.predecessors(open("8443")) }

// recordedAs waits until a firewall, and no attempt, is recorded.
func (w *world) recordedAs(id string) {
	w.T.Helper()
	testkit.Eventually(w.T, "the record", func() string {
		if r, err := firewall.ParseRecord(w.lease().Annotations); err != nil || r.ID != id || r.Attempt != nil {
			return w.lease().Annotations[firewall.RecordAnnotation]
		}
		return ""
	})
}

// lease is that of the account, which holds the record.
func (w *world) lease() *coordinationv1.Lease {
	w.T.Helper()
	lease, err := w.Client.CoordinationV1().Leases(machines.RecordNamespace).Get(w.T.Context(), w.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{}
	}
	must.Do(w.T, err)
	return lease
}

func (w *world) annotateLease(name, value string) {
	w.T.Helper()
	changed := w.lease()
	changed.Annotations[name] = value
	_, err := w.Client.CoordinationV1().Leases(machines.RecordNamespace).Update(w.T.Context(), changed, metav1.UpdateOptions{})
	must.Do(w.T, err)
}

func (w *world) deleteLease() {
	w.T.Helper()
	must.Do(w.T, w.Client.CoordinationV1().Leases(machines.RecordNamespace).Delete(w.T.Context(), w.Name, metav1.DeleteOptions{}))
}

// replaced is a cluster whose firewall was deleted, and in whose place somebody made another one while no controller ran.
func (w *world) replaced() digitalocean.Firewall {
	w.run()
	w.becomes("tcp " + w.port + everybody)
	w.recordedAs(w.Account.Firewalls()[0].ID)
	w.Stop()
	must.Do(w.T, w.Account.DeleteFirewall(w.Account.Firewalls()[0].ID))
	return w.somebodys()
}

// TestWhoseTheFirewallIs: what is another's is not written to, whoever made it and whenever it appears; what is the
// cluster's is kept by its record whatever it is called by then, and not left behind.
func TestWhoseTheFirewallIs(t *testing.T) {
	t.Parallel()
	kept := func(prepare func(*world) digitalocean.Firewall) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			t.Helper()
			other := prepare(w)
			mark := w.Sim.Mark()
			w.run()
			w.ReportedOnce(lease, "FirewallForeign", other.ID, firewall.TakeOverAnnotation)
			w.resyncs()
			now := w.Account.Firewalls()
			if got := w.Writes(mark); len(got) != 0 || len(now) != 1 || !reflect.DeepEqual(now[0], other) {
				t.Errorf("writes %v, %+v", got, now)
			}
		}
	}
	// ours is a firewall that the controller has made, and that changes while none runs.
	ours := func(change func(*world, digitalocean.Firewall)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			t.Helper()
			w.run()
			w.becomes("tcp " + w.port + everybody)
			f := w.Account.Firewalls()[0]
			w.recordedAs(f.ID)
			w.Stop()
			change(w, f)
			w.run()
			if again := w.becomes("tcp " + w.port + everybody); again.ID != f.ID {
				t.Errorf("%s was left behind", f.ID)
			}
			w.recordedAs(f.ID)
		}
	}
	edit := func(change func(*digitalocean.Firewall)) func(*world, digitalocean.Firewall) {
		return func(w *world, f digitalocean.Firewall) { must.Do(w.T, w.Account.EditFirewall(f.ID, change)) }
	}
	for name, try := range map[string]func(*testing.T, *world){
		"made by hand in place of a deleted one": kept(func(w *world) digitalocean.Firewall { return w.replaced() }),
		"the same with a token that shows no tags": kept(func(w *world) digitalocean.Firewall {
			w.replaced()
			must.Do(w.T, w.Account.EditFirewall(w.Name, func(f *digitalocean.Firewall) { f.Tags = nil }))
			return w.Account.Firewalls()[0]
		}),
		"handed over": func(t *testing.T, w *world) {
			t.Helper()
			other := w.replaced()
			w.annotateLease(firewall.TakeOverAnnotation, other.ID)
			w.run()
			if f := w.becomes("tcp " + w.port + everybody); f.ID != other.ID {
				t.Error("another was made")
			}
			w.recordedAs(other.ID)
		},
		"renamed by hand": ours(edit(func(f *digitalocean.Firewall) { f.Name = "renamed-" + f.Name })),
		"without its tags": ours(func(w *world, f digitalocean.Firewall) {
			must.Get(w.Account.CreateDroplet(digitalocean.DropletSpec{Name: "web", Tags: []string{"web"}})).Or(w.T)
			edit(func(f *digitalocean.Firewall) { f.Tags = &[]string{"web"} })(w, f)
		}),
		"another name is configured": ours(func(w *world, _ digitalocean.Firewall) {
			w.config.Name += "-new"
		}),
		"the record is lost":                        ours(func(w *world, _ digitalocean.Firewall) { w.annotateLease(firewall.RecordAnnotation, "") }),
		"the record is lost, and the Lease with it": ours(func(w *world, _ digitalocean.Firewall) { w.deleteLease() }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
				w.port = w.nodePort("np")
				try(t, w)
			})
		})
	}
}

// What an earlier version or upstream made is taken over in one recorded step, without a write to DigitalOcean.
func TestTheFirstStartRecordsTheFirewall(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		np := w.nodePort("np")
		f := w.predecessors(open(np))
		w.run()
		w.recordedAs(f.ID)
		cloud.Elapse(4 * w.timing.Resync)
		if got := w.Writes(0); len(got) != 0 {
			t.Errorf("writes %v, nothing differs", got)
		}
	})
}

// A process that ends before or after any of its writes to the API server, the record's among them, leaves one firewall,
// which the next process keeps and records. The first firewall is made, and deleted elsewhere, so that another is.
func TestCrashAroundTheRecord(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 6; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d-%t", n, after), func(t *testing.T) {
				t.Parallel()
				simulated(t, digitalocean.Options{}, func(_ *testing.T, w *world) {
					w.port = w.nodePort("np")
					crashed := w.Kube.CrashAt(n, after)
					w.run()
					ended := func() bool {
						select {
						case <-crashed:
							return true
						default:
							return false
						}
					}
					w.Until("the firewall, or the end", func() bool {
						return ended() || len(w.Account.Firewalls()) == 1 && w.lease().Annotations[firewall.RecordAnnotation] != ""
					})
					if all := w.Account.Firewalls(); len(all) == 1 {
						must.Do(w.T, w.Account.DeleteFirewall(all[0].ID))
					}
					w.Until("another, or the end", func() bool { return ended() || len(w.Account.Firewalls()) == 1 })
					w.Stop()
					w.Kube.Set(nil)
					w.run()
					w.recordedAs(w.becomes("tcp " + w.port + everybody).ID)
					w.resyncs()
					w.becomes("tcp " + w.port + everybody)
				})
			})
		}
	}
}
