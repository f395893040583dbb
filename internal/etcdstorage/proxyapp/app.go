// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/certreload"
	"github.com/mooring-dev/mooring/internal/platform/logging/plain"
)

// NewCommand returns the command of etcd-storage-proxy.
func NewCommand() *cobra.Command {
	o := newOptions()
	command := &cobra.Command{
		Use:   Component,
		Short: "Give one tenant a part of an etcd",
		Long: "etcd-storage-proxy serves one tenant the etcd v3 API on a part of a core etcd: keys under one prefix, and its own leases and compacted revision. It refuses " +
			"unknown requests. Clients need a certificate of the tenant; the proxy has its own for the core.",
		RunE: func(command *cobra.Command, _ []string) error { return run(command.Context(), o) },
	}
	o.addFlags(command.Flags())
	return command
}

// program is one run.
type program struct {
	options  *options
	settings *settings
	log      logr.Logger
	registry *prometheus.Registry
	labeled  prometheus.Registerer
	report   *reporter
	core     *coreState
	// now is the time for certificates.
	now func() time.Time
	// reloaders keep the TLS files current; nil where plaintext is spoken.
	listenFiles, coreFiles *certreload.Reloader
}

func run(ctx context.Context, o *options) error {
	s, err := o.settings()
	if err != nil {
		return err
	}
	handler := plain.NewHandler(os.Stderr, o.logging)
	p, err := newProgram(o, s, logr.FromSlogHandler(handler))
	if err != nil {
		return err
	}
	plain.Install(handler)
	tuneGC(os.Getenv, o.answerBytes)
	return p.run(ctx)
}

const (
	// gcPercent makes the collector run more seldom than usual: nearly all garbage is buffers, and little is kept.
	gcPercent = 400
	// limitEighths are the eighths of --max-answer-bytes at which it works harder instead. They are more than one answer that passes alone, and
	// less than twice the flag, which is what the process may have.
	limitEighths = 13
)

// tuneGC sets the collector for a process that copies bytes, unless somebody has set it in the environment.
func tuneGC(getenv func(string) string, answerBytes int64) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit(answerBytes))
}

// memoryLimit is where the collector works harder.
func memoryLimit(answerBytes int64) int64 {
	return answerBytes / 8 * limitEighths
}

// newProgram reads every file, and opens no connection and no port.
func newProgram(o *options, s *settings, log logr.Logger) (*program, error) {
	return newProgramAt(o, s, log, time.Now) //nolint:forbidigo // certificates are held against the system's clock
}

// newProgramAt is newProgram with a clock for certificates.
func newProgramAt(o *options, s *settings, log logr.Logger, now func() time.Time) (*program, error) {
	p := &program{options: o, settings: s, log: log, registry: prometheus.NewRegistry(), now: now}
	p.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildinfo.Get().Collector(Component),
	)
	p.labeled = labeledFor(s.tenantName, p.registry)
	p.report = newReporter(log, p.labeled)
	p.core = newCoreState(p.report)
	var errs [3]error
	p.listenFiles, errs[0] = p.open(clientsCertificate, s.listen, listenFlags(), x509.ExtKeyUsageServerAuth)
	p.coreFiles, errs[1] = p.open(coreCertificate, s.coreFiles, coreFlags(), x509.ExtKeyUsageClientAuth)
	if o.corePasswordFile != "" {
		_, errs[2] = passwordFile(o.corePasswordFile)()
		warnOfOpenSecret(o.corePasswordFile, log)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *program) open(name string, files certreload.Files, flags fileFlags, usage x509.ExtKeyUsage) (*certreload.Reloader, error) {
	if files == (certreload.Files{}) {
		return nil, nil
	}
	reloader, err := openFiles(files, flags, usage, p.log.WithValues("side", name), p.now)
	if err != nil {
		return nil, err
	}
	p.labeled.MustRegister(reloader.Collector(name))
	return reloader, nil
}

// proxyConfig is what the proxy is told.
func (p *program) proxyConfig() proxy.Config {
	s := p.settings
	config := proxy.Config{
		Tenant: s.tenant, TenantName: s.tenantName, SystemPrefix: s.systemPrefix, AdvertiseURL: s.advertiseURL,
		MaxRequestBytes: p.options.maxRequestBytes,
		Quota:           quota.Limits{Bytes: p.options.quotaBytes, Keys: p.options.quotaKeys},
		HistoryBytes:    p.options.historyBytes,
		Leases:          p.options.quotaLeases, Watches: p.options.quotaWatches,
		UnitsPerSecond: p.options.unitsPerSecond, InFlight: p.options.inFlight, Lists: p.options.lists,
		Replicas:            p.options.replicas,
		KeepAlivesPerSecond: p.options.keepAlivesPerSecond, WatchMessagesPerSecond: p.options.watchMessagesPerSecond,
		Streams: p.options.streams, StreamsPerConnection: p.options.streamsPerConnection, AnswerBytes: p.options.answerBytes,
		ConnectionsPerIdentity: p.options.connectionsPerIdentity, IdleTime: p.options.idleTime,
		Logger: p.log, Registry: p.registry,
	}
	config.Upstream.Dialer = p.core.dial
	for _, e := range s.core {
		config.Upstream.Endpoints = append(config.Upstream.Endpoints, e.host)
	}
	if p.coreFiles != nil {
		config.Upstream.Credentials = coreSide{files: p.coreFiles, state: p.core}
	}
	if p.options.coreUsername != "" {
		config.Upstream.Username, config.Upstream.Password = p.options.coreUsername, passwordFile(p.options.corePasswordFile)
	}
	if p.listenFiles != nil {
		config.Credentials = newClientSide(p.listenFiles, p.report)
		config.Now = p.now
		config.ServingEnd = func() time.Time { return p.listenFiles.Current().NotAfter() }
		revoked := &revocation{files: p.listenFiles}
		config.Revoked = revoked.revoked
		config.Authorize, config.Refused, config.Excess = authorizer(s.tenantName, s.identities, revoked.revoked), p.report.refusedIdentity, p.report.excess
	}
	return config
}

func (p *program) run(ctx context.Context) error {
	// What is started here outlives the signal, since it serves while the proxy drains.
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server, err := proxy.New(alive, p.proxyConfig())
	if err != nil {
		return fmt.Errorf("setting up the proxy: %w", err)
	}
	ready := newReadiness(p.checked(server.Ready), p.report, p.labeled)
	listener, err := listen(ctx, "--listen-address", p.options.listenAddress)
	if err != nil {
		return err
	}
	ops, err := listenOps(ctx, p.options, ready, p.registry)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	p.logStart(listener, ops)

	var helpers sync.WaitGroup
	for _, files := range []*certreload.Reloader{p.listenFiles, p.coreFiles} {
		if files != nil {
			helpers.Go(func() { _ = files.Run(alive) })
		}
	}
	helpers.Go(ops.serve)
	helpers.Go(func() { ready.keepAsking(alive) })
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	err = p.wait(ctx, served, ready)
	p.drain(alive, server.Shutdown)
	end()
	ops.close()
	helpers.Wait()
	p.log.Info("Stopped")
	return err
}

// wait returns nil when a signal came, after the drain delay, and an error when the proxy ended by itself.
func (p *program) wait(ctx context.Context, served <-chan error, ready *readiness) error {
	select {
	case err := <-served:
		if err == nil {
			err = errors.New("the listener was closed")
		}
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	ready.draining.Store(true)
	p.log.Info("Ending", "cause", context.Cause(ctx).Error(), "drainDelay", p.options.drainDelay, "drainTimeout", p.options.drainTimeout)
	delay := time.NewTimer(p.options.drainDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
	case err := <-served:
		p.log.Info("The listener ended during the drain delay", "error", fmt.Sprint(err))
	}
	return nil
}

func (p *program) drain(alive context.Context, shutdown func(context.Context)) {
	ctx, cancel := context.WithTimeout(alive, p.options.drainTimeout)
	defer cancel()
	shutdown(ctx)
	if ctx.Err() != nil {
		p.log.Info("Some requests did not end in time and were aborted", "drainTimeout", p.options.drainTimeout)
	}
}

// checked is the readiness check of the proxy with what this package knows: its own certificates, and why the core cannot be reached.
func (p *program) checked(ready func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := p.certificatesInTime(); err != nil {
			return err
		}
		err := ready(ctx)
		if err == nil {
			p.core.clear()
			return nil
		}
		return fmt.Errorf("the core does not respond to a linearizable read in %s: %s", p.settings.tenant.Prefix, p.core.explain(err))
	}
}

// certificatesInTime tells of a certificate that has expired since it was read, which makes every new connection fail.
func (p *program) certificatesInTime() error {
	for _, side := range []struct {
		files *certreload.Reloader
		path  string
	}{{p.listenFiles, p.settings.listen.Cert}, {p.coreFiles, p.settings.coreFiles.Cert}} {
		if side.files == nil {
			continue
		}
		if end, expired := side.files.Expired(); expired {
			return fmt.Errorf("the certificate in %s expired at %s", side.path, stamp(end))
		}
	}
	return nil
}

func (p *program) logStart(listener net.Listener, ops *opsServers) {
	var core []string
	for _, e := range p.settings.core {
		core = append(core, e.String())
	}
	var operations []string
	for _, l := range ops.listeners {
		operations = append(operations, l.Addr().String())
	}
	build := buildinfo.Get()
	p.log.Info("Serving", "version", build.Version, "commit", build.Commit, "tenant", p.settings.tenantName, "prefix", p.settings.tenant.Prefix.String(),
		"address", listener.Addr().String(), "operations", strings.Join(operations, ","), "core", strings.Join(core, ","), "tls", p.listenFiles != nil)
}
