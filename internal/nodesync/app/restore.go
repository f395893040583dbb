// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

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
			"A machine with several entries is refused, as long as they differ: name one, or all those of one clean-up that was interrupted. " +
			"What exists again stays as it is. Addresses and affinities are not put back: pods of the machine that still run must be made anew to " +
			"have an address of their own; what has an address that has gone to another since is refused, and so is a machine that joined again.\n\n" +
			"As long as Kubernetes has no such Node, a running calico-node-sync will remove it again after its " +
			"grace period, unless the Calico Node carries the annotation " + nodesync.KeepAnnotation + ".\n\n" +
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
	fs.BoolVar(&o.dryRun, "dry-run", o.dryRun, "Say what would be put back or refused, and write nothing.")
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
	if err := checkCluster(ctx, store, clusterUID, entries); err != nil {
		return err
	}
	r := restorer{store: store, out: out, dryRun: o.dryRun, done: map[string]bool{}, held: map[string][]calico.Object{}}
	refused := false
	for _, entry := range entries {
		ok, err := r.restore(ctx, entry)
		if err != nil {
			return err
		}
		refused = refused || !ok
	}
	if refused {
		return command.Exit(command.ExitAttention, nil)
	}
	return nil
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
	Ping(ctx context.Context) error
	Snapshot(ctx context.Context) (calico.Snapshot, error)
	MachineIsBack(ctx context.Context, host string, objects []calico.Object) (bool, error)
	Restore(ctx context.Context, object calico.Object, without ...string) error
	CheckRestore(ctx context.Context, object calico.Object, without ...string) error
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

// checkCluster refuses a datastore that is locked, or that belongs to another cluster than the journal.
func checkCluster(ctx context.Context, store restorable, clusterUID string, entries []controller.Entry) error {
	snapshot, err := store.Snapshot(ctx)
	if err != nil {
		return err
	}
	if !snapshot.DatastoreReady {
		return errors.New("calico's ClusterInformation does not say datastoreReady: unlock the datastore first")
	}
	bound := cmp.Or(clusterUID, snapshot.ClusterInformation.Annotations[nodesync.BindingAnnotation])
	for _, entry := range entries {
		if bound != "" && entry.ClusterUID != "" && bound != entry.ClusterUID {
			return fmt.Errorf("the journal is of the cluster whose kube-system has UID %s, and this datastore belongs to %s: check ETCD_ENDPOINTS and --kubeconfig",
				entry.ClusterUID, bound)
		}
	}
	return nil
}

// restorer puts entries back, the oldest first.
type restorer struct {
	store  restorable
	out    io.Writer
	dryRun bool
	// done are the keys that an older entry has been asked for: of a clean-up that was interrupted, it holds them as they were at first.
	done map[string]bool
	// held are the objects of the entries so far, by host.
	held map[string][]calico.Object
}

// restore puts back one entry, the machine's Node first, which the others lead to. It returns false when something was refused.
func (r *restorer) restore(ctx context.Context, entry controller.Entry) (bool, error) {
	objects := slices.DeleteFunc(slices.Clone(entry.Objects), func(object calico.Object) bool { return calico.IsIPAM(object.Key) })
	first := len(r.held[entry.Host]) == 0
	// What an older entry has just put back is no machine that has joined again, even if this one is of after its Node was removed.
	r.held[entry.Host] = append(r.held[entry.Host], entry.Objects...)
	if len(objects) == 0 && !first {
		return true, nil // the rest of an interrupted clean-up
	}
	if len(objects) == 0 {
		return false, r.say("not restored: the entry of " + entry.Host + " holds nothing that could be put back, since addresses never are")
	}
	back, err := r.store.MachineIsBack(ctx, entry.Host, r.held[entry.Host])
	if err != nil {
		return false, err
	}
	if back {
		return false, r.say("not restored: machine " + entry.Host + " has joined again; nothing old is put onto it")
	}
	ok := true
	for _, object := range objects {
		if r.done[object.Key] {
			continue
		}
		r.done[object.Key] = true
		line, refused, err := r.put(ctx, object)
		if err != nil {
			return false, err
		}
		ok = ok && !refused
		if err := r.say(line); err != nil {
			return false, err
		}
	}
	return ok, nil
}

// put puts back one object, or, in a dry run, says whether it could.
func (r *restorer) put(ctx context.Context, object calico.Object) (line string, refused bool, err error) {
	act, line := r.store.Restore, "restored "+object.Key
	if r.dryRun {
		act, line = r.store.CheckRestore, "would restore "+object.Key
	}
	err = act(ctx, object, nodesync.FenceAnnotation)
	switch {
	case errors.Is(err, calico.ErrNotRestored):
		return err.Error(), true, nil
	case errors.Is(err, calico.ErrUnchanged):
		return err.Error(), false, nil
	}
	return line, false, err
}

func (r *restorer) say(line string) error {
	if _, err := fmt.Fprintln(r.out, command.Printable(line)); err != nil {
		return fmt.Errorf("printing what was done: %w", err)
	}
	return nil
}
