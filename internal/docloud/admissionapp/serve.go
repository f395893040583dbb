// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mooring-dev/mooring/internal/platform/certreload"
)

const (
	// readTimeout bounds how long a request may take to arrive; writeTimeout how long until its answer is out, more than an API server ever waits.
	readTimeout  = 10 * time.Second
	writeTimeout = 40 * time.Second
	idleTimeout  = 2 * time.Minute
)

// servers are the webhook's and those for operations.
type servers struct {
	webhook  net.Listener
	main     *http.Server
	ops      []*http.Server
	opsPorts []net.Listener
	draining atomic.Bool
	files    *certreload.Reloader
	log      logr.Logger
}

// listenAll opens the ports. An error is one sentence, and leaves none open.
func listenAll(ctx context.Context, o *options, files *certreload.Reloader, h http.Handler, registry *prometheus.Registry, log logr.Logger) (*servers, error) {
	s := &servers{files: files, log: log}
	webhook, health, metrics := http.NewServeMux(), http.NewServeMux(), http.NewServeMux()
	webhook.Handle(path, h)
	if o.metricsAddress == o.healthAddress {
		metrics = health
	}
	health.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	health.HandleFunc("GET /readyz", s.ready)
	metrics.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	var err error
	if s.webhook, err = listen(ctx, "--webhook-bind-address", o.webhookAddress); err != nil {
		return nil, err
	}
	s.main = server(webhook)
	s.main.TLSConfig = files.ServerConfig(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
	for _, one := range []struct {
		flag, address string
		handler       *http.ServeMux
		same          bool
	}{{"--health-probe-bind-address", o.healthAddress, health, false}, {"--metrics-bind-address", o.metricsAddress, metrics, metrics == health}} {
		if one.address == disabled || one.same {
			continue
		}
		port, err := listen(ctx, one.flag, one.address)
		if err != nil {
			s.close()
			return nil, err
		}
		log.Info("Serving", "flag", one.flag, "address", port.Addr().String())
		s.opsPorts, s.ops = append(s.opsPorts, port), append(s.ops, server(one.handler))
	}
	return s, nil
}

func server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10,
	}
}

// listen opens a port, or says in one sentence why it cannot.
func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	port, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("%s is %q, where nothing can listen: %w", flag, address, err)
	}
	return port, nil
}

// ready reports whether the API server may ask here. A certificate that has run out makes every call fail.
func (s *servers) ready(w http.ResponseWriter, _ *http.Request) {
	end, expired := s.files.Expired()
	switch {
	case s.draining.Load():
		http.Error(w, "not ready: the process is ending", http.StatusServiceUnavailable)
	case expired:
		http.Error(w, "not ready: the certificate expired at "+end.UTC().Format(time.RFC3339), http.StatusServiceUnavailable)
	default:
		_, _ = io.WriteString(w, "ok\n")
	}
}

// run serves until ctx ends, then drains: it says that it is not ready, goes on for a while, and lets what was begun end.
func (s *servers) run(ctx context.Context, o *options) error {
	defer s.close()
	var others sync.WaitGroup
	for i, one := range s.ops {
		others.Go(func() { _ = one.Serve(s.opsPorts[i]) }) // it ends with ErrServerClosed; a broken listener shows as a failing probe
	}
	served := make(chan error, 1)
	go func() { served <- s.main.ServeTLS(s.webhook, "", "") }()
	select {
	case err := <-served:
		return fmt.Errorf("serving the webhook: %w", err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.log.Info("Ending", "cause", context.Cause(ctx).Error(), "drainDelay", o.drainDelay, "drainTimeout", o.drainTimeout)
	delay := time.NewTimer(o.drainDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
	case err := <-served:
		s.log.Info("The webhook ended during the drain delay", "error", err.Error())
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.drainTimeout)
	defer cancel()
	if err := s.main.Shutdown(last); err != nil {
		s.log.Info("Not every request ended in time", "drainTimeout", o.drainTimeout)
	}
	s.close()
	others.Wait()
	return nil
}

// close ends everything at once.
func (s *servers) close() {
	for i, one := range s.ops {
		_ = one.Close()
		_ = s.opsPorts[i].Close()
	}
	if s.main != nil {
		_ = s.main.Close()
	}
	_ = s.webhook.Close()
}
