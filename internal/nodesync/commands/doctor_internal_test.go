// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// Files that hold no certificate, or no key to it, are findings.
func TestDoctorReadsCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, empty := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "empty")
	testkit.WriteCA(t, ca)
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	expect := func(x *examination, severity finding.Severity, what string) {
		t.Helper()
		e := doctor.Evidence{Now: time.Now()}
		x.gatherCertificates(&e)
		findings := doctor.Findings(e)
		for _, f := range findings {
			if f.Check == doctor.CheckCertificates && f.Severity == severity && strings.Contains(f.What, what) {
				return
			}
		}
		t.Errorf("no finding %s: %q in:\n%s", severity, what, finding.Text(findings))
	}
	x := &examination{}
	x.config.Etcd.CACertFile, x.config.Etcd.CertFile, x.config.Etcd.KeyFile = ca, ca, empty
	expect(x, finding.Warning, "ETCD_CA_CERT_FILE ("+ca+") ends at ")
	expect(x, finding.Problem, "ETCD_CERT_FILE ("+ca+") cannot be used: tls: ")
	x.config.Etcd.CACertFile = empty
	expect(x, finding.Problem, "it holds no certificate")
}
