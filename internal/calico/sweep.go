// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/names"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Sweep is what only a check of everything finds: what is left of hosts that have neither a Node nor an affinity, and handles of nothing.
type Sweep struct {
	// Hosts are the names of hosts that hold an endpoint or an address of Kubernetes, or to which a block says that it is affine, sorted, whether
	// they have a Node or not.
	Hosts []string
	// EndpointsWritten is, for each host with endpoints of Kubernetes, the revision of the one that was written last; empty in the kubernetes datastore.
	EndpointsWritten map[string]int64
	// ResourceHosts are the names of hosts that a resource is about alone, sorted. Bare-metal hosts have such resources, so that they do not show
	// that a host was a Kubernetes Node. In the kubernetes datastore a Snapshot has them.
	ResourceHosts []string
	// OrphanedHandles are IPAM handles under which no block has an address, sorted by ID. An assignment in progress writes its handle
	// before its block (libcalico-go, lib/ipam), so a handle is an orphan only if it is still one, at the same revision, much later.
	OrphanedHandles []Handle
	// NamesPods says that an address or an endpoint names a pod.
	NamesPods bool
}

// Sweep reads, at the given store revision, the keys of all endpoints and handles and all blocks, page by page. What it keeps is a name for
// each host and eight bytes for each handle. A block that cannot be parsed may use any handle, so then no handle is an orphan.
func (d *Etcd) Sweep(ctx context.Context, revision int64) (Sweep, error) {
	s := newSweeping()
	err := d.eachPage(ctx, revision, endpointPrefix, func(key string, _ []byte, modified int64) { s.addEndpoint(key, modified) },
		clientv3.WithKeysOnly(), clientv3.WithLimit(bareKeysPerPage))
	if err != nil {
		return Sweep{}, fmt.Errorf("reading the keys of workload endpoints: %w", err)
	}
	if err := d.eachPage(ctx, revision, blockPrefix, func(_ string, value []byte, _ int64) { s.addBlock(value) }); err != nil {
		return Sweep{}, fmt.Errorf("reading IPAM blocks: %w", err)
	}
	err = d.eachPage(ctx, revision, handlePrefix, func(key string, _ []byte, modified int64) {
		s.addHandle(strings.TrimPrefix(key, handlePrefix), modified)
	}, clientv3.WithKeysOnly(), clientv3.WithLimit(bareKeysPerPage))
	if err != nil {
		return Sweep{}, fmt.Errorf("reading the keys of IPAM handles: %w", err)
	}
	for kind, prefix := range resourcePrefixes() {
		err := d.eachPage(ctx, revision, prefix, func(key string, value []byte, _ int64) { s.addResource(kind, strings.TrimPrefix(key, prefix), value) })
		if err != nil {
			return Sweep{}, fmt.Errorf("reading %s objects: %w", kind, err)
		}
	}
	return s.result(), nil
}

// sweeping collects a Sweep.
type sweeping struct {
	hosts map[string]bool
	// written are the revisions of the newest endpoints of hosts.
	written map[string]*int64
	// resourceHosts are hosts that a resource is about.
	resourceHosts map[string]bool
	seed          maphash.Seed
	// inUse are the hashes of the handles of all blocks. Two handles of one hash make an orphan look used, which does no harm.
	inUse      map[uint64]struct{}
	orphans    []Handle
	unreadable bool
	namesPods  bool
}

func newSweeping() *sweeping {
	return &sweeping{hosts: map[string]bool{}, written: map[string]*int64{}, resourceHosts: map[string]bool{}, seed: maphash.MakeSeed(), inUse: map[uint64]struct{}{}}
}

func (s *sweeping) addEndpoint(key string, modified int64) {
	_, name, _ := strings.Cut(strings.TrimPrefix(key, endpointPrefix), "/")
	ids, err := names.ParseWorkloadEndpointName(name)
	if err != nil || ids.Orchestrator != orchestratorKubernetes {
		return
	}
	s.namesPods = true
	if last := s.written[ids.Node]; last != nil {
		*last = max(*last, modified)
		return
	}
	host := strings.Clone(ids.Node)
	s.hosts[host], s.written[host] = true, &modified
}

// orchestratorKubernetes is what Calico's CNI plugin names itself in the key of an endpoint (libcalico-go, apis/v3 OrchestratorKubernetes).
const orchestratorKubernetes = "k8s"

func (s *sweeping) addBlock(value []byte) {
	block, err := sketchBlock(value)
	if err != nil {
		s.unreadable = true
		return
	}
	// A block whose affinity key is gone is found by its own word alone (calico issue 2713).
	if host := block.affineHost(); !block.othersUse(host) {
		s.addHost(host)
	}
	for _, a := range block.Attributes {
		s.namesPods = s.namesPods || a.Owner.Pod != ""
		s.use(a.Handle)
		if a.Owner.ofKubernetes() {
			s.addHost(a.Owner.Node)
		}
	}
}

func (s *sweeping) addHost(name string) {
	if name != "" && !s.hosts[name] {
		s.hosts[strings.Clone(name)] = true
	}
}

// affineHost is the host to which the block says that it is affine, "" for none and for what is not a host's, such as
// load balancers.
func (b blockSketch) affineHost() string {
	if b.Affinity == "" {
		return b.HostAffinity
	}
	host, ok := strings.CutPrefix(b.Affinity, model.IPAMAffinityTypeHost+":")
	if !ok {
		return ""
	}
	return host
}

// othersUse reports that the host has an address in the block which is not Kubernetes': then the block does not show
// that the host was.
func (b blockSketch) othersUse(host string) bool {
	return slices.ContainsFunc(b.Attributes, func(a attributeSketch) bool { return a.Owner.Node == host && !a.Owner.ofKubernetes() })
}

// addResource notes the host that an object is about alone. One that cannot be parsed names nobody here; Hosts says so of the hosts it may concern.
func (s *sweeping) addResource(kind, name string, value []byte) {
	host := configuredHost(name)
	if kind != apiv3.KindFelixConfiguration && kind != apiv3.KindBGPConfiguration {
		var object struct {
			Spec struct {
				Node string `json:"node"`
			} `json:"spec"`
		}
		_ = json.Unmarshal(value, &object)
		host = object.Spec.Node
	}
	if host != "" && !s.resourceHosts[host] {
		s.resourceHosts[host] = true
	}
}

func (s *sweeping) use(handle string) { s.inUse[s.hash(handle)] = struct{}{} }

// hash is that of a handle without what an old Windows CNI plugin left behind its end, be it in the block or in the handle; see handleOf.
func (s *sweeping) hash(handle string) uint64 {
	clean, _, _ := strings.Cut(handle, "\r")
	return maphash.String(s.seed, clean)
}

// addHandle must come after all blocks.
func (s *sweeping) addHandle(id string, revision int64) {
	if _, used := s.inUse[s.hash(id)]; !used {
		s.orphans = append(s.orphans, Handle{ID: id, Revision: revision})
	}
}

func (s *sweeping) result() Sweep {
	delete(s.hosts, "")
	out := Sweep{
		Hosts: slices.Sorted(maps.Keys(s.hosts)), EndpointsWritten: make(map[string]int64, len(s.written)), ResourceHosts: slices.Sorted(maps.Keys(s.resourceHosts)), OrphanedHandles: s.orphans, NamesPods: s.namesPods,
	}
	for host, last := range s.written {
		out.EndpointsWritten[host] = *last
	}
	if s.unreadable {
		out.OrphanedHandles = nil
	}
	slices.SortFunc(out.OrphanedHandles, func(a, b Handle) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// DeleteHandles deletes IPAM handles, all or none, each at its revision. The caller knows that they are orphans; a handle that is taken up
// again is written first, and so is at another revision then.
func (d *Etcd) DeleteHandles(ctx context.Context, handles []Handle) error {
	seen := make(map[string]int64, len(handles))
	ops := make([]clientv3.Op, 0, len(handles))
	for _, h := range handles {
		key, err := handleKey(h.ID)
		if err != nil {
			return fmt.Errorf("deleting IPAM handle %q: %w", h.ID, err)
		}
		seen[key] = h.Revision
		ops = append(ops, clientv3.OpDelete(key))
	}
	if _, err := d.commitReady(ctx, nil, seen, ops...); err != nil {
		return fmt.Errorf("deleting IPAM handles: %w", err)
	}
	return nil
}
