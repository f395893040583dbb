// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"fmt"
	"slices"
	"time"
)

// Annotations on Calico Nodes. They are a contract with users and with earlier versions of this program: MUST NOT change, or a fence
// that an earlier version left would never be withdrawn and a node that a user asked to keep would be removed.
const (
	// FenceAnnotation on a Calico Node whose clean-up has begun. Its value is the name of the Kubernetes Node that is gone.
	FenceAnnotation = "nodes.mooring.dev/decommission"
	// BindingAnnotation on Calico's ClusterInformation: the UID of kube-system of the cluster that the datastore belongs to.
	BindingAnnotation = "nodes.mooring.dev/cluster-uid"
	// ConfirmAnnotation on the ConfigMap calico-node-sync-state: confirms the removal of the nodes with this hash to the mass guard,
	// as HASH/TIME; it is valid until TIME (RFC 3339).
	ConfirmAnnotation = "nodes.mooring.dev/confirm"
	// RequestAnnotation on the same ConfigMap: a person's request to the controller, as JSON; `kubectl mooring node forget` and `kubectl mooring
	// restore` write it.
	RequestAnnotation = "nodes.mooring.dev/request"
	// AnswerAnnotation on the same ConfigMap: the controller's response to the request, as JSON.
	AnswerAnnotation = "nodes.mooring.dev/answer"
	// KeepAnnotation, with any value but "false", forbids the removal of a Calico Node and of everything that belongs to it.
	KeepAnnotation = "nodes.mooring.dev/keep"
)

// OrchestratorKubernetes is the orchestrator that calico-node and Calico's CNI plugin write for Kubernetes
// (libcalico-go, apis/v3 OrchestratorKubernetes).
const OrchestratorKubernetes = "k8s"

// ReferredNode is the Kubernetes Node that the orchRefs of a Calico Node name first, "" for none.
func ReferredNode(refs []OrchRef) string {
	for _, ref := range refs {
		if ref.Orchestrator == OrchestratorKubernetes && ref.NodeName != "" {
			return ref.NodeName
		}
	}
	return ""
}

// Config holds the limits that a plan keeps. The zero value is not valid; begin with DefaultConfig.
type Config struct {
	// Grace is how long a Node must have been absent, as observed by us, before anything is removed.
	Grace time.Duration
	// MinOverlapPercent is the share of Calico Nodes of Kubernetes that must still have their Node (0 to 100).
	// Nodes whose deletion was witnessed are not counted.
	MinOverlapPercent int
	// MaxUnwitnessed and MaxUnwitnessedPercent bound how many nodes may be removed within MassWindow whose deletion was not witnessed:
	// the larger of the two holds.
	MaxUnwitnessed        int
	MaxUnwitnessedPercent int
	MassWindow            time.Duration
	// Domains are DNS domains, normalized, with or without which a machine's name means the same machine; see Spellings.
	Domains []string
	// AdoptUnreferenced judges Calico Nodes without any orchRef by their own name. Those whose deletion was not witnessed always need a
	// person's confirmation: hosts that never were in Kubernetes look the same.
	AdoptUnreferenced bool
	// OneShot reports that no memory outlives the plan, and that a confirmation is given with the command that acts on it.
	OneShot bool
	// Named are the Calico node names of machines that a person has named, for whom that stands for a confirmation and for the grace period. Nothing
	// of others is planned then.
	Named []string
	// IgnoreSigns reports that a person says that the named machines are gone although something speaks for them on Calico's side.
	IgnoreSigns bool
	// AlsoRemove are the kinds of which users' objects go with their host as well; without, only what programs wrote goes.
	AlsoRemove []ResourceKind
	// NodesPerRound is how many nodes one plan cleans whose deletion was not watched; with those that were watched it cleans up to Backlog. Pace
	// is the time after a plan that removes such nodes, and the longest after any other.
	NodesPerRound int
	Pace          time.Duration
	// Resync is how long to wait when there is nothing to do.
	Resync time.Duration
	// SweepPeriod is the time between looks through everything, for what is left of hosts that have neither a Node nor an affinity and for
	// orphaned IPAM handles. 0 for none.
	SweepPeriod time.Duration
	// LeftoverAge is how far the sweeps must be apart at least that find a leftover of a pod before it goes; Grace if that is longer.
	LeftoverAge time.Duration
	// MaxLeftovers and MaxLeftoversPercent, of the addresses and endpoints that name a pod, bound how many leftovers of pods may be removed
	// within MassWindow without a person's confirmation: the larger of the two holds.
	MaxLeftovers        int
	MaxLeftoversPercent int
}

// DefaultConfig returns the limits that hold without any flag.
func DefaultConfig() Config {
	return Config{
		Grace:                 5 * time.Minute,
		MinOverlapPercent:     50,
		MaxUnwitnessed:        3,
		MaxUnwitnessedPercent: 10,
		MassWindow:            time.Hour,
		NodesPerRound:         5,
		Pace:                  5 * time.Second,
		Resync:                5 * time.Minute,
		SweepPeriod:           30 * time.Minute,
		LeftoverAge:           15 * time.Minute,
		MaxLeftovers:          50,
		MaxLeftoversPercent:   2,
	}
}

// shortestPace is the least time between two plans.
const shortestPace = time.Second

// mostPerRound bounds how many nodes one plan cleans, and so what is read about them at a time.
const mostPerRound = 500

// Backlog is how many nodes one plan cleans: more than NodesPerRound only if all but so many were watched, or confirmed, as they went.
func (c Config) Backlog() int { return max(c.NodesPerRound, min(100*c.NodesPerRound, mostPerRound)) }

// Validate returns one sentence for the first setting that is out of bounds.
func (c Config) Validate() error {
	if err := validateDomains(c.Domains); err != nil {
		return err
	}
	switch {
	case c.Grace < 0:
		return fmt.Errorf("the grace period is %s: it must not be negative; 5m is the default", c.Grace)
	case c.MinOverlapPercent < 0 || c.MinOverlapPercent > 100:
		return fmt.Errorf("the minimal overlap is %d %%: it must lie between 0 and 100; 50 is the default", c.MinOverlapPercent)
	case c.MaxUnwitnessed < 0:
		return fmt.Errorf("the mass guard's number of nodes is %d: it must not be negative; 3 is the default", c.MaxUnwitnessed)
	case c.MaxUnwitnessedPercent < 0 || c.MaxUnwitnessedPercent > 100:
		return fmt.Errorf("the mass guard's share is %d %%: it must lie between 0 and 100; 10 is the default", c.MaxUnwitnessedPercent)
	case c.MassWindow <= 0:
		return fmt.Errorf("the mass guard's window is %s: it must be positive; 1h is the default", c.MassWindow)
	case slices.ContainsFunc(c.AlsoRemove, func(k ResourceKind) bool { return !slices.Contains(OptionalKinds(), k) }):
		return fmt.Errorf("the kinds to remove as well are %q: each must be one of %q", c.AlsoRemove, OptionalKinds())
	case c.NodesPerRound < 1:
		return fmt.Errorf("the number of nodes cleaned per round is %d: it must be at least 1; 5 is the default", c.NodesPerRound)
	case c.Pace < shortestPace:
		return fmt.Errorf("the pace between rounds is %s: it must be at least 1s; 5s is the default", c.Pace)
	case c.Resync < time.Second:
		return fmt.Errorf("the resync period is %s: it must be at least 1s; 5m is the default", c.Resync)
	case c.SweepPeriod < 0:
		return fmt.Errorf("the sweep period is %s: it must not be negative; 0 turns sweeps off, 30m is the default", c.SweepPeriod)
	}
	return nil
}

// massLimit is how many unwitnessed nodes may go within the window in a datastore that refers to so many nodes.
func (c Config) massLimit(referenced int) int {
	return max(c.MaxUnwitnessed, referenced*c.MaxUnwitnessedPercent/100)
}
