// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"time"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/topology"
)

// World is what was read of a cluster. The order of its lists does not matter. Machines have been read wholly; of each other part a problem says why
// it could not be read, "" if it was.
type World struct {
	// Cluster is what the kubeconfig calls it.
	Cluster string
	// ReadAt is when the reading was complete.
	ReadAt time.Time
	// Now is that moment by the API server's clock, by which the ages of its objects are judged; zero if it is the same.
	Now time.Time
	// Notes say which sides of the agreement were not queried, and why.
	Notes []string

	// Machines are all that any side knows; Zones has the zones of their Nodes, by name.
	Machines []agreement.Row
	Zones    map[string]string

	Topologies       []topology.Map
	TopologiesAbsent bool // there is no such kind
	TopologyProblem  string

	Balancers       []Balancer
	BalancerProblem string
	// Candidates is how many Nodes there are, Excluded why some of them are not load balancers's targets.
	Candidates int
	Excluded   []Excluded

	Volumes Volumes

	Tenants       []Tenant
	TenantsAbsent bool // there is no such kind
	TenantProblem string

	// Components are Mooring's own programs, ComponentProblem is why some may be missing.
	Components       []Component
	ComponentProblem string

	// Waits are what waits for a person, WaitProblem is why some may be missing.
	Waits       []finding.Verdict
	WaitProblem string

	// Findings are the doctor's, worst first, of CheckedAt, which is zero if it has not run.
	Findings  []finding.Finding
	CheckedAt time.Time

	// Entries are the reported steps, JournalProblems why some could not be read, a sentence for each place.
	Entries         []Entry
	JournalProblems []string
}

// now is the moment of the reading by the API server's clock.
func (w World) now() time.Time { return cmp.Or(w.Now, w.ReadAt) }

// Component is one of Mooring's programs.
type Component = finding.Component

// Balancer is a Service of type LoadBalancer.
type Balancer struct {
	Namespace, Name string
	Created         time.Time
	Deleting        bool
	// DeletedAt is when its deletion was requested, if it is being deleted.
	DeletedAt time.Time
	// Class is the class of load balancers that it asks for, "" for the cluster's own.
	Class string
	// ID is the load balancer's at DigitalOcean, "" if the Service does not say.
	ID string
	// Addresses are IP addresses and host names at which it serves, none while there is no load balancer.
	Addresses []string
	Ports     []Port
	// Problem is why the load balancer is not what the Service asks for, "" if nothing shows that.
	Problem string
	// Local reports that only Nodes with a pod of the Service get its traffic.
	Local bool
}

// Port is one port of a Service. Node is 0 where Nodes have none.
type Port struct {
	Protocol   string
	Port, Node int32
}

// Excluded is a Node that is not a target, and why.
type Excluded struct{ Node, Reason string }

// Tenant is an EtcdStorage.
type Tenant struct {
	Name, Endpoint, Proxies string
	Deleting                bool
	// Ready is the status of the condition of that name, "" while there is none; Reason and Message are its own, Since is when it last changed.
	Ready, Reason, Message string
	Since                  time.Time
	// Trouble is what else needs attention, as kubectl mooring explain etcdstorage has it; "" for nothing.
	Trouble string
	// Counted reports that somebody has counted what it stores.
	Counted bool
	Usage   []Usage
}

// Usage is one thing that a tenant stores. A Limit of 0 is none.
type Usage struct {
	What        string // bytes, keys or leases
	Used, Limit int64
}

// Entry is a step that a component reported, in its journal or by an Event.
type Entry struct {
	At time.Time
	// Component did it; About is the object or the machine.
	Component, About string
	// Reason is one word, Text the sentence. Times is how often it was reported.
	Reason, Text string
	Times        int
	Warning      bool
	// Unverified reports that others than the component may have written it.
	Unverified bool
}
