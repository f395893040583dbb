// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs through it, to the person at the terminal

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// node explains a machine that any side knows.
func (e *explainCommand) node(ctx context.Context, name string) (explain.Explanation, error) {
	w, err := (&agreementCommand{env: e.env, clock: e.clock}).world(ctx)
	if err != nil {
		return explain.Explanation{}, err
	}
	rows, err := only(agreement.Rows(w), []string{name})
	if err != nil {
		return explain.Explanation{}, err
	}
	c, err := e.env.cluster()
	if err != nil {
		return explain.Explanation{}, err
	}
	config, err := calicoConfig()
	if err != nil {
		return explain.Explanation{}, err
	}
	if config.Kind == calico.EtcdV3 {
		logrus.SetOutput(io.Discard) // libcalico-go's; what cannot be read is said
	}
	evidence := explain.NodeEvidence{Name: name, Machine: rows[0]}
	for _, side := range sidesOf(w) {
		if side.side.NotAsked != "" {
			evidence.NotAsked = append(evidence.NotAsked, explain.Named{Name: side.name, Text: side.side.NotAsked})
		}
	}
	for _, n := range w.Calico.Nodes {
		if n.Kubernetes == name {
			evidence.CalicoNames = append(evidence.CalicoNames, n.Name)
		}
	}
	evidence.OutOfService = outOfService(ctx, c, name)
	evidence.NodeSync, evidence.Reflectors.Side = explain.NodeSync{Side: explain.Side(w.Calico.Side)}, explain.Side(w.Calico.Side)
	if w.Calico.Side == (agreement.Side{}) {
		limits := nodesync.DefaultConfig()
		limits.SweepPeriod = 0 // what no Node leads to is not this machine's
		evidence.NodeSync = previewNodeSync(ctx, c, config, limits, e.clock)
		evidence.Reflectors = e.reflectors(ctx, c, config, append([]string{name}, evidence.CalicoNames...))
	}
	evidence.Events, evidence.EventsRead = c.eventsOfMachine(ctx, append([]string{name}, evidence.CalicoNames...))
	evidence.Now = e.clock.Now()
	return explain.Node(evidence), nil
}

// outOfService reads what digitalocean-cloud-controller-manager has recorded of a machine that is off, and the Node's taints.
func outOfService(ctx context.Context, c *cluster, name string) explain.OutOfService {
	var out explain.OutOfService
	node, err := c.typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return out
	case err != nil:
		out.Side = sideOf(fmt.Errorf("reading node %s: %w", name, err))
		return out
	}
	out.Ours, out.Foreign = outofservice.Taints(node.Spec.Taints)
	out.NotReady = !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	off, err := c.machinesOff(ctx)
	if err != nil {
		out.Side = sideOf(err)
		return out
	}
	out.Recorded, out.Enabled, out.At, out.Partial = off.lease != nil, off.record.Enabled, off.record.SavedAt, off.record.More > 0
	for i, v := range off.record.Machines {
		if v.Node == name {
			out.Verdict = &off.record.Machines[i]
		}
	}
	return out
}

// reflectors plans as the route reflectors' operator would, for each topology.
func (e *explainCommand) reflectors(ctx context.Context, c *cluster, config calico.Config, names []string) explain.Reflectors {
	s, served, err := readBGPScene(ctx, c, config, e.clock)
	switch {
	case err != nil:
		return explain.Reflectors{Side: sideOf(err)}
	case !served:
		return explain.Reflectors{Side: explain.Side{NotAsked: "there is no kind RouteReflectorTopology"}}
	}
	var out explain.Reflectors
	for i := range s.topologies {
		w, unread := s.world(i)
		t := explain.Topology{World: w, Plan: routereflector.Make(w), Unread: unread, PodsUncounted: s.uncounted, Node: names[0]}
		for _, n := range w.Nodes {
			if slices.Contains(names[1:], n.Name) {
				t.Node = n.Name
			}
		}
		out.Topologies = append(out.Topologies, t)
	}
	return out
}
