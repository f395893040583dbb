// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone reports that the process is no longer there.
var ErrGone = errors.New("the process is gone")

// Identity names one process for all times.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is in clock ticks since boot.
	StartTime uint64 `json:"startTime"`
	// Boot is the kernel's boot id.
	Boot string `json:"boot"`
}

// Self returns the identity of this process.
func Self() (Identity, error) { return Of(os.Getpid()) }

// Of returns the identity of the process that has pid now, or ErrGone.
func Of(pid int) (Identity, error) {
	startTime, state, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	if state == "Z" || state == "X" {
		return Identity{}, ErrGone
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Identity{}, fmt.Errorf("reading the boot id: %w", err)
	}
	return Identity{PID: pid, StartTime: startTime, Boot: string(bytes.TrimSpace(boot))}, nil
}

// Alive reports whether this very process still runs. A zombie does not.
func (i Identity) Alive() bool {
	if i.PID <= 0 {
		return false
	}
	current, err := Of(i.PID)
	return err == nil && current == i
}

// Signal sends a signal to this very process, or returns ErrGone. A descriptor of the process is opened before its identity is checked,
// so that the process cannot be exchanged between the check and the signal.
func (i Identity) Signal(signal unix.Signal) error {
	if i.PID <= 0 {
		return ErrGone
	}
	fd, err := unix.PidfdOpen(i.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", i.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !i.Alive() {
		return ErrGone
	}
	err = unix.PidfdSendSignal(fd, signal, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return ErrGone
	}
	if err != nil {
		return fmt.Errorf("sending %v to process %d: %w", signal, i.PID, err)
	}
	return nil
}

// WaitGone returns nil once the process is gone, or the context's error.
func (i Identity) WaitGone(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for i.Alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// readStat returns start time and state of a process. The second field is the command in parentheses and may hold spaces and
// parentheses itself, so the fields are counted from the last closing one.
func readStat(pid int) (startTime uint64, state string, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, "", ErrGone
	}
	if err != nil {
		return 0, "", fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	text := string(content)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const firstField = 3 // in the numbering of proc(5)
	const stateField, startTimeField = 0, 22 - firstField
	if len(fields) <= startTimeField {
		return 0, "", fmt.Errorf("reading the state of process %d: %d fields are too few", pid, len(fields))
	}
	startTime, err = strconv.ParseUint(fields[startTimeField], 10, 64)
	if err != nil {
		return 0, "", fmt.Errorf("reading the start time of process %d: %w", pid, err)
	}
	return startTime, fields[stateField], nil
}
