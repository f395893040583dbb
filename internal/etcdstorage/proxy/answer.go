// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// errDraining ends streams when the proxy stops; clients of etcd connect again elsewhere.
var errDraining = status.Error(codes.Unavailable, "etcd-storage-proxy: shutting down")

// errNotLoaded is what a forward answers when it must know the compact revision and does not yet; it is tried again once it is known.
var errNotLoaded = errors.New("the compact revision is not known yet")

// errNotCounted is what a forward answers when it must know what the tenant stores and does not yet; it is tried again once that is counted.
var errNotCounted = errors.New("what the tenant stores is not counted yet")

// errBehind is what a forward answers when it would refuse growth by what the tenant stored before writes that were answered since. It is tried
// again once those are known.
var errBehind = errors.New("the tenant's newest writes are not counted yet")

// route finds the handler of a method, or the refusal.
func (p *Proxy) route(method string) (route, error) {
	class, known := tenancy.Classify(method)
	r, ok := p.routes[method]
	if !ok || !known || class == tenancy.Denied {
		p.metrics.denied(method, known).Inc()
		return route{}, status.Error(codes.PermissionDenied, "etcd-storage-proxy: "+methodForPeople(method, known)+" is not available to tenants")
	}
	return r, nil
}

// known tells whether the method is one of etcd's, so that a stranger's names do not become metrics.
func (p *Proxy) known(method string) bool {
	_, known := tenancy.Classify(method)
	return known
}

// methodForPeople is Service.Method without the package; names that we do not know are quoted and cut.
func methodForPeople(method string, known bool) string {
	name := strings.TrimPrefix(method, "/")
	if known {
		if _, rest, ok := strings.Cut(name, "."); ok {
			name = rest
		}
		return strings.ReplaceAll(name, "/", ".")
	}
	const most = 80
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("the RPC %q", name)
}

// judge asks Authorize about a connection, and returns whose it is.
func (p *Proxy) judge(info credentials.AuthInfo, remote net.Addr) (identity string, err error) {
	state, ok := stateOf(info)
	if p.cfg.Authorize == nil {
		return identityOf(state), nil
	}
	if !ok || len(state.PeerCertificates) == 0 {
		return "", errors.New("etcd-storage-proxy: the connection has no client certificate")
	}
	err = p.cfg.Authorize(state.PeerCertificates[0])
	if err != nil && p.cfg.Refused != nil {
		p.cfg.Refused(state.PeerCertificates[0], remote, err)
	}
	return identityOf(state), err
}

// identityOf names whose certificate a connection has: what stays the same when it is renewed.
func identityOf(state tls.ConnectionState) string {
	if len(state.PeerCertificates) == 0 {
		return ""
	}
	cert := state.PeerCertificates[0]
	names := []string{cert.Subject.String()}
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	return strings.Join(append(names, cert.DNSNames...), " ")
}

// answer makes any error the status that the tenant gets.
func (p *Proxy) answer(method string, err error) error {
	var request *wire.RequestError
	var boundary *wire.BoundaryError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &request):
		return status.Error(codes.Code(request.Code), request.Message)
	case errors.As(err, &boundary):
		return p.violation(method, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	p.log.Error(err, "An RPC failed for a reason of our own", "method", method)
	return status.Error(codes.Internal, "etcd-storage-proxy: an internal error")
}

// violation reports an answer of the core, or a request about to be sent, that is outside the tenant's boundary. The tenant learns no details.
func (p *Proxy) violation(method string, err error) error {
	p.metrics.violations.Inc()
	p.log.Error(err, "A message was withheld: it was not inside the tenant's boundary", "method", method)
	return status.Error(codes.Internal, "etcd-storage-proxy: a message of "+methodForPeople(method, p.known(method))+
		" was withheld: it was not inside the tenant's boundary")
}

// panicked contains a panic of a handler: it is the end of that RPC and of nothing else.
func (p *Proxy) panicked(method string, r any) error {
	p.metrics.panics.Inc()
	p.log.Error(fmt.Errorf("panic: %v", r), "A handler panicked", "method", method, "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "etcd-storage-proxy: an internal error")
}

// errNoMessage answers a call that ended before its request came.
var errNoMessage = status.Error(codes.Internal, "etcd-storage-proxy: the call ended before its request came")
