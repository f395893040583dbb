// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package assumed

import "time"

// Disks of a droplet, as its kernel shows them.
const (
	// DiskVendor is the vendor of the SCSI disks that are volumes.
	DiskVendor = "DO"
	// DiskLink is what udev puts before a volume's name in /dev/disk/by-id.
	DiskLink = "scsi-0DO_Volume_"
)

// CSITextLength bounds every text of the Container Storage Interface, in bytes.
const CSITextLength = 128

// Keys of Calico's datastore in etcd.
const (
	// CalicoResources is where Calico keeps its resources in etcd: this, the plural of the kind, and the name.
	CalicoResources = "/calico/resources/v3/projectcalico.org/"
	// CalicoAffinities, CalicoBlocks and CalicoHandles are where Calico keeps the data of its IPAM in etcd.
	CalicoAffinities = "/calico/ipam/v2/host/"
	CalicoBlocks     = "/calico/ipam/v2/assignment/"
	CalicoHandles    = "/calico/ipam/v2/handle/"
	// CalicoReports is where Felix keeps in etcd what it reports of itself: this, the host, and the name of the report.
	CalicoReports = "/calico/felix/v2/no-region/host/"
)

// CalicoASNumber is the AS number of nodes unless the BGPConfiguration or the Node has another.
const CalicoASNumber = 64512

// BIRD.
const (
	// HoldTime is how long BIRD keeps a session with a neighbor that fell silent.
	HoldTime = 240 * time.Second
	// BGPPort is the TCP port of BGP sessions.
	BGPPort = 179
)
