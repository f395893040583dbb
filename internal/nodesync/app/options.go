// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/platform/manager"
)

// Component is the binary's name, in metrics, user agent and Lease. It MUST NOT change: two versions with different Leases would both lead.
const Component = "calico-node-sync"

type options struct {
	manager  manager.Options
	logging  logging.Options
	settings commands.Settings
	journal  journalOptions
	// eventsDeployment is the Deployment that Events are about.
	eventsDeployment string
	dryRun           bool
}

func newOptions() *options {
	return &options{
		manager: manager.DefaultOptions(controller.LeaseName), settings: commands.NewSettings(), journal: newJournalOptions(),
		eventsDeployment: controller.DeploymentName,
	}
}

// addFlags binds the controller's flags.
func (o *options) addFlags(fs *pflag.FlagSet) {
	o.manager.AddFlags(fs)
	o.logging.AddFlags(fs)
	o.settings.AddFlags(fs)
	o.journal.addFlags(fs)
	fs.StringVar(&o.eventsDeployment, "events-deployment", o.eventsDeployment,
		"Deployment in the program's own namespace that Events are about; the Namespace itself if there is none.")
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "The same as --mode=report.")
	o.addPredecessorFlags(fs)
}

// addSourceFlags binds the flags of a command that runs once: where it reads.
func (o *options) addSourceFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.manager.Kubeconfig, "kubeconfig", o.manager.Kubeconfig, "Path of a kubeconfig; without, the Pod's service account.")
	fs.StringVar(&o.manager.Master, "master", o.manager.Master, "URL of the API server, overrides the kubeconfig's.")
	fs.StringVar(&o.manager.LeaderElectionNamespace, "leader-election-namespace", o.manager.LeaderElectionNamespace,
		"Namespace of a running controller, whose grace periods are then used.")
}

// acceptControllerFlags adds, hidden, those of the controller's flags that a command which writes nothing does not have, so that it can be given a
// controller's settings as they are. They are parsed, and change nothing.
func (o *options) acceptControllerFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	(&options{manager: o.manager, settings: o.settings, journal: o.journal, eventsDeployment: o.eventsDeployment}).addFlags(all)
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
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "Show what would be removed or is held back, as plan does, and write nothing.")
}

func (o *options) validate() error {
	if err := o.logging.Validate(); err != nil {
		return err
	}
	if err := o.journal.validate(o.manager.Namespace()); err != nil {
		return err
	}
	if err := o.settings.Validate(); err != nil {
		return err
	}
	return o.manager.Validate()
}

// Cluster implements commands.Source. Responses are not compressed, as for Kubernetes' own controllers: a list of all
// pods takes several times as long to unpack as to read.
func (o *options) Cluster() (*rest.Config, error) {
	config, err := o.manager.RESTConfig(buildinfo.Get().UserAgent(Component))
	if err != nil {
		return nil, err
	}
	config.DisableCompression = true
	return config, nil
}

// Datastore implements commands.Source: it is named, and never guessed.
func (o *options) Datastore(_ context.Context, kind string) (calico.Config, error) {
	return calico.Resolve(kind, os.LookupEnv)
}

// Namespace implements commands.Source.
func (o *options) Namespace(context.Context) string { return o.manager.Namespace() }
