// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"

	"github.com/mooring-dev/mooring/internal/platform/certreload"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// generation is what a client has at one moment. A rotation goes on only when no connection is being made any more with what it takes away, as
// an operator does by waiting; what it waits for here is told, not guessed.
type generation struct {
	config *tls.Config
	users  sync.WaitGroup
}

// holder hands out the current generation.
type holder struct {
	mu  sync.Mutex
	now *generation
}

func (h *holder) take() (*tls.Config, func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.now
	g.users.Add(1)
	return g.config, g.users.Done
}

// put replaces the generation, and returns when nobody uses the old one.
func (h *holder) put(config *tls.Config) {
	h.mu.Lock()
	old := h.now
	h.now = &generation{config: config}
	h.mu.Unlock()
	if old != nil {
		old.users.Wait()
	}
}

// Again and again everything is replaced: the CA on the clients' side and the one on the core's side, with every certificate of both, in the
// order in which an operator must do it: trust the new CA alongside the old one, then change the certificates, then drop the old CA. Meanwhile
// clients connect again all the time, and the proxy to the core at each rotation, and not one connection may fail; and streams that were opened before the first rotation are alive after the last, with
// no event lost or repeated.
func TestRotationsUnderLoad(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	r := newRotation(t, etcd)
	p := start(t, slices.Concat(coreTLS(r.coreFolder, "https://"+r.relay.address), serveTLS(r.listenFolder), []string{"--tenant=team-a"})...)
	p.awaitReady(t, "")
	r.proxy = p

	config, done := r.clients.take()
	long := dial(t, p.address, config) // one connection for everything that must survive
	done()
	watch := openWatch(t, etcdserverpb.NewWatchClient(long), "counter")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	load, ctx := errgroup.WithContext(ctx)
	var connections, beats, written atomic.Int64
	for range 2 {
		load.Go(func() error { return r.connectAgainAndAgain(ctx, p.address, &connections) })
	}
	load.Go(func() error { return beat(ctx, etcdserverpb.NewLeaseClient(long), &beats) })
	load.Go(func() error { return count(ctx, etcdserverpb.NewKVClient(long), &written) })

	n := cases.Number(t, 30, 100, 1000)
	for i := range n {
		r.rotate(t, i)
		if ctx.Err() != nil {
			t.Fatalf("after %d rotations: %v", i+1, load.Wait())
		}
	}
	stop()
	if err := load.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	checkCounter(t, watch, written.Load())
	r.checkEnd(t, n, connections.Load())
	t.Logf("%d rotations, %d new connections, %d keepalives, %d events on streams as old as the first", n, connections.Load(), beats.Load(), written.Load())
	if connections.Load() < int64(n)/2 || beats.Load() < int64(n)/50 {
		t.Error("there was hardly any load")
	}
}

// rotation is both sides of a proxy, and who signs for them.
type rotation struct {
	listenFolder, coreFolder testkit.TLSFolder
	clients                  holder
	clientCA, coreCA         *testkit.Authority
	client                   testkit.Pair
	relay                    *relay
	proxy                    *running
}

func newRotation(t *testing.T, etcd *testkit.Etcd) *rotation {
	t.Helper()
	r := &rotation{clientCA: testkit.NewAuthority(t, "clients 0"), coreCA: testkit.NewAuthority(t, "core 0")}
	r.listenFolder = testkit.NewTLSFolder(t, r.clientCA.Issue(t, testkit.Leaf{}), r.clientCA.PEM)
	r.coreFolder = testkit.NewTLSFolder(t, r.coreCA.Issue(t, testkit.Leaf{CommonName: "proxy"}), r.coreCA.PEM)
	r.client = r.clientCA.Issue(t, testkit.Leaf{CommonName: "team-a"})
	r.clients.put(r.client.Client(t, r.clientCA))
	r.relay = newRelay(t, testkit.NewTLSFolder(t, r.coreCA.Issue(t, testkit.Leaf{}), r.coreCA.PEM), etcd.Endpoint)
	return r
}

// rotate replaces everything once.
func (r *rotation) rotate(t *testing.T, i int) {
	t.Helper()
	nextClientCA, nextCoreCA := testkit.NewAuthority(t, fmt.Sprintf("clients %d", i+1)), testkit.NewAuthority(t, fmt.Sprintf("core %d", i+1))
	// Everybody trusts both.
	r.listenFolder.Put(t, "ca.crt", testkit.Bundle(r.clientCA, nextClientCA))
	r.coreFolder.Put(t, "ca.crt", testkit.Bundle(r.coreCA, nextCoreCA))
	r.relay.folder.Put(t, "ca.crt", testkit.Bundle(r.coreCA, nextCoreCA))
	r.relay.reload(t)
	r.clients.put(r.client.Client(t, r.clientCA, nextClientCA))
	r.awaitReloads(t, 3*i+1)
	// Everybody gets new certificates, of the new CA; the files are replaced one after the other.
	r.listenFolder.PutPair(t, nextClientCA.Issue(t, testkit.Leaf{}))
	r.coreFolder.PutPair(t, nextCoreCA.Issue(t, testkit.Leaf{CommonName: "proxy"}))
	r.relay.folder.PutPair(t, nextCoreCA.Issue(t, testkit.Leaf{}))
	r.relay.reload(t)
	r.client = nextClientCA.Issue(t, testkit.Leaf{CommonName: "team-a"})
	r.clients.put(r.client.Client(t, r.clientCA, nextClientCA))
	r.awaitReloads(t, 3*i+2)
	// Nobody trusts the old one.
	r.listenFolder.Put(t, "ca.crt", nextClientCA.PEM)
	r.coreFolder.Put(t, "ca.crt", nextCoreCA.PEM)
	r.relay.folder.Put(t, "ca.crt", nextCoreCA.PEM)
	r.relay.reload(t)
	r.clients.put(r.client.Client(t, nextClientCA))
	r.awaitReloads(t, 3*i+3)
	r.clientCA, r.coreCA = nextClientCA, nextCoreCA
}

// awaitReloads waits until the proxy says that it has taken over so many sets on both sides, as an operator does before it goes on.
func (r *rotation) awaitReloads(t *testing.T, n int) {
	t.Helper()
	await(t, func() string {
		_, body := r.proxy.get(t, "/metrics")
		for _, side := range []string{"clients", "core"} {
			series := fmt.Sprintf("mooring_certreload_reloads_total{certificate=%q,outcome=\"success\",tenant=\"team-a\"}", side)
			if got := valueOf(t, body, series); got != float64(n+1) { // the first is that of the start
				return fmt.Sprintf("%s: %v of %d sets", side, got, n+1)
			}
		}
		return ""
	})
}

// await is testkit.Eventually for what is over in a moment and happens thousands of times.
func await(t *testing.T, condition func() string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(2 * patience)
	defer deadline.Stop()
	for {
		state := condition()
		if state == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("waited in vain: " + state)
		}
	}
}

func (r *rotation) connectAgainAndAgain(ctx context.Context, address string, made *atomic.Int64) error {
	for ctx.Err() == nil {
		config, done := r.clients.take()
		err := connectOnce(address, config)
		done()
		if err != nil {
			return fmt.Errorf("connection %d: %w", made.Load()+1, err)
		}
		made.Add(1)
	}
	return nil
}

// connectOnce makes a connection and uses it once. It takes no context: what has begun when the test ends must end well.
func connectOnce(address string, config *tls.Config) error {
	conn, err := connect(address, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = read(context.Background(), conn, "counter")
	return err
}

// beat keeps a lease alive on one stream that is never opened again.
func beat(ctx context.Context, client etcdserverpb.LeaseClient, beats *atomic.Int64) error {
	lease, err := client.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: 600})
	if err != nil {
		return err
	}
	stream, err := client.LeaseKeepAlive(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: lease.ID}); err != nil {
			return fmt.Errorf("keepalive %d: %w", beats.Load()+1, err)
		}
		got, err := stream.Recv()
		if err != nil || got.TTL != 600 {
			return fmt.Errorf("keepalive %d: %v, %w", beats.Load()+1, got, err)
		}
		beats.Add(1)
		pause(ctx)
	}
	return nil
}

// count writes 1, 2, 3, … to one key.
func count(ctx context.Context, client etcdserverpb.KVClient, written *atomic.Int64) error {
	for ctx.Err() == nil {
		next := strconv.FormatInt(written.Load()+1, 10)
		if _, err := client.Put(context.WithoutCancel(ctx), &etcdserverpb.PutRequest{Key: []byte("counter"), Value: []byte(next)}); err != nil {
			return fmt.Errorf("writing %s: %w", next, err)
		}
		written.Add(1)
		pause(ctx)
	}
	return nil
}

// pause leaves the machine to others for a moment.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Millisecond):
	}
}

// checkCounter reads the watch up to the last value.
func checkCounter(t *testing.T, watch *watching, last int64) {
	t.Helper()
	for next := int64(1); next <= last; {
		values, err := watch.values()
		if err != nil {
			t.Fatalf("the watch ended before event %d of %d: %v", next, last, err)
		}
		for _, value := range values {
			if value != strconv.FormatInt(next, 10) {
				t.Fatalf("the watch got %s instead of %d", value, next)
			}
			next++
		}
	}
}

// checkEnd looks at what the proxy has counted, and makes it connect to the core again, with what it has now.
func (r *rotation) checkEnd(t *testing.T, n int, connections int64) {
	t.Helper()
	_, body := r.proxy.get(t, "/metrics")
	for _, reason := range reasons() {
		for _, series := range []string{"client_handshakes_refused_total", "core_handshakes_failed_total"} {
			if got := valueOf(t, body, fmt.Sprintf("mooring_etcdstorage_proxy_%s{reason=%q,tenant=\"team-a\"}", series, reason)); got != 0 {
				t.Errorf("%s for %s: %v in %d rotations and %d connections; log: %s", series, reason, got, n, connections, r.proxy.Output())
			}
		}
	}
	before := r.relay.accepted.Load()
	if before == 0 {
		t.Error("the proxy did not use the relay")
	}
	r.relay.cut()
	config, done := r.clients.take()
	defer done()
	await(t, func() string {
		if err := connectOnce(r.proxy.address, config); err != nil {
			return err.Error()
		}
		return ""
	})
	if got := r.relay.accepted.Load(); got <= before || r.relay.refused.Load() > 0 {
		t.Errorf("connections to the core: %d before the cut, %d after, %d refused", before, got, r.relay.refused.Load())
	}
}

// Files that cannot be used, half-written ones among them, change nothing but a metric and the log; the next good ones are taken over.
func TestBadFilesAreNotTakenOver(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	ca := testkit.NewAuthority(t, "ca")
	pair := ca.Issue(t, testkit.Leaf{})
	folder := testkit.NewTLSFolder(t, pair, ca.PEM)
	p := start(t, slices.Concat(plainCore(etcd), serveTLS(folder), []string{"--tenant=team-a"})...)
	client := ca.Issue(t, testkit.Leaf{CommonName: "team-a"}).Client(t, ca)
	works := func(when string, failing float64) {
		t.Helper()
		testkit.Eventually(t, when, func() string {
			if got := p.metric(t, `mooring_certreload_failing{certificate="clients",tenant="team-a"}`); got != failing {
				return fmt.Sprintf("mooring_certreload_failing: got %v, want %v", got, failing)
			}
			return ""
		})
		if _, err := read(t.Context(), dial(t, p.address, client), "k"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	expired := ca.Issue(t, testkit.Leaf{NotBefore: -2 * time.Hour, NotAfter: -time.Hour})
	for _, bad := range []struct {
		what    string
		content []byte
		file    string
		good    []byte
	}{
		{"half a certificate", pair.Cert[:300], "tls.crt", pair.Cert},
		{"an empty key", nil, "tls.key", pair.Key},
		{"another key", expired.Key, "tls.key", pair.Key},
		{"an empty bundle", nil, "ca.crt", ca.PEM},
		{"a leaf as CA", pair.Cert, "ca.crt", ca.PEM},
	} {
		folder.Put(t, bad.file, bad.content)
		works(bad.what, 1)
		folder.Put(t, bad.file, bad.good)
		works("after "+bad.what, 0)
	}
	folder.PutPair(t, expired)
	works("an expired certificate", 1)
	if line := p.logged("TLS files cannot be used, keeping the previous ones"); line == nil || line["side"] != "clients" {
		t.Errorf("it is silent: %s", p.Output())
	}
	folder.PutPair(t, ca.Issue(t, testkit.Leaf{}))
	works("another certificate", 0)
	if p.logged("Loaded new TLS files") == nil {
		t.Errorf("it does not say that it took them over: %s", p.Output())
	}
}

// relay is TLS in front of an etcd without: etcd itself reads the CA of its clients only once.
type relay struct {
	address           string
	folder            testkit.TLSFolder
	files             *certreload.Reloader
	accepted, refused atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

func newRelay(t *testing.T, folder testkit.TLSFolder, endpoint string) *relay {
	t.Helper()
	files, err := certreload.New(certreload.Files{Cert: folder.Cert(), Key: folder.Key(), CA: folder.CA()}, certreload.Options{})
	must.Do(t, err)
	var listen net.ListenConfig
	listener := must.Get(listen.Listen(t.Context(), "tcp", "127.0.0.1:0")).Or(t)
	r := &relay{address: listener.Addr().String(), folder: folder, files: files}
	core := must.Get(parseEndpoint(endpoint, schemeHTTP)).Or(t)
	config := files.ServerConfig(&tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"}})
	go func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			go r.carry(tls.Server(raw, config), core.host)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		r.cut()
	})
	return r
}

func (r *relay) carry(secure *tls.Conn, core string) {
	defer func() { _ = secure.Close() }()
	if err := secure.HandshakeContext(context.Background()); err != nil {
		r.refused.Add(1)
		return
	}
	plain, err := net.Dial("tcp", core)
	if err != nil {
		return
	}
	defer func() { _ = plain.Close() }()
	r.accepted.Add(1)
	r.mu.Lock()
	r.conns = append(r.conns, secure.NetConn(), plain)
	r.mu.Unlock()
	go func() {
		_, _ = io.Copy(plain, secure)
		_ = plain.Close()
	}()
	_, _ = io.Copy(secure, plain)
}

func (r *relay) reload(t *testing.T) {
	t.Helper()
	if changed, err := r.files.Reload(); err != nil || !changed {
		t.Fatalf("the relay's files: %v, %v", changed, err)
	}
}

// cut ends every connection.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}
