// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// suitability says how well a node suits, before all else. Who is of a lesser one is chosen only where there are too few of the others.
type suitability int

const (
	// never is who may not be chosen.
	never suitability = iota
	// unwanted is a reflector that works and that the spec wants no more, or that is about to be deleted.
	unwanted
	// retiring is one that is cordoned.
	retiring
	// fresh is a node that has not been Ready for long enough to become one.
	fresh
	// fit is everybody else.
	fit
)

// suitability says how well a node suits as a reflector now.
func (w candidates) suitability(n *Node) suitability {
	unfit := w.unfit(n)
	if n.incumbent(&w.Topology) {
		switch {
		case w.lost(n) != "":
			return never
		case unfit == "" && n.retires():
			return retiring
		case unfit == "":
			return fit
		case (n.isReflectorOf(&w.Topology) || n.adoptedWithID(&w.Topology)) && n.speaks() && w.lacksFamily(n) == "":
			return unwanted
		}
		return never
	}
	switch {
	case unfit != "":
		return never
	case w.unfitToBecome(n) == "":
		return fit
	}
	if w.unfitSince(n, time.Time{}) == "" {
		return fresh
	}
	return never
}

// candidate is a node that may be chosen.
type candidate struct {
	node      *Node
	incumbent bool
	suits     suitability
	score     int
	hash      uint64
	// domains are the values of the topology keys.
	domains []string
}

// eligible lists who may be chosen: reflectors that are fit and not lost, nodes that are fit to become one, and those who are better than nobody.
func (w candidates) eligible() []candidate {
	keys := w.Topology.Spec.TopologyKeys
	var out []candidate
	var domains []string // of all candidates, one after the other
	parted := partedPairs(w.Nodes, w.Peers)
	for i := range w.Nodes {
		n := &w.Nodes[i]
		incumbent, suits := n.incumbent(&w.Topology), w.suitability(n)
		if suits == never {
			continue
		}
		c := candidate{node: n, incumbent: incumbent, suits: suits, score: w.score(n) + w.adoptionScore(n) - min(parted[n.Name], mostParted), hash: rendezvous(w.Topology.Name, n.Name)}
		for _, key := range keys {
			domains = append(domains, n.Labels[key])
		}
		c.domains = domains[len(domains)-len(keys):]
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b candidate) int { return cmp.Compare(a.node.Name, b.node.Name) })
	return out
}

// unfit says why the node may not be a reflector, whether it is one or not; "" if it may.
func (w candidates) unfit(n *Node) string {
	s := &w.Topology.Spec.Reflectors
	switch {
	case n.Labels[corev1.LabelOSStable] == "windows":
		return "it runs Windows, where Calico has no BIRD"
	case n.ForeignAS:
		return "its AS number is not the cluster's"
	case !n.speaks():
		return "calico-node has given it no BGP address"
	case w.lacksFamily(n) != "":
		return "it has no BGP address of the family " + w.lacksFamily(n) + ", which clients use"
	case n.foreignReflector(&w.Topology) && !n.adoptedBy(&w.Topology):
		return n.whoseReflector(&w.Topology)
	case n.Deleting:
		return "its Node is being deleted"
	case n.departs():
		return "it is marked for removal by an autoscaler"
	case !selects(s.Required, n.Labels):
		return "spec.reflectors.required does not select it"
	case s.Excluded != nil && selects(*s.Excluded, n.Labels):
		return "spec.reflectors.excluded selects it"
	case s.Dedicated && n.Workloads > 0 && !n.incumbent(&w.Topology):
		// A reflector on which a pod has come to run stays: moving it would hurt that pod as well.
		return fmt.Sprintf("%d workload pods run on it, and spec.reflectors.dedicated wants none", n.Workloads)
	}
	return ""
}

// lacksFamily names the address family that every other client has and the node has not.
func (w candidates) lacksFamily(n *Node) string {
	for _, f := range w.Topology.Spec.IPFamilies {
		if f == corev1.IPv4Protocol && !n.IPv4.IsValid() || f == corev1.IPv6Protocol && !n.IPv6.IsValid() {
			return string(f)
		}
	}
	return ""
}

// unfitToBecome says why the node may not become a reflector now, beyond what [World.unfit] says.
func (w candidates) unfitToBecome(n *Node) string { return w.unfitSince(n, w.trustedSince(n)) }

// unfitSince is unfitToBecome of a node that has been trusted since a time.
func (w candidates) unfitSince(n *Node, since time.Time) string {
	stable := w.stabilization()
	switch {
	case n.Ready != corev1.ConditionTrue:
		return "its Node is not Ready"
	case w.isSilentClient(n):
		return "no reflector has a BGP session with it"
	case w.Now.Sub(since) < stable && since.After(n.ReadySince):
		return fmt.Sprintf("as a reflector it was lost until %s ago, less than %s (spec.failure.stabilization)", w.Now.Sub(since).Round(time.Second), stable)
	case w.Now.Sub(since) < stable:
		return fmt.Sprintf("its Node has been Ready for %s of %s (spec.failure.stabilization)", w.Now.Sub(n.ReadySince).Round(time.Second), stable)
	case n.Unschedulable:
		return "it is cordoned"
	}
	for _, taint := range n.Taints {
		if !w.tolerates(taint) {
			return fmt.Sprintf("spec.reflectors.tolerations do not tolerate its taint %s", taint.ToString())
		}
	}
	return ""
}

func (w candidates) tolerates(taint corev1.Taint) bool {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(taint.Key, troublePrefix) {
		return true
	}
	return slices.ContainsFunc(w.Topology.Spec.Reflectors.Tolerations, func(t corev1.Toleration) bool {
		return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" && t.Operator == corev1.TolerationOpExists ||
			t.Key == taint.Key && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value))
	})
}

// troublePrefix begins the taints that Kubernetes sets for a node in trouble. What they say is judged by the node's condition instead.
const troublePrefix = "node.kubernetes.io/"

// idleScore outweighs every sum of preferences short of the greatest, since pods on a reflector are what a change of roles hurts.
const idleScore = 1000

// mostParted is how many points a node may lose for nodes with which no session comes up.
const mostParted = idleScore / 2

// score says how well a node suits, without regard to where it stands.
func (w candidates) score(n *Node) int {
	s := &w.Topology.Spec.Reflectors
	score := 0
	if (s.AvoidWorkloads == nil || *s.AvoidWorkloads) && n.Workloads == 0 {
		score += idleScore
	}
	for _, p := range s.Preferred {
		if selects(p.Selector, n.Labels) {
			score += int(p.Weight)
		}
	}
	return score
}

// rendezvous orders nodes that suit equally well, so that the choice depends on nothing but the names.
func rendezvous(topology, node string) uint64 {
	sum := sha256.Sum256([]byte(topology + "\x00" + node))
	return binary.BigEndian.Uint64(sum[:8])
}

// reluctance says why a reflector that works is to be replaced as soon as another can take its place, "" if it is not.
func (w candidates) reluctance(n *Node) string {
	switch w.suitability(n) {
	case retiring:
		return "it is cordoned"
	case unwanted:
		return w.unfit(n)
	case never, fresh, fit:
	}
	return ""
}

// unwanted counts those of the chosen that stay only because nobody can take their place.
func (w candidates) unwanted(chosen []string) int {
	count := 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		count += boolInt(n.marked(&w.Topology) && slices.Contains(chosen, n.Name) && w.suitability(n) == unwanted)
	}
	return count
}

// whyNobody counts the reasons for which nodes may not become reflectors.
func (w candidates) whyNobody() string {
	counts := map[string]int{}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.marked(&w.Topology) {
			continue
		}
		why := w.unfit(n)
		if why == "" {
			why = w.unfitToBecome(n)
		}
		if why != "" {
			counts[why]++
		}
	}
	var out []string
	for why, count := range counts {
		out = append(out, fmt.Sprintf("%d because %s", count, why))
	}
	slices.Sort(out)
	if len(out) == 0 {
		return "there are no other nodes"
	}
	return "of the other nodes " + strings.Join(out, ", ")
}

// Fitness says of a node what the planner thinks of it as a reflector: "" if it may be one, else why not.
func (w World) Fitness(n Node) string {
	if why := candidatesOf(&w).unfit(&n); why != "" {
		return why
	}
	if n.marked(&w.Topology) {
		return cmp.Or(candidatesOf(&w).lost(&n), candidatesOf(&w).reluctance(&n))
	}
	return candidatesOf(&w).unfitToBecome(&n)
}
