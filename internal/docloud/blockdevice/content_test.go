// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// disk is a device whose bytes are zeros but for some.
type disk struct {
	size int64
	with map[int64]string
}

func (d disk) ReadAt(b []byte, at int64) (int, error) {
	n := int(min(int64(len(b)), max(0, d.size-at)))
	clear(b[:n])
	for from, text := range d.with {
		if low, high := max(from, at), min(from+int64(len(text)), at+int64(n)); low < high {
			copy(b[low-at:high-at], text[low-from:high-from])
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func read(t *testing.T, r io.ReaderAt, size int64) Content {
	t.Helper()
	got, err := Read(r, size)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestOnlyZerosAreBlank: one byte at the ends, in the head or the tail, or at a place between keeps a device from being
// formatted, and so does every signature.
func TestOnlyZerosAreBlank(t *testing.T) {
	t.Parallel()
	const size = 3 << 30
	if got := read(t, disk{size: size}, size); got.Kind != Blank {
		t.Errorf("zeros are %+v", got)
	}
	var all []int64
	for at := int64(0); at < edge; at += 65521 {
		all = append(all, at, size-1-at)
	}
	for at := int64(edge); at < head; at += 7<<20 + 4093 {
		all = append(all, at)
	}
	all = append(all, head-1, size-tail, size/4, size/2, size*3/4, 128<<20, 3*128<<20)
	for _, at := range all {
		if got := read(t, disk{size, map[int64]string{at: "x"}}, size); got.Kind == Blank {
			t.Errorf("a byte at %d is blank", at)
		}
	}
	for _, s := range foreign() {
		at := s.at
		if at < 0 {
			at += size
		}
		if got := read(t, disk{size, map[int64]string{at: s.magic}}, size); got.Kind != Foreign || got.Name != s.name {
			t.Errorf("%s at %d is %+v", s.name, s.at, got)
		}
	}
}

// TestPlacesAreSpread: whatever the size, no gap between two places is larger than a 4,096th of it, the places are within
// the device, and they are few.
func TestPlacesAreSpread(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{1 << 30, 5 << 30, 16 << 30, 100 << 30, 1 << 40, 20 << 40} {
		all := places(size)
		if len(all) > spread+strides+200 {
			t.Errorf("%d bytes are read at %d places", size, len(all))
		}
		before := int64(edge)
		for _, at := range append(all, size-edge) {
			if at < before || at-before > size/spread+block || at+block > size {
				t.Errorf("of %d bytes a place is %d, after %d", size, at, before)
			}
			before = at
		}
	}
}

// slowReader is a disk that takes as long for several reads as for one.
type slowReader struct {
	disk
	reads atomic.Int64
}

const slowRead = time.Second

func (s *slowReader) ReadAt(b []byte, at int64) (int, error) {
	s.reads.Add(1)
	<-time.After(slowRead)
	return s.disk.ReadAt(b, at)
}

// TestABlankDiskIsReadAtManyPlacesAtOnce, and what is found is at the first of them.
func TestABlankDiskIsReadAtManyPlacesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 30
		slow, began := &slowReader{disk: disk{size: size}}, time.Now()
		if got := read(t, slow, size); got.Kind != Blank {
			t.Errorf("zeros are %+v", got)
		}
		took, one := time.Since(began), time.Duration(slow.reads.Load())*slowRead
		if took > one/(readers-1) {
			t.Errorf("it took %s, and one read after the other %s", took, one)
		}
		slow.with = map[int64]string{size / 4: "x", size / 2: "y", size * 3 / 4: "z"}
		if got := read(t, slow, size); got.Kind != Unknown || !strings.HasPrefix(got.Name, fmt.Sprintf("data at byte %d,", size/4)) {
			t.Errorf("data at three places: %+v", got)
		}
	})
}

// failingReader is a disk of which one place cannot be read.
type failingReader struct {
	disk
	at int64
}

func (f failingReader) ReadAt(b []byte, at int64) (int, error) {
	if at <= f.at && f.at < at+int64(len(b)) {
		return 0, errors.New("input/output error")
	}
	return f.disk.ReadAt(b, at)
}

// TestAReadErrorIsNotBlank: what cannot be read whole is an error, not an empty device.
func TestAReadErrorIsNotBlank(t *testing.T) {
	t.Parallel()
	const size = 1 << 30
	if _, err := Read(disk{size: size - 1}, size); err == nil {
		t.Error("a short disk is no error")
	}
	if _, err := Read(disk{size: edge}, edge); err == nil {
		t.Error("a disk that is smaller than any volume is no error")
	}
	for _, at := range []int64{0, edge, size / 2, size - tail, size - 1} {
		if _, err := Read(failingReader{disk{size: size}, at}, size); err == nil {
			t.Errorf("that byte %d cannot be read is no error", at)
		}
	}
}

// made is a file of zeros in which a real program made a file system.
func made(t *testing.T, size int64, program string, args ...string) *os.File {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		testkit.Skip(t, "it needs %s: apt-get install e2fsprogs xfsprogs", program)
	}
	path := filepath.Join(t.TempDir(), "disk")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), program, append(args, path)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, said)
	}
	return f
}

func write(t *testing.T, f *os.File, at int64, content []byte) {
	t.Helper()
	if _, err := f.WriteAt(content, at); err != nil {
		t.Fatal(err)
	}
}

// makers are the ways in which file systems are made, ext4 with all sizes of blocks, and with the features of older ones.
func makers() map[string][]string {
	all := map[string][]string{"xfs": {"mkfs.xfs", "-q"}, "xfs without checksums": {"mkfs.xfs", "-q", "-m", "crc=0"}, "ext2": {"mkfs.ext2", "-q"}}
	for _, size := range []string{"1024", "2048", "4096"} {
		all["ext4 of "+size] = []string{"mkfs.ext4", "-q", "-b", size}
		all["ext4 of "+size+" without checksums"] = []string{"mkfs.ext4", "-q", "-b", size, "-O", "^metadata_csum,^64bit"}
		all["ext4 of "+size+" with few backups"] = []string{"mkfs.ext4", "-q", "-b", size, "-O", "sparse_super2"}
	}
	return all
}

// TestWholeFileSystemsOwnTheirArea: each file system is recognized, whatever its files contain and however much its device
// has grown, and never where a mark of something else is beyond it.
func TestWholeFileSystemsOwnTheirArea(t *testing.T) {
	t.Parallel()
	const size, grown = 1 << 30, 5 << 30
	for name, maker := range makers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, want := made(t, size, maker[0], maker[1:]...), "ext4"
			if strings.HasPrefix(name, "xfs") {
				want = "xfs"
			}
			recognized := func(what string, size int64) {
				t.Helper()
				if got := read(t, f, size); got.Kind != FileSystem || got.Name != want {
					t.Errorf("%s: %+v", what, got)
				}
			}
			recognized("new", size)
			for _, s := range foreign() { // as in blocks of files
				at := s.at
				if at < 0 {
					at += size
				}
				if at > 512<<10 || s.at < 0 {
					write(t, f, at, []byte(s.magic))
				}
			}
			recognized("with marks in its files", size)
			if err := f.Truncate(grown); err != nil {
				t.Fatal(err)
			}
			recognized("on a device that has grown", grown)
			write(t, f, grown-512, []byte("EFI PART"))
			if got := read(t, f, grown); got.Kind != Foreign || got.Name != "a partition table (GPT)" {
				t.Errorf("with a partition table beyond it: %+v", got)
			}
			if got := read(t, f, size/2); got.Kind != Unknown || !strings.Contains(got.Name, "a part of it is missing") {
				t.Errorf("of which half is missing: %+v", got)
			}
		})
	}
}

// TestDamagedFileSystemsAreNotBlank: without its first MiB, and without the copies of the superblock that are easy to find,
// a file system is still not a blank device, and neither is one whose superblock has one wrong bit.
func TestDamagedFileSystemsAreNotBlank(t *testing.T) {
	t.Parallel()
	for name, maker := range makers() {
		for _, size := range []int64{1 << 30, 21 << 30} {
			t.Run(fmt.Sprint(name, " on ", size>>30, " GiB"), func(t *testing.T) {
				t.Parallel()
				f := made(t, size, maker[0], maker[1:]...)
				if !strings.Contains(name, "without checksums") && name != "ext2" {
					at := int64(ext4At + 0x78) // its label
					if strings.HasPrefix(name, "xfs") {
						at = 108
					}
					write(t, f, at, []byte{0xff})
					if got := read(t, f, size); got.Kind != Unknown || !strings.Contains(got.Name, "wrong checksum") {
						t.Errorf("with a wrong byte in the superblock: %+v", got)
					}
				}
				write(t, f, 0, make([]byte, edge))
				if got := read(t, f, size); got.Kind == Blank {
					t.Error("without its first MiB it is blank")
				}
				for _, at := range backups(size) {
					if at < size {
						write(t, f, at, make([]byte, block))
					}
				}
				if got := read(t, f, size); got.Kind == Blank {
					t.Error("without its first MiB and all copies of the superblock it is blank")
				}
			})
		}
	}
	const size = 1 << 30
	got := read(t, disk{size, map[int64]string{64<<20 + 64: "_BHRfS_M"}}, size)
	if want := "what is left of the file system btrfs, with a copy of its superblock at byte 67108864, and an empty beginning"; got.Kind != Unknown || got.Name != want {
		t.Errorf("btrfs without its beginning: %+v", got)
	}
}

// TestAJournalIsNoFileSystem: its superblock looks like that of ext4.
func TestAJournalIsNoFileSystem(t *testing.T) {
	t.Parallel()
	const size = 1 << 30
	f := made(t, size, "mke2fs", "-q", "-O", "journal_dev")
	if got := read(t, f, size); got.Kind != Unknown || !strings.Contains(got.Name, "the journal alone") {
		t.Errorf("%+v", got)
	}
}

// FuzzRead: nothing that has a byte at its ends is blank, and nothing panics.
func FuzzRead(f *testing.F) {
	f.Add([]byte("XFSB"), 0)
	f.Add([]byte{0x53, 0xef}, 1024+0x38)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		const size = 256 << 20
		r := disk{size: size, with: map[int64]string{}}
		if at >= 0 && at+len(data) <= edge {
			r.with[int64(at)] = string(data)
		}
		if got := read(t, r, size); (got.Kind == Blank) != (len(r.with) == 0 || allZero(data)) {
			t.Errorf("%+v of %q at %d", got, data, at)
		}
	})
}

// FuzzParseMounts: a line is understood or an error.
func FuzzParseMounts(f *testing.F) {
	f.Add(`36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseMounts(text)
		for _, m := range all {
			if err == nil && m.path == "" {
				t.Errorf("%q has a mount without a path", text)
			}
		}
	})
}
