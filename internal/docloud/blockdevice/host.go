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
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// Errors, for errors.Is. Each is wrapped in a sentence.
var (
	// ErrNoDevice is a device that is not there yet.
	ErrNoDevice = errors.New("the device is not there")
	// ErrUnsafe is a device that is left alone, since it is not proven to be what it should be.
	ErrUnsafe = errors.New("the device is left as it is")
	// ErrBusy is a device that something uses.
	ErrBusy = errors.New("the device is in use")
	// ErrNoPath is a path that does not exist.
	ErrNoPath = errors.New("the path does not exist")
)

const (
	// kubernetesPrefix begins the names of volumes that Kubernetes made (csi-provisioner's default).
	kubernetesPrefix = "pvc-"
	// DefaultWait is how long a link may take to appear after the attachment.
	DefaultWait = 30 * time.Second
	gib         = 1 << 30
)

// Device is a block device of this machine.
type Device struct {
	// Path is below /dev, never a link; Number is what the kernel calls it.
	Path   string
	Number uint64
	// Size is in bytes.
	Size int64
	// Bound is a device that is itself at a path, not its file system.
	Bound bool
}

// Host is this machine.
type Host struct {
	// Links is the folder with the links, /dev/disk/by-id if empty.
	Links string
	// Sysfs is where the kernel describes devices, /sys if empty.
	Sysfs string
	// Devices is where device files are, /dev if empty.
	Devices string
	// Wait is how long a link may take to appear, [DefaultWait] if 0.
	Wait  time.Duration
	Clock clock.Clock
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// link is where udev shows a volume.
func (h *Host) link(name string) string {
	return filepath.Join(or(h.Links, "/dev/disk/by-id"), assumed.DiskLink+name)
}

// Find waits for the link of a volume, and proves that what is behind it is that volume.
func (h *Host) Find(ctx context.Context, name string, size int64) (Device, error) {
	link := h.link(name)
	end := h.Clock.Now().Add(h.waitTime())
	for {
		d, err := h.resolve(link)
		if err == nil {
			err = h.prove(d, name, size)
		}
		if err == nil || !errors.Is(err, ErrNoDevice) && !h.Clock.Now().Before(end) {
			return d, err
		}
		if !h.Clock.Now().Before(end) {
			return d, fmt.Errorf("%w after %s; if the volume is attached, look at udev on this node: %w", err, h.waitTime(), ErrNoDevice)
		}
		select {
		case <-ctx.Done():
			return d, errors.Join(err, ctx.Err())
		case <-h.Clock.NewTimer(100 * time.Millisecond).C():
		}
	}
}

func (h *Host) waitTime() time.Duration {
	if h.Wait == 0 {
		return DefaultWait
	}
	return h.Wait
}

// resolve follows a link to a device.
func (h *Host) resolve(link string) (Device, error) {
	path, err := filepath.EvalSymlinks(link)
	if errors.Is(err, fs.ErrNotExist) {
		return Device{}, fmt.Errorf("%w: there is no %s", ErrNoDevice, link)
	}
	if err != nil {
		return Device{}, fmt.Errorf("following %s: %w", link, err)
	}
	return h.open(path)
}

// open looks at a device.
func (h *Host) open(path string) (Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Device{}, fmt.Errorf("%w: %s: %w", ErrNoDevice, path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Device{}, fmt.Errorf("%w: %s is not a block device", ErrUnsafe, path)
	}
	size, err := sizeOf(path)
	if err != nil {
		return Device{}, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	return Device{Path: path, Number: st.Rdev, Size: size}, nil
}

// sizeOf asks the kernel for a device's size, which is its end.
func sizeOf(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return f.Seek(0, 2)
}

// prove checks that a device is the volume that is asked for: its size, and its serial where the kernel shows one. A link may be left from a volume that was detached.
func (h *Host) prove(d Device, name string, size int64) error {
	if d.Size == 0 {
		return fmt.Errorf("%w: %s has no bytes", ErrNoDevice, d.Path)
	}
	if size > 0 && (d.Size < size || d.Size%gib != 0) {
		return fmt.Errorf("%w: %s has %d bytes and volume %s has %d at DigitalOcean: the link may be left from another volume; look at %s on this node",
			ErrUnsafe, d.Path, d.Size, name, size, h.link(name))
	}
	serial, known := h.serial(d)
	if known && !isSerialOf(serial, name) {
		return fmt.Errorf("%w: %s has the serial %q, which is not that of volume %s: the link is left from another volume", ErrUnsafe, d.Path, serial, name)
	}
	return nil
}

// isSerialOf reports whether a serial is that of a volume: its name, possibly after something that no name has, since data is not data-2.
func isSerialOf(serial, name string) bool {
	before, whole := strings.CutSuffix(serial, name)
	return whole && (before == "" || strings.HasSuffix(before, "_") || strings.HasSuffix(before, " "))
}

// serial reads a SCSI disk's unit serial number, which is the volume's name at DigitalOcean. It is known only of disks that say they are DigitalOcean's.
func (h *Host) serial(d Device) (string, bool) {
	folder := filepath.Join(or(h.Sysfs, "/sys"), "dev/block", numberText(d.Number), "device")
	vendor, err := os.ReadFile(filepath.Join(folder, "vendor"))
	if err != nil || strings.TrimSpace(string(vendor)) != assumed.DiskVendor {
		return "", false
	}
	page, err := os.ReadFile(filepath.Join(folder, "vpd_pg80"))
	const header = 4 // SPC-4, 7.8.15: the page's code and length
	if err != nil || len(page) <= header {
		return "", false
	}
	serial := strings.TrimSpace(strings.TrimRight(string(page[header:]), "\x00"))
	return serial, serial != ""
}

func numberText(number uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))
}

// Foreign counts links of volumes whose names Kubernetes did not make.
func (h *Host) Foreign() int {
	entries, err := os.ReadDir(or(h.Links, "/dev/disk/by-id"))
	if err != nil {
		return 0
	}
	count := 0
	for _, e := range entries {
		name, volume := strings.CutPrefix(e.Name(), assumed.DiskLink)
		if volume && !strings.HasPrefix(name, kubernetesPrefix) && !strings.Contains(name, "-part") {
			count++
		}
	}
	return count
}

// Inspect reads both ends of a device.
func (h *Host) Inspect(_ context.Context, d Device) (Content, error) {
	f, err := os.OpenFile(d.Path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Content{}, fmt.Errorf("%w: opening it: %w", ErrUnsafe, err)
	}
	defer func() { _ = f.Close() }()
	if err := drop(f); err != nil {
		return Content{}, fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	first, last, err := readEnds(f, d.Size)
	if err != nil {
		return Content{}, fmt.Errorf("%w: %s: %w. Detach the volume and attach it again; if that does not help, ask DigitalOcean", ErrUnsafe, d.Path, err)
	}
	return Identify(first, last), nil
}

// drop makes the next read come from the disk instead of the kernel's memory, which may hold what another disk had at this place.
func drop(f *os.File) error {
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("dropping what the kernel remembers of %s: %w", f.Name(), err)
	}
	return nil
}
