// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"fmt"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// World is what each side said. The order of its lists does not matter. Kubernetes' Nodes have been read wholly:
// without them there is nothing to compare with.
type World struct {
	// Unwatched is why nobody makes a Node NotReady whose kubelet no longer reports, "" if somebody does as far as is
	// known.
	Unwatched  string
	Now        time.Time
	Nodes      []Node
	Cloud      Cloud
	Calico     Calico
	Reflectors Reflectors
	// CleanUps are what calico-node-sync does about machines without a Node; none where it does not run.
	CleanUps []CleanUp
}

// CleanUp is what calico-node-sync does about one machine that it finds in Calico's datastore without a Kubernetes
// Node.
type CleanUp struct {
	Machine string
	// Pending reports that it removes the rest by itself. Otherwise a guard or a person's mark holds it back.
	Pending bool
	// Message is its own sentence: what it waits for, or what holds it back.
	Message string
}

// Node is a Kubernetes Node.
type Node struct {
	Name, ProviderID string
	Created          time.Time
	// Ready is the status of the condition of that name: True, False or Unknown; "" if there is none. ReadySince is when
	// it last changed.
	Ready      string
	ReadySince time.Time
	// Deleting reports a deletion timestamp, Leaving that somebody drains the Node: it is cordoned, or an autoscaler's
	// taint is on it.
	Deleting, Leaving bool
	// DeletedAt is when its deletion was requested, if it is being deleted.
	DeletedAt time.Time
	// Uninitialized reports the taint of a Node that waits for its cloud controller.
	Uninitialized bool
	// Address is what calico-node has written on the Node, ClusterID the route reflector cluster ID there; both with the
	// kubernetes datastore alone.
	Address, ClusterID string
	// Reflector is the topology that the Node's label names, "" for none.
	Reflector string
}

// Cloud is what the cloud says of the Nodes' machines.
type Cloud struct {
	finding.Side
	Droplets []Droplet
	Volumes  Volumes
}

// Droplet is the verdict on the droplet of one Node.
type Droplet struct {
	instance.Verdict
	// Off reports that it is switched off.
	Off bool
}

// Calico is what Calico's datastore holds.
type Calico struct {
	finding.Side
	// OnNodes reports that the datastore is kubernetes: a Calico Node is the Kubernetes Node there, and Nodes below are
	// hosts that hold addresses.
	OnNodes bool
	Nodes   []CalicoNode
	// Unreadable are the names of Calico Nodes that there are and that cannot be parsed.
	Unreadable []string
}

// CalicoNode is a Calico Node, or a host that holds something in Calico's address management.
type CalicoNode struct {
	Name string
	// Kubernetes is the name of its Kubernetes Node, "" if it does not say, which means its own name.
	Kubernetes string
	// Host reports that there is no Calico Node, only what a host of that name holds.
	Host bool
}

// Reflectors is what the topologies say.
type Reflectors struct {
	finding.Side
	// Topologies are the names of all that there are.
	Topologies []string
	Reflectors []Reflector
}

// Reflector is one entry of a topology's status.
type Reflector struct {
	Topology, Node, Group, ClusterID string
	// Role is Reflector, Joining or Leaving.
	Role string
}

// Sides are those that may not have been read.
func (w World) Sides() []finding.Side {
	sides := []finding.Side{w.Cloud.Side, w.Calico.Side, w.Reflectors.Side}
	for i, name := range []string{"DigitalOcean", "Calico", "reflectors"} {
		sides[i].Name = name
	}
	return sides
}

// Only returns the rows of the machines with these names, all without any. It is an error that names a machine that no
// side knows.
func Only(rows []Row, names []string) ([]Row, error) {
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Machine == name }) {
			return nil, fmt.Errorf("no side knows a machine %q", name)
		}
	}
	if len(names) == 0 {
		return rows, nil
	}
	return slices.DeleteFunc(rows, func(r Row) bool { return !slices.Contains(names, r.Machine) }), nil
}
