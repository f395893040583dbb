// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package certreload_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mooring-dev/mooring/internal/platform/certreload"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// patience ends a test that waits in vain; nothing asserts how long anything takes.
const patience = 30 * time.Second

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	p, q := ca.issue(t, 1), other.issue(t, 2)
	tests := map[string]struct {
		change func(t *testing.T, f folder) certreload.Files
		want   string
	}{
		"nothing":        {func(*testing.T, folder) certreload.Files { return certreload.Files{} }, "neither a key pair nor a CA bundle is given"},
		"half a pair":    {func(_ *testing.T, f folder) certreload.Files { return certreload.Files{Cert: f.path("tls.crt")} }, "must be given together"},
		"a missing file": {func(_ *testing.T, f folder) certreload.Files { _ = os.Remove(f.path("tls.key")); return f.files() }, "tls.key: no such file"},
		"another key": {func(t *testing.T, f folder) certreload.Files {
			t.Helper()
			f.put(t, "tls.key", q.key)
			return f.files()
		}, "private key does not match"},
		"no certificate": {func(t *testing.T, f folder) certreload.Files {
			t.Helper()
			f.put(t, "tls.crt", p.key)
			return f.files()
		}, "tls.crt: no PEM certificate found"},
		"an empty CA": {func(t *testing.T, f folder) certreload.Files { t.Helper(); f.put(t, "ca.crt", nil); return f.files() }, "ca.crt: no PEM certificate found"},
		"a broken CA": {func(t *testing.T, f folder) certreload.Files {
			t.Helper()
			f.put(t, "ca.crt", encode("CERTIFICATE", []byte("x")))
			return f.files()
		}, "ca.crt: x509: "},
		"a half-written CA": {func(t *testing.T, f folder) certreload.Files {
			t.Helper()
			f.put(t, "ca.crt", bundle(ca, other)[:len(ca.pem)+100])
			return f.files()
		}, "ca.crt: the last PEM block is incomplete"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := certreload.New(tt.change(t, newFolder(t, p, ca.pem)), certreload.Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("New() = %v, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestBadFilesKeepTheLastGoodSet(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	first, second := ca.issue(t, 1), ca.issue(t, 2)
	var reports []string
	f := newFolder(t, first, ca.pem)
	r := newReloader(t, f.files(), certreload.Options{OnReload: func(err error) {
		if err != nil {
			reports = append(reports, "error")
			return
		}
		reports = append(reports, "ok")
	}})
	before := r.Current()

	// The order in which files are usually replaced, with every state between.
	f.put(t, "tls.crt", second.cert)
	for range 3 {
		mustReject(t, r, "a new certificate with the old key")
	}
	for cut := range len(second.key) - len("\n") {
		f.put(t, "tls.key", second.key[:cut])
		mustReject(t, r, fmt.Sprintf("a key cut at %d", cut))
	}
	if r.Current() != before {
		t.Fatal("bad files replaced the snapshot")
	}
	f.put(t, "tls.key", second.key)
	if changed, err := r.Reload(); !changed || err != nil || serial(r) != 2 {
		t.Fatalf("a complete set: changed %v, err %v, serial %d", changed, err, serial(r))
	}
	after := r.Current()
	if changed, err := r.Reload(); changed || err != nil || r.Current() != after {
		t.Fatalf("the same set again: changed %v, err %v", changed, err)
	}
	// An error is reported once, not at each attempt; the good end is reported once.
	if got := strings.Join(reports, " "); !strings.HasPrefix(got, "error error") || !strings.HasSuffix(got, "error ok") || strings.Count(got, "error") > 4 {
		t.Errorf("reports: %s", got)
	}
}

func mustReject(t *testing.T, r *certreload.Reloader, what string) {
	t.Helper()
	if changed, err := r.Reload(); changed || err == nil {
		t.Fatalf("%s: changed %v, err %v", what, changed, err)
	}
}

func TestReportsRecoveryWithoutChange(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	p := ca.issue(t, 1)
	var reports []bool
	f := newFolder(t, p, ca.pem)
	r := newReloader(t, f.files(), certreload.Options{OnReload: func(err error) { reports = append(reports, err == nil) }})
	f.put(t, "ca.crt", nil)
	_, _ = r.Reload()
	f.put(t, "ca.crt", ca.pem)
	if changed, err := r.Reload(); changed || err != nil {
		t.Errorf("Reload() = %v, %v", changed, err)
	}
	if len(reports) != 2 || reports[0] || !reports[1] {
		t.Errorf("reports (true is good): %v", reports)
	}
}

// running starts Run and stops it at the end of the test; the channel receives every report.
func running(t *testing.T, files certreload.Files, o certreload.Options) (*certreload.Reloader, <-chan error) {
	t.Helper()
	reports := make(chan error, 100)
	o.OnReload = func(err error) { reports <- err }
	r := newReloader(t, files, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return r, reports
}

func waitForSerial(t *testing.T, r *certreload.Reloader, reports <-chan error, want int64) {
	t.Helper()
	timeout := time.After(patience)
	var last error
	for serial(r) != want {
		select {
		case last = <-reports:
		case <-timeout:
			t.Fatalf("still serving %d instead of %d; last report: %v", serial(r), want, last)
		}
	}
}

// mountSecret lays files out as the kubelet does: DIR/..data -> DIR/GENERATION, DIR/tls.crt -> ..data/tls.crt.
func mountSecret(t *testing.T, dir, generation string, p pair, ca []byte) {
	t.Helper()
	real := folder(filepath.Join(dir, generation))
	must.Do(t, os.Mkdir(string(real), 0o700))
	real.write(t, p, ca)
	temporary := filepath.Join(dir, "..data_tmp")
	must.Do(t, os.Symlink(generation, temporary))
	must.Do(t, os.Rename(temporary, filepath.Join(dir, "..data")))
}

func TestFollowsTheSymlinkSwap(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	mountSecret(t, dir, "..1", ca.issue(t, 1), ca.pem)
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		must.Do(t, os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)))
	}
	// The interval is out of reach: only events can bring the news.
	r, reports := running(t, folder(dir).files(), certreload.Options{Interval: 24 * time.Hour})
	for n, generation := range []string{"..2", "..3", "..4"} {
		want := int64(n + 2)
		mountSecret(t, dir, generation, ca.issue(t, want), ca.pem)
		waitForSerial(t, r, reports, want)
	}
}

func TestFollowsFilesWrittenInPlace(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	f := newFolder(t, ca.issue(t, 1), ca.pem)
	r, reports := running(t, f.files(), certreload.Options{Interval: 24 * time.Hour})
	for want := int64(2); want < 6; want++ {
		f.write(t, ca.issue(t, want), ca.pem)
		waitForSerial(t, r, reports, want)
	}
}

// The watch is on the directory that the link pointed to at first; only the periodic read sees the
// link's new target, and it must watch that one from then on.
func TestPeriodicReadIsASafetyNet(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	root := t.TempDir()
	link := filepath.Join(root, "current")
	point := func(to string) {
		t.Helper()
		temporary := filepath.Join(root, "tmp")
		must.Do(t, os.Symlink(to, temporary))
		must.Do(t, os.Rename(temporary, link))
	}
	first, second := newFolder(t, ca.issue(t, 1), ca.pem), newFolder(t, ca.issue(t, 2), ca.pem)
	point(string(first))
	ticks := make(chan time.Time)
	r, reports := running(t, folder(link).files(), certreload.Options{
		Interval: time.Minute, Ticks: func(time.Duration) (<-chan time.Time, func()) { return ticks, func() {} },
	})
	point(string(second))
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for serial(r) != 2 {
		select {
		case ticks <- time.Time{}:
		case <-deadline.C:
			t.Fatal("the periodic read did not find the new files")
		}
	}
	second.write(t, ca.issue(t, 3), ca.pem) // no step of the clock: by event
	waitForSerial(t, r, reports, 3)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	f := newFolder(t, ca.issue(t, 1), ca.pem)
	r := newReloader(t, f.files(), certreload.Options{})
	f.put(t, "tls.key", nil)
	_, _ = r.Reload()
	_, _ = r.Reload()
	f.write(t, ca.issue(t, 2), ca.pem)
	_, _ = r.Reload()
	const want = `
# HELP mooring_certreload_failing 1 while the last read of the TLS files was rejected and an older set is in use, else 0.
# TYPE mooring_certreload_failing gauge
mooring_certreload_failing{certificate="metrics"} 0
# HELP mooring_certreload_not_after_timestamp_seconds Expiry of the certificate in use, in seconds since the epoch.
# TYPE mooring_certreload_not_after_timestamp_seconds gauge
mooring_certreload_not_after_timestamp_seconds{certificate="metrics"} 4e+09
# HELP mooring_certreload_reloads_total Reads of the TLS files that were accepted (success) or rejected (failure).
# TYPE mooring_certreload_reloads_total counter
mooring_certreload_reloads_total{certificate="metrics",outcome="failure"} 2
mooring_certreload_reloads_total{certificate="metrics",outcome="success"} 2
`
	names := []string{"mooring_certreload_failing", "mooring_certreload_not_after_timestamp_seconds", "mooring_certreload_reloads_total"}
	if err := testutil.CollectAndCompare(r.Collector("metrics"), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	f.put(t, "ca.crt", nil)
	_, _ = r.Reload()
	const failing = `
# HELP mooring_certreload_failing 1 while the last read of the TLS files was rejected and an older set is in use, else 0.
# TYPE mooring_certreload_failing gauge
mooring_certreload_failing{certificate="metrics"} 1
`
	if err := testutil.CollectAndCompare(r.Collector("metrics"), strings.NewReader(failing), "mooring_certreload_failing"); err != nil {
		t.Error(err)
	}
	f.put(t, "ca.crt", ca.pem)
	onlyCA := newReloader(t, certreload.Files{CA: f.path("ca.crt")}, certreload.Options{})
	if got := testutil.CollectAndCount(onlyCA.Collector("ca")); got != 4 || !onlyCA.Current().NotAfter().IsZero() {
		t.Errorf("a CA alone gives %d metrics, expiry %s", got, onlyCA.Current().NotAfter())
	}
}

// The CA that lasts longest counts: the old one of a rotation is meant to run out.
func TestExpiryOfABundle(t *testing.T) {
	t.Parallel()
	short, long := newAuthority(t, "short"), newAuthorityUntil(t, "long", time.Unix(4_000_000_000, 0))
	for name, cas := range map[string][]byte{"short first": bundle(short, long), "long first": bundle(long, short)} {
		f := newFolder(t, short.issue(t, 1), cas)
		now := newReloader(t, f.files(), certreload.Options{}).Current()
		if got := now.CANotAfter().Unix(); got != 4_000_000_000 || len(now.Bundle) != 2 {
			t.Errorf("%s: got expiry %d of %d CAs", name, got, len(now.Bundle))
		}
	}
}

// What the caller refuses is treated as what does not parse: an error at the start, the last good set later.
func TestCheckKeepsTheLastGoodSet(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	f := newFolder(t, ca.issue(t, 1), ca.pem)
	odd := func(s *certreload.Snapshot, now time.Time) error {
		if now.IsZero() || s.Certificate.Leaf.SerialNumber.Int64()%2 == 0 {
			return errors.New("even")
		}
		return nil
	}
	r := newReloader(t, f.files(), certreload.Options{Check: odd})
	f.write(t, ca.issue(t, 2), ca.pem)
	if changed, err := r.Reload(); changed || err == nil || err.Error() != "even" || serial(r) != 1 {
		t.Errorf("Reload() = %v, %v; serving %d", changed, err, serial(r))
	}
	if _, err := certreload.New(f.files(), certreload.Options{Check: odd}); err == nil || err.Error() != "even" {
		t.Errorf("New() = %v", err)
	}
	f.write(t, ca.issue(t, 3), ca.pem)
	mustReload(t, r)
	if serial(r) != 3 {
		t.Errorf("serving %d", serial(r))
	}
}
