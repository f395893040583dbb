// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Metrics of the route reflectors. Their names are a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	desired, actual       *prometheus.GaugeVec
	expected, established *prometheus.GaugeVec
	atRisk, paths         *prometheus.GaugeVec
	mesh, frozen          *prometheus.GaugeVec
	degraded              *prometheus.GaugeVec
	pending, phase        *prometheus.GaugeVec
	steps                 *prometheus.HistogramVec
	writes                *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mooring_routereflector_" + name, Help: help}, append([]string{"topology"}, labels...))
		registry.MustRegister(g)
		return g
	}
	m := &Metrics{
		desired:     gauge("reflectors_desired", "Desired reflectors, by zone.", "zone"),
		actual:      gauge("reflectors", "Nodes that are reflectors, by zone.", "zone"),
		expected:    gauge("sessions_expected", "Expected sessions between clients and reflectors, as of the last check."),
		established: gauge("sessions_established", "Established sessions between clients and reflectors, as of the last check."),
		atRisk:      gauge("clients_at_risk", "Clients with fewer Established sessions than there are reflectors, while sessions are checked."),
		paths:       gauge("paths_per_prefix", "Maximum number of paths from a node to one prefix, by the reachability model."),
		mesh:        gauge("mesh_enabled", "1 if the node-to-node mesh is on."),
		frozen:      gauge("frozen", "1 if nothing is written: paused, or Calico's datastore must not be written to."),
		degraded:    gauge("degraded", "1 if the condition Degraded is True."),
		pending:     gauge("pending_steps", "Remaining steps of the plan."),
		phase:       gauge("phase", "1 for the phase that the topology is in, 0 for the others.", "phase"),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mooring_routereflector_step_duration_seconds", Help: "Time from the previous step, or from the change that required it, to a step, by kind.",
			Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 300},
		}, []string{"kind"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_routereflector_writes_total", Help: "Attempted writes, by kind and outcome (done, conflict or error).",
		}, []string{"kind", "outcome"}),
	}
	registry.MustRegister(m.steps, m.writes)
	return m
}

// wrote counts a write.
func (m *Metrics) wrote(kind string, err error) {
	result := "done"
	switch {
	case errors.Is(err, calico.ErrConflict):
		result = "conflict"
	case err != nil:
		result = "error"
	}
	m.writes.WithLabelValues(kind, result).Inc()
}

// stepped notes how long it took until a step could be carried out.
func (m *Metrics) stepped(kind string, took time.Duration) {
	m.steps.WithLabelValues(kind).Observe(took.Seconds())
}

// observe sets the gauges of a topology.
func (m *Metrics) observe(s *scene, o outcome, is v1alpha1.RouteReflectorTopologyStatus) {
	name := s.topology.Name
	m.zones(name, o.plan.Reflectors)
	m.expected.WithLabelValues(name).Set(float64(is.Sessions.Expected))
	m.established.WithLabelValues(name).Set(float64(is.Sessions.Established))
	m.atRisk.WithLabelValues(name).Set(float64(s.world.ClientsAtRisk()))
	m.paths.WithLabelValues(name).Set(float64(o.plan.Checks.MaxPathsPerPrefix))
	m.mesh.WithLabelValues(name).Set(one(s.world.Mesh.On))
	m.frozen.WithLabelValues(name).Set(one(conditions.IsTrue(is.Conditions, v1alpha1.ConditionFrozen, is.ObservedGeneration)))
	m.degraded.WithLabelValues(name).Set(one(conditions.IsTrue(is.Conditions, v1alpha1.ConditionDegraded, is.ObservedGeneration)))
	m.pending.WithLabelValues(name).Set(float64(len(o.plan.Steps)))
	for _, phase := range []v1alpha1.Phase{
		v1alpha1.PhasePending, v1alpha1.PhaseProgressing, v1alpha1.PhaseReady, v1alpha1.PhaseDegraded, v1alpha1.PhaseFrozen, v1alpha1.PhaseRefused,
	} {
		m.phase.WithLabelValues(name, string(phase)).Set(one(is.Phase == phase))
	}
}

func (m *Metrics) zones(name string, reflectors []routereflector.Reflector) {
	m.desired.DeletePartialMatch(prometheus.Labels{"topology": name})
	m.actual.DeletePartialMatch(prometheus.Labels{"topology": name})
	for _, r := range reflectors {
		m.desired.WithLabelValues(name, r.Zone).Add(one(r.Role != routereflector.RoleLeaving))
		m.actual.WithLabelValues(name, r.Zone).Add(one(r.Role != routereflector.RoleJoining))
	}
}

// forget takes away the gauges of a topology that is gone.
func (m *Metrics) forget(name string) {
	for _, g := range []*prometheus.GaugeVec{
		m.desired, m.actual, m.expected, m.established, m.atRisk, m.paths, m.mesh, m.frozen, m.degraded, m.pending, m.phase,
	} {
		g.DeletePartialMatch(prometheus.Labels{"topology": name})
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
