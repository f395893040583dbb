// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/bgp/command"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
)

// run runs a command line of a root command with --dir.
func run(t *testing.T, dir string, args ...string) error {
	t.Helper()
	root := &cobra.Command{Use: "lab", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().String("dir", "", "")
	root.AddCommand(command.Commands("MOORING_LAB_DIR_OF_A_TEST", ".lab")...)
	root.SetArgs(append(args, "--dir", dir))
	root.SetOut(&bytes.Buffer{})
	return root.ExecuteContext(t.Context())
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	empty, used := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(command.Folder(used), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(command.Folder(used), network.SocketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	etcd := t.TempDir()
	for path, text := range map[string]string{filepath.Join(command.Folder(etcd), network.SocketName): "", filepath.Join(etcd, "lab.json"): `{"calicoDatastore":"etcdv3"}`} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	const scenarios = "give one of the scenarios idle, enable, steady, replace-one, replace-all, grow, shrink, disable"
	for _, test := range []struct {
		dir  string
		args []string
		want string
	}{
		{empty, []string{"probe"}, "no BGP network runs in " + empty + "; start one with `lab up --network bgp --dir " + empty + "`"},
		{used, []string{"probe", "-o", "xml"}, `--output "xml" is unknown; use text or json`},
		{used, []string{"scenario"}, scenarios},
		{used, []string{"scenario", "dance"}, scenarios},
		{used, []string{"scenario", "idle", "-o", "xml"}, `--output "xml" is unknown; use text or json`},
		{used, []string{"scenario", "enable", "--kill-at", "-1"}, "--kill-at and --kill-delay: must not be negative"},
		{used, []string{"scenario", "enable", "--kill-delay", "-1s"}, "--kill-at and --kill-delay: must not be negative"},
		{used, []string{"scenario", "enable", "--burst", "--kill-at", "1"}, "--kill-at: with --burst there is no operator to kill"},
		{etcd, []string{"scenario", "enable"}, "scenarios are for Calico's kubernetes datastore, and this lab has etcdv3; make a lab with `lab up --network bgp` alone"},
	} {
		if err := run(t, test.dir, test.args...); err == nil || err.Error() != test.want {
			t.Errorf("lab %v: %v\nwant: %s", test.args, err, test.want)
		}
	}
}
