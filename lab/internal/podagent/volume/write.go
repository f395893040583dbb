// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The names of a volume's folder that are not the pod's. Programs know ..data.
const (
	dataLink  = "..data"
	dataDraft = "..data_tmp"
	dotDots   = ".."
)

// Write makes the folder show exactly these files and reports whether that changed anything. The files belong to root and to the group, who may read
// what their owner may; without a group, -1, they stay the process's own. A reader sees all of the old files or all of the new ones.
func Write(folder string, files Files, group int) (changed bool, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // its files have their own modes
		return false, fmt.Errorf("making a volume: %w", err)
	}
	old, err := os.Readlink(filepath.Join(folder, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading a volume: %w", err)
	}
	if old != "" && shows(filepath.Join(folder, old), files, group) {
		return false, nil
	}
	fresh, err := os.MkdirTemp(folder, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return false, fmt.Errorf("making a volume's new files: %w", err)
	}
	if err := fill(fresh, files, group); err != nil {
		return false, errors.Join(err, os.RemoveAll(fresh))
	}
	if err := swap(folder, filepath.Base(fresh)); err != nil {
		return false, errors.Join(err, os.RemoveAll(fresh))
	}
	if err := link(folder, files); err != nil {
		return false, err
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(folder, old)); err != nil {
			return false, fmt.Errorf("removing a volume's old files: %w", err)
		}
	}
	return true, nil
}

// Empty makes a folder for a pod to write to. It stays as it is if it is there.
func Empty(folder string, group int) error {
	if err := os.MkdirAll(folder, 0o777); err != nil { //nolint:gosec // an emptyDir is everybody's in the pod
		return fmt.Errorf("making a volume: %w", err)
	}
	if group >= 0 {
		if err := os.Chown(folder, -1, group); err != nil {
			return fmt.Errorf("making a volume: %w", err)
		}
	}
	mode := fs.FileMode(0o777)
	if group >= 0 {
		mode |= fs.ModeSetgid
	}
	if err := os.Chmod(folder, mode); err != nil {
		return fmt.Errorf("making a volume: %w", err)
	}
	return nil
}

// modeOf is the mode of a file that a group owns: the group may do what the owner may, but for executing.
func modeOf(f File, group int) fs.FileMode {
	mode := fs.FileMode(f.Mode) & fs.ModePerm //nolint:gosec // permissions
	if group >= 0 {
		mode |= 0o440
	}
	return mode
}

func fill(folder string, files Files, group int) error {
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // its files have their own modes
		return fmt.Errorf("making a volume's new files: %w", err)
	}
	for name, file := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as above
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if err := os.WriteFile(path, file.Data, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		if group >= 0 {
			if err := os.Chown(path, -1, group); err != nil {
				return fmt.Errorf("writing %s: %w", name, err)
			}
		}
		if err := os.Chmod(path, modeOf(file, group)); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

func swap(folder, fresh string) error {
	draft := filepath.Join(folder, dataDraft)
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("showing a volume's new files: %w", err)
	}
	if err := os.Symlink(fresh, draft); err != nil {
		return fmt.Errorf("showing a volume's new files: %w", err)
	}
	if err := os.Rename(draft, filepath.Join(folder, dataLink)); err != nil {
		return fmt.Errorf("showing a volume's new files: %w", err)
	}
	return nil
}

// link makes the names that the container sees, and removes those of files that are no more.
func link(folder string, files Files) error {
	wanted := map[string]bool{}
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		wanted[first] = true
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("reading a volume: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case strings.HasPrefix(name, dotDots):
		case wanted[name]:
			delete(wanted, name)
		default:
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				return fmt.Errorf("removing %s: %w", name, err)
			}
		}
	}
	for name := range wanted {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("showing %s: %w", name, err)
		}
	}
	return nil
}

// shows reports whether the folder holds just these files.
func shows(folder string, files Files, group int) bool {
	seen := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		file, ok := files[name]
		if !ok {
			return fs.ErrNotExist
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, file.Data) || info.Mode().Perm() != modeOf(file, group) {
			return fs.ErrNotExist
		}
		seen++
		return nil
	})
	return err == nil && seen == len(files)
}

// Resolve returns what a container's mount of the volume in the folder shows: the folder, or subPath in it, which is made in an emptyDir. A file of
// other volumes is shown as it is now, and never changes: so does a kubelet.
func Resolve(folder, subPath string) (string, error) {
	if subPath == "" {
		return folder, nil
	}
	if slices.Contains(strings.Split(subPath, "/"), "..") || filepath.IsAbs(subPath) {
		return "", fmt.Errorf("subPath %q leads out of the volume", subPath)
	}
	path := filepath.Join(folder, subPath)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(path, 0o777); err != nil { //nolint:gosec // as of an emptyDir
			return "", fmt.Errorf("making subPath %q: %w", subPath, err)
		}
		return path, nil
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("finding subPath %q: %w", subPath, err)
	}
	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return "", fmt.Errorf("finding a volume: %w", err)
	}
	if resolved != root && !strings.HasPrefix(resolved, root+"/") {
		return "", fmt.Errorf("subPath %q leads out of the volume", subPath)
	}
	return resolved, nil
}
