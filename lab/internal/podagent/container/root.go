// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// rootSize bounds what a container may write outside of its volumes.
const rootSize = "size=64m,mode=0755"

// enterRoot makes the root file system and makes it this process's own. Nothing of it is seen outside of this mount namespace.
func enterRoot(spec Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mount namespace private: %w", err)
	}
	if err := unix.Mount("tmpfs", spec.Root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, rootSize); err != nil {
		return fmt.Errorf("mounting the root file system: %w", err)
	}
	if err := furnish(spec); err != nil {
		return err
	}
	if err := os.Chdir(spec.Root); err != nil {
		return fmt.Errorf("entering the root file system: %w", err)
	}
	// Both at the same place, then the old one goes: pivot_root(2).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("entering the root file system: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the old root file system: %w", err)
	}
	if spec.ReadOnly {
		if err := unix.Mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
			return fmt.Errorf("making the root file system read-only: %w", err)
		}
	}
	if err := os.Chdir(workingDir(spec)); err != nil {
		return fmt.Errorf("entering the working folder: %w", err)
	}
	return nil
}

func workingDir(spec Spec) string {
	if spec.Dir == "" {
		return "/"
	}
	return spec.Dir
}

// furnish puts everything into the root file system.
func furnish(spec Spec) error {
	inside := func(path string) string { return filepath.Join(spec.Root, path) }
	if err := putProgram(spec, inside); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(spec.Files)) {
		if err := os.MkdirAll(filepath.Dir(inside(path)), 0o755); err != nil { //nolint:gosec // seen by any user of the container
			return fmt.Errorf("making the folder of %s: %w", path, err)
		}
		if err := os.WriteFile(inside(path), []byte(spec.Files[path]), 0o644); err != nil { //nolint:gosec // as above
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	if err := putDevices(inside); err != nil {
		return err
	}
	if err := putProc(inside("/proc")); err != nil {
		return err
	}
	if err := os.MkdirAll(inside(workingDir(spec)), 0o755); err != nil { //nolint:gosec // as above
		return fmt.Errorf("making the working folder: %w", err)
	}
	for _, m := range spec.Mounts {
		if err := bind(m.Source, inside(m.Target), m.ReadOnly); err != nil {
			return fmt.Errorf("mounting %s: %w", m.Target, err)
		}
	}
	return nil
}

// putProgram shows the program at its first path, and links from the others to that.
func putProgram(spec Spec, inside func(string) string) error {
	for i, path := range spec.Paths {
		if i == 0 {
			if err := bind(spec.Program, inside(path), true); err != nil {
				return fmt.Errorf("putting the program at %s: %w", path, err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(inside(path)), 0o755); err != nil { //nolint:gosec // as above
			return fmt.Errorf("making the folder of %s: %w", path, err)
		}
		if err := os.Symlink(spec.Paths[0], inside(path)); err != nil {
			return fmt.Errorf("linking %s: %w", path, err)
		}
	}
	return nil
}

// putDevices makes the devices that every container has (OCI runtime specification, Linux, default devices), by showing the machine's own.
func putDevices(inside func(string) string) error {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bind(filepath.Join("/dev", name), inside("/dev/"+name), false); err != nil {
			return fmt.Errorf("mounting /dev/%s: %w", name, err)
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, inside("/dev/"+name)); err != nil {
			return fmt.Errorf("linking /dev/%s: %w", name, err)
		}
	}
	return nil
}

// putProc mounts the proc file system of the container's own PID namespace. Where the machine hides parts of its own /proc, as some containers' do,
// the kernel allows it to nobody; programs do without, then.
func putProc(target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil { //nolint:gosec // as above
		return fmt.Errorf("making /proc: %w", err)
	}
	err := unix.Mount("proc", target, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	if err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}

// bind shows a file or folder at target, which is made. Read-only takes a second step: the first one ignores it (mount(2)).
func bind(source, target string, readOnly bool) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if err := makeTarget(target, info.IsDir()); err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if !readOnly {
		return nil
	}
	flags, err := lockedFlags(target)
	if err != nil {
		return err
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|flags, "")
}

// lockedFlags are those of the file system that a remount must name again, since without root they may not be taken away (mount_namespaces(7)).
func lockedFlags(target string) (uintptr, error) {
	var state unix.Statfs_t
	if err := unix.Statfs(target, &state); err != nil {
		return 0, err
	}
	var flags uintptr
	for seen, flag := range map[int64]uintptr{
		unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV, unix.ST_NOEXEC: unix.MS_NOEXEC,
		unix.ST_NOATIME: unix.MS_NOATIME, unix.ST_NODIRATIME: unix.MS_NODIRATIME, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if state.Flags&seen != 0 {
			flags |= flag
		}
	}
	return flags, nil
}

func makeTarget(target string, folder bool) error {
	if folder {
		return os.MkdirAll(target, 0o755) //nolint:gosec // a mount point
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // a mount point's folder
		return err
	}
	file, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644) //nolint:gosec // a mount point
	if err != nil {
		return err
	}
	return file.Close()
}
