// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// Settings are the flags that the controller and its commands share: those that say how to decide.
type Settings struct {
	Config nodesync.Config
	// Datastore is --datastore-type.
	Datastore string
	// domains become Config.Domains, normalized; alsoRemove becomes Config.AlsoRemove.
	domains, alsoRemove []string
}

// NewSettings returns the defaults.
func NewSettings() Settings { return Settings{Config: nodesync.DefaultConfig()} }

// AddFlags binds the flags.
func (s *Settings) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Datastore, "datastore-type", s.Datastore,
		"Calico's datastore, etcdv3 or kubernetes. Also DATASTORE_TYPE; etcd endpoints in ETCD_ENDPOINTS or CALICO_ETCD_ENDPOINTS mean etcdv3.")
	fs.DurationVar(&s.Config.Grace, "grace-period", s.Config.Grace,
		"How long a Node must have been absent, as observed, before anything of it is removed.")
	fs.IntVar(&s.Config.MinOverlapPercent, "min-overlap-percent", s.Config.MinOverlapPercent,
		"Nothing is removed while less than this percentage of Calico Nodes have their Kubernetes Node (0 to 100).")
	fs.IntVar(&s.Config.MaxUnwitnessed, "mass-guard-nodes", s.Config.MaxUnwitnessed,
		"How many nodes may be removed within --mass-guard-window whose deletion was not watched; or --mass-guard-percent, if that is more.")
	fs.IntVar(&s.Config.MaxUnwitnessedPercent, "mass-guard-percent", s.Config.MaxUnwitnessedPercent,
		"See --mass-guard-nodes; percent of the Calico Nodes that belong to Kubernetes.")
	fs.DurationVar(&s.Config.MassWindow, "mass-guard-window", s.Config.MassWindow, "See --mass-guard-nodes.")
	fs.StringArrayVar(&s.domains, "domain", nil,
		"DNS domain that is part of the machines' names on one side only, such as example.com for node-1 and node-1.example.com; repeatable.")
	fs.BoolVar(&s.Config.AdoptUnreferenced, "adopt-unreferenced", s.Config.AdoptUnreferenced,
		"Identify Calico Nodes without any orchRef by their own name. Those whose deletion was not watched always need a confirmation.")
	fs.StringSliceVar(&s.alsoRemove, "also-remove", nil,
		"Kinds of users' objects that are removed with their host: HostEndpoint, BGPPeer, CalicoNodeStatus, BGPConfiguration, FelixConfiguration; IPAMHandle, handles without an address; and PodLeftovers, addresses and endpoints of deleted pods on existing machines.")
	fs.IntVar(&s.Config.NodesPerRound, "nodes-per-round", s.Config.NodesPerRound, "How many nodes one reconcile cleans whose deletion was not watched. With those that were watched it is a hundred times as many, up to 500.")
	fs.DurationVar(&s.Config.Pace, "round-interval", s.Config.Pace, "How long to wait after a reconcile that removed nodes whose deletion was not watched. After one that removed only others it is the longest wait.")
	fs.DurationVar(&s.Config.Resync, "resync-period", s.Config.Resync, "The time between reconciles while nothing happens.")
	fs.DurationVar(&s.Config.SweepPeriod, "sweep-period", s.Config.SweepPeriod,
		"The time between sweeps of the whole datastore, for leftovers that no Node and no affinity leads to; 0 turns them off.")
	fs.DurationVar(&s.Config.LeftoverAge, "leftover-age", s.Config.LeftoverAge, "How far two sweeps must be apart that find a leftover of a pod before it is removed.")
	_ = fs.MarkHidden("leftover-age") // for tests: a kubelet that is silent for a moment may need the default
}

// Validate completes Config, and returns one sentence for the first contradiction.
func (s *Settings) Validate() error {
	for _, domain := range s.domains {
		// The old controller took an empty -domain for none.
		if domain = nodesync.NormalizeDomain(domain); domain != "" && !slices.Contains(s.Config.Domains, domain) {
			s.Config.Domains = append(s.Config.Domains, domain)
		}
	}
	for _, kind := range s.alsoRemove {
		s.Config.AlsoRemove = append(s.Config.AlsoRemove, nodesync.ResourceKind(kind))
	}
	return s.Config.Validate()
}
