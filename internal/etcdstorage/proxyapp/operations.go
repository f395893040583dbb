// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// readyTimeout bounds one readiness check. Probes should allow more (timeoutSeconds: 5).
	readyTimeout = 3 * time.Second
	// readyReuse is how long an answer is given again without asking: anyone who reaches the port must not be able to make the core work.
	readyReuse = time.Second
	// readyInterval is how often it is checked when no one asks, so that the log tells of a lost core in any case.
	readyInterval = 10 * time.Second
	// scrapeTimeout bounds a request to the endpoints for operations.
	scrapeTimeout = 10 * time.Second
)

var errDraining = errors.New("the process is ending")

// readiness answers /readyz. The answer is reused for a moment, one check runs at a time, and each change is logged with its reason.
type readiness struct {
	check    func(ctx context.Context) error // one linearizable read
	report   *reporter
	draining atomic.Bool
	fresh    atomic.Bool // last may be told again
	state    prometheus.Gauge

	mu    sync.Mutex // lets one check run at a time and guards the rest
	last  error
	asked bool
}

// newReadiness registers its metric, whose name MUST NOT change.
func newReadiness(check func(ctx context.Context) error, report *reporter, registry prometheus.Registerer) *readiness {
	r := &readiness{check: check, report: report, state: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mooring_etcdstorage_proxy_ready", Help: "1 while the core responds to linearizable reads in the tenant's prefix, else 0.",
	})}
	registry.MustRegister(r.state)
	return r
}

func (r *readiness) ask(ctx context.Context) error {
	if r.draining.Load() {
		return errDraining
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked && r.fresh.Load() {
		return r.last
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := r.check(ctx)
	r.note(err)
	r.last, r.asked = err, true
	r.fresh.Store(true)
	time.AfterFunc(readyReuse, func() { r.fresh.Store(false) })
	return err
}

// note logs a change of state at once, and another reason for the same state now and then.
func (r *readiness) note(err error) {
	switch {
	case err == nil:
		r.state.Set(1)
		if !r.asked || r.last != nil {
			r.report.log.Info("Ready")
		}
	case !r.asked || r.last == nil:
		r.state.Set(0)
		r.report.log.Info("Not ready", "reason", err.Error())
	case err.Error() != r.last.Error():
		r.report.sometimes("not ready", func() { r.report.log.Info("Still not ready", "reason", err.Error()) })
	}
}

// keepAsking checks until ctx ends, whether or not anybody probes.
func (r *readiness) keepAsking(ctx context.Context) {
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for {
		_ = r.ask(ctx) // it is in the log
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (r *readiness) serve(w http.ResponseWriter, request *http.Request) {
	// A prober that gives up must not make the check fail for the next one.
	if err := r.ask(context.WithoutCancel(request.Context())); err != nil {
		http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// opsServers are the listeners for probes and metrics.
type opsServers struct {
	servers   []*http.Server
	listeners []net.Listener
}

// listenOps opens the ports. Both endpoints may share one.
func listenOps(ctx context.Context, o *options, ready *readiness, registry *prometheus.Registry) (*opsServers, error) {
	health, metrics := http.NewServeMux(), http.NewServeMux()
	if o.metricsAddress == o.healthAddress {
		metrics = health
	}
	health.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	health.HandleFunc("GET /readyz", ready.serve)
	metrics.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	out := &opsServers{}
	for _, one := range []struct {
		flag, addr string
		handler    *http.ServeMux
		same       bool
	}{{"--health-address", o.healthAddress, health, false}, {"--metrics-address", o.metricsAddress, metrics, metrics == health}} {
		if one.addr == disabled || one.same {
			continue
		}
		listener, err := listen(ctx, one.flag, one.addr)
		if err != nil {
			out.close()
			return nil, err
		}
		out.listeners = append(out.listeners, listener)
		out.servers = append(out.servers, &http.Server{
			Handler: one.handler, ReadHeaderTimeout: scrapeTimeout, ReadTimeout: scrapeTimeout, WriteTimeout: scrapeTimeout, IdleTimeout: time.Minute,
			MaxHeaderBytes: 16 << 10,
		})
	}
	return out, nil
}

// serve returns when close was called.
func (o *opsServers) serve() {
	var all sync.WaitGroup
	for i, server := range o.servers {
		all.Go(func() { _ = server.Serve(o.listeners[i]) }) // it ends with ErrServerClosed; a broken listener shows as a failing probe
	}
	all.Wait()
}

// close ends the servers at once: probes and scrapes are short, and the process is about to end.
func (o *opsServers) close() {
	for i, server := range o.servers {
		_ = server.Close()
		_ = o.listeners[i].Close()
	}
}

// listen opens a port, or says in one sentence why it cannot.
func listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("%s %q cannot be listened on, choose another address: %w", flag, addr, err)
	}
	return l, nil
}
