// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
)

// Metrics of calls to DigitalOcean's API; nil is none. Their names are a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	calls     *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	remaining prometheus.Gauge
	limit     prometheus.Gauge
	reset     prometheus.Gauge
	held      *prometheus.CounterVec
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_api_requests_total", Help: "Calls to DigitalOcean's API, by method, route and HTTP status (none without a response).",
		}, []string{"method", "route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mooring_digitalocean_api_request_duration_seconds", Help: "How long calls to DigitalOcean's API took, by method and route.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "route"}),
		remaining: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_digitalocean_api_rate_limit_remaining", Help: "API calls that the token has left in the hour, as of the last response.",
		}),
		limit: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_digitalocean_api_rate_limit", Help: "API calls that the token may make in an hour, as of the last response.",
		}),
		reset: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_digitalocean_api_rate_limit_reset_timestamp_seconds",
			Help: "When the oldest call of the hour no longer counts, in seconds since the epoch, as of the last response.",
		}),
		held: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_api_requests_held_total",
			Help: "Delayed API calls, by priority and reason: rate limited by DigitalOcean, the limit per hour, or the limit per minute.",
		}, []string{"priority", "reason"}),
	}
	registry.MustRegister(m.calls, m.seconds, m.remaining, m.limit, m.reset, m.held)
	return m
}

func (m *Metrics) observe(c call, code string, took time.Duration) {
	if m == nil {
		return
	}
	m.calls.WithLabelValues(c.method, c.route, code).Inc()
	m.seconds.WithLabelValues(c.method, c.route).Observe(took.Seconds())
}

// headRoom notes what an answer says of the limit per hour.
func (m *Metrics) headRoom(word budget.Word) {
	if m == nil || !word.Known {
		return
	}
	m.remaining.Set(float64(word.Remaining))
	m.limit.Set(float64(word.Limit))
	m.reset.Set(float64(word.Reset.Unix()))
}

// hold counts a call that was put off.
func (m *Metrics) hold(p budget.Priority, reason budget.Reason) {
	if m != nil {
		m.held.WithLabelValues(p.String(), string(reason)).Inc()
	}
}
