// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
)

const (
	// block is how much is read at a place between the ends, in bytes. No file system has blocks that begin elsewhere.
	block = 4096
	// head and tail are read whole. Most of what a file system writes first is within the head.
	head, tail = 64 << 20, 16 << 20
	// spread is how many places are read at equal distances. They hit the allocation groups of xfs, which has four, or more
	// of a whole TiB.
	spread = 4096
	// stride is the distance of block groups of ext4 in its usual size, and divides the quarters of all sizes of volumes that
	// are whole multiples of half a GiB: allocation groups of xfs on a volume that has grown since. strides is how many are
	// read at most: those of the first TiB.
	stride, strides = 128 << 20, 8192
)

// places returns where a device of a size in bytes is read between its ends, rising, each the beginning of a block.
func places(size int64) []int64 {
	var all []int64
	add := func(at int64) {
		if at = at / block * block; at >= edge && at+block <= size-edge {
			all = append(all, at)
		}
	}
	for i := range int64(spread) {
		add(size / spread * i)
	}
	for i := range min(size/stride, strides) {
		add(i * stride)
	}
	for _, at := range backups(size) {
		add(at)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// backups returns where file systems keep copies of their superblock that no regular distance hits: ext4 in the block
// groups 1 and the powers of 3, 5 and 7 (fs/ext4, ext4_bg_has_super), by the size of its blocks; btrfs at 64 MiB, 256 GiB.
func backups(size int64) []int64 {
	all := []int64{64 << 20, 256 << 30}
	for blockSize := int64(1 << 10); blockSize <= 4<<10; blockSize <<= 1 {
		group, first := 8*blockSize*blockSize, int64(0)
		if blockSize == 1<<10 {
			first = blockSize // its first block is the boot block
		}
		all = append(all, group+first)
		for _, base := range []int64{3, 5, 7} {
			for n := base; n*group < size; n *= base {
				all = append(all, n*group+first)
			}
		}
	}
	return all
}

// readers is how many reads of a device are under way at once: a disk behind a network takes as long for some as for one.
const readers = 8

// part is a part of a device, in bytes.
type part struct{ at, size int64 }

// parts returns what is read of a device between its ends: its head, its tail and the places between.
func parts(size int64) []part {
	var all []part
	for _, whole := range [][2]int64{{edge, min(head, size)}, {max(0, size-tail), size}} {
		for at := whole[0]; at < whole[1]; at += edge {
			all = append(all, part{at, min(edge, whole[1]-at)})
		}
	}
	for _, at := range places(size) {
		all = append(all, part{at, block})
	}
	return all
}

// readBetween reads a device whose ends are zeros: several parts at once, and returns what the first one holds that is
// not all zeros.
func readBetween(r io.ReaderAt, size int64) (Content, error) {
	all, found, errs := parts(size), make([]Content, readers), make([]error, readers)
	var wait sync.WaitGroup
	for i := range readers {
		wait.Go(func() { found[i], errs[i] = readParts(r, all[i*len(all)/readers:(i+1)*len(all)/readers]) })
	}
	wait.Wait()
	for i := range readers {
		if errs[i] != nil || found[i].Kind != Blank {
			return found[i], errs[i]
		}
	}
	return Content{Kind: Blank}, nil
}

// readParts reads parts one after the other until one is not all zeros.
func readParts(r io.ReaderAt, all []part) (Content, error) {
	buffer := make([]byte, edge)
	for _, p := range all {
		chunk := buffer[:p.size]
		if err := readWhole(r, p.at, chunk); err != nil {
			return Content{}, err
		}
		if !allZero(chunk) {
			return remains(chunk, p.at), nil
		}
	}
	return Content{Kind: Blank}, nil
}

// remains says what bytes at a place between the ends are, which are not all zeros.
func remains(chunk []byte, at int64) Content {
	for len(chunk) > block && allZero(chunk[:block]) {
		chunk, at = chunk[block:], at+block
	}
	chunk = chunk[:min(block, len(chunk))]
	for in := 0; in+1024 <= len(chunk); in += 1024 {
		if binary.LittleEndian.Uint16(chunk[in+ext4Magic:]) == ext4MagicValue {
			return Content{Kind: Unknown, Name: fmt.Sprintf("what is left of the file system ext4, with a copy of its superblock at byte %d, and an empty beginning: %s",
				at+int64(in), seeE2fsck)}
		}
	}
	const btrfsMagic = 64
	for name, is := range map[string]bool{"xfs": string(chunk[:4]) == "XFSB", "btrfs": string(chunk[btrfsMagic:btrfsMagic+8]) == "_BHRfS_M"} {
		if is {
			return Content{Kind: Unknown, Name: fmt.Sprintf("what is left of the file system %s, with a copy of its superblock at byte %d, and an empty beginning", name, at)}
		}
	}
	return Content{Kind: Unknown, Name: fmt.Sprintf("data at byte %d, and an empty beginning", at)}
}
