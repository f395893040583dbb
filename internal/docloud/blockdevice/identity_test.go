// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/sim/disks"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// The names of two volumes as Kubernetes makes them; page 0x80 of a disk may end before their last four bytes.
const (
	right = "pvc-0a5f6a4e-8f2c-4d41-9c56-1d0a7d2b9e01"
	wrong = "pvc-7b1c9d3f-2a44-4b5e-8d77-6f9e8c0d1a02"
)

// twoDisks are two attached volumes of one size, whose disks show as many bytes of their names.
func twoDisks(t *testing.T, serial, designator int) (*disks.Disks, *Host) {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.Skip(t, "it needs root, for loop devices")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		testkit.Skip(t, "it needs loop devices: %v", err)
	}
	d := disks.New(testkit.Folder(t, "disks"))
	t.Cleanup(d.Close)
	d.Show(serial, designator)
	for _, name := range []string{right, wrong} {
		if err := errors.Join(d.Create(name, name, 1, ""), d.Attach(name, 1)); err != nil {
			t.Fatal(err)
		}
	}
	return d, &Host{Links: d.Links(1), Sysfs: d.Sysfs(), Wait: time.Millisecond, Clock: clock.RealClock{}}
}

// TestEveryIdentityOfADisk: the right disk is found by the best proof that there is, and a link that is left over is
// never followed, whatever the disk shows of its name.
func TestEveryIdentityOfADisk(t *testing.T) {
	t.Parallel()
	for _, serial := range assumed.DiskSerialBytes() {
		for _, designator := range assumed.DiskDesignatorBytes() {
			d, h := twoDisks(t, serial, designator)
			find := func(size int64) (Device, error) { return h.Find(t.Context(), right, size) }
			refused := func(what string, err error, words string) {
				t.Helper()
				if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), words) {
					t.Errorf("%d and %d bytes: %s: %v; want %q", serial, designator, what, err, words)
				}
			}
			proof := "link and size"
			switch {
			case designator > 0:
				proof = "VPD page 0x83"
			case serial >= len(right):
				proof = "VPD page 0x80"
			case serial > 0:
				proof = "VPD page 0x80, cut after 36 bytes"
			}
			if got, err := find(gib); err != nil || got.Path != d.Device(right) || got.Proof != proof {
				t.Errorf("%d and %d bytes: %+v, %v; want %q", serial, designator, got, err, proof)
			}
			if _, err := find(0); serial+designator == 0 {
				refused("no size", err, "the size of volume "+right+" is not known")
			} else if err != nil {
				t.Errorf("%d and %d bytes, no size: %v", serial, designator, err)
			}
			_, err := find(5 * gib)
			refused("another size", err, "has 5368709120 at DigitalOcean")
			link := filepath.Join(h.Links, assumed.DiskLink+right)
			if err := errors.Join(os.Remove(link), os.Symlink(d.Device(wrong), link)); err != nil {
				t.Fatal(err)
			}
			_, err = find(gib)
			refused("a link that is left over", err, "left")
			if serial+designator > 0 { // what the disk shows is enough, whatever other links there are
				if err := os.Remove(filepath.Join(h.Links, assumed.DiskLink+wrong)); err != nil {
					t.Fatal(err)
				}
				_, err = find(gib)
				refused("the only link", err, "left")
			}
		}
	}
}

// TestWhatIsTooLittleOfAName: nineteen bytes of a serial number, the name of another vendor.
func TestWhatIsTooLittleOfAName(t *testing.T) {
	t.Parallel()
	for bytes, found := range map[int]bool{leastOfSerial: true, leastOfSerial - 1: false} {
		_, h := twoDisks(t, bytes, 0)
		if _, err := h.Find(t.Context(), right, gib); (err == nil) != found {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	// A cut name may be another volume's: with a second link to the disk it proves nothing.
	d, h := twoDisks(t, 36, 0)
	other := filepath.Join(h.Links, assumed.DiskLink+right[:36]+"else")
	if err := os.Symlink(d.Device(right), other); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Find(t.Context(), right, gib); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "both lead") {
		t.Errorf("a second volume whose name begins alike: %v", err)
	}
	d, h = twoDisks(t, assumed.VolumeNameLength, assumed.VolumeNameLength)
	vendor := filepath.Join(d.Sysfs(), "devices", filepath.Base(d.Device(right)), "device", "vendor")
	if err := os.WriteFile(vendor, []byte("ATA     \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Find(t.Context(), right, gib); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "vendor") {
		t.Errorf("of another vendor: %v", err)
	}
}

// TestDesignators of page 0x83 are read up to what the page has, and only texts of the logical unit count.
func TestDesignators(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"\x02\x00\x00\x03abc":                          "abc",
		"\x01\x03\x00\x02\x50\x00\x02\x01\x00\x04 d e": "d e",
		"\x02\x10\x00\x03abc":                          "",
		"\x02\x08\x00\x03abc":                          "",
		"\x02\x00\x00\xffabc":                          "abc",
		"\x02\x00\x00":                                 "",
	} {
		if got := strings.Join(parseDesignators([]byte(content)), "|"); got != want {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
}
