// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mounted is one line of /proc/self/mountinfo (man proc_pid_mountinfo).
type mounted struct {
	number uint64 // of the device
	root   string // what of its file system is there
	path   string
	fsType string
	source string
}

// parseMounts reads mountinfo. A line that is not understood is an error: what is mounted decides what is safe.
func parseMounts(text string) ([]mounted, error) {
	var all []mounted
	scanner := bufio.NewScanner(strings.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		before, after, found := strings.Cut(scanner.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !found || len(left) < 6 || len(right) < 2 {
			return nil, fmt.Errorf("mountinfo has a line that is not understood: %q", scanner.Text())
		}
		major, minor, _ := strings.Cut(left[2], ":")
		a, errA := strconv.ParseUint(major, 10, 32)
		b, errB := strconv.ParseUint(minor, 10, 32)
		if errA != nil || errB != nil {
			return nil, fmt.Errorf("mountinfo has a line that is not understood: %q", scanner.Text())
		}
		all = append(all, mounted{
			number: unix.Mkdev(uint32(a), uint32(b)), root: unescape(left[3]), path: unescape(left[4]), fsType: right[0], source: unescape(right[1]),
		})
	}
	return all, scanner.Err()
}

// unescape reads the octal escapes of mountinfo: blank, tab, line break and backslash.
func unescape(text string) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace(text)
}

func readMounts() ([]mounted, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading what is mounted: %w", err)
	}
	return parseMounts(string(text))
}

// real follows links, so that a path can be compared with those of the kernel. What does not exist is left as it is.
func realPath(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	return filepath.Clean(path)
}

// last returns what is mounted at a path: the last of several on top of each other.
func last(all []mounted, path string) (mounted, bool) {
	for _, one := range slices.Backward(all) {
		if one.path == path {
			return one, true
		}
	}
	return mounted{}, false
}

// At returns the device that is mounted, or bound, at a path.
func (h *Host) At(path string) (Device, bool, error) {
	all, err := readMounts()
	if err != nil {
		return Device{}, false, err
	}
	m, found := last(all, realPath(path))
	if !found {
		return Device{}, false, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
		size, err := sizeOf(path)
		return Device{Path: h.byNumber(st.Rdev, path), Number: st.Rdev, Size: size, Bound: true}, true, err
	}
	device := h.byNumber(m.number, m.source)
	size, err := sizeOf(device)
	if err != nil {
		return Device{Path: device, Number: m.number}, true, nil //nolint:nilerr // something is mounted that is not a disk, or whose disk is gone
	}
	return Device{Path: device, Number: m.number, Size: size}, true, nil
}

// byNumber returns the file of a device by the kernel's own name for it.
func (h *Host) byNumber(number uint64, otherwise string) string {
	target, err := os.Readlink(filepath.Join(or(h.Sysfs, "/sys"), "dev/block", numberText(number)))
	if err != nil {
		return otherwise
	}
	return filepath.Join(or(h.Devices, "/dev"), filepath.Base(target))
}

// Mounts returns the paths where a device's file system is mounted, or the device itself is bound.
func (h *Host) Mounts(d Device) ([]string, error) {
	all, err := readMounts()
	if err != nil {
		return nil, err
	}
	return mountsOf(all, d), nil
}

func mountsOf(all []mounted, d Device) []string {
	var paths []string
	for _, m := range all {
		if m.number == d.Number || m.fsType == "devtmpfs" && filepath.Join("/", m.root) == "/"+filepath.Base(d.Path) {
			paths = append(paths, m.path)
		}
	}
	return paths
}

// Mount mounts the file system of a device. Read-only, its journal is not replayed, which would write.
func (h *Host) Mount(_ context.Context, d Device, target, fileSystem string, options Options) error {
	if err := notALink(target); err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return fmt.Errorf("making %s: %w", target, err)
	}
	flags, rest := options.flags, options.rest
	if options.ReadOnly {
		flags |= unix.MS_RDONLY
		rest = append(slices.Clone(rest), withoutJournal(fileSystem))
	}
	if fileSystem == "xfs" && !slices.Contains(rest, "nouuid") { // a clone has the UUID of its source, and both may be here
		rest = append(slices.Clone(rest), "nouuid")
	}
	data := strings.Join(rest, ",")
	if err := unix.Mount(d.Path, target, fileSystem, flags, data); err != nil {
		return fmt.Errorf("mounting %s with %s at %s (options %q): %w", d.Path, fileSystem, target, data, err)
	}
	return nil
}

// withoutJournal is the option by which a file system is mounted without replaying its journal (ext4(5), xfs(5)).
func withoutJournal(fileSystem string) string {
	if fileSystem == "xfs" {
		return "norecovery"
	}
	return "noload"
}

// notALink refuses a path that is a symbolic link: what is mounted or unmounted there would be somewhere else.
func notALink(target string) error {
	if info, err := os.Lstat(target); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%w: %s is a symbolic link: remove it", ErrUnsafe, target)
	}
	return nil
}

// Bind makes a folder, or a device, appear at a second place.
func (h *Host) Bind(_ context.Context, source, target string, device, readOnly bool) error {
	all, err := readMounts()
	if err != nil {
		return err
	}
	if _, found := last(all, realPath(target)); found {
		return h.checkBound(source, target, readOnly)
	}
	if err := errors.Join(notALink(target), makeTarget(target, device)); err != nil {
		return fmt.Errorf("making %s: %w", target, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", source, target, err)
	}
	if readOnly {
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return errors.Join(fmt.Errorf("making %s read-only: %w", target, err), unix.Unmount(target, 0))
		}
	}
	return nil
}

// checkBound accepts what an earlier request has bound, and finishes what it did not get to.
func (h *Host) checkBound(source, target string, readOnly bool) error {
	var from, to unix.Stat_t
	if err := errors.Join(unix.Stat(source, &from), unix.Stat(target, &to)); err != nil {
		return fmt.Errorf("comparing %s with %s: %w", source, target, err)
	}
	if from.Dev != to.Dev || from.Ino != to.Ino {
		return fmt.Errorf("%w: something else is mounted at %s than %s: unmount it", ErrUnsafe, target, source)
	}
	if readOnly {
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("making %s read-only: %w", target, err)
		}
	}
	return nil
}

func makeTarget(target string, device bool) error {
	if !device {
		return os.MkdirAll(target, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|unix.O_CLOEXEC, 0o660)
	if err != nil {
		return err
	}
	return f.Close()
}

// Unmount unmounts everything at a path and removes the path, which must be empty then: files below it are somebody's.
func (h *Host) Unmount(_ context.Context, path string) error {
	if err := notALink(path); err != nil {
		return err
	}
	for range 8 { // a crash may have left more than one mount on top of each other
		all, err := readMounts()
		if err != nil {
			return err
		}
		if _, found := last(all, realPath(path)); !found {
			break
		}
		if err := unix.Unmount(realPath(path), unix.UMOUNT_NOFOLLOW); err != nil {
			if errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("%w: something still uses %s: find it with fuser -m", ErrBusy, path)
			}
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%w: %s is not a mount and has files: they are left as they are", ErrUnsafe, path)
		}
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}
