// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// ipamWorld is a world in which nothing disagrees: two machines with every kind of tunnel and pods, of which one has
// a borrowed address.
type ipamWorld struct {
	*world
	pods map[ipamcheck.Pod]bool
	// base is what the datastore held then.
	base map[string]string
}

func newIPAMWorld(t *testing.T) *ipamWorld {
	t.Helper()
	w := &ipamWorld{world: newWorld(t), pods: map[ipamcheck.Pod]bool{}}
	n1, n2 := machine(t, w.calico, "n1", 1, 3), machine(t, w.calico, "n2", 2, 2)
	for _, p := range []*corev1.Pod{pod("n1", 0), pod("n1", 1), pod("n1", 2), pod("n2", 0), pod("n2", 1), pod("n2", 2)} {
		w.pods[ipamcheck.Pod{Namespace: p.Namespace, Name: p.Name}] = true
	}
	must.Get(n2.BorrowAddress(t.Context(), pod("n2", 2), n1)).Or(t)
	w.base = w.etcd.Dump(t)
	return w
}

// check is one reading.
func (w *ipamWorld) check(t *testing.T) []ipamcheck.Disagreement {
	t.Helper()
	data := must.Get(w.store.IPAM(t.Context())).Or(t)
	if len(data.Unreadable) > 0 || len(data.Blocks) == 0 || len(data.Handles) == 0 || len(data.Endpoints) == 0 || len(data.Nodes) == 0 || len(data.Pools) == 0 {
		t.Fatalf("read %d blocks, %d handles, %d endpoints, %d Nodes, %d pools, and not %v", len(data.Blocks), len(data.Handles), len(data.Endpoints), len(data.Nodes),
			len(data.Pools), data.Unreadable)
	}
	data.Pods = w.pods
	return ipamcheck.Check(data)
}

// reset undoes what a test has written.
func (w *ipamWorld) reset(t *testing.T) {
	t.Helper()
	for key, value := range w.etcd.Dump(t) {
		if before, known := w.base[key]; !known {
			w.remove(t, key)
		} else if before != value {
			w.put(t, key, before)
		}
	}
	for key, value := range w.base {
		if _, found := w.etcd.Dump(t)[key]; !found {
			w.put(t, key, value)
		}
	}
}

func (w *ipamWorld) put(t *testing.T, key, value string) {
	t.Helper()
	must.Get(w.etcd.Client.Put(t.Context(), key, value)).Or(t)
}

func (w *ipamWorld) remove(t *testing.T, key string) {
	t.Helper()
	must.Get(w.etcd.Client.Delete(t.Context(), key)).Or(t)
}

// edit changes the JSON object of a key.
func (w *ipamWorld) edit(t *testing.T, key string, change func(object map[string]any)) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(w.base[key]), &object); err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	change(object)
	value := must.Get(json.Marshal(object)).Or(t)
	w.put(t, key, string(value))
}

// key is the first key that has all of these parts.
func (w *ipamWorld) key(t *testing.T, parts ...string) string {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(w.base)) {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(key, part) }) {
			return key
		}
	}
	t.Fatalf("no key has %v", parts)
	return ""
}

// blockKeyOf is the key of a block of a host, of the family, and its CIDR.
func (w *ipamWorld) blockKeyOf(t *testing.T, host, family string) (key, cidr string) {
	t.Helper()
	affinity := w.key(t, "/ipam/v2/host/"+host+"/"+family)
	name := affinity[strings.LastIndex(affinity, "/")+1:]
	at := strings.LastIndex(name, "-")
	return w.key(t, "/assignment/"+family+"/block/"+name), name[:at] + "/" + name[at+1:]
}

// attributesOf are the attributes of a block.
func attributesOf(block map[string]any) []any { return block["attributes"].([]any) }

// assign takes the first free address of a block for an attribute.
func assign(block map[string]any, handle any, secondary map[string]any) (ordinal int) {
	free := block["unallocated"].([]any)
	ordinal = int(free[0].(float64))
	block["unallocated"] = free[1:]
	block["attributes"] = append(attributesOf(block), map[string]any{"handle_id": handle, "secondary": secondary})
	block["allocations"].([]any)[ordinal] = len(attributesOf(block)) - 1
	return ordinal
}

func specOf(object map[string]any) map[string]any { return object["spec"].(map[string]any) }

// etcdPlants put one disagreement each into etcd.
func (w *ipamWorld) etcdPlants(t *testing.T, family string) map[ipamcheck.Kind]func() {
	t.Helper()
	handle := w.key(t, "/handle/"+caliconode.HandleID(pod("n1", 0)))
	endpoint := func(host string) string { return w.key(t, "/workloadendpoints/default/"+host+"-") }
	block, cidr := w.blockKeyOf(t, "n1", family)
	affinity := w.key(t, "/ipam/v2/host/n1/"+family)
	nodes := "/calico/resources/v3/projectcalico.org/nodes/"
	freeCIDR, freeName := "10.244.250.0/26", "10.244.250.0-26"
	if family == "ipv6" {
		freeCIDR, freeName = "fd00:10:244::ff00/122", "fd00:10:244::ff00-122"
	}
	return map[ipamcheck.Kind]func(){
		ipamcheck.FreeAndAssigned: func() {
			w.edit(t, block, func(b map[string]any) {
				for ordinal, index := range b["allocations"].([]any) {
					if index != nil {
						b["unallocated"] = append(b["unallocated"].([]any), ordinal)
						return
					}
				}
			})
		},
		ipamcheck.BlocksOverlap: func() {
			prefix := netip.MustParsePrefix(cidr)
			inner := netip.PrefixFrom(prefix.Addr(), prefix.Bits()+1)
			name := strings.ReplaceAll(inner.String(), "/", "-")
			w.put(t, block[:strings.LastIndex(block, "/")+1]+name, fmt.Sprintf(
				`{"cidr":%q,"affinity":null,"allocations":[null],"unallocated":[0],"attributes":[],"sequenceNumber":1,"deleted":false}`, inner))
		},
		ipamcheck.EndpointOthersAddress: func() {
			other := w.base[endpoint("n2")]
			at := strings.Index(other, `"ipNetworks":["`) + len(`"ipNetworks":["`)
			w.edit(t, endpoint("n1"), func(e map[string]any) {
				specOf(e)["ipNetworks"] = []string{other[at : at+strings.Index(other[at:], `"`)]}
			})
		},
		ipamcheck.EndpointUnassigned: func() {
			w.edit(t, endpoint("n1"), func(e map[string]any) {
				specOf(e)["ipNetworks"] = append(specOf(e)["ipNetworks"].([]any), netip.MustParsePrefix(freeCIDR).Addr().Next().String())
			})
		},
		ipamcheck.NodeAddressTwice: func() {
			address := "172.30.0.2/24"
			if family == "ipv6" {
				address = "fd00::2/64"
				w.edit(t, nodes+"n2", func(n map[string]any) { specOf(n)["bgp"].(map[string]any)["ipv6Address"] = address })
			}
			w.edit(t, nodes+"n1", func(n map[string]any) { specOf(n)["bgp"].(map[string]any)[family+"Address"] = address })
		},
		ipamcheck.HandleMissing: func() { w.remove(t, handle) },
		ipamcheck.HandleCount: func() {
			w.edit(t, handle, func(h map[string]any) {
				counts := h["block"].(map[string]any)
				for block := range counts {
					counts[block] = 2
				}
			})
		},
		ipamcheck.HandleWithoutAddress: func() {
			w.put(t, handlePrefix+"k8s-pod-network."+strings.Repeat("e", 64), fmt.Sprintf(`{"block":{%q:1},"deleted":false}`, cidr))
		},
		ipamcheck.AddressWithoutHandle: func() {
			w.edit(t, block, func(b map[string]any) { assign(b, nil, map[string]any{"node": "n1"}) })
		},
		ipamcheck.AffinityMissing: func() { w.remove(t, affinity) },
		ipamcheck.AffinityMismatch: func() {
			w.remove(t, affinity)
			w.put(t, strings.Replace(affinity, "/n1/", "/n2/", 1), w.base[affinity])
		},
		ipamcheck.AffinityDeleting: func() {
			w.edit(t, affinity, func(a map[string]any) { a["state"] = "pendingDeletion" })
		},
		ipamcheck.AffinityWithoutBlock: func() {
			w.put(t, affinity[:strings.LastIndex(affinity, "/")+1]+freeName, `{"state":"confirmed","deleted":false}`)
		},
		ipamcheck.BlockOutsidePools: func() {
			name := strings.NewReplacer("10.244.250", "10.9.0", "10:244", "10:9").Replace(freeName)
			outside := strings.NewReplacer("10.244.250", "10.9.0", "10:244", "10:9").Replace(freeCIDR)
			w.put(t, affinity[:strings.LastIndex(affinity, "/")+1]+name, `{"state":"confirmed","deleted":false}`)
			w.put(t, block[:strings.LastIndex(block, "/")+1]+name, fmt.Sprintf(
				`{"cidr":%q,"affinity":"host:n1","allocations":[null],"unallocated":[0],"attributes":[],"sequenceNumber":1,"deleted":false}`, outside))
		},
		ipamcheck.OldSandbox: func() {
			old := "k8s-pod-network." + strings.Repeat("d", 64)
			w.edit(t, block, func(b map[string]any) {
				assign(b, old, map[string]any{"node": "n1", "namespace": "default", "pod": pod("n1", 0).Name, "timestamp": "2026-01-01 00:00:00 +0000 UTC"})
			})
			w.put(t, handlePrefix+old, fmt.Sprintf(`{"block":{%q:1},"deleted":false}`, cidr))
		},
		ipamcheck.PodGone: func() {
			gone := "k8s-pod-network." + strings.Repeat("c", 64)
			w.edit(t, block, func(b map[string]any) {
				assign(b, gone, map[string]any{"node": "n1", "namespace": "default", "pod": "gone", "timestamp": "2026-01-01 00:00:00 +0000 UTC"})
			})
			w.put(t, handlePrefix+gone, fmt.Sprintf(`{"block":{%q:1},"deleted":false}`, cidr))
		},
	}
}

// While pods come and go on all machines, two readings between which each change has ended confirm nothing.
func TestIPAMReportsNoChangeThatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const machines, rounds = 4, 12
	var pods sync.Map
	var working sync.WaitGroup
	var stop atomic.Bool
	done := make([]atomic.Int64, machines)
	for m := range machines {
		agent := machine(t, w.calico, fmt.Sprintf("n%d", m), byte(m+1), 0)
		working.Go(func() {
			for i := 0; !stop.Load(); i++ {
				p := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("n%d-%d", m, i%3), UID: types.UID(fmt.Sprintf("uid-%d-%d", m, i))},
					Spec:       corev1.PodSpec{ServiceAccountName: "default"},
				}
				name := ipamcheck.Pod{Namespace: p.Namespace, Name: p.Name}
				pods.Store(name, true)
				if _, err := agent.PodNetwork().Add(t.Context(), p); err != nil {
					t.Errorf("connecting %s: %v", p.Name, err)
				}
				if err := agent.PodNetwork().Del(t.Context(), p); err != nil {
					t.Errorf("disconnecting %s: %v", p.Name, err)
				}
				pods.Delete(name)
				done[m].Add(1)
			}
		})
	}
	transient := 0
	read := func() []ipamcheck.Disagreement {
		known := map[ipamcheck.Pod]bool{}
		note := func() {
			pods.Range(func(name, _ any) bool { known[name.(ipamcheck.Pod)] = true; return true })
		}
		note()
		data, err := w.store.IPAM(t.Context())
		note()
		if err != nil {
			t.Fatal(err)
		}
		data.Pods = known
		found := ipamcheck.Check(data)
		transient += len(found)
		return found
	}
	for range rounds {
		before := read()
		var counts [machines]int64
		for m := range done {
			counts[m] = done[m].Load()
		}
		testkit.Eventually(t, "a pod on each machine", func() string {
			for m := range done {
				if done[m].Load() < counts[m]+2 {
					return fmt.Sprintf("machine %d is at its first", m)
				}
			}
			return ""
		})
		if confirmed := ipamcheck.Confirmed(before, read()); len(confirmed) > 0 {
			t.Errorf("confirmed %+v", confirmed)
		}
	}
	stop.Store(true)
	working.Wait()
	if found := read(); len(found) > 0 {
		t.Errorf("when all is done, found are %+v", found)
	}
	t.Logf("%d changes were seen under way", transient)
}
