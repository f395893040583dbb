// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// Metrics report on load balancers. Their names are a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	syncs    *prometheus.CounterVec
	found    *prometheus.CounterVec
	repaired *prometheus.CounterVec
	dirty    prometheus.Gauge
	registry prometheus.Registerer
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		registry: registry,
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_loadbalancer_syncs_total",
			Help: "Reconciles of load balancers, by outcome: unchanged, created, updated, targets, deleted, pending, refused (a person has to act) or failed.",
		}, []string{"outcome"}),
		found: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_loadbalancer_drift_found_total",
			Help: "Drift of load balancers that no change of a Service explains, by field; droplet_ids covers Nodes that were added or removed.",
		}, []string{"field"}),
		repaired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_loadbalancer_drift_repaired_total",
			Help: "Repairs of load balancers after they were changed elsewhere, by kind: created, updated or targets.",
		}, []string{"by"}),
		dirty: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_digitalocean_loadbalancer_dirty", Help: "Load balancers that wait for a reconcile.",
		}),
	}
	registry.MustRegister(m.syncs, m.found, m.repaired, m.dirty)
	return m
}

func (m *Metrics) drift(differences []loadbalancer.Difference) {
	for _, d := range differences {
		m.found.WithLabelValues(string(d.Field)).Inc()
	}
}

func (m *Metrics) repair(by loadbalancer.Outcome) { m.repaired.WithLabelValues(string(by)).Inc() }
