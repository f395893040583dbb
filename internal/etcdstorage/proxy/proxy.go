// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/watch"
	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// UpstreamConfig says how the core etcd is reached.
type UpstreamConfig struct {
	// Endpoints are the core's addresses, host:port or client URLs ("https://host:2379"). At least one.
	Endpoints []string
	// TLS is nil for plaintext. With a client certificate the core takes its common name as the user (etcd's --client-cert-auth).
	TLS *tls.Config
	// Credentials are used instead of TLS when they are given; each handshake is told the host of its own endpoint.
	Credentials credentials.TransportCredentials
	// Username and Password log in to a core with authentication on; a nil Password logs in nowhere, which is right when the certificate says
	// who the proxy is. Password is asked at each login.
	Username string
	Password func() (string, error)
	// Connections is how many connections carry the calls; 0 is DefaultConnections.
	Connections int
	// DialTimeout bounds one attempt to connect, handshake included; 0 is DefaultDialTimeout.
	DialTimeout time.Duration
	// Dialer replaces net.Dialer in tests.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
	// Look is how often it is looked whether the Credentials were replaced with which the connections were made (see h2.Renewable); then they are made
	// again. 0 is 5 s.
	Look time.Duration
}

// Config is everything a Proxy needs.
type Config struct {
	// Tenant is the prefix, the lease space and the limits.
	Tenant tenancy.Tenant
	// TenantName is the tenant's name in metrics and in the record of its compact revision.
	TenantName string
	// Upstream is the core.
	Upstream UpstreamConfig
	// TLS is nil for plaintext, which only a loopback listener may use.
	TLS *tls.Config
	// Credentials are used instead of TLS when they are given. Their AuthInfo must be credentials.TLSInfo or ConnectionInfo.
	Credentials credentials.TransportCredentials
	// ServingEnd is the end of the certificate that new connections are shown; nil if it is not known. Now is the time against which the ends of
	// connections' certificates are held; nil is the system's. Look is how often that is done; 0 is 5 s.
	ServingEnd func() time.Time
	// Revoked, if it is not nil, says of a client certificate that Authorize let in whether it would not be any more: its connections end.
	Revoked func(*x509.Certificate) bool
	Now     func() time.Time
	Look    time.Duration
	// Authorize decides once per connection whether a verified client certificate is this tenant's. Its error is the answer to every RPC of that
	// connection. nil accepts every verified one.
	Authorize func(*x509.Certificate) error
	// Refused, if it is not nil, is told of each connection that Authorize has refused, Excess of each that was closed since its identity has
	// as many as it may.
	Refused func(cert *x509.Certificate, remote net.Addr, err error)
	Excess  func(identity string, remote net.Addr)
	// ConnectionsPerIdentity is how many connections may have certificates of one identity; 0 means no limit. IdleTime is how long one may be
	// without a call; 0 means no limit.
	ConnectionsPerIdentity int
	IdleTime               time.Duration
	// SystemPrefix is where the proxy keeps its own records in the core ("/.etcd.mooring.dev/"); "" keeps them in memory only.
	SystemPrefix string
	// AdvertiseURL is the one client URL that MemberList answers with.
	AdvertiseURL string
	// MaxRequestBytes is the core's --max-request-bytes; 0 is etcd's default, 1.5 MiB.
	MaxRequestBytes int
	// Quota bounds what the tenant stores; the zero value bounds nothing.
	Quota quota.Limits
	// HistoryBytes bounds what it has written since the core's last compaction; 0 means no limit.
	HistoryBytes int64
	// Leases and Watches bound how many of them the tenant has, watches on this replica alone; 0 means no limit.
	Leases, Watches int
	// Replicas is how many replicas of the tenant's proxy there are, as far as they do not know it of each other; 0 is one.
	// UnitsPerSecond, InFlight and Lists are divided among them.
	Replicas int
	// ReplicaExpiry is how long a replica counts as alive that has died; 0 is 15 s.
	ReplicaExpiry time.Duration
	// UnitsPerSecond paces the work that the tenant makes the core do, see [quota.Work]; 0 paces nothing.
	UnitsPerSecond float64
	// InFlight bounds how many RPCs are with the core at one time, the others wait in their order; 0 means no limit. Lists is the same for those
	// whose answer may be large, which have seats of their own; 0 is a quarter of InFlight.
	InFlight, Lists int
	// KeepAlivesPerSecond and WatchMessagesPerSecond pace the messages of streams that keep leases alive, and of those that watch; 0 paces nothing.
	KeepAlivesPerSecond, WatchMessagesPerSecond float64
	// Streams bounds how many RPCs of any kind are open at one time, StreamsPerConnection those of one connection; 0 means no limit and 4096.
	Streams, StreamsPerConnection int
	// AnswerBytes bounds the bytes of answers that are held in memory; 0 is DefaultAnswerBytes.
	AnswerBytes int64
	// Logger and Registry may be left out.
	Logger   logr.Logger
	Registry prometheus.Registerer
}

// Defaults of Config.
const (
	DefaultConnections     = 2
	DefaultDialTimeout     = 3 * time.Second
	DefaultMaxRequestBytes = 1.5 * 1024 * 1024 // etcd's embed.DefaultMaxRequestBytes
	// requestOverhead is what etcd allows a gRPC message beyond its request limit (etcd's config.grpcOverheadBytes).
	requestOverhead = 512 * 1024
	// DefaultAnswerBytes fit a process that may have 256 MiB.
	DefaultAnswerBytes = 128 << 20
	// waitingPart is the part of AnswerBytes that requests may take that wait.
	waitingPart = 4
)

// Proxy serves one tenant. Make one with New.
type Proxy struct {
	cfg        Config
	log        logr.Logger
	routes     map[string]route
	core       *core
	past       atomic.Pointer[past]
	restarting sync.Mutex // held while another past begins
	verifying  atomic.Bool
	hub        *watch.Hub
	up         upstream // is core; what handlers use
	compaction *compaction
	ledger     *ledger
	replicas   *replicas
	seats      seats
	lists      seats // of requests whose answer may be large
	budgets    budgets
	learnt     learnt
	answers    *h2.Budget
	streams    atomic.Int64 // RPCs that are open
	waiting    atomic.Int64 // bytes of requests that wait
	// mostWaitingBytes bounds waiting.
	mostWaitingBytes int64
	// readPatience is how long a RangeStream may wait for the tenant to read.
	readPatience time.Duration
	leases       *leaseCount
	listed       atomic.Int64 // leases of all tenants that the core listed last
	alarms       coreAlarms
	metrics      *metrics

	ctx    context.Context //nolint:containedctx // the life of the background work
	cancel context.CancelFunc

	server    *h2.Server
	draining  chan struct{} // closed when Shutdown begins
	drainOnce sync.Once
	work      sync.WaitGroup // background work
}

// fillIn gives what is not set its default.
func (cfg *Config) fillIn() {
	if cfg.MaxRequestBytes <= 0 {
		cfg.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if cfg.AnswerBytes <= 0 {
		cfg.AnswerBytes = DefaultAnswerBytes
	}
	cfg.Replicas = max(cfg.Replicas, 1)
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // certificates' ends are times of the clock's
	}
}

// New checks the configuration and builds a proxy. It dials lazily: nothing here needs the core. What it starts ends
// with ctx or Shutdown.
func New(ctx context.Context, cfg Config) (*Proxy, error) {
	cfg.fillIn()
	if cfg.TenantName == "" {
		return nil, errors.New("the tenant has no name")
	}
	if err := cfg.Tenant.Validate(); err != nil {
		return nil, err
	}
	if cfg.SystemPrefix != "" {
		system, err := tenancy.ParseSystemPrefix(cfg.SystemPrefix)
		if err != nil {
			return nil, err
		}
		if system.Overlaps(cfg.Tenant.Prefix) {
			return nil, fmt.Errorf("the tenant's prefix %s and the system prefix %s overlap", cfg.Tenant.Prefix.String(), system.String())
		}
	}
	m, err := newMetrics(cfg.Registry, cfg.TenantName)
	if err != nil {
		return nil, err
	}
	p := &Proxy{cfg: cfg, log: cfg.Logger, metrics: m, draining: make(chan struct{}), readPatience: readPatience}
	p.past.Store(&past{over: make(chan struct{})})
	p.answers = h2.NewBudget(cfg.AnswerBytes, m.waited(limitAnswers).Inc)
	p.mostWaitingBytes = max(cfg.AnswerBytes/waitingPart, int64(cfg.MaxRequestBytes)+requestOverhead)
	p.ctx, p.cancel = context.WithCancel(ctx)
	if p.core, err = newCore(p); err != nil {
		p.cancel()
		return nil, err
	}
	p.up = p.core
	p.compaction = newCompaction(p)
	p.ledger = newLedger(p)
	p.learnt.seed = maphash.MakeSeed()
	p.limit()
	if p.replicas, err = newReplicas(p); err != nil {
		p.cancel()
		return nil, err
	}
	p.routes = p.buildRoutes() //nolint:contextcheck // handlers get the contexts of their calls
	creds := cfg.Credentials
	if creds == nil && cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	p.server = &h2.Server{
		Handler: front{p}, Credentials: creds, MaxMessage: cfg.MaxRequestBytes + requestOverhead,
		MaxStreams: cfg.StreamsPerConnection, Answers: p.answers, MaxPerShare: cfg.ConnectionsPerIdentity, IdleTime: cfg.IdleTime,
		Broken: func(err error) {
			p.metrics.panics.Inc()
			p.log.Error(err, "A connection of the tenant ended by a panic")
		},
		StallTick: cfg.Look, Over: p.over,
	}
	p.background(p.compaction.run)
	p.background(p.replicas.run)
	if p.ledger.enforced() || cfg.HistoryBytes > 0 {
		p.ledger.begin()
	}
	return p, nil
}

// background runs a function until it returns; it must return soon after its context ends.
func (p *Proxy) background(f func(ctx context.Context)) {
	p.work.Go(func() { f(p.ctx) })
}

// Serve answers connections of the listener until Shutdown; it then returns nil. It may be called for several listeners.
func (p *Proxy) Serve(l net.Listener) error {
	if err := p.server.Serve(l); err != nil && !errors.Is(err, h2.ErrStopped) {
		return fmt.Errorf("serving on %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown refuses new RPCs, lets unary ones end, ends streams with Unavailable, and closes everything at the latest when ctx ends.
func (p *Proxy) Shutdown(ctx context.Context) {
	p.drainOnce.Do(func() { close(p.draining) })
	p.server.Drain(ctx)
	p.replicas.leave(ctx)
	p.cancel() // before Close, which waits for handlers: one may wait for a login that background work has begun
	p.server.Close()
	p.core.pool.Close()
	p.work.Wait()
}
