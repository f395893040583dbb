// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"time"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// NodeEvidence is what was read of a machine.
type NodeEvidence struct {
	Now  time.Time
	Name string
	// Machine is what the sides say of it; NotAsked are those that nobody asked, with why.
	Machine  agreement.Row
	NotAsked []finding.Side
	// CalicoNames are its names in Calico's datastore, alongside its own.
	CalicoNames  []string
	OutOfService OutOfService
	NodeSync     NodeSync
	Reflectors   Reflectors
	Events       []finding.Event
	EventsRead   finding.Side
}

// NodeSync is what calico-node-sync would do now.
type NodeSync struct {
	finding.Side
	Plan nodesync.Plan
	// Grace is the grace period that the plan was made with.
	Grace time.Duration
	// Memory says whose memory of absences counts, "" for none: then every absence begins with the plan.
	Memory string
}

// Node explains a machine: what the sides say, what would be done about it and why, and what was told.
func Node(e NodeEvidence) Explanation {
	sections := []Section{e.machine(), e.outOfService(), e.nodeSync()}
	sections = append(sections, e.Reflectors.sections()...)
	return explanation("Node", "", e.Name, append(sections, events(e.Events, e.EventsRead, true, e.Now))...)
}

func (e NodeEvidence) machine() Section {
	s, m := Section{Title: "Machine"}, e.Machine
	for _, side := range [][2]string{{"droplet", m.Droplet}, {"Node", m.Node}, {"Calico", m.CalicoNode},
		{"reflector", m.Reflector}} {
		s.say(side[0], "%s", side[1])
	}
	for _, v := range m.Findings {
		s.verdict(v.State.String(), v, e.Now)
	}
	for _, side := range e.NotAsked {
		s.say("not queried", "%s: %s", side.Name, side.NotAsked)
	}
	s.compared(m.Verdict, "all sides that were queried agree")
	return s
}

// nodeSync says what calico-node-sync would do about the machine, or which gate holds it back.
func (e NodeEvidence) nodeSync() Section {
	s := Section{Title: "Clean-up (calico-node-sync)"}
	if !s.told(e.NodeSync.Side, "plan") {
		return s
	}
	plan, concerned := e.NodeSync.Plan, false
	// What a running controller is about to do ends by itself, here as in agreement.
	ill := e.Machine.Verdict != finding.Settling
	for _, d := range plan.Decisions {
		if d.Of.Is(e.Name, e.CalicoNames...) {
			s.sayIf(ill, "plan", "%s", d.Because)
		}
	}
	for _, step := range plan.Steps {
		if step.Subject().Is(e.Name, e.CalicoNames...) {
			s.sayIf(ill, "step", "%s", step)
			concerned = true
		}
	}
	for _, r := range plan.Refusals {
		switch {
		case r.Of == (nodesync.Subject{}):
			s.heed("held back", "nothing at all is removed: %s (%s)", r.Message, r.Gate)
		case !r.Of.Is(e.Name, e.CalicoNames...):
			continue
		case r.Gate.Settled():
			s.say("left alone", "%s (%s)", r.Message, r.Gate)
		case r.Gate.Pending():
			s.sayIf(ill, "waits", "%s (%s)", r.Message, r.Gate)
		default:
			s.heed("held back", "%s (%s)", r.Message, r.Gate)
		}
		concerned = true
	}
	switch {
	case !concerned && e.Machine.HasNode:
		s.say("plan", "nothing: its Kubernetes Node is there, so nothing of it is removed")
		return s
	case !concerned:
		s.say("plan", "nothing: it has no leftovers")
		return s
	}
	s.say("limits", "those of a controller without flags, with a grace period of %s", prose.Span(e.NodeSync.Grace))
	s.say("memory", "%s", cmp.Or(e.NodeSync.Memory,
		"no state of a running controller was found (none, or an old one), so that an absence starts now"))
	return s
}
