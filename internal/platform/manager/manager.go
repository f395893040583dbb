// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/certreload"
)

// CacheSyncedCheck is the name of the readiness check for informers.
const CacheSyncedCheck = "caches-synced"

// syncPatience is how long a probe waits for informers that are about to have synced.
const syncPatience = 200 * time.Millisecond

// Config is what a component, not its operator, decides about its manager.
type Config struct {
	// Component is the binary's name; it goes into the build metric.
	Component string
	// Logger is the process's logger, as logging.Install returned it; zero means controller-runtime's.
	Logger logr.Logger
	// Scheme knows every kind that the component reads or writes.
	Scheme *runtime.Scheme
	// Cache narrows what is cached. A nil DefaultTransform becomes one that strips managedFields; a
	// ByObject transform replaces it for its kind, so it should strip them too ([StripManagedFields]).
	Cache cache.Options
	// Client tunes the cached client.
	Client client.Options
	// Informers are kinds whose informers are created at once. Readiness covers them from the start,
	// also in a replica that waits to become leader, whose controllers do not run yet.
	Informers []client.Object
}

// Manager is controller-runtime's manager with the readiness checks of this process.
type Manager struct {
	ctrlmanager.Manager
	// Readiness is behind /readyz; it already holds the check of the informers.
	Readiness *Readiness
}

// New builds the manager: nothing is started and no request is made but API discovery, for which it waits until the API server answers or ctx ends. Options
// must be valid. A port that is taken is an error here, before anything runs. After Start has returned the
// process must exit at once, since the lease has been given back by then.
func New(ctx context.Context, o Options, config *rest.Config, c Config) (*Manager, error) {
	if err := o.validateNamespace(serviceAccountDir); err != nil {
		return nil, err
	}
	for _, endpoint := range [...]struct{ flag, addr string }{
		{"--metrics-bind-address", o.MetricsBindAddress}, {"--health-probe-bind-address", o.HealthProbeBindAddress},
	} {
		if err := checkPortFree(ctx, endpoint.flag, endpoint.addr); err != nil {
			return nil, err
		}
	}
	if c.Logger.GetSink() == nil {
		c.Logger = ctrllog.Log //nolint:forbidigo // there is no context with a logger yet
	}
	metrics, certs, err := o.metricsServer(c.Logger)
	if err != nil {
		return nil, err
	}
	if err := awaitServer(ctx, config, c.Logger, clock.RealClock{}); err != nil {
		return nil, err
	}
	if c.Cache.DefaultTransform == nil {
		c.Cache.DefaultTransform = StripManagedFields
	}
	mgr, err := ctrlmanager.New(config, ctrlmanager.Options{
		Scheme:                        c.Scheme,
		Cache:                         c.Cache,
		Client:                        c.Client,
		Logger:                        quiet(c.Logger),
		Metrics:                       metrics,
		HealthProbeBindAddress:        o.HealthProbeBindAddress,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              o.LeaderElectionID,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   &o.RetryPeriod,
		GracefulShutdownTimeout:       &o.GracefulShutdownTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager for API server %s: %w", config.Host, err)
	}
	out := &Manager{Manager: mgr, Readiness: &Readiness{add: mgr.AddReadyzCheck, logger: c.Logger, clock: clock.RealClock{}}}
	if err := out.wire(ctx, c, certs); err != nil {
		return nil, err
	}
	return out, nil
}

// wire adds what every manager has.
func (m *Manager) wire(ctx context.Context, c Config, certs *certreload.Reloader) error {
	if err := register(buildinfo.Get().Collector(c.Component)); err != nil {
		return err
	}
	if certs != nil {
		if err := register(certs.Collector(servingCertificate)); err != nil {
			return err
		}
		if err := m.Add(certs); err != nil {
			return fmt.Errorf("adding the certificate reloader: %w", err)
		}
	}
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	for _, kind := range c.Informers {
		if _, err := m.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("creating the informer for %T: %w", kind, err)
		}
	}
	return m.Readiness.Add(CacheSyncedCheck, func(ctx context.Context) error { return cachesSynced(ctx, m.GetCache()) })
}

// cachesSynced does not wait for long: that the caches are not synced is an answer, too.
func cachesSynced(ctx context.Context, c cache.Cache) error {
	ctx, cancel := context.WithTimeout(ctx, syncPatience)
	defer cancel()
	if !c.WaitForCacheSync(ctx) {
		return errors.New("the informers have not received their first complete list from the API server")
	}
	return nil
}

// StripManagedFields is the default transform of informers: managedFields are about a quarter of a
// Node and nothing reads them from a cache.
func StripManagedFields(in any) (any, error) { return cache.TransformStripManagedFields()(in) }

// metricsServer describes the metrics endpoint; certs is nil unless files were given.
func (o Options) metricsServer(logger logr.Logger) (server metricsserver.Options, certs *certreload.Reloader, err error) {
	server = metricsserver.Options{BindAddress: o.MetricsBindAddress, SecureServing: o.MetricsSecure}
	if !o.MetricsSecure || o.MetricsBindAddress == Disabled {
		return server, nil, nil
	}
	server.FilterProvider = func(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
		return filters.WithAuthenticationAndAuthorization(config, httpClient)
	}
	server.TLSOpts = append(server.TLSOpts, func(t *tls.Config) {
		t.MinVersion = tls.VersionTLS12
		if !o.EnableHTTP2 {
			t.NextProtos = []string{"http/1.1"}
		}
	})
	if o.MetricsCertPath == "" {
		return server, nil, nil
	}
	cert, key := o.metricsCertFiles()
	certs, err = certreload.New(certreload.Files{Cert: cert, Key: key}, certreload.Options{OnReload: logReload(logger)})
	if err != nil {
		return server, nil, fmt.Errorf("--metrics-cert-path %q: %w", o.MetricsCertPath, err)
	}
	server.TLSOpts = append(server.TLSOpts, func(t *tls.Config) { t.GetCertificate = certs.GetCertificate })
	return server, certs, nil
}

func logReload(logger logr.Logger) func(error) {
	return func(err error) {
		if err != nil {
			logger.Error(err, "Keeping the last good metrics certificate")
			return
		}
		logger.Info("Reloaded metrics certificate")
	}
}

// register adds to controller-runtime's registry, which is global: a second manager in one process
// (tests) finds its metrics there already.
func register(c prometheus.Collector) error {
	err := ctrlmetrics.Registry.Register(c)
	if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); err == nil || ok {
		return nil
	}
	return fmt.Errorf("registering metrics: %w", err)
}

// checkPortFree turns the commonest start-up failure into a sentence with the flag in it. Somebody can
// still take the port before the server does; then the server's own error ends the process.
func checkPortFree(ctx context.Context, flag, addr string) error {
	if addr == Disabled {
		return nil
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", addr)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return fmt.Errorf("%s %q cannot be listened on, choose another address or %q to turn the endpoint off: %w", flag, addr, Disabled, err)
	}
	if err := l.Close(); err != nil {
		return fmt.Errorf("checking %s %q: %w", flag, addr, err)
	}
	return nil
}

// Namespace is where the process keeps what is its own: --leader-election-namespace, or the Pod's namespace; empty outside of a Pod.
func (o Options) Namespace() string { return o.namespace(serviceAccountDir) }

func (o Options) namespace(accountDir string) string {
	if o.LeaderElectionNamespace != "" {
		return o.LeaderElectionNamespace
	}
	ns, err := os.ReadFile(filepath.Join(accountDir, "namespace"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(ns))
}

// validateNamespace makes sure that the Lease has a namespace.
func (o Options) validateNamespace(accountDir string) error {
	if o.LeaderElect && o.namespace(accountDir) == "" {
		return errors.New("--leader-elect needs --leader-election-namespace outside of a Pod: name the namespace for the Lease")
	}
	return nil
}
