// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
)

// keepAlive finds out that the core's machine is gone.
const keepAlive = 15 * time.Second

// coreState remembers what stands between us and the core, so that /readyz and the log can name it: tenants are only told that the core cannot be
// reached, and the error of a call often knows no more.
type coreState struct {
	report *reporter
	dialer net.Dialer

	mu       sync.Mutex
	problems map[string]string // by the address that was connected to, or by dialing and the address that could not be
}

// dialing begins the keys of problems that a connection puts an end to, however its handshake goes.
const dialing = "dialing "

func newCoreState(report *reporter) *coreState {
	return &coreState{report: report, dialer: net.Dialer{KeepAlive: keepAlive}, problems: map[string]string{}}
}

// dial connects to an address of --core-endpoints.
func (s *coreState) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := s.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			s.set(dialing+address, dialProblem(address, err))
		}
		return nil, err
	}
	s.set(dialing+address, "")
	return conn, nil
}

// failed notes a handshake that did not succeed.
func (s *coreState) failed(address string, err error) {
	if errors.Is(err, context.Canceled) {
		return // given up by us, which says nothing about the core
	}
	problem := handshakeProblem(address, err)
	s.set(address, problem)
	s.report.coreHandshake(reasonOf(err), problem)
}

// heard notes the first words of the core on a connection.
func (s *coreState) heard(address string, err error) {
	switch {
	case err == nil:
		s.set(address, "")
	case strings.Contains(err.Error(), tlsRemoteErrorPrefix):
		s.failed(address, err)
	default: // a connection that ended before anything was said: the next one will tell
	}
}

func (s *coreState) set(address, problem string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if problem == "" {
		delete(s.problems, address)
		return
	}
	s.problems[address] = problem
}

// clear forgets the problems of addresses that may be the core's no longer, once the core answers.
func (s *coreState) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.problems)
}

// explain makes one sentence of the error of a call to the core, with what is known about the connections. Whatever the core itself answered
// comes first.
func (s *coreState) explain(err error) string {
	text := err.Error()
	if answer, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		text = answer.GRPCStatus().Message()
	}
	if strings.Contains(text, rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied)) || strings.Contains(text, rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty)) {
		return text + ": the core has authentication on, so the proxy needs --core-cert-file of a user, or --core-username, that may read and write there"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.problems) == 0 {
		return text
	}
	problems := slices.Collect(maps.Values(s.problems))
	slices.Sort(problems)
	return strings.Join(problems, "; ")
}

func dialProblem(address string, err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return fmt.Sprintf("core %s cannot be connected to (%s): check --core-endpoints, the network and whether etcd runs there", address, err)
}

// handshakeProblem says what is wrong with an endpoint's TLS, and what to look at.
func handshakeProblem(address string, err error) string {
	what, look := err.Error(), "check --core-endpoints and --core-ca-file"
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		what, look = strings.TrimPrefix(name.Error(), "x509: "), "use a name that its certificate has in --core-endpoints"
		return fmt.Sprintf("core %s has an unexpected identity (%s): %s", address, what, look)
	}
	switch reasonOf(err) {
	case reasonUntrusted:
		what, look = "its certificate is not signed by an authority in --core-ca-file", "check the file"
	case reasonExpired:
		what, look = "its certificate has expired or is not valid yet", "renew it"
	case reasonUsage:
		what, look = "its certificate is not for servers", "issue one with serverAuth"
	case reasonVersion:
		what, look = "it does not speak TLS 1.3", "do not limit its TLS versions"
	case reasonNotTLS:
		what, look = "it does not speak TLS", "check the port, and whether etcd serves https there"
	case reasonRefusedByPeer:
		_, alert, _ := strings.Cut(what, tlsRemoteErrorPrefix)
		what, look = "it refuses the proxy's client certificate ("+alert+")", "check --core-cert-file against the CA that the core trusts"
	case reasonClosed:
		what, look = "it closed the connection during the TLS handshake", "look at its log"
	}
	return fmt.Sprintf("the connection to core %s fails, %s: %s", address, what, look)
}
