// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/mooring-dev/mooring/internal/nodesync"
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
	manager    manager.Options
	logging    logging.Options
	config     nodesync.Config
	datastore  string
	mode       string
	journalDir string
	// alsoRemove becomes config.AlsoRemove.
	alsoRemove []string
	dryRun     bool
	// ignoredDomain is the predecessor's -domain.
	ignoredDomain string
}

func newOptions() *options {
	return &options{manager: manager.DefaultOptions(leaseName), config: nodesync.DefaultConfig(), mode: modeEnforce}
}

// addFlags binds the controller's flags.
func (o *options) addFlags(fs *pflag.FlagSet) {
	o.manager.AddFlags(fs)
	o.logging.AddFlags(fs)
	o.addDecisionFlags(fs)
	fs.StringVar(&o.journalDir, "journal-dir", o.journalDir,
		"Folder in which all that is removed of a machine is kept first, one file each, for the restore command. Unset keeps nothing.")
	fs.StringVar(&o.mode, "mode", o.mode, "enforce, or report: plan and report, write nothing.")
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "The same as --mode=report.")
	o.addPredecessorFlags(fs)
}

// addPlanFlags binds the flags of the plan command: those that say where to look and how to decide.
func (o *options) addPlanFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.manager.Kubeconfig, "kubeconfig", o.manager.Kubeconfig, "Path of a kubeconfig; without, the Pod's service account.")
	fs.StringVar(&o.manager.Master, "master", o.manager.Master, "URL of the API server, overrides the kubeconfig's.")
	fs.StringVar(&o.manager.LeaderElectionNamespace, "leader-election-namespace", o.manager.LeaderElectionNamespace,
		"Namespace of a running controller, whose grace periods are then counted.")
	o.addDecisionFlags(fs)
}

// addDecisionFlags binds what the controller and the plan command share.
func (o *options) addDecisionFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.datastore, "datastore-type", o.datastore,
		"Calico's datastore, etcdv3 or kubernetes. Also DATASTORE_TYPE; etcd endpoints in ETCD_ENDPOINTS or CALICO_ETCD_ENDPOINTS mean etcdv3.")
	fs.DurationVar(&o.config.Grace, "grace-period", o.config.Grace,
		"How long a Node must have been absent, as observed, before anything of it is removed.")
	fs.IntVar(&o.config.MinOverlapPercent, "min-overlap-percent", o.config.MinOverlapPercent,
		"Nothing is removed while fewer than this share of Calico Nodes have their Kubernetes Node (0 to 100).")
	fs.IntVar(&o.config.MaxUnwitnessed, "mass-guard-nodes", o.config.MaxUnwitnessed,
		"How many nodes may be removed within --mass-guard-window whose deletion was not watched; or --mass-guard-percent, if that is more.")
	fs.IntVar(&o.config.MaxUnwitnessedPercent, "mass-guard-percent", o.config.MaxUnwitnessedPercent,
		"See --mass-guard-nodes; percent of the Calico Nodes that belong to Kubernetes.")
	fs.DurationVar(&o.config.MassWindow, "mass-guard-window", o.config.MassWindow, "See --mass-guard-nodes.")
	fs.StringSliceVar(&o.alsoRemove, "also-remove", nil,
		"Kinds of which users' objects go with their host: HostEndpoint, BGPPeer, CalicoNodeStatus, BGPConfiguration, FelixConfiguration.")
	fs.IntVar(&o.config.NodesPerRound, "nodes-per-round", o.config.NodesPerRound, "How many nodes one round cleans.")
	fs.DurationVar(&o.config.Pace, "round-interval", o.config.Pace, "The time between rounds while there is more to clean.")
	fs.DurationVar(&o.config.Resync, "resync-period", o.config.Resync, "The time between rounds while nothing happens.")
}

func (o *options) validate() error {
	if o.mode != modeEnforce && o.mode != modeReport {
		return fmt.Errorf("--mode %q is unknown: it must be %s or %s", o.mode, modeEnforce, modeReport)
	}
	if err := o.logging.Validate(); err != nil {
		return err
	}
	if err := o.validateJournal(); err != nil {
		return err
	}
	for _, kind := range o.alsoRemove {
		o.config.AlsoRemove = append(o.config.AlsoRemove, nodesync.ResourceKind(kind))
	}
	if err := o.config.Validate(); err != nil {
		return err
	}
	return o.manager.Validate()
}

// validateJournal makes sure that the folder can be written, before anything depends on it.
func (o *options) validateJournal() error {
	if o.journalDir == "" {
		return nil
	}
	probe, err := os.CreateTemp(o.journalDir, ".probe-*")
	if err != nil {
		return fmt.Errorf("--journal-dir %q cannot be written, create the folder or choose another: %w", o.journalDir, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fmt.Errorf("--journal-dir %q: %w", o.journalDir, err)
	}
	return nil
}
