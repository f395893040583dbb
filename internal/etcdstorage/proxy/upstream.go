// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
)

// core reaches the core etcd over a pool of connections, and logs in to it when there is a password.
type core struct {
	p    *Proxy
	cfg  UpstreamConfig
	pool *h2.Pool

	logins chan struct{} // holds one value during a login, so that there is one; others wait no longer than their context
	token  string        // of etcd's authentication; "" without, or before the first login
	off    bool          // the core said that its authentication is off: there is no token
	known  sync.RWMutex  // guards token and off
}

// newCore checks the endpoints; it dials none.
func newCore(p *Proxy) (*core, error) {
	cfg := p.cfg.Upstream
	creds := cfg.Credentials
	if creds == nil && cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	var endpoints []h2.Endpoint
	for _, e := range cfg.Endpoints {
		endpoint, err := parseEndpoint(e, creds != nil)
		if err != nil {
			return nil, err
		}
		endpoints = append(endpoints, endpoint)
	}
	if len(endpoints) == 0 {
		return nil, errors.New("no endpoint of the core etcd is given")
	}
	if cfg.Connections <= 0 {
		cfg.Connections = DefaultConnections
	}
	if cfg.DialTimeout <= 0 {
		cfg.DialTimeout = DefaultDialTimeout
	}
	return &core{p: p, cfg: cfg, logins: make(chan struct{}, 1), pool: h2.NewPool(p.ctx, h2.PoolConfig{
		Endpoints: endpoints, Connections: cfg.Connections, Credentials: creds, DialTimeout: cfg.DialTimeout, Dialer: cfg.Dialer,
		Look: cfg.Look, Answers: p.answers, Lost: p.restarted,
		Failed: func(address string, err error) {
			p.metrics.dialFailures.Inc()
			p.log.V(1).Info("Connecting to the core etcd failed", "endpoint", address, "error", err.Error())
		},
		Renewed: func(address string) {
			p.metrics.renewals.Inc()
			p.log.Info("Connected to the core etcd again, with the current TLS files", "endpoint", address)
		},
	})}, nil
}

// parseEndpoint reads host:port or a URL, whose scheme must fit.
func parseEndpoint(endpoint string, secure bool) (h2.Endpoint, error) {
	address := endpoint
	if scheme, rest, ok := strings.Cut(endpoint, "://"); ok {
		want, state := "http", "off"
		if secure {
			want, state = "https", "on"
		}
		if scheme != want {
			return h2.Endpoint{}, fmt.Errorf("endpoint %q of the core etcd: the scheme must be %s, as TLS to the core is %s", endpoint, want, state)
		}
		address = strings.TrimSuffix(rest, "/")
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return h2.Endpoint{}, fmt.Errorf("endpoint %q of the core etcd is not host:port or a URL with both, such as https://etcd.example:2379", endpoint)
	}
	// grpc's TLS credentials take the port off an authority and compare the certificate with the host.
	return h2.Endpoint{Address: address, Authority: address}, nil
}

// tokenNow is the token for a call; ok is false when there must be a login first.
func (c *core) tokenNow() (token string, ok bool) {
	if c.cfg.Password == nil {
		return "", true
	}
	c.known.RLock()
	defer c.known.RUnlock()
	return c.token, c.token != "" || c.off
}

// login returns the token, fetching it when there is none.
func (c *core) login(ctx context.Context) (string, error) {
	if token, ok := c.tokenNow(); ok {
		return token, nil
	}
	select {
	case c.logins <- struct{}{}:
		defer func() { <-c.logins }()
	case <-ctx.Done():
		return "", status.FromContextError(ctx.Err()).Err()
	}
	if token, ok := c.tokenNow(); ok {
		return token, nil
	}
	password, err := c.cfg.Password()
	if err != nil {
		c.p.log.Error(err, "The password for the core etcd cannot be read")
		return "", status.Error(codes.Unavailable, "etcd-storage-proxy: the password for the core etcd cannot be read")
	}
	request, err := proto.Marshal(&etcdserverpb.AuthenticateRequest{Name: c.cfg.Username, Password: password})
	if err != nil {
		return "", fmt.Errorf("encoding the login: %w", err)
	}
	answer, err := c.call(ctx, &h2.Request{Method: etcdserverpb.Auth_Authenticate_FullMethodName, Timeout: timeoutOf(ctx)}, request)
	switch {
	case err == nil:
	case status.Convert(err).Message() == rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthNotEnabled):
		c.remember("", true)
		return "", nil
	case status.Code(err) == codes.InvalidArgument:
		c.p.log.Error(err, "The core etcd refused the proxy's login", "user", c.cfg.Username)
		return "", status.Error(codes.Unavailable, "etcd-storage-proxy: the core etcd refused the proxy's user name or password")
	default:
		return "", err
	}
	var parsed etcdserverpb.AuthenticateResponse
	if err := proto.Unmarshal(answer, &parsed); err != nil || parsed.Token == "" {
		return "", status.Error(codes.Unavailable, "etcd-storage-proxy: the core etcd answered the login with something else")
	}
	c.remember(parsed.Token, false)
	return parsed.Token, nil
}

func (c *core) remember(token string, off bool) {
	c.known.Lock()
	defer c.known.Unlock()
	c.token, c.off = token, off
}

// loggedOut forgets a token that the core no longer takes; true when a call that got this answer is worth another try. Who is known by a
// certificate has no token, but is refused, too, when a user or role of anybody's changes between the core's check and the deed: nothing has
// been done then.
func (c *core) loggedOut(token string, message string) bool {
	if c.cfg.Password == nil {
		return message == rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision)
	}
	switch message {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCInvalidAuthToken), rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision):
	default:
		return false
	}
	c.known.Lock()
	defer c.known.Unlock()
	if c.token == token {
		c.token, c.off = "", false
	}
	return true
}

// Unary makes one call and waits for its answer.
func (c *core) Unary(ctx context.Context, method string, requireLeader bool, request []byte) ([]byte, error) {
	for attempt := 0; ; attempt++ {
		token, err := c.login(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := c.call(ctx, &h2.Request{Method: method, Timeout: timeoutOf(ctx), Token: token, RequireLeader: requireLeader}, request)
		if err == nil || attempt > 0 || !c.loggedOut(token, status.Convert(err).Message()) {
			return answer, err
		}
	}
}

// answered is the sink of a call that somebody waits for.
type answered struct {
	body   []byte
	status h2.Status
	done   chan struct{}
}

// Message implements h2.Sink.
func (a *answered) Message(_ *h2.Batch, message []byte, own *h2.Buf) {
	a.body = append(make([]byte, 0, len(message)), message...)
	own.Release()
}

// Done implements h2.Sink.
func (a *answered) Done(_ *h2.Batch, s h2.Status) {
	a.status = s
	close(a.done)
}

// call makes one call; one that the core has certainly not seen is made again.
func (c *core) call(ctx context.Context, r *h2.Request, request []byte) ([]byte, error) {
	message := append(make([]byte, h2.MessageRoom, h2.MessageRoom+len(request)), request...)
	for attempt := 0; ; attempt++ {
		a := &answered{done: make(chan struct{})}
		call, err := c.pool.Start(ctx, r, message, a)
		if err != nil {
			return nil, c.error(err)
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			call.Cancel(nil)
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		if a.status.Unprocessed && attempt == 0 {
			continue
		}
		if !a.status.OK() {
			return nil, c.error(a.status)
		}
		return a.body, nil
	}
}

// Stream opens a stream.
func (c *core) Stream(ctx context.Context, method string, requireLeader bool) (ClientStream, error) {
	token, err := c.login(ctx)
	if err != nil {
		return nil, err
	}
	r := &h2.Request{Method: method, Token: token, RequireLeader: requireLeader, Timeout: timeoutOf(ctx)}
	if method == etcdserverpb.KV_RangeStream_FullMethodName {
		r.Window = streamWindow
	}
	s, err := c.pool.Stream(ctx, r)
	if err != nil {
		return nil, c.error(err)
	}
	return &coreStream{c: c, token: token, ClientStream: s}, nil
}

// keepFollowing follows something in the core again and again until ctx ends, after pauses that double until follow
// reports that it worked for a while.
func (p *Proxy) keepFollowing(ctx context.Context, what string, follow func(context.Context) (worked bool, err error)) {
	pause := followPauseLeast
	for ctx.Err() == nil {
		worked, err := follow(ctx)
		if worked {
			pause = followPauseLeast
		} else if err != nil && ctx.Err() == nil {
			p.log.V(1).Info("Failed to follow the core, trying again", "what", what, "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, followPauseMost)
	}
}

// follow watches keys for the proxy's own use until each returns an error, the watch breaks, its connection was replaced
// or the core went back: anyone who follows something begins again where it was, and does not hold an old connection up.
// of is the past in which it begins. began reports whether the watch brought anything.
func (p *Proxy) follow(
	ctx context.Context, of *past, watch *etcdserverpb.WatchCreateRequest, each func(*etcdserverpb.WatchResponse) error,
) (began bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.up.Stream(ctx, etcdserverpb.Watch_Watch_FullMethodName, true)
	if err != nil {
		return false, err
	}
	go func() {
		defer cancel()
		select {
		case <-stream.Retired():
		case <-of.over:
		case <-ctx.Done():
		}
	}()
	create := &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: watch}
	request, err := proto.Marshal(&etcdserverpb.WatchRequest{RequestUnion: create})
	if err != nil {
		return false, fmt.Errorf("encoding a watch of the core: %w", err)
	}
	if err := stream.Send(request); err != nil {
		return false, err
	}
	for ; ; began = true {
		data, err := stream.Recv()
		if err != nil {
			return began, err
		}
		var answer etcdserverpb.WatchResponse
		if err := proto.Unmarshal(data, &answer); err != nil {
			return began, fmt.Errorf("decoding a watch of the core: %w", err)
		}
		if err := each(&answer); err != nil {
			return began, err
		}
		if answer.Canceled {
			return began, fmt.Errorf("the core ended a watch: %s", answer.CancelReason)
		}
	}
}

type coreStream struct {
	*h2.ClientStream
	c     *core
	token string
}

// Send implements ClientStream.
func (s *coreStream) Send(message []byte) error {
	err := s.ClientStream.Send(message)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return s.c.error(err)
}

// Recv implements ClientStream.
func (s *coreStream) Recv() ([]byte, error) {
	m, err := s.ClientStream.Recv()
	if err == nil || errors.Is(err, io.EOF) {
		return m, err
	}
	err = s.c.error(err)
	if s.c.loggedOut(s.token, status.Convert(err).Message()) {
		return nil, status.Error(codes.Unavailable, "etcd-storage-proxy: the login to the core etcd ended, try again")
	}
	return nil, err
}

// error makes the end of a call the status for the tenant. The core's codes and texts pass, but for a text that names one of its keys.
func (c *core) error(err error) error {
	var s h2.Status
	if !errors.As(err, &s) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return status.FromContextError(err).Err()
		}
		return err
	}
	return status.Error(s.Code, c.p.publicText(s.Message))
}

// publicText replaces a text that holds the tenant's prefix or the proxies' own.
func (p *Proxy) publicText(text string) string {
	if strings.Contains(text, p.cfg.Tenant.Prefix.String()) || (p.cfg.SystemPrefix != "" && strings.Contains(text, p.cfg.SystemPrefix)) {
		return "etcd-storage-proxy: the core etcd refused the request"
	}
	return text
}

// timeoutOf is the grpc-timeout of a context.
func timeoutOf(ctx context.Context) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ""
	}
	left := max(time.Until(deadline), time.Millisecond) //nolint:forbidigo // the deadline is given in the clock's time
	const most = 99999999                               // eight digits
	if ms := left.Milliseconds(); ms <= most {
		return strconv.FormatInt(ms, 10) + "m"
	}
	return strconv.FormatInt(min(int64(left/time.Second), most), 10) + "S"
}
