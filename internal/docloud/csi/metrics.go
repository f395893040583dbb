// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"path"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// Metrics of the driver; nil is none. Their names are a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	actions  *prometheus.HistogramVec
	volumes  *prometheus.GaugeVec
	inFlight atomic.Pointer[poller] // nil for a node plugin
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_csi_requests_total", Help: "Requests of the Container Storage Interface, by method and gRPC code.",
		}, []string{"method", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mooring_csi_request_duration_seconds", Help: "How long requests of the Container Storage Interface took, by method.",
			Buckets: []float64{.01, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300},
		}, []string{"method"}),
		actions: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mooring_csi_action_duration_seconds",
			Help: "How long volume actions took at DigitalOcean, by kind (attach, detach, resize) and result (completed, failed).", Buckets: []float64{1, 2.5, 5, 10, 20, 30, 60, 120, 300},
		}, []string{"kind", "result"}),
	}
	m.volumes = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "mooring_csi_volumes",
		Help: "Volumes that this driver created, as of the last complete ListVolumes, by state: attached, off (its droplet is off), lost (its droplet does not exist), free.",
	}, []string{"state"})
	registry.MustRegister(m.requests, m.seconds, m.actions, m.volumes, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mooring_csi_actions_in_flight", Help: "Volume actions in progress at DigitalOcean.",
	}, func() float64 {
		if p := m.inFlight.Load(); p != nil {
			return float64(p.inFlight())
		}
		return 0
	}))
	return m
}

// watch shows how many actions are under way.
func (m *Metrics) watch(p *poller) {
	if m != nil {
		m.inFlight.Store(p)
	}
}

// counted shows how many volumes are in each state.
func (m *Metrics) counted(states map[string]int) {
	if m == nil {
		return
	}
	for _, state := range []string{free, attachedState, offState, lostState} {
		m.volumes.WithLabelValues(state).Set(float64(states[state]))
	}
}

func (m *Metrics) acted(kind volume.ActionKind, took time.Duration, err error) {
	if m == nil {
		return
	}
	result := "completed"
	if err != nil {
		result = "failed"
	}
	m.actions.WithLabelValues(string(kind), result).Observe(took.Seconds())
}

// Intercept counts and logs every request: what failed at info, the rest at verbosity 2, since kubelet asks for statistics all the time.
func (m *Metrics) Intercept(log logr.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		began := time.Now() //nolint:forbidigo // a duration for a metric
		answer, err := handle(ctx, request)
		method, took := path.Base(info.FullMethod), time.Since(began) //nolint:forbidigo // see above
		if m != nil {
			m.requests.WithLabelValues(method, status.Code(err).String()).Inc()
			m.seconds.WithLabelValues(method).Observe(took.Seconds())
		}
		if err != nil {
			log.Info("Request failed", "method", method, "code", status.Code(err).String(), "error", status.Convert(err).Message(), "took", took)
		} else {
			log.V(2).Info("Request done", "method", method, "took", took)
		}
		return answer, err
	}
}
