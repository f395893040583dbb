// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package estate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// World is all that the estate is judged by. DigitalOcean's lists were read before Kubernetes': what a list shows had its
// record in the cluster by then.
type World struct {
	Now time.Time
	// Cluster has the cluster's ID and the defaults for annotations. Without an ID nothing is known to be left over.
	Cluster loadbalancer.Cluster
	// Services are all Services of the cluster, Machines the droplets of its Nodes.
	Services []*corev1.Service
	Machines []int

	LoadBalancers List[loadbalancer.Observed]
	Certificates  List[loadbalancer.Certificate]
	Firewalls     List[firewall.Observed]
	Droplets      List[instance.Droplet]
	// Sizes are the monthly prices of droplets in cents, by slug; nil if they were not read.
	Sizes map[string]int
	// Firewall names the cluster's firewall, and Controller the workload that is configured with it.
	Firewall   firewall.Config
	Controller string
	// Storage are volumes and snapshots with their verdict.
	Storage []Stored
	// NotRead are other sides that could not be read, with why.
	NotRead []string
}

// List is one of DigitalOcean's lists. The zero value is a list that nobody wanted.
type List[T any] struct {
	Items []T
	// Read reports that Items are all there are; Problem is why they are not.
	Read    bool
	Problem string
}

// Listed is a list that was read, or why it was not.
func Listed[T any](items []T, err error) List[T] {
	if err != nil {
		return List[T]{Problem: err.Error()}
	}
	return List[T]{Items: items, Read: true}
}

// Stored is a volume or a snapshot, and what was found out about it.
type Stored struct {
	Kind     Kind
	Name, ID string
	// GiB is the billed size.
	GiB          float64
	State        State
	ReferencedBy []string
	Why          string
	// Next is what to do where nothing can be removed by a command, empty otherwise.
	Next string
}

// Kind is what an object is. The values are a contract with programs and values of a metric's label: MUST NOT change.
type Kind string

// The kinds of objects.
const (
	LoadBalancer Kind = "load_balancer"
	Certificate  Kind = "certificate"
	Firewall     Kind = "firewall"
	Volume       Kind = "volume"
	Snapshot     Kind = "snapshot"
)

// Removable are the kinds that a person can remove by a command, in the words of that command.
func Removable() map[string]Kind {
	return map[string]Kind{
		LoadBalancer.argument(): LoadBalancer, Certificate.argument(): Certificate, Volume.argument(): Volume, Snapshot.argument(): Snapshot,
	}
}

// argument is a kind as the command takes it.
func (k Kind) argument() string {
	if k == LoadBalancer {
		return "load-balancer"
	}
	return string(k)
}

// String is a kind for people.
func (k Kind) String() string {
	if k == LoadBalancer {
		return "load balancer"
	}
	return string(k)
}

// State is what the cluster has to do with an object. The values are a contract with programs: MUST NOT change.
type State string

// The states of objects.
const (
	// Unreferenced is an object of this cluster to which nothing in the cluster refers.
	Unreferenced State = "unreferenced"
	// Unknown is an object of which that cannot be told.
	Unknown State = "unknown"
	// Settling is an object that is so new that what refers to it may not be written yet.
	Settling State = "settling"
	// Referenced is an object to which something in the cluster leads.
	Referenced State = "referenced"
)

// rank orders states, what needs a person first.
func (s State) rank() int {
	switch s {
	case Unreferenced:
		return 0
	case Unknown:
		return 1
	case Settling:
		return 2
	case Referenced:
	}
	return 3
}

// Object is one object of the estate. Its JSON form is a contract with programs.
type Object struct {
	Kind  Kind   `json:"kind"`
	Name  string `json:"name,omitempty"`
	ID    string `json:"id"`
	State State  `json:"state"`
	// ReferencedBy is what refers to it, as a person calls it.
	ReferencedBy []string `json:"referencedBy,omitempty"`
	// Why is the reason of a state other than [Referenced], in one sentence; Next the next step.
	Why  string `json:"why,omitempty"`
	Next string `json:"next,omitempty"`
	// MonthlyCents is what it costs in a month in US cents, nil if there is no source for its price.
	MonthlyCents *int `json:"monthlyCents,omitempty"`
}

// Droplets are the cluster's droplets, counted.
type Droplets struct {
	// Nodes are those that Nodes of the cluster name, Others those that carry the cluster's tag and no Node names.
	Nodes  int `json:"nodes"`
	Others int `json:"others"`
	// MonthlyCents is what both cost, as far as prices are known; Unpriced are those without a price.
	MonthlyCents int `json:"monthlyCents"`
	Unpriced     int `json:"unpriced,omitempty"`
}

// Report is the estate. Its JSON form is a contract with programs.
type Report struct {
	// Objects are in the order of their states, what nothing refers to first.
	Objects  []Object `json:"objects"`
	Droplets Droplets `json:"droplets"`
	// Others is how many load balancers and certificates of the account are somebody else's.
	Others int `json:"others"`
	// Unjudged is how many load balancers may be this cluster's, since their tags, or the cluster's ID, are not known.
	Unjudged int `json:"unjudged,omitempty"`
	// NotRead are sides that could not be read or judged, with why.
	NotRead []string `json:"notRead,omitempty"`
}
