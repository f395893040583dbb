// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// hand is a clock that is set by hand.
type hand struct{ nanoseconds atomic.Int64 }

func newHand() *hand {
	h := &hand{}
	h.nanoseconds.Store(time.Now().Truncate(time.Second).UnixNano())
	return h
}

func (h *hand) now() time.Time       { return time.Unix(0, h.nanoseconds.Load()) }
func (h *hand) step(d time.Duration) { h.nanoseconds.Add(int64(d)) }

// inside is the program in this process, with a clock of the test's for certificates.
type inside struct {
	*program
	address string
}

func startInside(t *testing.T, clock *hand, args ...string) *inside {
	t.Helper()
	return startInsideWith(t, clock, func(*proxy.Config) {}, args...)
}

func startInsideWith(t *testing.T, clock *hand, change func(*proxy.Config), args ...string) *inside {
	t.Helper()
	p := must.Get(newProgramAt(parsed(t, args), mustSettings(t, args), logr.Discard(), clock.now)).Or(t)
	config := p.proxyConfig()
	config.Look, config.Upstream.Look = 5*time.Millisecond, 5*time.Millisecond
	change(&config)
	return &inside{p, tenantproxy.Serve(t, config)}
}

// count is the value of a counter of the program's with one more label, "" for none.
func (p *inside) count(t *testing.T, name, value string) float64 {
	t.Helper()
	families := must.Get(p.registry.Gather()).Or(t)
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if value == "" || label.GetValue() == value {
					sum += m.GetCounter().GetValue()
					break
				}
			}
		}
	}
	return sum
}

const overSeries = "mooring_etcdstorage_proxy_connections_over_total"

// turning makes each handshake with what there is at that moment, as API servers do that read their files at each.
type turning struct {
	credentials.TransportCredentials
	mu  *sync.RWMutex // held for reading while a handshake is under way
	now *tls.Config
}

func newTurning(config *tls.Config) *turning {
	return &turning{TransportCredentials: credentials.NewTLS(config), mu: &sync.RWMutex{}, now: config}
}

// turn returns when no handshake is under way with what there was before.
func (c *turning) turn(config *tls.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = config
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *turning) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return credentials.NewTLS(c.now).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (c *turning) Clone() credentials.TransportCredentials { return c }

// dialTurning is an etcd client whose certificates turn.
func dialTurning(t *testing.T, address string, creds *turning) *clientv3.Client {
	t.Helper()
	client := must.Get(clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + address}, DialTimeout: patience, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithNoProxy()},
	})).Or(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// timed is a configuration of a client against a clock.
func timed(config *tls.Config, clock *hand) *tls.Config {
	config = config.Clone()
	config.Time = clock.now
	return config
}

// TestNoConnectionOutlivesItsCertificate shows that when the certificate of a client ends its connections are told to go: a call begins
// elsewhere, a bare stream ends with a reason, and the watch of an etcd client resumes on a new connection with nothing lost or repeated.
// Connections of others are left alone. Those that were shown a certificate of ours that ends go on until there is another one.
func TestNoConnectionOutlivesItsCertificate(t *testing.T) {
	t.Parallel()
	etcd, clock := testkit.NewEtcd(t), newHand()
	ca := testkit.NewAuthorityFor(t, "ca", -time.Hour, 24*time.Hour)
	leaf := func(life time.Duration) testkit.Leaf {
		return testkit.Leaf{CommonName: "team-a", NotBefore: -time.Hour, NotAfter: life}
	}
	folder := testkit.NewTLSFolder(t, ca.Issue(t, leaf(3*time.Hour)), ca.PEM)
	p := startInside(t, clock, slices.Concat(plainCore(etcd), serveTLS(folder), []string{"--tenant=team-a"})...)

	short := timed(ca.Issue(t, leaf(time.Hour)).Client(t, ca), clock)
	creds := newTurning(short)
	resuming := dialTurning(t, p.address, creds)
	events := resuming.Watch(t.Context(), "counter")
	expiring := openWatch(t, etcdserverpb.NewWatchClient(dial(t, p.address, short)), "counter")
	long := dial(t, p.address, timed(ca.Issue(t, leaf(20*time.Hour)).Client(t, ca), clock))
	other := openWatch(t, etcdserverpb.NewWatchClient(long), "counter")
	n := 0
	next := func() {
		t.Helper()
		n++
		must.Get(resuming.Put(t.Context(), "counter", fmt.Sprint(n))).Or(t)
		want := []string{fmt.Sprint(n)}
		if got := nextEvents(t, events); !slices.Equal(got, want) {
			t.Fatalf("the watch that resumes got %v instead of %d", got, n)
		}
		if values, err := other.values(); err != nil || !slices.Equal(values, want) {
			t.Fatalf("the watch of another: %v, %v", values, err)
		}
	}
	next()
	creds.turn(timed(ca.Issue(t, leaf(20*time.Hour)).Client(t, ca), clock))
	clock.step(59 * time.Minute)
	next()
	if got := p.count(t, overSeries, ""); got != 0 {
		t.Errorf("%v connections were over before their certificates", got)
	}
	clock.step(2 * time.Minute)
	if err := expiring.end(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the client certificate of this connection has expired: connect again") {
		t.Errorf("a bare stream ended with %v", err)
	}
	for range 20 {
		next()
	}
	if got := p.count(t, overSeries, "client"); got != 2 {
		t.Errorf("%v connections were over, want the two of the certificate", got)
	}

	clock.step(3 * time.Hour) // ours ends
	next()
	if got := p.count(t, overSeries, "serving"); got != 0 {
		t.Errorf("%v connections were ended though there is no better certificate", got)
	}
	folder.PutPair(t, ca.Issue(t, leaf(10*time.Hour)))
	if changed, err := p.listenFiles.Reload(); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if err := other.end(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the serving certificate of this connection has expired: connect again") {
		t.Errorf("a bare stream ended with %v", err)
	}
	other = openWatch(t, etcdserverpb.NewWatchClient(long), "counter") // on a new connection
	for range 20 {
		next()
	}
}

// nextEvents are the values of the events that come next.
func nextEvents(t *testing.T, events clientv3.WatchChan) (values []string) {
	t.Helper()
	for len(values) == 0 {
		select {
		case answer, open := <-events:
			if !open || answer.Err() != nil {
				t.Fatalf("the watch ended: %v", answer.Err())
			}
			for _, event := range answer.Events {
				values = append(values, string(event.Kv.Value))
			}
		case <-time.After(patience):
			t.Fatal("no event came")
		}
	}
	return values
}
