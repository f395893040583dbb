// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// universe is everything outside of the controllers: Calico's etcd, the cluster it belongs to, a cluster it does not belong to, the machines
// with their calico-nodes and pods, and time. What happens in it is by the rules of those programs; nothing in it asks what the controller
// would like.
type universe struct {
	etcd     *etcdModel
	api      *apiModel
	foreign  *apiModel
	clock    *clocktesting.FakeClock
	age      time.Duration // how far the clock has gone forward, in all: it is never set back
	machines []*modelMachine
	config   nodesync.Config
	serial   int // for names that occur once
	sequence uint64
	pool     []netip.Prefix
	// sandboxes are those of pods, by the handles of their addresses.
	sandboxes map[string]modelSandbox
	// stopAfter is how many more writes a dying machine makes; below 0 for all.
	stopAfter int
}

// modelMachine is one machine, which may come and go under its names again and again.
type modelMachine struct {
	host, kube string
	identity   identity
	up         bool // it runs, so that its kubelet and calico-node may do things
	wireguard  bool // it takes a tunnel address
	// pinned: only its running pods show that it lives, so nothing happens to it and them until its calico-node starts.
	pinned bool
}

// identity is what calico-node writes about a machine's orchestrators.
type identity string

const (
	byReference  identity = "an orchRef that names its Kubernetes Node"
	unreferenced identity = "no orchRef, although it is a Kubernetes Node"
	elsewhere    identity = "another orchestrator"
	inBoth       identity = "Kubernetes and another orchestrator"
	bare         identity = "no orchestrator at all"
)

// modelStart is when every universe begins.
var modelStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newUniverse(blocks int) *universe {
	u := &universe{
		etcd: newEtcdModel(), api: newAPIModel("uid-of-the-cluster"), foreign: newAPIModel("uid-of-another-cluster"),
		clock: clocktesting.NewFakeClock(modelStart), sequence: 1_000, stopAfter: -1, sandboxes: map[string]modelSandbox{},
	}
	u.api.now, u.foreign.now = u.clock.Now, u.clock.Now
	for i := range blocks {
		u.pool = append(u.pool, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 30))
	}
	u.etcd.put("calico", modelInformation, modelClusterInformation{Ready: true})
	return u
}

// clone is a universe that goes on from here on its own. The controllers do not come along.
func (u *universe) clone() *universe {
	c := *u
	c.etcd, c.api, c.foreign = u.etcd.clone(), u.api.clone(), u.foreign.clone()
	c.clock = clocktesting.NewFakeClock(u.clock.Now())
	c.api.now, c.foreign.now, c.sandboxes = c.clock.Now, c.clock.Now, maps.Clone(u.sandboxes)
	c.machines = make([]*modelMachine, len(u.machines))
	for i, m := range u.machines {
		copied := *m
		c.machines[i] = &copied
	}
	return &c
}

// pass lets time pass.
func (u *universe) pass(d time.Duration) {
	u.clock.Step(d)
	u.age += max(d, 0)
	u.kubeletsWork(max(d, 0))
}

func (u *universe) next() int { u.serial++; return u.serial }

func (u *universe) exists(m *modelMachine) bool { return u.api.nodes[m.kube] != "" }

func (u *universe) machineOf(host string) *modelMachine {
	i := slices.IndexFunc(u.machines, func(m *modelMachine) bool { return m.host == host })
	if i < 0 {
		return nil
	}
	return u.machines[i]
}

// at is a machine by its number, nil for none.
func (u *universe) at(i int) *modelMachine {
	if i < 0 {
		return nil
	}
	return u.machines[i]
}

// write is a write of a program on a machine, unless the machine has died before it.
func (u *universe) write(by, key string, value any) {
	if u.stopAfter == 0 {
		return
	}
	u.stopAfter--
	u.etcd.put(by, key, value)
}

// startsCalicoNode is what calico-node does when it starts: it writes its Node, always, and keeps what it does not know in it; it writes a
// FelixConfiguration if it has none, and takes a tunnel address if it has none (node/pkg/lifecycle/startup, node/pkg/allocateip).
func (u *universe) startsCalicoNode(m *modelMachine) {
	value, _ := u.etcd.get(modelNodeKey(m.host))
	node, ok := value.(modelNode)
	if !ok {
		node = modelNode{UID: fmt.Sprintf("calico-%d", u.next())}
	}
	m.pinned = false
	node.OrchRefs = m.orchRefs()
	node.Writes++
	u.write("calico-node", modelNodeKey(m.host), node)
	felix := modelResourceKey("FelixConfiguration", "node."+m.host)
	if value, _ := u.etcd.get(felix); value == nil {
		u.write("calico-node", felix, modelResource{Kind: "FelixConfiguration", Host: m.host, Automatic: true})
	}
	if m.wireguard {
		u.assign(m, "ipip-tunnel-addr-"+m.host)
	}
}

func (m *modelMachine) orchRefs() []calico.OrchRef {
	switch m.identity {
	case byReference:
		return []calico.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: m.kube}}
	case elsewhere:
		return []calico.OrchRef{{Orchestrator: "openstack", NodeName: m.kube}}
	case inBoth:
		return []calico.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: m.kube}, {Orchestrator: "openstack", NodeName: m.host}}
	default:
		return nil
	}
}

// editsNode is kube-controllers' label sync, or a person: a read-modify-write that keeps the rest.
func (u *universe) editsNode(host string, edit func(modelNode) modelNode) bool {
	value, _ := u.etcd.get(modelNodeKey(host))
	node, ok := value.(modelNode)
	if !ok {
		return false
	}
	node = edit(node)
	node.Writes++
	u.write("an editor", modelNodeKey(host), node)
	return true
}

// runsPods reports that pods may start on a machine. The CNI plugin works before calico-node has started, on a machine that was one before and has
// kept its disk. Where the machine's names differ that is left out: without a Calico Node nothing shows whose the host is, and a controller may
// take what a CNI plugin has begun for a leftover.
func (u *universe) runsPods(m *modelMachine) bool {
	value, _ := u.etcd.get(modelNodeKey(m.host))
	return u.exists(m) && (value != nil || slices.Contains(u.spellings(m.kube), m.host))
}

// startsPod schedules a pod and connects it: the CNI plugin takes an address and writes the endpoint.
func (u *universe) startsPod(m *modelMachine) {
	if !u.runsPods(m) {
		return
	}
	name := fmt.Sprintf("pod-%d", u.next())
	handle := fmt.Sprintf("k8s-pod-network.%s", name)
	endpoint := modelEndpointKey("ns", modelEndpointName(m.host, "k8s", name))
	u.api.pods[name] = modelPod{node: m.kube, phase: "Pending"}
	address, ok := u.assign(m, handle)
	if !ok {
		return
	}
	u.write("cni", endpoint, modelEndpoint{Node: m.host, Orchestrator: "k8s", Pod: name, Address: address, Handle: handle})
	if u.stopAfter != 0 {
		u.api.pods[name] = modelPod{node: m.kube, phase: "Running", address: address.String(), handle: handle, endpoint: endpoint}
		u.runsSandbox(m, name, handle, endpoint)
	}
}

// stopsPod removes a pod in order.
func (u *universe) stopsPod(name string) {
	pod := u.api.pods[name]
	delete(u.api.pods, name)
	if pod.handle == "" {
		return
	}
	delete(u.sandboxes, pod.handle)
	u.releaseHandle("cni", pod.handle)
	u.write("cni", pod.endpoint, nil)
}

// collectsPods is pod garbage collection: it deletes pods whose Node is gone.
func (u *universe) collectsPods() {
	maps.DeleteFunc(u.api.pods, func(_ string, p modelPod) bool { return u.api.nodes[p.node] == "" })
}

// releaseHandle releases all addresses of a handle, as libcalico-go does: first the blocks, then the handle.
func (u *universe) releaseHandle(by, handle string) {
	u.releases(by, func(a modelAssignment) bool { return a.Handle == handle })
}

// releases gives back the addresses of which wanted is true, one after the other.
func (u *universe) releases(by string, wanted func(modelAssignment) bool) {
	for _, kv := range u.etcd.scan(modelBlocks, u.etcd.revision) {
		block, _ := kv.value.(modelBlock)
		for _, address := range slices.SortedFunc(maps.Keys(block.Assigned), netip.Addr.Compare) {
			if a := block.Assigned[address]; wanted(a) {
				block = block.without(address)
				u.write(by, kv.key, block)
				u.counts(by, a.Handle, block.CIDR, -1)
			}
		}
	}
}

// assigned are the addresses of which wanted is true at a revision, in their order.
func (u *universe) assigned(revision int64, wanted func(modelBlock, netip.Addr, modelAssignment) bool) (out []netip.Addr) {
	for _, kv := range u.etcd.scan(modelBlocks, revision) {
		block, _ := kv.value.(modelBlock)
		for _, address := range slices.SortedFunc(maps.Keys(block.Assigned), netip.Addr.Compare) {
			if wanted(block, address, block.Assigned[address]) {
				out = append(out, address)
			}
		}
	}
	return out
}

// counts is one count of a handle more or less.
func (u *universe) counts(by, handle string, cidr netip.Prefix, n int) {
	value, _ := u.etcd.get(modelHandleKey(handle))
	h, _ := value.(modelHandle)
	if h = h.plus(cidr, n); len(h.Blocks) == 0 {
		u.write(by, modelHandleKey(handle), nil)
		return
	}
	u.write(by, modelHandleKey(handle), h)
}

// assign takes an address for the machine: from its own blocks, else from a block that it claims, else from anybody's (libcalico-go, lib/ipam).
// What a handle has already stays as it is.
func (u *universe) assign(m *modelMachine, handle string) (netip.Addr, bool) {
	if value, _ := u.etcd.get(modelHandleKey(handle)); value != nil {
		held := u.assigned(u.etcd.revision, func(_ modelBlock, _ netip.Addr, a modelAssignment) bool { return a.Handle == handle })
		if len(held) > 0 {
			return held[0], true
		}
	}
	block, address, ok := u.room(m)
	if !ok {
		return address, false
	}
	u.counts("ipam", handle, block.CIDR, 1)
	u.write("ipam", modelBlockKey(block.CIDR), block.with(address, m.assignment(handle, block)))
	return address, true
}

func (m *modelMachine) assignment(handle string, block modelBlock) modelAssignment {
	of := "pod"
	if strings.HasPrefix(handle, "ipip") {
		of = "tunnel"
	}
	return modelAssignment{Handle: handle, Sequence: block.Sequence, Host: m.host, Of: of}
}

func (u *universe) room(m *modelMachine) (modelBlock, netip.Addr, bool) {
	for _, kv := range u.etcd.scan(modelAffinityOf(m.host), u.etcd.revision) {
		if block, ok := u.ownBlock(m, modelKeyCIDR(kv.key)); ok {
			if address, ok := block.firstFree(); ok {
				return block, address, true
			}
		}
	}
	for _, cidr := range u.pool {
		if value, _ := u.etcd.get(modelBlockKey(cidr)); value == nil {
			u.write("ipam", modelAffinityKey(m.host, cidr), modelAffinity{State: "pending"})
			block, ok := u.ownBlock(m, cidr)
			address, free := block.firstFree()
			return block, address, ok && free
		}
	}
	for _, kv := range u.etcd.scan(modelBlocks, u.etcd.revision) {
		if block, ok := kv.value.(modelBlock); ok && !strings.HasPrefix(block.AffineTo, "virtual:") {
			if address, free := block.firstFree(); free {
				return block, address, true
			}
		}
	}
	return modelBlock{}, netip.Addr{}, false
}

// ownBlock is the block of an affinity of the machine; it is made if there is none, and the affinity is given up if it is somebody else's.
func (u *universe) ownBlock(m *modelMachine, cidr netip.Prefix) (modelBlock, bool) {
	value, _ := u.etcd.get(modelBlockKey(cidr))
	block, ok := value.(modelBlock)
	switch {
	case value != nil && !ok:
		return block, false
	case value != nil && block.AffineTo != m.host:
		u.write("ipam", modelAffinityKey(m.host, cidr), nil)
		return block, false
	case value == nil:
		u.sequence += 1_000 // libcalico-go begins with the time
		block = modelBlock{CIDR: cidr, AffineTo: m.host, Sequence: u.sequence, Assigned: map[netip.Addr]modelAssignment{}}
		u.write("ipam", modelBlockKey(cidr), block)
	}
	if affinity, _ := u.etcd.get(modelAffinityKey(m.host, cidr)); affinity != (modelAffinity{State: "confirmed"}) {
		u.write("ipam", modelAffinityKey(m.host, cidr), modelAffinity{State: "confirmed"})
	}
	value, _ = u.etcd.get(modelBlockKey(cidr))
	block, ok = value.(modelBlock)
	return block, ok
}

func (b modelBlock) firstFree() (netip.Addr, bool) {
	for address := b.CIDR.Addr(); b.CIDR.Contains(address); address = address.Next() {
		if b.free(address) {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// leaves is a machine that is gone: its Kubernetes Node is deleted. Its pods may stay in Kubernetes for a while.
func (u *universe) leaves(m *modelMachine) {
	if m.pinned {
		return
	}
	m.up = false
	maps.DeleteFunc(u.sandboxes, func(_ string, s modelSandbox) bool { return s.host == m.host })
	if u.exists(m) {
		u.api.deleteNode(m.kube)
	}
}

// registers is the kubelet of a machine that runs.
func (u *universe) registers(m *modelMachine) {
	m.up = true
	if !u.exists(m) && m.identity != bare && m.identity != elsewhere {
		u.api.createNode(m.kube)
	}
}

// runsAny reports that a pod in phase Running is bound to a Node of that name.
func (u *universe) runsAny(node string) bool {
	for _, pod := range u.api.pods {
		if pod.node == node && pod.phase == "Running" {
			return true
		}
	}
	return false
}

// movesAddress is a dead machine's address that somebody releases, with its endpoint left behind, and that a pod of another machine then gets.
func (u *universe) movesAddress(from, to *modelMachine) bool {
	for _, kv := range u.etcd.scan(modelBlocks, u.etcd.revision) {
		block, _ := kv.value.(modelBlock)
		for _, address := range slices.SortedFunc(maps.Keys(block.Assigned), netip.Addr.Compare) {
			if a := block.Assigned[address]; a.Host == from.host && a.Handle != "" {
				block = block.without(address)
				u.write("ipam gc", kv.key, block)
				u.counts("ipam gc", a.Handle, block.CIDR, -1)
				u.takes(to, block, address)
				return true
			}
		}
	}
	return false
}

// borrows is a pod of a machine that gets an address from a block of another, as happens when no block is left to claim.
func (u *universe) borrows(from, to *modelMachine) bool {
	for _, kv := range u.etcd.scan(modelBlocks, u.etcd.revision) {
		block, _ := kv.value.(modelBlock)
		if address, free := block.firstFree(); free && block.AffineTo == from.host {
			u.takes(to, block, address)
			return true
		}
	}
	return false
}

// takes connects a new pod of a machine with an address that is free.
func (u *universe) takes(to *modelMachine, block modelBlock, address netip.Addr) {
	name := fmt.Sprintf("pod-%d", u.next())
	handle := "k8s-pod-network." + name
	u.counts("ipam", handle, block.CIDR, 1)
	u.write("ipam", modelBlockKey(block.CIDR), block.with(address, to.assignment(handle, block)))
	endpoint := modelEndpointKey("ns", modelEndpointName(to.host, "k8s", name))
	u.write("cni", endpoint, modelEndpoint{Node: to.host, Orchestrator: "k8s", Pod: name, Address: address, Handle: handle})
	u.api.pods[name] = modelPod{node: to.kube, phase: "Running", address: address.String(), handle: handle, endpoint: endpoint}
	u.runsSandbox(to, name, handle, endpoint)
}

// renewsTunnel is a machine that gives its tunnel address back and takes one again, most often the same, under the same handle: calico-node
// does so while it runs, and writes its Node only afterwards (node/pkg/allocateip).
func (u *universe) renewsTunnel(m *modelMachine) {
	handle := "ipip-tunnel-addr-" + m.host
	held, _ := u.etcd.get(modelHandleKey(handle))
	if node, _ := u.etcd.get(modelNodeKey(m.host)); held == nil || node == nil {
		return
	}
	u.releaseHandle("calico-node", handle)
	u.assign(m, handle)
}

// leftAddress reports that a host holds an address that can be released.
func (u *universe) leftAddress(host string) bool {
	return slices.ContainsFunc(u.left(host), func(what string) bool { return strings.HasPrefix(what, "address ") })
}

// leftovers are the keys that are about a host alone, but its Node, in the order in which a cleaner takes them.
func (u *universe) leftovers(host string) []string {
	var keys []string
	for _, kv := range u.etcd.scan(modelEndpoints, u.etcd.revision) {
		if modelEndpointHost(kv.key) == host {
			keys = append(keys, kv.key)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(modelResourcePrefixes())) {
		for _, kv := range u.etcd.scan(modelResourcePrefixes()[kind], u.etcd.revision) {
			if r, ok := kv.value.(modelResource); ok && r.Host == host {
				keys = append(keys, kv.key)
			}
		}
	}
	for _, kv := range u.etcd.scan(modelAffinityOf(host), u.etcd.revision) {
		keys = append(keys, kv.key)
	}
	return keys
}

// otherCleaner is Calico's kube-controllers, which removes what a dead machine left, without any guard, and is stopped halfway.
func (u *universe) otherCleaner(m *modelMachine, writes int, nodeFirst bool) {
	u.stopAfter = writes
	defer func() { u.stopAfter = -1 }()
	if nodeFirst {
		u.write("kube-controllers", modelNodeKey(m.host), nil)
	}
	u.releases("kube-controllers", func(a modelAssignment) bool { return a.Host == m.host && a.Handle != "" })
	for _, key := range u.leftovers(m.host) {
		if cidr, ok := strings.CutPrefix(key, modelAffinityOf(m.host)); ok {
			value, _ := u.etcd.get(modelBlocks + cidr)
			if block, ok := value.(modelBlock); ok && block.AffineTo == m.host {
				if !block.empty() {
					continue
				}
				u.write("kube-controllers", modelBlocks+cidr, nil)
			}
		}
		u.write("kube-controllers", key, nil)
	}
	u.write("kube-controllers", modelNodeKey(m.host), nil)
}
