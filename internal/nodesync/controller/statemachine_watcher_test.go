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

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// watcher looks over every write of every process as it happens, with all that is true in the universe and all that the process was told, and
// knows nothing of plans. The numbers in its messages are those of the invariants (I1 to I15) that calico-node-sync is held to.
//
// I1 cannot be that no Kubernetes Node exists at the moment of a removal: Kubernetes and Calico's etcd share no transaction. It is, and this is
// what is checked of every write that takes something from a host or begins to:
//   - since its last write the process has read the Node live, which said NotFound, and the Node did not exist when it was answered;
//   - since the snapshot that the plan was made from nobody but this process has written the Calico Node, so that a machine whose
//     calico-node has started since then loses nothing;
//   - what is taken is as it was in that snapshot: nothing that came into being later is lost, no matter who made it.
type watcher struct {
	u          *universe
	metrics    *Metrics
	processes  map[string]*process
	violations []string
	counts     map[string]int
	journal    []recorded
	// witnessed are the Nodes whose deletion any process has watched, ever.
	witnessed map[string]bool
	// absentAt is the age of the first round, of any process, that did not find a Node in the list.
	absentAt map[string]time.Duration
	// wroteNode is the age at which somebody who is not a process of ours last wrote a Calico Node. A round that had begun by then may take it
	// for having been there when it began.
	wroteNode map[string]time.Duration
	// spoke is the age at which somebody who is not a process of ours last wrote a Calico Node or an endpoint of a host.
	spoke map[string]time.Duration
	// savedAt is the age at which any process last saved its memory.
	savedAt time.Duration
	// jumped reports that the clock was set at some time.
	jumped bool
	// removals are the beginnings of removals that the mass guard counts.
	removals []removal
	// confirmed are the hosts that a person has let pass.
	confirmed map[string]bool
	// passed are the hosts whose Calico Node a process has removed and nobody has written since: the mass guard has let
	// them pass.
	passed map[string]bool
}

type recorded struct {
	by    string
	entry Entry
}

type removal struct {
	host string
	age  time.Duration
}

func newWatcher(u *universe, metrics *Metrics) *watcher {
	k := &watcher{
		u: u, metrics: metrics, processes: map[string]*process{}, counts: map[string]int{}, witnessed: map[string]bool{},
		absentAt: map[string]time.Duration{}, wroteNode: map[string]time.Duration{}, confirmed: map[string]bool{}, passed: map[string]bool{},
		spoke: map[string]time.Duration{},
	}
	u.etcd.wrote = k.wrote
	return k
}

// clone watches a copy of the universe from here on; processes do not come along.
func (k *watcher) clone() *watcher {
	c := newWatcher(k.u.clone(), k.metrics)
	c.journal, c.removals = slices.Clone(k.journal), slices.Clone(k.removals)
	c.witnessed, c.absentAt = maps.Clone(k.witnessed), maps.Clone(k.absentAt)
	c.savedAt, c.jumped = k.savedAt, k.jumped
	c.spoke = maps.Clone(k.spoke)
	c.wroteNode, c.confirmed, c.passed = maps.Clone(k.wroteNode), maps.Clone(k.confirmed), maps.Clone(k.passed)
	return c
}

func (k *watcher) violate(format string, args ...any) {
	k.violations = append(k.violations, fmt.Sprintf(format, args...))
}

func (k *watcher) count(what string) { k.counts[what]++ }

// recalls notes how old the memory is that a process finds when it starts.
func (k *watcher) recalls(p *process) {
	if p.recalledAt < 0 {
		p.recalledAt, p.stale = p.seen.age, p.seen.age-k.savedAt > 2*p.r.Config.Resync
	}
}

// saw returns what a watch on a cluster tells of each deletion that it watches.
func (k *watcher) saw(api *apiModel) func(node string) {
	return func(node string) {
		if api == k.u.api {
			k.witnessed[node] = true
		}
	}
}

// wasListed takes down which machines a process has found in the list. It has seen them only if the round goes on to its end: a round that fails
// forgets what it was told.
func (k *watcher) wasListed(p *process) {
	for _, m := range k.u.machines {
		if p.seen.listed[m.kube] {
			p.seen.present = append(p.seen.present, m.kube)
			continue
		}
		if at, known := k.absentAt[m.kube]; p.api == k.u.api && (!known || p.seen.age < at) {
			k.absentAt[m.kube] = p.seen.age
		}
	}
}

// ended looks at what a round has cost and counts what was worth happening.
func (k *watcher) ended(p *process) {
	for refusal := range p.r.refused {
		if refusal.Gate == nodesync.GateMass || refusal.Gate == nodesync.GateOverlap {
			k.count(string(refusal.Gate) + " holds")
		}
	}
	if p.dead {
		return
	}
	if p.err == nil {
		for _, node := range p.seen.present {
			p.presentAt[node] = p.seen.age
		}
	}
	attempts := 1
	if p.served {
		attempts += requestRounds + 1
	}
	atMost := func(what string, limit int) {
		limit *= attempts
		if p.calls[what] > limit {
			k.violate("I15: %s made %d calls of %s in one round, at most %d are in order", p.name, p.calls[what], what, limit)
		}
	}
	for _, once := range []string{"Snapshot", "Hosts", "Sweep", "ListNodes", "UID", "State.Read", "ForgetSightings", "EachPod", "PodHoldings"} {
		atMost(once, 1)
	}
	atMost("State.Save", 2)
	suspects, spellings, writes := k.u.config.Backlog(), 1+len(k.u.config.Domains), 0
	if p.options.dryRun {
		suspects = shownAtOnce
	}
	for name, n := range p.calls {
		if strings.HasPrefix(name, "Delete") || strings.HasPrefix(name, "Annotate") || name == "ReleaseAddresses" {
			writes += n
		}
	}
	atMost("RunningPods", suspects*spellings)
	// One when it is observed, one before its entry in the journal, one before each write, and one that says that it lives.
	atMost("LookUp", (3*suspects+writes)*spellings)
	if p.calls["Hosts"] == 0 && (writes > p.calls["AnnotateNode"]+p.calls["AnnotateClusterInformation"]+p.calls["DeleteHandles"]) {
		k.violate("I15: %s removed something without having read it", p.name)
	}
}

// wrote is told of every write to etcd.
func (k *watcher) wrote(w etcdWrite) {
	p := k.processes[w.by]
	if p == nil {
		for _, c := range w.changes {
			if strings.HasPrefix(c.key, modelEndpoints) && c.after != nil {
				k.spoke[modelEndpointHost(c.key)] = k.u.age
			}
			if host, ok := strings.CutPrefix(c.key, modelNodes); ok {
				k.spoke[host] = k.u.age
				k.wroteNode[host] = k.u.age
				delete(k.passed, host)
				for _, other := range k.processes {
					if other.inRound() {
						k.wroteNode[host] = min(k.wroteNode[host], other.seen.age)
					}
				}
			}
		}
		return
	}
	before := len(k.violations)
	k.mayWrite(p)
	k.judge(p, w)
	for i := before; i < len(k.violations); i++ {
		k.violations[i] += fmt.Sprintf(" (%s, revision %d: %s)", p, w.revision, changesText(w))
	}
}

func changesText(w etcdWrite) string {
	var keys []string
	for _, c := range w.changes {
		verb := "writes"
		if c.after == nil {
			verb = "deletes"
		}
		keys = append(keys, verb+" "+c.key)
	}
	return strings.Join(keys, ", ")
}

// mayWrite checks what forbids every write.
func (k *watcher) mayWrite(p *process) {
	switch {
	case p.options.dryRun:
		k.violate("I10: a write in a dry run")
	case p.api != k.u.api:
		k.violate("I8: a write by a process of another cluster")
	case p.seen.binding != "" && p.seen.binding != p.api.uid:
		k.violate("I8: a write into the datastore of another cluster")
	case len(p.seen.listed) == 0:
		k.violate("I7: a write although Kubernetes listed no Node")
	case !p.seen.synced:
		k.violate("I7: a write before the watch was filled")
	case !p.seen.ready:
		k.violate("a write into a datastore that is locked")
	}
}

// taking is what one write takes from one host.
type taking struct {
	host     string
	gone     []keyChange // deleted, apart from handles
	released map[netip.Addr]modelAssignment
	block    netip.Prefix
	handles  map[string]int // by how much they count less
	fence    bool
}

// judge sorts a write's changes and checks each by its kind.
func (k *watcher) judge(p *process, w etcdWrite) {
	t := taking{released: map[netip.Addr]modelAssignment{}, handles: map[string]int{}}
	harmless := false
	for _, c := range w.changes {
		if c.before == nil {
			k.violate("I5: %s was created", c.key)
			continue
		}
		switch {
		case c.key == modelInformation:
			harmless = true
			k.bound(c)
		case strings.HasPrefix(c.key, modelNodes) && c.after != nil:
			t.of(k, strings.TrimPrefix(c.key, modelNodes))
			t.fence = k.fenced(p, c)
			harmless = !t.fence
		case strings.HasPrefix(c.key, modelHandles):
			t.lower(c)
		case strings.HasPrefix(c.key, modelBlocks) && c.after != nil:
			k.takeReleased(&t, c)
		case c.after != nil:
			k.violate("I5: %s was changed", c.key)
		default:
			t.gone = append(t.gone, c)
			t.of(k, hostOf(c))
		}
	}
	value, _ := k.u.etcd.at(modelInformation, w.revision-1)
	if information, _ := value.(modelClusterInformation); !harmless && information.Annotations[nodesync.BindingAnnotation] != k.u.api.uid {
		k.violate("I8: a write into a datastore that is not recorded as the cluster's")
	}
	switch {
	case harmless:
	case t.host == "":
		k.judgeHandles(p, w)
	case p.removing != nil:
		k.judgeLeftovers(p, w, t)
	default:
		k.judgeTaking(p, w, t)
	}
}

// of notes whose a change is. One write is about one host.
func (t *taking) of(k *watcher, host string) {
	if t.host != "" && t.host != host {
		k.violate("I5: one write is about %s and %s", t.host, host)
	}
	t.host = host
}

// hostOf is the host that a deleted object was about, "" for none.
func hostOf(c keyChange) string {
	switch value := c.before.(type) {
	case modelNode:
		return strings.TrimPrefix(c.key, modelNodes)
	case modelEndpoint:
		return value.Node
	case modelResource:
		return value.Host
	case modelAffinity:
		host, _, _ := strings.Cut(strings.TrimPrefix(c.key, modelAffinities), "/")
		return host
	case modelBlock:
		return value.AffineTo
	}
	return "something that cannot be parsed"
}

// lower notes how many assignments a handle counts less.
func (t *taking) lower(c keyChange) {
	before, _ := c.before.(modelHandle)
	after, _ := c.after.(modelHandle)
	id := strings.TrimPrefix(c.key, modelHandles)
	for cidr, n := range before.Blocks {
		t.handles[id] += n - after.Blocks[cidr]
	}
}

// bound checks the record of the cluster.
func (k *watcher) bound(c keyChange) {
	before, _ := c.before.(modelClusterInformation)
	after, _ := c.after.(modelClusterInformation)
	if before.Annotations[nodesync.BindingAnnotation] != "" || after.Annotations[nodesync.BindingAnnotation] != k.u.api.uid || before.Ready != after.Ready {
		k.violate("I8: the record of the cluster went from %v to %v", before, after)
	}
	k.count("bindings")
}

// fenced checks a change of a Node, of which only the fence may change, and reports whether it was put up.
func (k *watcher) fenced(p *process, c keyChange) bool {
	before, _ := c.before.(modelNode)
	after, _ := c.after.(modelNode)
	same := cmp.Equal(before.annotated(nodesync.FenceAnnotation, "").Annotations, after.annotated(nodesync.FenceAnnotation, "").Annotations) &&
		cmp.Equal(before.OrchRefs, after.OrchRefs) && before.UID == after.UID && before.Writes == after.Writes
	if !same {
		k.violate("I1: more than the fence changed")
	}
	if after.Annotations[nodesync.FenceAnnotation] != "" {
		return true
	}
	k.count("fences withdrawn")
	if m := k.u.machineOf(strings.TrimPrefix(c.key, modelNodes)); m == nil || !p.seen.listed[m.kube] {
		k.violate("a fence was withdrawn from a machine that the list does not show")
	}
	return false
}

// takeReleased notes the addresses that a block lost and checks that nothing else happened to it.
func (k *watcher) takeReleased(t *taking, c keyChange) {
	before, _ := c.before.(modelBlock)
	after, _ := c.after.(modelBlock)
	t.block = before.CIDR
	for address, a := range before.Assigned {
		if after.free(address) {
			t.released[address] = a
			t.of(k, a.Host)
		}
	}
	if before.AffineTo != after.AffineTo || len(after.Assigned)+len(t.released) != len(before.Assigned) {
		k.violate("I3: block %s was changed otherwise than by releasing", before.CIDR)
	}
}

// judgeHandles checks that handles which went alone are orphans.
func (k *watcher) judgeHandles(p *process, w etcdWrite) {
	if p.serving != nil || !slices.Contains(p.r.Config.AlsoRemove, nodesync.KindIPAMHandle) {
		k.violate("handles were removed although nobody asked for it")
	}
	for _, c := range w.changes {
		id := strings.TrimPrefix(c.key, modelHandles)
		if c.after != nil || c.modified > p.seen.revision {
			k.violate("I3: handle %s is not as it was when it was found to be an orphan", id)
		}
		for _, address := range k.u.assigned(w.revision, func(_ modelBlock, _ netip.Addr, a modelAssignment) bool { return a.Handle == id }) {
			k.violate("I3: handle %s of address %s was removed", id, address)
		}
	}
	k.count("orphaned handles removed")
}
