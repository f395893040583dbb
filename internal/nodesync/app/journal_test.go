// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// journalOf parses flags as the controller and apply do.
func journalOf(t *testing.T, args ...string) *options {
	t.Helper()
	o, fs := newOptions(), pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.StringVar(&o.manager.LeaderElectionNamespace, "leader-election-namespace", "", "")
	o.journal.addFlags(fs)
	must.Do(t, fs.Parse(args))
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
