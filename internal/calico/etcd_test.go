// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const felix = "FelixConfiguration"

// seen is a host as it was read, with its Node.
type seen struct {
	node Node
	host Host
}

func (w *world) read(t *testing.T, name string) seen {
	t.Helper()
	snapshot := must.Get(w.store.Snapshot(t.Context())).Or(t)
	hosts := must.Get(w.store.Hosts(t.Context(), snapshot.Revision, []string{name})).Or(t)
	i := slices.IndexFunc(snapshot.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("Calico Node %s is not in the snapshot", name)
	}
	return seen{node: snapshot.Nodes[i], host: hosts[0]}
}

func (s seen) guard() Guard { return Guard{Host: s.node.Name, Revision: s.node.Revision} }

func (s seen) endpoints() []EndpointRef {
	var refs []EndpointRef
	for _, e := range s.host.Endpoints {
		refs = append(refs, EndpointRef{Namespace: e.Namespace, Name: e.Name, Revision: e.Revision})
	}
	return refs
}

// assignments are the host's own addresses in a block.
func (s seen) assignments(block nodesync.Block) []Assignment {
	var out []Assignment
	for _, a := range block.Allocations {
		if a.Host == s.host.Name {
			out = append(out, Assignment{Address: a.Address, Handle: a.Handle, Sequence: a.Sequence})
		}
	}
	return out
}

func TestReadsWhatCalicoNodeWrites(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 2)
	machine(t, w.calico, "n10", 10, 1)

	got := w.read(t, "n1")

	if want := []OrchRef{{Orchestrator: "k8s", NodeName: "n1"}}; !slices.Equal(got.node.OrchRefs, want) {
		t.Errorf("orchRefs: got %v, want %v", got.node.OrchRefs, want)
	}
	if len(got.host.Endpoints) != 2 || got.host.Endpoints[0].Orchestrator != "k8s" {
		t.Errorf("endpoints: got %+v, want the two of n1 and none of n10", got.host.Endpoints)
	}
	addresses := 0
	for _, b := range got.host.Blocks {
		if b.AffineTo != "n1" {
			t.Errorf("block %s is affine to %q, want n1", b.CIDR, b.AffineTo)
		}
		for _, a := range b.Allocations {
			if a.Host != "n1" || a.Handle == "" || a.Sequence == 0 {
				t.Errorf("allocation %+v lacks its host, handle or sequence number", a)
			}
			addresses++
		}
	}
	// Two pods; IPIP, VXLAN, VXLANv6, Wireguard and WireguardV6 tunnels.
	if want := 2 + 5; addresses != want {
		t.Errorf("addresses: got %d, want %d", addresses, want)
	}
	if len(got.host.Affinities) != len(got.host.Blocks) {
		t.Errorf("affinities: got %d for %d blocks", len(got.host.Affinities), len(got.host.Blocks))
	}
	if r := got.host.Resources; len(r) != 1 || r[0].Kind != felix || r[0].Name != "node.n1" || !r[0].Automatic {
		t.Errorf("resources: got %+v, want the FelixConfiguration that calico-node writes", r)
	}
}

// remove applies every write that a whole clean-up needs.
func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	s := w.read(t, name)
	must.Do(t, w.store.DeleteEndpoints(t.Context(), s.guard(), s.endpoints()))
	for _, b := range s.host.Blocks {
		must.Do(t, w.store.ReleaseAddresses(t.Context(), s.guard(), b.CIDR, s.assignments(b)))
	}
	for _, a := range s.host.Affinities {
		must.Do(t, w.store.DeleteAffinity(t.Context(), s.guard(), a.CIDR, a.Revision, true))
	}
	for _, r := range s.host.Resources {
		must.Do(t, w.store.DeleteResource(t.Context(), s.guard(), string(r.Kind), r.Name, r.Revision))
	}
	must.Do(t, w.store.DeleteNode(t.Context(), s.guard()))
}

func TestRemovesAllOfOneHostAndNothingOfOthers(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n10", 10, 2)
	machine(t, w.calico, "other", 20, 2)
	before := w.etcd.Dump(t)
	machine(t, w.calico, "n1", 1, 3)

	w.remove(t, "n1")

	if diff := cmp.Diff(before, w.etcd.Dump(t)); diff != "" {
		t.Errorf("the datastore is not as it was before n1 (-want +got):\n%s", diff)
	}
}

func TestEveryWriteHoldsOnlyInTheStateItNames(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 1)
	s := w.read(t, "n1")
	block := s.host.Blocks[0]
	stale := Guard{Host: "n1", Revision: s.node.Revision - 1}
	machine(t, w.calico, "n3", 3, 0)
	elsewhere := w.read(t, "n3").guard()
	otherSequence := s.assignments(block)
	otherSequence[0].Sequence++
	otherHandle := s.assignments(block)
	otherHandle[0].Handle = "k8s-pod-network.of-a-live-pod"
	moved := s.endpoints()
	moved[0].Revision++

	writes := map[string]func() error{
		"endpoints under a stale guard":      func() error { return w.store.DeleteEndpoints(t.Context(), stale, s.endpoints()) },
		"endpoints that changed":             func() error { return w.store.DeleteEndpoints(t.Context(), s.guard(), moved) },
		"addresses under a stale guard":      func() error { return w.store.ReleaseAddresses(t.Context(), stale, block.CIDR, s.assignments(block)) },
		"an address that was assigned again": func() error { return w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, otherSequence) },
		"an address of another handle":       func() error { return w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, otherHandle) },
		"an address that has moved to another host": func() error {
			return w.store.ReleaseAddresses(t.Context(), elsewhere, block.CIDR, s.assignments(block))
		},
		"a leftover that has moved to another host": func() error {
			return w.store.RemoveLeftovers(t.Context(), elsewhere, []Leftover{{Host: "n3", Block: block.CIDR, Reservation: s.assignments(block)[0]}})
		},
		"an affinity under a stale guard": func() error {
			return w.store.DeleteAffinity(t.Context(), stale, block.CIDR, s.host.Affinities[0].Revision, false)
		},
		"an affinity to a block in use": func() error {
			return w.store.DeleteAffinity(t.Context(), s.guard(), block.CIDR, s.host.Affinities[0].Revision, true)
		},
		"an affinity without its block": func() error {
			return w.store.DeleteAffinity(t.Context(), s.guard(), block.CIDR, s.host.Affinities[0].Revision, false)
		},
		"Felix' configuration, stale guard": func() error {
			return w.store.DeleteResource(t.Context(), stale, felix, "node.n1", s.host.Resources[0].Revision)
		},
		"Felix' configuration that changed": func() error {
			return w.store.DeleteResource(t.Context(), s.guard(), felix, "node.n1", s.host.Resources[0].Revision+1)
		},
		"the Node at another revision":        func() error { return w.store.DeleteNode(t.Context(), stale) },
		"an annotation at another revision":   func() error { _, err := w.store.AnnotateNode(t.Context(), "n1", stale.Revision, "a", "b"); return err },
		"an annotation on a Node that is not": func() error { _, err := w.store.AnnotateNode(t.Context(), "n2", 1, "a", "b"); return err },
		"anything while there must be no Node": func() error {
			return w.store.DeleteEndpoints(t.Context(), Guard{Host: "n1"}, s.endpoints())
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			before := w.etcd.Revision(t)
			if err := write(); !errors.Is(err, ErrConflict) {
				t.Errorf("got error %v, want a conflict", err)
			}
			if after := w.etcd.Revision(t); after != before {
				t.Errorf("the store moved from revision %d to %d: something was written", before, after)
			}
		})
	}
}

// A datastore that is locked in the middle of a clean-up is written no more, and one that is unlocked again, or whose ClusterInformation was
// written for another reason, is.
func TestNothingIsWrittenIntoALockedDatastore(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 1)
	s := w.read(t, "n1")
	w.put(t, handlePrefix+"h", `{"handleID":"h","block":{}}`)
	orphan := w.sweep(t).OrphanedHandles
	info := w.etcd.Dump(t)[clusterInformationKey]
	locked := strings.Replace(info, `"datastoreReady":true`, `"datastoreReady":false`, 1)
	if locked == info {
		t.Fatalf("ClusterInformation is not ready: %s", info)
	}
	w.put(t, clusterInformationKey, locked)
	before := w.etcd.Revision(t)
	for name, write := range w.writes(t.Context(), s, orphan) {
		if err := write(); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "the datastore is locked") {
			t.Errorf("%s: got error %v, want a conflict that says that the datastore is locked", name, err)
		}
	}
	if after := w.etcd.Revision(t); after != before {
		t.Errorf("the store moved from revision %d to %d: something was written", before, after)
	}
	w.put(t, clusterInformationKey, info)
	if err := w.store.DeleteEndpoints(t.Context(), s.guard(), s.endpoints()); err != nil {
		t.Errorf("unlocked again: %v", err)
	}
	w.put(t, clusterInformationKey, info)
	if err := w.store.DeleteNode(t.Context(), s.guard()); err != nil {
		t.Errorf("with a ClusterInformation that was written since: %v", err)
	}
}

// writes are one of each kind about a machine, and of orphaned handles.
func (w *world) writes(ctx context.Context, s seen, orphans []Handle) map[string]func() error {
	return map[string]func() error{
		"nodes put":                func() error { _, err := w.store.AnnotateNode(ctx, "n1", s.node.Revision, "a", "b"); return err },
		"workloadendpoints delete": func() error { return w.store.DeleteEndpoints(ctx, s.guard(), s.endpoints()) },
		"ipamblocks put": func() error {
			return w.store.ReleaseAddresses(ctx, s.guard(), s.host.Blocks[0].CIDR, s.assignments(s.host.Blocks[0]))
		},
		"felixconfigurations delete": func() error {
			return w.store.DeleteResource(ctx, s.guard(), felix, "node.n1", s.host.Resources[0].Revision)
		},
		"nodes delete":       func() error { return w.store.DeleteNode(ctx, s.guard()) },
		"ipamhandles delete": func() error { return w.store.DeleteHandles(ctx, orphans) },
	}
}

// What the controller of a round does not declare is not written.
func TestUndeclaredWritesAreRefused(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 1)
	s := w.read(t, "n1")
	before := w.etcd.Revision(t)
	undeclared := outputs.Within(t.Context(), "other", []outputs.Write{
		{System: outputs.CalicoEtcd, Kind: "clusterinformations", Verbs: []string{"put", "delete"}},
		{System: outputs.Kubernetes, Kind: "nodes", Verbs: []string{"put", "delete"}},
	})
	handles := []Handle{{ID: "h", Revision: 1}}
	for name, write := range w.writes(undeclared, s, handles) {
		kind, verb, _ := strings.Cut(name, " ")
		err := write()
		if !errors.Is(err, outputs.ErrUndeclared) || !strings.Contains(err.Error(), verb+" "+kind+" of calico-etcd") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	if after := w.etcd.Revision(t); after != before {
		t.Errorf("the store moved from revision %d to %d: something was written", before, after)
	}
	declared := outputs.Within(t.Context(), "other", []outputs.Write{
		{System: outputs.CalicoEtcd, Kind: "workloadendpoints", Verbs: []string{"delete"}},
	})
	if err := w.writes(declared, s, handles)["workloadendpoints delete"](); err != nil {
		t.Error(err)
	}
}

func TestValuesThatCannotBeParsedAreNamed(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 1)
	s := w.read(t, "n1")
	block := must.Get(blockKey(s.host.Blocks[0].CIDR)).Or(t)
	affinity := must.Get(affinityKey("n1", s.host.Affinities[0].CIDR)).Or(t)
	keys := []string{
		nodeKey("broken"), endpointKey("default", s.host.Endpoints[0].Name), block, affinity, resourcePrefixes()[felix] + "node.n1",
		affinityPrefix + "n1/ipv4/block/nonsense",
	}
	for _, key := range keys {
		must.Get(w.etcd.Client.Put(t.Context(), key, `{"metadata": "n1`)).Or(t)
	}
	snapshot := must.Get(w.store.Snapshot(t.Context())).Or(t)
	hosts := must.Get(w.store.Hosts(t.Context(), snapshot.Revision, []string{"n1"})).Or(t)
	got := append(slices.Clone(snapshot.Unreadable), hosts[0].Unreadable...)
	slices.Sort(got)
	slices.Sort(keys)
	if diff := cmp.Diff(keys, got); diff != "" {
		t.Errorf("unreadable keys (-want +got):\n%s", diff)
	}
}

func TestHostsReadsAtTheRevisionItIsGiven(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 1)
	snapshot := must.Get(w.store.Snapshot(t.Context())).Or(t)
	w.remove(t, "n1")
	hosts := must.Get(w.store.Hosts(t.Context(), snapshot.Revision, []string{"n1"})).Or(t)
	if len(hosts[0].Endpoints) != 1 || len(hosts[0].Blocks) == 0 {
		t.Errorf("got %+v, want n1 as it was at revision %d", hosts[0], snapshot.Revision)
	}
	must.Get(w.etcd.Client.Compact(t.Context(), w.etcd.Revision(t))).Or(t)
	if _, err := w.store.Hosts(t.Context(), snapshot.Revision, []string{"n1"}); err == nil {
		t.Error("got no error for a revision that is compacted, want one")
	}
}

func TestABlockIsScannedPageByPage(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n1", 1, 1)
	want := len(w.read(t, "n1").host.Blocks)
	var ops []clientv3.Op
	for i := range 2*keysPerPage + 10 {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0}), 26)
		key := must.Get(blockKey(cidr)).Or(t)
		ops = append(ops, clientv3.OpPut(key, `{"cidr":"`+cidr.String()+`","affinity":"host:x","allocations":[],"unallocated":[],"attributes":[]}`))
	}
	for chunk := range slices.Chunk(ops, 100) {
		must.Get(w.etcd.Client.Txn(t.Context()).Then(chunk...).Commit()).Or(t)
	}
	if got := len(w.read(t, "n1").host.Blocks); got != want {
		t.Errorf("blocks of n1 among many: got %d, want %d", got, want)
	}
}
