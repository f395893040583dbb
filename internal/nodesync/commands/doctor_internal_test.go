// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Files that hold no certificate, or no key to it, are findings.
func TestDoctorReadsCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, empty := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "empty")
	testkit.WriteCA(t, ca)
	must.Do(t, os.WriteFile(empty, nil, 0o600))
	expect := func(x *examination, severity finding.Severity, what string) {
		t.Helper()
		e := doctor.Evidence{Now: time.Now()}
		x.gatherCertificates(&e)
		findings := doctor.Findings(e)
		for _, f := range findings {
			if f.Check == "certificates" && f.Severity == severity && strings.Contains(f.What, what) {
				return
			}
		}
		t.Errorf("no finding %s: %q in:\n%s", severity, what, finding.Text(findings, 0))
	}
	x := &examination{}
	x.config.Etcd.CACertFile, x.config.Etcd.CertFile, x.config.Etcd.KeyFile = ca, ca, empty
	expect(x, finding.OK, "of ETCD_CA_CERT_FILE ("+ca+"), on ")
	expect(x, finding.Problem, "ETCD_CERT_FILE ("+ca+") cannot be used: tls: ")
	x.config.Etcd.CACertFile = empty
	expect(x, finding.Problem, "ETCD_CA_CERT_FILE ("+empty+") has no certificate where one is expected")
}

// A question that the end of the examination cut short was not asked; one that took too long by itself has failed.
func TestQuestionsThatAreCutShort(t *testing.T) {
	t.Parallel()
	wait := func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }
	if a := askFor(t.Context(), time.Millisecond, wait); !a.Asked || a.Failure != "no response in time" {
		t.Errorf("too long: %+v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if a := askFor(ctx, time.Hour, func(ctx context.Context) (int, error) { cancel(); return wait(ctx) }); a.Asked {
		t.Errorf("cut short: %+v", a)
	}
	if a := askFor(ctx, time.Hour, func(context.Context) (int, error) { return 0, errors.New("asked") }); a.Asked {
		t.Errorf("after the end: %+v", a)
	}
}
