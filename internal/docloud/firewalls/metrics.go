// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
)

// Outcomes of a pass; they are the label of a metric and MUST not be changed.
const (
	outcomeUnchanged = "unchanged"
	outcomeCreated   = "created"
	outcomeUpdated   = "updated"
	outcomeRefused   = "refused"
	outcomeFailed    = "failed"
)

// Metrics report on the firewall. Those that begin with firewall_ are the upstream project's, with its labels and buckets (metrics.go of v0.1.68).
// All names are a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	callSeconds      *prometheus.HistogramVec
	calls            *prometheus.CounterVec
	syncSeconds      *prometheus.HistogramVec
	syncs            *prometheus.CounterVec
	reconcileSeconds *prometheus.HistogramVec
	reconciles       *prometheus.CounterVec

	passes   *prometheus.CounterVec
	repaired *prometheus.CounterVec
	leftOut  prometheus.Gauge
	rules    prometheus.Gauge
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	histogram := func(name, help string, width float64, labels ...string) *prometheus.HistogramVec {
		const buckets = 21
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "firewall", Name: name, Help: help, Buckets: prometheus.LinearBuckets(1, width, buckets),
		}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	const callWidth, passWidth = 4.5, 15 // up to 91 and 301 seconds
	m := &Metrics{
		callSeconds: histogram("api_operation_duration_seconds", "How long API calls for the firewall took, by operation, result and HTTP status.",
			callWidth, "operation", "result", "http_response_code"),
		calls: counter("firewall_api_operations_total", "API calls for the firewall, by operation, result and HTTP status (empty without a response).",
			"operation", "result", "http_response_code"),
		syncSeconds: histogram("resource_sync_duration_seconds", "How long reading the firewall from DigitalOcean took.", passWidth, "result"),
		syncs:       counter("firewall_resource_syncs_total", "Reads of the firewall, by result: updated, failed or canceled.", "result"),
		reconcileSeconds: histogram("reconcile_duration_seconds", "How long reconciles of the firewall took.",
			passWidth, "result", "error_type"),
		reconciles: counter("firewall_reconciles_total", "Reconciles of the firewall, by result: reconciled (it was written), skipped (no change was needed) or failed.", "result", "error_type"),
		passes: counter("mooring_digitalocean_firewall_syncs_total",
			"Reconciles of the firewall, by outcome: unchanged, created, updated, refused (a person has to act) or failed.", "outcome"),
		repaired: counter("mooring_digitalocean_firewall_drift_repaired_total",
			"Repairs of the firewall after it was changed elsewhere, by kind: created or updated.", "by"),
		leftOut: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_digitalocean_firewall_services_left_out",
			Help: "Services that cannot be parsed; the firewall keeps the rules that it has for them.",
		}),
		rules: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_digitalocean_firewall_inbound_rules", Help: "Desired inbound rules of the firewall.",
		}),
	}
	registry.MustRegister(m.callSeconds, m.calls, m.syncSeconds, m.syncs, m.reconcileSeconds, m.reconciles, m.passes, m.repaired, m.leftOut, m.rules)
	return m
}

// pass counts a pass.
func (m *Metrics) pass(outcome string, err error, timeout bool, took time.Duration) {
	result, kind := "reconciled", ""
	switch {
	case err != nil:
		result, kind = "failed", "generic"
		if timeout {
			kind = "timeout"
		}
		if outcome != outcomeRefused {
			outcome = outcomeFailed
		}
	case outcome == outcomeUnchanged:
		result = "skipped"
	}
	m.reconciles.WithLabelValues(result, kind).Inc()
	m.reconcileSeconds.WithLabelValues(result, kind).Observe(took.Seconds())
	m.passes.WithLabelValues(outcome).Inc()
}

// read counts a reading of the firewall.
func (m *Metrics) read(err error, canceled bool, took time.Duration) {
	result := "updated"
	switch {
	case err != nil && canceled:
		result = "canceled"
	case err != nil:
		result = "failed"
	}
	m.syncs.WithLabelValues(result).Inc()
	m.syncSeconds.WithLabelValues(result).Observe(took.Seconds())
}

// instrumented counts calls as the upstream project does. A list counts as one call, however many pages it has.
type instrumented struct {
	API
	metrics *Metrics
	clock   clock.PassiveClock
}

func (i instrumented) observe(operation string, status int, err error, began time.Time) {
	result, code := "succeeded", strconv.Itoa(status)
	if err != nil {
		result, code = "failed", ""
		if answered, ok := errors.AsType[*doapi.Error](err); ok && answered.Status != 0 {
			code = strconv.Itoa(answered.Status)
		}
	}
	i.metrics.calls.WithLabelValues(operation, result, code).Inc()
	i.metrics.callSeconds.WithLabelValues(operation, result, code).Observe(i.clock.Since(began).Seconds())
}

// Firewalls implements API.
func (i instrumented) Firewalls(ctx context.Context) ([]firewall.Observed, error) {
	began := i.clock.Now()
	list, err := i.API.Firewalls(ctx)
	i.observe("get_by_list", http.StatusOK, err, began)
	return list, err
}

// Firewall implements API.
func (i instrumented) Firewall(ctx context.Context, id string) (firewall.Observed, error) {
	began := i.clock.Now()
	seen, err := i.API.Firewall(ctx, id)
	i.observe("get_by_id", http.StatusOK, err, began)
	return seen, err
}

// CreateFirewall implements API.
func (i instrumented) CreateFirewall(ctx context.Context, r firewall.Request) (firewall.Observed, error) {
	began := i.clock.Now()
	made, err := i.API.CreateFirewall(ctx, r)
	i.observe("create", http.StatusAccepted, err, began)
	return made, err
}

// UpdateFirewall implements API.
func (i instrumented) UpdateFirewall(ctx context.Context, id string, r firewall.Request) (firewall.Observed, error) {
	began := i.clock.Now()
	updated, err := i.API.UpdateFirewall(ctx, id, r)
	i.observe("update", http.StatusOK, err, began)
	return updated, err
}
