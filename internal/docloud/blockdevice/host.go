// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	// Proof is by what [Host.Find] knows that the device is the volume. Nameless is a disk that shows nothing of its name: only a
	// link and the size say that it is that volume.
	Proof    string
	Nameless bool
}

// Host is this machine.
type Host struct {
	// Links is the folder with the links, /dev/disk/by-id if empty.
	Links string
	// Sysfs is where the kernel describes devices, /sys if empty.
	Sysfs string
	// Devices is where device files are, /dev if empty.
	Devices string
	// State is a folder that outlives the process; volumes that are staged are remembered there.
	State string
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
			d.Proof, err = h.prove(d, name, size)
			d.Nameless = d.Proof == proofBySize
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

// prove checks that a device is the volume that is asked for, and returns by what. A link may be left from a volume that
// was detached, so that it is believed only where the disk does not show another name. Unless the disk shows the whole
// name, no other volume may have a link to it.
func (h *Host) prove(d Device, name string, size int64) (string, error) {
	if d.Size == 0 {
		return "", fmt.Errorf("%w: %s has no bytes", ErrNoDevice, d.Path)
	}
	if size > 0 && (d.Size < size || d.Size%gib != 0) {
		return "", fmt.Errorf("%w: %s has %d bytes and volume %s has %d at DigitalOcean: "+
			"the link may be left from another volume; look at %s on this node",
			ErrUnsafe, d.Path, d.Size, name, size, h.link(name))
	}
	proof, whole, err := h.shown(d, name)
	switch {
	case err != nil || whole:
		return proof, err
	case proof == "" && size == 0:
		return "", fmt.Errorf("%w: %s shows no serial number and the size of volume %s is not known: "+
			"nothing proves that it is this volume; detach it and attach it again", ErrUnsafe, d.Path, name)
	case proof == "":
		proof = proofBySize
	}
	links, err := h.linked()
	if err != nil {
		return "", fmt.Errorf("%w: %s does not show the whole name of volume %s, and whether another volume has a link to it "+
			"is not known: %w", ErrUnsafe, d.Path, name, err)
	}
	for other, number := range links {
		if other != name && number == d.Number {
			return "", fmt.Errorf("%w: %s does not show the whole name of its volume, and the links of volumes %s and %s both lead "+
				"to it: remove the link that is left over", ErrUnsafe, d.Path, name, other)
		}
	}
	return proof, nil
}

// shown says what a disk shows of a volume's name, whether that is the whole name, and refuses another's. It is "" where
// the disk shows nothing.
func (h *Host) shown(d Device, name string) (proof string, whole bool, err error) {
	vendor, serial, designators := h.identity(d)
	switch {
	case vendor != "" && vendor != assumed.DiskVendor:
		return "", false, fmt.Errorf("%w: %s is a disk of vendor %q, not of DigitalOcean: the link %s is left from another volume",
			ErrUnsafe, d.Path, vendor, h.link(name))
	case slices.ContainsFunc(designators, func(text string) bool { return isNameIn(text, name) }):
		return "VPD page 0x83", true, nil
	case len(designators) > 0:
		return "", false, fmt.Errorf("%w: %s is identified as %q, not as volume %s: the link is left from another volume",
			ErrUnsafe, d.Path, strings.Join(designators, ", "), name)
	case isNameIn(serial, name):
		return "VPD page 0x80", true, nil
	case len(serial) >= leastOfSerial && strings.HasPrefix(name, serial):
		return fmt.Sprintf("VPD page 0x80, cut after %d bytes", len(serial)), false, nil
	case serial != "":
		return "", false, fmt.Errorf("%w: %s has the serial %q, which is not that of volume %s: the link is left from another volume",
			ErrUnsafe, d.Path, serial, name)
	}
	return "", false, nil
}

// proofBySize is that of a disk which shows nothing of its name.
const proofBySize = "link and size"

// leastOfSerial is how many bytes of a name are enough where a serial number is cut: as many as SCSI disks show at least.
const leastOfSerial = 20

// isNameIn reports whether a text that identifies a disk is a volume's name, possibly after something that no name has,
// since data is not data-2.
func isNameIn(text, name string) bool {
	before, whole := strings.CutSuffix(text, name)
	return whole && (before == "" || strings.HasSuffix(before, "_") || strings.HasSuffix(before, " "))
}

// identity reads what a SCSI disk shows of itself: its vendor, its unit serial number (VPD page 0x80) and the texts that
// identify it (page 0x83), of which udev makes the link. What it does not show is empty.
func (h *Host) identity(d Device) (vendor, serial string, designators []string) {
	folder := filepath.Join(or(h.Sysfs, "/sys"), "dev/block", numberText(d.Number), "device")
	text, err := os.ReadFile(filepath.Join(folder, "vendor"))
	if err != nil {
		return "", "", nil
	}
	return strings.TrimSpace(string(text)), pageText(readPage(folder, "vpd_pg80")), parseDesignators(readPage(folder, "vpd_pg83"))
}

// readPage returns what is behind a page's header: its code and its length (SPC-4, 7.8).
func readPage(folder, name string) []byte {
	const header = 4
	page, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil || len(page) <= header {
		return nil
	}
	return page[header:min(len(page), header+int(binary.BigEndian.Uint16(page[2:])))]
}

func pageText(content []byte) string {
	return strings.TrimSpace(strings.TrimRight(string(content), "\x00"))
}

// parseDesignators returns the texts that are names which the vendor gave to the logical unit (SPC-4, 7.8.6): in ASCII or
// UTF-8, vendor specific or after the vendor's ID. Numbers such as NAA are of no use here.
func parseDesignators(content []byte) []string {
	const header, ascii, utf8, most = 4, 2, 3, 1
	var found []string
	for len(content) >= header {
		end := min(len(content), header+int(content[3]))
		codeSet, kind, association := content[0]&0xf, content[1]&0xf, content[1]>>4&3
		if text := pageText(content[header:end]); (codeSet == ascii || codeSet == utf8) && kind <= most && association == 0 && text != "" {
			found = append(found, text)
		}
		content = content[end:]
	}
	return found
}

// linked returns the volumes that have links on this machine, and the devices behind them, 0 for a link to nothing.
func (h *Host) linked() (map[string]uint64, error) {
	folder := or(h.Links, "/dev/disk/by-id")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the links of disks: %w", err)
	}
	found := map[string]uint64{}
	for _, e := range entries {
		name, volume := strings.CutPrefix(e.Name(), assumed.DiskLink)
		if !volume || strings.Contains(name, "-part") {
			continue
		}
		var st unix.Stat_t
		_ = unix.Stat(filepath.Join(folder, e.Name()), &st) // a link to nothing
		found[name] = st.Rdev
	}
	return found, nil
}

func numberText(number uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))
}

// Foreign counts the volumes that Kubernetes does not use: their names are not those that it makes, and they are not
// mounted where the kubelet mounts volumes of CSI drivers. A volume that was made by hand for a claim is mounted there.
func (h *Host) Foreign() int {
	links, err := h.linked()
	if err != nil {
		return 0 // without a disk there is no such folder
	}
	all, _ := readMounts() // without them every name that Kubernetes did not make counts, which leaves room unused
	count := 0
	for name, number := range links {
		if strings.HasPrefix(name, kubernetesPrefix) {
			continue
		}
		device := Device{Number: number, Path: h.byNumber(number, h.link(name))}
		if !slices.ContainsFunc(mountsOf(all, device), isOfKubelet) {
			count++
		}
	}
	return count
}

// isOfKubelet reports whether the kubelet stages or publishes volumes of CSI drivers at a path, whatever its root folder.
func isOfKubelet(path string) bool {
	return strings.Contains(path, "/plugins/kubernetes.io/csi/") || strings.Contains(path, "/volumes/kubernetes.io~csi/")
}

// Inspect says what a device holds.
func (h *Host) Inspect(_ context.Context, d Device) (Content, error) {
	f, err := os.OpenFile(d.Path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Content{}, fmt.Errorf("%w: opening it: %w", ErrUnsafe, err)
	}
	defer func() { _ = f.Close() }()
	return inspect(f, d)
}

// inspect is Inspect of a device that is open.
func inspect(f *os.File, d Device) (Content, error) {
	if err := drop(f); err != nil {
		return Content{}, fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	content, err := Read(f, d.Size)
	if err != nil {
		return Content{}, fmt.Errorf("%w: %s: %w. Detach the volume and attach it again; if that does not help, ask DigitalOcean", ErrUnsafe, d.Path, err)
	}
	return content, nil
}

// drop makes the next read come from the disk instead of the kernel's memory, which may hold what another disk had at this place.
func drop(f *os.File) error {
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("dropping what the kernel remembers of %s: %w", f.Name(), err)
	}
	return nil
}
