// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/bgp/speaker"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/cli"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/realnode"
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
	s.FindTools = func(context.Context) (network.Tools, error) {
		return network.Tools{Templates: "/templates", Bird: "/usr/sbin/bird", Bird6: "/usr/sbin/bird6"}, nil
	}
	s.TryNetwork = func(context.Context, string) error { return nil }
	s.TryRealNodes = func(string) error { return nil }
	s.OnTerminal = func() bool { return false }
	s.Browse = func(context.Context, string) error { return errors.New("there is no desktop in a test") }
	return s
}

// withoutRunc are settings on a machine where machines cannot be real.
func withoutRunc() cli.Settings {
	s := settings()
	s.TryRealNodes = func(string) error { return realnode.Judge(realnode.Facts{Root: true, Missing: []string{"runc"}}) }
	return s
}

// without are settings on a machine that lacks something for the BGP network.
func without(tools, permission error) cli.Settings {
	s := settings()
	s.FindTools = func(context.Context) (network.Tools, error) { return network.Tools{}, tools }
	s.TryNetwork = func(context.Context, string) error { return permission }
	return s
}

func foreignListener(t *testing.T) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp4", "127.0.0.1:0")).Or(t)
	t.Cleanup(func() { _ = listener.Close() })
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

// Each bad request gets one sentence that names the cause and the next step, and leaves nothing behind.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	foreign := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(foreign, "thesis.txt"), nil, 0o600))
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
		"no API server":   {settings(), []string{"up", "--foreground", "--kube-apiserver", file}, []string{"--kube-apiserver " + file + " is not a program", "leave it out for the lab's own"}},
		"no program":      {settings(), []string{"up", "--foreground", "--with=calico-node-sync"}, []string{"/nothing/calico-node-sync is not there", "make build"}},
		"demo no program": {settings(), []string{"demo"}, []string{"/nothing/calico-node-sync is not there", "make build"}},
		"status":          {settings(), []string{"status"}, []string{"no lab runs in", "start one with `lab up"}},
		"kill":            {settings(), []string{"kill", "etcd"}, []string{"no lab runs in", "start one with `lab up"}},
		"kill what":       {settings(), []string{"kill"}, []string{"exactly one name of a process", "see `lab kill --help`"}},
		"node":            {settings(), []string{"node", "add", "x"}, []string{"there is no lab in", "start one with `lab up"}},
		"droplet":         {settings(), []string{"droplet", "delete", "x"}, []string{"no lab runs in", "start one with `lab up"}},
		"droplets":        {settings(), []string{"droplet", "list"}, []string{"no lab runs in", "start one with `lab up"}},
		"load balancers":  {settings(), []string{"load-balancer", "list"}, []string{"no lab runs in", "start one with `lab up"}},
		"droplet format":  {settings(), []string{"droplet", "list", "-o", "yaml"}, []string{`--output "yaml" is unknown`, "use json"}},
		"droplet what":    {settings(), []string{"droplet", "create"}, []string{"exactly one name of a droplet", "see `lab droplet create --help`"}},
		"droplet deed":    {settings(), []string{"droplet", "explode", "x"}, []string{`argument "explode" is not expected`, "see `lab droplet --help`"}},
		"unknown cloud":   {settings(), []string{"up", "--foreground", "--cloud=aws"}, []string{`--cloud "aws" is unknown`, "use digitalocean or none"}},
		"cloud not built": {settings(), []string{"up", "--foreground", "--cloud=digitalocean"}, []string{"digitalocean-cloud-controller-manager", "make build", "--cloud none"}},
		"unknown network": {settings(), []string{"up", "--foreground", "--network=vxlan"}, []string{`--network "vxlan" is unknown`, "use bgp or loopback"}},
		"network without bird": {without(speaker.ErrNoBird, nil), []string{"up", "--network=bgp"},
			[]string{"--network bgp: the BGP network needs bird 1.6, which is Debian's package bird, not bird2", "the operator's logic is still tested"}},
		"network without permission": {without(nil, netns.ErrNotAllowed), []string{"up", "--network=bgp"},
			[]string{"--network bgp: network namespaces may not be made here; run as root, or allow unprivileged user namespaces"}},
		"network without templates": {without(errors.New("no templates"), nil), []string{"up", "--network=bgp", "--dry-run"}, []string{"--network bgp: no templates"}},
		"large network": {settings(), []string{"up", "--foreground", "--network=bgp", "--nodes=51"},
			[]string{"--nodes 51 is more than the BGP network can hold; use at most 50, or --network loopback"}},
		"network without Calico": {settings(), []string{"up", "--foreground", "--network=bgp", "--calico-datastore=none"},
			[]string{"--network bgp needs a datastore that Calico's confd reads", "use --calico-datastore kubernetes or etcdv3, or leave it out"}},
		"page alongside real machines": {settings(), []string{"up", "--foreground", "--real-nodes=1", "--page"},
			[]string{"--page and real machines exclude each other", "run `kubectl mooring ui --kubeconfig $(lab kubeconfig)`"}},
		"page not built": {settings(), []string{"up", "--foreground", "--page"}, []string{"--page needs kubectl-mooring alongside the lab's own binary", "make build"}},
		"page of no cluster": {settings(), []string{"up", "--foreground", "--page", "--components=etcd", "--calico-datastore=none"},
			[]string{"page cannot run without kube-apiserver; add kube-apiserver to --components"}},
		"real machines without runc": {withoutRunc(), []string{"up", "--real-nodes=1"},
			[]string{"--real-nodes: real machines need runc; run `apt-get install -y --no-install-recommends runc`"}},
		"an image that does not exist": {settings(), []string{"up", "--real-nodes=1", "--image-archive=/nothing/web.tar"},
			[]string{"there is no image archive /nothing/web.tar; build it with `make images BINARY=web`"}},
		"an image that is not built": {settings(), []string{"up", "--real-nodes=1", "--image=mooring/etcd-storage-proxy:dev"},
			[]string{"/nothing/etcd-storage-proxy is not built; run `make build`"}},
		"an image of what does not exist": {settings(), []string{"up", "--real-nodes=1", "--image=web:v1=/nothing/web"}, []string{"/nothing/web is not built"}},
		"an image of no program":          {settings(), []string{"up", "--real-nodes=1", "--image=web:v1=" + file}, []string{"is not a program", "name a static program"}},
		"an image that is always pulled":  {settings(), []string{"up", "--real-nodes=1", "--image=web=/nothing/web"}, []string{"has no tag but latest", "such as web:lab"}},
		"an image of no archive": {settings(), []string{"up", "--real-nodes=1", "--image=mooring/web=/nothing/web.tar"},
			[]string{"there is no image archive /nothing/web.tar; build it with `make images BINARY=web`"}},
		"an image of an archive with a tag":   {settings(), []string{"up", "--real-nodes=1", "--image=web:v1=/nothing/web.tar"}, []string{"leave out :v1"}},
		"an image without a name":             {settings(), []string{"up", "--real-nodes=1", "--image==/bin/true"}, []string{"is not of the form NAME:TAG=/PATH/OF/PROGRAM"}},
		"real machines in a folder they hide": {settings(), []string{"up", "--real-nodes=1", "--dir=/var/lib/nothing"}, []string{"choose another folder with --dir"}},
		"real machines on the BGP network":    {settings(), []string{"up", "--foreground", "--real-nodes=1", "--network=bgp"}, []string{"--network bgp and --real-nodes exclude each other"}},
		"occupied port of real machines": {settings(), []string{"up", "--foreground", "--real-nodes=1", "--apiserver-port=" + port},
			[]string{"port " + port, "already in use", "choose another port"}},
		"inside of nothing": {settings(), []string{"up", "--foreground", "--real-nodes=1", "--inside="}, []string{"it is not a new one, as lo is on"}},
		"inside of what": {settings(), []string{"up", "--foreground", "--real-nodes=1", "--inside=a=b"},
			[]string{`--inside: "a=b" is not name=descriptor; this flag is for the lab itself`}},
		"logs":       {settings(), []string{"logs"}, []string{"there are no logs in", "start a lab with `lab up"}},
		"kubeconfig": {settings(), []string{"kubeconfig"}, []string{"there is no kubeconfig in", "start a lab with `lab up"}},
		"env":        {settings(), []string{"env"}, []string{"there is no lab in", "start one with `lab up"}},
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
	must.Do(t, err)
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
	output := must.Get(run(settings(), "up", "--dry-run", "--dir", dir, "--calico-datastore=none")).Or(t)
	for _, want := range []string{"name: kube-apiserver", "--authorization-mode=Node,RBAC", "<free port for etcd-client>", "dependsOn:"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output does not contain %q", want)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dry run made something: %v", err)
	}
}

// TestAnotherAPIServer names a kube-apiserver, relative to where one is: the lab runs it in place of its own.
func TestAnotherAPIServer(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("another", nil, 0o700); err != nil { //nolint:gosec // it stands for a program
		t.Fatal(err)
	}
	here := must.Get(filepath.Abs("another")).Or(t)
	output, err := run(settings(), "up", "--dry-run", "--dir", filepath.Join(t.TempDir(), "lab"), "--kube-apiserver=another")
	must.Do(t, err)
	if !strings.Contains(output, "program: "+here+"\n") || strings.Contains(output, "- kube-apiserver\n  - --bind-address") {
		t.Errorf("the API server is not %s:\n%s", here, output)
	}
}

func TestDryRunOfRealNodes(t *testing.T) {
	t.Parallel()
	output, err := run(settings(), "up", "--dry-run", "--dir", filepath.Join(t.TempDir(), "lab"), "--real-nodes=2", "--image=mooring-lab/etcd:lab")
	must.Do(t, err)
	for _, want := range []string{"name: real-nodes", "--image=mooring-lab/etcd:lab", "--taint-simulated", "realNodes: 2"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output does not contain %q", want)
		}
	}
}

// The demo is told outside of any namespace, so a lab with real machines is none for it.
func TestDemoWithoutRealNodes(t *testing.T) {
	t.Parallel()
	s, bin := settings(), t.TempDir()
	for _, path := range []string{"bin/calico-node-sync", "bin/digitalocean-cloud-controller-manager", "config/calico-node-sync/x", "config/digitalocean-cloud-controller-manager/x", "lab/lock"} {
		path = filepath.Join(bin, path)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)))
	}
	s.Executable = func() (string, error) { return filepath.Join(bin, "bin", "lab"), nil }
	dir := filepath.Join(bin, "lab")
	options := map[string]any{"calicoDatastore": "etcdv3", "nodes": 5, "zones": 2, "cloud": "digitalocean", "realNodes": 1}
	must.Do(t, folder.WriteJSON(blueprint.Layout{Dir: dir}.OptionsFile(), options))
	_, err := run(s, "demo", "--dir", dir)
	if want := "the lab in " + dir + " was made with real machines, and the demo needs one without; choose another folder with --dir"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A folder goes on with as many real machines as it was made with.
func TestRealNodesAreRemembered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	layout := blueprint.Layout{Dir: dir}
	must.Do(t, os.WriteFile(layout.LockFile(), nil, 0o600))
	for _, made := range []int{0, 2} {
		options := map[string]any{"calicoDatastore": "none", "nodes": 3, "zones": 1, "cloud": "none", "realNodes": made}
		must.Do(t, folder.WriteJSON(layout.OptionsFile(), options))
		output, err := run(settings(), "up", "--dry-run", "--dir", dir)
		if err != nil || strings.Contains(output, "name: real-nodes") != (made > 0) {
			t.Errorf("made with --real-nodes %d, which is forgotten: %v", made, err)
		}
		_, err = run(settings(), "up", "--dry-run", "--dir", dir, "--real-nodes=1")
		want := fmt.Sprintf("--real-nodes 1 contradicts the lab in %s, which was made with %d", dir, made)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("made with --real-nodes %d, asked for 1: %v", made, err)
		}
	}
}

func TestDryRunOfTheNetwork(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "lab")
	output := must.Get(run(settings(), "up", "--dry-run", "--dir", dir, "--network=bgp")).Or(t)
	for _, want := range []string{"name: bgp-network", "--templates=/templates", "--bird=/usr/sbin/bird", "calicoDatastore: kubernetes", "network: bgp"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output does not contain %q", want)
		}
	}
}

// A folder goes on with the network that it was made with, and no other.
func TestNetworkIsRemembered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	layout := blueprint.Layout{Dir: dir}
	for _, path := range []string{layout.LockFile(), layout.MachinesFile() + ".lock"} {
		must.Do(t, os.WriteFile(path, nil, 0o600))
	}
	remember := func(network string) {
		options := map[string]any{"calicoDatastore": "kubernetes", "nodes": 50, "zones": 1, "cloud": "none", "network": network}
		must.Do(t, folder.WriteJSON(layout.OptionsFile(), options))
	}
	remember("bgp")
	output, err := run(settings(), "up", "--dry-run", "--dir", dir)
	if err != nil || !strings.Contains(output, "name: bgp-network") {
		t.Errorf("the network is forgotten: %v", err)
	}
	must.Do(t, folder.WriteJSON(layout.MachinesFile(), machines.Seed(50, 1, 0)))
	_, err = run(settings(), "node", "add", "late", "--dir", dir)
	if want := "the BGP network holds at most 50 machines, and there are 50; remove one first"; err == nil || err.Error() != want {
		t.Errorf("a machine too many: %v", err)
	}
	remember("") // a lab that was made when there was only one
	_, err = run(settings(), "up", "--dry-run", "--dir", dir, "--network=bgp")
	if err == nil || !strings.Contains(err.Error(), "--network bgp contradicts the lab in "+dir+", which was made with loopback; leave the option out") {
		t.Errorf("another network for the same folder: %v", err)
	}
	remember("bgp")
	_, err = run(settings(), "up", "--dry-run", "--dir", dir, "--ip-families=ipv4,ipv6")
	if err == nil || !strings.Contains(err.Error(), "--ip-families ipv4,ipv6 contradicts the lab in "+dir+", which was made with ipv4; leave the option out") {
		t.Errorf("other families for the same folder: %v", err)
	}
	if _, err = run(settings(), "up", "--dry-run", "--dir", dir, "--ip-families=ipv4"); err != nil {
		t.Errorf("the same families, said: %v", err)
	}
	remember("")
	if output, err := run(settings(), "node", "add", "late", "--dir", dir); err != nil || output != "machine late created\n" {
		t.Errorf("without a BGP network: %q, %v", output, err)
	}
}
