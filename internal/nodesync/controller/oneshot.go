// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// NewOneShot returns a Reconciler for a command that looks once: it has no watch, plans with [Reconciler.Preview], and writes nothing. state
// may be nil.
func NewOneShot(
	config nodesync.Config, store Datastore, cluster Cluster, state State, now clock.WithTicker,
) *Reconciler {
	return &Reconciler{
		Leftovers: true, State: state, Datastore: store, Cluster: cluster, Config: config, DryRun: true,
		Clock: now, Log: logr.Discard(), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
}

// readOnce is a cluster that is read once: there is no watch that would have to be filled, the list is a quorum list all the same.
type readOnce struct{ *KubernetesCluster }

// Synced implements Cluster.
func (readOnce) Synced() bool { return true }

// ReadOnce is a cluster without a watch, for commands that look once. Reader must not be a cache.
func ReadOnce(reader client.Reader, now clock.PassiveClock) Cluster {
	return readOnce{NewKubernetesCluster(reader, now)}
}

// NewLive returns a client that reads the API server live. It knows the kinds of this package, which are all served in
// one version: nothing is discovered.
func NewLive(config *rest.Config) (client.Client, error) {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Node", "Namespace"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), apimeta.RESTScopeRoot)
	}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Pod"),
		appsv1.SchemeGroupVersion.WithKind("Deployment"), coordinationv1.SchemeGroupVersion.WithKind("Lease"),
	} {
		mapper.Add(kind, apimeta.RESTScopeNamespace)
	}
	live, err := client.New(config, client.Options{Scheme: runtime.NewScheme(), Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("making a client for Kubernetes: %w", err)
	}
	return live, nil
}

// Kept returns what a controller keeps, and whether it has kept watch until lately: then it is the one to act on a
// confirmation, and otherwise it is the command that was given one. state may be nil, which is not a controller.
func Kept(ctx context.Context, state State, c nodesync.Config, now time.Time) (memory nodesync.Memory, lately bool, err error) {
	if state == nil {
		return memory, false, nil
	}
	memory, _, err = state.Read(ctx)
	return memory, now.Sub(memory.SavedAt) <= 2*c.Resync, err
}
