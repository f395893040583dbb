// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/watch"
	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// watchRoutes is the one method of etcdserverpb.Watch; package watch does the work.
func (p *Proxy) watchRoutes() map[string]route {
	hub := p.newWatchHub()
	p.hub = hub
	p.background(func(ctx context.Context) {
		<-ctx.Done()
		hub.Close()
	})
	p.exportWatches(hub)
	return map[string]route{etcdserverpb.Watch_Watch_FullMethodName: {
		stream: func(stream ServerStream) error { return hub.Serve(stream, p.draining, errDraining) },
	}}
}

// newWatchHub makes the hub that all Watch streams of the tenant share. It opens streams to the core when they are needed.
func (p *Proxy) newWatchHub() *watch.Hub {
	const method = etcdserverpb.Watch_Watch_FullMethodName
	return watch.New(watch.Config{
		Tenant: &p.cfg.Tenant,
		Open: func(ctx context.Context, requireLeader bool) (watch.CoreStream, error) {
			now, err := p.ready(ctx)
			if err != nil {
				return nil, err
			}
			s, err := p.up.Stream(ctx, method, requireLeader)
			return watchStream{s, p, now}, err
		},
		Watches:   p.cfg.Watches,
		Pace:      p.paceWatch,
		TooMany:   status.Convert(tooMany(limitWatches, 0)).Message(),
		Refused:   p.metrics.refused(limitWatches).Inc,
		Compacted: p.compaction.Revision,
		Load:      p.compaction.wait,
		Violation: func(err error) error { return p.violation(method, err) },
		Panicked:  func(r any) error { return p.panicked(method, r) },
	})
}

// paceWatch holds back one message of a watch stream. A watch from a revision in the past costs what the core reads for it,
// which is what everybody has written since.
func (p *Proxy) paceWatch(ctx context.Context, start int64) error {
	if err := p.budgets.messages.await(ctx, 1, p.metrics.waited(limitMessages).Inc); err != nil {
		return err
	}
	now := p.seen()
	if start <= 0 || now.tenant == nil {
		return nil
	}
	if distance := now.revision - now.tenant.Revisions.Core(start); distance > 0 {
		return p.await(ctx, quota.Work{Revisions: distance})
	}
	return nil
}

// watchStream is a stream to the core as package watch wants it.
type watchStream struct {
	ClientStream
	p    *Proxy
	seen seen // when it was opened
}

// Tenant implements watch.CoreStream.
func (s watchStream) Tenant() *tenancy.Tenant { return s.seen.tenant }

// Seen implements watch.CoreStream.
func (s watchStream) Seen(header wire.Header) { s.p.glimpse(s.seen, header) }

// LoggedOut implements watch.CoreStream.
func (s watchStream) LoggedOut(message string) {
	if c, ok := s.ClientStream.(*coreStream); ok {
		c.c.loggedOut(c.token, message)
	}
}

// exportWatches registers the hub's numbers.
func (p *Proxy) exportWatches(hub *watch.Hub) {
	if p.cfg.Registry == nil {
		return
	}
	labels := prometheus.Labels{"tenant": p.cfg.TenantName}
	for name, each := range map[string]struct {
		help  string
		value func(watch.Stats) int
	}{
		"watch_streams":      {"Watch streams of the tenant.", func(s watch.Stats) int { return s.Sessions }},
		"watchers":           {"Watches of the tenant.", func(s watch.Stats) int { return s.Watchers }},
		"private_watchers":   {"Watches of the tenant that do not share a watch of the core: they catch up, or their client reads slowly.", func(s watch.Stats) int { return s.Private }},
		"core_watches":       {"Watches of the core that the tenant's watches share.", func(s watch.Stats) int { return s.Groups }},
		"core_watch_streams": {"Watch streams to the core.", func(s watch.Stats) int { return s.CoreStreams }},
	} {
		p.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricPrefix + name, Help: each.help, ConstLabels: labels}, func() float64 {
			return float64(each.value(hub.Stats()))
		}))
	}
	p.register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: metricPrefix + "slow_watch_streams_total", ConstLabels: labels,
		Help: "Watch streams of the tenant that were ended because their client read too slowly.",
	}, func() float64 { return float64(hub.Stats().Slow) }))
}

// RegisterMetrics registers all metrics of a proxy, with nothing behind them, for the reference.
func RegisterMetrics(registry prometheus.Registerer) error {
	if _, err := newMetrics(registry, ""); err != nil {
		return err
	}
	hub := watch.New(watch.Config{})
	defer hub.Close()
	p := &Proxy{cfg: Config{Registry: registry}, log: logr.Discard()}
	p.exportWatches(hub)
	p.exportBudgets()
	return nil
}

const metricPrefix = "mooring_etcdstorage_proxy_"

func (p *Proxy) register(c prometheus.Collector) {
	if err := p.cfg.Registry.Register(c); err != nil {
		p.log.Error(err, "A metric could not be registered")
	}
}
