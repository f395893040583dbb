// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// judgeTaking checks a write that takes something from a host, or that begins to.
func (k *watcher) judgeTaking(p *process, w etcdWrite, t taking) {
	m := k.u.machineOf(t.host)
	if m == nil {
		k.violate("I2: %q never was a machine", t.host)
		return
	}
	node, _ := k.u.etcd.at(modelNodeKey(t.host), w.revision-1)
	k.judgeLife(p, w, m)
	k.judgeIdentity(p, m, node)
	if p.serving != nil {
		k.judgeNamed(p, m)
	} else {
		k.judgeGrace(p, m, node != nil)
		k.judgeMass(p, m, node)
		k.judgeOverlap(p)
	}
	if n, there := node.(modelNode); there && !t.fence && n.Annotations[nodesync.FenceAnnotation] == "" {
		k.violate("I1: something is taken from %s, which is not fenced", t.host)
	}
	for _, c := range t.gone {
		k.judgeGone(p, w, c)
	}
	k.judgeReleases(p, t)
	if p.options.journal {
		k.judgeJournal(t)
	}
}

// judgeLife is I1 but for what was taken.
func (k *watcher) judgeLife(p *process, w etcdWrite, m *modelMachine) {
	for _, name := range k.u.spellings(m.kube) {
		if verdict, looked := p.seen.looked[name]; looked && verdict != nodesync.VerdictGone {
			k.violate("I1: the last look at Kubernetes Node %s before the write said %q", name, verdict)
		}
	}
	now, _ := k.u.etcd.at(modelNodeKey(m.host), w.revision-1)
	switch existed, looked := p.seen.existed[m.kube]; {
	case !looked && now == nil && !slices.Contains(k.u.spellings(m.host), m.kube) && !k.u.exists(m):
		// Without a Calico Node nobody can know under which name to look; that it is gone is what counts.
	case !looked:
		k.violate("I1: Kubernetes Node %s was not looked at before the write", m.kube)
	case existed:
		k.violate("I1: Kubernetes Node %s existed at the last look", m.kube)
	}
	for _, name := range k.u.spellings(m.kube) {
		if p.seen.running[name] {
			k.violate("I1: pods ran on %s", name)
		}
	}
	key := modelNodeKey(m.host)
	if now == nil {
		if then, _ := k.u.etcd.at(key, p.seen.revision); then != nil {
			k.violate("I1: Calico Node %s has vanished since the plan's snapshot", m.host)
		}
		return
	}
	for _, v := range k.u.etcd.since(key, p.seen.revision) {
		if v.by != p.name {
			k.violate("I1: %s wrote Calico Node %s at revision %d, after the plan's snapshot at %d", v.by, m.host, v.revision, p.seen.revision)
		}
	}
}

// judgeIdentity is I2 and what a person has forbidden.
func (k *watcher) judgeIdentity(p *process, m *modelMachine, value any) {
	if value == nil {
		return // known by what it left; what it was is not known any more
	}
	node, ok := value.(modelNode)
	if !ok {
		k.violate("I2: its Calico Node cannot be parsed")
		return
	}
	if keep, annotated := node.Annotations[nodesync.KeepAnnotation]; annotated && keep != "false" {
		k.violate("%s is to be kept", m.host)
	}
	ours := len(node.OrchRefs) > 0 || p.r.Config.AdoptUnreferenced
	for _, ref := range node.OrchRefs {
		ours = ours && ref.Orchestrator == nodesync.OrchestratorKubernetes
	}
	if !ours {
		k.violate("I2: %s has no identity in Kubernetes: %v", m.host, node.OrchRefs)
	}
}

// judgeGrace: a machine must have been absent for the grace period, as far as this process and all before it can have seen. What a round saw counts
// from its beginning here, and what it does from its list of Nodes: whichever of the two the controller takes for the time of a round.
func (k *watcher) judgeGrace(p *process, m *modelMachine, node bool) {
	now, grace := p.seen.listedAt, p.r.Config.Grace
	if at, seen := p.presentAt[m.kube]; seen && now-at < grace {
		k.violate("grace: %s found Kubernetes Node %s %s ago", p.name, m.kube, now-at)
	}
	if at, seen := k.absentAt[m.kube]; !seen || now-at < grace {
		k.violate("grace: Kubernetes Node %s was first missed %s ago, or never (%t)", m.kube, now-at, seen)
	}
	if now-p.recalledAt < grace && p.stale && !k.jumped {
		k.violate("grace: %s started %s ago and believed a memory that was too old then", p.name, now-p.recalledAt)
	}
	if at, wrote := k.wroteNode[m.host]; node && wrote && now-at < grace {
		k.violate("grace: Calico Node %s was written %s ago", m.host, now-at)
	}
}

// judgeMass is I9: of machines whose going no process has watched, and that no person has confirmed, only so many go within a window.
func (k *watcher) judgeMass(p *process, m *modelMachine, value any) {
	if p.seen.removed[m.host] {
		return
	}
	p.seen.removed[m.host] = true
	node, _ := value.(modelNode)
	if k.witnessed[m.kube] || k.confirmed[m.host] || node.Annotations[nodesync.FenceAnnotation] != "" || value == nil && k.passed[m.host] {
		return
	}
	k.removals = append(k.removals, removal{m.host, p.seen.age})
	counted := map[string]bool{}
	for _, r := range k.removals {
		if r.age > p.seen.listedAt-p.r.Config.MassWindow {
			counted[r.host] = true
		}
	}
	c := p.r.Config
	if limit := max(c.MaxUnwitnessed, len(k.u.machines)*c.MaxUnwitnessedPercent/100); len(counted) > limit {
		k.violate("I9: within %s %v were begun to be removed, whose going nobody watched; the limit is %d", c.MassWindow,
			slices.Sorted(maps.Keys(counted)), limit)
	}
	if c.AdoptUnreferenced && value != nil && len(node.OrchRefs) == 0 {
		k.violate("I9: %s was adopted, and nobody watched it go or has confirmed it", m.host)
	}
}

// judgeOverlap: nothing goes while too few of the machines that have a Calico Node have their Kubernetes Node, as it is in a wrong cluster. That
// is asked of those whose going nobody watched and that nobody confirmed, and only of those here that count in any case.
func (k *watcher) judgeOverlap(p *process) {
	alive, absent := 0, 0
	for _, m := range k.u.machines {
		value, _ := k.u.etcd.at(modelNodeKey(m.host), p.seen.revision)
		node, _ := value.(modelNode)
		switch ours := m.identity == byReference && len(node.OrchRefs) > 0; {
		case ours && p.seen.listAnswer == truthful && !p.seen.listed[m.kube] && !k.witnessed[m.kube] && !k.confirmed[m.host] && !k.u.alike(m.kube) && !k.u.alike(m.host) &&
			node.Annotations[nodesync.KeepAnnotation] == "":
			absent++
		case value != nil || p.seen.listed[m.kube]:
			alive++
		}
	}
	if alive*100 < (alive+absent)*p.r.Config.MinOverlapPercent {
		k.violate("I8: %d of %d machines have their Kubernetes Node, less than %d %%", alive, alive+absent, p.r.Config.MinOverlapPercent)
	}
}

// judgeGone checks one deleted object: it is as the plan's snapshot had it, and nothing that lives depends on it.
func (k *watcher) judgeGone(p *process, w etcdWrite, c keyChange) {
	_, seen := k.u.etcd.at(c.key, p.seen.revision)
	switch value := c.before.(type) {
	case modelNode:
		host := strings.TrimPrefix(c.key, modelNodes)
		k.judgeNodeLast(p, w, host)
		k.passed[host] = true
		k.count("clean-ups completed")
		return // that nobody else has written it is I1
	case modelBlock:
		if !value.empty() {
			k.violate("I3: block %s went with %v", value.CIDR, value.Assigned)
		}
		return // an empty block is as good as another
	case modelEndpoint:
		if value.Orchestrator != nodesync.OrchestratorKubernetes {
			k.violate("I2: an endpoint of %s", value.Orchestrator)
		}
		for name, pod := range k.u.api.pods {
			if pod.endpoint == c.key && pod.phase == "Running" && k.u.api.nodes[pod.node] != "" {
				k.violate("I1: it is the endpoint of running pod %s", name)
			}
		}
	case modelResource:
		if !value.Automatic && !slices.Contains(p.alsoRemoves(), nodesync.ResourceKind(value.Kind)) {
			k.violate("a user wrote %s", c.key)
		}
	}
	if seen != c.modified {
		k.violate("I5: %s was at revision %d when it went, and at %d in the plan's snapshot", c.key, c.modified, seen)
	}
}

// judgeNodeLast: the Node goes when nothing else is left that a plan removes, which leaves blocks with their affinities
// to others who use them.
func (k *watcher) judgeNodeLast(p *process, w etcdWrite, host string) {
	for _, key := range k.u.leftovers(host) {
		value, modified := k.u.etcd.at(key, w.revision)
		resource, isResource := value.(modelResource)
		if strings.HasPrefix(key, modelAffinities) && k.othersUsed(host, modelKeyCIDR(key), p.seen.revision) {
			continue
		}
		if modified <= p.seen.revision && (!isResource || resource.Automatic) {
			k.violate("I5: Calico Node %s went before %s", host, key)
		}
	}
	for _, kv := range k.u.etcd.scan(modelBlocks, w.revision) {
		block, _ := kv.value.(modelBlock)
		then, _ := k.u.etcd.at(kv.key, p.seen.revision)
		before, _ := then.(modelBlock)
		for address, a := range block.Assigned {
			if a.Host == host && before.Assigned[address] == a && a.Handle != "" {
				k.violate("I5: Calico Node %s went before its address %s", host, address)
			}
		}
	}
}

// othersUsed reports that a block of the host had an address then that was not the host's to release.
func (k *watcher) othersUsed(host string, cidr netip.Prefix, revision int64) bool {
	value, _ := k.u.etcd.at(modelBlockKey(cidr), revision)
	block, _ := value.(modelBlock)
	for _, a := range block.Assigned {
		if block.AffineTo == host && a.Handle != modelWindowsHandle && (a.Host != host || a.Handle == "") {
			return true
		}
	}
	return false
}

// judgeReleases is I3: only the very assignments of the plan's snapshot go, each with its count in its handle.
func (k *watcher) judgeReleases(p *process, t taking) {
	if len(t.released) == 0 {
		return
	}
	then, _ := k.u.etcd.at(modelBlockKey(t.block), p.seen.revision)
	before, _ := then.(modelBlock)
	counts := map[string]int{}
	for address, a := range t.released {
		if was, ok := before.Assigned[address]; !ok || was != a {
			k.violate("I3: address %s was released as %+v and was %+v in the plan's snapshot", address, a, was)
		}
		if a.Host != t.host || a.Handle == "" || a.Handle == modelWindowsHandle {
			k.violate("I3: address %s is not the host's own: %+v", address, a)
		}
		for name, pod := range k.u.api.pods {
			if pod.handle == a.Handle && pod.phase == "Running" && k.u.api.nodes[pod.node] != "" {
				k.violate("I3: address %s is that of running pod %s", address, name)
			}
		}
		counts[a.Handle]++
	}
	for id, n := range counts {
		if lowered, there := t.handles[id]; there && lowered != n {
			k.violate("I3: handle %s lost %d addresses and counts %d less", id, n, lowered)
		}
		delete(t.handles, id)
	}
	for id := range t.handles {
		k.violate("I3: handle %s was changed and lost no address", id)
	}
}

// judgeJournal: what is taken stands in the journal, as it was, before it is taken.
func (k *watcher) judgeJournal(t taking) {
	kept := map[string]bool{}
	for _, r := range k.journal {
		for _, o := range r.entry.Objects {
			kept[journalText(o.Key, o.Revision, o.Value)] = true
		}
		for _, a := range r.entry.Addresses {
			kept[fmt.Sprint(a.Address, a.Handle, a.Sequence)] = true
		}
	}
	for _, c := range t.gone {
		if _, block := c.before.(modelBlock); !block && !kept[journalText(c.key, c.modified, encodeModel(c.key, c.before))] {
			k.violate("I11: %s at revision %d is not in the journal", c.key, c.modified)
		}
	}
	for address, a := range t.released {
		if !kept[fmt.Sprint(address, a.Handle, a.Sequence)] {
			k.violate("I11: address %s is not in the journal", address)
		}
	}
	if !slices.ContainsFunc(k.journal, func(r recorded) bool { return r.entry.Host == t.host && len(r.entry.Steps) > 0 }) {
		k.violate("I11: nothing of %s is in the journal", t.host)
	}
}

// journalText is an object to compare; a Node is the same with and without the fence, which is of no use to anybody who wants it back.
func journalText(key string, revision int64, value string) string {
	if !strings.HasPrefix(key, modelNodes) {
		return fmt.Sprintf("%s at %d: %s", key, revision, value)
	}
	node, _ := decodeModel(key, value).(modelNode)
	node = node.annotated(nodesync.FenceAnnotation, "")
	return fmt.Sprintf("%s: %s", key, modelText(node))
}
