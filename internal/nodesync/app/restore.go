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

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

// newRestoreCommand returns the command that puts back what the journal holds.
func newRestoreCommand() *cobra.Command {
	datastoreType := ""
	restore := &cobra.Command{
		Use:   "restore FILE...",
		Short: "Put back what was removed of a machine, from files of --journal-dir",
		Long: "restore re-creates the Calico Node, workload endpoints and other resources of the machines whose journal files are named, as they were. " +
			"What exists again stays as it is. Addresses and affinities are not put back: pods of the machine that still run must be made anew to " +
			"have an address of their own; what has an address that has gone to another since is refused, and so is a machine that joined again.\n\nAs long as Kubernetes has no such Node, a running calico-node-sync will remove it again after its " +
			"grace period, unless the Calico Node carries the annotation " + nodesync.KeepAnnotation + ".\n\n" +
			"Exit codes: 0 everything was put back, 1 an error, 2 something was refused.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			return runRestore(c.Context(), datastoreType, files, c.OutOrStdout())
		},
	}
	restore.Flags().StringVar(&datastoreType, "datastore-type", datastoreType, "Must be etcdv3, or unset with ETCD_ENDPOINTS.")
	return restore
}

func runRestore(ctx context.Context, datastoreType string, files []string, out io.Writer) error {
	config, err := calico.Resolve(datastoreType, os.LookupEnv)
	if err != nil {
		return err
	}
	if config.Kind != calico.EtcdV3 {
		return errors.New("only the etcdv3 datastore has anything to restore: in the kubernetes datastore nothing but IPAM is ever removed")
	}
	entries := make([]controller.Entry, 0, len(files))
	for _, file := range files {
		entry, err := controller.ReadEntry(file)
		if err != nil {
			return err // before anything is written
		}
		entries = append(entries, entry)
	}
	logrus.SetOutput(io.Discard) // libcalico-go's
	store, err := calico.OpenEtcd(config.Etcd)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := store.Ping(ctx); err != nil {
		return err
	}
	if err := checkCluster(ctx, store, entries); err != nil {
		return err
	}
	refused := false
	for _, entry := range entries {
		ok, err := restoreEntry(ctx, store, entry, out)
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

// checkCluster refuses a datastore that is locked, or that belongs to another cluster than the journal.
func checkCluster(ctx context.Context, store *calico.Etcd, entries []controller.Entry) error {
	snapshot, err := store.Snapshot(ctx)
	if err != nil {
		return err
	}
	if !snapshot.DatastoreReady {
		return errors.New("calico's ClusterInformation does not say datastoreReady: unlock the datastore first")
	}
	bound := snapshot.ClusterInformation.Annotations[nodesync.BindingAnnotation]
	for _, entry := range entries {
		if bound != "" && entry.ClusterUID != "" && bound != entry.ClusterUID {
			return fmt.Errorf("the journal is of the cluster whose kube-system has UID %s, and this datastore belongs to %s: check ETCD_ENDPOINTS",
				entry.ClusterUID, bound)
		}
	}
	return nil
}

// restoreEntry puts back one machine, its Node first, which the others lead to. It returns false when something was refused.
func restoreEntry(ctx context.Context, store *calico.Etcd, entry controller.Entry, out io.Writer) (bool, error) {
	back, err := store.MachineIsBack(ctx, entry.Host, entry.Objects)
	if err != nil {
		return false, err
	}
	if back {
		_, err := fmt.Fprintf(out, "not restored: machine %s has joined again; nothing old is put onto it\n", entry.Host)
		return false, err
	}
	ok := true
	for _, object := range entry.Objects {
		if calico.IsIPAM(object.Key) {
			continue
		}
		err := store.Restore(ctx, object, nodesync.FenceAnnotation)
		if err != nil && !errors.Is(err, calico.ErrNotRestored) {
			return false, err
		}
		line := "restored " + object.Key
		if err != nil {
			ok, line = false, err.Error()
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return false, err
		}
	}
	return ok, nil
}
