// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const (
	first, second = 1, 2
	volume, name  = "v", "pvc-v"
)

// mounted attaches a new volume to the first droplet and mounts it.
func mounted(t *testing.T, d *Disks) (at string) {
	t.Helper()
	must.Do(t, d.Create(volume, name, 1, ""))
	must.Do(t, d.Attach(volume, first))
	link := filepath.Join(d.Links(first), assumed.DiskLink+name)
	if out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", link).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	at = t.TempDir()
	must.Do(t, unix.Mount(d.Device(volume), at, "ext4", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(at, 0) })
	return at
}

func newDisks(t *testing.T) *Disks {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.Skip(t, "it needs root, for loop devices and mounts")
	}
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		testkit.Skip(t, "it needs mkfs.ext4: apt-get install e2fsprogs")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		testkit.Skip(t, "it needs loop devices: %v", err)
	}
	d := New(testkit.Folder(t, "disks"))
	t.Cleanup(d.Close)
	return d
}

// TestDetachWhileMounted: what was written and flushed is there at the next attachment, what is written afterwards fails and is not.
func TestMain(m *testing.M) { testkit.Main(m) }

func TestDetachWhileMounted(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	at := mounted(t, d)
	must.Do(t, write(filepath.Join(at, "file"), "before"))
	// A writer that is under way gets an error, and ends: nothing waits for ever.
	counter := must.Get(os.Create(filepath.Join(at, "count"))).Or(t)
	t.Cleanup(func() { _ = counter.Close() })
	begun, ended, counted := make(chan struct{}), make(chan error), 0
	go func() {
		for {
			_, err := counter.WriteAt(fmt.Appendf(nil, "%08d", counted+1), 0)
			if err = errors.Join(err, counter.Sync()); err != nil {
				ended <- err
				return
			}
			if counted++; counted == 3 {
				close(begun)
			}
		}
	}()
	<-begun
	must.Do(t, d.Detach(volume, first))
	if err := <-ended; err == nil {
		t.Error("the writer ended without an error")
	}
	if _, err := os.Lstat(filepath.Join(d.Links(first), assumed.DiskLink+name)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link: %v", err)
	}
	if err := write(filepath.Join(at, "file"), "afterwards"); err == nil {
		t.Error("a write to a disk that was pulled out succeeds")
	}
	must.Do(t, d.Attach(volume, second))
	other := t.TempDir()
	must.Do(t, unix.Mount(d.Device(volume), other, "ext4", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(other, 0) })
	must.Do(t, counter.Close())
	must.Do(t, unix.Unmount(at, 0)) // what the kernel still writes of the old mount goes nowhere
	if got, err := os.ReadFile(filepath.Join(other, "file")); err != nil || string(got) != "before" {
		t.Errorf("on the second machine: %q, %v", got, err)
	}
	got, err := os.ReadFile(filepath.Join(other, "count"))
	if number, _ := strconv.Atoi(string(got)); err != nil || number < counted {
		t.Errorf("%d was flushed, and the second machine has %q, %v", counted, got, err)
	}
	must.Do(t, write(filepath.Join(other, "file"), "second"))
	must.Do(t, unix.Unmount(other, 0))
	if out, err := exec.CommandContext(t.Context(), "e2fsck", "-fn", d.Device(volume)).CombinedOutput(); err != nil {
		t.Errorf("the file system is damaged: %v: %s", err, out)
	}
}

// TestAdopt: a simulator that starts again goes on with devices that are mounted, and makes the others again.
func TestAdopt(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	at := mounted(t, d)
	must.Do(t, d.Create("idle", "pvc-idle", 1, ""))
	must.Do(t, d.Attach("idle", first))
	device := d.Device(volume)
	d.Close()

	again := New(d.folder)
	t.Cleanup(again.Close)
	must.Do(t, again.Adopt(volume, name, first))
	must.Do(t, again.Adopt("idle", "pvc-idle", first))
	if again.Device(volume) != device || again.Device("idle") == "" {
		t.Errorf("the devices are %q, want %q, and %q", again.Device(volume), device, again.Device("idle"))
	}
	must.Do(t, write(filepath.Join(at, "file"), "afterwards"))
	must.Do(t, again.Detach("idle", first))
	must.Do(t, again.Resize(volume, 2))
}

// TestAttachAgainAfterAFailure: an attachment that failed leaves nothing behind that refuses the next one.
func TestAttachAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	must.Do(t, d.Create(volume, name, 1, ""))
	must.Do(t, os.WriteFile(d.Links(first), nil, 0o600)) // where the folder of the links belongs
	if err := d.Attach(volume, first); err == nil {
		t.Fatal("it succeeded")
	}
	must.Do(t, os.Remove(d.Links(first)))
	must.Do(t, d.Attach(volume, first))
}

// write writes a file and flushes it to the disk.
func write(path, content string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// TestALinkThatIsKept: what it leads to after the detachment shows whose it is not, whoever takes the loop device next.
func TestALinkThatIsKept(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	d.KeepLinks(true)
	must.Do(t, d.Create(volume, name, 1, ""))
	must.Do(t, d.Attach(volume, first))
	vendor := vendorOf(t, d, d.Device(volume))
	if vendor != assumed.DiskVendor {
		t.Errorf("an attached disk is of vendor %q", vendor)
	}
	device := d.Device(volume)
	must.Do(t, d.Detach(volume, first))
	if to := must.Get(os.Readlink(filepath.Join(d.Links(first), assumed.DiskLink+name))).Or(t); to != device {
		t.Errorf("the link leads to %s, not %s", to, device)
	}
	if vendor := vendorOf(t, d, device); vendor == "" || vendor == assumed.DiskVendor {
		t.Errorf("a detached disk is of vendor %q", vendor)
	}
}

func vendorOf(t *testing.T, d *Disks, device string) string {
	t.Helper()
	number := fmt.Sprintf("7:%s", strings.TrimPrefix(device, "/dev/loop"))
	return strings.TrimSpace(string(must.Get(os.ReadFile(filepath.Join(d.Sysfs(), "dev", "block", number, "device", "vendor"))).Or(t)))
}
