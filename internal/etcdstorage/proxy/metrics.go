// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// strange is the method label of RPCs that etcd does not have.
const strange = "unknown"

// metrics are the proxy's. The series of a known method are looked up once; per RPC there are only atomic additions.
type metrics struct {
	requests        *prometheus.CounterVec
	seconds         *prometheus.HistogramVec
	running         *prometheus.GaugeVec
	deniedTotal     *prometheus.CounterVec
	violations      prometheus.Counter
	panics          prometheus.Counter
	dialFailures    prometheus.Counter
	renewals        prometheus.Counter
	wentBack        prometheus.Counter
	compactRevision prometheus.Gauge
	revisionOffset  prometheus.Gauge
	keys            prometheus.Gauge
	bytes           prometheus.Gauge
	exceeded        prometheus.Gauge
	history         prometheus.Gauge
	replicas        prometheus.Gauge
	share           prometheus.Gauge
	alone           prometheus.Gauge
	refusedTotal    *prometheus.CounterVec
	waitedTotal     *prometheus.CounterVec
	overTotal       *prometheus.CounterVec

	methods methodCache
}

// series makes metrics of one tenant, and keeps them to be registered.
type series struct {
	labels prometheus.Labels
	made   []prometheus.Collector
}

func (s *series) counters(name, help string, labels ...string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Name: metricPrefix + name, Help: help, ConstLabels: s.labels}
	out := prometheus.NewCounterVec(opts, labels)
	s.made = append(s.made, out)
	return out
}

func (s *series) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	opts := prometheus.GaugeOpts{Name: metricPrefix + name, Help: help, ConstLabels: s.labels}
	out := prometheus.NewGaugeVec(opts, labels)
	s.made = append(s.made, out)
	return out
}

// newMetrics makes and registers them; without a registry they count for nobody.
func newMetrics(registry prometheus.Registerer, tenant string) (*metrics, error) {
	s, m := series{labels: prometheus.Labels{"tenant": tenant}}, &metrics{}
	m.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: metricPrefix + "request_duration_seconds", ConstLabels: s.labels,
		Help:    "How long unary RPCs of the tenant took, by method.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"method"})
	m.requests = s.counters("requests_total", "RPCs of the tenant that ended, by method and gRPC code; a stream "+
		"counts once.", "method", "code")
	m.running = s.gauges("requests_in_flight", "RPCs of the tenant in progress, by method.", "method")
	m.deniedTotal = s.counters("denied_total", "RPCs that are not available to tenants, by method (unknown: not "+
		"one of etcd's).", "method")
	m.violations = s.counters("boundary_violations_total", "Messages that were withheld because they were not "+
		"inside the tenant's boundary. It must stay 0.").WithLabelValues()
	m.panics = s.counters("panics_total", "Handlers that panicked; each ended its own RPC only. It must stay 0.").
		WithLabelValues()
	m.dialFailures = s.counters("core_connect_failures_total", "Attempts to connect to the core etcd that failed.").
		WithLabelValues()
	m.compactRevision = s.gauges("compact_revision", "The tenant's compact revision; -1 before its first "+
		"compaction.").WithLabelValues()
	m.revisionOffset = s.gauges("revision_offset", "By how much the revisions that the tenant sees are above the "+
		"core's; 0 unless the core went back while the tenant was served.").WithLabelValues()
	m.keys = s.gauges("keys", "The tenant's keys at the last count; -1 before the first.").WithLabelValues()
	m.bytes = s.gauges("bytes", "Bytes of the tenant's keys and values at the last count, plus what was written "+
		"since; -1 before the first.").WithLabelValues()
	m.overTotal = s.counters("connections_over_total", "Connections of the tenant that were closed so that the "+
		"client reconnects, because its certificate or the serving certificate had expired, or the client was "+
		"revoked.", "certificate")
	m.renewals = s.counters("core_connections_renewed_total", "Reconnections to the core etcd after the "+
		"certificate or the CAs were replaced.").WithLabelValues()
	m.wentBack = s.counters("core_went_back_total", "How often the core etcd lost revisions that were seen, as "+
		"after a restore from a backup.").WithLabelValues()
	m.ofBudgets(&s)
	m.compactRevision.Set(neverCompacted)
	m.keys.Set(-1)
	m.bytes.Set(-1)
	m.methods.m = m
	if registry == nil {
		return m, nil
	}
	for _, c := range append(s.made, m.seconds) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering the proxy's metrics: %w", err)
		}
	}
	return m, nil
}

// ofBudgets makes the metrics of the tenant's budgets.
func (m *metrics) ofBudgets(s *series) {
	m.exceeded = s.gauges("quota_exceeded", "1 while the write that was last refused for lack of space would "+
		"still be refused.").WithLabelValues()
	m.history = s.gauges("history_bytes", "Bytes of keys and values that the tenant has written since the core's "+
		"last compaction, as far as this replica knows; 0 while they are not counted.").WithLabelValues()
	m.replicas = s.gauges("replicas", "Replicas of the tenant's proxy among which its budgets are divided.").WithLabelValues()
	m.alone = s.gauges("alone", "1 while no other client uses the core, as far as its revisions show, so that large "+
		"requests may have all units.").WithLabelValues()
	m.share = s.gauges("share", "Part of the tenant's budgets that this replica has, from 0 to 1.").WithLabelValues()
	m.refusedTotal = s.counters("refused_total", "Requests of the tenant that were refused because a budget was "+
		"used up, by budget.", "limit")
	m.waitedTotal = s.counters("waited_total", "Requests of the tenant that waited for a budget, by budget.", "limit")
	for _, limit := range Budgets() {
		m.refused(limit)
		m.waited(limit)
	}
}

func (m *metrics) denied(method string, known bool) prometheus.Counter {
	if !known {
		method = strange
	}
	return m.deniedTotal.WithLabelValues(method)
}

// refused counts what one of the tenant's limits turned away.
func (m *metrics) refused(limit string) prometheus.Counter {
	return m.refusedTotal.WithLabelValues(limit)
}

// waited counts what one of the tenant's budgets made wait.
func (m *metrics) waited(limit string) prometheus.Counter {
	return m.waitedTotal.WithLabelValues(limit)
}

// method returns the series of one method.
func (m *metrics) method(method string, known bool) *methodMetrics {
	if !known {
		method = strange
	}
	return m.methods.get(method)
}

// methodMetrics are the series of one method.
type methodMetrics struct {
	inFlight prometheus.Gauge
	seconds  prometheus.Observer
	ok       prometheus.Counter
	requests *prometheus.CounterVec
	name     string
}

// done counts the end of an RPC.
func (m *methodMetrics) done(code codes.Code, took time.Duration, unary bool) {
	if code == codes.OK {
		m.ok.Inc()
	} else {
		m.requests.WithLabelValues(m.name, code.String()).Inc()
	}
	if unary {
		m.seconds.Observe(took.Seconds())
	}
}

// methodCache keeps the series of each method.
type methodCache struct {
	m    *metrics
	byID sync.Map // method → *methodMetrics; bounded, since names that etcd does not have are one
}

func (c *methodCache) get(method string) *methodMetrics {
	if v, ok := c.byID.Load(method); ok {
		return v.(*methodMetrics) //nolint:forcetypeassert // nothing else is stored
	}
	v, _ := c.byID.LoadOrStore(method, &methodMetrics{
		inFlight: c.m.running.WithLabelValues(method), seconds: c.m.seconds.WithLabelValues(method),
		ok: c.m.requests.WithLabelValues(method, codes.OK.String()), requests: c.m.requests, name: method,
	})
	return v.(*methodMetrics) //nolint:forcetypeassert // as above
}
