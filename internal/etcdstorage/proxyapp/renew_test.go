// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy/h2"
	"github.com/mooring-dev/mooring/internal/platform/certreload"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

var _ h2.Renewable = coreInfo{}

const renewedSeries = "mooring_etcdstorage_proxy_core_connections_renewed_total"

// lines are the connections to a core.
type lines struct {
	mu   sync.Mutex
	open map[*line]struct{}
}

type line struct {
	net.Conn
	of *lines
}

// Close implements net.Conn.
func (l *line) Close() error {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	delete(l.of.open, l)
	return l.Conn.Close()
}

// tap has the connections of a proxy to its core noted.
func (l *lines) tap(config *proxy.Config) {
	dial := config.Upstream.Dialer
	config.Upstream.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		made := &line{conn, l}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open[made] = struct{}{}
		return made, nil
	}
}

// now are those that are open.
func (l *lines) now() []*line {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*line
	for each := range l.open {
		out = append(out, each)
	}
	return out
}

// gone waits until none of some connections is open any more.
func (l *lines) gone(t *testing.T, when string, some []*line) {
	t.Helper()
	testkit.Eventually(t, when+": the old connections to be gone", func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		left := 0
		for _, each := range some {
			if _, ok := l.open[each]; ok {
				left++
			}
		}
		if left > 0 {
			return fmt.Sprintf("%d of %d are left", left, len(some))
		}
		return ""
	})
}

// TestCoreConnectionsAreMadeAnew replaces the proxy's certificate for the core, each time with one of another user, and then deletes the
// user of the one before: anyone who still were known by that would be refused. Meanwhile requests, a watch and a keepalive go on as if nothing were.
func TestCoreConnectionsAreMadeAnew(t *testing.T) {
	t.Parallel()
	const turns = 3
	ca, clock := testkit.NewAuthority(t, "ca"), newHand()
	own := testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{}), ca.PEM)
	nameless := clientv3.Config{TLS: ca.Issue(t, testkit.Leaf{}).Client(t, ca)}
	etcd := testkit.NewTLSEtcd(t, own, nameless.TLS)
	user := func(n int) string { return fmt.Sprint("proxy-", n) }
	var grants []testkit.Grant
	for n := range turns + 1 {
		grants = append(grants, testkit.Grant{User: user(n), Prefixes: []string{"/team-a/", "/.etcd.mooring.dev/tenants/team-a/"}})
	}
	root := etcd.EnableAuth(t, nameless, "root", grants...)
	folder := testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{CommonName: user(0)}), ca.PEM)
	conns := &lines{open: map[*line]struct{}{}}
	p := startInsideWith(t, clock, conns.tap,
		slices.Concat(coreTLS(folder, etcd.Endpoint), serveTLS(own), []string{"--tenant=team-a", "--quota-keys=1000"})...)
	take := func() {
		t.Helper()
		if changed, err := p.coreFiles.Reload(); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}

	conn := dial(t, p.address, ca.Issue(t, testkit.Leaf{CommonName: "team-a"}).Client(t, ca))
	watch := openWatch(t, etcdserverpb.NewWatchClient(conn), "counter")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	load, ctx := errgroup.WithContext(ctx)
	var written, beats atomic.Int64
	load.Go(func() error { return count(ctx, etcdserverpb.NewKVClient(conn), &written) })
	load.Go(func() error { return beat(ctx, etcdserverpb.NewLeaseClient(conn), &beats) })
	more := func(when string) {
		t.Helper()
		n, b := written.Load(), beats.Load()
		testkit.Eventually(t, when+": the load to go on", func() string {
			if ctx.Err() != nil {
				t.Fatalf("%s: %v", when, load.Wait())
			}
			if written.Load() < n+5 || beats.Load() < b+5 {
				return fmt.Sprintf("%d written, %d beats", written.Load()-n, beats.Load()-b)
			}
			return ""
		})
	}
	more("at first")
	for n := range turns {
		when := fmt.Sprint("turn ", n+1)
		before, count := conns.now(), p.count(t, renewedSeries, "")
		folder.PutPair(t, ca.Issue(t, testkit.Leaf{CommonName: user(n + 1)}))
		take()
		conns.gone(t, when, before)
		if got := p.count(t, renewedSeries, ""); got < count+1 {
			t.Errorf("%s: %v connections were made again", when, got-count)
		}
		must.Get(root.UserDelete(t.Context(), user(n))).Or(t)
		more(when)
	}

	before := conns.now()
	folder.Put(t, "ca.crt", testkit.Bundle(ca, testkit.NewAuthority(t, "next")))
	take()
	conns.gone(t, "another CA alongside it", before)
	more("another CA alongside it")
	must.Get(p.coreFiles.Reload()).Or(t)
	renewed := p.count(t, renewedSeries, "")
	more("the same files again")
	if got := p.count(t, renewedSeries, ""); got != renewed {
		t.Errorf("%v connections were made again for nothing", got-renewed)
	}
	stop()
	if err := load.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	checkCounter(t, watch, written.Load())
	t.Logf("%d events and %d keepalives over %v connections made again", written.Load(), beats.Load(), renewed)
}

// TestWhatIsLeftOfACoreConnection pins what a connection knows of its end.
func TestWhatIsLeftOfACoreConnection(t *testing.T) {
	t.Parallel()
	ca, clock := testkit.NewAuthorityFor(t, "ca", -time.Hour, 3*time.Hour), newHand()
	folder := testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{NotBefore: -time.Hour, NotAfter: 2 * time.Hour}), ca.PEM)
	info := func(args ...string) coreInfo {
		t.Helper()
		all := slices.Concat(args, serveTLS(folder), []string{"--tenant=team-a"})
		p := must.Get(newProgramAt(parsed(t, all), mustSettings(t, all), logr.Discard(), clock.now)).Or(t)
		return coreInfo{files: p.coreFiles, with: p.coreFiles.Current()}
	}
	near := func(got, want time.Duration) bool { return got > want-time.Minute && got < want+time.Minute }
	pair := info(coreTLS(folder, "https://127.0.0.1:1")...)
	if got := pair.Left(); !near(got, 2*time.Hour) {
		t.Errorf("with a pair: %v", got)
	}
	clock.step(150 * time.Minute)
	if got := pair.Left(); !near(got, -30*time.Minute) || pair.Outdated() {
		t.Errorf("after its end: %v, outdated %v", got, pair.Outdated())
	}
	if got := (coreInfo{files: pair.files, with: &certreload.Snapshot{}}).Left(); got != math.MaxInt64 {
		t.Errorf("with nothing that ends: %v", got)
	}
}
