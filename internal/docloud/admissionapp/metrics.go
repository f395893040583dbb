// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
)

// Outcomes of requests. They are values of a metric's label and MUST NOT change.
const (
	outcomeAllowed    = "allowed"
	outcomeWarned     = "warned"
	outcomeRefused    = "refused"
	outcomeUnreadable = "unreadable"
)

// servingCertificate is the value of the label certificate for the webhook's certificate. It MUST NOT change.
const servingCertificate = "webhook"

// Metrics of the webhook. Their names are a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	requests  *prometheus.CounterVec
	questions *prometheus.CounterVec
	seconds   prometheus.Histogram
}

// NewMetrics makes the metrics, all of them at zero, and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_admission_requests_total",
			Help: "Requests of the API server, by outcome: allowed, warned (allowed with warnings), refused, unreadable (allowed).",
		}, []string{"outcome"}),
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_admission_questions_total",
			Help: "Load balancers that DigitalOcean was queried about, by verdict: taken, refused, unknown (allowed).",
		}, []string{"verdict"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mooring_digitalocean_admission_duration_seconds", Help: "How long the API server waited for a response.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5},
		}),
	}
	for _, outcome := range []string{outcomeAllowed, outcomeWarned, outcomeRefused, outcomeUnreadable} {
		m.requests.WithLabelValues(outcome)
	}
	for _, verdict := range []admission.Verdict{admission.VerdictTaken, admission.VerdictRefused, admission.VerdictUnknown} {
		m.questions.WithLabelValues(string(verdict))
	}
	registry.MustRegister(m.requests, m.questions, m.seconds)
	return m
}
