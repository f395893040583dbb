// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// issued is the CA that an issuer would put into its Secret.
func issued(t fatal, now time.Time, life time.Duration) *CA {
	t.Helper()
	ca, err := NewCA(rand.Reader, now, "issuer", Serving, 1, life)
	if err != nil {
		t.Fatalf("%v", err)
	}
	out, err := ParseOffer(Pair{Cert: ca.CertPEM, Key: ca.KeyPEM})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return out
}

// issuer is somebody else who gives CAs, and renews them after some part of their life, before its end.
type issuer struct {
	offers map[string]*CA
	renew  map[string]time.Time
}

// look lets the issuer of a scene renew its CA, if it is time.
func (i *issuer) look(t *rapid.T, s *scene) {
	if s.origin == "" {
		s.offer = nil
		return
	}
	if s.now.After(i.renew[s.origin]) {
		life := s.validity.Signing * time.Duration(rapid.IntRange(18, 24).Draw(t, "life")) / 24
		i.offers[s.origin] = issued(t, s.now, life)
		i.renew[s.origin] = s.now.Add(life * time.Duration(rapid.IntRange(4, 18).Draw(t, "renewed after")) / 24)
	}
	s.offer = i.offers[s.origin]
}

// Anyone who gives the CAs, whenever they are renewed, and however often that is changed, and after whichever write the process dies: every
// issued pair validates against every published bundle. A second look does nothing.
func TestAtEveryInstantEveryPairValidatesWithAnIssuer(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		signing := time.Duration(rapid.IntRange(60, 60*24*365).Draw(t, "signing, minutes")) * time.Minute
		leaf := max(10*time.Minute, signing/time.Duration(rapid.IntRange(1, 4).Draw(t, "leaves per CA")))
		s := newScene(t, Validity{Signing: signing, Leaf: leaf}, rapid.IntRange(1, 2).Draw(t, "bundles"), rapid.IntRange(1, 2).Draw(t, "leaves"))
		s.inUse = len(s.leaves) // an issuer may renew more often than its CAs are needed
		from := issuer{offers: map[string]*CA{}, renew: map[string]time.Time{}}
		for range rapid.SampledFrom([]int{5, 15, 30}).Draw(t, "steps") {
			s.now = s.now.Add(min(leaf/4, signing/24) / 4 * time.Duration(rapid.SampledFrom([]int{0, 1, 2, 3, 4}).Draw(t, "step")))
			s.holds("after the clock moved")
			if rapid.IntRange(0, 9).Draw(t, "another issuer") == 0 {
				s.origin = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "issuer")
			}
			from.look(t, s)
			for range rapid.IntRange(0, 2).Draw(t, "deaths") {
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

// Another issuer's CA is trusted at once, and signs after a sixth of a CA's life, so that anyone who reads the bundle at the start only can
// be restarted. The way back is the same.
func TestTheIssuerIsChanged(t *testing.T) {
	t.Parallel()
	s := newScene(t, Validity{Signing: 1200 * time.Hour, Leaf: 100 * time.Hour}, 1, 1)
	s.settle(func() {})
	signer := func(hours, want int, due time.Duration) {
		t.Helper()
		for end := s.now.Add(time.Duration(hours) * time.Hour); s.now.Before(end); {
			s.now = s.now.Add(time.Hour)
			s.settle(func() { s.holds("on the way") })
		}
		d := MakePlan(s.world())
		if n := strings.Count(string(s.bundles[0].Bundle), "BEGIN"); d.Issuer != want || n < 2 {
			t.Errorf("after %d h: issuer %d, want %d; %d CAs are trusted", hours, d.Issuer, want, n)
		}
		if due != 0 && d.Next.Sub(s.now) > due {
			t.Errorf("the next look is in %s, and something is due in %s", d.Next.Sub(s.now), due)
		}
	}
	s.origin, s.offer = "a", issued(t, s.now, 1200*time.Hour)
	signer(199, 1, 90*time.Minute)
	signer(2, 2, 0)
	s.origin, s.offer = "", nil
	signer(199, 1, 90*time.Minute) // it may still, and is trusted as ever
	signer(2, 3, 0)
}

// While an issuer has given nothing, nothing is done; what it gives is taken once; when it is late that is said, and nothing is issued again
// and again.
func TestAnIssuerThatIsLate(t *testing.T) {
	t.Parallel()
	s := newScene(t, Validity{Signing: 100 * time.Hour, Leaf: 50 * time.Hour}, 1, 1)
	s.origin = "a"
	if d := MakePlan(s.world()); len(d.Steps) > 0 || !d.Overdue || d.Issuer != 0 || !d.Next.IsZero() {
		t.Errorf("%+v", d)
	}
	s.offer = issued(t, s.now, 100*time.Hour)
	s.settle(func() { s.holds("after a write") })
	if d := MakePlan(s.world()); d.Overdue || d.Issuer != 1 {
		t.Errorf("%+v", d)
	}
	writes := 0
	for end := s.now.Add(99 * time.Hour); s.now.Before(end); s.now = s.now.Add(10 * time.Minute) {
		s.settle(func() { writes++; s.holds("after a write") })
		if overdue := MakePlan(s.world()).Overdue; overdue != !s.now.Before(epoch().Add(-time.Hour+101*time.Hour/6*5)) {
			t.Fatalf("%s after it was issued: %t", s.now.Sub(epoch()), overdue)
		}
	}
	if writes != 2 {
		t.Errorf("the certificate was issued %d times in the life of a CA that nobody renews", writes)
	}
	s.now = s.now.Add(2 * time.Hour)
	if d := MakePlan(s.world()); len(d.Steps) > 0 || !d.Overdue {
		t.Errorf("after the end: %+v", d)
	}
	s.offer = issued(t, s.now, 100*time.Hour)
	s.settle(func() {})
	s.holds("after the issuer is back")
	if d := MakePlan(s.world()); d.Overdue || d.Issuer != 2 {
		t.Errorf("%+v", d)
	}
}

// An issuer that gives the next CA the key of the last one does no harm.
func TestAnIssuerKeepsItsKey(t *testing.T) {
	t.Parallel()
	s := newScene(t, Validity{Signing: 100 * time.Hour, Leaf: 50 * time.Hour}, 1, 1)
	s.origin, s.offer = "a", issued(t, s.now, 100*time.Hour)
	s.settle(func() {})
	for range 7 {
		s.now = s.now.Add(10 * time.Hour)
		s.settle(func() { s.holds("after a write") })
	}
	template := *s.offer.cert
	template.SerialNumber, template.NotAfter = big.NewInt(7), s.now.Add(100*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, s.offer.key.Public(), s.offer.key)
	must.Do(t, err)
	if s.offer, err = ParseOffer(Pair{Cert: encodePEM(blockCertificate, der), Key: s.offer.KeyPEM}); err != nil {
		t.Fatal(err)
	}
	for range 90 {
		s.settle(func() { s.holds("after a write") })
		s.now = s.now.Add(time.Hour)
	}
	if d := MakePlan(s.world()); d.Issuer != 2 {
		t.Errorf("%+v", d)
	}
}

// What an issuer's Secret may hold. Of a chain the first certificate alone is trusted.
func TestParseOffer(t *testing.T) {
	t.Parallel()
	ca := issued(t, epoch(), time.Hour)
	other := issued(t, epoch(), time.Hour)
	leaf := must.Get(ca.Issue(rand.Reader, epoch(), ServingLeaf("a", "b", "c"), time.Hour)).Or(t)
	chain, err := ParseOffer(Pair{Cert: slices.Concat(ca.CertPEM, other.CertPEM), Key: ca.KeyPEM})
	if err != nil || string(chain.CertPEM) != string(ca.CertPEM) || !chain.NotAfter().Equal(ca.NotAfter()) {
		t.Errorf("%v", err)
	}
	sec1 := must.Get(x509.MarshalECPrivateKey(ca.key)).Or(t)
	for want, pair := range map[string]Pair{
		"its certificate cannot be used: it holds no certificate":                                                                     {},
		"its certificate cannot be used: it holds something else than certificates in PEM":                                            {Cert: []byte("x")},
		"its key cannot be used: it is not one private key in PEM":                                                                    {Cert: ca.CertPEM, Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})},
		"its key is not that of its certificate":                                                                                      {Cert: ca.CertPEM, Key: other.KeyPEM},
		"its key cannot be used: the key is a *rsa.PrivateKey, not one of ECDSA":                                                      rsaPair(t),
		"its certificate is not that of a CA: the issuer must be one that issues CAs, such as those of type CA, SelfSigned and Vault": leaf,
	} {
		if _, err := ParseOffer(pair); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func rsaPair(t *testing.T) Pair {
	t.Helper()
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048)).Or(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, IsCA: true, BasicConstraintsValid: true, NotAfter: epoch()}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)).Or(t)
	raw := must.Get(x509.MarshalPKCS8PrivateKey(key)).Or(t)
	return Pair{Cert: encodePEM(blockCertificate, der), Key: encodePEM(blockKey, raw)}
}
