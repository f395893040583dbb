// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector/planner"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// burst applies all steps of one plan at once, as no operator does: the control. The topology is there, paused, so that an operator that runs
// leaves it alone; release lets it go.
func (r *run) burst(ctx context.Context, wanted *v1alpha1.RouteReflectorTopologySpec) error {
	t, err := r.pause(ctx, wanted)
	if err != nil {
		return err
	}
	w, configuration, err := r.observe(ctx, t)
	if err != nil {
		return err
	}
	p := planner.MakePlan(w)
	if len(p.Refusals) > 0 {
		return fmt.Errorf("the planner refuses: %s", p.Refusals[0].Message)
	}
	for _, step := range p.Steps {
		if err := r.apply(ctx, configuration, step); err != nil {
			return fmt.Errorf("%s %s: %w", routereflector.Kind(step), step.What().Object, err)
		}
	}
	return nil
}

// pause writes the topology that is wanted, paused. What it returns looks as if it were not, or as if it were about to be deleted.
func (r *run) pause(ctx context.Context, wanted *v1alpha1.RouteReflectorTopologySpec) (*v1alpha1.RouteReflectorTopology, error) {
	exiting := wanted == nil
	if exiting {
		t, err := r.topology(ctx)
		if err != nil || t == nil {
			return nil, cmp.Or(err, errors.New("there is no topology to delete"))
		}
		wanted = &t.Spec
	}
	spec := *wanted.DeepCopy()
	spec.Paused = true
	t, err := r.write(ctx, spec)
	if err != nil {
		return nil, err
	}
	t.Spec.Paused = false
	if exiting {
		t.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		return t, r.remove(ctx)
	}
	return t, nil
}

// release undoes pause: the topology is an operator's again, or gone.
func (r *run) release(ctx context.Context, wanted *v1alpha1.RouteReflectorTopologySpec) error {
	if wanted != nil {
		_, err := r.write(ctx, *wanted)
		return err
	}
	// There is nothing left for the operator's finalizer to wait for.
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	t := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: topologyName}}
	if err := client.IgnoreNotFound(r.Patch(ctx, t, client.RawPatch(types.MergePatchType, patch))); err != nil {
		return fmt.Errorf("letting go of RouteReflectorTopology %s: %w", topologyName, err)
	}
	return nil
}

// observe reads the World, without sightings: a burst waits for nothing.
func (c *cluster) observe(ctx context.Context, t *v1alpha1.RouteReflectorTopology) (w routereflector.World, have *calicov3.BGPConfiguration, err error) {
	w = routereflector.World{Now: time.Now(), Topology: *t, DatastoreReady: true}
	v1alpha1.SetDefaults(&w.Topology)
	var configurations calicov3.BGPConfigurationList
	var peers calicov3.BGPPeerList
	var nodes corev1.NodeList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&configurations, &peers, &nodes, &pods} {
		if err := c.List(ctx, list); err != nil {
			return w, nil, fmt.Errorf("reading what is there: %w", err)
		}
	}
	for i := range configurations.Items {
		if configurations.Items[i].Name == "default" {
			have = &configurations.Items[i]
			calico.NormalizeBGP(have)
		}
	}
	w.Mesh = routereflector.MeshFrom(have)
	for i := range peers.Items {
		calico.NormalizeBGP(&peers.Items[i])
		p, err := routereflector.PeerFrom(&peers.Items[i], func(text string) (routereflector.Matcher, error) { return selector.Parse(text) })
		if err != nil {
			return w, nil, err
		}
		w.Peers = append(w.Peers, p)
	}
	workloads := map[string]int{}
	for _, p := range pods.Items {
		workloads[p.Spec.NodeName]++
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		w.Nodes = append(w.Nodes, routereflector.NodeFrom(n, workloads[n.Name], routereflector.ASNumberFrom(have)))
	}
	return w, have, nil
}

// apply does one step. Nodes, which change by themselves, are written without their version: the control is to fail by its haste alone.
func (c *cluster) apply(ctx context.Context, have *calicov3.BGPConfiguration, s routereflector.Step) error {
	switch s := s.(type) {
	case routereflector.EnsurePeer:
		if s.UID == "" {
			return c.calico.CreatePeer(ctx, s.Peer)
		}
		return c.calico.UpdatePeer(ctx, s.Peer, s.UID, s.ResourceVersion)
	case routereflector.RemovePeer:
		return c.calico.DeletePeer(ctx, s.Name, s.UID, s.ResourceVersion)
	case routereflector.RetirePeer:
		return c.calico.DeletePeer(ctx, s.Name, s.UID, s.ResourceVersion)
	case routereflector.MeshOn:
		return c.calico.SetMesh(ctx, have, true)
	case routereflector.MeshOff:
		return c.calico.SetMesh(ctx, have, false)
	case routereflector.Promote, routereflector.Adopt, routereflector.Demote,
		routereflector.Assign, routereflector.Join, routereflector.Leave, routereflector.Release:
	}
	return c.patchNode(ctx, s)
}

// patchNode writes labels and cluster ID at once.
func (c *cluster) patchNode(ctx context.Context, s routereflector.Step) error {
	change, id := s.Change()
	metadata := map[string]any{"uid": change.UID, "labels": change.Labels}
	if id != nil {
		annotation := id
		if *id == "" {
			annotation = nil // which removes it
		}
		metadata["annotations"] = map[string]*string{routereflector.ClusterIDAnnotation: annotation}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: change.Name}}, client.RawPatch(types.MergePatchType, patch))
}
