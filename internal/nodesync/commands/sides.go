// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs through it, to the person at the terminal
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
)

// Source is where a command reads: what the flags of calico-node-sync name, or kubectl's.
type Source interface {
	// Cluster is the API server, and as whom it is read.
	Cluster() (*rest.Config, error)
	// Datastore is Calico's. The kind is that of --datastore-type.
	Datastore(ctx context.Context, kind string) (calico.Config, error)
	// Namespace is where a controller keeps its Lease and its state, "" if that is not known.
	Namespace(ctx context.Context) string
}

// Datastore is what the program needs of either datastore.
type Datastore interface {
	controller.Datastore
	controller.RestoreStore
	controller.RepairStore
	// IPAM reads all data of Calico's IPAM.
	IPAM(ctx context.Context) (ipamcheck.Data, error)
	Ping(ctx context.Context) error
	Close() error
}

// Sides are a datastore that answers and its cluster, for a command that runs once. Close the Store.
type Sides struct {
	Store   Datastore
	Cluster controller.Cluster
	// State is what a controller keeps, nil if no namespace is known.
	State  controller.State
	Config *rest.Config
}

// Connect opens the datastore; nothing is queried yet.
func Connect(config calico.Config, cluster *rest.Config) (Datastore, error) {
	if config.Kind == calico.Kubernetes {
		return calico.OpenKubernetes(cluster)
	}
	return calico.OpenEtcd(config.Etcd)
}

// Open connects to what the source names, and makes sure that the datastore answers.
func Open(ctx context.Context, source Source, kind string) (Sides, error) {
	config, err := source.Datastore(ctx, kind)
	if err != nil {
		return Sides{}, err
	}
	cluster, err := source.Cluster()
	if err != nil {
		return Sides{}, err
	}
	logrus.SetOutput(io.Discard) // libcalico-go's; what matters is in what the command prints
	live, err := controller.NewLive(cluster)
	if err != nil {
		return Sides{}, err
	}
	store, err := Connect(config, cluster)
	if err != nil {
		return Sides{}, err
	}
	if err := store.Ping(ctx); err != nil {
		return Sides{}, errors.Join(err, store.Close())
	}
	return Sides{
		Store: store, Cluster: controller.ReadOnce(live, clock.RealClock{}), State: controller.StateIn(live, source.Namespace(ctx)), Config: cluster,
	}, nil
}

// Preview plans once, as a controller would. remembered reports that one has kept watch until lately, from whose state
// absences start, and which says what it removes of its own accord and why leftovers of pods wait.
func (s Sides) Preview(ctx context.Context, config nodesync.Config) (plan nodesync.Plan, remembered bool, err error) {
	memory, remembered, err := controller.Kept(ctx, s.State, config, clock.RealClock{}.Now())
	if err != nil {
		return nodesync.Plan{}, false, fmt.Errorf("reading what the controller keeps: %w", err)
	}
	if config.OneShot = !remembered; remembered {
		config.AlsoRemove = slices.Concat(config.AlsoRemove, memory.AlsoRemove)
	}
	plan, err = controller.NewOneShot(config, s.Store, s.Cluster, s.State, clock.RealClock{}).Preview(ctx)
	if remembered {
		plan = plan.WithReport(memory.PodLeftovers)
	}
	return plan, remembered, err
}
