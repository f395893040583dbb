// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/go-logr/logr"

	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const dropletRoute = "GET /v2/droplets/{droplet_id}"

// A machine that is switched off gets the taint, after two GETs by ID; when it is back, first DigitalOcean and then Kubernetes have to say
// so. Taints of others stay as they are.
func TestOffAndBack(t *testing.T) {
	both(t, 4, func(t *testing.T, w *world) {
		w.run()
		w.switchOff(1)
		w.until(1)
		if n := w.Sim.Stats().Count(dropletRoute); n < 2 {
			t.Errorf("%d GETs by ID, want two at least", n)
		}
		node := w.node(1)
		if i := slices.IndexFunc(node.Spec.Taints, outofservice.IsOurs); i < 0 || node.Spec.Taints[i].TimeAdded == nil ||
			!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.com/mine" }) {
			t.Errorf("taints %+v", node.Spec.Taints)
		}
		w.stands(1, outofservice.ReasonOutOfService)
		w.switchOn(1)
		w.stands(1, outofservice.ReasonReturning)
		if got := w.tainted(); !slices.Equal(got, []int{1}) {
			t.Errorf("%v have the taint while the Node is not ready", got)
		}
		w.SetReady(w.droplets[1].Name, true)
		w.until()
		if !slices.ContainsFunc(w.node(1).Spec.Taints, func(t corev1.Taint) bool { return t.Key == "example.com/mine" }) {
			t.Errorf("taints %+v", w.node(1).Spec.Taints)
		}
		w.ReportedOnce(node.Name, EventTaintSet)
		w.ReportedOnce(node.Name, EventTaintRemoved)
	})
}

// What speaks against it holds the taint back, and for nothing else: once it is over, the machine gets it.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		against func(w *world)
		stands  outofservice.Reason
		over    func(w *world)
	}{
		"GETs by ID fail": {
			func(w *world) {
				must.Do(w.T, w.Sim.Inject(fault.Rule{Route: dropletRoute, Kind: fault.Error, Nth: 1, Times: -1, Status: 500}))
			},
			outofservice.ReasonProof,
			func(w *world) { w.Sim.ClearFaults() },
		},
		"there is no Lease": {
			func(w *world) {
				must.Do(w.T, w.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(w.T.Context(), w.droplets[0].Name, metav1.DeleteOptions{}))
			},
			outofservice.ReasonKubelet,
			func(w *world) { w.renew(w.droplets[0].Name) },
		},
		"a taint of others": {
			func(w *world) {
				w.patch(0, `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]}}`)
			},
			outofservice.ReasonForeign,
			func(w *world) { w.patch(0, `{"spec":{"taints":[]}}`) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, 4, func(t *testing.T, w *world) {
				test.against(w)
				w.run()
				w.switchOff(0)
				w.stands(0, test.stands)
				w.reconciles(10)
				if got := w.tainted(); len(got) > 0 {
					t.Fatalf("%v have the taint", got)
				}
				test.over(w)
				w.until(0)
			})
		})
	}
}

func (w *world) patch(i int, body string) {
	w.T.Helper()
	w.PatchNode(w.droplets[i].Name, body)
}

// A machine that DigitalOcean calls active keeps its volumes, however long its Node is not ready. So does one whose kubelet goes on.
func TestNeverActiveNorAlive(t *testing.T) {
	t.Parallel()
	simulated(t, 4, func(t *testing.T, w *world) {
		var alive atomic.Bool
		alive.Store(true)
		w.Kube.Set(func(r *http.Request, served bool) error {
			one := "/namespaces/" + corev1.NamespaceNodeLease + "/leases"
			if !served && alive.Load() && (strings.HasSuffix(r.URL.Path, one) || strings.HasSuffix(r.URL.Path, one+"/"+w.droplets[1].Name)) {
				w.renew(w.droplets[1].Name) // anyone who reads it reads another renewal each time, however slow the tests are
			}
			return nil
		})
		w.run()
		w.SetReady(w.droplets[0].Name, false)
		w.switchOff(1)
		w.stands(1, outofservice.ReasonKubelet)
		w.reconciles(30)
		if got := w.tainted(); len(got) > 0 {
			t.Fatalf("%v have the taint", got)
		}
		alive.Store(false)
		w.until(1)
	})
}

// A Node that cannot be written, or a record that cannot be read or written, keeps no other Node from losing the taint.
func TestRemovedAllTheSame(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refuse func(w *world, r *http.Request) bool
		left   []int
	}{
		"a Node cannot be written": {func(w *world, r *http.Request) bool {
			return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/nodes/"+w.droplets[0].Name)
		}, []int{0}},
		"the record cannot be read": {func(w *world, r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/leases/"+w.Name) }, nil},
		"the record cannot be written": {func(_ *world, r *http.Request) bool {
			return r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/"+outofservice.RecordNamespace+"/leases")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, 4, func(_ *testing.T, w *world) {
				for i := range 2 {
					w.patch(i, `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"`+outofservice.TaintValue+`","effect":"NoExecute"}]}}`)
				}
				w.Kube.Set(func(r *http.Request, served bool) error {
					if !served && test.refuse(w, r) {
						return cloud.StatusError(http.StatusForbidden)
					}
					return nil
				})
				w.run()
				w.until(test.left...)
			})
		})
	}
}

// A machine that was switched on again since it was proven to be off keeps its volumes: its droplet is read once more right before the taint is set.
func TestLastRead(t *testing.T) {
	t.Parallel()
	simulated(t, 1, func(t *testing.T, w *world) {
		w.switchOff(0)
		api := w.NewProgram(nil).DigitalOcean
		c := &Controller{Options: Options{API: api, Clock: clock.RealClock{}, Log: logr.Discard(), Enabled: true, Config: w.config}, client: w.Client}
		c.epoch = api.Epoch()
		node := w.node(0)
		s := &sighting{Machine: outofservice.Machine{Node: node.Name, UID: string(node.UID), Droplet: w.droplets[0].ID, State: outofservice.StateOff}}
		c.seen = map[types.UID]*sighting{node.UID: s}
		c.readLease(t.Context(), s)
		step := outofservice.SetTaint{Node: node.Name, UID: string(node.UID), Droplet: s.Droplet, State: outofservice.StateOff}
		for _, now := range []struct {
			change func()
			want   error
		}{
			{func() {}, nil},
			{func() { w.switchOn(0) }, errChanged},
			{func() { w.switchOff(0) }, nil},
			{func() {
				must.Do(w.T, w.Sim.Inject(fault.Rule{Route: dropletRoute, Kind: fault.Error, Nth: 1, Times: -1, Status: 500}))
			}, errChanged},
		} {
			now.change()
			s.Proof.Last = time.Now().Add(-moment - time.Second)
			if taints, err := c.withTaint(t.Context(), node, step); !errors.Is(err, now.want) || (err == nil) != (len(taints) > len(node.Spec.Taints)) {
				t.Errorf("the droplet is %s: %v, %v", s.State, taints, err)
			}
		}
	})
}

// A machine that the list lacks and that answers by ID is there.
func TestListProvesNothing(t *testing.T) {
	t.Parallel()
	simulated(t, 3, func(t *testing.T, w *world) {
		w.Sim.SetConsistency(sim.Consistency{List: time.Hour})
		late := w.join(w.NodeName("late"))
		w.run()
		w.SetReady(late.Name, false)
		w.reconciles(20)
		if got := w.tainted(); len(got) > 0 || w.Sim.Stats().Count(dropletRoute) == 0 {
			t.Errorf("%v have the taint, %d GETs by ID", got, w.Sim.Stats().Count(dropletRoute))
		}
	})
}

// A machine whose droplet DigitalOcean does not show yet is not gone, however often it answers 404 by ID: no taint. One
// whose Node a cloud controller has described is.
func TestUnseenIsNotOff(t *testing.T) {
	t.Parallel()
	simulated(t, 2, func(_ *testing.T, w *world) {
		for i, labels := range []map[string]string{nil, {
			corev1.LabelInstanceTypeStable: "s", corev1.LabelInstanceType: "s", corev1.LabelTopologyRegion: "r", corev1.LabelFailureDomainBetaRegion: "r",
		}} {
			name, id := w.NodeName(7+i), w.droplets[1].ID+100+i
			w.Register(name, func(n *corev1.Node) {
				n.Spec.ProviderID = fmt.Sprintf("digitalocean://%d", id)
				maps.Copy(n.Labels, labels)
			})
			w.SetReady(name, false)
			w.renew(name)
			w.droplets = append(w.droplets, sim.Droplet{ID: id, Name: name})
			// The monitor of Nodes would delete the one that is gone.
			w.patch(2+i, `{"metadata":{"finalizers":["example.com/kept"]}}`)
			defer w.patch(2+i, `{"metadata":{"finalizers":[]}}`)
		}
		w.run()
		w.until(3)
		w.reconciles(10)
		w.until(3)
	})
}

// So many machines at a time wait for a person. What waits keeps its hash; the confirmation lets just these pass.
func TestMassGuard(t *testing.T) {
	both(t, 6, func(t *testing.T, w *world) {
		for i := range 3 {
			w.switchOff(i)
		}
		w.run()
		testkit.Eventually(t, "three machines to wait", func() string {
			if a := w.record().Awaiting; a.Count != 3 {
				return fmt.Sprintf("%+v", w.record())
			}
			return ""
		})
		waits := w.record().Awaiting
		asked := w.Sim.Stats().Count(dropletRoute)
		w.reconciles(20)
		if now := w.record().Awaiting; now.Hash != waits.Hash || len(w.tainted()) > 0 {
			t.Errorf("%+v, and before that %+v; %v have the taint", now, waits, w.tainted())
		}
		if n := w.Sim.Stats().Count(dropletRoute) - asked; n > 6 {
			t.Errorf("%d GETs by ID while they wait", n)
		}
		testkit.Eventually(t, "the confirmation to be written", func() string {
			body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, outofservice.ConfirmAnnotation, waits.Confirmation(time.Now().Add(time.Hour)))
			_, err := w.Client.CoordinationV1().Leases(machines.RecordNamespace).Patch(t.Context(), w.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
			if err != nil {
				return err.Error()
			}
			return ""
		})
		w.until(0, 1, 2)
		w.switchOff(3) // one more is another set
		w.stands(3, outofservice.ReasonMassGuard)
	})
}

// A machine that is destroyed: the Node gets the taint and stays until its volumes are detached, and then goes. Without volumes it goes at once.
func TestDeparture(t *testing.T) {
	both(t, 5, func(t *testing.T, w *world) {
		w.timing.Departure = time.Hour
		w.run()
		testkit.Eventually(t, "the account to be recorded", func() string {
			if _, err := w.Client.CoordinationV1().Leases(machines.RecordNamespace).Get(t.Context(), w.Name+"-account", metav1.GetOptions{}); err != nil {
				w.SetReady(w.droplets[4].Name, false) // nothing is asked while all are ready
				return err.Error()
			}
			return ""
		})
		const attached = `{"status":{"volumesAttached":[{"name":"kubernetes.io/csi/dobs.csi.digitalocean.com^a","devicePath":"csi-a"}]}}`
		_, err := w.Client.CoreV1().Nodes().PatchStatus(t.Context(), w.droplets[0].Name, []byte(attached))
		must.Do(w.T, err)
		for i := range 2 {
			must.Do(w.T, w.Account.DeleteDroplet(fmt.Sprint(w.droplets[i].ID)))
			w.SetReady(w.droplets[i].Name, false)
		}
		gone := func(i int) bool {
			_, err := w.Client.CoreV1().Nodes().Get(t.Context(), w.droplets[i].Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}
		testkit.Eventually(t, "the Node without volumes to go", func() string {
			if !gone(1) {
				return "it is there"
			}
			return ""
		})
		w.until(0)
		w.reconciles(10)
		if gone(0) {
			t.Fatal("the Node has gone while its volume is attached")
		}
		_, err = w.Client.CoreV1().Nodes().PatchStatus(t.Context(), w.droplets[0].Name, []byte(`{"status":{"volumesAttached":[]}}`))
		must.Do(w.T, err)
		testkit.Eventually(t, "the Node to go", func() string {
			if !gone(0) {
				return "it is there"
			}
			return ""
		})
	})
}

// Without the flag nothing is set, recorded or asked; what was set before goes all the same when the machine is back.
func TestDisabled(t *testing.T) {
	t.Parallel()
	simulated(t, 4, func(t *testing.T, w *world) {
		w.enabled = false
		w.patch(0, `{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"`+outofservice.TaintValue+`","effect":"NoExecute"}]}}`)
		w.switchOff(1)
		w.run()
		w.until()
		w.reconciles(10)
		if got := w.tainted(); len(got) > 0 || w.lease() != nil {
			t.Errorf("%v have the taint, the Lease is %v", got, w.lease())
		}
	})
}

// A process that ends before or after any of its writes leaves what the next one brings to the same end: two machines are out of service,
// and later none. At no time there are more than the guard allows.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for n := 1; n <= 6; n++ {
			t.Run(fmt.Sprintf("write %d after %t", n, after), func(t *testing.T) {
				t.Parallel()
				simulated(t, 5, func(_ *testing.T, w *world) {
					crashed := w.Kube.CrashAt(n, after)
					w.run()
					for i := range 2 {
						w.switchOff(i)
					}
					w.Until("the process to end, or its work", func() bool {
						select {
						case <-crashed:
							return true
						default:
							return len(w.tainted()) == 2
						}
					})
					w.Stop()
					w.Kube.Set(nil)
					w.run()
					w.until(0, 1)
					for i := range 2 {
						w.switchOn(i)
						w.SetReady(w.droplets[i].Name, true)
					}
					w.until()
				})
			})
		}
	}
}

// A leader whose record is old sets nothing until it has read it again.
func TestTwoLeaders(t *testing.T) {
	both(t, 4, func(t *testing.T, w *world) {
		moved := false
		w.Kube.Set(func(r *http.Request, served bool) error {
			if !served && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/leases/"+w.Name) && !moved {
				moved = true // another leader writes between this one's read and write
				record := w.record()
				record.Memory.Intents = append(record.Memory.Intents,
					outofservice.Intent{Node: "x", UID: string(w.node(2).UID), At: time.Now()}, outofservice.Intent{Node: "y", UID: string(w.node(3).UID), At: time.Now()})
				keeper := recordKeeper{leases: w.Client.CoordinationV1().Leases(machines.RecordNamespace), name: w.Name, lease: w.lease()}
				must.Do(w.T, keeper.save(t.Context(), record))
			}
			return nil
		})
		w.config.IntentAge = time.Hour
		w.run()
		testkit.Eventually(t, "the record", func() string {
			if w.lease() == nil {
				return "there is none"
			}
			return ""
		})
		w.switchOff(0)
		w.stands(0, outofservice.ReasonMassGuard)
		if got := w.tainted(); len(got) > 0 {
			t.Errorf("%v have the taint, and two others were about to get it", got)
		}
	})
}
