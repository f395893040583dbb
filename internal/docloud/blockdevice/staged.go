// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// stagedFile is where the name of the volume is kept that is staged at a path. It is not next to the path: the kubelet cannot
// remove a folder in which a file is left, and a driver that is put in this one's place would leave it.
func (h *Host) stagedFile(path string) string {
	return filepath.Join(h.State, fmt.Sprintf("staged-%x", sha256.Sum256([]byte(filepath.Clean(path)))))
}

// Remember keeps the name of the volume that is to be staged at a path. A path that is a symbolic link is refused here, before
// anything is done to the volume.
func (h *Host) Remember(path, name string) error {
	if err := notALink(path); err != nil {
		return err
	}
	if err := writeSynced(h.stagedFile(path), name); err != nil {
		return fmt.Errorf("keeping the name of the volume that is staged at %s: %w", path, err)
	}
	return nil
}

// Staged returns the name of the volume that was staged at a path, "" if it is not known.
func (h *Host) Staged(path string) (string, error) {
	name, err := os.ReadFile(h.stagedFile(path))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading which volume is staged at %s: %w", path, err)
	}
	return string(name), nil
}

// Forget removes what Remember has kept.
func (h *Host) Forget(path string) error {
	if err := os.Remove(h.stagedFile(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the name of the volume that was staged at %s: %w", path, err)
	}
	return nil
}

// Unused reports by an error that something has the device of a volume. A device that is not there, or is not that volume's any
// more, is unused.
func (h *Host) Unused(name string) error {
	d, err := h.resolve(h.link(name))
	if err != nil || d.Size == 0 {
		return nil //nolint:nilerr // it is gone
	}
	if _, _, err := h.shown(d, name); err != nil {
		return nil //nolint:nilerr // the link is left over
	}
	where, err := h.Mounts(d)
	if err != nil {
		return err
	}
	if len(where) > 0 {
		return fmt.Errorf("%w: %s is at %s", ErrBusy, d.Path, where[0])
	}
	if err := alone(d.Path); errors.Is(err, ErrBusy) {
		return fmt.Errorf("%w: a program in another mount namespace may have it; find it with grep %s /proc/[0-9]*/mountinfo, or lsof %s", err, numberText(d.Number), d.Path)
	}
	return nil
}
