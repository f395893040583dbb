// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package oldplanner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

const (
	// Freshness is how old a sighting may be that a step relies on, unless anyone who gathers them vouches for it
	// ([Sighting.Current]). BIRD reports a session that went down at once, but a peer that fell silent looks
	// Established for up to four minutes; so a sighting shows that a session came up, never that a node lives.
	Freshness = time.Minute
	// meshSample is how many clients must see the whole mesh before a reflector goes for good.
	meshSample = 3
	// namesInWait is how many nodes a sentence names.
	namesInWait = 3
)

// wait says what a step has to wait for, "" if it can be done now.
func (w gates) wait(step Step, reflectors []Reflector) string {
	switch step.Kind {
	case RetirePeer:
		return w.unadopted(reflectors)
	case Promote:
		if w.restores(step) {
			return ""
		}
		// At most one reflector is without its sessions at any time: the one that has just been made.
		return cmp.Or(w.unsettled(w.working(nil)), w.silentCandidate(step))
	case Demote:
		if w.abandons() {
			return ""
		}
		if w.gatedByMesh() {
			return w.meshUnsettled()
		}
		return w.unsettled(w.concerned(step, reflectors))
	case Leave:
		return w.leaveWaits(step)
	case MeshOff:
		if joining := inRole(reflectors, RoleJoining); len(joining) > 0 {
			return fmt.Sprintf("%s is not a reflector yet", joining[0].Node)
		}
		if why := w.unsettled(w.working(nil)); why != "" {
			return why
		}
		return cmp.Or(w.unrouted(), w.meshStays())
	case EnsurePeer, RemovePeer, MeshOn, Adopt, Assign, Join, Release: // these take nothing away that is in use
	}
	return ""
}

// restores reports that a promotion only gives a reflector back what was written on it, and resets no session that
// carries routes: without the label or a cluster ID it reflects nothing, and with another group's label not to its
// clients. One whose ID was changed to another has its sessions, as BGPPeers select by labels alone, and reflects.
func (w facts) restores(step Step) bool {
	n, _ := w.node(step.Node)
	if !n.altered() {
		return false
	}
	_, labeled := n.Labels[v1alpha1.ReflectorLabel]
	return !labeled || n.ClusterID == "" ||
		n.Written.Group != n.labeledGroup() && (n.ClusterID == n.Written.ClusterID || !w.isFlat())
}

// silentCandidate says that no reflector has a session with the node that is to become one: its BIRD may be dead. After
// a while the node is named as a silent client, and another is chosen.
func (w gates) silentCandidate(step Step) string {
	n, exists := w.node(step.Node)
	clients := w.roster()
	if !exists || w.Mesh.On || !n.isClient(&w.Topology) {
		return ""
	}
	own := slices.DeleteFunc(w.working(nil), func(r Node) bool {
		return !clients.has(&n, r.group()) || !w.couldMeet(&n, &r)
	})
	if len(own) == 0 || !w.cutOff(n, clients, own) {
		return ""
	}
	return fmt.Sprintf("no reflector has an Established session with %s, which is to become one", n.Name)
}

// couldMeet reports whether two nodes could have a session in some family.
func (w facts) couldMeet(a, b *Node) bool {
	return slices.ContainsFunc(families(), func(f family) bool { return f.up(a) && f.up(b) && !w.parts(f, a, b) })
}

// unproven says what is missing until every reflector has been seen with its sessions after the last step, "" if
// nothing is.
func (w gates) unproven() string {
	silent := w.firstNode(func(n *Node) bool {
		return n.isReflectorOf(&w.Topology) && (!n.speaks() || !n.lives())
	})
	if silent != "" {
		return fmt.Sprintf(
			"reflector %s is not Ready or lost by its witnesses, and its sessions have not been seen",
			silent,
		)
	}
	return w.unsettled(w.working(nil))
}

// unsettled says which of the reflectors has not been seen with all its sessions, "" if all have. A client, of whatever
// AS, that has no session with any working reflector of its own, one that leaves included, while the mesh is off holds
// nothing up: it is cut off already, and its trouble is its own.
func (w gates) unsettled(reflectors []Node) string {
	clients, working := w.roster(), w.working(nil)
	for i := range reflectors {
		r := &reflectors[i]
		s, seen := w.sighting(r.Name)
		if !seen {
			return fmt.Sprintf("reflector %s has not reported its sessions", r.Name)
		}
		missing := w.missing(s.Established, *r, func(n Node) bool { return clients.expects(r, &n) })
		missing = slices.DeleteFunc(missing, func(n Node) bool {
			return !w.Mesh.On && n.isSelected(&w.Topology) && w.cutOff(n, clients, working)
		})
		if len(missing) > 0 {
			return fmt.Sprintf("reflector %s has no Established session with %s", r.Name, names(missing))
		}
	}
	return ""
}

// meshUnsettled says what is missing until a sample of clients has been seen with a session to every other node of the
// mesh.
func (w gates) meshUnsettled() string {
	if !w.Mesh.On {
		return "the node-to-node mesh is off"
	}
	inMesh := func(n Node) bool { return n.runsBGP() && n.ClusterID == "" }
	members, full := 0, 0
	for _, n := range w.Nodes {
		if !inMesh(n) || !n.lives() {
			continue
		}
		members++
		s, seen := w.sighting(n.Name)
		if !seen {
			continue
		}
		if missing := w.missing(s.Mesh, n, inMesh); len(missing) > 0 {
			return fmt.Sprintf("%s has no Established mesh session with %s", n.Name, names(missing))
		}
		full++
	}
	if want := min(meshSample, members); full < want {
		return fmt.Sprintf("%d of %d sampled nodes have reported that their mesh sessions are Established", full, want)
	}
	return ""
}

func names(nodes []Node) string {
	all := make([]string, 0, len(nodes))
	for i := range nodes {
		all = append(all, nodes[i].Name)
	}
	return Few(all)
}

// Few is a list of names that is short enough for a sentence.
func Few(all []string) string {
	text := strings.Join(all[:min(len(all), namesInWait)], ", ")
	if more := len(all) - namesInWait; more > 0 {
		return fmt.Sprintf("%s and %d more", text, more)
	}
	return text
}

// Sessions counts the live clients that a reflector should have sessions with, and those with which it was last seen to
// have them in every family, and when; at is zero if it has not said so lately.
func (w World) Sessions(reflector string) (established, expected int, at time.Time) {
	n, exists := factsOf(&w).node(reflector)
	if !exists {
		return 0, 0, time.Time{}
	}
	clients := factsOf(&w).roster()
	client := func(c Node) bool { return c.isClient(&w.Topology) && clients.has(&c, n.group()) }
	expected = len(factsOf(&w).missing(nil, n, client))
	s, seen := factsOf(&w).sighting(reflector)
	if !seen {
		return 0, expected, time.Time{}
	}
	return expected - len(factsOf(&w).missing(s.Established, n, client)), expected, s.At
}

// ClientsAtRisk counts the live clients that some reflector was seen without a session with. Reflectors that have not
// spoken lately say nothing.
func (w World) ClientsAtRisk() int {
	risk, clients := map[string]bool{}, factsOf(&w).roster()
	for _, r := range factsOf(&w).working(nil) {
		s, seen := factsOf(&w).sighting(r.Name)
		if !seen {
			continue
		}
		for _, n := range factsOf(&w).missing(s.Established, r, func(c Node) bool { return c.isClient(&w.Topology) && clients.has(&c, r.group()) }) {
			risk[n.Name] = true
		}
	}
	return len(risk)
}

// Approval says what somebody has to do before the plan's steps are carried out, "" if nothing: spec.rollout.mode asks
// for it.
func (w World) Approval(p Plan) string {
	rollout := w.Topology.Spec.Rollout
	switch {
	case len(p.Steps) == 0:
	case rollout.Mode == v1alpha1.RolloutDryRun:
		return "spec.rollout.mode is DryRun: the plan is shown and nothing is written; set it to Auto to carry it out"
	case rollout.Mode == v1alpha1.RolloutManual && !factsOf(&w).exiting() && rollout.ApprovedPlan != p.Hash:
		return fmt.Sprintf("set spec.rollout.approvedPlan to %s to have the plan carried out", p.Hash)
	}
	return ""
}

// atOnce counts the first steps that are done in one round: in an emergency all that add something. The one that is
// chosen first may be ill as well, and to wait for it would prolong the outage. Otherwise it is one, but for adopted
// BGPPeers that go and for clients.
func (w gates) atOnce(p Plan) int {
	one := min(len(p.Steps), 1)
	if !w.emergency() && !w.rescuing() || one > 0 && p.Steps[0].Kind == MeshOn {
		return max(retiredAtOnce(p.Steps), w.clientsAtOnce(p), one)
	}
	first := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Kind != EnsurePeer && s.Kind != Promote })
	if first < 0 {
		first = len(p.Steps)
	}
	return max(first, one)
}

// clientsAtOnce counts the first steps that are about one client each and wait for nothing. They are independent of
// each other: a client passes nothing on. A plan lists no more than [maxClientSteps] of them.
func (w gates) clientsAtOnce(p Plan) int {
	count := slices.IndexFunc(p.Steps, func(s Step) bool { return !s.ofClient() || w.wait(s, p.Reflectors) != "" })
	if count < 0 {
		count = len(p.Steps)
	}
	return count
}

// gate says what the first step waits for, or the end of the last one, and whose word is needed for that.
func (w gates) gate(p *Plan) {
	p.AtOnce = w.atOnce(*p)
	switch {
	case len(p.Steps) > 0:
		p.Waiting = w.wait(p.Steps[0], p.Reflectors)
		p.Lasting = p.Waiting != "" && p.Steps[0].Kind == MeshOff && p.Waiting == w.meshStays()
	case w.Unproven && len(p.Refusals) == 0 && !w.exiting():
		p.Waiting = w.unproven()
	}
	p.Witnesses, p.Samples = w.witnesses(*p)
}
