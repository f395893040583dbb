// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// Metrics of node sync. Their names are a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	rounds      *prometheus.CounterVec
	steps       *prometheus.CounterVec
	refusals    *prometheus.GaugeVec
	planned     prometheus.Gauge
	lastSuccess prometheus.Gauge
	calicoNodes prometheus.Gauge
	absentNodes prometheus.Gauge
	// unserved is a count of Kubernetes Nodes, and stays 0 with the kubernetes datastore, where each is its own Calico Node.
	unserved prometheus.Gauge
	// podLeftovers counts addresses and endpoints of pods that are gone, on existing machines.
	podLeftovers prometheus.Gauge
	// journalErrors has no labels, so that it is 0 from the start and its first increase shows.
	journalErrors prometheus.Counter
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_nodesync_rounds_total", Help: "Reconciles (observe, plan, apply, report), by outcome (ok or error).",
		}, []string{"outcome"}),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_nodesync_steps_total", Help: "Attempted steps on Calico's datastore, by kind and outcome (done, conflict or error).",
		}, []string{"kind", "outcome"}),
		refusals: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mooring_nodesync_refusals", Help: "Machines and objects that the last plan left alone, by the gate that holds them back.",
		}, []string{"gate"}),
		planned: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_nodesync_planned_steps", Help: "Steps of the last plan; in a dry run they are not applied.",
		}),
		lastSuccess: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_nodesync_last_success_timestamp_seconds", Help: "Unix time of the last reconcile without an error.",
		}),
		calicoNodes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_nodesync_calico_nodes", Help: "Calico Nodes in the datastore in the last reconcile.",
		}),
		absentNodes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_nodesync_absent_nodes", Help: "Calico Nodes whose Kubernetes Node was missing in the last reconcile.",
		}),
		unserved: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_nodesync_nodes_without_calico_node", Help: "Kubernetes Nodes without a Calico Node in the last reconcile; always 0 with the kubernetes datastore.",
		}),
		podLeftovers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_nodesync_pod_leftovers", Help: "Addresses and workload endpoints of pods that are gone, on existing machines, as the last sweep found them.",
		}),
		journalErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mooring_nodesync_journal_errors_total", Help: "Journal entries that could not be written; nothing of their machines was removed.",
		}),
	}
	registry.MustRegister(m.rounds, m.steps, m.refusals, m.planned, m.lastSuccess, m.calicoNodes, m.absentNodes, m.unserved, m.podLeftovers,
		m.journalErrors)
	return m
}

// countRound counts a round.
func (m *Metrics) countRound(err error, now time.Time) {
	if err != nil {
		m.rounds.WithLabelValues("error").Inc()
		return
	}
	m.rounds.WithLabelValues("ok").Inc()
	m.lastSuccess.Set(float64(now.Unix()))
}

// count sets what a plan and what it is about have, such as how many Kubernetes Nodes have no Calico Node.
func (m *Metrics) count(s *scene, c nodesync.Config) {
	m.planned.Set(float64(len(s.plan.Steps)))
	m.calicoNodes.Set(float64(len(s.Calico.Nodes)))
	m.absentNodes.Set(float64(len(s.plan.Memory.Absences)))
	m.podLeftovers.Set(float64(s.plan.Leftovers))
	if s.Calico.Binding.Implied || !s.Kubernetes.Synced {
		return
	}
	names := make([]string, 0, len(s.Kubernetes.Nodes))
	for _, n := range s.Kubernetes.Nodes {
		names = append(names, n.Name)
	}
	m.unserved.Set(float64(len(nodesync.WithoutCalicoNode(s.Calico.Nodes, names, c))))
}
