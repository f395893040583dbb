// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/names"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// Where Calico keeps things in etcd (internal/calico/keys.go).
const (
	modelResources   = "/calico/resources/v3/projectcalico.org/"
	modelNodes       = modelResources + "nodes/"
	modelEndpoints   = modelResources + "workloadendpoints/"
	modelInformation = modelResources + "clusterinformations/default"
	modelAffinities  = "/calico/ipam/v2/host/"
	modelBlocks      = "/calico/ipam/v2/assignment/ipv4/block/"
	modelHandles     = "/calico/ipam/v2/handle/"
	modelReports     = "/calico/felix/v2/no-region/host/"
)

// modelWindowsHandle is the handle under which Calico keeps addresses of a block for Windows (libcalico-go, lib/ipam).
const modelWindowsHandle = "windows-reserved-ipam-handle"

// The values of the keys, as far as anybody here reads them.
type (
	modelNode struct {
		UID         string
		OrchRefs    []calico.OrchRef
		Annotations map[string]string
		// Writes counts what calico-node, kube-controllers and people write, so that each write is another value.
		Writes int
	}
	modelEndpoint struct {
		Node, Orchestrator, Pod string
		Address                 netip.Addr
		Handle                  string
	}
	modelAffinity struct{ State string }
	modelBlock    struct {
		CIDR     netip.Prefix
		AffineTo string
		Sequence uint64
		Assigned map[netip.Addr]modelAssignment
	}
	// modelAssignment is an assigned address with its attributes; Of is "pod" or "tunnel" for what Kubernetes or calico-node took.
	modelAssignment struct {
		Handle   string
		Sequence uint64
		Host, Of string
	}
	modelHandle   struct{ Blocks map[netip.Prefix]int }
	modelResource struct {
		Kind, Host string
		Automatic  bool
	}
	modelClusterInformation struct {
		Ready       bool
		Annotations map[string]string
	}
	// modelGarbage cannot be parsed; the hosts are those whose names stand in it.
	modelGarbage struct {
		Hosts []string
		was   any
	}
)

func modelNodeKey(host string) string             { return modelNodes + host }
func modelEndpointKey(ns, name string) string     { return modelEndpoints + ns + "/" + name }
func modelCIDR(cidr netip.Prefix) string          { return strings.Replace(cidr.String(), "/", "-", 1) }
func modelBlockKey(cidr netip.Prefix) string      { return modelBlocks + modelCIDR(cidr) }
func modelHandleKey(id string) string             { return modelHandles + id }
func modelReportKey(host string) string           { return modelReports + host + "/last_reported_status" }
func modelResourceKey(kind, name string) string   { return modelResourcePrefixes()[kind] + name }
func modelAffinityOf(host string) string          { return modelAffinities + host + "/ipv4/block/" }
func (b modelBlock) free(address netip.Addr) bool { _, taken := b.Assigned[address]; return !taken }

// modelEndpointName is the name of a WorkloadEndpoint: dashes are doubled (libcalico-go, lib/names).
func modelEndpointName(host, orchestrator, pod string) string {
	double := func(s string) string { return strings.ReplaceAll(s, "-", "--") }
	return double(host) + "-" + orchestrator + "-" + double(pod) + "-eth0"
}

// modelEndpointHost is the host that the key of a WorkloadEndpoint names.
func modelEndpointHost(key string) string { return modelEndpointIDs(key).Node }

func modelEndpointIDs(key string) names.WorkloadEndpointIdentifiers {
	ids, err := names.ParseWorkloadEndpointName(key[strings.LastIndex(key, "/")+1:])
	if err != nil {
		panic(err)
	}
	return ids
}

func modelAffinityKey(host string, cidr netip.Prefix) string {
	return modelAffinityOf(host) + modelCIDR(cidr)
}

func modelResourcePrefixes() map[string]string {
	return map[string]string{
		"FelixConfiguration": modelResources + "felixconfigurations/", "BGPConfiguration": modelResources + "bgpconfigurations/",
		"HostEndpoint": modelResources + "hostendpoints/", "BGPPeer": modelResources + "bgppeers/",
		"CalicoNodeStatus": modelResources + "caliconodestatuses/",
	}
}

// modelKeyCIDR is the CIDR at the end of a block's or an affinity's key.
func modelKeyCIDR(key string) netip.Prefix {
	return netip.MustParsePrefix(strings.Replace(key[strings.LastIndex(key, "/")+1:], "-", "/", 1))
}

// modelText is a stored value as text: equal values have equal texts.
func modelText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// names reports that a host's name stands somewhere in it.
func (g modelGarbage) names(host string) bool {
	return slices.ContainsFunc(g.Hosts, func(text string) bool { return strings.Contains(text, host) })
}

// empty reports whether a block holds nothing but what Calico reserves for Windows.
func (b modelBlock) empty() bool {
	for _, a := range b.Assigned {
		if !strings.EqualFold(a.Handle, modelWindowsHandle) {
			return false
		}
	}
	return true
}

func (b modelBlock) with(address netip.Addr, a modelAssignment) modelBlock {
	b.Assigned = maps.Clone(b.Assigned)
	b.Assigned[address] = a
	b.Sequence++
	return b
}

func (b modelBlock) without(addresses ...netip.Addr) modelBlock {
	b.Assigned = maps.Clone(b.Assigned)
	for _, address := range addresses {
		delete(b.Assigned, address)
	}
	b.Sequence++
	return b
}

func (h modelHandle) plus(cidr netip.Prefix, n int) modelHandle {
	h.Blocks = maps.Clone(h.Blocks)
	if h.Blocks == nil {
		h.Blocks = map[netip.Prefix]int{}
	}
	if h.Blocks[cidr] += n; h.Blocks[cidr] <= 0 {
		delete(h.Blocks, cidr)
	}
	return h
}

func (n modelNode) annotated(annotation, value string) modelNode {
	n.Annotations = maps.Clone(n.Annotations)
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[annotation] = value
	if value == "" {
		delete(n.Annotations, annotation)
	}
	return n
}

// datastoreModel is the Datastore that calico.Etcd is, over an etcdModel. It MUST refuse what calico.Etcd refuses and accept what it accepts:
// each write compares just the keys that internal/calico/write.go compares, and TestModelOfTheDatastoreIsTrue holds the two against each other.
type datastoreModel struct {
	etcd *etcdModel
	by   string
}

func (d *datastoreModel) Snapshot(context.Context) (calico.Snapshot, error) {
	s := calico.Snapshot{Revision: d.etcd.revision}
	known := map[string]bool{}
	for _, kv := range d.etcd.scan(modelNodes, s.Revision) {
		name := strings.TrimPrefix(kv.key, modelNodes)
		known[name] = true
		node, ok := kv.value.(modelNode)
		if !ok {
			s.Unreadable = append(s.Unreadable, kv.key)
			continue
		}
		s.Nodes = append(s.Nodes, calico.Node{Name: name, Revision: kv.revision, OrchRefs: node.OrchRefs, Annotations: node.Annotations})
	}
	if value, revision := d.etcd.get(modelInformation); value != nil {
		info := value.(modelClusterInformation)
		s.DatastoreReady = info.Ready
		s.ClusterInformation = calico.Annotated{Revision: revision, Annotations: info.Annotations}
	}
	for _, kv := range d.etcd.scan(modelAffinities, s.Revision) {
		host, _, _ := strings.Cut(strings.TrimPrefix(kv.key, modelAffinities), "/")
		if !known[host] {
			known[host] = true
			s.Nodes = append(s.Nodes, calico.Node{Name: host, Implied: true})
		}
	}
	return s, nil
}

func (d *datastoreModel) Hosts(_ context.Context, revision int64, names []string) ([]calico.Host, error) {
	if _, err := d.etcd.list(modelNodes, revision); err != nil {
		return nil, fmt.Errorf("reading Calico Nodes: %w", err)
	}
	hosts := make([]calico.Host, 0, len(names))
	for _, name := range slices.Sorted(slices.Values(names)) {
		hosts = append(hosts, d.host(revision, name))
	}
	return hosts, nil
}

func (d *datastoreModel) host(revision int64, name string) calico.Host {
	h := calico.Host{Host: nodesync.Host{Name: name}}
	keep := func(kv keyValue) {
		h.Objects = append(h.Objects, calico.Object{Key: kv.key, Revision: kv.revision, Value: modelText(kv.value)})
	}
	for _, kv := range d.etcd.scan(modelNodeKey(name), revision) {
		if kv.key == modelNodeKey(name) {
			keep(kv)
		}
	}
	for _, kv := range d.etcd.scan(modelEndpoints, revision) {
		if modelEndpointHost(kv.key) != name {
			continue
		}
		namespace, id, _ := strings.Cut(strings.TrimPrefix(kv.key, modelEndpoints), "/")
		endpoint, ok := kv.value.(modelEndpoint)
		if !ok || endpoint.Node != name {
			h.Unreadable = append(h.Unreadable, kv.key)
			continue
		}
		keep(kv)
		h.Endpoints = append(h.Endpoints, calico.Endpoint{
			Namespace: namespace, Name: id, Revision: kv.revision, Orchestrator: endpoint.Orchestrator, Pod: endpoint.Pod,
		})
	}
	claimed := map[netip.Prefix]bool{}
	for _, kv := range d.etcd.scan(modelAffinityOf(name), revision) {
		affinity, ok := kv.value.(modelAffinity)
		if !ok {
			h.Unreadable = append(h.Unreadable, kv.key)
			continue
		}
		keep(kv)
		cidr := modelKeyCIDR(kv.key)
		claimed[cidr] = true
		h.Affinities = append(h.Affinities, calico.Affinity{CIDR: cidr, Revision: kv.revision, State: affinity.State})
	}
	d.addResources(&h, revision, keep)
	d.addBlocks(&h, revision, claimed)
	return h
}

func (d *datastoreModel) addResources(h *calico.Host, revision int64, keep func(keyValue)) {
	for kind, prefix := range modelResourcePrefixes() {
		for _, kv := range d.etcd.scan(prefix, revision) {
			name := strings.TrimPrefix(kv.key, prefix)
			switch value := kv.value.(type) {
			case modelGarbage:
				if name == "node."+h.Name || value.names(h.Name) {
					h.Unreadable = append(h.Unreadable, kv.key)
				}
			case modelResource:
				if value.Host == h.Name {
					keep(kv)
					h.Resources = append(h.Resources, calico.Resource{Kind: nodesync.ResourceKind(kind), Name: name, Revision: kv.revision, Automatic: value.Automatic})
				}
			}
		}
	}
}

func (d *datastoreModel) addBlocks(h *calico.Host, revision int64, claimed map[netip.Prefix]bool) {
	for _, kv := range d.etcd.scan(modelBlocks, revision) {
		cidr := modelKeyCIDR(kv.key)
		switch value := kv.value.(type) {
		case modelGarbage:
			if claimed[cidr] || value.names(h.Name) {
				h.Unreadable = append(h.Unreadable, kv.key)
			}
		case modelBlock:
			concerned := claimed[cidr] || value.AffineTo == h.Name
			block := nodesync.Block{CIDR: cidr, AffineTo: value.AffineTo}
			for _, address := range slices.SortedFunc(maps.Keys(value.Assigned), netip.Addr.Compare) {
				a := value.Assigned[address]
				concerned = concerned || a.Host == h.Name
				block.Allocations = append(block.Allocations, nodesync.Allocation{Address: address, Handle: a.Handle, Sequence: a.Sequence, Host: a.Host})
			}
			if concerned {
				h.Blocks = append(h.Blocks, block)
			}
		}
	}
}

// guarded is the comparison that every destructive write makes, with those of its own.
func guarded(guard calico.Guard, seen map[string]int64) (map[string]int64, error) {
	if guard.Host == "" {
		return nil, errors.New("a destructive write needs the name of its Calico Node")
	}
	expected := maps.Clone(seen)
	if expected == nil {
		expected = map[string]int64{}
	}
	expected[modelNodeKey(guard.Host)] = guard.Revision
	return expected, nil
}

func (d *datastoreModel) guardedCommit(guard calico.Guard, seen map[string]int64, puts map[string]any) error {
	expected, err := guarded(guard, seen)
	if err == nil {
		err = d.unlocked()
	}
	if err == nil {
		_, err = d.etcd.commit(d.by, expected, puts)
	}
	return err
}

// unlocked is a conflict while the datastore is locked.
func (d *datastoreModel) unlocked() error {
	if info, _ := d.etcd.get(modelInformation); !info.(modelClusterInformation).Ready {
		return &calico.ConflictError{Key: modelInformation, Detail: "the datastore is locked"}
	}
	return nil
}

func (d *datastoreModel) AnnotateNode(_ context.Context, name string, revision int64, annotation, value string) (int64, error) {
	key := modelNodeKey(name)
	found, at := d.etcd.get(key)
	if at != revision || at == 0 {
		return 0, &calico.ConflictError{Key: key, Detail: fmt.Sprintf("it is at revision %d, not %d", at, revision)}
	}
	node, ok := found.(modelNode)
	if !ok {
		return 0, fmt.Errorf("annotating %s: it cannot be parsed", key)
	}
	if err := d.unlocked(); err != nil {
		return 0, err
	}
	return d.etcd.commit(d.by, map[string]int64{key: revision}, map[string]any{key: node.annotated(annotation, value)})
}

func (d *datastoreModel) AnnotateClusterInformation(_ context.Context, revision int64, annotation, value string) error {
	found, at := d.etcd.get(modelInformation)
	if at != revision || at == 0 {
		return &calico.ConflictError{Key: modelInformation, Detail: fmt.Sprintf("it is at revision %d, not %d", at, revision)}
	}
	info := found.(modelClusterInformation)
	info.Annotations = modelNode{Annotations: info.Annotations}.annotated(annotation, value).Annotations
	_, err := d.etcd.commit(d.by, map[string]int64{modelInformation: revision}, map[string]any{modelInformation: info})
	return err
}

func (d *datastoreModel) DeleteEndpoints(_ context.Context, guard calico.Guard, endpoints []calico.EndpointRef) error {
	seen, puts := map[string]int64{}, map[string]any{}
	for _, e := range endpoints {
		key := modelEndpointKey(e.Namespace, e.Name)
		seen[key], puts[key] = e.Revision, nil
	}
	return d.guardedCommit(guard, seen, puts)
}

func (d *datastoreModel) DeleteResource(_ context.Context, guard calico.Guard, kind, name string, revision int64) error {
	if modelResourcePrefixes()[kind] == "" {
		return fmt.Errorf("objects of kind %s are never deleted", kind)
	}
	key := modelResourceKey(kind, name)
	return d.guardedCommit(guard, map[string]int64{key: revision}, map[string]any{key: nil})
}

func (d *datastoreModel) DeleteNode(_ context.Context, guard calico.Guard) error {
	if guard.Revision == 0 {
		return errors.New("deleting a Calico Node needs the revision at which it was seen")
	}
	return d.guardedCommit(guard, nil, map[string]any{modelNodeKey(guard.Host): nil})
}

func (d *datastoreModel) ReleaseAddresses(_ context.Context, guard calico.Guard, cidr netip.Prefix, assignments []calico.Assignment) error {
	key := modelBlockKey(cidr)
	value, revision := d.etcd.get(key)
	if value == nil {
		return &calico.ConflictError{Key: key, Detail: "it is absent"}
	}
	block, ok := value.(modelBlock)
	if !ok {
		return fmt.Errorf("parsing %s: it cannot be parsed", key)
	}
	lost, addresses := map[string]int{}, make([]netip.Addr, 0, len(assignments))
	for _, a := range assignments {
		now, assigned := block.Assigned[a.Address]
		moved := now.Host != "" && now.Host != guard.Host
		if !assigned || now.Handle != a.Handle || now.Sequence != a.Sequence || moved || slices.Contains(addresses, a.Address) {
			return &calico.ConflictError{Key: key, Detail: fmt.Sprintf("address %s is not the assignment that was seen", a.Address)}
		}
		lost[a.Handle]++
		addresses = append(addresses, a.Address)
	}
	seen, puts := map[string]int64{key: revision}, map[string]any{key: block.without(addresses...)}
	for id, n := range lost {
		value, revision := d.etcd.get(modelHandleKey(id))
		seen[modelHandleKey(id)] = revision
		if value == nil {
			continue
		}
		handle := value.(modelHandle).plus(cidr, -n)
		puts[modelHandleKey(id)] = handle
		if len(handle.Blocks) == 0 {
			puts[modelHandleKey(id)] = nil
		}
	}
	return d.guardedCommit(guard, seen, puts)
}

func (d *datastoreModel) DeleteAffinity(_ context.Context, guard calico.Guard, cidr netip.Prefix, revision int64, deleteBlock bool) error {
	key, affinity := modelBlockKey(cidr), modelAffinityKey(guard.Host, cidr)
	value, blockRevision := d.etcd.get(key)
	block, ok := value.(modelBlock)
	if value != nil && !ok {
		return fmt.Errorf("parsing %s: it cannot be parsed", key)
	}
	affine := value != nil && block.AffineTo == guard.Host
	puts := map[string]any{}
	if revision != 0 {
		puts[affinity] = nil
	}
	switch {
	case deleteBlock && !affine:
		return &calico.ConflictError{Key: key, Detail: "it is not affine to " + guard.Host}
	case deleteBlock && !block.empty():
		return &calico.ConflictError{Key: key, Detail: "it is in use"}
	case deleteBlock:
		puts[key] = nil
	case affine:
		return &calico.ConflictError{Key: key, Detail: "it is affine to " + guard.Host}
	}
	return d.guardedCommit(guard, map[string]int64{affinity: revision, key: blockRevision}, puts)
}

func (d *datastoreModel) Sweep(_ context.Context, revision int64) (calico.Sweep, error) {
	endpoints, err := d.etcd.list(modelEndpoints, revision)
	if err != nil {
		return calico.Sweep{}, fmt.Errorf("reading the keys of workload endpoints: %w", err)
	}
	hosts, used, unreadable, namesPods := map[string]bool{}, map[string]bool{}, false, false
	written := map[string]int64{}
	for _, kv := range endpoints {
		if ids := modelEndpointIDs(kv.key); ids.Orchestrator == "k8s" {
			hosts[ids.Node], namesPods = true, true
			written[ids.Node] = max(written[ids.Node], kv.revision)
		}
	}
	for _, kv := range d.etcd.scan(modelBlocks, revision) {
		block, ok := kv.value.(modelBlock)
		unreadable = unreadable || !ok
		others := false // have an address of the host there
		for _, a := range block.Assigned {
			used[a.Handle], namesPods = true, namesPods || a.Of == "pod"
			if a.Of != "" {
				hosts[a.Host] = true
			}
			others = others || a.Of == "" && a.Host == block.AffineTo
		}
		if !others && !strings.HasPrefix(block.AffineTo, "virtual:") {
			hosts[block.AffineTo] = true
		}
	}
	delete(hosts, "")
	sweep := calico.Sweep{Hosts: slices.Sorted(maps.Keys(hosts)), EndpointsWritten: written, ResourceHosts: d.resourceHosts(revision), NamesPods: namesPods}
	for _, kv := range d.etcd.scan(modelHandles, revision) {
		if id := strings.TrimPrefix(kv.key, modelHandles); !used[id] && !unreadable {
			sweep.OrphanedHandles = append(sweep.OrphanedHandles, calico.Handle{ID: id, Revision: kv.revision})
		}
	}
	return sweep, nil
}

// resourceHosts are the hosts that a resource is about.
func (d *datastoreModel) resourceHosts(revision int64) []string {
	hosts := map[string]bool{}
	for kind, prefix := range modelResourcePrefixes() {
		byName := kind == "FelixConfiguration" || kind == "BGPConfiguration" // whatever the value is
		for _, kv := range d.etcd.scan(prefix, revision) {
			r, readable := kv.value.(modelResource)
			host, ofHost := strings.CutPrefix(strings.TrimPrefix(kv.key, prefix), "node.")
			switch {
			case readable && r.Host != "":
				hosts[r.Host] = true
			case !readable && byName && ofHost:
				hosts[host] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

func (d *datastoreModel) Reports(_ context.Context, revision int64, hosts []string) ([]calico.Report, error) {
	var reports []calico.Report
	for _, host := range hosts {
		for _, kv := range d.etcd.scan(modelReportKey(host), revision) {
			reports = append(reports, calico.Report{Host: host, Revision: kv.revision})
		}
	}
	return reports, nil
}

func (d *datastoreModel) DeleteHandles(_ context.Context, handles []calico.Handle) error {
	seen, puts := map[string]int64{}, map[string]any{}
	for _, h := range handles {
		seen[modelHandleKey(h.ID)], puts[modelHandleKey(h.ID)] = h.Revision, nil
	}
	if len(seen) == 0 {
		return errors.New("a write without a comparison is not allowed")
	}
	if err := d.unlocked(); err != nil {
		return err
	}
	_, err := d.etcd.commit(d.by, seen, puts)
	return err
}
