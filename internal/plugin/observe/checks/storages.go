// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/tenants"
)

const storagesLong = `Find EtcdStorages that are not ready, are in conflict, or are at a limit of their quota, and a core etcd that is not healthy: without space, without
a leader, with a member that does not respond, or nearly full.

The conditions of EtcdStorages are read, as etcd-storage-operator wrote them last. The core itself is not queried.`

// lookAtStorages reads the tenants of etcd storage. A cluster without the kind has none.
func lookAtStorages(ctx context.Context, x *Examination) []finding.Finding {
	e := tenants.Evidence{Now: x.cluster.ServerTime(x.clock.Now())}
	e.Storages, _, e.Unread = x.cluster.Storages(ctx)
	if len(e.Storages) > 0 {
		e.Unkept = Unkept(ctx, x.cluster, x.clock, doctor.Storage)
	}
	return tenants.Findings(e)
}
