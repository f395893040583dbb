// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"time"

	"github.com/mooring-dev/mooring/internal/ui"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// volumesStand is how long volumes stand: all Pods are listed for them, and DigitalOcean is queried a few times.
const volumesStand = 2 * time.Minute

// readVolumes fills in the volumes as kubectl mooring volumes has them: new ones, or those of a while ago with their age. It has a part of the time, so that a
// side that hangs does not hold up the rest.
func (u *uiReader) readVolumes(ctx context.Context, w *ui.World) {
	if now := u.clock.Now(); u.volumes.At.IsZero() || now.Sub(u.volumes.At) >= volumesStand {
		bounded, cancel := context.WithTimeout(ctx, doctorTime)
		defer cancel()
		u.volumes = ui.Volumes{At: now}
		if seen, err := readVolumes(bounded, u.agreement.env, u.clock); err != nil {
			u.volumes.Problem = plain(err)
		} else {
			u.volumes.Report = volumes.Compare(seen)
		}
	}
	w.Volumes = u.volumes
}
