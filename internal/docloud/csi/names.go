// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

// Names that PersistentVolumes, VolumeAttachments and StorageClasses of csi-digitalocean's users carry: MUST NOT
// change.
const (
	// DriverName is the driver's default name.
	DriverName = "dobs.csi.digitalocean.com"
	// VolumeNameKey is the key of the publish context with the volume's name, of which the device's link is made.
	VolumeNameKey = "dobs.csi.digitalocean.com/volume-name"
	// VolumeSizeKey is the key of the publish context with the volume's size in bytes at the time of the attachment.
	// Mooring's own: csi-digitalocean has none.
	VolumeSizeKey = "dobs.csi.digitalocean.com/volume-size-bytes"
	// FormatKey is what decides about a file system for a blank volume: as a parameter of a StorageClass and an
	// attribute of a PersistentVolume ([volume.Format]), and as a key of the publish context ([volume.Right]).
	// Mooring's own.
	FormatKey = "dobs.csi.digitalocean.com/format"
	// RegionKey is the topology key.
	RegionKey = "region"
	// description is that of all volumes that the driver makes.
	description = "Created by DigitalOcean CSI driver"
)

// noFormatKeys are volume attributes that keep a volume from ever being formatted, with any value.
func noFormatKeys() []string {
	return []string{"dobs.csi.digitalocean.com/noformat", "com.digitalocean.csi.dobs/noformat"}
}
