// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outofservice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reason says in one word where a machine stands. It is the label of a metric and MUST NOT change.
type Reason string

// The reasons.
const (
	// ReasonInService: the Node is ready, or DigitalOcean calls its droplet active, and it has no taint of ours.
	ReasonInService Reason = "in-service"
	// ReasonDisabled: the droplet does not run, and the flag is not set.
	ReasonDisabled Reason = "disabled"
	// ReasonAccount: DigitalOcean's answers may be about another account.
	ReasonAccount Reason = "account"
	// ReasonState: DigitalOcean has not said yet whether the droplet runs, or calls it neither active nor off.
	ReasonState Reason = "state"
	// ReasonGrace: Kubernetes has not set the Node to not ready yet.
	ReasonGrace Reason = "grace"
	// ReasonKubelet: the kubelet's Lease was renewed lately, or cannot be read.
	ReasonKubelet Reason = "kubelet"
	// ReasonProof: the droplet is being read again by ID.
	ReasonProof Reason = "proof"
	// ReasonMassGuard: too many machines are off at a time, a person has to confirm it.
	ReasonMassGuard Reason = "mass-guard"
	// ReasonSet: the taint is set now.
	ReasonSet Reason = "set"
	// ReasonOutOfService: the Node has the taint.
	ReasonOutOfService Reason = "out-of-service"
	// ReasonForeign: somebody else has set the taint, which is left alone.
	ReasonForeign Reason = "foreign"
	// ReasonReturning: the Node has the taint, and its machine is about to be back.
	ReasonReturning Reason = "returning"
	// ReasonRemoved: the taint is removed now.
	ReasonRemoved Reason = "removed"
)

// Reasons are all reasons, in the order of a machine's way.
func Reasons() []Reason {
	return []Reason{
		ReasonInService, ReasonDisabled, ReasonAccount, ReasonState, ReasonGrace, ReasonKubelet, ReasonProof, ReasonMassGuard, ReasonSet, ReasonOutOfService,
		ReasonForeign, ReasonReturning, ReasonRemoved,
	}
}

// Verdict is where one machine stands. Its JSON form is recorded and MUST stay readable.
type Verdict struct {
	Node    string `json:"node"`
	Droplet int    `json:"droplet"`
	Reason  Reason `json:"reason"`
	// Message is one sentence. It names no time that passes, so that it stays the same while nothing changes.
	Message string `json:"message"`
}

// Plan is what is to be done.
type Plan struct {
	// Verdicts has one entry per machine, in the order of names.
	Verdicts []Verdict
	// Steps are what is to be written, in the order of names; those that remove a taint are first.
	Steps []Step
	// Ask are droplets that are to be read by ID, in ascending order; AskLater those that are when there are calls to spare, since DigitalOcean has called
	// them active: however many Nodes are not ready, they take no call from what is off.
	Ask, AskLater []int
	// Awaiting is what waits for a person.
	Awaiting Awaiting
	// Memory is to be recorded before the first step.
	Memory Memory
}

// Step is one write to a Node.
type Step interface {
	fmt.Stringer
	// On returns the Node's name and UID, which is a precondition.
	On() (node, uid string)
	step()
}

// SetTaint sets the taint. State is what DigitalOcean calls the droplet.
type SetTaint struct {
	Node, UID string
	Droplet   int
	State     State
}

// RemoveTaint removes our taint and no other.
type RemoveTaint struct {
	Node, UID string
	Droplet   int
	// NotReady reports that the Node is not ready, and reports: only while that is so is the taint removed.
	NotReady bool
}

func (SetTaint) step()    {}
func (RemoveTaint) step() {}

// On implements Step.
func (s SetTaint) On() (node, uid string) { return s.Node, s.UID }

// On implements Step.
func (s RemoveTaint) On() (node, uid string) { return s.Node, s.UID }

// String implements fmt.Stringer.
func (s SetTaint) String() string {
	return fmt.Sprintf("set the taint out-of-service on node %s: droplet %d is %s", s.Node, s.Droplet, s.State)
}

// String implements fmt.Stringer.
func (s RemoveTaint) String() string {
	return fmt.Sprintf("remove the taint out-of-service from node %s: droplet %d is active and %s", s.Node, s.Droplet, s.Why())
}

// Why says what shows, in addition to the active droplet, that the machine is back.
func (s RemoveTaint) Why() string {
	if s.NotReady {
		return "the kubelet reports again"
	}
	return "the Node is ready"
}

// MakePlan decides; the package's comment says by which rules.
func MakePlan(w World, c Config) Plan {
	machines := slices.Clone(w.Machines)
	slices.SortFunc(machines, func(a, b Machine) int { return strings.Compare(a.Node, b.Node) })
	p := Plan{Memory: recent(w, c)}
	off := offNow(machines, p.Memory)
	allowed := c.Allowance(len(machines))
	held := false
	if len(off) <= allowed {
		p.Memory.Offered = kept(w.Memory.Offered, machines, off)
	} else {
		p.Memory.Offered = offer(w.Memory.Offered, machines, off)
		held = !confirms(w.Confirmation, p.Memory.Offered.Hash, w.Now)
	}
	var waiting []Machine
	var set []Step
	for _, m := range machines {
		v, ask := judge(m, w, c)
		if v.Reason == ReasonProof || v.Reason == ReasonSet {
			if held {
				v.Reason, v.Message, ask = ReasonMassGuard, fmt.Sprintf("droplet %d is %s, like many others: %d machines are off at a time, and %d are allowed without a confirmation; "+
					"kubectl mooring confirm shows them", m.Droplet, m.State, len(off), allowed), false
			}
		}
		switch v.Reason {
		case ReasonMassGuard:
			waiting = append(waiting, m)
		case ReasonSet:
			set = append(set, SetTaint{Node: m.Node, UID: m.UID, Droplet: m.Droplet, State: m.State})
			p.Memory = p.Memory.with(Intent{Node: m.Node, UID: m.UID, At: w.Now})
		case ReasonRemoved:
			p.Steps = append(p.Steps, RemoveTaint{Node: m.Node, UID: m.UID, Droplet: m.Droplet, NotReady: !m.Ready})
			p.Memory = p.Memory.without(m)
		default:
		}
		switch {
		case ask && m.asksLater():
			p.AskLater = append(p.AskLater, m.Droplet)
		case ask:
			p.Ask = append(p.Ask, m.Droplet)
		}
		p.Verdicts = append(p.Verdicts, v)
	}
	p.Steps = append(p.Steps, set...)
	slices.Sort(p.Ask)
	p.Ask = slices.Compact(p.Ask)
	slices.Sort(p.AskLater)
	p.AskLater = slices.DeleteFunc(slices.Compact(p.AskLater), func(id int) bool { return slices.Contains(p.Ask, id) })
	if held {
		p.Awaiting = awaiting(waiting, p.Memory.Offered.Hash, len(off), allowed)
	}
	return p
}

// asksLater reports whether a droplet is read only when there are calls to spare: it is called active, or its Node is ready and it is not known to be off.
func (m Machine) asksLater() bool {
	return !m.Ours && (m.State == StateActive || m.Ready && !m.State.Out())
}

// judge says where a machine stands without regard to the others, and whether its droplet is to be read by ID.
func judge(m Machine, w World, c Config) (v Verdict, ask bool) {
	v = Verdict{Node: m.Node, Droplet: m.Droplet}
	say := func(reason Reason, format string, args ...any) Verdict {
		v.Reason, v.Message = reason, fmt.Sprintf(format, args...)
		return v
	}
	stale := m.StateAt.IsZero() || w.Now.Sub(m.StateAt) >= c.ProofAge
	switch {
	case m.Ours:
		return judgeOurs(m, w, c, say, stale)
	case m.Foreign && !m.Ready:
		return say(ReasonForeign, "another party has set the taint out-of-service; it is not changed"), false
	case m.Ready:
		return judgeReady(m, w, c, say)
	case !w.Enabled && m.State.Out():
		return say(ReasonDisabled, "droplet %d is %s: its volumes stay attached, since --out-of-service-taint is not set", m.Droplet, m.State), false
	case !w.Enabled:
		return say(ReasonDisabled, "--out-of-service-taint is not set"), false
	case w.Distrust != "":
		return say(ReasonAccount, "%s", w.Distrust), false
	case m.State == StateUnknown:
		return say(ReasonState, "the state of droplet %d at DigitalOcean is unknown", m.Droplet), due(m, w, c)
	case m.State == StateActive:
		return say(ReasonInService, "DigitalOcean reports droplet %d as active, so that the machine may run: the taint out-of-service is not set", m.Droplet), stale
	case !m.State.Out():
		return say(ReasonState, "DigitalOcean reports droplet %d as neither active nor off", m.Droplet), false
	}
	return judgeOut(m, w, c, say)
}

// judgeReady is judge for a Node that is ready. Where a kubelet has missed a renewal its droplet is read, so that one more GET by ID is proof when
// Kubernetes sets the Node to not ready.
func judgeReady(m Machine, w World, c Config, say func(Reason, string, ...any) Verdict) (v Verdict, ask bool) {
	switch {
	case !w.Enabled || w.Distrust != "" || m.Foreign || !m.MissedRenewal(w.Now, c):
		return say(ReasonInService, "the Node is ready"), false
	case m.State.Out():
		return say(ReasonGrace, "droplet %d is %s, and its kubelet does not renew its Lease; Kubernetes has not set the Node to not ready yet", m.Droplet, m.State), age(w, m.Proof.Last) >= c.Recheck
	default:
		return say(ReasonInService, "the Node is ready, and its kubelet has missed a renewal of its Lease"), age(w, m.StateAt) >= c.Recheck
	}
}

// judgeOurs is judge for a Node that has our taint.
func judgeOurs(m Machine, w World, c Config, say func(Reason, string, ...any) Verdict, stale bool) (v Verdict, ask bool) {
	switch {
	case m.Ready && m.State == StateActive && w.Distrust == "":
		return say(ReasonRemoved, "droplet %d is active and the Node is ready", m.Droplet), false
	case m.Ready && m.State == StateActive:
		return say(ReasonReturning, "the Node is ready, and DigitalOcean cannot be relied on: %s", w.Distrust), false
	case m.Ready:
		return say(ReasonReturning, "the Node is ready, and DigitalOcean does not call droplet %d active yet", m.Droplet), stale
	case m.State == StateActive && reports(m, w, c) && !stale:
		return say(ReasonRemoved, "droplet %d is active, its kubelet reports again, and no volume is attached: with the taint the Node might never be ready", m.Droplet), false
	case m.State == StateActive:
		return say(ReasonReturning, "droplet %d is active, and the Node is not ready yet", m.Droplet), stale && reports(m, w, c)
	case m.State.Out():
		return say(ReasonOutOfService, "droplet %d is %s: its Pods are deleted and its volumes detached", m.Droplet, m.State), false
	default:
		return say(ReasonOutOfService, "the Node is not ready, and DigitalOcean does not report droplet %d as active", m.Droplet), false
	}
}

// reports reports whether a machine with our taint runs and is in contact, and has no volume that could be elsewhere too: the kubelet itself calls the Node
// not ready and has renewed its Lease for the grace period, as this process has read it. What keeps the Node from being ready may be the taint: a network
// plugin that does not tolerate it does not start on a machine that was rebuilt.
func reports(m Machine, w World, c Config) bool {
	l := m.Lease
	return w.Enabled && w.Distrust == "" && m.Reports && !m.Volumes && !l.RenewedSince.IsZero() && age(w, l.RenewedSince) >= c.Grace && age(w, l.SilentSince) < c.Grace &&
		age(w, l.ReadAt) <= c.LeaseAge
}

// judgeOut is judge for a Node that is not ready, whose droplet does not run.
func judgeOut(m Machine, w World, c Config, say func(Reason, string, ...any) Verdict) (v Verdict, ask bool) {
	silent, read := m.Lease.SilentSince, m.Lease.ReadAt
	switch {
	case silent.IsZero():
		return say(ReasonKubelet, "droplet %d is %s; the kubelet's Lease cannot be read: %s", m.Droplet, m.State, cmp.Or(m.Lease.Problem, "it was not tried yet")), false
	case w.Now.Sub(silent) < c.Grace:
		return say(ReasonKubelet, "droplet %d is %s; its kubelet must not renew its Lease for %s", m.Droplet, m.State, c.Grace), due(m, w, c)
	case w.Now.Sub(read) > c.LeaseAge:
		return say(ReasonKubelet, "droplet %d is %s; the kubelet's Lease cannot be read: %s", m.Droplet, m.State, cmp.Or(m.Lease.Problem, "others are read first")), false
	case !proven(m, w, c):
		return say(ReasonProof, "droplet %d is %s; it is read again by ID", m.Droplet, m.State), due(m, w, c)
	}
	return say(ReasonSet, "droplet %d is %s, the Node is not ready and its kubelet does not renew its Lease", m.Droplet, m.State), false
}

// proven reports whether two GETs by ID, apart and the later one since the Node is not ready, have said what is the newest word.
func proven(m Machine, w World, c Config) bool {
	p := m.Proof
	return p.State.Out() && p.State == m.State && p.Last.Sub(p.First) >= c.ProofGap && !p.Last.Before(m.NotReadySince) && age(w, p.Last) <= c.ProofAge &&
		!p.Last.After(w.Now)
}

// due reports whether one more GET by ID proves more: at once when the Node has become not ready since the last, and where two are proof already, when
// the later one is too old.
func due(m Machine, w World, c Config) bool {
	p := m.Proof
	switch {
	case p.Last.IsZero() || p.Last.Before(m.NotReadySince):
		return true
	case p.State == m.State && p.Last.Sub(p.First) >= c.ProofGap:
		return age(w, p.Last) > c.ProofAge
	default:
		return age(w, p.Last) >= c.ProofGap
	}
}

func age(w World, at time.Time) time.Duration { return w.Now.Sub(at) }

// offNow are the machines that count for the guard: those that are off by the newest word, those that have our taint, and those that were about to get
// it. What was proven in this minute plays no part, so that the set changes only when a machine does.
func offNow(machines []Machine, memory Memory) []Machine {
	var off []Machine
	for _, m := range machines {
		if m.Ours || !m.Foreign && m.State.Out() || memory.has(m) {
			off = append(off, m)
		}
	}
	return off
}

// recent returns the intents that still count, in the order of names.
func recent(w World, c Config) Memory {
	var kept Memory
	for _, i := range w.Memory.Intents {
		if age(w, i.At) < c.IntentAge {
			kept = kept.with(i)
		}
	}
	return kept
}

// with returns the memory with one more intent, the newest of a machine.
func (m Memory) with(i Intent) Memory {
	intents := slices.DeleteFunc(slices.Clone(m.Intents), func(o Intent) bool { return o.UID == i.UID && !o.At.After(i.At) })
	if !slices.ContainsFunc(intents, func(o Intent) bool { return o.UID == i.UID }) {
		intents = append(intents, i)
	}
	slices.SortFunc(intents, func(a, b Intent) int { return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.UID, b.UID)) })
	m.Intents = intents
	return m
}

// without returns the memory without the intent of a machine that is back: its taint has been seen, and is removed.
func (m Memory) without(machine Machine) Memory {
	m.Intents = slices.DeleteFunc(slices.Clone(m.Intents), func(i Intent) bool { return i.UID == machine.UID })
	return m
}

func (m Memory) has(machine Machine) bool {
	return slices.ContainsFunc(m.Intents, func(i Intent) bool { return i.UID == machine.UID })
}
