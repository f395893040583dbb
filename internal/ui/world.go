// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/topology"
)

// World is what was read of a cluster. The order of its lists does not matter. Machines have been read wholly; of each
// other part a problem says why it could not be read, "" if it was.
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
	Components       []finding.Component
	ComponentProblem string

	// Waits are what waits for a person, WaitProblem is why some may be missing.
	Waits       []finding.Verdict
	WaitProblem string

	// Findings are the doctor's, worst first, of CheckedAt, which is zero if it has not run.
	Findings  []finding.Finding
	CheckedAt time.Time

	// Entries are the reported steps, JournalProblems why some could not be read, a sentence for each place.
	Entries         []finding.Event
	JournalProblems []string
}

// now is the moment of the reading by the API server's clock.
func (w World) now() time.Time { return cmp.Or(w.Now, w.ReadAt) }

// Balancer is a Service of type LoadBalancer.
type Balancer struct {
	corev1.Service

	// ID is the load balancer's at DigitalOcean, "" if the Service does not say.
	ID string
	// Verdict is what is known of the load balancer, as kubectl mooring explain service has it.
	Verdict finding.Verdict
}

// Excluded is a Node that is not a target, and why.
type Excluded struct{ Node, Reason string }

// Tenant is an EtcdStorage.
type Tenant = etcdv1alpha1.EtcdStorage
