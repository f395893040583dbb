// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/process"
)

// foreground is a lab that runs in the foreground.
type foreground struct {
	*lab
	command *exec.Cmd
	stdin   io.Closer
	// outer is the process of the command, inner the supervisor, in the lab's namespaces.
	outer, inner process.Identity
}

// begin starts a lab of real machines in the foreground, in the same folder as the one before.
func (l *lab) begin(machines int) *foreground {
	l.t.Helper()
	count := fmt.Sprint(machines)
	f := &foreground{lab: l, command: testkit.LabCommand(l.t.Context(), l.t, l.Dir, "up", "--real-nodes", count, "--nodes", count, "--calico-datastore", "none", "--cloud", "none",
		"--foreground", "--stop-with-stdin")}
	problems := &strings.Builder{}
	f.command.Stderr = problems
	var err error
	if f.stdin, err = f.command.StdinPipe(); err != nil {
		l.t.Fatal(err)
	}
	stdout, err := f.command.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := f.command.Start(); err != nil {
		l.t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "lab ready\n" {
		_ = f.command.Wait()
		l.t.Fatalf("the lab prints %q, %v: %s", line, err, problems)
	}
	if f.outer, err = process.Of(f.command.Process.Pid); err != nil {
		l.t.Fatal(err)
	}
	f.inner = l.state().Supervisor
	return f
}

// endings are twenty ways in which a lab may end, five of them by kill -9; the first three are a sample. After those whose name ends in "and up" the next lab
// starts without a `lab down` between.
func endings() []string {
	all := []string{"lab down", "kill -9 of the supervisor", "kill -9 of both and up"}
	all = append(all, "Ctrl-C and up", "kill -9 of the command and up", "end of its standard input", "kill -9 of the supervisor and up", "kill -9 of both")
	for len(all) < 20 {
		all = append(all, "lab down", "Ctrl-C and up", "Ctrl-C")
	}
	return all[:20]
}

// end ends a lab.
func (f *foreground) end(how string) error {
	switch how {
	case "lab down":
		_, err := f.try("down")
		return err
	case "Ctrl-C":
		return f.outer.Signal(syscall.SIGINT)
	case "end of its standard input":
		return f.stdin.Close()
	case "kill -9 of the command":
		return f.outer.Signal(syscall.SIGKILL)
	case "kill -9 of the supervisor":
		return f.inner.Signal(syscall.SIGKILL)
	default:
		return errors.Join(f.inner.Signal(syscall.SIGKILL), f.outer.Signal(syscall.SIGKILL))
	}
}

// TestTwentyStartsAndStops starts and ends a lab in one folder, in every way: no process, mount or device is left when it has ended, and no control group when
// the next lab has started or `lab down` has run. MOORING_CASES=night does it twenty times, otherwise it is three.
func TestTwentyStartsAndStops(t *testing.T) {
	l := prepare(t)
	ways := endings()
	if os.Getenv("MOORING_CASES") != "night" {
		ways = ways[:3]
	}
	before := l.outside()
	for i, way := range ways {
		machines := 1
		if i == 0 {
			machines = 3
		}
		begin := time.Now()
		if i == 1 {
			l.run("down", "--delete") // a folder goes on with as many machines as it has
		}
		f := l.begin(machines)
		t.Logf("start %d of %d: %d machines after %.1f s, %d MB in all", i+1, len(ways), machines, time.Since(begin).Seconds(), l.memory()>>20)
		if during := l.outside(); during != before {
			t.Errorf("start %d: this machine has changed:\n%s\nbefore:\n%s", i+1, during, before)
		}
		how, again := strings.CutSuffix(way, " and up")
		if err := f.end(how); err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		_ = f.command.Wait()
		await(t, "the end of all processes after "+way, func() error { return l.left(false) })
		if after := l.outside(); after != before {
			t.Errorf("%s: this machine has changed:\n%s\nbefore:\n%s", way, after, before)
		}
		if again && i < len(ways)-1 {
			continue
		}
		l.run("down")
		if err := l.left(true); err != nil {
			t.Errorf("after %s: %v", way, err)
		}
	}
	l.run("down", "--delete")
	if _, err := os.Stat(l.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

// memory is the proportional set size of all processes of the lab, in bytes: what is shared counts once.
func (l *lab) memory() (sum int64) {
	l.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/smaps_rollup")
	if err != nil {
		l.t.Fatal(err)
	}
	mine := fmt.Sprint(l.left(false))
	for _, file := range files {
		if !strings.Contains(mine, filepath.Dir(file)+":") {
			continue
		}
		content, _ := os.ReadFile(file)
		for line := range strings.Lines(string(content)) {
			var kib int64
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err == nil {
				sum += kib << 10
			}
		}
	}
	return sum
}

// TestRefusal: where no namespace may be made one sentence says so, and nothing is begun.
func TestRefusal(t *testing.T) {
	l := prepare(t)
	if _, err := exec.LookPath("setpriv"); err != nil {
		testkit.Skip(t, "setpriv is needed: %v", err)
	}
	up := testkit.LabCommand(t.Context(), t, l.Dir, "up", "--real-nodes", "1", "--nodes", "1", "--calico-datastore", "none", "--cloud", "none")
	out, err := exec.CommandContext(t.Context(), "setpriv", append([]string{"--bounding-set", "-sys_admin"}, up.Args...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), netns.ErrNotAllowed.Error()) {
		t.Fatalf("without permission: %v, %s", err, out)
	}
	if _, err := os.Stat(l.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was begun: %v", err)
	}
}

// TestDoctor: what is missing for real machines is a finding.
func TestDoctor(t *testing.T) {
	l := prepare(t)
	out := l.run("doctor")
	if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "ok") && strings.Contains(line, "real machines")
	}) {
		t.Errorf("the doctor prints:\n%s", out)
	}
}
