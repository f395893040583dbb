// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package container_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/podagent/container"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// The test binary is the launcher, and the program in the container, too.
const (
	launch  = "launch"
	inspect = "inspect"
	hang    = "hang"
	polite  = "polite"
	fail    = "fail"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case launch:
			fmt.Println(container.Launch(os.Args[2]))
			os.Exit(1)
		case inspect:
			_ = json.NewEncoder(os.Stdout).Encode(look())
			os.Exit(0)
		case fail:
			os.Exit(3)
		case hang:
			<-time.After(time.Hour) // select {} would end as a deadlock
		case polite:
			stop := make(chan os.Signal, 1)
			signal.Notify(stop, syscall.SIGTERM)
			fmt.Println("ready")
			<-stop
			os.Exit(7)
		}
	}
	testkit.Main(m)
}

// view is what a program sees in its container.
type view struct {
	PID, UID, GID int
	Groups        []int
	Args, Env     []string
	Root          []string
	Hostname      string
	Hosts         string
	Secret        string
	NoNewPrivs    string
	Effective     string
	Bounding      string
	Processes     int
	// What an attempt to write gives.
	WriteRoot, WriteData, WriteSecret string
}

func look() view {
	v := view{PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(), Args: os.Args, Env: os.Environ()}
	v.Groups, _ = os.Getgroups()
	v.Hostname, _ = os.Hostname()
	entries, _ := os.ReadDir("/")
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "lib") { // see rig.spec
			v.Root = append(v.Root, e.Name())
		}
	}
	text := func(path string) string { content, _ := os.ReadFile(path); return string(content) }
	v.Hosts, v.Secret = text("/etc/hosts"), text("/secret/key")
	for line := range strings.Lines(text("/proc/self/status")) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "NoNewPrivs":
			v.NoNewPrivs = strings.TrimSpace(value)
		case "CapEff":
			v.Effective = strings.TrimSpace(value)
		case "CapBnd":
			v.Bounding = strings.TrimSpace(value)
		}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	v.Processes = len(processes)
	write := func(path string) string {
		err := os.WriteFile(path, []byte("x"), 0o600)
		switch {
		case errors.Is(err, syscall.EROFS):
			return "read-only"
		case errors.Is(err, fs.ErrPermission):
			return "forbidden"
		case err != nil:
			return err.Error()
		}
		return "written"
	}
	v.WriteRoot, v.WriteData, v.WriteSecret = write("/file"), write("/data/file"), write("/secret/other")
	return v
}

// rig is a pod's network and a folder.
type rig struct {
	*testing.T
	network *netns.Namespace
	dir     string
}

func newRig(t *testing.T) rig {
	t.Helper()
	if os.Getuid() != 0 {
		testkit.Skip(t, "it needs root: it makes mount and PID namespaces")
	}
	network, err := netns.New()
	if errors.Is(err, netns.ErrNotAllowed) {
		testkit.Skip(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(network.Close)
	return rig{T: t, network: network, dir: t.TempDir()}
}

func (r rig) folder(name string) string {
	r.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(path, 0o777); err != nil {
		r.Fatal(err)
	}
	if err := os.Chmod(path, 0o777); err != nil {
		r.Fatal(err)
	}
	return path
}

// spec runs this test's binary with the arguments in a container of nobody's.
func (r rig) spec(args ...string) container.Spec {
	r.Helper()
	self, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.folder("secret"), "key"), []byte("s3cret"), 0o644); err != nil {
		r.Fatal(err)
	}
	mounts := []container.Mount{
		{Source: r.folder("secret"), Target: "/secret", ReadOnly: true}, {Source: r.folder("data"), Target: "/data"},
	}
	// With the race detector the test's binary is no static one.
	for _, libraries := range []string{"/lib", "/lib64"} {
		if _, err := os.Stat(libraries); err == nil {
			mounts = append(mounts, container.Mount{Source: libraries, Target: libraries, ReadOnly: true})
		}
	}
	return container.Spec{
		Root: r.folder("root"), Program: self, Paths: []string{"/bin/it", "/entrypoint"}, Exec: "/entrypoint", Argv: append([]string{"/entrypoint"}, args...),
		Env: []string{"COLOR=blue"}, Hostname: "pod-1", Files: map[string]string{"/etc/hosts": "127.0.0.1 localhost\n"},
		Mounts: mounts, User: 65532, Group: 65532, Groups: []int{65532, 2000}, ReadOnly: true,
	}
}

func (r rig) start(spec container.Spec) (process *container.Process, log string) {
	r.Helper()
	self, err := os.Executable()
	if err != nil {
		r.Fatal(err)
	}
	log = filepath.Join(r.dir, "log")
	out, err := os.Create(log)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	process, err = container.Start(r.network, container.Launcher{self, launch}, spec, filepath.Join(r.dir, "spec.json"), out)
	if err != nil {
		r.Fatal(err)
	}
	return process, log
}

func (r rig) run(spec container.Spec) (container.Exit, string) {
	r.Helper()
	process, log := r.start(spec)
	<-process.Done()
	exit, _ := process.Exit()
	content, err := os.ReadFile(log)
	if err != nil {
		r.Fatal(err)
	}
	return exit, string(content)
}

func (r rig) look(spec container.Spec) view {
	r.Helper()
	exit, log := r.run(spec)
	var seen view
	if err := json.Unmarshal([]byte(log), &seen); err != nil || exit.Code != 0 {
		r.Fatalf("it ended with %+v, saying %s", exit, log)
	}
	return seen
}

// TestContainerIsApart sees what a program of a restricted pod sees, and what it may do.
func TestContainerIsApart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	seen := r.look(r.spec(inspect, "x y"))
	if seen.PID != 1 || seen.Processes != 1 {
		t.Errorf("it is process %d of %d, not the only one", seen.PID, seen.Processes)
	}
	if seen.UID != 65532 || seen.GID != 65532 || !slices.Equal(seen.Groups, []int{2000, 65532}) && !slices.Equal(seen.Groups, []int{65532, 2000}) {
		t.Errorf("it is user %d, group %d, groups %v", seen.UID, seen.GID, seen.Groups)
	}
	if !slices.Equal(seen.Args, []string{"/entrypoint", inspect, "x y"}) || !slices.Equal(seen.Env, []string{"COLOR=blue"}) {
		t.Errorf("it was called with %q and %q", seen.Args, seen.Env)
	}
	if !slices.Equal(seen.Root, []string{"bin", "data", "dev", "entrypoint", "etc", "proc", "secret"}) {
		t.Errorf("its root holds %v", seen.Root)
	}
	if seen.Hostname != "pod-1" || seen.Hosts != "127.0.0.1 localhost\n" || seen.Secret != "s3cret" {
		t.Errorf("hostname %q, hosts %q, secret %q", seen.Hostname, seen.Hosts, seen.Secret)
	}
	if seen.NoNewPrivs != "1" || strings.Trim(seen.Effective, "0") != "" || strings.Trim(seen.Bounding, "0") != "" {
		t.Errorf("no new privileges: %s, effective capabilities %s, bounding %s", seen.NoNewPrivs, seen.Effective, seen.Bounding)
	}
	if seen.WriteRoot != "read-only" || seen.WriteData != "written" || seen.WriteSecret != "read-only" {
		t.Errorf("writing: root %s, data %s, secret %s", seen.WriteRoot, seen.WriteData, seen.WriteSecret)
	}
}

// TestNothingStaysMounted looks for the container's mounts from outside, while it runs and after.
func TestNothingStaysMounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	process, log := r.start(r.spec(polite))
	r.waitReady(log)
	mounts := func() string {
		content, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	if strings.Contains(mounts(), r.dir) {
		t.Error("a mount of the container is seen outside")
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-process.Done()
	if exit, ok := process.Exit(); !ok || exit.Code != 7 || exit.Signal != 0 || exit.Problem != "" {
		t.Errorf("it ended with %+v", exit)
	}
	if err := os.RemoveAll(r.dir); err != nil {
		t.Errorf("its files cannot be removed: %v", err)
	}
}

func (r rig) waitReady(log string) {
	r.Helper()
	testkit.Eventually(r, "the program", func() string {
		if content, err := os.ReadFile(log); err != nil || !strings.Contains(string(content), "ready") {
			return fmt.Sprintf("its log is %q, %v", content, err)
		}
		return ""
	})
}

// TestRootHasDefaultCapabilities sees that a container of root's has what runtimes leave to it, and may gain no more if it says so.
func TestRootHasDefaultCapabilities(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spec := r.spec(inspect)
	spec.User, spec.Group, spec.Groups, spec.ReadOnly = 0, 0, nil, false
	spec.Capabilities, _ = container.Capabilities(nil, nil)
	spec.MayGainPrivileges = true
	seen := r.look(spec)
	const byRuntimes = "00000000a80425fb" // docker's and containerd's default set
	if seen.Effective != byRuntimes || seen.Bounding != byRuntimes || seen.NoNewPrivs != "0" {
		t.Errorf("effective %s, bounding %s, no new privileges %s", seen.Effective, seen.Bounding, seen.NoNewPrivs)
	}
	if seen.WriteRoot != "written" || seen.WriteSecret != "read-only" {
		t.Errorf("writing: root %s, secret %s", seen.WriteRoot, seen.WriteSecret)
	}
}

// TestHowItEnded has programs end in all ways.
func TestHowItEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if exit, _ := r.run(r.spec(fail)); exit.Code != 3 || exit.Problem != "" {
		t.Errorf("exit code 3 is told as %+v", exit)
	}
	spec := r.spec(inspect)
	spec.Exec = "/bin/other"
	if exit, _ := r.run(spec); exit.Code != container.StartFailed || exit.Problem != "executing /bin/other: no such file or directory" {
		t.Errorf("a program that is not there is told as %+v", exit)
	}
	spec = r.spec(inspect)
	spec.Mounts[0].Source += "-missing"
	if exit, _ := r.run(spec); exit.Code != container.StartFailed || !strings.HasPrefix(exit.Problem, "mounting /secret: ") {
		t.Errorf("a volume that is not there is told as %+v", exit)
	}
	process, _ := r.start(r.spec(hang))
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-process.Done()
	if exit, _ := process.Exit(); exit.Code != 137 || exit.Signal != 9 {
		t.Errorf("a kill is told as %+v", exit)
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("a signal to what has ended: %v", err)
	}
}

// TestDiesWithItsNetwork ends the thread that started it, as the end of the agent does.
func TestDiesWithItsNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	process, log := r.start(r.spec(polite))
	r.waitReady(log)
	r.network.Close()
	<-process.Done()
	if exit, _ := process.Exit(); exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("it ended with %+v", exit)
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		add, drop, want []string
		wantErr         string
	}{
		"none of all":              {drop: []string{"ALL"}},
		"one of none":              {add: []string{"NET_BIND_SERVICE"}, drop: []string{"all"}, want: []string{"NET_BIND_SERVICE"}},
		"with the kernel's prefix": {add: []string{"CAP_KILL"}, drop: []string{"ALL"}, want: []string{"KILL"}},
		"unknown":                  {add: []string{"FLY"}, wantErr: `capability "FLY" is unknown; use a name of capabilities(7) without CAP_, or ALL`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := container.Capabilities(test.add, test.drop)
			if fmt.Sprint(got) != fmt.Sprint(test.want) || err != nil && err.Error() != test.wantErr || err == nil && test.wantErr != "" {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	if all, err := container.Capabilities([]string{"ALL"}, nil); err != nil || len(all) < 40 {
		t.Errorf("ALL gives %v, %v", all, err)
	}
}

// starterThatFails stands for a network that has been closed.
type starterThatFails struct{}

func (starterThatFails) Start(*exec.Cmd) error { return netns.ErrClosed }

func TestStartThatFailsLeavesNoDescriptor(t *testing.T) {
	t.Parallel()
	_, err := container.Start(starterThatFails{}, container.Launcher{"x"}, container.Spec{}, filepath.Join(t.TempDir(), "spec"), nil)
	if !errors.Is(err, netns.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
