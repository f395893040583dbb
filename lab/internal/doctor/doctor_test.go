// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/lab/internal/doctor"
)

func healthy() doctor.Facts {
	return doctor.Facts{
		OS: "linux", Arch: "amd64", CPUs: 2, GoVersion: "go1.26.8", GoWanted: "1.26", GoIsUsable: true,
		MemoryBytes: 8 << 30, MemoryKnown: true, DiskBytes: 8 << 30, DiskKnown: true, DiskWanted: 1 << 30,
		Compiler: "/usr/bin/cc", Bird: "/usr/sbin/bird", Make: "/usr/bin/make", Git: "/usr/bin/git", Templates: "/confd",
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil   func(*doctor.Facts)
		subject string
		verdict doctor.Verdict
	}{
		"not Linux":       {func(f *doctor.Facts) { f.OS = "darwin" }, "system", doctor.Bad},
		"one CPU":         {func(f *doctor.Facts) { f.CPUs = 1 }, "system", doctor.Lack},
		"no Go":           {func(f *doctor.Facts) { f.GoVersion = "" }, "go", doctor.Lack},
		"old Go":          {func(f *doctor.Facts) { f.GoIsUsable = false }, "go", doctor.Lack},
		"little memory":   {func(f *doctor.Facts) { f.MemoryBytes = 1 << 20 }, "memory", doctor.Lack},
		"little disk":     {func(f *doctor.Facts) { f.DiskBytes = 1 << 20 }, "disk", doctor.Bad},
		"unknown disk":    {func(f *doctor.Facts) { f.DiskKnown = false }, "disk", doctor.Lack},
		"no ports":        {func(f *doctor.Facts) { f.PortsError = errors.New("no") }, "ports", doctor.Bad},
		"no namespaces":   {func(f *doctor.Facts) { f.NetworkError = errors.New("no") }, "namespaces", doctor.Lack},
		"no real nodes":   {func(f *doctor.Facts) { f.RealNodesError = errors.New("no") }, "real machines", doctor.Lack},
		"no templates":    {func(f *doctor.Facts) { f.TemplatesError = errors.New("no") }, "confd", doctor.Lack},
		"no C compiler":   {func(f *doctor.Facts) { f.Compiler = "" }, "C compiler", doctor.Lack},
		"no bird":         {func(f *doctor.Facts) { f.Bird = "" }, "bird", doctor.Lack},
		"nothing missing": {func(*doctor.Facts) {}, "", doctor.Good},
	} {
		facts := healthy()
		c.spoil(&facts)
		findings := doctor.Judge(facts)
		if got, want := doctor.Healthy(findings), c.verdict != doctor.Bad; got != want {
			t.Errorf("%s: healthy is %v", name, got)
		}
		for _, finding := range findings {
			want := doctor.Good
			if finding.Subject == c.subject {
				want = c.verdict
			}
			if finding.Verdict != want {
				t.Errorf("%s: %s is judged %s, want %s", name, finding.Subject, finding.Verdict, want)
			}
			if (finding.Verdict == doctor.Good) != (finding.Cost == "") {
				t.Errorf("%s: %s: a cost belongs to what is missing, and only to that: %+v", name, finding.Subject, finding)
			}
		}
	}
}

// The machine that runs this test runs labs, so it must be found healthy, and looking must leave nothing behind.
func TestExamineThisMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	refused := errors.New("refused")
	facts := doctor.Examine(t.Context(), dir+"/not/there/yet",
		func(context.Context) error { return refused }, func() error { return refused })
	if !errors.Is(facts.NetworkError, refused) || !errors.Is(facts.RealNodesError, refused) || (facts.Templates == "") == (facts.TemplatesError == nil) {
		t.Errorf("facts of the network: %+v", facts)
	}
	if facts.PortsError != nil || !facts.DiskKnown || !facts.MemoryKnown || facts.GoVersion == "" {
		t.Errorf("facts: %+v", facts)
	}
}

// What the BGP network lacks names what to install, and what is tested without it.
func TestNoBird(t *testing.T) {
	t.Parallel()
	facts := healthy()
	facts.Bird = ""
	for _, finding := range doctor.Judge(facts) {
		if finding.Subject != "bird" {
			continue
		}
		for _, want := range []string{"Debian's package bird, not bird2", "--network bgp", "the operator's logic is tested with simulated statuses only"} {
			if !strings.Contains(finding.Cost, want) {
				t.Errorf("the cost does not say %q: %s", want, finding.Cost)
			}
		}
	}
}
