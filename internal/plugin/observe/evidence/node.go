// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector/planner"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/checks"
)

// Node reads what there is of a machine that any side knows.
func Node(ctx context.Context, c *observe.Cluster, now clock.PassiveClock, name string) (evidence explain.NodeEvidence, err error) {
	w, err := observe.Machines(ctx, c, now, nil)
	if err != nil {
		return evidence, err
	}
	rows, err := agreement.Only(agreement.Rows(w), []string{name})
	if err != nil {
		return evidence, err
	}
	config, err := observe.Datastore("")
	if err != nil {
		return evidence, err
	}
	evidence = explain.NodeEvidence{Name: name, Machine: rows[0], NotAsked: slices.DeleteFunc(w.Sides(), func(s finding.Side) bool { return s.NotAsked == "" })}
	for _, n := range w.Calico.Nodes {
		if n.Kubernetes == name {
			evidence.CalicoNames = append(evidence.CalicoNames, n.Name)
		}
	}
	evidence.OutOfService = outOfService(ctx, c, name)
	evidence.NodeSync, evidence.Reflectors.Side = explain.NodeSync{Side: w.Calico.Side}, w.Calico.Side
	if w.Calico.Side == (finding.Side{}) {
		limits := nodesync.DefaultConfig()
		limits.SweepPeriod = 0 // what no Node leads to is not this machine's
		evidence.NodeSync = observe.PreviewNodeSync(ctx, c, limits)
		evidence.Reflectors = reflectorsOfNode(ctx, c, now, config, append([]string{name}, evidence.CalicoNames...))
	}
	evidence.Events, evidence.EventsRead = eventsOfMachine(ctx, c, append([]string{name}, evidence.CalicoNames...))
	evidence.Now = c.ServerTime(now.Now())
	return evidence, nil
}

// outOfService reads what digitalocean-cloud-controller-manager has recorded of a machine that is off, and the Node's taints.
func outOfService(ctx context.Context, c *observe.Cluster, name string) explain.OutOfService {
	var out explain.OutOfService
	node, err := c.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return out
	case err != nil:
		out.Side = observe.SideOf(fmt.Errorf("reading node %s: %w", name, err))
		return out
	}
	out.Ours, out.Foreign = outofservice.Taints(node.Spec.Taints)
	out.NotReady = !observe.IsReady(node)
	off, err := c.MachinesOff(ctx)
	if err != nil {
		out.Side = observe.SideOf(err)
		return out
	}
	if off.Lease != nil {
		out.Record = &off.Record
	}
	return out
}

// reflectorsOfNode plans as the route reflectors' operator would, for each topology.
func reflectorsOfNode(ctx context.Context, c *observe.Cluster, now clock.PassiveClock, config calico.Config, names []string) explain.Reflectors {
	s, served, err := observe.ReadBGP(ctx, c, config, now)
	if err != nil {
		return explain.Reflectors{Side: observe.SideOf(err)}
	}
	out := explain.Reflectors{Absent: !served}
	if len(s.Topologies) > 0 {
		out.Unkept = checks.Unkept(ctx, c, now, doctor.Reflectors)
	}
	for i := range s.Topologies {
		w, unread := s.World(i)
		t := explain.Topology{Seen: s.Drawn(i), World: w, Plan: planner.MakePlan(w), Unread: unread, PodsUncounted: s.Uncounted, Node: names[0]}
		for _, n := range w.Nodes {
			if slices.Contains(names[1:], n.Name) {
				t.Node = n.Name
			}
		}
		out.Topologies = append(out.Topologies, t)
	}
	return out
}
