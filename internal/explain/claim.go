// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// ClaimEvidence is what was read of a PersistentVolumeClaim.
type ClaimEvidence struct {
	Now             time.Time
	Namespace, Name string
	// Row is its volume; nil if the claim has none of DigitalOcean's driver.
	Row *volumes.Row
	// Class is the claim's class, Driver the driver of its volume or class as far as that is known.
	Class, Driver string
	// NotRead are sides that were not queried or could not be read.
	NotRead []string
	// Machine is the Node that the volume is on, with OutOfService about it; "" for none.
	Machine      string
	OutOfService OutOfService
	Events       []finding.Event
	EventsRead   finding.Side
}

// Claim explains a PersistentVolumeClaim: its volume, where it is attached and why not, and what was told of it.
func Claim(e ClaimEvidence) Explanation {
	sections := []Section{e.volume()}
	if e.Machine != "" && (e.OutOfService.NotReady || e.OutOfService.Ours || e.OutOfService.Foreign) {
		machine := NodeEvidence{Now: e.Now, Name: e.Machine, OutOfService: e.OutOfService}.outOfService()
		machine.Title = "Machine " + e.Machine
		sections = append(sections, machine)
	}
	return explanation("PersistentVolumeClaim", e.Namespace, e.Name,
		append(sections, events(e.Events, e.EventsRead, true, e.Now))...)
}

func (e ClaimEvidence) volume() Section {
	s := Section{Title: "Volume"}
	if e.Row == nil {
		s.say("class", "%s", cmp.Or(e.Class, "none"))
		s.say("driver", "%s, which is not DigitalOcean's: its volume is unknown here", cmp.Or(e.Driver, "unknown"))
		return s
	}
	r := e.Row
	if r.Volume != "" {
		s.say("volume", "%s", r.Volume)
	}
	if r.ID != "" {
		s.say("ID", "%s, %d GiB", r.ID, r.GiB)
	}
	s.say("state", "%s", r.State)
	s.say("Pods", "%s", cmp.Or(strings.Join(r.Pods, ", "), "none"))
	s.say("machine", "%s", cmp.Or(r.Machine, "none"))
	for _, v := range r.Findings {
		s.verdict(v.State.String(), v, e.Now)
	}
	for _, n := range e.NotRead {
		s.say("not read", "%s", n)
	}
	if s.compared(r.Verdict, "Kubernetes and DigitalOcean agree"); r.Verdict == finding.OneSide {
		s.say("next", "%s", agreement.CloudNext)
	}
	return s
}
