// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package scratch gives a test process one folder for all its temporary files, which does not outlive it: it is removed
// when the process is done, and if the process was killed, by the next one that asks for a folder.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// prefix begins the names of the folders. It is short, since sockets have their paths in them (unix(7): 107 bytes).
	prefix = "mooring-test-"
	// young is the age below which a folder that nobody holds may be one that has just been made.
	young = time.Minute
	// patience is how long Remove tries again: processes that were just killed may still write.
	patience = 10 * time.Second
)

// Folder is the folder of a process that lives.
type Folder struct {
	// Path is absolute if that of the parent is.
	Path string
	held *os.File
}

// New makes a folder in parent ([os.TempDir] if empty), and removes those in parent whose processes are gone.
// The folder is held by a lock on it (flock(2)), which ends with the process and which its children do not have.
func New(parent string) (*Folder, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	swept := sweep(parent, time.Now())
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, errors.Join(err, swept)
	}
	held, err := hold(path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return &Folder{Path: path, held: held}, nil
}

// Enter gives this process a folder of its own for all temporary files ([os.TempDir]), and returns what removes it. A
// process whose parent has given it one, as hack/testexec does, stays in that.
func Enter() (leave func() error, err error) {
	if strings.HasPrefix(filepath.Base(os.TempDir()), prefix) {
		return func() error { return nil }, nil
	}
	f, err := New("")
	if err != nil {
		return nil, err
	}
	return f.Remove, os.Setenv("TMPDIR", f.Path)
}

// Remove removes the folder with all that is in it.
func (f *Folder) Remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := removeAll(f.Path)
		if err == nil {
			return f.held.Close()
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("removing a test's files: %w", err), f.held.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// hold locks a folder, or fails if another process has.
func hold(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(&os.PathError{Op: "flock", Path: path, Err: err}, dir.Close())
	}
	return dir, nil
}

// removeAll removes a folder, unless something is mounted below it: what a killed test had mounted there, such as a folder
// of the machine, is not the test's to remove.
func removeAll(path string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("reading what is mounted: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line) // the fifth is where it is mounted (proc_pid_mountinfo(5))
		if len(fields) > 4 && strings.HasPrefix(fields[4], path+"/") {
			return fmt.Errorf("%s is mounted: unmount it, then remove %s", fields[4], path)
		}
	}
	return os.RemoveAll(path)
}

// sweep removes the folders that nobody holds. One that cannot be removed, such as another user's, does not keep a test
// from running: it is only told of where no folder can be made either.
func sweep(parent string, now time.Time) error {
	all, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	for _, path := range all {
		info, gone := os.Lstat(path)
		if gone != nil || !info.IsDir() || now.Sub(info.ModTime()) < young {
			continue
		}
		held, busy := hold(path)
		if busy != nil {
			continue
		}
		err = errors.Join(err, removeAll(path), held.Close())
	}
	return err
}
