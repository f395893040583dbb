// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/manager"
)

// restoreOptions are those of the restore command.
type restoreOptions struct {
	manager   manager.Options
	datastore string
	// namespace is --namespace, a shorter name for --leader-election-namespace.
	namespace string
	list      bool
	dryRun    bool
}

// newRestoreCommand returns the command that puts back what the journal holds.
func newRestoreCommand() *cobra.Command {
	o := &restoreOptions{manager: manager.DefaultOptions(leaseName)}
	restore := &cobra.Command{
		Use:   "restore NAME|FILE...",
		Short: "Put back what was removed of a machine, from the journal",
		Long: "restore re-creates the Calico Node, workload endpoints and other resources of machines as they were. NAME is a machine's name or that of an " +
			"entry of the journal in ConfigMaps, which --list shows; FILE is a file of --journal-dir: what has a slash in it or ends in .json.\n\n" +
			"A machine with several different entries is refused: name one, or all those of one clean-up that was interrupted. " +
			"Objects that exist again are not changed. Addresses that are still free are restored under their handles, in their block or in a new block for the machine; with " +
			"the kubernetes datastore only those of leftovers of pods. Objects with an address that was assigned again since are refused, and so is a machine that joined " +
			"again.\n\n" +
			"While Kubernetes has no such Node, a running calico-node-sync removes it again after the grace period, unless " +
			"the Calico Node has the annotation " + nodesync.KeepAnnotation + ".\n\n" +
			"Exit codes: 0 everything was put back, 1 an error, 2 something was refused.",
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) == 0 && !o.list {
				return errors.New("name a machine, an entry or a file of the journal; restore --list shows which entries there are")
			}
			return nil
		},
		RunE: func(c *cobra.Command, names []string) error { return o.run(c.Context(), names, c.OutOrStdout()) },
	}
	o.addFlags(restore.Flags())
	return restore
}

func (o *restoreOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.datastore, "datastore-type", o.datastore, "Calico's datastore, etcdv3 or kubernetes; as for the controller.")
	fs.StringVar(&o.manager.Kubeconfig, "kubeconfig", o.manager.Kubeconfig, "Path of a kubeconfig; without, the Pod's service account. For NAME and --list.")
	fs.StringVar(&o.manager.Master, "master", o.manager.Master, "URL of the API server, overrides the kubeconfig's.")
	fs.StringVar(&o.namespace, "namespace", o.namespace, "Namespace of the journal's ConfigMaps, that of the controller; without, the Pod's.")
	fs.StringVar(&o.manager.LeaderElectionNamespace, "leader-election-namespace", o.manager.LeaderElectionNamespace, "The same as --namespace.")
	fs.BoolVar(&o.list, "list", o.list, "List the journal's entries in ConfigMaps, all or those that are named, and do nothing else.")
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "Show what would be put back or refused, and write nothing.")
}

func (o *restoreOptions) run(ctx context.Context, names []string, out io.Writer) error {
	if o.list {
		return o.runList(ctx, names, out)
	}
	config, err := calico.Resolve(o.datastore, os.LookupEnv)
	if err != nil {
		return err
	}
	entries, err := o.read(ctx, names) // all of them, before anything is written
	if err != nil {
		return err
	}
	logrus.SetOutput(io.Discard) // libcalico-go's
	store, clusterUID, err := o.open(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	say := func(line string) error {
		if _, err := fmt.Fprintln(out, command.Printable(line)); err != nil {
			return fmt.Errorf("printing what was done: %w", err)
		}
		return nil
	}
	all, err := controller.Restore(ctx, store, clusterUID, entries, o.dryRun, say)
	if err != nil {
		return err
	}
	return command.Attention(!all)
}

// journal returns the journal in ConfigMaps.
func (o *restoreOptions) journal() (*controller.ConfigMapJournal, error) {
	if election := o.manager.LeaderElectionNamespace; o.namespace != "" && election != "" && election != o.namespace {
		return nil, fmt.Errorf("--namespace=%s and --leader-election-namespace=%s contradict each other: drop one of them", o.namespace, election)
	}
	if o.namespace != "" {
		o.manager.LeaderElectionNamespace = o.namespace
	}
	namespace := o.manager.Namespace()
	if namespace == "" {
		return nil, errors.New("no namespace is known outside of a Pod: name with --namespace the one in which the controller runs, or a file of --journal-dir")
	}
	cluster, err := o.manager.RESTConfig(buildinfo.Get().UserAgent(Component))
	if err != nil {
		return nil, err
	}
	return controller.NewConfigMapJournal(cluster, namespace)
}

// restorable is what restoring needs of either datastore.
type restorable interface {
	controller.RestoreStore
	Ping(ctx context.Context) error
	Close() error
}

// open connects to the datastore and makes sure that it answers. The UID is that of the cluster which the datastore is part of, empty for etcd.
func (o *restoreOptions) open(ctx context.Context, config calico.Config) (store restorable, clusterUID string, err error) {
	if config.Kind == calico.EtcdV3 {
		store, err = calico.OpenEtcd(config.Etcd)
	} else {
		store, clusterUID, err = o.openCluster(ctx)
	}
	if err != nil {
		return nil, "", err
	}
	if err := store.Ping(ctx); err != nil {
		return nil, "", errors.Join(err, store.Close())
	}
	return store, clusterUID, nil
}

func (o *restoreOptions) openCluster(ctx context.Context) (store restorable, uid string, err error) {
	cluster, err := o.manager.RESTConfig(buildinfo.Get().UserAgent(Component))
	if err != nil {
		return nil, "", err
	}
	live, err := client.New(cluster, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, "", fmt.Errorf("making a client for Kubernetes: %w", err)
	}
	if uid, err = controller.NewKubernetesCluster(live, clock.RealClock{}).UID(ctx); err != nil {
		return nil, "", fmt.Errorf("reading namespace kube-system: %w", err)
	}
	store, err = calico.OpenKubernetes(cluster)
	return store, uid, err
}
