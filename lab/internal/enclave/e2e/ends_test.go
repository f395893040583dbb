// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"bufio"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/process"
)

// outside is what a lab must leave as it was: the devices of this machine and what is mounted.
func outside(t *testing.T) string {
	t.Helper()
	devices, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(names, " ") + "\n" + string(mounts)
}

// TestEnds ends labs in every way: nothing is left of their namespaces and processes, and nothing of this machine has changed.
func TestEnds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root sees the namespaces of all processes")
	}
	for name, end := range map[string]func(l *lab, outer, inner process.Identity) error{
		"Ctrl-C":                        func(_ *lab, outer, _ process.Identity) error { return outer.Signal(syscall.SIGINT) },
		"lab down":                      func(l *lab, _, _ process.Identity) error { _, err := l.try("down"); return err },
		"kill -9 of the outer process":  func(_ *lab, outer, _ process.Identity) error { return outer.Signal(syscall.SIGKILL) },
		"kill -9 of the supervisor":     func(_ *lab, _, inner process.Identity) error { return inner.Signal(syscall.SIGKILL) },
		"the end of its standard input": nil,
		"kill -9 of both, inside first": func(_ *lab, outer, inner process.Identity) error {
			return errors.Join(inner.Signal(syscall.SIGKILL), outer.Signal(syscall.SIGKILL))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "Ctrl-C" && name != "kill -9 of the outer process" {
				t.Skip("left out of the short form")
			}
			before := outside(t)
			l := prepare(t)
			c := l.command(t.Context(), arguments("--foreground", "--stop-with-stdin")...)
			stdin, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "lab ready\n" {
				t.Fatalf("the lab says %q, %v", line, err)
			}
			outer, err := process.Of(c.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			inner := l.state().Supervisor
			lived := namespace(t, inner.PID)
			if lived == namespace(t, outer.PID) {
				t.Fatal("the lab is not in a namespace of its own")
			}
			if during := outside(t); during != before {
				t.Errorf("this machine has changed:\n%s\nbefore:\n%s", during, before)
			}
			if end == nil {
				err = stdin.Close()
			} else {
				err = end(l, outer, inner)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			await(t, "the end of all processes", func() error { return inhabitants(lived) })
			if after := outside(t); after != before {
				t.Errorf("this machine has changed:\n%s\nbefore:\n%s", after, before)
			}
			if out, err := l.try("down", "--delete"); err != nil {
				t.Errorf("clearing up: %s, %v", out, err)
			}
		})
	}
}

// user is somebody who is nobody in particular.
const user = "65534"

// TestWithoutRoot: whoever may make user namespaces has a lab with real pods.
func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		if _, err := exec.LookPath("setpriv"); err != nil {
			need(t, "setpriv is needed: "+err.Error())
		}
	}
	l := prepare(t)
	if os.Geteuid() == 0 {
		// Test folders are root's alone; this one is below /tmp, where everybody may be.
		dir, err := os.MkdirTemp("", "lab") //nolint:usetesting // see above
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		l.Dir = filepath.Join(dir, "lab")
		l.before = []string{"setpriv", "--reuid", user, "--regid", user, "--clear-groups"}
		if out, err := l.try("doctor"); err != nil && strings.Contains(out+err.Error(), "permission denied") {
			t.Skip("another user may not run the lab's binary here: " + err.Error())
		}
	}
	_, err := l.try(arguments()...)
	if err != nil && strings.Contains(err.Error(), netns.ErrNotAllowed.Error()) {
		need(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	if out := l.run("status"); !strings.Contains(out, "services") || strings.Contains(out, "starting") {
		t.Errorf("status:\n%s", out)
	}
	if version, err := l.client().Discovery().ServerVersion(); err != nil || version.Major != "1" {
		t.Errorf("from the outside: %v, %v", version, err)
	}
	inner := l.state().Supervisor
	l.run("down")
	if inner.Alive() {
		t.Error("the supervisor outlived `lab down`")
	}
}

// TestRefusal: where no namespace may be made one is told so in one sentence, by `lab doctor` too, and nothing is begun.
func TestRefusal(t *testing.T) {
	l := prepare(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can take rights from the program")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		need(t, "setpriv is needed: "+err.Error())
	}
	l.before = []string{"setpriv", "--bounding-set", "-sys_admin"}
	_, err := l.try(arguments()...)
	if err == nil || !strings.Contains(err.Error(), "lab up: --pods: "+netns.ErrNotAllowed.Error()) {
		t.Fatalf("without permission: %v", err)
	}
	if said := strings.TrimSpace(err.Error()[strings.Index(err.Error(), "lab up: "):]); strings.Contains(said, "\n") {
		t.Errorf("it is more than one sentence:\n%s", said)
	}
	if _, err := os.Stat(l.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was begun: %v", err)
	}
	out := l.run("doctor")
	if i := slices.IndexFunc(strings.Split(out, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "missing  pods") && strings.Contains(line, netns.ErrNotAllowed.Error())
	}); i < 0 || !strings.Contains(out, "no `lab up --pods`") {
		t.Errorf("the doctor says:\n%s", out)
	}
}

// TestAgain: a lab goes on with its data and its pods, and does not become one without.
func TestAgain(t *testing.T) {
	l := start(t)
	first := l.state().Supervisor
	l.run("down")
	_, err := l.try("up", "--pods=false")
	if err == nil || !strings.Contains(err.Error(), "--pods=false contradicts the lab in "+l.Dir) {
		t.Errorf("without pods: %v", err)
	}
	l.run("up")
	if namespace(t, l.state().Supervisor.PID) == namespace(t, os.Getpid()) || l.state().Supervisor == first {
		t.Error("the lab has forgotten that its pods are real")
	}
	var described folder.Lab
	if err := folder.ReadJSON(l.LabFile(), &described); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client().Discovery().ServerVersion(); err != nil || described.Etcd == nil {
		t.Errorf("after another start: %v, %+v", err, described)
	}
	if _, err := l.try(arguments()...); err == nil || !strings.Contains(err.Error(), "a lab already runs in "+l.Dir) {
		t.Errorf("a second lab in the folder: %v", err)
	}
}
