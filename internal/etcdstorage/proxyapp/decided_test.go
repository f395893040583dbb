// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"

	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// office is what the operator stores of one purpose: the CAs, the bundle that others trust, and the certificate.
type office struct {
	purpose  pki.Purpose
	validity pki.Validity
	data     map[string][]byte
	bundle   []byte
	leaf     pki.Leaf
	pair     pki.Pair
}

// work does what the operator would do now, and returns when something is due again.
func (o *office) work(t *testing.T, now time.Time) time.Time {
	t.Helper()
	for range 20 {
		signers, problems := pki.ParseSigners(o.purpose, o.data)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		d := pki.MakePlan(pki.World{
			Now: now, Validity: o.validity, Signers: signers, Bundles: []pki.Place{{Name: "bundle", Bundle: o.bundle}},
			Leaves: []pki.Place{{Name: "pair", Pair: o.pair, Leaf: o.leaf}},
		})
		if len(d.Steps) == 0 {
			return d.Next
		}
		o.do(t, now, signers, d.Steps[0])
	}
	t.Fatal("the decisions have no end")
	return time.Time{}
}

func (o *office) do(t *testing.T, now time.Time, signers pki.Signers, a pki.Step) {
	t.Helper()
	switch a := a.(type) {
	case pki.MakeCA:
		ca := must.Get(pki.NewCA(rand.Reader, now, "etcd-team-a", o.purpose, a.Generation, o.validity.Signing)).Or(t)
		o.data = append(signers, ca).Data(o.purpose)
	case pki.ChangeSigners:
		o.data = a.Signers.Data(o.purpose)
	case pki.TakeCA:
		t.Fatal("there is no issuer to take a CA from")
	case pki.Publish:
		o.bundle = a.Bundle
	case pki.IssueLeaf:
		i := slices.IndexFunc(signers, func(c pki.CA) bool { return c.Generation == a.Generation })
		pair := must.Get(signers[i].Issue(rand.Reader, now, o.leaf, o.validity.Leaf)).Or(t)
		o.pair = pair
	}
}

// generation is that of the newest CA.
func (o *office) generation() int {
	signers, _ := pki.ParseSigners(o.purpose, o.data)
	return signers[len(signers)-1].Generation
}

// decided is a proxy and its clients, and the operator that gives both their certificates.
type decided struct {
	clock            *hand
	serving, clients office
	folder           testkit.TLSFolder
	proxy            *inside
	// trust and pair are what clients have, as far as it has reached them; load makes connections with it, and turning those of the old client.
	trust   []byte
	pair    pki.Pair
	load    *rotation
	turning *turning
	made    atomic.Int64 // connections of load
	next    time.Time
	random  *mathrand.Rand
}

// config is what a client has now.
func (d *decided) config(t *testing.T) *tls.Config {
	t.Helper()
	pair := must.Get(tls.X509KeyPair(d.pair.Cert, d.pair.Key)).Or(t)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(d.trust) {
		t.Fatal("the bundle is empty")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "etcd-team-a.storage.svc", Time: d.clock.now,
	}
}

// turn sets the clock to when something is due, lets the operator do it, and lets what it stores reach anyone who reads it, one thing after
// the other in any order. Each is in use when it returns, and nobody uses what was there before to connect.
func (d *decided) turn(t *testing.T, failed func() bool) {
	t.Helper()
	d.give(t) // the clock waits for handshakes that began before the proxy had what it has
	d.clock.step(d.next.Sub(d.clock.now()))
	d.work(t)
	for _, i := range d.random.Perm(4) {
		switch i {
		case 0:
			d.trust = d.serving.bundle
			d.give(t)
		case 1:
			d.pair = d.clients.pair
			d.give(t)
		case 2:
			d.folder.PutPair(t, testkit.Pair(d.serving.pair))
			d.reload(t)
		case 3:
			d.folder.Put(t, "ca.crt", d.clients.bundle)
			d.reload(t)
		}
		if d.random.IntN(3) > 0 {
			continue
		}
		before := d.made.Load()
		await(t, func() string {
			if !failed() && d.made.Load() < before+2 { // one of them was begun after
				return fmt.Sprintf("%d connections, no more", before)
			}
			return ""
		})
	}
}

func (d *decided) work(t *testing.T) {
	t.Helper()
	now := d.clock.now()
	d.next = d.serving.work(t, now)
	if other := d.clients.work(t, now); other.Before(d.next) {
		d.next = other
	}
}

// give gives clients what there is for them.
func (d *decided) give(t *testing.T) {
	t.Helper()
	config := d.config(t)
	d.turning.turn(config)
	d.load.clients.put(config)
}

func (d *decided) reload(t *testing.T) {
	t.Helper()
	if _, err := d.proxy.listenFiles.Reload(); err != nil {
		t.Fatalf("the proxy refuses what the operator has made: %v", err)
	}
}

func newDecided(t *testing.T, etcd *testkit.Etcd) *decided {
	t.Helper()
	v := pki.Validity{Signing: 24 * time.Hour, Leaf: 24 * time.Hour}
	d := &decided{
		clock: newHand(), random: cases.Rand(t), load: &rotation{}, turning: newTurning(nil),
		serving: office{purpose: pki.Serving, validity: v, leaf: pki.ServingLeaf("etcd-team-a", "storage", "cluster.local")},
		clients: office{purpose: pki.Client, validity: v, leaf: pki.ClientLeaf("team-a", "tenant", "etcd-client", 1)},
	}
	d.work(t)
	d.folder = testkit.NewTLSFolder(t, testkit.Pair(d.serving.pair), d.clients.bundle)
	d.trust, d.pair = d.serving.bundle, d.clients.pair
	d.proxy = startInside(t, d.clock, slices.Concat(plainCore(etcd), serveTLS(d.folder), []string{"--tenant=team-a"})...)
	d.give(t)
	return d
}

// The certificates are those that the operator decides to make, at the times at which it decides to, on a clock that runs from one of them
// to the next. What it stores reaches the proxy and the clients before the next is due, in any order. New connections are made all along,
// and not one may fail; a client that is as old as the test is told to connect again each time that a certificate of its connection ends,
// and loses no event, no lease and no request.
func TestRotationsAsTheOperatorDecides(t *testing.T) {
	t.Parallel()
	d := newDecided(t, testkit.NewEtcd(t))
	old := dialTurning(t, d.proxy.address, d.turning)
	events := old.Watch(t.Context(), "counter")
	lease := must.Get(old.Grant(t.Context(), 3600)).Or(t)
	alive := must.Get(old.KeepAlive(t.Context(), lease.ID)).Or(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	load, ctx := errgroup.WithContext(ctx)
	var written atomic.Int64
	for range 2 {
		load.Go(func() error { return d.load.connectAgainAndAgain(ctx, d.proxy.address, &d.made) })
	}
	load.Go(func() error { return count(ctx, etcdserverpb.NewKVClient(old.ActiveConnection()), &written) })
	n, turns := cases.Number(t, 15, 15, 1000), 0
	for ; (d.serving.generation() <= n || d.clients.generation() <= n) && ctx.Err() == nil; turns++ {
		d.turn(t, func() bool { return ctx.Err() != nil })
	}
	stop()
	if err := load.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("after %d turns: %v", turns, err)
	}
	for next := int64(1); next <= written.Load(); {
		for _, got := range nextEvents(t, events) {
			if got != fmt.Sprint(next) {
				t.Fatalf("the watch got %s instead of %d of %d", got, next, written.Load())
			}
			next++
		}
	}
	for range len(alive) {
		<-alive
	}
	select {
	case _, open := <-alive:
		if !open {
			t.Error("the lease is not kept alive any more")
		}
	default:
	}
	if _, err := old.KeepAliveOnce(t.Context(), lease.ID); err != nil {
		t.Error(err)
	}
	d.judge(t, n)
	t.Logf("%d rotations of each CA in %d turns, %d new connections, %d events, %v connections made again", n, turns, d.made.Load(), written.Load(),
		d.proxy.count(t, overSeries, ""))
}

// judge looks at what the proxy has counted.
func (d *decided) judge(t *testing.T, n int) {
	t.Helper()
	if got := d.proxy.count(t, "mooring_etcdstorage_proxy_client_handshakes_refused_total", ""); got != 0 {
		t.Errorf("%v handshakes were refused", got)
	}
	// A certificate lives for a day, and a rotation takes two thirds of one: the old client connects again about as often as there are rotations.
	if got := d.proxy.count(t, overSeries, ""); got < float64(n)/4 {
		t.Errorf("%v connections outlived a certificate and were told so, in %d rotations", got, n)
	}
}
