// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/lab/internal/cli"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// run runs the command line in this process, for what ends before a process is started.
func run(settings cli.Settings, args ...string) (output string, err error) {
	command := cli.NewCommand(settings)
	var buffer bytes.Buffer
	command.SetOut(&buffer)
	command.SetErr(&buffer)
	command.SetIn(strings.NewReader(""))
	command.SetArgs(args)
	err = command.Execute()
	return buffer.String(), err
}

// settings are those of the real command, but no process can be started by mistake.
func settings() cli.Settings {
	s := cli.DefaultSettings()
	s.Executable = func() (string, error) { return "/nothing/lab", nil }
	return s
}

func foreignListener(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// Each bad request gets one sentence that names the cause and the next step, and leaves nothing behind.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	port := foreignListener(t)
	full := settings()
	full.MinFreeBytes = 1 << 62
	for name, c := range map[string]struct {
		settings cli.Settings
		args     []string
		want     []string
	}{
		"unknown flag":      {settings(), []string{"up", "--foo"}, []string{"unknown flag: --foo", "see `lab up --help`"}},
		"unknown command":   {settings(), []string{"begin"}, []string{`command "begin" is unknown`, "see `lab --help`"}},
		"stray argument":    {settings(), []string{"up", "now"}, []string{`argument "now" is not expected`, "see `lab up --help`"}},
		"negative nodes":    {settings(), []string{"up", "--foreground", "--nodes=-1"}, []string{"--nodes -1 is negative", "use 0 or more"}},
		"unknown datastore": {settings(), []string{"up", "--foreground", "--calico-datastore=etcd"}, []string{"--calico-datastore", "use etcdv3, kubernetes or none"}},
		"contradiction": {settings(), []string{"up", "--foreground", "--calico-datastore=none", "--components=etcd,calico-etcd"},
			[]string{"--calico-datastore is none", "leave calico-etcd out"}},
		"stdin without foreground": {settings(), []string{"up", "--stop-with-stdin"}, []string{"--stop-with-stdin", "add --foreground"}},
		"occupied port": {settings(), []string{"up", "--foreground", "--apiserver-port=" + port},
			[]string{"port " + port, "already in use", "choose another port"}},
		"unwritable folder": {settings(), []string{"up", "--foreground", "--dir", file + "/lab"}, []string{"cannot be made", "choose another with --dir"}},
		"folder is a file":  {settings(), []string{"up", "--foreground", "--dir", file}, []string{"cannot be", "choose another with --dir"}},
		"foreign folder":    {settings(), []string{"up", "--foreground", "--dir", foreign}, []string{"not a lab's", "choose an empty or a new folder"}},
		"foreign folder to delete": {settings(), []string{"down", "--delete", "--dir", foreign},
			[]string{"not a lab's"}},
		"little disk":     {full, []string{"up", "--foreground"}, []string{"MiB free", "free some space or choose another folder"}},
		"no program":      {settings(), []string{"up", "--foreground", "--with=calico-node-sync"}, []string{"/nothing/calico-node-sync is not there", "make build"}},
		"demo no program": {settings(), []string{"demo"}, []string{"/nothing/calico-node-sync is not there", "make build"}},
		"status":          {settings(), []string{"status"}, []string{"no lab runs in", "start one with `lab up"}},
		"kill":            {settings(), []string{"kill", "etcd"}, []string{"no lab runs in", "start one with `lab up"}},
		"kill what":       {settings(), []string{"kill"}, []string{"exactly one name of a process", "see `lab kill --help`"}},
		"node":            {settings(), []string{"node", "add", "x"}, []string{"there is no lab in", "start one with `lab up"}},
		"logs":            {settings(), []string{"logs"}, []string{"there are no logs in", "start a lab with `lab up"}},
		"kubeconfig":      {settings(), []string{"kubeconfig"}, []string{"there is no kubeconfig in", "start a lab with `lab up"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "new", "lab")
			args := c.args
			if !strings.Contains(strings.Join(args, " "), "--dir") {
				args = append(args, "--dir", dir)
			}
			_, err := run(c.settings, args...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the message does not say %q: %v", want, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the message is more than one sentence: %v", err)
			}
			if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something is left: %v", err)
			}
			if _, err := os.Stat(filepath.Join(foreign, "thesis.txt")); err != nil {
				t.Fatalf("somebody's file: %v", err)
			}
		})
	}
}

func TestBusyFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "lab")
	claimed, err := folder.Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = claimed.Release() }()
	_, err = run(settings(), "up", "--foreground", "--dir", dir)
	if err == nil || !strings.Contains(err.Error(), "already runs in "+dir+"; stop it with `lab down --dir "+dir+"`") {
		t.Errorf("error: %v", err)
	}
	if _, err := run(settings(), "down", "--delete", "--dir", dir); err == nil {
		t.Error("the folder of a running lab was deleted")
	}
}

func TestDownIsIdempotent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "lab")
	for range 2 {
		output, err := run(settings(), "down", "--delete", "--dir", dir)
		if err != nil || !strings.Contains(output, "nothing runs in") {
			t.Errorf("down of nothing: %q, %v", output, err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("down made something: %v", err)
	}
}

func TestDryRunPrintsAndMakesNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "lab")
	output, err := run(settings(), "up", "--dry-run", "--dir", dir, "--calico-datastore=none")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: kube-apiserver", "--authorization-mode=Node,RBAC", "<free port for etcd-client>", "dependsOn:"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output does not contain %q", want)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dry run made something: %v", err)
	}
}
