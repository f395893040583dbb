// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"
)

// Kind is what a device holds.
type Kind int

// Kinds of content. The zero value is the safe one.
const (
	// Unknown is data that is not recognized.
	Unknown Kind = iota
	// Blank is zeros wherever they were looked for ([Read]).
	Blank
	// FileSystem is one that can be mounted: ext4 (also 2 and 3) or xfs.
	FileSystem
	// Foreign is something known that is not to be touched.
	Foreign
)

// Content is what was found on a device. Name is the file system, or what else it is in words. UUID is the file system's.
type Content struct {
	Kind Kind
	Name string
	UUID uuid.UUID
}

// edge is how much of both ends of a device is read, in bytes: every signature below is within it.
const edge = 1 << 20

// signature is a mark at a fixed place: from the beginning, or from the end if at is negative.
type signature struct {
	name  string
	at    int64
	magic string
}

// foreign is what blkid and wipefs (util-linux) know of things that are not ext4 or xfs, as their formats place it.
func foreign() []signature {
	list := []signature{
		{"an encrypted volume (LUKS)", 0, "LUKS\xba\xbe"},
		{"an encrypted volume (LUKS)", 16 << 10, "SKUL\xba\xbe"},
		{"a partition table (GPT)", 512, "EFI PART"},
		{"a partition table (GPT)", 4096, "EFI PART"},
		{"a partition table (GPT)", -512, "EFI PART"},
		{"an encrypted volume (BitLocker)", 3, "-FVE-FS-"},
		{"the file system ntfs", 3, "NTFS    "},
		{"the file system exfat", 3, "EXFAT   "},
		{"the file system vfat", 54, "FAT"},
		{"the file system vfat", 82, "FAT32"},
		{"the file system btrfs", 64<<10 + 64, "_BHRfS_M"},
		{"the file system squashfs", 0, "hsqs"},
		{"the file system erofs", 1024, "\xe2\xe1\xf5\xe0"},
		{"the file system f2fs", 1024, "\x10\x20\xf5\xf2"},
		{"the file system iso9660", 32769, "CD001"},
		{"the file system udf", 32769, "NSR0"},
		{"the file system udf", 32769, "BEA01"},
		{"the file system jfs", 32 << 10, "JFS1"},
		{"the file system reiserfs", 64<<10 + 52, "ReIsEr"},
		{"the file system bcachefs", 4096 + 24, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca"},
		{"a cache (bcache)", 4096 + 24, "\xc6\x85\x73\xf6\x66\xce\x90\xa9"},
		{"a part of a RAID (md)", 0, "\xfc\x4e\x2b\xa9"},
		{"a part of a RAID (md)", 4096, "\xfc\x4e\x2b\xa9"},
		{"a part of a RAID (md)", -8192, "\xfc\x4e\x2b\xa9"},
		{"a part of a RAID (md)", -64 << 10, "\xfc\x4e\x2b\xa9"},
		{"a DRBD device", -4096 + 60, "\x83\x74\x02\x6b"},
		{"swap space", 4096 - 10, "SWAPSPACE2"},
		{"swap space", 4096 - 10, "SWAP-SPACE"},
		{"swap space", 65536 - 10, "SWAPSPACE2"},
		{"a Ceph device (bluestore)", 0, "bluestore block device"},
	}
	for sector := range int64(4) { // LVM2 puts its label into one of the first four sectors
		list = append(list, signature{"a physical volume of LVM", sector*512 + 0, "LABELONE"})
	}
	for label := range int64(2) { // ZFS has uberblocks from 128 KiB on in labels of 256 KiB
		for block := int64(0); block < 128; block += 4 {
			at := label*256<<10 + 128<<10 + block<<10
			list = append(list, signature{"a part of a ZFS pool", at, "\x0c\xb1\xba\x00\x00\x00\x00\x00"},
				signature{"a part of a ZFS pool", at, "\x00\x00\x00\x00\x00\xba\xb1\x0c"})
		}
	}
	return list
}

// Read says what a device of a size in bytes holds. What cannot be read whole is an error.
//
// A file system with a whole superblock owns its area: marks of others count only outside it, since files may hold
// anything. Without one, a device is blank if both ends and some thousand places between are zeros ([places]); that alone
// is no proof that it never held anything.
func Read(r io.ReaderAt, size int64) (Content, error) {
	if size < 2*edge {
		return Content{}, fmt.Errorf("it has %d bytes, less than any volume", size)
	}
	first, last := make([]byte, edge), make([]byte, edge)
	if err := errors.Join(readWhole(r, 0, first), readWhole(r, size-edge, last)); err != nil {
		return Content{}, err
	}
	if !allZero(first) || !allZero(last) {
		return identify(first, last, size), nil
	}
	return readBetween(r, size)
}

// identify says what the ends of a device hold that are not both zeros: first is its first MiB and last its last one.
func identify(first, last []byte, size int64) Content {
	found := superblocks(first, size)
	whole := slices.DeleteFunc(slices.Clone(found), func(s superblock) bool { return s.damage != "" })
	if len(whole) > 1 {
		return Content{Kind: Unknown, Name: "two file systems, " + whole[0].name + " and " + whole[1].name}
	}
	for _, s := range foreign() {
		at, from, in := s.at, first, s.at
		if at < 0 {
			at, from, in = size+at, last, edge+at
		}
		if bytes.HasPrefix(from[in:], []byte(s.magic)) && !(len(whole) == 1 && whole[0].owns(at, at+int64(len(s.magic)))) {
			return Content{Kind: Foreign, Name: s.name}
		}
	}
	switch {
	case len(whole) == 1:
		return Content{Kind: FileSystem, Name: whole[0].name, UUID: whole[0].uuid}
	case len(found) > 0:
		return Content{Kind: Unknown, Name: fmt.Sprintf("the file system %s, %s", found[0].name, found[0].damage)}
	case first[510] == 0x55 && first[511] == 0xaa:
		return Content{Kind: Foreign, Name: "a partition table (MBR) or boot sector"}
	}
	return Content{Kind: Unknown, Name: "data that is not known"}
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, one := range b {
		if one != 0 {
			return false
		}
	}
	return true
}

// readWhole fills a buffer from a place. Less is an error.
func readWhole(r io.ReaderAt, at int64, into []byte) error {
	if n, err := io.ReadFull(io.NewSectionReader(r, at, int64(len(into))), into); err != nil {
		return fmt.Errorf("of %d bytes at %d only %d could be read: %w", len(into), at, n, err)
	}
	return nil
}
