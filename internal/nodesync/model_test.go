// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// model is both sides in memory: what a plan is made from, and what its steps do. Its rules are those of the real writer: a step that no
// longer applies is an error and changes nothing.
type model struct {
	kubernetes map[string]bool
	running    map[string]int
	nodes      map[string]CalicoNode
	endpoints  map[string][]Endpoint
	blocks     map[netip.Prefix]Block
	affinities map[string][]Affinity
	resources  map[string][]Resource
	unreadable map[string]bool // hosts with a value that cannot be parsed
	sightings  map[string]bool
	bound      string // the cluster that is recorded
	// podAddresses are running pods by their address.
	podAddresses map[netip.Addr]string
	orphans      map[string]bool // hosts that were drawn without a Node
	renaming     bool            // Calico Nodes may have other names than their Kubernetes Nodes
	cooldown     time.Duration   // IPAMConfig's ipCooldownSeconds
	now          time.Time       // the time of what was observed last
	revision     int64
}

func (m *model) clone() *model {
	c := *m
	c.kubernetes, c.running, c.nodes = maps.Clone(m.kubernetes), maps.Clone(m.running), maps.Clone(m.nodes)
	c.endpoints, c.affinities, c.blocks = cloneLists(m.endpoints), cloneLists(m.affinities), maps.Clone(m.blocks)
	c.resources, c.unreadable, c.sightings = cloneLists(m.resources), maps.Clone(m.unreadable), maps.Clone(m.sightings)
	return &c
}

func cloneLists[T any](in map[string][]T) map[string][]T {
	out := make(map[string][]T, len(in))
	for k, v := range in {
		out[k] = slices.Clone(v)
	}
	return out
}

// observe is the World at a time: everything, in the order of nothing.
func (m *model) observe(now time.Time, memory Memory) World {
	m.now = now
	w := World{Now: now, Memory: memory, Kubernetes: Kubernetes{Synced: true, ClusterUID: "cluster"},
		Calico: Calico{Ready: true, Binding: Binding{ClusterUID: m.bound, Revision: 1}}}
	for name := range m.kubernetes {
		w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: name, UID: "uid-" + name})
	}
	for name := range m.sightings {
		w.Sightings = append(w.Sightings, Sighting{Node: name, UID: "uid-" + name})
	}
	for address, pod := range m.podAddresses {
		w.Kubernetes.PodAddresses = append(w.Kubernetes.PodAddresses, PodAddress{Address: address, Pod: pod})
	}
	for _, a := range memory.Absences {
		w.lookUp(m, a.KubernetesNode)
	}
	for _, host := range names {
		if _, ok := m.nodes[host]; !ok && m.leadsTo(host) {
			w.Calico.Nodes = append(w.Calico.Nodes, CalicoNode{Name: host, Implied: true})
			w.Calico.Hosts = append(w.Calico.Hosts, m.host(host))
			w.lookUp(m, host)
		}
	}
	for host, n := range m.nodes {
		w.Calico.Nodes = append(w.Calico.Nodes, n)
		w.Calico.Hosts = append(w.Calico.Hosts, m.host(host))
		for _, ref := range n.OrchRefs {
			w.lookUp(m, ref.NodeName)
		}
	}
	return w
}

// lookUp adds live reads of a Kubernetes Node and of the pods there.
func (w *World) lookUp(m *model, node string) {
	verdict := VerdictGone
	if m.kubernetes[node] {
		verdict = VerdictAlive
	}
	w.Kubernetes.Lookups = append(w.Kubernetes.Lookups, Lookup{Node: node, Verdict: verdict})
	w.Kubernetes.RunningPods = append(w.Kubernetes.RunningPods, RunningPods{Node: node, Count: m.running[node], Example: "ns/pod"})
}

// leadsTo reports that something leads to a host without a Node: an affinity, or a block that is affine to it, as a sweep
// finds it.
func (m *model) leadsTo(host string) bool {
	return len(m.affinities[host]) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(m.blocks)), func(b Block) bool { return b.AffineTo == host })
}

func (m *model) host(name string) Host {
	h := Host{Name: name, Endpoints: m.endpoints[name], Affinities: m.affinities[name], Resources: m.resources[name], IPCooldown: m.cooldown}
	if m.unreadable[name] {
		h.Unreadable = []string{"/calico/" + name}
	}
	for _, cidr := range slices.SortedFunc(maps.Keys(m.blocks), comparePrefix) {
		b := m.blocks[cidr]
		claimed := slices.ContainsFunc(m.affinities[name], func(a Affinity) bool { return a.CIDR == cidr })
		holds := slices.ContainsFunc(b.Allocations, func(a Allocation) bool { return a.Host == name })
		if claimed || holds || b.AffineTo == name {
			h.Blocks = append(h.Blocks, b)
		}
	}
	return h
}

// apply does what the writer does; guards maps hosts to the revision that their Node must be at.
func (m *model) apply(step Step, guards map[string]int64) error {
	of := step.Subject()
	if of == (Subject{}) {
		return m.applyToDatastore(step)
	}
	node, exists := m.nodes[of.Host]
	if guards[of.Host] == 0 && exists {
		return fmt.Errorf("%s: there is a Node", step)
	}
	if _, fence := step.(Fence); (!exists && guards[of.Host] != 0) || (!fence && node.Revision != guards[of.Host]) {
		return fmt.Errorf("%s: the Node has changed", step)
	}
	if _, unfence := step.(Unfence); !unfence && m.kubernetes[of.KubernetesNode] {
		return fmt.Errorf("%s: the machine is alive", step)
	}
	m.revision++
	switch s := step.(type) {
	case BindCluster, RemoveHandles, RemoveLeftovers:
		return fmt.Errorf("%s: it is not about a machine that is gone", step)
	case Fence:
		return m.annotate(node, s.Revision, of.KubernetesNode, guards)
	case Unfence:
		return m.annotate(node, s.Revision, "", guards)
	case RemoveEndpoints:
		return m.removeEndpoints(s)
	case ReleaseAddresses:
		return m.release(s)
	case RemoveAffinity:
		return m.removeAffinity(s)
	case RemoveResource:
		before := len(m.resources[of.Host])
		m.resources[of.Host] = slices.DeleteFunc(slices.Clone(m.resources[of.Host]), func(r Resource) bool {
			return r.Kind == s.Kind && r.Name == s.Name && r.Revision == s.Revision
		})
		if len(m.resources[of.Host]) == before {
			return fmt.Errorf("%s: it has changed", step)
		}
	case RemoveNode:
		delete(m.nodes, of.Host)
	}
	return nil
}

// applyToDatastore applies a step that is about no machine.
func (m *model) applyToDatastore(step Step) error {
	bind, ok := step.(BindCluster)
	if !ok {
		return fmt.Errorf("%s: it is about no machine", step)
	}
	m.bound = bind.ClusterUID
	return nil
}

func (m *model) annotate(node CalicoNode, revision int64, value string, guards map[string]int64) error {
	if node.Revision != revision {
		return fmt.Errorf("Node %s is at %d, not %d", node.Name, node.Revision, revision)
	}
	node.FencedFor, node.Revision = value, m.revision
	m.nodes[node.Name] = node
	guards[node.Name] = node.Revision
	return nil
}

func (m *model) removeEndpoints(s RemoveEndpoints) error {
	left := slices.Clone(m.endpoints[s.Of.Host])
	for _, ref := range s.Endpoints {
		i := slices.IndexFunc(left, func(e Endpoint) bool {
			return e.Namespace == ref.Namespace && e.Name == ref.Name && e.Revision == ref.Revision
		})
		if i < 0 {
			return fmt.Errorf("endpoint %v has changed", ref)
		}
		left = slices.Delete(left, i, i+1)
	}
	m.endpoints[s.Of.Host] = left
	return nil
}

func (m *model) release(s ReleaseAddresses) error {
	b, ok := m.blocks[s.Block]
	if !ok {
		return fmt.Errorf("block %s is absent", s.Block)
	}
	left := slices.Clone(b.Allocations)
	for _, r := range s.Addresses {
		i := slices.IndexFunc(left, func(a Allocation) bool {
			return a.Address == r.Address && a.Handle == r.Handle && a.Sequence == r.Sequence
		})
		if i < 0 {
			return fmt.Errorf("assignment %v has changed", r)
		}
		if left = slices.Delete(left, i, i+1); m.cooldown > 0 {
			left = append(left, Allocation{Address: r.Address, ReleasedAt: m.now})
		}
	}
	b.Allocations = slices.DeleteFunc(left, m.cooled)
	m.blocks[s.Block] = b
	return nil
}

// cooled reports whether an address has been in cooldown for long enough to be free.
func (m *model) cooled(a Allocation) bool {
	return !a.ReleasedAt.IsZero() && !m.now.Before(a.ReleasedAt.Add(m.cooldown))
}

func (m *model) removeAffinity(s RemoveAffinity) error {
	b, exists := m.blocks[s.CIDR]
	affine := exists && b.AffineTo == s.Of.Host
	inUse := slices.ContainsFunc(b.Allocations, func(a Allocation) bool { return a.Handle != windowsReservedHandle && !m.cooled(a) })
	if s.DeleteBlock != affine || s.DeleteBlock && inUse {
		return fmt.Errorf("block %s is not as planned", s.CIDR)
	}
	i := slices.IndexFunc(m.affinities[s.Of.Host], func(a Affinity) bool { return a.CIDR == s.CIDR })
	if (i < 0) != (s.Revision == 0) || i >= 0 && m.affinities[s.Of.Host][i].Revision != s.Revision {
		return fmt.Errorf("affinity to %s has changed", s.CIDR)
	}
	if i >= 0 {
		m.affinities[s.Of.Host] = slices.Delete(slices.Clone(m.affinities[s.Of.Host]), i, i+1)
	}
	if s.DeleteBlock {
		delete(m.blocks, s.CIDR)
	}
	return nil
}

// applyAll applies steps as the controller does: after a failure the rest of that machine's steps are left out.
func (m *model) applyAll(w World, steps []Step) (fences map[string]int64, failures []error) {
	guards := map[string]int64{}
	for _, n := range w.Calico.Nodes {
		guards[n.Name] = n.Revision // 0 for a host without a Node: there must be none
	}
	failed, fences := map[string]bool{}, map[string]int64{}
	for _, s := range steps {
		host := s.Subject().Host
		if failed[host] {
			continue
		}
		if err := m.apply(s, guards); err != nil {
			failed[host] = true
			failures = append(failures, err)
			continue
		}
		if _, ok := s.(Fence); ok {
			fences[host] = guards[host]
		}
	}
	return fences, failures
}

// round is one round of the controller; the memory is carried on.
func (m *model) round(now time.Time, memory *Memory, c Config) (Plan, []error) {
	w := m.observe(now, *memory)
	p := MakePlan(w, c)
	fences, failures := m.applyAll(w, p.Steps)
	*memory = p.Memory
	for host, revision := range fences {
		*memory = memory.WithFence(host, revision)
	}
	return p, failures
}

// settle runs rounds until nothing has been done in several, none of which waited for a grace period or a turn, and reports whether it came
// to that. Several, since a machine that is held is asked about again only after a while.
func (m *model) settle(now time.Time, memory *Memory, c Config, rounds int) (time.Time, bool) {
	quiet := 0
	for range rounds {
		p, _ := m.round(now, memory, c)
		waits := slices.ContainsFunc(p.Refusals, func(r Refusal) bool { return r.Gate.Pending() })
		if quiet++; len(p.Steps) > 0 || waits {
			quiet = 0
		}
		if quiet > 8 {
			return now, true
		}
		now = now.Add(p.Next)
	}
	return now, false
}

// names hold what goes wrong with prefixes, dashes and case.
var names = []string{"n1", "n10", "n1-k8s", "n1.example.com", "node-2", "NODE-2", "a", "172.30.0.1", "x-y-z", "n2", "n3", "n4"}

// modelOf draws a model: machines alive and gone, of Kubernetes and not, with all that they leave.
func modelOf(t *rapid.T) *model {
	m := &model{
		kubernetes: map[string]bool{"always": true}, running: map[string]int{}, nodes: map[string]CalicoNode{},
		endpoints: map[string][]Endpoint{}, blocks: map[netip.Prefix]Block{}, affinities: map[string][]Affinity{},
		resources: map[string][]Resource{}, unreadable: map[string]bool{}, sightings: map[string]bool{}, revision: 100,
		podAddresses: map[netip.Addr]string{}, orphans: map[string]bool{},
	}
	m.renaming = rapid.IntRange(0, 2).Draw(t, "renaming") == 0
	m.cooldown = rapid.SampledFrom([]time.Duration{0, 0, 30 * time.Second, 20 * time.Minute}).Draw(t, "cooldown")
	hosts := names[:rapid.IntRange(1, len(names)).Draw(t, "hosts")]
	for i, name := range hosts {
		m.drawHost(t, i, name)
	}
	for _, name := range hosts {
		m.drawBorrowed(t, name, hosts)
	}
	return m
}

func (m *model) drawHost(t *rapid.T, i int, name string) {
	node := CalicoNode{Name: name, Revision: int64(i + 1), Keep: rapid.IntRange(0, 15).Draw(t, "keep") == 0}
	kubeName := name
	if m.renaming && rapid.IntRange(0, 2).Draw(t, "renamed") == 0 {
		kubeName = "k8s-" + name
	}
	orphan := false
	switch rapid.SampledFrom([]string{"alive", "alive", "alive", "gone", "gone", "gone", "noref", "other", "two", "empty", "orphan", "orphan"}).Draw(t, "kind") {
	case "alive":
		m.kubernetes[kubeName] = true
		node.OrchRefs = []OrchRef{{OrchestratorKubernetes, kubeName}}
	case "gone":
		node.OrchRefs = []OrchRef{{OrchestratorKubernetes, kubeName}}
		m.sightings[kubeName] = rapid.Bool().Draw(t, "seen")
		if !m.sightings[kubeName] {
			delete(m.sightings, kubeName)
		}
	case "orphan":
		orphan, kubeName = true, name
		m.orphans[name] = true
	case "other":
		node.OrchRefs = []OrchRef{{OrchestratorKubernetes, kubeName}, {"openstack", name}}
	case "two":
		node.OrchRefs = []OrchRef{{OrchestratorKubernetes, kubeName}, {OrchestratorKubernetes, kubeName + "-b"}}
	case "empty":
		node.OrchRefs = []OrchRef{{OrchestratorKubernetes, ""}}
	}
	if rapid.IntRange(0, 4).Draw(t, "fenced") == 0 {
		node.FencedFor = kubeName
	}
	if !orphan {
		m.nodes[name] = node
	}
	m.running[kubeName] = max(0, rapid.IntRange(-8, 1).Draw(t, "running"))
	for e := range rapid.IntRange(0, 3).Draw(t, "endpoints") {
		orchestrator := OrchestratorKubernetes
		if rapid.IntRange(0, 30).Draw(t, "foreign endpoint") == 0 {
			orchestrator = "libnetwork"
		}
		m.endpoints[name] = append(m.endpoints[name], Endpoint{
			Namespace: "ns", Name: fmt.Sprintf("%s-k8s-p%d-eth0", name, e), Revision: int64(e + 1), Orchestrator: orchestrator,
		})
	}
	m.drawBlocks(t, i, name)
	for i, kind := range ResourceKinds() {
		if rapid.IntRange(0, 3).Draw(t, "resource") == 0 {
			r := Resource{Kind: kind, Name: "node." + name, Revision: int64(i), Automatic: rapid.IntRange(0, 3).Draw(t, "automatic") > 0}
			m.resources[name] = append(m.resources[name], r)
		}
	}
	m.unreadable[name] = rapid.IntRange(0, 20).Draw(t, "unreadable") == 0
	if rapid.IntRange(0, 3).Draw(t, "address in use") == 0 {
		for _, b := range m.host(name).Blocks {
			for _, a := range b.Allocations {
				m.podAddresses[a.Address] = "ns/lives"
			}
		}
	}
}

func (m *model) drawBlocks(t *rapid.T, i int, name string) {
	for b := range rapid.IntRange(0, 3).Draw(t, "blocks") {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(b), 0}), 26)
		shape := rapid.SampledFrom([]string{"whole", "whole", "whole", "no block", "no affinity", "lost", "virtual"}).Draw(t, "shape")
		if shape != "no affinity" {
			m.affinities[name] = append(m.affinities[name], Affinity{CIDR: cidr, Revision: int64(b + 1), State: "confirmed"})
		}
		block := Block{CIDR: cidr, AffineTo: name}
		switch shape {
		case "no block":
			continue
		case "lost":
			block.AffineTo = "somebody-else"
		case "virtual":
			block.AffineTo = "virtual:load-balancer"
		}
		for a := range rapid.IntRange(0, 3).Draw(t, "addresses") {
			block.Allocations = append(block.Allocations, Allocation{
				Address: netip.AddrFrom4([4]byte{10, byte(i), byte(b), byte(a + 1)}), Handle: fmt.Sprintf("h-%s-%d-%d", name, b, a),
				Sequence: uint64(a + 1), Host: name,
			})
		}
		if rapid.IntRange(0, 5).Draw(t, "cold") == 0 {
			block.Allocations = append(block.Allocations, Allocation{
				Address:    netip.AddrFrom4([4]byte{10, byte(i), byte(b), 62}),
				ReleasedAt: start.Add(time.Duration(rapid.IntRange(-1500, 60).Draw(t, "released")) * time.Second),
			})
		}
		if rapid.IntRange(0, 9).Draw(t, "windows") == 0 {
			block.Allocations = append(block.Allocations, Allocation{
				Address: netip.AddrFrom4([4]byte{10, byte(i), byte(b), 63}), Handle: windowsReservedHandle,
			})
		}
		m.blocks[cidr] = block
	}
}

// drawBorrowed puts an address of the host into a block of somebody else.
func (m *model) drawBorrowed(t *rapid.T, name string, hosts []string) {
	if rapid.IntRange(0, 5).Draw(t, "borrows") > 0 {
		return
	}
	prefixes := slices.SortedFunc(maps.Keys(m.blocks), comparePrefix)
	if len(prefixes) == 0 {
		return
	}
	cidr := rapid.SampledFrom(prefixes).Draw(t, "from")
	b := m.blocks[cidr]
	raw := cidr.Addr().As4()
	raw[3] = byte(20 + slices.Index(hosts, name))
	b.Allocations = append(slices.Clone(b.Allocations), Allocation{
		Address: netip.AddrFrom4(raw), Handle: "borrowed-" + name, Sequence: 9, Host: name,
	})
	m.blocks[cidr] = b
}

// shuffled returns the World with every slice in another order.
func shuffled(w World, seed uint64) World {
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a shuffle, not a secret
	w.Kubernetes.Nodes = shuffle(r, w.Kubernetes.Nodes)
	w.Kubernetes.Lookups = shuffle(r, w.Kubernetes.Lookups)
	w.Kubernetes.RunningPods = shuffle(r, w.Kubernetes.RunningPods)
	w.Calico.Nodes, w.Calico.Hosts = shuffle(r, w.Calico.Nodes), shuffle(r, w.Calico.Hosts)
	for i := range w.Calico.Hosts {
		h := &w.Calico.Hosts[i]
		h.Endpoints, h.Blocks, h.Affinities = shuffle(r, h.Endpoints), shuffle(r, h.Blocks), shuffle(r, h.Affinities)
		for j := range h.Blocks {
			h.Blocks[j].Allocations = shuffle(r, h.Blocks[j].Allocations)
		}
	}
	w.Sightings = shuffle(r, w.Sightings)
	w.Memory.Absences, w.Memory.Removals = shuffle(r, w.Memory.Absences), shuffle(r, w.Memory.Removals)
	return w
}

func shuffle[T any](r *rand.Rand, in []T) []T {
	out := slices.Clone(in)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
