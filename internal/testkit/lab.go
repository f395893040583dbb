// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bytes"
	"context"
	"fmt"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// LabCommand is a command of the lab in the folder dir. When ctx ends, it gets SIGTERM, so that it can clean up.
func LabCommand(ctx context.Context, tb testing.TB, dir string, args ...string) *exec.Cmd {
	tb.Helper()
	command := exec.CommandContext(ctx, Binary(tb, "lab"), append(args, "--dir", dir)...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	return command
}

// TryLab runs a command of the lab in the folder dir, also at the end of a test. It returns what the command printed; its error has what it printed to
// standard error.
func TryLab(tb testing.TB, patience time.Duration, dir string, args ...string) (string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), patience)
	defer cancel()
	command := LabCommand(ctx, tb, dir, args...)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("lab %v: %w\n%s", args, err, problems.String())
	}
	return out.String(), nil
}

// RunLab is TryLab for a command that must succeed.
func RunLab(tb testing.TB, patience time.Duration, dir string, args ...string) string {
	tb.Helper()
	out := must.Get(TryLab(tb, patience, dir, args...)).Or(tb)
	return out
}

// Await polls until nothing is wrong any more, and returns how long that took. After patience it fails the test with what is still wrong.
func Await(tb testing.TB, patience time.Duration, what string, wrong func() error) time.Duration {
	tb.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for err := wrong(); err != nil; err = wrong() {
		select {
		case <-ctx.Done():
			tb.Fatalf("waited %v for %s: %v", patience, what, err)
		case <-time.After(pause(time.Since(began))):
		}
	}
	return time.Since(began)
}

// LogEnds logs the last bytes of each file that has content, most bytes of each.
func LogEnds(tb testing.TB, most int, files ...string) {
	tb.Helper()
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && len(content) > 0 {
			tb.Logf("%s:\n%s", file, content[max(0, len(content)-most):])
		}
	}
}
