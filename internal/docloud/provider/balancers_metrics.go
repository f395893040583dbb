// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// BalancerMetrics say how load balancers fare. Their names are a contract with dashboards and alerts: MUST NOT change.
type BalancerMetrics struct {
	syncs    *prometheus.CounterVec
	found    *prometheus.CounterVec
	repaired *prometheus.CounterVec
	dirty    prometheus.Gauge
	registry prometheus.Registerer
}

// NewBalancerMetrics makes the metrics and registers them.
func NewBalancerMetrics(registry prometheus.Registerer) *BalancerMetrics {
	m := &BalancerMetrics{
		registry: registry,
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_loadbalancer_syncs_total",
			Help: "Passes over load balancers, by outcome: unchanged, created, updated, targets, deleted, pending, refused (people have to act) or failed.",
		}, []string{"outcome"}),
		found: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_loadbalancer_drift_found_total",
			Help: "Differences of load balancers that no change of a Service explains, by field; droplet_ids are those of Nodes that came and went.",
		}, []string{"field"}),
		repaired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_loadbalancer_drift_repaired_total",
			Help: "Load balancers that were put right after something changed elsewhere, by how: created, updated or targets.",
		}, []string{"by"}),
		dirty: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_digitalocean_loadbalancer_dirty", Help: "Load balancers that wait to be looked at.",
		}),
	}
	registry.MustRegister(m.syncs, m.found, m.repaired, m.dirty)
	return m
}

// sync counts a pass.
func (m *BalancerMetrics) sync(outcome string, err error) {
	held, waiting := heldError{}, waitError{}
	switch {
	case err == nil:
	case errors.As(err, &held):
		outcome = outcomeRefused
	case errors.As(err, &waiting), errors.Is(err, doapi.ErrBusy), errors.Is(err, doapi.ErrRateLimited):
		outcome = outcomePending
	case outcome != outcomeRefused:
		outcome = outcomeFailed
	}
	m.syncs.WithLabelValues(outcome).Inc()
}

func (m *BalancerMetrics) drift(differences []loadbalancer.Difference) {
	for _, d := range differences {
		m.found.WithLabelValues(string(d.Field)).Inc()
	}
}

func (m *BalancerMetrics) repair(by string) { m.repaired.WithLabelValues(by).Inc() }
