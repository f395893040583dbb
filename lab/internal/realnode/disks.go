// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"github.com/mooring-dev/mooring/internal/sim/disks"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/realnode/describe"
)

// linksFolder is where udev makes the links to volumes on a droplet.
const linksFolder = "/dev/disk/by-id"

// addDisks shows a machine the links to its volumes, which the simulated cloud makes and removes in a folder for each droplet. The folder outlives the
// machine's power-off, as attachments do.
func (o options) addDisks(d *describe.Description, m machines.Machine) {
	if o.disks == "" {
		return
	}
	links := disks.New(o.disks).Links(m.Droplet)
	d.Folders = append(d.Folders, links, linksFolder)
	d.Binds = append(d.Binds, describe.Bind{Source: links, Target: linksFolder})
}
