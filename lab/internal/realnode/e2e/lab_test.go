// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/realnode"
	"github.com/mooring-dev/mooring/lab/internal/realnode/cgroup"
)

// binaryVariable names the lab's binary when it is not bin/lab of the repository.
const binaryVariable = "MOORING_LAB_BINARY"

// patience is how long anything may take on a busy machine.
const patience = 10 * time.Minute

// lab is a lab with real machines.
type lab struct {
	t      *testing.T
	binary string
	// before are words before those of the lab's command.
	before []string
	blueprint.Layout
}

// prepare names a lab and stops it at the end of the test, whatever happens. It skips the test where machines cannot be real.
func prepare(t *testing.T) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("what real machines run takes ten CPU minutes to build: make e2e-nodes builds it and runs this")
	}
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		binary = filepath.Join("..", "..", "..", "..", "bin", "lab")
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		testkit.Skip(t, "the lab's binary is needed: build it with `make bin/lab` or name it in %s", binaryVariable)
	}
	if err := realnode.Judge(realnode.Examine(filepath.Dir(binary))); err != nil {
		testkit.Skip(t, "%v", err)
	}
	l := &lab{t: t, binary: binary, Layout: blueprint.Layout{Dir: filepath.Join(t.TempDir(), "lab")}}
	t.Cleanup(func() {
		if t.Failed() {
			l.showLogs()
		}
		_, _ = l.try("down", "--delete")
	})
	return l
}

// showLogs logs the ends of what the lab's processes and its machines' programs have written.
func (l *lab) showLogs() {
	const most = 2000
	files, _ := filepath.Glob(filepath.Join(l.RealNodes(), "*", "logs", "*.log"))
	for _, name := range []string{"supervisor", blueprint.Setup, blueprint.RealNodes, blueprint.LoadBalancers} {
		files = append(files, l.Log(name))
	}
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil {
			l.t.Logf("%s:\n%s", file, content[max(0, len(content)-most):])
		}
	}
}

func (l *lab) command(ctx context.Context, args ...string) *exec.Cmd {
	words := append(append(append([]string{}, l.before...), l.binary), append(args, "--dir", l.Dir)...)
	c := exec.CommandContext(ctx, words[0], words[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	return c
}

func (l *lab) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), patience)
	defer cancel()
	c := l.command(ctx, args...)
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("lab %v: %w\n%s", args, err, problems.String())
	}
	return out.String(), nil
}

func (l *lab) run(args ...string) string {
	l.t.Helper()
	out, err := l.try(args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

// state is what the supervisor has written of itself and its processes.
func (l *lab) state() folder.State {
	l.t.Helper()
	var state folder.State
	if err := folder.ReadJSON(l.StateFile(), &state); err != nil {
		l.t.Fatal(err)
	}
	return state
}

func (l *lab) client() kubernetes.Interface {
	l.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		l.t.Fatal(err)
	}
	return client
}

// dial connects in the lab's network namespace, in which the connection stays.
func (l *lab) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", l.state().Supervisor.PID))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering the lab's namespace: %w", err)
			return
		}
		var err error
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		done <- err
	}()
	return c, <-done
}

// await polls until nothing is wrong any more.
func await(t *testing.T, what string, wrong func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for err := wrong(); err != nil; err = wrong() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v for %s: %v", patience, what, err)
		case <-ticker.C:
		}
	}
}

// left names what is left of a lab that has ended: processes, which its folder's path or its control groups give away, and with folders also control
// groups. A namespace's number gives nothing away, as the kernel uses it again at once.
func (l *lab) left(groups bool) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		of := filepath.Dir(file)
		if of == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		words, _ := os.ReadFile(file) // which fails for a process that has ended meanwhile
		group, _ := os.ReadFile(filepath.Join(of, "cgroup"))
		variables, _ := os.ReadFile(filepath.Join(of, "environ"))
		if bytes.Contains(words, []byte(l.Dir)) || bytes.Contains(variables, []byte("="+l.Dir)) || bytes.Contains(group, []byte(cgroup.Root(l.Dir)+"/")) {
			errs = append(errs, fmt.Errorf("%s: %s", of, bytes.ReplaceAll(words, []byte{0}, []byte(" "))))
		}
	}
	if !groups {
		return errors.Join(errs...)
	}
	found, err := filepath.Glob(filepath.Join(cgroup.Mount, "*", cgroup.Root(l.Dir)))
	for _, path := range found {
		errs = append(errs, fmt.Errorf("control group %s", path))
	}
	return errors.Join(append(errs, err)...)
}

// outside is what a lab must leave as it was: the devices of this machine, and what of the lab is mounted.
func (l *lab) outside() string {
	l.t.Helper()
	devices, err := net.Interfaces()
	if err != nil {
		l.t.Fatal(err)
	}
	var lines []string
	for _, d := range devices {
		lines = append(lines, d.Name)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, l.Dir) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}
