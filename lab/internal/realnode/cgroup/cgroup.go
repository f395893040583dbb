// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cgroup makes and removes the control groups of a lab's real machines. They are the one thing of a machine that the kernel does not remove
// when its last process is gone, so their names say whose they are: /mooring-lab-HASH/MACHINE, with a hash of the lab's folder.
//
// It knows version 1, with a hierarchy for each controller (cgroups(7)), where a kubelet's root must exist in every one of them before it starts.
package cgroup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is where the hierarchies are.
const Mount = "/sys/fs/cgroup"

// controllers are those that a kubelet needs.
func controllers() []string {
	return []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio"}
}

// hierarchies are the folders of all hierarchies, those without a controller included (systemd's, and the empty one of version 2): a
// kubelet's root must be in each of version 1, and runc makes groups in all.
func hierarchies() []string {
	entries, err := os.ReadDir(Mount)
	if err != nil {
		return nil
	}
	var folders []string
	for _, entry := range entries {
		folder := filepath.Join(Mount, entry.Name())
		var stat unix.Statfs_t
		if entry.IsDir() && unix.Statfs(folder, &stat) == nil && (stat.Type == unix.CGROUP_SUPER_MAGIC || stat.Type == unix.CGROUP2_SUPER_MAGIC) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// Check returns, in one sentence with the cure, why real machines cannot have control groups below mount; nil if they can.
func Check(mount string) error {
	var missing []string
	for _, name := range controllers() {
		if _, err := os.Stat(filepath.Join(mount, name, "cgroup.procs")); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := os.Stat(filepath.Join(mount, "cgroup.controllers")); err == nil {
		return fmt.Errorf("%s is cgroup version 2, and the lab's real machines need version 1; boot with systemd.unified_cgroup_hierarchy=0, "+
			"or leave the machines simulated", mount)
	}
	return fmt.Errorf("the cgroup controllers %s are not mounted below %s; install and start cgroupfs-mount, or leave the machines simulated",
		strings.Join(missing, ", "), mount)
}

// Root is the group of all machines of the lab in a folder, as a path from each hierarchy's top.
func Root(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return prefix + hex.EncodeToString(sum[:4])
}

// prefix is what the groups of all labs begin with.
const prefix = "/mooring-lab-"

// Roots are the groups that labs have in any hierarchy now, as Root names them, in order.
func Roots() []string {
	var roots []string
	for _, hierarchy := range hierarchies() {
		found, _ := filepath.Glob(filepath.Join(hierarchy, prefix+"*")) // the pattern is well formed
		for _, path := range found {
			roots = append(roots, "/"+filepath.Base(path))
		}
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// Of is the group of one machine.
func Of(dir, machine string) string { return Root(dir) + "/" + machine }

// Make makes a group and its parents in every hierarchy. It is idempotent.
func Make(group string) error {
	for _, path := range hierarchies() {
		controller := filepath.Base(path)
		for name := range strings.SplitSeq(strings.TrimPrefix(group, "/"), "/") {
			path = filepath.Join(path, name)
			if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // as all groups are
				return fmt.Errorf("making the control group %s: %w", path, err)
			}
			if controller != "cpuset" {
				continue
			}
			// A new group may use no processor and no memory until it is told which (cpuset(7)).
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				content, err := os.ReadFile(filepath.Join(filepath.Dir(path), file))
				if err == nil {
					err = os.WriteFile(filepath.Join(path, file), content, 0o600)
				}
				if err != nil {
					return fmt.Errorf("making the control group %s: %w", path, err)
				}
			}
		}
	}
	return nil
}

// removePatience is how long a group may be busy: the kernel empties it a moment after its last process has ended.
const removePatience = 10 * time.Second

// Remove removes a group with all groups in it from every hierarchy. One that does not exist is not an error. No process may be in there any more.
func Remove(ctx context.Context, group string) error {
	ctx, cancel := context.WithTimeout(ctx, removePatience)
	defer cancel()
	for {
		err := remove(group)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func remove(group string) error {
	var errs []error
	for _, hierarchy := range hierarchies() {
		var folders []string
		top := filepath.Join(hierarchy, group)
		err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		errs = append(errs, err)
		for _, folder := range slices.Backward(folders) { // parents come before their children
			if err := unix.Rmdir(folder); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("removing the control group %s: %w", folder, err))
			}
		}
	}
	return errors.Join(errs...)
}
