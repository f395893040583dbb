// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command testexec runs one test binary and appends what it cost to a file: `go test -exec "testexec FILE"`.
//
// Each line of FILE has three fields separated by tabs: the package's folder, wall seconds and CPU seconds. CPU seconds include
// those of processes that the test waited for, such as a kube-apiserver (getrusage(2), RUSAGE_CHILDREN). The exit code is the test binary's.
//
// Temporary files of the test are in one folder, which is removed however the test ends. That of a testexec which was killed itself is removed by the
// next one.
//
// After the time in TESTEXEC_BEFORE, in seconds since 1970, no test binary is started: the line says so by two dashes, and the exit code is 0.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/scratch"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testexec:", err)
	}
	os.Exit(code)
}

// run executes args[1:] and appends its cost to the file args[0]. It returns the exit code of the test binary, or 2 with an error when
// the binary could not be started or the file not be written.
func run(args []string) (int, error) {
	if len(args) < 2 {
		return 2, errors.New(`two arguments are needed: go test -exec "testexec FILE"`)
	}
	late, err := isLate(os.Getenv("TESTEXEC_BEFORE"))
	if err != nil {
		return 2, err
	}
	if late {
		return 0, write(args[0], "-\t-")
	}
	files, err := scratch.New("")
	if err != nil {
		return 2, err
	}
	code, err := runIn(files.Path, args)
	if gone := files.Remove(); gone != nil {
		return max(code, 1), errors.Join(err, gone)
	}
	return code, err
}

// runIn is run with a folder for temporary files.
func runIn(folder string, args []string) (int, error) {
	cmd := exec.CommandContext(context.Background(), args[1], args[2:]...) // it ends by itself, or by a signal that is passed on
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "TMPDIR="+folder)
	// The test ends with this program: the signal is sent when the thread ends that started it (prctl(2), PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// go test sends SIGQUIT to what it started when a test takes too long; the test binary answers it with its goroutines.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGINT, syscall.SIGTERM)
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 2, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // a process that has just exited needs no signal
		}
	}()
	err := cmd.Wait()
	wall := time.Since(start)
	signal.Stop(signals)
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		return 2, err
	}
	state := cmd.ProcessState
	if err := record(args[0], wall, state.UserTime()+state.SystemTime()); err != nil {
		return 2, err
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), fmt.Errorf("%s was ended by signal %s", args[1], status.Signal())
	}
	return state.ExitCode(), nil
}

// isLate reports whether a time, in seconds since 1970, has passed; "" never has.
func isLate(before string) (bool, error) {
	if before == "" {
		return false, nil
	}
	seconds, err := strconv.ParseInt(before, 10, 64)
	if err != nil {
		return false, fmt.Errorf("TESTEXEC_BEFORE=%q is not a number of seconds since 1970: unset it, or use date +%%s", before)
	}
	return time.Now().After(time.Unix(seconds, 0)), nil
}

// record appends what a test binary took to path.
func record(path string, wall, cpu time.Duration) error {
	return write(path, fmt.Sprintf("%.2f\t%.2f", wall.Seconds(), cpu.Seconds()))
}

// write appends one line to path. A write of one line with O_APPEND does not mix with another package's.
func write(path, fields string) error {
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s\t%s\n", folder, fields)
	return errors.Join(err, f.Close())
}
