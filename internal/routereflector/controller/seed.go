// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/predecessor"
)

// SeedLease is the name of the Lease that says that the old operator's variables have been read once. It has no holder and is never renewed.
// MUST NOT change: a topology that somebody has deleted would come back.
const SeedLease = "calico-route-reflector-operator-environment"

// Reasons of Events about a topology that is made of variables. MUST NOT change.
const (
	// seedMade, Normal: the topology was created from the environment variables, which are not read again.
	seedMade = "MadeFromEnvironment"
	// seedNote, Normal: a setting of the environment variables that the topology lacks or has with another value.
	seedNote = "EnvironmentDiffers"
)

// seedRetry is how long after a failure the variables are tried again.
const seedRetry = 10 * time.Second

// Seeder makes a topology of the variables of the calico-route-reflector-operator of 2020, once in the life of a cluster, where there is none. What
// somebody makes of it later, its deletion included, stays. It is a runnable of the manager's that needs to lead.
type Seeder struct {
	// Reader reads from the informers, Live from the API server.
	Reader, Live client.Reader
	// Client creates the topology.
	Client client.Client
	// Calico is only read.
	Calico Datastore
	// Leases are those of the operator's own namespace.
	Leases coordinationclient.LeaseInterface
	// Getenv is as os.Getenv.
	Getenv func(string) string
	// Events records Events; nil for none.
	Events events.EventRecorder
	Clock  clock.WithTicker
	Log    logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (s *Seeder) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns at once where no variable is set, and otherwise once the matter is settled. It never fails:
// the operator has other topologies to keep.
func (s *Seeder) Start(ctx context.Context) error {
	settings, set, problems := predecessor.Read(s.Getenv)
	if !set {
		return nil
	}
	for {
		err := s.seed(ctx, settings, problems)
		switch {
		case err == nil:
			return nil
		case apierrors.IsForbidden(err):
			s.Log.Error(err, "The variables ROUTE_REFLECTOR_* are set, and a right to create a topology from them is missing: "+
				"apply config/calico-route-reflector-operator/overlays/environment, or remove them")
			return nil
		}
		s.Log.Error(err, "Creating a topology from the variables ROUTE_REFLECTOR_*", "again", seedRetry.String())
		timer := s.Clock.NewTimer(seedRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// seed does it. A topology that exists, no matter who made it, settles the matter for good; so does the Lease.
func (s *Seeder) seed(ctx context.Context, settings predecessor.Settings, problems []string) error {
	_, err := s.Leases.Get(ctx, SeedLease, metav1.GetOptions{})
	if err == nil {
		s.Log.V(1).Info("The variables ROUTE_REFLECTOR_* have been read once and are not read again", "lease", SeedLease)
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading Lease %s: %w", SeedLease, err)
	}
	var topologies v1alpha1.RouteReflectorTopologyList
	if err := s.Live.List(ctx, &topologies); err != nil {
		return fmt.Errorf("reading RouteReflectorTopologies: %w", err)
	}
	if len(topologies.Items) > 0 {
		s.Log.Info("The variables ROUTE_REFLECTOR_* are not read, since there is a topology", "topology", topologies.Items[0].Name)
		return s.remember(ctx)
	}
	result, err := s.result(ctx, settings, problems)
	if err != nil {
		return err
	}
	if len(result.Problems) > 0 {
		s.Log.Error(errors.New(strings.Join(result.Problems, "; ")),
			"No topology is created from the variables ROUTE_REFLECTOR_*; correct them and start again, or create a RouteReflectorTopology")
		return nil
	}
	made := result.Topology.DeepCopy()
	if err := s.Client.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating RouteReflectorTopology %s: %w", made.Name, err)
	}
	s.tell(made, result.Notes)
	return s.remember(ctx)
}

// result reads what the variables come to in this cluster.
func (s *Seeder) result(ctx context.Context, settings predecessor.Settings, problems []string) (predecessor.Result, error) {
	if len(problems) > 0 {
		return predecessor.Result{Problems: problems}, nil
	}
	blank := &v1alpha1.RouteReflectorTopology{}
	v1alpha1.SetDefaults(blank)
	sight := &scene{topology: blank}
	sight.world.Topology = *blank
	reader := &Reconciler{Reader: s.Reader, Calico: s.Calico}
	if err := reader.observeCalico(ctx, sight); err != nil {
		return predecessor.Result{}, err
	}
	if err := reader.observeNodes(ctx, sight); err != nil {
		return predecessor.Result{}, err
	}
	if !slices.ContainsFunc(sight.world.Nodes, func(n routereflector.Node) bool { return n.IPv4.IsValid() || n.IPv6.IsValid() }) {
		return predecessor.Result{}, errors.New("no Node has a BGP address by calico-node yet")
	}
	return settings.Topology(sight.world.Nodes, sight.world.Peers, sight.world.Mesh), nil
}

// tell says what was made, and what of it is otherwise than it was.
func (s *Seeder) tell(made *v1alpha1.RouteReflectorTopology, notes []string) {
	const note = "created from the variables ROUTE_REFLECTOR_*, which are not read again; remove them"
	s.Log.Info("RouteReflectorTopology "+note, "topology", made.Name, "notes", notes)
	if s.Events == nil {
		return
	}
	s.Events.Eventf(made, nil, corev1.EventTypeNormal, seedMade, "RouteReflectors", "%s", note)
	for _, n := range notes {
		s.Events.Eventf(made, nil, corev1.EventTypeNormal, seedNote, "RouteReflectors", "%s", n)
	}
}

// remember creates the Lease. That somebody else has is as good.
func (s *Seeder) remember(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: SeedLease}}
	if _, err := s.Leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating Lease %s: %w", SeedLease, err)
	}
	return nil
}
