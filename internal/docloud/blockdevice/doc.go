// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package blockdevice handles the disks of one Linux machine: it finds the device of a volume, reads what is on it, makes, checks, mounts
// and grows file systems.
//
// It never harms a disk. A file system is made only on a device of which both ends, the places of copies of superblocks and thousands of
// blocks between were read right before and are zero ([Read]); a read error, a short read and anything that is not known are errors. The
// programs that make file systems are run without their force flags: mkfs.xfs then judges again; mkfs.ext4, without a terminal, does not.
package blockdevice
