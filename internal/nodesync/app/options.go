// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/platform/manager"
)

// Component is the binary's name, in metrics, user agent and Lease. It MUST NOT change: two versions with different Leases would both lead.
const Component = "calico-node-sync"

// leaseName is the Lease that replicas compete for. MUST NOT change, for the same reason.
const leaseName = "calico-node-sync.nodes.mooring.dev"

// Modes of --mode.
const (
	modeEnforce = "enforce"
	modeReport  = "report"
)

type options struct {
	manager   manager.Options
	logging   logging.Options
	config    nodesync.Config
	datastore string
	mode      string
	journal   journalOptions
	// eventsDeployment is the Deployment that Events are about.
	eventsDeployment string
	// domains become config.Domains, normalized.
	domains []string
	// alsoRemove becomes config.AlsoRemove.
	alsoRemove []string
	dryRun     bool
	// named become config.Named.
	named []string
}

// namedLong says what names on the command line mean.
const namedLong = "With NODE, the name of a Calico Node, it is about that machine only. Naming a machine replaces the grace period and the confirmation of the mass guard. " +
	"The old name of a machine that has joined again under another name is removed although the names are similar, if each Kubernetes Node with such a " +
	"name has a Calico Node of its own. The same holds for a second Calico Node of a Kubernetes Node, if another one has its name. All other gates apply: an existing Kubernetes Node, a running pod, a missing response or the keep annotation forbid it."

func newOptions() *options {
	return &options{
		manager: manager.DefaultOptions(leaseName), config: nodesync.DefaultConfig(), mode: modeEnforce, journal: newJournalOptions(),
		eventsDeployment: controller.DeploymentName,
	}
}

// addFlags binds the controller's flags.
func (o *options) addFlags(fs *pflag.FlagSet) {
	o.manager.AddFlags(fs)
	o.logging.AddFlags(fs)
	o.addDecisionFlags(fs)
	o.journal.addFlags(fs)
	fs.StringVar(&o.eventsDeployment, "events-deployment", o.eventsDeployment,
		"Deployment in the program's own namespace that Events are about; the Namespace itself if there is none.")
	fs.StringVar(&o.mode, "mode", o.mode, "enforce, or report: plan and report, write nothing.")
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "The same as --mode=report.")
	o.addPredecessorFlags(fs)
}

// addPlanFlags binds the flags of the plan command: those that say where to look and how to decide.
func (o *options) addPlanFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.manager.Kubeconfig, "kubeconfig", o.manager.Kubeconfig, "Path of a kubeconfig; without, the Pod's service account.")
	fs.StringVar(&o.manager.Master, "master", o.manager.Master, "URL of the API server, overrides the kubeconfig's.")
	fs.StringVar(&o.manager.LeaderElectionNamespace, "leader-election-namespace", o.manager.LeaderElectionNamespace,
		"Namespace of a running controller, whose grace periods are then used.")
	o.addDecisionFlags(fs)
}

// acceptControllerFlags adds, hidden, those of the controller's flags that a command which writes nothing does not have, so that it can be given a
// controller's settings as they are. They are parsed, and change nothing.
func (o *options) acceptControllerFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	(&options{manager: o.manager, config: o.config, mode: o.mode, journal: o.journal, eventsDeployment: o.eventsDeployment}).addFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if fs.Lookup(f.Name) == nil {
			f.Hidden = true
			fs.AddFlag(f)
		}
	})
}

// addApplyFlags binds what the apply command needs alongside the flags of plan: where it keeps what it removes, and what keeps it alone.
func (o *options) addApplyFlags(fs *pflag.FlagSet) {
	o.journal.addFlags(fs)
	fs.StringVar(&o.manager.LeaderElectionID, "leader-election-id", o.manager.LeaderElectionID,
		"Name of the Lease that a running controller holds, taken while apply runs if the namespace is known.")
}

// addDecisionFlags binds what the controller and the plan command share.
func (o *options) addDecisionFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.datastore, "datastore-type", o.datastore,
		"Calico's datastore, etcdv3 or kubernetes. Also DATASTORE_TYPE; etcd endpoints in ETCD_ENDPOINTS or CALICO_ETCD_ENDPOINTS mean etcdv3.")
	fs.DurationVar(&o.config.Grace, "grace-period", o.config.Grace,
		"How long a Node must have been absent, as observed, before anything of it is removed.")
	fs.IntVar(&o.config.MinOverlapPercent, "min-overlap-percent", o.config.MinOverlapPercent,
		"Nothing is removed while less than this percentage of Calico Nodes have their Kubernetes Node (0 to 100).")
	fs.IntVar(&o.config.MaxUnwitnessed, "mass-guard-nodes", o.config.MaxUnwitnessed,
		"How many nodes may be removed within --mass-guard-window whose deletion was not watched; or --mass-guard-percent, if that is more.")
	fs.IntVar(&o.config.MaxUnwitnessedPercent, "mass-guard-percent", o.config.MaxUnwitnessedPercent,
		"See --mass-guard-nodes; percent of the Calico Nodes that belong to Kubernetes.")
	fs.DurationVar(&o.config.MassWindow, "mass-guard-window", o.config.MassWindow, "See --mass-guard-nodes.")
	fs.StringArrayVar(&o.domains, "domain", nil,
		"DNS domain that is part of the machines' names on one side only, such as example.com for node-1 and node-1.example.com; repeatable.")
	fs.BoolVar(&o.config.AdoptUnreferenced, "adopt-unreferenced", o.config.AdoptUnreferenced,
		"Identify Calico Nodes without any orchRef by their own name. Those whose deletion was not watched always need a confirmation.")
	fs.StringSliceVar(&o.alsoRemove, "also-remove", nil,
		"Kinds of users' objects that are removed with their host: HostEndpoint, BGPPeer, CalicoNodeStatus, BGPConfiguration, FelixConfiguration; IPAMHandle, handles without an address; and PodLeftovers, addresses and endpoints of deleted pods on existing machines.")
	fs.IntVar(&o.config.NodesPerRound, "nodes-per-round", o.config.NodesPerRound, "How many nodes one reconcile cleans whose deletion was not watched. With those that were watched it is fifty times as many, up to 250.")
	fs.DurationVar(&o.config.Pace, "round-interval", o.config.Pace, "The time after a reconcile that removed nodes whose deletion was not watched; after any other it is the longest.")
	fs.DurationVar(&o.config.Resync, "resync-period", o.config.Resync, "The time between reconciles while nothing happens.")
	fs.DurationVar(&o.config.SweepPeriod, "sweep-period", o.config.SweepPeriod,
		"The time between sweeps of the whole datastore, for leftovers that no Node and no affinity leads to; 0 turns them off.")
}

func (o *options) validate() error {
	if o.mode != modeEnforce && o.mode != modeReport {
		return fmt.Errorf("--mode %q is unknown: it must be %s or %s", o.mode, modeEnforce, modeReport)
	}
	if err := o.logging.Validate(); err != nil {
		return err
	}
	if err := o.journal.validate(o.manager.Namespace()); err != nil {
		return err
	}
	for _, domain := range o.domains {
		// The old controller took an empty -domain for none.
		if domain = nodesync.NormalizeDomain(domain); domain != "" && !slices.Contains(o.config.Domains, domain) {
			o.config.Domains = append(o.config.Domains, domain)
		}
	}
	for _, kind := range o.alsoRemove {
		o.config.AlsoRemove = append(o.config.AlsoRemove, nodesync.ResourceKind(kind))
	}
	for _, name := range o.named {
		if name = strings.TrimSpace(name); name == "" {
			return errors.New("a NODE is empty: it must be the name of a Calico Node, as `calicoctl get nodes` lists it")
		}
		o.config.Named = append(o.config.Named, name)
	}
	if err := o.config.Validate(); err != nil {
		return err
	}
	return o.manager.Validate()
}
