// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Kubernetes Nodes without a Calico Node are counted, while both sides are known and each machine should have one.
func TestNodesWithoutACalicoNodeAreCounted(t *testing.T) {
	t.Parallel()
	r := &Reconciler{Config: nodesync.DefaultConfig(), Metrics: NewMetrics(prometheus.NewRegistry())}
	w := nodesync.World{
		Kubernetes: nodesync.Kubernetes{Synced: true, Nodes: []nodesync.KubernetesNode{{Name: "a"}, {Name: "b"}, {Name: "c"}}},
		Calico:     nodesync.Calico{Nodes: []nodesync.CalicoNode{{Name: "a", OrchRefs: []nodesync.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: "a"}}}}},
	}
	r.Metrics.count(&scene{World: w}, r.Config)
	if got := testutil.ToFloat64(r.Metrics.unserved); got != 2 {
		t.Errorf("%v are counted, want 2", got)
	}
	w.Kubernetes.Synced, w.Kubernetes.Nodes = false, nil
	if r.Metrics.count(&scene{World: w}, r.Config); testutil.ToFloat64(r.Metrics.unserved) != 2 {
		t.Error("what is not known is counted")
	}
}

// Metric names are a contract with dashboards; the component's page explains each of them, and each gate.
func TestMetricsAndGatesAreDocumented(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	m.rounds.WithLabelValues("ok")
	m.steps.WithLabelValues("Fence", "done")
	m.refusals.WithLabelValues("grace")
	families := must.Get(registry.Gather()).Or(t)
	got := make([]string, 0, len(families))
	for _, f := range families {
		got = append(got, f.GetName())
	}
	want := []string{
		"mooring_nodesync_absent_nodes", "mooring_nodesync_calico_nodes", "mooring_nodesync_journal_errors_total",
		"mooring_nodesync_last_success_timestamp_seconds", "mooring_nodesync_nodes_without_calico_node",
		"mooring_nodesync_planned_steps", "mooring_nodesync_pod_leftovers", "mooring_nodesync_refusals", "mooring_nodesync_rounds_total", "mooring_nodesync_steps_total",
	}
	if !slices.Equal(got, want) {
		t.Errorf("metrics: got %v, want %v", got, want)
	}
	page := componentPage(t)
	for _, name := range want {
		if !strings.Contains(page, "`"+name) {
			t.Errorf("the component's page does not explain metric %s", name)
		}
	}
	for _, gate := range nodesync.Gates() {
		if !strings.Contains(page, "`"+string(gate)+"`") {
			t.Errorf("the component's page does not explain gate %s", gate)
		}
	}
}
