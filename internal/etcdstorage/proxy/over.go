// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/tls"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
)

// ConnectionInfo is the AuthInfo of a connection of which it is known when the certificate ends that the client was shown.
type ConnectionInfo struct {
	credentials.TLSInfo
	ServingEnd time.Time
}

// stateOf is the TLS state of a connection.
func stateOf(info credentials.AuthInfo) (tls.ConnectionState, bool) {
	switch i := info.(type) {
	case credentials.TLSInfo:
		return i.State, true
	case ConnectionInfo:
		return i.State, true
	}
	return tls.ConnectionState{}, false
}

func servingEnd(info credentials.AuthInfo) time.Time {
	i, _ := info.(ConnectionInfo)
	return i.ServingEnd
}

// clientEnd is when nobody would let a client in any more with the certificate that it has shown: the end of the certificate, or of the CAs
// that vouch for it if they end before. Zero if it has shown none.
func clientEnd(info credentials.AuthInfo) time.Time {
	state, _ := stateOf(info)
	var last time.Time
	for _, chain := range state.VerifiedChains {
		first := chain[0].NotAfter
		for _, cert := range chain {
			if cert.NotAfter.Before(first) {
				first = cert.NotAfter
			}
		}
		if first.After(last) {
			last = first
		}
	}
	return last
}

// Labels of connections that are over.
const (
	overClient  = "client"
	overServing = "serving"
	overRevoked = "revoked"
)

// over reports whether a connection has outlived a certificate that it was made with. Handshakes alone check certificates, and connections
// live for months: without this a client that lost its access would keep it for as long as it does not disconnect. A connection that was
// made with a certificate of ours that has ended goes on until there is a later one: to break it before would be an outage for nothing. One
// whose client was revoked ends at once, and the next is refused.
func (p *Proxy) over(peer any, first bool) (h2.Status, bool) {
	v, _ := peer.(verdict)
	now := p.cfg.Now()
	var which string
	switch {
	case v.cert != nil && p.cfg.Revoked != nil && p.cfg.Revoked(v.cert):
		which = overRevoked
	case !v.client.IsZero() && now.After(v.client):
		which = overClient
	case !v.serving.IsZero() && now.After(v.serving) && p.cfg.ServingEnd != nil && p.cfg.ServingEnd().After(now):
		which = overServing
	default:
		return h2.Status{}, false
	}
	if first {
		p.metrics.overTotal.WithLabelValues(which).Inc()
		p.log.Info("A connection outlived a certificate and must be reestablished", "certificate", which)
	}
	why := "the " + which + " certificate of this connection has expired"
	if which == overRevoked {
		why = "the client certificate of this connection was revoked"
	}
	return h2.Status{Code: codes.Unavailable, Message: "etcd-storage-proxy: " + why + ": connect again"}, true
}
