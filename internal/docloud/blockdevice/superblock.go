// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/google/uuid"
)

// superblock is what a file system says of itself at the beginning of its device.
type superblock struct {
	name string
	// begin and size bound the bytes that belong to it: ext4 leaves the first KiB to boot loaders.
	begin, size int64
	// damage says what is wrong with it and what to do, "" if it is whole.
	damage string
	uuid   uuid.UUID
}

// owns reports whether bytes of the device belong to the file system.
func (s superblock) owns(from, to int64) bool { return s.begin <= from && to <= s.size }

// castagnoli is the polynomial of the checksums of ext4 and xfs.
var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // it is constant

// superblocks returns those that begin like one of ext4 (also 2 and 3) or xfs. first is the first MiB of a device of a size
// in bytes.
func superblocks(first []byte, size int64) []superblock {
	var found []superblock
	if s, is := parseXFS(first); is {
		found = append(found, s.within(size))
	}
	if s, is := parseExt4(first); is {
		found = append(found, s.within(size))
	}
	return found
}

// within returns the superblock with what its device's size says of it: a device grows before its file system does.
func (s superblock) within(size int64) superblock {
	if s.damage == "" && s.size > size {
		s.damage = fmt.Sprintf("which takes its device to have %d bytes while it has %d: a part of it is missing; "+
			"look for the volume or snapshot that has all of it", s.size, size)
	}
	return s
}

// Places and values in the superblock of ext4 (Linux, fs/ext4/ext4.h, struct ext4_super_block; its numbers are little endian).
const (
	ext4At          = 1024
	ext4Blocks      = 0x4
	ext4BlockSize   = 0x18 // the logarithm of the size in KiB
	ext4Magic       = 0x38
	ext4Incompat    = 0x60
	ext4ReadOnly    = 0x64
	ext4UUID        = 0x68
	ext4BlocksHigh  = 0x150
	ext4Checksum    = 0x3fc
	ext4MagicValue  = 0xef53
	ext4IsJournal   = 0x8
	ext4Has64Bits   = 0x80
	ext4HasChecksum = 0x400
	// ext4MostLog is the greatest logarithm: blocks of 64 KiB.
	ext4MostLog = 6
)

const seeE2fsck = "check it with e2fsck, after a snapshot of the volume"

func parseExt4(first []byte) (superblock, bool) {
	sb := first[ext4At : ext4At+1024]
	if binary.LittleEndian.Uint16(sb[ext4Magic:]) != ext4MagicValue {
		return superblock{}, false
	}
	s := superblock{name: "ext4", begin: ext4At, uuid: uuid.UUID(sb[ext4UUID : ext4UUID+len(uuid.UUID{})])}
	blocks, shift := uint64(binary.LittleEndian.Uint32(sb[ext4Blocks:])), binary.LittleEndian.Uint32(sb[ext4BlockSize:])
	if binary.LittleEndian.Uint32(sb[ext4Incompat:])&ext4Has64Bits != 0 {
		blocks |= uint64(binary.LittleEndian.Uint32(sb[ext4BlocksHigh:])) << 32
	}
	switch {
	case binary.LittleEndian.Uint32(sb[ext4Incompat:])&ext4IsJournal != 0:
		s.damage = "of which it is the journal alone: the rest is on another device"
	case binary.LittleEndian.Uint32(sb[ext4ReadOnly:])&ext4HasChecksum != 0 &&
		binary.LittleEndian.Uint32(sb[ext4Checksum:]) != ^crc32.Checksum(sb[:ext4Checksum], castagnoli):
		s.damage = "whose superblock has a wrong checksum: " + seeE2fsck
	case shift > ext4MostLog || blocks == 0 || bits.LeadingZeros64(blocks) < int(11+shift):
		s.damage = "whose superblock has a size that cannot be: " + seeE2fsck
	default:
		s.size = int64(blocks << (10 + shift)) //nolint:gosec // the leading zeros have been counted
	}
	return s, true
}

// Places in the superblock of xfs (Linux, fs/xfs/libxfs/xfs_format.h, struct xfs_dsb; its numbers are big endian, but for the
// checksum).
const (
	xfsBlockSize  = 4
	xfsBlocks     = 8
	xfsUUID       = 32
	xfsVersion    = 100
	xfsSectorSize = 102
	xfsInProgress = 126
	xfsChecksum   = 224
	// xfsVersion5 has checksums.
	xfsVersion5 = 5
)

const seeRepair = "check it with xfs_repair -n, after a snapshot of the volume"

func parseXFS(first []byte) (superblock, bool) {
	if string(first[:4]) != "XFSB" {
		return superblock{}, false
	}
	s := superblock{name: "xfs", uuid: uuid.UUID(first[xfsUUID : xfsUUID+len(uuid.UUID{})])}
	size, blocks := uint64(binary.BigEndian.Uint32(first[xfsBlockSize:])), binary.BigEndian.Uint64(first[xfsBlocks:])
	sector := int(binary.BigEndian.Uint16(first[xfsSectorSize:]))
	switch {
	case first[xfsInProgress] != 0:
		s.damage = "which mkfs.xfs did not finish"
	case !isPower(size, 512, 1<<16) || !isPower(uint64(sector), 512, 1<<15) || blocks == 0 || //nolint:gosec // it is not negative
		bits.LeadingZeros64(blocks)+bits.LeadingZeros64(size) < 65:
		s.damage = "whose superblock has a size that cannot be: " + seeRepair
	case binary.BigEndian.Uint16(first[xfsVersion:])&0xf == xfsVersion5 && binary.LittleEndian.Uint32(first[xfsChecksum:]) != xfsSum(first[:sector]):
		s.damage = "whose superblock has a wrong checksum: " + seeRepair
	default:
		s.size = int64(blocks * size) //nolint:gosec // the leading zeros have been counted
	}
	return s, true
}

// xfsSum is the checksum of a sector, in which the checksum itself counts as zeros.
func xfsSum(sector []byte) uint32 {
	sum := crc32.Update(0, castagnoli, sector[:xfsChecksum])
	sum = crc32.Update(sum, castagnoli, make([]byte, 4))
	return crc32.Update(sum, castagnoli, sector[xfsChecksum+4:])
}

// isPower reports whether a number is a power of two within bounds.
func isPower(n, least, most uint64) bool { return bits.OnesCount64(n) == 1 && least <= n && n <= most }
