// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/platform/logging/logrusbridge"
	"github.com/mooring-dev/mooring/internal/platform/manager"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// NewCommand returns the command of calico-node-sync. Run without a subcommand it is the controller.
func NewCommand() *cobra.Command {
	o := newOptions()
	command := &cobra.Command{
		Use:   Component,
		Short: "Remove leftovers of machines that are gone from Calico's datastore",
		Long: "calico-node-sync watches Kubernetes Nodes. When a Node is gone for good, it removes the Calico Node of that machine with " +
			"its workload endpoints, addresses and block affinities from Calico's datastore. It removes nothing that it cannot prove stale.",
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Context(), o) },
	}
	o.addFlags(command.Flags())
	command.AddCommand(newPlanCommand(newOptions()), newApplyCommand(newOptions()), newDoctorCommand(newOptions()), newRestoreCommand())
	return command
}

// sourceLong says where the commands that run once read.
const sourceLong = "The datastore is named by --datastore-type and the environment, as for the controller. A controller's flags are accepted as they are. Its state is found by " +
	"--leader-election-namespace, or in a Pod."

func newPlanCommand(o *options) *cobra.Command {
	plan := commands.NewPlan(o, sourceLong)
	o.addSourceFlags(plan.Flags())
	o.acceptControllerFlags(plan.Flags())
	return plan
}

func newDoctorCommand(o *options) *cobra.Command {
	doctor := commands.NewDoctor(o)
	examine := doctor.Command("It also checks settings and rights, those of the controller: run it in the controller's Pod, or with the same flags and variables. " + sourceLong)
	examine.Flags().StringVar(&doctor.As, "as", doctor.As,
		"Check the rights of this user, such as system:serviceaccount:mooring-system:calico-node-sync. It needs the right to impersonate that user.")
	o.addSourceFlags(examine.Flags())
	o.acceptControllerFlags(examine.Flags())
	examine.AddCommand(newIPAMCommand(newOptions()))
	return examine
}

func newIPAMCommand(o *options) *cobra.Command {
	ipam := commands.NewIPAM(o).Command(sourceLong)
	o.addSourceFlags(ipam.Flags())
	o.acceptControllerFlags(ipam.Flags())
	return ipam
}

func run(ctx context.Context, o *options) error {
	if err := o.validate(); err != nil {
		return err
	}
	config, err := o.Datastore(ctx, o.settings.Datastore)
	if err != nil {
		return err
	}
	handler := logging.NewHandler(os.Stderr, o.logging)
	log := logging.Install(handler, o.logging)
	logrusbridge.Install(logrus.StandardLogger(), handler) //nolint:contextcheck // it sets up, nothing there can be canceled

	mgr, err := newManager(ctx, o, log)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) { // the API server was waited for
		log.Info("Stopped")
		return nil
	}
	if err != nil {
		return err
	}
	store, err := openDatastore(ctx, log, config, mgr.GetConfig())
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := addReconciler(ctx, mgr, store, o, log); err != nil {
		return err
	}
	build := buildinfo.Get()
	log.Info("Starting", "version", build.Version, "commit", build.Commit, "datastore", config.Kind, "writes", o.writes())
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	log.Info("Stopped")
	return nil
}

func (o *options) writes() bool { return o.mode() == outputs.Enforce }

func (o *options) mode() outputs.Mode {
	if o.dryRun {
		return outputs.Report
	}
	return o.manager.Mode
}

func newManager(ctx context.Context, o *options, log logr.Logger) (*manager.Manager, error) {
	config, err := o.Cluster()
	if err != nil {
		return nil, err
	}
	config.Wrap(o.mode().Transport(nil, nil))
	return manager.New(ctx, o.manager, config, manager.Config{
		Component: Component,
		Logger:    log,
		Scheme:    runtime.NewScheme(), // only metadata is read, for which no kind needs to be known
		Informers: []client.Object{controller.NodeMetadata()},
	})
}

// openDatastore connects. A datastore that does not respond yet is waited for (readiness tells), but one that can never be talked to, since
// the certificates do not fit, ends the program.
func openDatastore(ctx context.Context, log logr.Logger, config calico.Config, cluster *rest.Config) (commands.Datastore, error) {
	store, err := commands.Connect(config, cluster)
	if err != nil {
		return nil, err
	}
	if err := store.Ping(ctx); err != nil {
		if errors.Is(err, calico.ErrUntrusted) {
			return nil, errors.Join(err, store.Close())
		}
		if ctx.Err() == nil { // else it was told to end
			log.Error(err, "Calico's datastore does not answer, will try again")
		}
	}
	return store, nil
}

func addReconciler(ctx context.Context, mgr *manager.Manager, store commands.Datastore, o *options, log logr.Logger) error {
	cluster := controller.NewKubernetesCluster(mgr.GetAPIReader(), clock.RealClock{})
	informer, err := mgr.GetCache().GetInformer(ctx, controller.NodeMetadata())
	if err != nil {
		return fmt.Errorf("watching Kubernetes Nodes: %w", err)
	}
	if err := cluster.Follow(informer); err != nil {
		return fmt.Errorf("watching Kubernetes Nodes: %w", err)
	}
	if err := addChecks(mgr, store, cluster); err != nil {
		return err
	}
	state, err := newState(mgr.GetConfig(), o, log)
	if err != nil {
		return err
	}
	journal, err := o.newJournal(mgr.GetConfig())
	if err != nil {
		return err
	}
	if o.writes() {
		o.logJournal(log)
	}
	var requests controller.Requests
	if o.writes() { // what only reports writes nothing, and so answers nothing
		requests, _ = state.(controller.Requests) // nil where there is no state
	}
	return mgr.Add(&controller.Reconciler{
		Requests: requests, RestoreStore: store,
		Journal: journal, Events: newEvents(mgr, o, log), State: state, Datastore: store, Cluster: cluster, Config: o.settings.Config,
		DryRun: !o.writes(), Writes: controller.Writes(),
		Leftovers: true, Clock: clock.RealClock{}, Log: log.WithName(Component),
		Metrics: controller.NewMetrics(ctrlmetrics.Registry), Wake: cluster.Wake(),
	})
}

// addChecks puts both servers behind /readyz. The informers' own check passes for ever once they have synced, so the API server is asked
// as well, for what each round asks it first.
func addChecks(mgr *manager.Manager, store commands.Datastore, cluster *controller.KubernetesCluster) error {
	if err := mgr.Readiness.Add("calico-datastore", store.Ping); err != nil {
		return err
	}
	return mgr.Readiness.Add("kubernetes-api", func(ctx context.Context) error {
		if _, err := cluster.UID(ctx); err != nil {
			return fmt.Errorf("the API server does not respond: %w", err)
		}
		return nil
	})
}

// newState returns where state outlives the process, nil when there is no namespace to keep it in: outside of a Pod and without
// --leader-election-namespace.
func newState(config *rest.Config, o *options, log logr.Logger) (controller.State, error) {
	namespace := o.manager.Namespace()
	if namespace == "" {
		log.Info("Keeping no state, since no namespace is known: after a restart grace periods start again, and nothing can be confirmed")
		return nil, nil
	}
	live, err := controller.NewLive(config)
	if err != nil {
		return nil, err
	}
	return controller.StateIn(live, namespace), nil
}
