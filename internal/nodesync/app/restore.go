// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// restoreOptions are those of the restore command.
type restoreOptions struct {
	*options
	// namespace is --namespace, a shorter name for --leader-election-namespace.
	namespace string
}

// newRestoreCommand returns the command that puts back what the journal holds, with this program's own credentials.
func newRestoreCommand() *cobra.Command {
	o := &restoreOptions{options: newOptions()}
	restore := commands.NewRestore(o, "FILE is a file of --journal-dir: what has a slash in it or ends in .json.")
	restore.Use, restore.ValidArgsFunction = "restore NAME|FILE...", nil
	fs := restore.Flags()
	fs.StringVar(&o.settings.Datastore, "datastore-type", o.settings.Datastore, "Calico's datastore, etcdv3 or kubernetes; as for the controller.")
	fs.StringVar(&o.manager.Kubeconfig, "kubeconfig", o.manager.Kubeconfig, "Path of a kubeconfig; without, the Pod's service account. For NAME and --list.")
	fs.StringVar(&o.manager.Master, "master", o.manager.Master, "URL of the API server, overrides the kubeconfig's.")
	fs.StringVar(&o.namespace, "namespace", o.namespace, "Namespace of the journal's ConfigMaps, that of the controller; without, the Pod's.")
	fs.StringVar(&o.manager.LeaderElectionNamespace, "leader-election-namespace", o.manager.LeaderElectionNamespace, "The same as --namespace.")
	return restore
}

// Restore implements commands.Restorer.
func (o *restoreOptions) Restore(ctx context.Context, names []string, dryRun bool, out io.Writer) error {
	config, err := o.Datastore(ctx, o.settings.Datastore)
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
		if _, err := fmt.Fprintln(out, prose.Printable(line)); err != nil {
			return fmt.Errorf("printing what was done: %w", err)
		}
		return nil
	}
	all, err := controller.Restore(ctx, store, clusterUID, entries, dryRun, say)
	if err != nil {
		return err
	}
	return command.Attention(!all)
}

// isFile tells a file of --journal-dir from a name: no machine and no entry has a slash in its name, and no entry ends so.
func isFile(name string) bool { return strings.Contains(name, "/") || strings.HasSuffix(name, ".json") }

// read returns the entries that are named, oldest first, or an error before anything has been written.
func (o *restoreOptions) read(ctx context.Context, names []string) ([]controller.Entry, error) {
	var out []controller.Entry
	var wanted []string
	for _, name := range names {
		if !isFile(name) {
			wanted = append(wanted, name)
			continue
		}
		entry, err := controller.ReadEntry(name)
		if err != nil {
			return nil, err
		}
		out = append(out, entry)
	}
	if len(wanted) > 0 {
		journal, err := o.Journal(ctx)
		if err != nil {
			return nil, err
		}
		kept, err := journal.ReadNamed(ctx, wanted)
		if err != nil {
			return nil, err
		}
		out = append(out, kept...)
	}
	slices.SortStableFunc(out, func(a, b controller.Entry) int { return a.Time.Compare(b.Time) })
	return out, controller.OneLifeEach(out)
}

// Journal implements commands.Restorer.
func (o *restoreOptions) Journal(context.Context) (*controller.ConfigMapJournal, error) {
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
	cluster, err := o.Cluster()
	if err != nil {
		return nil, err
	}
	return controller.NewConfigMapJournal(cluster, namespace)
}

// open connects to the datastore and makes sure that it answers. The UID is that of the cluster which the datastore is part of, empty for etcd.
func (o *restoreOptions) open(ctx context.Context, config calico.Config) (store commands.Datastore, clusterUID string, err error) {
	var cluster *rest.Config
	if config.Kind == calico.Kubernetes {
		if cluster, err = o.Cluster(); err != nil {
			return nil, "", err
		}
		live, err := controller.NewLive(cluster)
		if err != nil {
			return nil, "", err
		}
		if clusterUID, err = controller.NewKubernetesCluster(live, clock.RealClock{}).UID(ctx); err != nil {
			return nil, "", fmt.Errorf("reading namespace kube-system: %w", err)
		}
	}
	if store, err = commands.Connect(config, cluster); err != nil {
		return nil, "", err
	}
	if err := store.Ping(ctx); err != nil {
		return nil, "", errors.Join(err, store.Close())
	}
	return store, clusterUID, nil
}
