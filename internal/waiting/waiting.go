// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// How long ago a component that runs has recorded what waits at most: twice the time between two records, and a little.
const (
	freshMachines = 5 * time.Minute
	freshState    = 12 * time.Minute
)

const (
	nodeSync = "calico-node-sync"
	cloud    = "digitalocean-cloud-controller-manager"
)

// Nodes is what the calico-node-sync in a namespace holds back, with the confirmation that somebody has given, "" for
// none.
func Nodes(
	namespace string, waits nodesync.Awaiting, savedAt time.Time, confirmation string, now time.Time,
) finding.Verdict {
	out := held(nodeSync, "nodes "+waits.Hash, waits.Why, savedAt)
	out.What = fmt.Sprintf("%s %s held back by the gate %s of %s", Counted(waits), prose.Choose(waits.Count, "is", "are"), waits.Gate, nodeSync)
	out.Source += " in namespace " + namespace
	out.On = first(waits.Machines, waits.Count)
	out.Then = "what is left of these machines, and of no others, is removed from Calico's datastore: their Calico Nodes, " +
		"addresses, block affinities and endpoints. Confirm it only if they are gone for good and this is the right " +
		"cluster; kubectl mooring plan nodes shows what would go"
	if len(waits.Items) > 0 {
		out.On = first(waits.Items, waits.Count)
		out.Then = "these addresses and endpoints, and no others, are removed from Calico's datastore, each if a live read " +
			"still finds no such pod. Confirm it only if the pods are gone, and this is the right cluster"
	}
	if now.Sub(savedAt) > freshState {
		out.Stale = "it has not saved its state since; a confirmation has an effect only if " + nodeSync + " runs"
	}
	return confirmed(out, nodeSync, waits.ConfirmedBy, confirmation, now)
}

// Counted is how many machines, or leftovers of pods, wait.
func Counted(waits nodesync.Awaiting) string {
	if len(waits.Items) > 0 {
		return prose.Plural(waits.Count, "leftover")
	}
	return prose.Plural(waits.Count, "machine")
}

// MachinesOff is what the record holds back, with the confirmation that somebody has given, "" for none.
func MachinesOff(record outofservice.Record, confirmation string, now time.Time) finding.Verdict {
	waits := record.Awaiting
	out := held(cloud, "machines "+waits.Hash, waits.Why, record.SavedAt)
	machines := prose.Plural(waits.Count, "machine")
	out.What = fmt.Sprintf("%s %s off and held back by the gate mass-guard of %s", machines, prose.Choose(waits.Count, "is", "are"), cloud)
	out.On = first(waits.Machines, waits.Count)
	out.Then = "their Nodes, and no others, get the taint node.kubernetes.io/out-of-service: their Pods are deleted and " +
		"their volumes detached. Confirm it only if they do not run"
	if now.Sub(record.SavedAt) > freshMachines {
		out.Stale = "it has not written its record since; a confirmation has an effect only if " + cloud + " runs"
	}
	return confirmed(out, cloud, waits.ConfirmedBy, confirmation, now)
}

// Topology is what a topology waits for. Its status is kept up, so that it has no age.
func Topology(name string, a routereflector.Awaiting) finding.Verdict {
	const operator = "calico-route-reflector-operator"
	is := held(operator, "topology "+name+" "+a.Word, a.Why, time.Time{})
	is.What = fmt.Sprintf("RouteReflectorTopology %s waits: %s", name, a.Reason)
	switch a.Reason {
	case routereflector.ReasonMeshNotManaged:
		is.Then = "its reflectors go although no mesh takes over: nodes lose the routes that nothing else carries"
	case routereflector.ReasonMeshTooLarge:
		is.Then = "the node-to-node mesh is turned on although it is large, and then the reflectors go"
	default:
		is.Then = operator + " goes on with the Nodes and labels that there are now"
	}
	if a.Given {
		is.State, is.Next, is.Answer = finding.Settling, "", "confirmed; "+operator+" has yet to act on it"
	}
	return is
}

func held(component, what, why string, at time.Time) finding.Verdict {
	return finding.Verdict{
		State: finding.Held, Source: component, Why: why, ObservedAt: at, Next: "kubectl mooring confirm " + what,
	}
}

// confirmed adds until when a confirmation holds, or why it does not.
func confirmed(
	v finding.Verdict, component string, by func(string, time.Time) (time.Time, string), confirmation string, now time.Time,
) finding.Verdict {
	if confirmation == "" {
		return v
	}
	until, refused := by(confirmation, now)
	if v.Answer = refused; refused == "" && !until.IsZero() {
		v.State, v.Next = finding.Settling, ""
		v.Answer = fmt.Sprintf("confirmed until %s; %s has yet to act on it", until.UTC().Format(time.RFC3339), component)
	}
	return v
}

// first are the first of count things by name, and how many more there are.
func first(names []string, count int) string {
	text := strings.Join(names, ", ")
	if more := count - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
