// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// inUse reports whether a file system on a device is mounted, or another program has claimed it.
func inUse(device string) bool {
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Is(err, unix.EBUSY)
	}
	_ = f.Close()
	return false
}

// cut makes all that is written to a loop device fail, as if the disk were pulled out, while it is mounted: its file becomes one that nobody can write
// (FS_IMMUTABLE_FL), and the volume goes on in a copy of it. What was written before is in the copy; what the kernel writes afterwards, at the unmount for
// instance, is an input/output error. The device keeps its size: file systems of the kernel try for ever to read what is beyond the end of one that shrank.
func (d *Disks) cut(volume string, loop *os.File) error {
	file, err := os.Open(d.File(volume))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	// A file that cannot be written cannot be removed either. The device holds it until it is unmounted.
	if err := os.Remove(d.File(volume)); err != nil {
		return err
	}
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags|immutable)
	}
	// To set what is set already waits for the writes that are under way.
	info := unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}
	if err = errors.Join(err, unix.IoctlLoopSetStatus64(int(loop.Fd()), &info)); err != nil {
		err = fmt.Errorf("pulling %s out: %w", loop.Name(), err)
	}
	return errors.Join(err, copyFile(file, d.File(volume)))
}

// Adopt takes a volume of an earlier process of the simulator, which knows its name and the droplet that it is attached to, 0 for none. A device that is
// still mounted is found by its file and goes on; any other is made again.
func (d *Disks) Adopt(volume, name string, droplet int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[volume] = name
	if droplet == 0 {
		return nil
	}
	describe := func(device string) error { return d.describe(device, assumed.DiskVendor, name) }
	loop, err := deviceOf(d.File(volume))
	if err == nil && loop == nil {
		loop, err = d.loop(d.File(volume), describe)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(describe(loop.Name()), d.link(name, droplet, loop.Name())); err != nil {
		return errors.Join(err, loop.Close())
	}
	d.attached[volume] = attachment{droplet, loop}
	return nil
}

// deviceOf opens the loop device whose file is at a path, nil if there is none.
func deviceOf(file string) (*os.File, error) {
	described, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for _, path := range described {
		content, err := os.ReadFile(path)
		if err != nil || strings.TrimSuffix(string(content), "\n") != file {
			continue // it may have gone meanwhile
		}
		return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(filepath.Dir(path)))), os.O_RDWR, 0)
	}
	return nil, nil
}
