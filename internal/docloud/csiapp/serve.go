// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	// drainTime bounds how long requests may take to end after a signal; a Pod has 30 seconds by default. What is cut off is resumed by the next request.
	drainTime = 20 * time.Second
	// readTimeout bounds how long an HTTP request may take to arrive.
	readTimeout = 10 * time.Second
)

// serve listens on the socket, and on the ports for operations, until ctx ends.
func serve(ctx context.Context, o *options, server *grpc.Server, registry *prometheus.Registry, log logr.Logger) error {
	path, err := socketPath(o.endpoint)
	if err != nil {
		return err
	}
	socket, err := listenUnix(ctx, path)
	if err != nil {
		return fmt.Errorf("--endpoint is %q, where nothing can listen: %w", o.endpoint, err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var draining atomic.Bool
	if err := serveHTTP(alive, o, registry, &draining, &running); err != nil {
		_ = socket.Close()
		return err
	}
	if o.registrationPath != "" {
		if err := register(alive, o, &running, log); err != nil {
			_ = socket.Close()
			return err
		}
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket) }()
	log.Info("Serving", "endpoint", o.endpoint)
	select {
	case err := <-served:
		return fmt.Errorf("serving on %s: %w", o.endpoint, err)
	case <-ctx.Done():
	}
	draining.Store(true)
	timer := time.AfterFunc(drainTime, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	log.Info("Stopped")
	return nil
}

// listenUnix opens a socket. One that a process before has left is removed; anything else at the path is not.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is there and is not a socket", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return (&net.ListenConfig{}).Listen(ctx, "unix", path)
}

// serveHTTP opens the ports for operations.
func serveHTTP(ctx context.Context, o *options, registry *prometheus.Registry, draining *atomic.Bool, running *sync.WaitGroup) error {
	muxes := map[string]*http.ServeMux{}
	on := func(address string) *http.ServeMux {
		if muxes[address] == nil {
			muxes[address] = http.NewServeMux()
		}
		return muxes[address]
	}
	if o.debugAddress != "" {
		fine := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
		on(o.debugAddress).HandleFunc("GET /health", fine)
		on(o.debugAddress).HandleFunc("GET /healthz", fine)
		on(o.debugAddress).HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
			if draining.Load() {
				http.Error(w, "not ready: the process is ending", http.StatusServiceUnavailable)
				return
			}
			fine(w, r)
		})
	}
	if o.metricsAddress != "" {
		on(o.metricsAddress).Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	}
	for address, mux := range muxes {
		port, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("nothing can listen on %q of --debug-addr or --metrics-bind-address: %w", address, err)
		}
		server := &http.Server{Handler: mux, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout}
		running.Go(func() { _ = server.Serve(port) }) // it ends with ErrServerClosed; a broken listener shows as a failing probe
		running.Go(func() {
			<-ctx.Done()
			_ = server.Close()
		})
	}
	return nil
}

// registrar tells kubelet about the driver (k8s.io/kubelet, pluginregistration/v1).
type registrar struct {
	registration.UnsafeRegistrationServer

	name, path string
	log        logr.Logger
}

// GetInfo names the driver and its socket.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.path, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus hears whether kubelet took it. Kubelet tries again by itself.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.log.Info("Registered with kubelet", "driver", r.name)
	} else {
		r.log.Info("Kubelet has not registered the driver and tries again", "driver", r.name, "error", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// register serves the socket that kubelet looks for.
func register(ctx context.Context, o *options, running *sync.WaitGroup, log logr.Logger) error {
	path := filepath.Join(o.registrationDir, o.driverName+"-reg.sock")
	socket, err := listenUnix(ctx, path)
	if err != nil {
		return fmt.Errorf("registering with kubelet in --registration-dir: %w", err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{name: o.driverName, path: o.registrationPath, log: log})
	running.Go(func() { _ = server.Serve(socket) })
	running.Go(func() {
		<-ctx.Done()
		server.Stop()
	})
	return nil
}
