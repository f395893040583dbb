// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/health"
)

// Suitability says how well a node suits, before all else. Who is of a lesser one is chosen only where there are too
// few of the others.
type Suitability int

const (
	// never is who may not be chosen.
	never Suitability = iota
	// Unwanted is a reflector that works and that the spec wants no more, or that is about to be deleted.
	Unwanted
	// Retiring is one that is cordoned.
	Retiring
	// Fresh is a node that has not been Ready for long enough to become one.
	Fresh
	// Fit is everybody else.
	Fit
)

// suitability says how well a node suits as a reflector now.
func suitability(w *rr.World, n *rr.Node) Suitability {
	unfit := WhyUnfit(w, n)
	if n.Incumbent(&w.Topology) {
		switch {
		case health.WhyLost(w, n) != "":
			return never
		case unfit == "" && n.Retires():
			return Retiring
		case unfit == "":
			return Fit
		case (n.IsReflectorOf(&w.Topology) || n.AdoptedWithID(&w.Topology)) && n.Speaks() && lacksFamily(w, n) == "":
			return Unwanted
		}
		return never
	}
	switch {
	case unfit != "":
		return never
	case WhyUnfitToBecome(w, n) == "":
		return Fit
	}
	if unfitSince(w, n, time.Time{}) == "" {
		return Fresh
	}
	return never
}

// Candidate is a node that may be chosen.
type Candidate struct {
	Node      *rr.Node
	Incumbent bool
	Suits     Suitability
	Score     int
	// Spare reports that it has been chosen as a spare, and stays one among those that suit equally well.
	Spare bool
	Hash  uint64
	// Domains are the values of the topology keys.
	Domains []string
}

// Eligible lists who may be chosen: reflectors that are fit and not lost, nodes that are fit to become one, and those
// who are better than nobody.
func Eligible(w *rr.World) []Candidate {
	keys := w.Topology.Spec.TopologyKeys
	var out []Candidate
	var domains []string // of all candidates, one after the other
	parted := rr.PartedPairs(w.Nodes, w.Peers)
	for i := range w.Nodes {
		n := &w.Nodes[i]
		incumbent, suits := n.Incumbent(&w.Topology), suitability(w, n)
		if suits == never {
			continue
		}
		c := Candidate{
			Node:      n,
			Incumbent: incumbent,
			Suits:     suits,
			Score:     Score(w, n) + adoptionScore(w, n) - min(parted[n.Name], mostParted),
			Spare: !incumbent && slices.ContainsFunc(w.Topology.Status.Spares,
				func(s v1alpha1.Spare) bool { return s.Node == n.Name }),
			Hash: rr.Rendezvous(w.Topology.Name, n.Name),
		}
		for _, key := range keys {
			domains = append(domains, n.Labels[key])
		}
		c.Domains = domains[len(domains)-len(keys):]
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Candidate) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	return out
}

// WhyUnfit says why the node may not be a reflector, whether it is one or not; "" if it may.
func WhyUnfit(w *rr.World, n *rr.Node) string {
	s := &w.Topology.Spec.Reflectors
	switch {
	case n.Labels[corev1.LabelOSStable] == "windows":
		return "it runs Windows, where Calico has no BIRD"
	case n.ForeignAS:
		return "its AS number is not the cluster's"
	case !n.Speaks():
		return "calico-node has given it no BGP address"
	case lacksFamily(w, n) != "":
		return "it has no BGP address of the family " + lacksFamily(w, n) + ", which clients use"
	case n.ForeignReflector(&w.Topology) && !n.AdoptedBy(&w.Topology):
		return n.WhoseReflector(&w.Topology)
	case n.Deleting:
		return "its Node is being deleted"
	case n.Departs():
		return "it is marked for removal by an autoscaler"
	case !rr.Selects(s.Required, n.Labels):
		return "spec.reflectors.required does not select it"
	case s.Excluded != nil && rr.Selects(*s.Excluded, n.Labels):
		return "spec.reflectors.excluded selects it"
	case s.Dedicated && n.Workloads > 0 && !n.Incumbent(&w.Topology):
		// A reflector on which a pod has come to run stays: moving it would hurt that pod as well.
		return fmt.Sprintf("%d workload pods run on it, and spec.reflectors.dedicated wants none", n.Workloads)
	}
	return ""
}

// lacksFamily names the address family that every other client has and the node has not.
func lacksFamily(w *rr.World, n *rr.Node) string {
	for _, f := range w.Topology.Spec.IPFamilies {
		if f == corev1.IPv4Protocol && !n.IPv4.IsValid() || f == corev1.IPv6Protocol && !n.IPv6.IsValid() {
			return string(f)
		}
	}
	return ""
}

// WhyUnfitToBecome says why the node may not become a reflector now, beyond what [WhyUnfit] says.
func WhyUnfitToBecome(w *rr.World, n *rr.Node) string {
	return unfitSince(w, n, health.TrustedSince(w, n))
}

// unfitSince is unfitToBecome of a node that has been trusted since a time.
func unfitSince(w *rr.World, n *rr.Node, since time.Time) string {
	stable := w.Stabilization()
	switch {
	case n.Ready != corev1.ConditionTrue:
		return "its Node is not Ready"
	case health.IsSilentClient(w, n):
		return "no reflector has a BGP session with it"
	case w.Now.Sub(since) < stable && since.After(n.ReadySince):
		return fmt.Sprintf("as a reflector it was lost until %s ago, less than %s (spec.failure.stabilization)",
			w.Now.Sub(since).Round(time.Second), stable)
	case w.Now.Sub(since) < stable:
		return fmt.Sprintf("its Node has been Ready for %s of %s (spec.failure.stabilization)",
			w.Now.Sub(n.ReadySince).Round(time.Second), stable)
	case n.Unschedulable:
		return "it is cordoned"
	}
	for _, taint := range n.Taints {
		if !tolerates(w, taint) {
			return fmt.Sprintf("spec.reflectors.tolerations do not tolerate its taint %s", taint.ToString())
		}
	}
	return ""
}

func tolerates(w *rr.World, taint corev1.Taint) bool {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(taint.Key, troublePrefix) {
		return true
	}
	return slices.ContainsFunc(w.Topology.Spec.Reflectors.Tolerations, func(t corev1.Toleration) bool {
		return (t.Effect == "" || t.Effect == taint.Effect) &&
			(t.Key == "" && t.Operator == corev1.TolerationOpExists ||
				t.Key == taint.Key && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value))
	})
}

// troublePrefix begins the taints that Kubernetes sets for a node in trouble. What they say is judged by the node's
// condition instead.
const troublePrefix = "node.kubernetes.io/"

// idleScore outweighs every sum of preferences short of the greatest, since pods on a reflector are what a change of
// roles hurts.
const idleScore = 1000

// mostParted is how many points a node may lose for nodes with which no session comes up.
const mostParted = idleScore / 2

// Score says how well a node suits, without regard to where it stands.
func Score(w *rr.World, n *rr.Node) int {
	s := &w.Topology.Spec.Reflectors
	score := 0
	if (s.AvoidWorkloads == nil || *s.AvoidWorkloads) && n.Workloads == 0 {
		score += idleScore
	}
	for _, p := range s.Preferred {
		if rr.Selects(p.Selector, n.Labels) {
			score += int(p.Weight)
		}
	}
	return score
}

// Reluctance says why a reflector that works is to be replaced as soon as another can take its place, "" if it is not.
func Reluctance(w *rr.World, n *rr.Node) string {
	switch suitability(w, n) {
	case Retiring:
		return "it is cordoned"
	case Unwanted:
		return WhyUnfit(w, n)
	case never, Fresh, Fit:
	}
	return ""
}

// CountUnwanted counts those of the chosen that stay only because nobody can take their place.
func CountUnwanted(w *rr.World, chosen []string) int {
	count := 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		count += rr.Count(n.Marked(&w.Topology) && slices.Contains(chosen, n.Name) && suitability(w, n) == Unwanted)
	}
	return count
}

// WhyNobody counts the reasons for which nodes may not become reflectors.
func WhyNobody(w *rr.World) string {
	counts := map[string]int{}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Marked(&w.Topology) {
			continue
		}
		why := WhyUnfit(w, n)
		if why == "" {
			why = WhyUnfitToBecome(w, n)
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
func Fitness(w rr.World, n rr.Node) string {
	if why := WhyUnfit(&w, &n); why != "" {
		return why
	}
	if n.Marked(&w.Topology) {
		return cmp.Or(health.WhyLost(&w, &n), Reluctance(&w, &n))
	}
	return WhyUnfitToBecome(&w, &n)
}

// Compare orders candidates of which nothing but how well they suit is to be considered, the better one first.
func (c Candidate) Compare(other Candidate) int {
	return cmp.Or(cmp.Compare(other.Score, c.Score), rr.Count(other.Spare)-rr.Count(c.Spare),
		cmp.Compare(c.Hash, other.Hash), cmp.Compare(c.Node.Name, other.Node.Name))
}

// Standing ranks who is a reflector over who is not, and one whose Node is Ready over one that is only heard of by
// others.
func (c Candidate) Standing() int {
	return rr.Count(c.Incumbent) + rr.Count(c.Incumbent && c.Node.Lives())
}

// adoptionBonus lets a reflector that keeps its ID stay rather than one that would have to change it.
const adoptionBonus = 2 * idleScore

// adoptionScore is the same before and after a reflector is taken over, so that the choice does not change on the way.
func adoptionScore(w *rr.World, n *rr.Node) int {
	if a := w.Topology.Spec.Adopt; a != nil && n.ClusterID == w.Topology.Spec.ClusterID &&
		rr.Selects(a.Nodes, n.Labels) {
		return adoptionBonus
	}
	return 0
}
