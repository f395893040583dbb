// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Topology is what one topology waits for. Its JSON form is a contract with programs.
type Topology struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Why    string `json:"why"`
	Word   string `json:"word"`
	// Confirmed says that it is confirmed and the operator has yet to act on it.
	Confirmed bool   `json:"confirmed,omitempty"`
	Command   string `json:"command"`
}

// TopologyOf is what a topology waits for, if it waits.
func TopologyOf(t *v1alpha1.RouteReflectorTopology) (is Topology, waits bool) {
	a, waits := routereflector.Awaits(t)
	return Topology{
		Name: t.Name, Reason: string(a.Reason), Why: a.Why, Word: a.Word, Confirmed: a.Given,
		Command: fmt.Sprintf("kubectl mooring confirm topology %s %s", t.Name, a.Word),
	}, waits
}

// Head is what waits, in a line.
func (t Topology) Head() string {
	return fmt.Sprintf("RouteReflectorTopology %s waits: %s", t.Name, t.Reason)
}

// Consequence is what the operator does once it is confirmed.
func (t Topology) Consequence() string {
	switch routereflector.Reason(t.Reason) {
	case routereflector.ReasonMeshNotManaged:
		return "its reflectors go although no mesh takes over: nodes lose the routes that nothing else carries"
	case routereflector.ReasonMeshTooLarge:
		return "the node-to-node mesh is turned on although it is large, and then the reflectors go"
	default:
		return "calico-route-reflector-operator goes on with the Nodes and labels that there are now"
	}
}

func (t Topology) text(columns int) string {
	text := prose.Wrap("", "", t.Head(), columns) + field("why", t.Why, columns)
	if t.Confirmed {
		return text + field("confirmed", "calico-route-reflector-operator has yet to act on it", columns)
	}
	return text + field("to confirm", t.Command, columns) + field("then", t.Consequence(), columns)
}
