// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"context"
	"time"

	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/ui"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// volumesStand is how long volumes stand: all Pods are listed for them, and DigitalOcean is queried a few times. It takes volumesTime at most.
const (
	volumesStand = 2 * time.Minute
	volumesTime  = observe.ReadTime / 4
)

// readVolumes fills in the volumes as kubectl mooring volumes has them: new ones, or those of a while ago with their age. What could not be read is tried again
// each time. It has a part of the time, so that a side that hangs does not hold up the rest.
func (u *Reader) readVolumes(ctx context.Context, w *ui.World) {
	if now := u.clock.Now(); u.volumes.At.IsZero() || u.volumes.Problem != "" || now.Sub(u.volumes.At) >= volumesStand {
		bounded, cancel := context.WithTimeout(ctx, volumesTime)
		defer cancel()
		u.volumes = ui.Volumes{At: now}
		if seen, err := observe.Volumes(bounded, u.cluster, u.clock); err != nil {
			u.volumes.Problem = observe.OneLine(err)
		} else {
			u.volumes.Report = volumes.Compare(seen)
		}
	}
	w.Volumes = u.volumes
}
