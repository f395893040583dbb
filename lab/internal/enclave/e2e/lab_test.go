// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// binaryVariable names the lab's binary when it is not bin/lab of the repository.
const binaryVariable = "MOORING_LAB_BINARY"

// patience is how long anything may take on a busy machine.
const patience = 5 * time.Minute

// lab is a lab with real pods.
type lab struct {
	t      *testing.T
	binary string
	// before are words before those of the lab's command.
	before []string
	blueprint.Layout
}

// need skips the test, or fails it where everything has been installed.
func need(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// prepare names a lab and stops it, come what may, at the end of the test.
func prepare(t *testing.T) *lab {
	t.Helper()
	binary := os.Getenv(binaryVariable)
	if binary == "" {
		binary = filepath.Join("..", "..", "..", "..", "bin", "lab")
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		need(t, "the lab's binary is needed: build it with `make bin/lab` or name it in "+binaryVariable)
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

// arguments are those of a small lab with real pods.
func arguments(more ...string) []string {
	return append([]string{"up", "--pods", "--nodes", "1", "--calico-datastore", "none", "--cloud", "none"}, more...)
}

// start starts a lab with real pods.
func start(t *testing.T) *lab {
	t.Helper()
	l := prepare(t)
	_, err := l.try(arguments()...)
	if err != nil && strings.Contains(err.Error(), netns.ErrNotAllowed.Error()) {
		need(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// showLogs logs the ends of what the processes have said.
func (l *lab) showLogs() {
	const most = 3000
	for _, name := range []string{"supervisor", blueprint.Services, blueprint.Setup, blueprint.APIServer} {
		if content, err := os.ReadFile(l.Log(name)); err == nil {
			l.t.Logf("log of %s:\n%s", name, content[max(0, len(content)-most):])
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

// state is what the supervisor says of itself and its processes.
func (l *lab) state() folder.State {
	l.t.Helper()
	var state folder.State
	if err := folder.ReadJSON(l.StateFile(), &state); err != nil {
		l.t.Fatal(err)
	}
	return state
}

// config is the administrator's, as the outside has it.
func (l *lab) config() *rest.Config {
	l.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}
	return config
}

func (l *lab) client() kubernetes.Interface {
	l.t.Helper()
	client, err := kubernetes.NewForConfig(l.config())
	if err != nil {
		l.t.Fatal(err)
	}
	return client
}

// inside calls f on a thread that is in the lab's network namespace. Sockets that f opens stay there.
func (l *lab) inside(f func() error) error {
	l.t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", l.state().Supervisor.PID))
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("entering the lab's namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
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

// namespace is the network namespace of a process.
func namespace(t *testing.T, pid int) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// inhabitants names the processes of a network namespace.
func inhabitants(name string) error {
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return err
	}
	var errs []error
	for _, link := range links {
		if found, err := os.Readlink(link); err == nil && found == name {
			words, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "..", "cmdline"))
			errs = append(errs, fmt.Errorf("%s: %s", link, bytes.ReplaceAll(words, []byte{0}, []byte(" "))))
		}
	}
	return errors.Join(errs...)
}
