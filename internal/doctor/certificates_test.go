// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// day is a day.
const day = 24 * time.Hour

// certificate is one that was made some time before the look and ends some time after it.
func certificate(t interface{ Fatal(args ...any) }, name string, age, left time.Duration) []byte {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: at().Add(-age), NotAfter: at().Add(left)}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	made := func(left time.Duration) []byte { return certificate(t, "a", 365*day-left, left) }
	bundle := func(parts ...[]byte) doctor.CertificateEvidence {
		return doctor.CertificateEvidence{Now: at(), Bundles: []doctor.Bundle{{Where: "Webhook w", PEM: slices.Concat(parts...)}}}
	}
	leaf := func(parts ...[]byte) doctor.CertificateEvidence {
		e := bundle(parts...)
		e.Bundles[0].Leaf = true
		return e
	}
	for name, test := range map[string]struct {
		evidence doctor.CertificateEvidence
		want     []string
	}{
		"none":              {doctor.CertificateEvidence{Now: at()}, nil},
		"one with time":     {bundle(made(14 * day)), nil},
		"one near its end":  {bundle(made(14*day - time.Second)), []string{"warning certificates: Webhook w: CN=a expires in 13 days, on 2026-12-06 11:59Z"}},
		"one in hours":      {bundle(made(25*time.Hour + time.Minute)), []string{"warning certificates: Webhook w: CN=a expires in 25h1m, on 2026-11-23 13:01Z"}},
		"one that ended":    {bundle(made(-time.Hour)), []string{"problem certificates: Webhook w: CN=a expired on 2026-11-22 11:00Z"}},
		"a short one":       {leaf(certificate(t, "s", 19*time.Hour, 5*time.Hour)), nil},
		"a short one, late": {leaf(certificate(t, "s", 21*time.Hour, 3*time.Hour)), []string{"warning certificates: Webhook w: CN=s expires in 3h0m, on 2026-11-22 15:00Z"}},
		"one of tomorrow":   {leaf(certificate(t, "t", -day, 300*day)), []string{"problem certificates: Webhook w has CN=t, which is not valid before 2026-11-23T12:00:00Z"}},
		"an authority that ended alongside its successor": {
			bundle(made(-day), made(300*day)), []string{"note certificates: Webhook w has 1 certificate that expired, next to 1 valid"},
		},
		"a server's certificate that ended before its authority": {leaf(made(-day), made(300*day)), []string{"problem certificates: Webhook w: CN=a expired on 2026-11-21 12:00Z"}},
		"no certificate": {bundle([]byte("x")), []string{"problem certificates: Webhook w has no certificate where one is expected"}},
		"another block":  {bundle([]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")), []string{"problem certificates: Webhook w has no certificate where one is expected"}},
		"what cannot be read": {
			bundle([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
			[]string{"problem certificates: Webhook w has a certificate that cannot be read: x509: malformed certificate"},
		},
		"a short life":       {bundle(certificate(t, "s", 47*day, 13*day)), nil},
		"a short life, late": {bundle(certificate(t, "s", 51*day, 9*day)), []string{"warning certificates: Webhook w: CN=s expires in 9 days, on 2026-12-01 12:00Z"}},
		"Secrets":            {doctor.CertificateEvidence{Now: at(), Closed: 3}, []string{"note certificates: not read: 3 Secrets of type kubernetes.io/tls"}},
		"Secrets that nobody may count": {
			doctor.CertificateEvidence{Now: at(), ClosedProblem: "forbidden"}, []string{"note certificates: not read: Secrets of type kubernetes.io/tls: forbidden"},
		},
		"a side": {doctor.CertificateEvidence{Now: at(), Unread: []finding.Side{{Name: "APIServices", Problem: "forbidden"}}}, []string{"warning certificates: not read: APIServices: forbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, said(doctor.Certificates(test.evidence))); diff != "" {
				t.Error(diff)
			}
		})
	}
	e := bundle(made(100 * day))
	e.Bundles = append(e.Bundles, doctor.Bundle{Where: "Secret s", PEM: certificate(t, "b", 50*day, 50*day)})
	const want = "2 certificates are not about to expire; the first is CN=b of Secret s, on 2027-01-11 12:00Z"
	if got := doctor.Certificates(e); len(got) != 1 || got[0].What != want || got[0].Severity != finding.OK {
		t.Errorf("%+v", got)
	}
}

// The nearer the end, the worse; nothing hangs on the order in which things were read.
func TestCertificatesGetWorseAndAreOrderBlind(t *testing.T) {
	t.Parallel()
	rank := func(f []finding.Finding) int {
		return slices.Index([]finding.Severity{finding.OK, finding.Note, finding.Warning, finding.Problem}, finding.Worst(f))
	}
	cases.Check(t, func(t *rapid.T) {
		e := doctor.CertificateEvidence{Now: at()}
		for i := range rapid.IntRange(1, 4).Draw(t, "bundles") {
			b := doctor.Bundle{Where: string(rune('a' + i)), Leaf: rapid.Bool().Draw(t, "leaf")}
			for range rapid.IntRange(0, 3).Draw(t, "certificates") {
				b.PEM = append(b.PEM, certificate(t, "x", time.Duration(rapid.IntRange(1, 400).Draw(t, "age"))*day, time.Duration(rapid.IntRange(1, 400).Draw(t, "left"))*day)...)
			}
			e.Bundles = append(e.Bundles, b)
		}
		before := doctor.Certificates(e)
		shuffle(t, e.Bundles)
		if diff := cmp.Diff(before, doctor.Certificates(e)); diff != "" {
			t.Fatal(diff)
		}
		e.Now = e.Now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "later")) * day)
		if later := doctor.Certificates(e); rank(later) < rank(before) {
			t.Fatalf("%v became %v", said(before), said(later))
		}
	})
}

func FuzzBundle(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), true)
	f.Add(certificate(f, "a", day, day), false)
	f.Fuzz(func(t *testing.T, content []byte, leaf bool) {
		for _, x := range doctor.Certificates(doctor.CertificateEvidence{Now: at(), Bundles: []doctor.Bundle{{Where: "w", PEM: content, Leaf: leaf}}}) {
			if x.What == "" || x.Where == "" {
				t.Errorf("%+v", x)
			}
		}
	})
}
