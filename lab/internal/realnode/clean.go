// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/realnode/cgroup"
)

// dirFlag is the flag of the process RealNodes that names the lab's folder, by which Clean knows the labs that run.
const dirFlag = "--lab-dir="

// Clean removes the control groups of labs that do not run, in any folder, and returns them by name. The kernel has removed the rest of these labs already. It
// returns an error if the user may not remove one.
func Clean(ctx context.Context) ([]string, error) {
	roots := cgroup.Roots() // before the processes: the group of a lab is younger than its process
	running, err := running("/proc")
	if err != nil {
		return nil, err
	}
	var removed []string
	var errs []error
	for _, root := range roots {
		if slices.ContainsFunc(running, func(dir string) bool { return cgroup.Root(dir) == root }) {
			continue
		}
		err := cgroup.Remove(ctx, root)
		switch {
		case errors.Is(err, fs.ErrPermission):
			return removed, fmt.Errorf("removing what a lab has left needs root: %w", err)
		case err != nil:
			errs = append(errs, err)
		default:
			removed = append(removed, root)
		}
	}
	return removed, errors.Join(errs...)
}

// running returns the folders of the labs with real machines that run, by the command lines of a /proc.
func running(proc string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "cmdline"))
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var dirs []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		words := bytes.Split(content, []byte{0})
		if len(words) < 2 || string(words[1]) != blueprint.RealNodes {
			continue
		}
		for _, word := range words {
			if dir, ok := bytes.CutPrefix(word, []byte(dirFlag)); ok {
				dirs = append(dirs, string(dir))
			}
		}
	}
	return dirs, nil
}
