// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Rescan makes the kernel ask the disk for its size, where it is a SCSI disk, and returns the size.
func (h *Host) Rescan(_ context.Context, d Device) (int64, error) {
	file := filepath.Join(or(h.Sysfs, "/sys"), "dev/block", numberText(d.Number), "device/rescan")
	if err := os.WriteFile(file, []byte("1"), 0o200); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("making the kernel see the new size of %s: %w", d.Path, err)
	}
	return sizeOf(d.Path)
}

// Grow grows the file system of a device to the device's size, if it is smaller: at path if it is mounted, or before if path is empty. Before is ext4's way,
// since it works where a kernel refuses growth of what is mounted; xfs grows only when it is mounted.
func (h *Host) Grow(ctx context.Context, d Device, path string) error {
	size, err := sizeOf(d.Path)
	if err != nil {
		return err
	}
	have, fileSystem, err := fileSystemSize(d.Path, size)
	if err != nil {
		return err
	}
	const slack = 16 << 20 // what a file system may leave at the end of its device
	if have == 0 || size-have < slack {
		return nil
	}
	if path == "" {
		return h.growBefore(ctx, d, fileSystem)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err == nil && st.Flags&unix.ST_RDONLY != 0 {
		return nil // it grows when it can be written
	}
	switch fileSystem {
	case "ext4":
		return run(ctx, "resize2fs", d.Path)
	case "xfs":
		return run(ctx, "xfs_growfs", path)
	}
	return nil
}

// growBefore grows what is not mounted. resize2fs needs a full check first. A half-done one must not be cut off by a request that gives up waiting.
func (h *Host) growBefore(ctx context.Context, d Device, fileSystem string) error {
	if fileSystem != "ext4" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestCheck)
	defer cancel()
	if err := checked(run(ctx, "e2fsck", "-f", "-p", d.Path), d); err != nil {
		return err
	}
	return run(ctx, "resize2fs", d.Path)
}

// fileSystemSize reads from its superblock how large a file system takes its device to be, in bytes; 0 if it is none that grows, or not whole.
func fileSystemSize(device string, size int64) (int64, string, error) {
	f, err := os.Open(device)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = f.Close() }()
	first := make([]byte, edge)
	if err := readWhole(f, 0, first); err != nil {
		return 0, "", fmt.Errorf("reading the superblock of %s: %w", device, err)
	}
	for _, s := range superblocks(first, size) {
		if s.damage == "" {
			return s.size, s.name, nil
		}
	}
	return 0, "", nil
}

// Amount is how much of something there is.
type Amount struct{ Total, Used, Available int64 }

// Statistics are those of a volume. A raw block volume has only a total of bytes.
type Statistics struct {
	Block         bool
	Bytes, Inodes Amount
}

// Statistics returns those of the file system or device at a path.
func (h *Host) Statistics(path string) (Statistics, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return Statistics{}, fmt.Errorf("%w: %s", ErrNoPath, path)
		}
		return Statistics{}, fmt.Errorf("looking at %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		size, err := sizeOf(path)
		return Statistics{Block: true, Bytes: Amount{Total: size}}, err
	}
	if _, mounted, err := h.At(path); err != nil || !mounted {
		return Statistics{}, errors.Join(err, fmt.Errorf("%w: no volume is mounted at %s", ErrNoPath, path))
	}
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Statistics{}, fmt.Errorf("asking for the use of %s: %w", path, err)
	}
	unit := s.Bsize
	return Statistics{
		Bytes:  Amount{Total: int64(s.Blocks) * unit, Used: int64(s.Blocks-s.Bfree) * unit, Available: int64(s.Bavail) * unit},
		Inodes: Amount{Total: int64(s.Files), Used: int64(s.Files - s.Ffree), Available: int64(s.Ffree)},
	}, nil
}
