// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/nodesync"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
)

// previewNodeSync plans as calico-node-sync would with those limits, with what a running one remembers if that is found.
func previewNodeSync(ctx context.Context, c *cluster, config calico.Config, limits nodesync.Config, now clock.PassiveClock) explain.NodeSync {
	out := explain.NodeSync{Grace: limits.Grace}
	store, done, err := openStore(c, config)
	if err != nil {
		return explain.NodeSync{Side: sideOf(err)}
	}
	defer done()
	live, err := nodesynccontroller.NewLive(c.config)
	if err != nil {
		return explain.NodeSync{Side: sideOf(err)}
	}
	var state nodesynccontroller.State
	if namespace := c.stateNamespace(ctx); namespace != "" {
		state = &nodesynccontroller.ConfigMapState{Client: live, Namespace: namespace, Name: nodesynccontroller.StateName}
	}
	watched, err := nodesynccontroller.WatchKept(ctx, state, limits, now.Now())
	if err != nil {
		return explain.NodeSync{Side: sideOf(fmt.Errorf("reading what calico-node-sync remembers: %w", err))}
	}
	if watched {
		out.Memory = "that of the running controller"
	}
	limits.OneShot = !watched
	out.Plan, err = nodesynccontroller.NewOneShot(limits, store, nodesynccontroller.ReadOnce(live, now), state, clock.RealClock{}).Preview(ctx)
	out.Side = sideOf(err)
	return out
}

// openStore connects to Calico's datastore; done ends that.
func openStore(c *cluster, config calico.Config) (store nodesynccontroller.Datastore, done func(), err error) {
	if config.Kind == calico.Kubernetes {
		kubernetes, err := calico.OpenKubernetes(c.config)
		return kubernetes, func() {}, err
	}
	etcd, err := calico.OpenEtcd(config.Etcd)
	if err != nil {
		return nil, nil, err
	}
	return etcd, func() { _ = etcd.Close() }, nil
}

// stateNamespace is where a calico-node-sync keeps what it remembers, "" if none is found, or several, or nobody may look.
func (c *cluster) stateNamespace(ctx context.Context) string {
	list, err := c.typed.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, nodesynccontroller.StateName).String(),
	})
	if err != nil || len(list.Items) != 1 {
		return ""
	}
	return list.Items[0].Namespace
}
