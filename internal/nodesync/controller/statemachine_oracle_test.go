// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// checkRest looks at a universe that a process has brought to rest: whatever is left has a reason to be, and no machine that lives is fenced.
// confirming reports that a person has confirmed what the mass guard held.
func (x *trial) checkRest(t *rapid.T, p *process, confirming bool) {
	t.Helper()
	for refusal := range p.r.refused {
		if refusal.Of == (nodesync.Subject{}) {
			x.checkHeldAll(t, refusal)
			return
		}
	}
	x.checkLeftovers(t, p)
	for _, m := range x.u.machines {
		value, _ := x.u.etcd.get(modelNodeKey(m.host))
		node, _ := value.(modelNode)
		if x.u.exists(m) && m.identity == byReference && node.Annotations[nodesync.FenceAnnotation] != "" {
			t.Errorf("Kubernetes Node %s exists and Calico Node %s is fenced", m.kube, m.host)
		}
		left := x.u.left(m.host)
		if len(left) == 0 || !x.u.findable(m.host) {
			continue
		}
		reason := x.u.reason(m.host)
		if !confirming && massHolds(p, m) {
			reason = "the mass guard holds it"
		}
		if reason == "" {
			t.Errorf("I4: %s is left of %s, for no reason", strings.Join(left, ", "), m.host)
		}
		if reason == blockInUse {
			for _, key := range left {
				if !strings.HasPrefix(key, modelAffinities) {
					t.Errorf("I4: %s is left of %s, although only a block of it is in use", key, m.host)
				}
			}
		}
	}
}

// checkHeldAll checks that what holds everything back has a reason.
func (x *trial) checkHeldAll(t *rapid.T, refusal nodesync.Refusal) {
	t.Helper()
	missing := slices.ContainsFunc(x.u.machines, func(m *modelMachine) bool { return !x.u.exists(m) })
	if refusal.Gate != nodesync.GateOverlap || x.u.config.MinOverlapPercent == 0 || !missing {
		t.Errorf("I4: %s holds everything back for no reason: %s", refusal.Gate, refusal.Message)
	}
}

// massHolds reports that the mass guard holds back a machine. That it does so rightly is not for here: it may, while nobody confirms.
func massHolds(p *process, m *modelMachine) bool {
	return slices.ContainsFunc(refusals(p), func(r nodesync.Refusal) bool { return r.Of.Host == m.host && r.Gate == nodesync.GateMass })
}

func refusals(p *process) []nodesync.Refusal {
	out := make([]nodesync.Refusal, 0, len(p.r.refused))
	for r := range p.r.refused {
		out = append(out, r)
	}
	return out
}

// left is what is left of a host of that which a controller removes.
func (u *universe) left(host string) []string {
	var out []string
	if value, _ := u.etcd.get(modelNodeKey(host)); value != nil {
		out = append(out, modelNodeKey(host))
	}
	for _, key := range u.leftovers(host) {
		value, _ := u.etcd.get(key)
		if r, ok := value.(modelResource); !ok || r.Automatic || slices.Contains(u.config.AlsoRemove, nodesync.ResourceKind(r.Kind)) {
			out = append(out, key)
		}
	}
	for _, address := range u.assigned(u.etcd.revision, func(_ modelBlock, _ netip.Addr, a modelAssignment) bool { return a.Host == host && a.Handle != "" }) {
		out = append(out, "address "+address.String())
	}
	return out
}

// findable reports that a controller can come upon a host: by its Node, by an affinity, or, when it sweeps, by an endpoint or an address.
func (u *universe) findable(host string) bool {
	return slices.ContainsFunc(u.left(host), func(key string) bool {
		swept := strings.HasPrefix(key, modelEndpoints) || strings.HasPrefix(key, "address ")
		return strings.HasPrefix(key, modelNodes) || strings.HasPrefix(key, modelAffinities) || swept && u.config.SweepPeriod > 0
	})
}

const blockInUse = "a block of it is in use by somebody else"

// reason says, from the universe alone and in the plainest way, why what is left of a host has to stay; "" for no reason.
func (u *universe) reason(host string) string {
	value, _ := u.etcd.get(modelNodeKey(host))
	node, readable := value.(modelNode)
	name, reason := u.identityOf(host, value != nil, node)
	switch {
	case value != nil && !readable || u.garbageAbout(host):
		return "it cannot be read"
	case reason != "":
		return reason
	case node.Annotations[nodesync.KeepAnnotation] != "":
		return "it is to be kept"
	case u.alike(name) || u.alike(host):
		return "it lives, or may live"
	case u.foreignEndpoint(host):
		return "it has an endpoint of another orchestrator"
	case (value == nil || len(node.OrchRefs) == 0) && u.namesDiffer():
		return "its name proves nothing, since names differ"
	}
	for _, pod := range u.api.pods {
		if pod.phase == "Running" && slices.Contains(u.spellings(name), pod.node) {
			return "a pod runs there"
		}
		if pod.phase == "Running" && value == nil && u.holds(host, pod.address) {
			return "a pod runs with an address of it"
		}
	}
	if len(u.assigned(u.etcd.revision, func(block modelBlock, _ netip.Addr, a modelAssignment) bool {
		return block.AffineTo == host && a.Handle != modelWindowsHandle && (a.Host != host || a.Handle == "")
	})) > 0 {
		return blockInUse
	}
	return ""
}

func (u *universe) identityOf(host string, exists bool, node modelNode) (name, reason string) {
	if !exists {
		return host, ""
	}
	if len(node.OrchRefs) == 0 {
		if u.config.AdoptUnreferenced {
			return host, ""
		}
		return "", "it has no identity"
	}
	for _, ref := range node.OrchRefs {
		if ref.Orchestrator != nodesync.OrchestratorKubernetes {
			return "", "it is another orchestrator's"
		}
		name = ref.NodeName
	}
	return name, ""
}

func (u *universe) spellings(name string) []string {
	for _, domain := range u.config.Domains {
		if short, ok := strings.CutSuffix(name, "."+domain); ok {
			return []string{name, short}
		}
	}
	out := []string{name}
	for _, domain := range u.config.Domains {
		out = append(out, name+"."+domain)
	}
	return out
}

// alike reports that a Node exists which may be the machine of this name.
func (u *universe) alike(name string) bool {
	for listed := range u.api.nodes {
		if listed == name || strings.HasPrefix(listed, name+".") || strings.HasPrefix(name, listed+".") {
			return true
		}
	}
	return false
}

// namesDiffer reports that a Calico Node has another name than its Kubernetes Node, and no domain explains it; or may have, for want of an orchRef.
func (u *universe) namesDiffer() bool {
	for _, kv := range u.etcd.scan(modelNodes, u.etcd.revision) {
		host := strings.TrimPrefix(kv.key, modelNodes)
		node, _ := kv.value.(modelNode)
		name, reason := u.identityOf(host, true, node)
		listed := func(s string) bool { return u.api.nodes[s] != "" }
		unsure := len(node.OrchRefs) == 0 && u.alike(host) && !slices.ContainsFunc(u.spellings(host), listed)
		if reason == "" && (unsure || !slices.Contains(u.spellings(name), host)) {
			return true
		}
	}
	return false
}

func (u *universe) foreignEndpoint(host string) bool {
	for _, kv := range u.etcd.scan(modelEndpoints, u.etcd.revision) {
		if e, ok := kv.value.(modelEndpoint); ok && e.Node == host && e.Orchestrator != nodesync.OrchestratorKubernetes {
			return true
		}
	}
	return false
}

func (u *universe) garbageAbout(host string) bool {
	for _, kv := range u.etcd.scan("", u.etcd.revision) {
		garbage, ok := kv.value.(modelGarbage)
		if !ok {
			continue
		}
		if garbage.names(host) || strings.HasPrefix(kv.key, modelEndpoints) && modelEndpointHost(kv.key) == host {
			return true
		}
		if strings.HasPrefix(kv.key, modelBlocks) {
			if claim, _ := u.etcd.get(modelAffinityKey(host, modelKeyCIDR(kv.key))); claim != nil {
				return true
			}
		}
	}
	return false
}

func (u *universe) holds(host, address string) bool {
	return len(u.assigned(u.etcd.revision, func(_ modelBlock, assigned netip.Addr, a modelAssignment) bool {
		return a.Host == host && assigned.String() == address
	})) > 0
}

// describe is a trial for people.
func (x *trial) describe() string {
	var b strings.Builder
	for _, m := range x.u.machines {
		fmt.Fprintf(&b, "%s (%s, %s) exists %t, up %t; ", m.host, m.kube, m.identity, x.u.exists(m), m.up)
	}
	return b.String()
}
