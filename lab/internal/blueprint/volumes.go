// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

import (
	"errors"
	"path/filepath"
	"slices"
)

// CSIDriver is the product's volume driver. It is not a process of the lab but pods on its real machines, and runs when asked for.
const CSIDriver = "digitalocean-csi-driver"

// Disks is the folder of the disks that the simulated cloud's volumes are.
func (l Layout) Disks() string { return l.Data("disks") }

// DisksSysfs describes them as the kernel of a droplet does, see package disks of the product's module.
func (l Layout) DisksSysfs() string { return filepath.Join(l.Disks(), "sys") }

// volumes reports whether the lab has volumes.
func (o Options) volumes() bool { return slices.Contains(o.With, CSIDriver) }

func checkVolumes(o Options) error {
	switch {
	case o.RealNodes == 0:
		return errors.New("--with " + CSIDriver + " needs machines that mount; add --real-nodes 2")
	case o.Cloud != CloudDigitalOcean:
		return errors.New("--with " + CSIDriver + " needs a cloud with volumes; use --cloud digitalocean")
	case !filepath.IsAbs(o.CSIManifest):
		return errors.New("--with " + CSIDriver + " needs the path of its manifest")
	}
	return nil
}

// addVolumes adds to a process what it needs to know of volumes.
func (d draft) addVolumes(p Process) Process {
	if !d.volumes() {
		return p
	}
	access := d.CloudAccess(d.ports)
	switch p.Name {
	case DigitalOcean, RealNodes:
		p.Args = append(p.Args, "--disks="+d.Disks())
	case Setup:
		p.Args = append(p.Args,
			"--volumes-manifest="+d.CSIManifest,
			"--volumes-kinds="+filepath.Join(d.Bin, "csi", "crds"),
			"--volumes-sysfs="+d.DisksSysfs(),
			"--cloud-url=https://"+ControlPlaneAddress+":"+d.ports[DigitalOceanAPIPort],
			"--cloud-ca-file="+access.CAFile,
			"--cloud-token-file="+access.TokenFile,
		)
	}
	return p
}
