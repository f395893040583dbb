// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/nodesync/controller"
)

// journalOf parses flags as the controller and apply do.
func journalOf(t *testing.T, args ...string) *options {
	t.Helper()
	o, fs := newOptions(), pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.StringVar(&o.manager.LeaderElectionNamespace, "leader-election-namespace", "", "")
	o.journal.addFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

// Which journal is meant, by what is said and what is not.
func TestWhichJournal(t *testing.T) {
	t.Parallel()
	dir, namespace := "--journal-dir="+t.TempDir(), "--leader-election-namespace=ns"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing is said":                 {nil, journalNone},
		"a namespace is known":            {[]string{namespace}, journalConfigMaps},
		"a folder alone means the folder": {[]string{dir}, journalFolder},
		"a folder and a namespace":        {[]string{dir, namespace}, journalFolder},
		"the folder, by name":             {[]string{dir, namespace, "--journal=folder"}, journalFolder},
		"ConfigMaps, by name":             {[]string{namespace, "--journal=configmaps"}, journalConfigMaps},
		"none, though there is a place":   {[]string{namespace, "--journal=none"}, journalNone},
	} {
		o := journalOf(t, c.args...)
		if err := o.journal.validate(o.manager.Namespace()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		journal, err := o.newJournal(&rest.Config{Host: "https://192.0.2.1"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := journalNone
		switch j := journal.(type) {
		case controller.FolderJournal:
			got = journalFolder
		case *controller.ConfigMapJournal:
			got = journalConfigMaps
			if j.Namespace != "ns" || j.MaxEntries != 500 || j.Retention.Hours() != 720 {
				t.Errorf("%s: %+v", name, j)
			}
		}
		if got != c.want || o.keepsNoJournal() != (c.want == journalNone) {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

// Contradictions are refused with one sentence, by the program as a whole, before anything has started.
func TestContradictingJournals(t *testing.T) {
	t.Parallel()
	dir := "--journal-dir=" + t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"an unknown one":             {[]string{"--journal=disk"}, `--journal "disk" is unknown: it must be configmaps, folder or none`},
		"a folder that is not named": {[]string{"--journal=folder"}, "--journal=folder needs --journal-dir"},
		"ConfigMaps and a folder":    {[]string{"--journal=configmaps", dir, "--leader-election-namespace=a"}, "contradict each other: drop one of them"},
		"none and a folder":          {[]string{"--journal=none", dir}, "contradict each other: drop one of them"},
		"ConfigMaps, nobody knows where": {[]string{"--journal=configmaps"},
			"--journal=configmaps needs --leader-election-namespace outside of a Pod"},
		"a folder that is not there": {[]string{"--journal-dir=/nowhere"}, `--journal-dir "/nowhere" cannot be written`},
		"no retention at all":        {[]string{"--journal-retention=0s"}, "--journal-retention is 0s: it must be at least 1h"},
		"no entry at all":            {[]string{"--journal-max-entries=0"}, "--journal-max-entries is 0: it must be at least 1"},
	} {
		code, out := program(t, []string{"ETCD_ENDPOINTS=http://127.0.0.1:1"}, c.args...)
		if code != 1 || !strings.HasPrefix(out, "error: ") || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: got exit code %d and %q, want 1 and one line with %q", name, code, out, c.want)
		}
	}
}

// The flags of the journal and of Events are a contract with manifests: names and defaults.
func TestJournalFlags(t *testing.T) {
	t.Parallel()
	flags := NewCommand().Flags()
	for name, want := range map[string]string{
		"journal": "", "journal-dir": "", "journal-retention": "720h0m0s", "journal-max-entries": "500", "events-deployment": "calico-node-sync",
	} {
		if f := flags.Lookup(name); f == nil || f.DefValue != want {
			t.Errorf("--%s: got %+v, want the default %q", name, f, want)
		}
	}
}
