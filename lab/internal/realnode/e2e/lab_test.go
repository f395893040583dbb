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
	"path/filepath"
	"runtime"
	"strings"
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

// patience is how long anything may take on a busy machine.
const patience = 10 * time.Minute

// lab is a lab with real machines.
type lab struct {
	t *testing.T
	blueprint.Layout
}

// prepare names a lab and stops it at the end of the test, whatever happens. It skips the test where machines cannot be real.
func prepare(t *testing.T) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("what real machines run takes ten CPU minutes to build: make e2e-nodes builds it and runs this")
	}
	if err := realnode.Judge(realnode.Examine(filepath.Dir(testkit.Binary(t, "lab")))); err != nil {
		testkit.Skip(t, "%v", err)
	}
	l := &lab{t: t, Layout: blueprint.Layout{Dir: filepath.Join(t.TempDir(), "lab")}}
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
	files, _ := filepath.Glob(filepath.Join(l.RealNodes(), "*", "logs", "*.log"))
	for _, name := range []string{"supervisor", blueprint.Setup, blueprint.RealNodes, blueprint.LoadBalancers} {
		files = append(files, l.Log(name))
	}
	testkit.LogEnds(l.t, 2000, files...)
}

func (l *lab) try(args ...string) (string, error) {
	return testkit.TryLab(l.t, patience, l.Dir, args...)
}

func (l *lab) run(args ...string) string {
	l.t.Helper()
	return testkit.RunLab(l.t, patience, l.Dir, args...)
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
	config.QPS = -1
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

func await(t *testing.T, what string, wrong func() error) {
	t.Helper()
	testkit.Await(t, patience, what, wrong)
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
