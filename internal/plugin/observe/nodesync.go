// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// NodeSyncSource is where the commands of calico-node-sync read for a person: commands.Source. Calico's data is in the kubernetes datastore unless --datastore-type
// or the environment name etcd.
type NodeSyncSource struct {
	open func() (*Cluster, error)
}

// NodeSync is what kubectl's flags name. Nothing is read before a command asks.
func (e *Env) NodeSync() NodeSyncSource { return NodeSyncSource{sync.OnceValues(e.Cluster)} }

// NodeSync is the cluster as a Source.
func (c *Cluster) NodeSync() NodeSyncSource {
	return NodeSyncSource{func() (*Cluster, error) { return c, nil }}
}

// Cluster implements commands.Source.
func (s NodeSyncSource) Cluster() (*rest.Config, error) {
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	return c.Config, nil
}

// Datastore implements commands.Source.
func (s NodeSyncSource) Datastore(ctx context.Context, kind string) (calico.Config, error) {
	config, err := Datastore(kind)
	if err != nil || config.Kind != calico.Kubernetes {
		return config, err
	}
	c, err := s.open()
	if err != nil {
		return config, err
	}
	if _, err := c.Typed.Discovery().ServerResourcesForGroupVersionWithContext(ctx, CalicoKinds); apierrors.IsNotFound(err) {
		return config, fmt.Errorf("%w; if Calico keeps its data in etcd, set ETCD_ENDPOINTS", ErrNoCalico)
	}
	return config, nil
}

// ErrNoCalico is that of a cluster without Calico, as far as the kubernetes datastore shows.
var ErrNoCalico = errors.New("there are no kinds of Calico in this cluster")

// Namespace implements commands.Source.
func (s NodeSyncSource) Namespace(ctx context.Context) string {
	c, err := s.open()
	if err != nil {
		return ""
	}
	namespace, _ := c.StateNamespace(ctx) // without it, absences start now, and the plan says so
	return namespace
}

// PreviewNodeSync plans as calico-node-sync would with those limits, with what a running one remembers if that is found.
func PreviewNodeSync(ctx context.Context, c *Cluster, limits nodesync.Config) explain.NodeSync {
	sides, err := commands.Open(ctx, c.NodeSync(), "")
	if err != nil {
		return explain.NodeSync{Side: SideOf(err)}
	}
	defer func() { _ = sides.Store.Close() }()
	plan, remembered, err := sides.Preview(ctx, limits)
	out := explain.NodeSync{Grace: limits.Grace, Plan: plan, Side: SideOf(err)}
	if remembered {
		out.Memory = "that of calico-node-sync"
	}
	return out
}

// StateNamespace is the first of Mooring's namespaces in which a calico-node-sync keeps its memory, "" if none has one: then none runs. There is an error if
// that could not be read somewhere, and none was found elsewhere. A ConfigMap of that name in another namespace is anybody's.
func (c *Cluster) StateNamespace(ctx context.Context) (string, error) {
	objects, unread := c.stateObjects(ctx)
	switch {
	case len(objects) > 0:
		return objects[0].Namespace, nil
	case len(unread) > 0:
		return "", errors.New(unread[0])
	}
	return "", nil
}

// leaseFresh is for how long after the last renewal of its Lease a calico-node-sync counts as leading: longer than any lease, since this machine's clock is
// not the cluster's.
const leaseFresh = 2 * time.Minute

// nodeSyncLeads reports whether a calico-node-sync holds its Lease in one of Mooring's namespaces. A memory alone proves nothing: it outlives the program.
func (c *Cluster) nodeSyncLeads(ctx context.Context, now time.Time) bool {
	return slices.ContainsFunc(c.Namespaces, func(namespace string) bool {
		object, err := c.Typed.CoordinationV1().Leases(namespace).Get(ctx, nodesynccontroller.LeaseName, metav1.GetOptions{})
		if err != nil {
			return false
		}
		lease := LeaseOf(object)
		return lease.Holder != "" && now.Sub(lease.Renewed) < leaseFresh
	})
}

// cleanUps is what a running calico-node-sync does about machines without a Kubernetes Node; none where none runs. It is read if Calico has anything of such
// a machine: most of the time it has not.
func cleanUps(ctx context.Context, c *Cluster, w agreement.World, now clock.PassiveClock) []agreement.CleanUp {
	known := map[string]bool{}
	for i := range w.Nodes {
		known[w.Nodes[i].Name] = true
	}
	if w.Calico.Side != (finding.Side{}) || !slices.ContainsFunc(w.Calico.Nodes, func(n agreement.CalicoNode) bool { return !known[cmp.Or(n.Kubernetes, n.Name)] }) ||
		!c.nodeSyncLeads(ctx, c.ServerTime(now.Now())) {
		return nil
	}
	preview := PreviewNodeSync(ctx, c, nodesync.DefaultConfig())
	if preview.Memory == "" || preview.Side != (finding.Side{}) {
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
		message := r.Message
		if r.Gate == nodesync.GateGrace { // the plan is made with defaults, since the flags of what runs are not known
			message += ", unless --grace-period is set otherwise"
		}
		add(r.Of, r.Gate.Pending(), message)
	}
	return out
}
