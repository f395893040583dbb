// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

const (
	// healthTimeout bounds the question behind /healthz, as with the upstream project.
	healthTimeout = 15 * time.Second
	// headerTimeout bounds how long a client may take for its request's header.
	headerTimeout = 10 * time.Second
)

// accountReader is what /healthz asks.
type accountReader interface {
	// Account returns whose the token is.
	Account(ctx context.Context) (instance.Account, error)
}

// healthz responds with 200 if DigitalOcean tells whose the token is, and 500 with the reason otherwise.
func healthz(api accountReader) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
		defer cancel()
		if _, err := api.Account(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}

// metrics serves all metrics of the process, the framework's too, without authentication: METRICS_ADDR says where.
func metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(legacyregistry.DefaultGatherer, promhttp.HandlerOpts{}))
	return mux
}

// serve serves a handler until ctx ends. An empty address is none: nothing listens. An error is one sentence.
func serve(ctx context.Context, variable, address string, handler http.Handler) error {
	if address == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%s is %q, where nothing can listen: %w", variable, address, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	go func() {
		if err := server.Serve(listener); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Serving has ended", "address", address)
		}
	}()
	klog.InfoS("Serving", "variable", variable, "address", listener.Addr().String())
	return nil
}
