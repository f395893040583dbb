// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/pki"
)

func plan() pki.Plan {
	return pki.Plan{
		Authorities: []string{"ca", "other-ca"},
		Certificates: []pki.Certificate{
			{Name: "server", Authority: "ca", CommonName: "server", DNSNames: []string{"localhost"}, IPs: []string{"127.0.0.1"}},
			{Name: "admin", Authority: "ca", CommonName: "admin", Organizations: []string{"system:masters"}, Client: true},
			{Name: "foreign", Authority: "other-ca", CommonName: "admin", Client: true},
		},
		KeyPairs: []string{"tokens"},
	}
}

func ensure(t *testing.T, dir string, p pki.Plan, now time.Time) map[string]string {
	t.Helper()
	must.Do(t, pki.Ensure(dir, p, now))
	files := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, not 0600", entry.Name(), info.Mode().Perm())
		}
		content, err := os.ReadFile(path)
		files[entry.Name()] = string(content)
		return err
	}))
	return files
}

func changed(before, after map[string]string) []string {
	var names []string
	for _, name := range []string{"ca.crt", "other-ca.crt", "server.crt", "admin.crt", "foreign.crt", "tokens.key"} {
		if before[name] != after[name] {
			names = append(names, name)
		}
	}
	return names
}

func TestEnsureKeepsWhatIsGood(t *testing.T) {
	t.Parallel()
	dir, now := filepath.Join(t.TempDir(), "pki"), time.Now()
	first := ensure(t, dir, plan(), now)
	if got := changed(first, ensure(t, dir, plan(), now.Add(24*time.Hour))); got != nil {
		t.Errorf("a second run replaced %v", got)
	}
	if got := changed(first, ensure(t, dir, plan(), now.Add(330*24*time.Hour))); !cmp.Equal(got, []string{"server.crt", "admin.crt", "foreign.crt"}) {
		t.Errorf("a run shortly before the leaves expire replaced %v", got)
	}
}

func TestEnsureReplacesWhatDiffers(t *testing.T) {
	t.Parallel()
	dir, now := filepath.Join(t.TempDir(), "pki"), time.Now()
	first := ensure(t, dir, plan(), now)
	other := plan()
	other.Certificates[1].Organizations = []string{"readers"}
	second := ensure(t, dir, other, now)
	if got := changed(first, second); !cmp.Equal(got, []string{"admin.crt"}) {
		t.Errorf("a new group replaced %v", got)
	}
	must.Do(t, os.Remove(filepath.Join(dir, "other-ca.crt")))
	if got := changed(second, ensure(t, dir, other, now)); !cmp.Equal(got, []string{"other-ca.crt", "foreign.crt"}) {
		t.Errorf("a lost authority replaced %v", got)
	}
}

func TestEnsureRefusesADamagedAuthority(t *testing.T) {
	t.Parallel()
	dir, now := filepath.Join(t.TempDir(), "pki"), time.Now()
	ensure(t, dir, plan(), now)
	must.Do(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("not a certificate"), 0o600))
	if err := pki.Ensure(dir, plan(), now); err == nil {
		t.Error("a damaged authority was replaced silently: everything it signed would stop working")
	}
}

// The second judge: Go's own verifier accepts each certificate for its purpose and refuses it for any other.
func TestCertificatesServeTheirPurposeOnly(t *testing.T) {
	t.Parallel()
	dir, now := filepath.Join(t.TempDir(), "pki"), time.Now()
	ensure(t, dir, plan(), now)
	roots := x509.NewCertPool()
	content, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(content) {
		t.Fatalf("reading ca.crt: %v", err)
	}
	for _, c := range []struct {
		name  string
		usage x509.ExtKeyUsage
		host  string
		good  bool
	}{
		{"server", x509.ExtKeyUsageServerAuth, "127.0.0.1", true},
		{"server", x509.ExtKeyUsageServerAuth, "localhost", true},
		{"server", x509.ExtKeyUsageServerAuth, "192.0.2.1", false},
		{"server", x509.ExtKeyUsageClientAuth, "", false},
		{"admin", x509.ExtKeyUsageClientAuth, "", true},
		{"admin", x509.ExtKeyUsageServerAuth, "", false},
		{"foreign", x509.ExtKeyUsageClientAuth, "", false},
	} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, c.name+".crt"), filepath.Join(dir, c.name+".key"))
		must.Do(t, err)
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: c.host, KeyUsages: []x509.ExtKeyUsage{c.usage}, CurrentTime: now})
		if (err == nil) != c.good {
			t.Errorf("%s for usage %v and host %q: %v", c.name, c.usage, c.host, err)
		}
	}
}

func TestEnsureRefusesNonsense(t *testing.T) {
	t.Parallel()
	for name, certificate := range map[string]pki.Certificate{
		"unknown authority": {Name: "x", Authority: "nobody", Client: true},
		"no purpose":        {Name: "x", Authority: "ca"},
		"bad address":       {Name: "x", Authority: "ca", IPs: []string{"localhost"}},
	} {
		bad := pki.Plan{Authorities: []string{"ca"}, Certificates: []pki.Certificate{certificate}}
		if err := pki.Ensure(t.TempDir(), bad, time.Now()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
