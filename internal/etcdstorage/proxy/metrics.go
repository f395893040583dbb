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
	refusedTotal    *prometheus.CounterVec
	waitedTotal     *prometheus.CounterVec
	overTotal       *prometheus.CounterVec

	methods methodCache
}

// newMetrics makes and registers them; without a registry they count for nobody.
func newMetrics(registry prometheus.Registerer, tenant string) (*metrics, error) {
	labels := prometheus.Labels{"tenant": tenant}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_etcdstorage_proxy_requests_total", ConstLabels: labels,
			Help: "RPCs of the tenant that ended, by method and gRPC code; a stream counts once.",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mooring_etcdstorage_proxy_request_duration_seconds", ConstLabels: labels,
			Help:    "How long unary RPCs of the tenant took, by method.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"method"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mooring_etcdstorage_proxy_requests_in_flight", ConstLabels: labels,
			Help: "RPCs of the tenant in progress, by method.",
		}, []string{"method"}),
		deniedTotal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_etcdstorage_proxy_denied_total", ConstLabels: labels,
			Help: "RPCs that are not available to tenants, by method (unknown: not one of etcd's).",
		}, []string{"method"}),
		violations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mooring_etcdstorage_proxy_boundary_violations_total", ConstLabels: labels,
			Help: "Messages that were withheld because they were not inside the tenant's boundary. It must stay 0.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mooring_etcdstorage_proxy_panics_total", ConstLabels: labels,
			Help: "Handlers that panicked; each ended its own RPC only. It must stay 0.",
		}),
		dialFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mooring_etcdstorage_proxy_core_connect_failures_total", ConstLabels: labels,
			Help: "Attempts to connect to the core etcd that failed.",
		}),
		compactRevision: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_etcdstorage_proxy_compact_revision", ConstLabels: labels,
			Help: "The tenant's compact revision; -1 before its first compaction.",
		}),
		revisionOffset: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_etcdstorage_proxy_revision_offset", ConstLabels: labels,
			Help: "By how much the revisions that the tenant sees are above the core's; 0 unless the core went back while the tenant was served.",
		}),
		keys: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_etcdstorage_proxy_keys", ConstLabels: labels, Help: "The tenant's keys at the last count; -1 before the first.",
		}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mooring_etcdstorage_proxy_bytes", ConstLabels: labels,
			Help: "Bytes of the tenant's keys and values at the last count, plus what was written since; -1 before the first.",
		}),
	}
	m.ofBudgets(labels)
	m.overTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mooring_etcdstorage_proxy_connections_over_total", ConstLabels: labels,
		Help: "Connections of the tenant that were closed so that the client reconnects, because its certificate or the serving certificate had expired, or the client was revoked.",
	}, []string{"certificate"})
	m.renewals = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mooring_etcdstorage_proxy_core_connections_renewed_total", ConstLabels: labels,
		Help: "Reconnections to the core etcd after the certificate or the CAs were replaced.",
	})
	m.wentBack = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "mooring_etcdstorage_proxy_core_went_back_total", ConstLabels: labels,
		Help: "How often the core etcd lost revisions that were seen, as after a restore from a backup.",
	})
	m.compactRevision.Set(neverCompacted)
	m.keys.Set(-1)
	m.bytes.Set(-1)
	m.methods.m = m
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.requests, m.seconds, m.running, m.deniedTotal, m.violations, m.panics, m.dialFailures, m.compactRevision, m.revisionOffset, m.keys, m.bytes,
		m.exceeded, m.history, m.refusedTotal, m.waitedTotal, m.overTotal, m.renewals, m.wentBack,
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering the proxy's metrics: %w", err)
		}
	}
	return m, nil
}

// ofBudgets makes the metrics of the tenant's budgets.
func (m *metrics) ofBudgets(labels prometheus.Labels) {
	m.exceeded = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mooring_etcdstorage_proxy_quota_exceeded", ConstLabels: labels,
		Help: "1 while the write that was last refused for lack of space would still be refused.",
	})
	m.history = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mooring_etcdstorage_proxy_history_bytes", ConstLabels: labels,
		Help: "Bytes of keys and values that the tenant has written since the core's last compaction, as far as this replica knows; 0 while they are not counted.",
	})
	m.refusedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mooring_etcdstorage_proxy_refused_total", ConstLabels: labels,
		Help: "Requests of the tenant that were refused because a budget was used up, by budget.",
	}, []string{"limit"})
	m.waitedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "mooring_etcdstorage_proxy_waited_total", ConstLabels: labels,
		Help: "Requests of the tenant that waited for a budget, by budget.",
	}, []string{"limit"})
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
