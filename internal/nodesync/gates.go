// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Gate names one condition that must hold before anything is removed. Gates stand in plans, metrics and logs: they MUST NOT be renamed.
type Gate string

// The gates that concern the cluster as a whole: while one does not hold, nothing at all is written.
const (
	GateKubernetesNotSynced Gate = "kubernetes-not-synced"
	GateKubernetesEmpty     Gate = "kubernetes-empty"
	GateDatastoreNotReady   Gate = "datastore-not-ready"
	GateClusterBinding      Gate = "cluster-binding"
	GateOverlap             Gate = "overlap"
)

// The gates that concern one Calico Node.
const (
	GateUnreadable        Gate = "unreadable"
	GateNoIdentity        Gate = "no-identity"
	GateOtherOrchestrator Gate = "other-orchestrator"
	GateAmbiguousName     Gate = "ambiguous-name"
	GateKeep              Gate = "keep"
	GateGrace             Gate = "grace"
	GateMass              Gate = "mass-guard"
	// GateSigns holds back what still speaks in Calico's datastore, and, while a machine does that is not of this cluster, what only this cluster's
	// lists show to be gone.
	GateSigns           Gate = "signs-of-life"
	GatePace            Gate = "pace"
	GateNotConfirmed    Gate = "not-confirmed-gone"
	GateRunningPods     Gate = "running-pods"
	GateStepFailed      Gate = "step-failed"
	GateForeignEndpoint Gate = "foreign-endpoint"
	GateForeignAddress  Gate = "foreign-address"
	// GateCooldown keeps a block while an address of it is in cooldown: freeing it earlier is against Calico's configuration.
	GateCooldown          Gate = "cooldown"
	GateUserConfiguration Gate = "user-configuration"
	GateOrphanedHandle    Gate = "orphaned-handle"
	// GateOrphanedConfiguration leaves alone objects about a host that is neither a Calico Node nor a Kubernetes Node.
	GateOrphanedConfiguration Gate = "orphaned-configuration"
	// GatePodLeftovers leaves addresses and endpoints alone whose pod is gone, on existing machines; GateLeftoverGuard does so when they are many.
	GatePodLeftovers  Gate = "pod-leftovers"
	GateLeftoverGuard Gate = "leftover-guard"
)

// Gates lists every gate, in the order in which they are asked.
func Gates() []Gate {
	return []Gate{
		GateKubernetesNotSynced, GateKubernetesEmpty, GateDatastoreNotReady, GateClusterBinding, GateOverlap,
		GateUnreadable, GateNoIdentity, GateOtherOrchestrator, GateAmbiguousName, GateKeep, GateSigns, GateMass, GateGrace, GatePace,
		GateNotConfirmed, GateRunningPods, GateStepFailed, GateForeignEndpoint, GateForeignAddress, GateCooldown, GateUserConfiguration, GateOrphanedHandle,
		GateOrphanedConfiguration, GatePodLeftovers, GateLeftoverGuard,
	}
}

// Settled reports that what the gate leaves alone is as it should be: it is not Kubernetes', is to be kept, or is a person's own. Any other
// gate holds back what is to be removed sooner or later.
func (g Gate) Settled() bool {
	return slices.Contains([]Gate{GateNoIdentity, GateOtherOrchestrator, GateKeep, GateUserConfiguration, GateOrphanedHandle, GateOrphanedConfiguration, GatePodLeftovers}, g)
}

// Pending reports that what the gate holds back is removed without anybody's doing, when its time has come.
func (g Gate) Pending() bool { return g == GateGrace || g == GatePace || g == GateCooldown }

// candidate is a Calico Node of Kubernetes whose Kubernetes Node is missing from the list.
type candidate struct {
	node    CalicoNode
	subject Subject
	absence Absence
	// adopted reports that nothing but its name shows that it was a Kubernetes Node.
	adopted bool
	// named reports that a person has named it; second are the other Calico Nodes of its Kubernetes Node, if that lives.
	named  bool
	second []string
}

// judgement is what can be said without live reads: a Plan without steps, and what they are about.
type judgement struct {
	Plan
	revived []candidate // alive again, and still fenced
	due     []candidate // every gate but the live ones holds; in the order in which they are cleaned
	handles []Step      // about orphaned IPAM handles
	// living are the machines that leftovers of pods may be removed from, nil while nothing at all may be.
	living map[string]living
	// shared is why nothing is to be removed that was not vouched for, "" for nothing; see census.stranger.
	shared string
	bind   bool // the cluster is to be recorded
}

// judge asks every gate that needs no live read.
func judge(w World, c Config) judgement {
	w = w.recognized()
	j := judgement{Plan: Plan{Next: c.Resync}}
	if refusal, ok := kubernetesGate(w.Kubernetes); !ok {
		j.Refusals, j.Memory = []Refusal{refusal}, w.Memory.withoutListed(w.Kubernetes.Nodes, c)
		return j
	}
	// From here on the list of Nodes is to be believed, and what is remembered follows it, whatever else holds everything back: a machine
	// that comes back while the datastore is locked is not absent since before.
	census := takeCensus(w, c)
	j.Refusals = census.refusals
	j.Memory = remember(w, c, census)
	confirm(w, &census, &j.Memory, c)
	for _, gate := range []func() (Refusal, bool){
		func() (Refusal, bool) { return datastoreGate(w.Calico) },
		func() (Refusal, bool) { return bindingGate(w.Kubernetes.ClusterUID, w.Calico.Binding) },
	} {
		if refusal, ok := gate(); !ok {
			j.Refusals = append(j.Refusals, refusal)
			return j
		}
	}
	held := unvouched(census, w.Now, c)
	how := howToConfirm(w, held, c)
	if why := overlapGate(w, census, c); why != "" {
		j.Memory.Awaiting = awaiting(held, GateOverlap, why, w.Now, c)
		if len(held) > 0 {
			why += "; " + how
		}
		j.Refusals = append(j.Refusals, clusterRefusal(GateOverlap, why))
		return j
	}
	j.revived = census.revived
	binding := w.Calico.Binding
	j.bind = !binding.Implied && binding.ClusterUID == "" && census.certain > 0
	massRefused := massGate(held, census, j.Memory, c)
	j.shared = census.stranger(w)
	for _, cand := range census.candidates {
		if len(c.Named) > 0 && !cand.named {
			continue
		}
		j.ask(cand, cmp.Or(massRefused, adoptionGate(cand, w.Now)), how, w.Now, c)
	}
	j.Memory.Awaiting = awaitingMass(held, j.shared, massRefused, w.Now, c)
	j.orderDue(w.Now, c)
	if !binding.Implied {
		j.Needs.Reports = j.reportsWanted(census)
	}
	j.judgeHandles(w, c)
	j.living = census.livingMachines(w)
	return j
}

// kubernetesGate refuses everything while Kubernetes' answer cannot be believed.
func kubernetesGate(k Kubernetes) (Refusal, bool) {
	switch {
	case !k.Synced:
		return clusterRefusal(GateKubernetesNotSynced, "the watch on Kubernetes Nodes is not synced yet"), false
	case len(k.Nodes) == 0:
		return clusterRefusal(GateKubernetesEmpty, "Kubernetes has no Node at all, as in a new, restored or wrong cluster; check that this is the right one"), false
	}
	return Refusal{}, true
}

// datastoreGate refuses everything while Calico says that its datastore is not to be written.
func datastoreGate(c Calico) (Refusal, bool) {
	if c.Ready {
		return Refusal{}, true
	}
	return clusterRefusal(GateDatastoreNotReady,
		"Calico's ClusterInformation does not report datastoreReady: the datastore is locked, empty or being migrated; after a DatastoreMigration "+
			"it stays locked, as Calico keeps its data in native projectcalico.org/v3 resources then, which are not supported"), false
}

// bindingGate refuses everything in a datastore that is known to belong to another cluster.
func bindingGate(uid string, b Binding) (Refusal, bool) {
	switch {
	case b.Implied:
		return Refusal{}, true
	case uid == "":
		return clusterRefusal(GateClusterBinding, "the UID of this cluster's namespace kube-system is not known"), false
	case b.ClusterUID != "" && b.ClusterUID != uid:
		return clusterRefusal(GateClusterBinding, fmt.Sprintf("the datastore belongs to the cluster whose kube-system has UID %s, and this one's has %s; "+
			"if the cluster was created again on purpose, remove annotation %s from Calico's ClusterInformation", b.ClusterUID, uid, BindingAnnotation)), false
	}
	return Refusal{}, true
}

// overlapGate returns why everything is refused, or "". It is refused when too few Calico Nodes have a Kubernetes Node: that is how a wrong
// cluster, a wrong datastore or a wrong naming scheme looks. Hosts without a Calico Node count only where there is nothing else to go by;
// machines whose deletion was watched, or that a person has confirmed, do not: most of a datastore may be stale indeed, where nobody has
// cleaned for years.
func overlapGate(w World, s census, c Config) string {
	alive, onlyOrphans := s.alive, s.referenced == 0
	if onlyOrphans {
		alive = s.aliveOrphans
	}
	counted := alive
	for _, cand := range s.candidates {
		confirmed := cand.named || cand.absence.Witnessed || w.Now.Before(cand.absence.ConfirmedUntil)
		if !confirmed && !cand.node.Keep && cand.node.nameless() == onlyOrphans {
			counted++
		}
	}
	if alive*100 >= counted*c.MinOverlapPercent {
		return ""
	}
	return fmt.Sprintf("only %d of %d Calico Nodes have their Kubernetes Node, less than %d %% (--min-overlap-percent): "+
		"check that this is the right cluster and the right datastore", alive, counted, c.MinOverlapPercent)
}

// ask puts the gates of one candidate that need no live read, in the order of Gates. massRefused is why the mass guard holds it back if it
// is not vouched for, "" if it does not, and how is how that is confirmed.
func (j *judgement) ask(cand candidate, massRefused, how string, now time.Time, c Config) {
	ready, alive := cand.absence.Since.Add(c.Grace), cand.aliveUntil(now, c)
	switch {
	case cand.node.Keep:
		j.refuse(cand.subject, GateKeep, "annotation "+KeepAnnotation+" forbids it")
	case !alive.IsZero():
		j.Refusals = append(j.Refusals, Refusal{Of: cand.subject, Gate: GateSigns, Message: signsGate(cand, c)})
		j.lookAgain(alive.Sub(now))
	case j.shared != "" && !cand.vouched(now):
		j.refuse(cand.subject, GateSigns, j.shared+"; "+how)
	case massRefused != "" && !cand.vouched(now):
		j.refuse(cand.subject, GateMass, massRefused+"; "+how)
	case now.Before(ready) && !cand.named:
		j.refuse(cand.subject, GateGrace, fmt.Sprintf("absent since %s; the grace period of %s ends at %s",
			cand.absence.Since.UTC().Format(time.RFC3339), c.Grace, ready.UTC().Format(time.RFC3339)))
		j.lookAgain(ready.Sub(now))
	case now.Before(cand.absence.NotBefore):
		j.refuse(cand.subject, cand.absence.HeldBy, cand.absence.Held)
		j.lookAgain(cand.absence.NotBefore.Sub(now))
	default:
		j.due = append(j.due, cand)
	}
}

// orderDue takes as many as one round may clean: first those that no live read has spoken for yet, so that machines which are held back
// again and again do not use up every round; then the longest absent. Evidence sets the pace: a deletion that was watched, or that a person
// has confirmed, is no more in doubt the next second, so that a backlog of those is read once and cleaned in one round; each step asks again.
func (j *judgement) orderDue(now time.Time, c Config) {
	slices.SortFunc(j.due, func(a, b candidate) int {
		return cmp.Or(a.absence.NotBefore.Compare(b.absence.NotBefore), a.absence.Since.Compare(b.absence.Since),
			cmp.Compare(a.subject.Host, b.subject.Host))
	})
	var due []candidate
	unvouched := 0
	for _, cand := range j.due {
		if !cand.vouched(now) {
			unvouched++
		}
		switch {
		case !cand.vouched(now) && unvouched > c.NodesPerRound:
			j.refuse(cand.subject, GatePace, fmt.Sprintf("it is removed later: one reconcile cleans %s whose deletion was not watched, and a reconcile starts every %s",
				prose.Plural(c.NodesPerRound, "node"), c.Pace))
			j.lookAgain(c.Pace)
		case len(due) == c.Backlog():
			j.refuse(cand.subject, GatePace, fmt.Sprintf("it is removed later: one reconcile cleans %s", prose.Plural(c.Backlog(), "node")))
			j.lookAgain(shortestPace)
			j.More = true
		default:
			due = append(due, cand)
		}
	}
	j.due = due
}

func (p *Plan) refuse(s Subject, g Gate, message string) {
	p.Refusals = append(p.Refusals, Refusal{Of: s, Gate: g, Message: message})
}

func (p *Plan) lookAgain(after time.Duration) { p.Next = min(p.Next, max(after, shortestPace)) }

func clusterRefusal(g Gate, message string) Refusal { return Refusal{Gate: g, Message: message} }
