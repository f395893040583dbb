// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// OutOfService is what digitalocean-cloud-controller-manager has recorded of machines that are off.
type OutOfService struct {
	finding.Side
	// Record is nil if there is none.
	Record *outofservice.Record
	// Ours and Foreign report whether the Node has the taint of the component, and of somebody else.
	Ours, Foreign bool
	// NotReady reports whether the Node is not ready.
	NotReady bool
}

// freshRecord is how old the record of a component that runs is at most while a Node is not ready.
const freshRecord = 5 * time.Minute

// outOfService reports whether the taint out-of-service is set on a machine's Node, and why or why not. It is left out where the component
// keeps no record, the Node is ready and has no such taint.
func (e NodeEvidence) outOfService() Section {
	s, o := Section{Title: "Out of service (digitalocean-cloud-controller-manager)"}, e.OutOfService
	if o == (OutOfService{}) {
		return Section{}
	}
	switch {
	case o.Ours:
		s.heed("taint", "node.kubernetes.io/out-of-service is set by digitalocean-cloud-controller-manager: Pods of the machine are deleted, and its volumes detached")
	case o.Foreign:
		s.heed("taint", "node.kubernetes.io/out-of-service was set by another party, which has to remove it")
	default:
		s.say("taint", "node.kubernetes.io/out-of-service is not set")
	}
	if !s.told(o.Side, "why") {
		return s
	}
	if o.Record == nil {
		s.say("why", "digitalocean-cloud-controller-manager has no record of machines that are off: it does not run, or runs without --out-of-service-taint")
		return s
	}
	at := slices.IndexFunc(o.Record.Machines, func(v outofservice.Verdict) bool { return v.Node == e.Name })
	o.why(&s, at)
	old := e.Now.Sub(o.Record.SavedAt) > freshRecord && (o.NotReady || at >= 0)
	s.sayIf(old, "recorded", "%s ago", prose.Span(e.Now.Sub(o.Record.SavedAt)))
	if old {
		s.heed("stale", "the component has not written since: it does not run, or no longer has the flag --out-of-service-taint")
	}
	return s
}

// why says what the record has of the machine, which is at that place of its machines, -1 for nowhere.
func (o OutOfService) why(s *Section, at int) {
	switch {
	case !o.Record.Enabled:
		s.say("why", "digitalocean-cloud-controller-manager runs without --out-of-service-taint")
	case at >= 0:
		v := o.Record.Machines[at]
		waits := v.Reason != outofservice.ReasonOutOfService && v.Reason != outofservice.ReasonGrace
		s.sayIf(waits, "why", "%s (%s)", v.Message, v.Reason)
	case o.Record.More > 0:
		s.say("why", "the record does not have all machines; the metric mooring_digitalocean_out_of_service_machines counts them by reason")
	case o.NotReady:
		s.say("why", "DigitalOcean reports its droplet as active, so that the machine may run, or the Node has just become NotReady")
	default:
		s.say("why", "the Node is ready")
	}
}
