// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package assumed

import "time"

// What no source states. Each function returns the variants, all of which the simulators and the tests of the driver run.

// DiskSerialBytes are how many bytes of a volume's name VPD page 0x80 of its disk shows. QEMU cuts that page after 36
// bytes, and pvc-<uid> has 40. With 0 the disk has no such page.
func DiskSerialBytes() []int { return []int{VolumeNameLength, 36, 0} }

// DiskDesignatorBytes are how many bytes of a volume's name VPD page 0x83 of its disk shows. udev makes the link
// DiskLink of that page. With 0 the disk has no such page.
func DiskDesignatorBytes() []int { return []int{VolumeNameLength, 0} }

// ListLags are how far lists lag behind a GET by ID.
func ListLags() []time.Duration { return []time.Duration{0, 5 * time.Second, 30 * time.Second} }

// NewerActions are how many newer actions of other resources stand before a volume's in the account's list.
func NewerActions() []int { return []int{0, 250} }

// AttachTypes are the names of the type that the action of an attachment has in responses. The others are formed alike.
func AttachTypes() []string { return []string{"attach_volume", ActionAttach} }

// TagsLeftOut are whether responses leave out the tags of volumes and snapshots.
func TagsLeftOut() []bool { return []bool{false, true} }
