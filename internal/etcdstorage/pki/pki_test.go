// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func epoch() time.Time { return time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC) }

// fatal is what a helper needs of testing.T and rapid.T.
type fatal interface {
	Helper()
	Fatalf(string, ...any)
}

// scene is one purpose with what is stored, and a clock.
type scene struct {
	t        fatal
	now      time.Time
	purpose  Purpose
	validity Validity
	data     map[string][]byte // of the Secret with the CAs
	bundles  []Place
	leaves   []Place
	made     int
	origin   string
	offer    *CA
	inUse    int // CAs beyond the usual bound that are kept since certificates of them are in use
}

func newScene(t fatal, validity Validity, bundles, leaves int) *scene {
	s := &scene{t: t, now: epoch(), purpose: Serving, validity: validity, data: map[string][]byte{}}
	for range bundles {
		s.bundles = append(s.bundles, Place{Name: "ConfigMap team-a/ca"})
	}
	for range leaves {
		s.leaves = append(s.leaves, Place{Name: "Secret x", Leaf: ServingLeaf("etcd-a", "storage", "cluster.local")})
	}
	return s
}

func (s *scene) world() World {
	signers, problems := ParseSigners(s.purpose, s.data)
	if len(problems) > 0 {
		s.t.Fatalf("%v", problems)
	}
	return s.worldOf(signers)
}

// do carries out one step.
func (s *scene) do(a Step) {
	s.t.Helper()
	signers, _ := ParseSigners(s.purpose, s.data)
	switch a := a.(type) {
	case MakeCA:
		ca, err := NewCA(rand.Reader, s.now, "etcd-a", s.purpose, a.Generation, s.validity.Signing)
		if err != nil {
			s.t.Fatalf("%v", err)
		}
		s.made++
		s.data = append(signers, ca).Data(s.purpose)
	case TakeCA:
		s.data = a.Signers.Data(s.purpose)
	case ChangeSigners:
		s.data = a.Signers.Data(s.purpose)
	case Publish:
		s.bundles[a.At].Bundle = a.Bundle
	case IssueLeaf:
		ca := signers.of(a.Generation)
		pair, err := ca.Issue(rand.Reader, s.now, s.leaves[a.At].Leaf, s.validity.Leaf)
		if err != nil {
			s.t.Fatalf("%v", err)
		}
		s.leaves[a.At].Pair = pair
	}
}

// settle decides and acts until nothing remains; look is called after each write.
func (s *scene) settle(look func()) {
	s.t.Helper()
	for range 20 {
		steps := MakePlan(s.world()).Steps
		if len(steps) == 0 {
			return
		}
		for _, a := range steps {
			s.do(a)
			look()
		}
	}
	s.t.Fatalf("no end: %v", MakePlan(s.world()).Steps)
}

// verify checks a certificate against a bundle as a client of the endpoint does.
func verify(now time.Time, pair Pair, bundle []byte) error {
	cert, err := pair.inspect()
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: "etcd-a.storage.svc", KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return err
}

// holds checks the invariant: every issued pair validates against every published bundle, and a bundle holds CAs alone (S5), no more than those in use (S2).
func (s *scene) holds(when string) {
	s.t.Helper()
	for _, leaf := range s.leaves {
		for _, bundle := range s.bundles {
			if leaf.Pair.Cert == nil || bundle.Bundle == nil {
				continue
			}
			if err := verify(s.now, leaf.Pair, bundle.Bundle); err != nil {
				s.t.Fatalf("%s, at %s: %v", when, s.now, err)
			}
		}
	}
	most := mostCAs + 1 + s.inUse
	if signers, _ := ParseSigners(s.purpose, s.data); len(signers) > most {
		s.t.Fatalf("%d CAs", len(signers))
	}
	for _, bundle := range s.bundles {
		count := 0
		for block, rest := pem.Decode(bundle.Bundle); block != nil; block, rest = pem.Decode(rest) {
			if cert, err := x509.ParseCertificate(block.Bytes); err != nil || !cert.IsCA {
				s.t.Fatalf("%s, at %s: a bundle holds something else than CAs: %v", when, s.now, err)
			}
			count++
		}
		if count > most {
			s.t.Fatalf("%s, at %s: %d CAs in a bundle", when, s.now, count)
		}
	}
}

// Whatever a clock does within what certificates tolerate, and after whichever write the process dies, every issued pair validates against every
// published bundle.
func TestAtEveryInstantEveryPairValidates(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		signing := time.Duration(rapid.IntRange(10, 60*24*365).Draw(t, "signing, minutes")) * time.Minute
		leaf := max(10*time.Minute, signing/time.Duration(rapid.IntRange(1, 4).Draw(t, "leaves per CA")))
		s := newScene(t, Validity{Signing: signing, Leaf: leaf}, rapid.IntRange(1, 3).Draw(t, "bundles"), rapid.IntRange(1, 3).Draw(t, "leaves"))
		highest := s.now
		for range rapid.SampledFrom([]int{5, 20, 40}).Draw(t, "steps") {
			// Numbers drawn from a range are small ones mostly, and no CA would ever grow old.
			s.now = s.now.Add(min(leaf/4, signing/12) / 4 * time.Duration(rapid.SampledFrom([]int{0, 1, 2, 3, 4}).Draw(t, "step")))
			if s.now.After(highest) {
				highest = s.now
			}
			if rapid.IntRange(0, 5).Draw(t, "back") == 0 { // never further behind than certificates are dated back
				s.now = highest.Add(-time.Duration(rapid.Int64Range(0, int64(Backdate(leaf)*9/10)).Draw(t, "by")))
			}
			s.holds("after the clock moved")
			for range rapid.IntRange(0, 3).Draw(t, "deaths") {
				steps := MakePlan(s.world()).Steps
				for _, a := range steps[:rapid.IntRange(0, len(steps)).Draw(t, "writes before death")] {
					s.do(a)
					s.holds(fmt.Sprintf("%T", a))
				}
			}
			s.settle(func() { s.holds("after a write") })
		}
	})
}

// Clocks that jump further than any certificate tolerates do harm for as long as nobody looks; one look cures it, and the number of CAs is bounded.
func TestAfterAnyJumpOneLookCures(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		s := newScene(t, Validity{Signing: 730 * time.Hour, Leaf: 730 * time.Hour}, 2, 2)
		for range rapid.IntRange(1, 25).Draw(t, "jumps") {
			s.now = s.now.Add(time.Duration(rapid.IntRange(-2000, 2000).Draw(t, "hours")) * time.Hour)
			s.settle(func() {})
			s.holds("after a jump")
		}
	})
}

// Many rotations of the CA, a thousand in CI, from one moment at which something is due to the next: readers that have not seen the last write yet see what was
// stored before it, and no pair of what they may see fails to validate.
func TestManyRotations(t *testing.T) {
	t.Parallel()
	s := newScene(t, Validity{Signing: 10 * time.Minute, Leaf: 10 * time.Minute}, 1, 1)
	s.settle(func() {})
	for s.made < 1+cases.Number(t, 200, 1000, 1000) {
		before := scene{bundles: slices.Clone(s.bundles), leaves: slices.Clone(s.leaves)}
		s.now = MakePlan(s.world()).Next
		s.settle(func() { s.holds("in a rotation") })
		for i := range s.leaves {
			for _, pair := range []Pair{before.leaves[i].Pair, s.leaves[i].Pair} {
				for _, bundle := range [][]byte{before.bundles[i].Bundle, s.bundles[i].Bundle} {
					if err := verify(s.now, pair, bundle); err != nil {
						t.Fatalf("after %d rotations a reader that is behind fails: %v", s.made, err)
					}
				}
			}
		}
	}
	if n := strings.Count(string(s.bundles[0].Bundle), "BEGIN"); n > 3 {
		t.Errorf("a bundle has %d CAs after %d rotations", n, s.made)
	}
}

// A second look does nothing, and Next is when the first thing is due: nothing comes before, and something comes then.
func TestNextIsWhenSomethingIsDue(t *testing.T) {
	t.Parallel()
	s := newScene(t, Validity{Signing: 24 * time.Hour, Leaf: 6 * time.Hour}, 2, 1)
	idle := 0
	for range 200 {
		s.settle(func() {})
		d := MakePlan(s.world())
		if len(d.Steps) > 0 || !d.Next.After(s.now) {
			t.Fatalf("%+v", d)
		}
		s.now = d.Next.Add(-time.Second)
		if early := MakePlan(s.world()); len(early.Steps) > 0 {
			t.Fatalf("a second before it is due: %+v", early.Steps[0])
		}
		s.now = d.Next
		if len(MakePlan(s.world()).Steps) == 0 {
			idle++ // the moments at which a CA may sign or a bundle has arrived need no write by themselves
		}
	}
	if idle > 150 {
		t.Errorf("%d of 200 looks were in vain", idle)
	}
}

// A bundle that cannot be written keeps the next CA from signing, for as long as that does no harm.
func TestABlockedBundleHoldsTheNextCABack(t *testing.T) {
	t.Parallel()
	s := newScene(t, Validity{Signing: 1200 * time.Hour, Leaf: 100 * time.Hour}, 2, 1)
	s.settle(func() {})
	s.bundles[1].Blocked = true
	for _, at := range []struct {
		hours, issuer int
		waiting       string
	}{
		{700, 1, ""},
		{1020, 1, "CA 2 does not sign yet: it is not known to be in every bundle, such as ConfigMap team-a/ca"},
		{1090, 1, "CA 2 does not sign yet: it is not known to be in every bundle, such as ConfigMap team-a/ca"},
		{1101, 2, ""},
	} {
		for s.now.Before(epoch().Add(time.Duration(at.hours) * time.Hour)) {
			s.now = s.now.Add(10 * time.Hour)
			s.settle(func() {})
		}
		if d := MakePlan(s.world()); d.Issuer != at.issuer || d.Waiting != at.waiting {
			t.Errorf("after %d h: issuer %d, waiting %q", at.hours, d.Issuer, d.Waiting)
		}
	}
	s.bundles[1].Blocked = false
	s.settle(func() {})
	if d := MakePlan(s.world()); d.Rotating && d.Issuer != 2 {
		t.Errorf("%+v", d)
	}
}

// What a certificate must be for it to be left alone.
func TestRenewal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*scene)
		reason string
	}{
		"as it is":          {func(*scene) {}, ""},
		"gone":              {func(s *scene) { s.leaves[0].Pair = Pair{} }, "there is no certificate yet"},
		"the key is gone":   {func(s *scene) { s.leaves[0].Pair.Key = nil }, "the key cannot be used: it is not one private key in PEM"},
		"garbage":           {func(s *scene) { s.leaves[0].Pair.Cert = []byte("x") }, "the certificate cannot be used: it holds something else than certificates in PEM"},
		"another's key":     {func(s *scene) { s.leaves[0].Pair.Key = s.leaves[1].Pair.Key }, "the key is not that of the certificate"},
		"another's name":    {func(s *scene) { s.leaves[0].Leaf.DNSNames = []string{"x"} }, "it has another identity"},
		"another's address": {func(s *scene) { s.leaves[0].Leaf.IPs = []netip.Addr{netip.IPv6Loopback()} }, "it has another identity"},
		"another's CA": {func(s *scene) {
			o := newScene(s.t, s.validity, 1, 1)
			o.settle(func() {})
			s.leaves[0].Pair = o.leaves[0].Pair
		}, "its CA is not known"},
		"two thirds":          {func(s *scene) { s.now = s.now.Add(70 * time.Hour) }, "two thirds of its validity are over"},
		"shorter by now":      {func(s *scene) { s.validity.Leaf = time.Hour; s.now = s.now.Add(time.Hour) }, "two thirds of its validity are over"},
		"not yet two thirds":  {func(s *scene) { s.now = s.now.Add(60 * time.Hour) }, ""},
		"the clock went back": {func(s *scene) { s.now = s.now.Add(-59 * time.Minute) }, ""},
	} {
		s := newScene(t, Validity{Signing: 1000 * time.Hour, Leaf: 100 * time.Hour}, 1, 2)
		s.settle(func() {})
		c.spoil(s)
		got := ""
		for _, a := range MakePlan(s.world()).Steps {
			if a, ok := a.(IssueLeaf); ok && a.At == 0 {
				got = a.Because()
			}
		}
		if got != c.reason {
			t.Errorf("%s: %q, want %q", name, got, c.reason)
		}
	}
}

// What certificates hold: P-256, every name of the Service and localhost, one usage; a CA may sign and nothing else; names fit.
func TestContents(t *testing.T) {
	t.Parallel()
	ca := must.Get(NewCA(rand.Reader, epoch(), strings.Repeat("x", 80), Client, 7, time.Hour)).Or(t)
	if cn := ca.cert.Subject.CommonName; len(cn) != 64 || !strings.HasSuffix(cn, " client CA 7") || !ca.cert.MaxPathLenZero || len(ca.cert.ExtKeyUsage) > 0 {
		t.Errorf("%q", cn)
	}
	for _, c := range []struct {
		leaf  Leaf
		names []string
		uris  int
	}{
		{ServingLeaf("etcd-a", "storage", "cluster.local"), []string{"etcd-a.storage.svc", "etcd-a.storage.svc.cluster.local", "etcd-a.storage", "etcd-a", "localhost"}, 0},
		{ClientLeaf("a", "team-a", "client", 1), nil, 2},
	} {
		pair := must.Get(ca.Issue(rand.Reader, epoch(), c.leaf, 2*time.Hour)).Or(t)
		cert := must.Get(pair.inspect()).Or(t)
		if !slices.Equal(cert.DNSNames, c.names) || len(cert.URIs) != c.uris || !c.leaf.matches(cert) || cert.IsCA || cert.PublicKeyAlgorithm != x509.ECDSA ||
			!cert.NotAfter.Equal(ca.cert.NotAfter) || cert.NotBefore.Before(ca.cert.NotBefore) {
			t.Errorf("%+v", cert)
		}
	}
	if got := ClientLeaf("a", "team-a", "client", 2); got.URIs[0] != "urn:mooring:etcd-tenant:a" || got.URIs[1] != "urn:mooring:etcd-client:team-a/client/2" || got.CommonName != "client-team-a-client" {
		t.Errorf("%+v", got)
	}
}

// What is stored is read back, and a CA whose key is lost is trusted still and signs no more.
func TestSignersAreReadBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, Validity{Signing: time.Hour, Leaf: time.Hour}, 1, 1)
	s.settle(func() {})
	if want := []string{"serving-1.crt", "serving-1.key", "serving-1.published"}; !slices.Equal(slices.Sorted(maps.Keys(s.data)), want) {
		t.Errorf("%v", slices.Sorted(maps.Keys(s.data)))
	}
	signers, _ := ParseSigners(Serving, s.data)
	if !maps.EqualFunc(signers.Data(Serving), s.data, slices.Equal) || !signers[0].Published.Equal(s.now) {
		t.Error("it is not read back as it was")
	}
	delete(s.data, "serving-1.key")
	signers, problems := ParseSigners(Serving, s.data)
	if len(signers) != 1 || len(problems) != 1 || signers[0].signs(s.now) || len(signers.Bundle(s.now)) == 0 {
		t.Errorf("%v %v", signers, problems)
	}
	p := MakePlan(s.worldOf(signers))
	if _, ok := p.Steps[0].(MakeCA); !ok {
		t.Errorf("%+v", p)
	}
}

func (s *scene) worldOf(signers Signers) World {
	return World{Now: s.now, Validity: s.validity, Signers: signers, Bundles: s.bundles, Leaves: s.leaves, Origin: s.origin, Offer: s.offer}
}

// Whatever a Secret holds, reading it neither fails nor invents.
func FuzzParseSigners(f *testing.F) {
	s := newScene(f, Validity{Signing: time.Hour, Leaf: time.Hour}, 1, 1)
	s.settle(func() {})
	f.Add("serving-1.crt", s.data["serving-1.crt"], s.data["serving-1.key"])
	f.Add("serving-0.crt", []byte("x"), []byte(nil))
	f.Add("serving-01.crt", s.data["serving-1.crt"], s.data["serving-1.key"])
	f.Fuzz(func(t *testing.T, name string, cert, key []byte) {
		data := map[string][]byte{name: cert, strings.TrimSuffix(name, ".crt") + ".key": key}
		signers, _ := ParseSigners(Serving, data)
		for _, ca := range signers {
			if !ca.cert.IsCA || ca.Generation < 1 {
				t.Fatalf("%+v", ca)
			}
		}
		MakePlan(World{Now: epoch(), Validity: Validity{Signing: time.Hour, Leaf: time.Hour}, Signers: signers})
	})
}
