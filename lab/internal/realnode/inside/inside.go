// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package inside is the first process of a real machine: in namespaces of processes, mounts, network, host name and IPC that nobody else is in,
// it makes what package describe says and keeps the machine's programs running. When it ends, whatever ends it, the kernel kills all processes of
// its PID namespace at once (pid_namespaces(7)), shims and containers included, and their mounts go with the last of them.
package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/realnode/describe"
)

// Name is the hidden subcommand, whose only argument is the file with the machine's description.
const Name = "real-node"

// NewCommand returns the hidden subcommand.
func NewCommand() *cobra.Command {
	return &cobra.Command{
		Use: Name + " DESCRIPTION", Short: "Be the first process of a real machine (used by the lab)", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return run(args[0]) },
	}
}

func run(path string) error {
	if os.Getpid() != 1 {
		return errors.New("this is for the lab itself: it must be the first process of its namespaces")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the machine's description: %w", err)
	}
	var d describe.Description
	if err := json.Unmarshal(content, &d); err != nil {
		return fmt.Errorf("reading the machine's description: %w", err)
	}
	if err := furnish(d); err != nil {
		return err
	}
	c := newChildren()
	failed := make(chan error, len(d.Programs))
	go func() {
		for _, p := range d.Programs {
			ready := make(chan struct{})
			go func() { failed <- keep(c, p, ready) }()
			<-ready
		}
	}()
	return <-failed // keep returns only with an error
}

// furnish makes files, mounts and settings.
func furnish(d describe.Description) error {
	for _, folder := range d.Folders {
		if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // pods of any user read below
			return fmt.Errorf("making a folder: %w", err)
		}
	}
	for _, f := range d.Files {
		if err := os.WriteFile(f.Path, []byte(f.Content), 0o600); err != nil {
			return fmt.Errorf("writing a file: %w", err)
		}
	}
	// Mounts that a pod makes with Bidirectional propagation, as CSI drivers do, must be seen by the kubelet and by other pods.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing the mounts of the machine: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, b := range d.Binds {
		if err := unix.Mount(b.Source, b.Target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", b.Source, b.Target, err)
		}
	}
	for _, target := range d.Temporary {
		if err := unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
			return fmt.Errorf("mounting an empty folder on %s: %w", target, err)
		}
	}
	for _, s := range d.Settings {
		if err := os.WriteFile(filepath.Join("/proc/sys", s.Name), []byte(s.Value), 0o600); err != nil {
			return fmt.Errorf("setting %s: %w", s.Name, err)
		}
	}
	if err := pretend(d.Constants); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(d.Hostname)); err != nil {
		return fmt.Errorf("naming the machine: %w", err)
	}
	return nil
}

// pretend puts files in the place of kernel settings.
func pretend(constants []describe.Setting) error {
	for _, s := range constants {
		file := filepath.Join("/run/constants", s.Name)
		err := os.MkdirAll(filepath.Dir(file), 0o755) //nolint:gosec // as /proc/sys
		if err == nil {
			err = os.WriteFile(file, []byte(s.Value+"\n"), 0o600)
		}
		if err == nil {
			err = unix.Mount(file, filepath.Join("/proc/sys", s.Name), "", unix.MS_BIND, "")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a setting that the kernel does not have needs no file in its place
			return fmt.Errorf("fixing %s: %w", s.Name, err)
		}
	}
	return nil
}

const (
	// restartPause is waited before a program is started again, and pollInterval between two looks at a socket.
	restartPause = time.Second
	pollInterval = 20 * time.Millisecond
	// socketPatience is how long a program may take until it serves.
	socketPatience = 2 * time.Minute
)

// keep starts a program again whenever it ends, and closes ready when it serves for the first time. It returns when it never will.
func keep(c *children, p describe.Program, ready chan struct{}) error {
	for first := true; ; first = false {
		if p.Socket != "" {
			_ = os.Remove(p.Socket) // of a run before
		}
		log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("opening the log of %s: %w", p.Name, err)
		}
		ended, err := c.start(append([]string{p.Path}, p.Args...), p.Env, log)
		if err == nil && first {
			if err = begin(c, p, log, ended); err == nil {
				close(ready)
			}
		}
		_ = log.Close()
		if err != nil {
			return fmt.Errorf("%s: %w; its log is %s", p.Name, err, p.Log)
		}
		<-ended
		<-time.After(restartPause)
	}
}

// begin waits until a program serves and runs what comes then.
func begin(c *children, p describe.Program, log *os.File, ended <-chan unix.WaitStatus) error {
	if p.Socket == "" {
		return nil
	}
	late := time.After(socketPatience)
	for {
		if _, err := os.Stat(p.Socket); err == nil {
			break
		}
		select {
		case <-ended:
			return errors.New("it ended before it served")
		case <-late:
			return fmt.Errorf("it does not serve after %v", socketPatience)
		case <-time.After(pollInterval):
		}
	}
	for _, args := range p.Then {
		done, err := c.start(args, p.Env, log)
		if err != nil {
			return err
		}
		if status := <-done; status.ExitStatus() != 0 {
			return fmt.Errorf("%v failed with status %d", args, status.ExitStatus())
		}
	}
	return nil
}
