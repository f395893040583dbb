// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/nodesync"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
)

// PreviewNodeSync plans as calico-node-sync would with those limits, with what a running one remembers if that is found.
func PreviewNodeSync(ctx context.Context, c *Cluster, config calico.Config, limits nodesync.Config, now clock.PassiveClock) explain.NodeSync {
	out := explain.NodeSync{Grace: limits.Grace}
	store, done, err := openStore(c, config)
	if err != nil {
		return explain.NodeSync{Side: SideOf(err)}
	}
	defer done()
	live, err := nodesynccontroller.NewLive(c.Config)
	if err != nil {
		return explain.NodeSync{Side: SideOf(err)}
	}
	var state nodesynccontroller.State
	if namespace := c.stateNamespace(ctx); namespace != "" {
		state = &nodesynccontroller.ConfigMapState{Client: live, Namespace: namespace, Name: nodesynccontroller.StateName}
	}
	watched, err := nodesynccontroller.WatchKept(ctx, state, limits, now.Now())
	if err != nil {
		return explain.NodeSync{Side: SideOf(fmt.Errorf("reading what calico-node-sync remembers: %w", err))}
	}
	if watched {
		out.Memory = "that of calico-node-sync"
	}
	limits.OneShot = !watched
	out.Plan, err = nodesynccontroller.NewOneShot(limits, store, nodesynccontroller.ReadOnce(live, now), state, clock.RealClock{}).Preview(ctx)
	out.Side = SideOf(err)
	return out
}

// openStore connects to Calico's datastore; done ends that.
func openStore(c *Cluster, config calico.Config) (store nodesynccontroller.Datastore, done func(), err error) {
	if config.Kind == calico.Kubernetes {
		kubernetes, err := calico.OpenKubernetes(c.Config)
		return kubernetes, func() {}, err
	}
	etcd, err := calico.OpenEtcd(config.Etcd)
	if err != nil {
		return nil, nil, err
	}
	return etcd, func() { _ = etcd.Close() }, nil
}

// stateNamespace is the first of Mooring's namespaces in which a calico-node-sync keeps its memory, "" if there is none or it may not be read. A ConfigMap
// of that name elsewhere is anybody's.
func (c *Cluster) stateNamespace(ctx context.Context) string {
	for _, namespace := range c.Namespaces {
		if _, err := c.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, nodesynccontroller.StateName, metav1.GetOptions{}); err == nil {
			return namespace
		}
	}
	return ""
}

// nodeSyncLease is the Lease by which calico-node-sync elects its leader (package nodesync/app, which links a whole manager), leaseFresh for how long after
// its last renewal somebody counts as leading: longer than any lease, since this machine's clock is not the cluster's.
const (
	nodeSyncLease = "calico-node-sync.nodes.mooring.dev"
	leaseFresh    = 2 * time.Minute
)

// nodeSyncLeads reports whether a calico-node-sync holds its Lease in one of Mooring's namespaces. A memory alone proves nothing: it outlives the program.
func (c *Cluster) nodeSyncLeads(ctx context.Context, now time.Time) bool {
	return slices.ContainsFunc(c.Namespaces, func(namespace string) bool {
		object, err := c.Typed.CoordinationV1().Leases(namespace).Get(ctx, nodeSyncLease, metav1.GetOptions{})
		if err != nil {
			return false
		}
		lease := LeaseOf(object)
		return lease.Holder != "" && now.Sub(lease.Renewed) < leaseFresh
	})
}

// cleanUps is what a running calico-node-sync does about machines without a Kubernetes Node; none where none runs.
func cleanUps(ctx context.Context, c *Cluster, config calico.Config, now clock.PassiveClock) []agreement.CleanUp {
	if !c.nodeSyncLeads(ctx, now.Now()) {
		return nil
	}
	preview := PreviewNodeSync(ctx, c, config, nodesync.DefaultConfig(), now)
	if preview.Memory == "" || preview.Side != (explain.Side{}) {
		return nil
	}
	var out []agreement.CleanUp
	add := func(of nodesync.Subject, pending bool, message string) {
		for _, machine := range slices.Compact([]string{of.KubernetesNode, of.Host}) {
			out = append(out, agreement.CleanUp{Machine: machine, Pending: pending, Message: message})
		}
	}
	for _, step := range preview.Plan.Steps {
		add(step.Subject(), true, "at its next reconcile")
	}
	for _, r := range preview.Plan.Refusals {
		add(r.Of, r.Gate.Pending(), r.Message)
	}
	return out
}
