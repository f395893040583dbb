// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package disks makes the simulator's volumes real: each is a sparse file, and an attached one is a loop device with the link that udev makes on a droplet.
//
// Loop devices clear themselves as soon as nobody has them open, and this process holds each open as long as it is attached: none is left when it ends,
// however it ends. It needs root.
package disks

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// Disks are the files and devices. It implements digitalocean.Devices; it is safe for concurrent use.
type Disks struct {
	folder string

	mu       sync.Mutex // guards all below
	names    map[string]string
	attached map[string]attachment
	late     time.Duration
	keep     bool
	mislead  bool
	shown    struct{ serial, designator int }
}

type attachment struct {
	droplet int
	loop    *os.File
}

// New keeps its files in a folder.
func New(folder string) *Disks {
	d := &Disks{folder: folder, names: map[string]string{}, attached: map[string]attachment{}}
	d.Show(assumed.VolumeNameLength, assumed.VolumeNameLength)
	return d
}

// Show changes how many bytes of their names disks show that are attached from now on: as the serial number, VPD page
// 0x80, and as the designator of VPD page 0x83. A disk has no page for 0.
func (d *Disks) Show(serial, designator int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shown.serial, d.shown.designator = serial, designator
}

// Late makes links appear this much after the attachment.
func (d *Disks) Late(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.late = by
}

// KeepLinks leaves links behind when volumes are detached, as a udev that missed an event does.
func (d *Disks) KeepLinks(keep bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keep = keep
}

// Mislead makes links that are late lead to another volume's device first, as one does that is left from an earlier attachment.
func (d *Disks) Mislead(mislead bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mislead = mislead
}

// another returns the device of another volume of the droplet, always the same one of several.
func (d *Disks) another(volume string, droplet int) string {
	least := ""
	for id, a := range d.attached {
		if id != volume && a.droplet == droplet && (least == "" || a.loop.Name() < least) {
			least = a.loop.Name()
		}
	}
	return least
}

// Links is the folder with the links of a droplet.
func (d *Disks) Links(droplet int) string {
	return filepath.Join(d.folder, "by-id-"+strconv.Itoa(droplet))
}

// File is the file that is a volume.
func (d *Disks) File(volume string) string { return filepath.Join(d.folder, "volume-"+volume) }

// Device is the path of the loop device of a volume, empty if it is not attached.
func (d *Disks) Device(volume string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a, found := d.attached[volume]; found {
		return a.loop.Name()
	}
	return ""
}

func (d *Disks) snapshotFile(snapshot string) string {
	return filepath.Join(d.folder, "snapshot-"+snapshot)
}

// Create makes a sparse file, or a copy of a snapshot's.
func (d *Disks) Create(volume, name string, gigabytes int, snapshot string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names[volume] = name
	if snapshot != "" {
		if err := sparseCopy(d.snapshotFile(snapshot), d.File(volume)); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(d.File(volume), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(gigabytes)<<30), f.Close())
}

// Delete removes the file.
func (d *Disks) Delete(volume string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, found := d.attached[volume]; found {
		return fmt.Errorf("volume %s is attached", volume)
	}
	delete(d.names, volume)
	return ignoreGone(os.Remove(d.File(volume)))
}

// Attach makes a loop device, and the link to it.
func (d *Disks) Attach(volume string, droplet int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a, found := d.attached[volume]; found {
		return fmt.Errorf("volume %s is attached to droplet %d", volume, a.droplet)
	}
	// The link comes last: who follows it finds all that there is to know. A failure leaves nothing, so that the next
	// attempt is like the first.
	loop, err := d.loop(d.File(volume), func(device string) error {
		return errors.Join(d.cutLinks(device, droplet), d.describe(device, assumed.DiskVendor, d.names[volume]))
	})
	if err != nil {
		return err
	}
	d.attached[volume] = attachment{droplet, loop}
	if d.late > 0 {
		name := d.names[volume]
		if other := d.another(volume, droplet); d.mislead && other != "" {
			if err := d.link(name, droplet, other); err != nil {
				return err
			}
		}
		time.AfterFunc(d.late, func() { _ = d.link(name, droplet, loop.Name()) })
		return nil
	}
	if err := d.link(d.names[volume], droplet, loop.Name()); err != nil {
		delete(d.attached, volume)
		return errors.Join(err, loop.Close())
	}
	return nil
}

// Sysfs is a folder that describes the devices as the kernel does those of DigitalOcean: with their vendor and, as
// much as [Disks.Show] says, their name. Loop devices have neither in /sys.
func (d *Disks) Sysfs() string { return filepath.Join(d.folder, "sys") }

// nobody is the vendor of a device whose volume was detached: a link that is kept leads to it, and it may become another
// program's, which a machine of its own would not have.
const nobody = "NOBODY"

// describe is done before a device has bytes: a kernel has none that it does not describe.
func (d *Disks) describe(device, vendor, name string) error {
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return err
	}
	own := filepath.Join(d.Sysfs(), "devices", filepath.Base(device))
	numbers := filepath.Join(d.Sysfs(), "dev", "block")
	number := filepath.Join(numbers, fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	shown := func(most int) string { return name[:min(len(name), most)] }
	return errors.Join(
		os.MkdirAll(filepath.Join(own, "device"), 0o700), os.MkdirAll(numbers, 0o700),
		replace(filepath.Join(own, "device", "vendor"), fmt.Appendf(nil, "%-8s\n", vendor)),
		writePage(filepath.Join(own, "device"), 0x80, shown(d.shown.serial), nil),
		// One designator of the logical unit, vendor specific, in ASCII: of it udev makes the link.
		writePage(filepath.Join(own, "device"), 0x83, shown(d.shown.designator), []byte{2, 0, 0, byte(len(shown(d.shown.designator)))}),
		ignoreThere(os.Symlink(own, number)),
	)
}

// replace writes a file that is read whole at any time, before or after.
func replace(path string, content []byte) error {
	next := path + ".next"
	return errors.Join(os.WriteFile(next, content, 0o600), os.Rename(next, path))
}

// writePage writes a page of vital product data (SPC-4, 7.8) that shows a text, as sysfs has it. Without a text there is
// none.
func writePage(folder string, code byte, text string, before []byte) error {
	path := filepath.Join(folder, fmt.Sprintf("vpd_pg%x", code))
	if text == "" {
		return ignoreGone(os.Remove(path))
	}
	page := append([]byte{0, code, 0, byte(len(before) + len(text))}, before...)
	return replace(path, append(page, text...))
}

// cutLinks makes links that other droplets have kept lead to no device, where they would lead to this one: all droplets
// share the machine's loop devices, and a kernel has no device of another machine.
func (d *Disks) cutLinks(device string, droplet int) error {
	links, err := filepath.Glob(filepath.Join(d.folder, "by-id-*", "*"))
	if err != nil {
		return err
	}
	for _, link := range links {
		if to, _ := os.Readlink(link); to != device || filepath.Dir(link) == d.Links(droplet) {
			continue
		}
		if err := errors.Join(os.Remove(link), os.Symlink(filepath.Join(d.folder, "no-device"), link)); err != nil {
			return err
		}
	}
	return nil
}

func (d *Disks) link(name string, droplet int, device string) error {
	if err := os.MkdirAll(d.Links(droplet), 0o700); err != nil {
		return err
	}
	path := filepath.Join(d.Links(droplet), assumed.DiskLink+name)
	return errors.Join(ignoreGone(os.Remove(path)), os.Symlink(device, path))
}

// Detach removes the link and the loop device. One that is still in use, such as by a machine that nobody can reach, fails from now on as a disk that was
// pulled out does, see cut.
func (d *Disks) Detach(volume string, droplet int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, found := d.attached[volume]
	if !found || a.droplet != droplet {
		return nil
	}
	delete(d.attached, volume)
	var err error
	if !d.keep {
		err = ignoreGone(os.Remove(filepath.Join(d.Links(droplet), assumed.DiskLink+d.names[volume])))
	}
	if inUse(a.loop.Name()) {
		err = errors.Join(err, d.cut(volume, a.loop))
	}
	return errors.Join(err, d.describe(a.loop.Name(), nobody, ""), a.loop.Close())
}

// Resize grows the file and tells the kernel.
func (d *Disks) Resize(volume string, gigabytes int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := os.Truncate(d.File(volume), int64(gigabytes)<<30); err != nil {
		return err
	}
	if a, found := d.attached[volume]; found {
		return unix.IoctlSetInt(int(a.loop.Fd()), unix.LOOP_SET_CAPACITY, 0)
	}
	return nil
}

// Snapshot copies the file.
func (d *Disks) Snapshot(volume, snapshot string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return sparseCopy(d.File(volume), d.snapshotFile(snapshot))
}

// DeleteSnapshot removes the copy.
func (d *Disks) DeleteSnapshot(snapshot string) error {
	return ignoreGone(os.Remove(d.snapshotFile(snapshot)))
}

// loop makes a loop device of a file, and keeps it open. before is done when the device is chosen and has no bytes yet.
func (d *Disks) loop(file string, before func(device string) error) (*os.File, error) {
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = backing.Close() }()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = control.Close() }()
	for range 50 { // another program may take the free one
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		path := "/dev/loop" + strconv.Itoa(number)
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(number)))); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // it is small
			return nil, err
		}
		if err := before(path); err != nil {
			return nil, err
		}
		loop, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}} //nolint:gosec // a descriptor is small
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), &config); err == nil {
			return loop, nil
		}
		_ = loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
	return nil, errors.New("no loop device is free")
}

// Close detaches everything.
func (d *Disks) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for volume, a := range d.attached {
		_ = a.loop.Close()
		delete(d.attached, volume)
	}
}

// sparseCopy copies the parts of a file that hold data.
func sparseCopy(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	return copyFile(source, to)
}

func copyFile(source *os.File, to string) error {
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); ; {
		data, err := unix.Seek(int(source.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return target.Truncate(info.Size())
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(source.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(target, data), io.NewSectionReader(source, data, hole-data)); err != nil {
			return err
		}
		at = hole
	}
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func ignoreThere(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
