// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"crypto/x509"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// repeatAfter is how long the same thing is not said again. What happens is decided by others (clients, the core), and a log must survive that.
const repeatAfter = time.Minute

// reporter counts and logs who is turned away.
type reporter struct {
	log      logr.Logger
	clients  *prometheus.CounterVec // by reason
	identity prometheus.Counter
	core     *prometheus.CounterVec // by reason

	mu   sync.Mutex
	said map[string]*rate.Sometimes // by side and reason, so of bounded size
}

// newReporter registers the metrics. Their names MUST NOT change: alerts use them.
func newReporter(log logr.Logger, registry prometheus.Registerer) *reporter {
	r := &reporter{
		log:  log,
		said: map[string]*rate.Sometimes{},
		clients: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_etcdstorage_proxy_client_handshakes_refused_total",
			Help: "Failed TLS handshakes of clients, by reason.",
		}, []string{"reason"}),
		identity: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mooring_etcdstorage_proxy_client_identities_refused_total",
			Help: "Connections with a valid client certificate that does not belong to the tenant.",
		}),
		core: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_etcdstorage_proxy_core_handshakes_failed_total",
			Help: "Failed TLS handshakes with the core, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range reasons() {
		r.clients.WithLabelValues(reason)
		r.core.WithLabelValues(reason)
	}
	registry.MustRegister(r.clients, r.identity, r.core)
	return r
}

// sometimes calls f unless it was called for the same thing within repeatAfter.
func (r *reporter) sometimes(thing string, f func()) {
	r.mu.Lock()
	s := r.said[thing]
	if s == nil {
		s = &rate.Sometimes{First: 1, Interval: repeatAfter}
		r.said[thing] = s
	}
	r.mu.Unlock()
	s.Do(f)
}

func (r *reporter) clientHandshake(from net.Addr, err error) {
	reason := reasonOf(err)
	r.clients.WithLabelValues(reason).Inc()
	if reason == reasonClosed {
		r.log.V(2).Info("Client disconnected during the TLS handshake", "client", from.String())
		return
	}
	r.sometimes("client "+reason, func() {
		r.log.Info("Refused a client's TLS handshake; more of the same reason are only counted for a minute", "client", from.String(), "reason", reason, "error", err.Error())
	})
}

func (r *reporter) coreHandshake(reason, problem string) {
	r.core.WithLabelValues(reason).Inc()
	r.sometimes("core "+reason, func() { r.log.Info("TLS handshake with the core failed", "reason", problem) })
}

// refusedIdentity counts and logs a connection of somebody else.
func (r *reporter) refusedIdentity(cert *x509.Certificate, from net.Addr, err error) {
	r.identity.Inc()
	r.sometimes("identity", func() {
		r.log.Info("Refused a client of another identity; more are only counted for a minute",
			"client", from.String(), "error", err.Error(), "serial", cert.SerialNumber.Text(16))
	})
}

// excess logs a connection that was closed since its identity has too many.
func (r *reporter) excess(identity string, from net.Addr) {
	r.sometimes("excess", func() {
		r.log.Info("Closed a connection of an identity that has too many; more are only counted for a minute", "client", from.String(), "identity", identity)
	})
}
