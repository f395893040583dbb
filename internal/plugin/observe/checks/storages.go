// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const storagesLong = `Find EtcdStorages that are not ready, are in conflict, or are at a limit of their quota, and a core etcd that is not healthy: without space, without
a leader, with a member that does not respond, or nearly full.

The conditions of EtcdStorages are read, as etcd-storage-operator wrote them last. The core itself is not queried.`

// lookAtStorages reads the tenants of etcd storage. A cluster without the kind has none.
func lookAtStorages(ctx context.Context, x *Examination) []finding.Finding {
	e := doctor.StorageEvidence{Now: x.cluster.ServerTime(x.clock.Now())}
	unread := func(side string, err error) {
		e.Unread = append(e.Unread, finding.Side{Name: side, Problem: observe.OneLine(err)})
	}
	all, _, err := x.cluster.List(ctx, observe.EtcdStorages())
	if err != nil {
		unread("EtcdStorages", err)
	}
	for _, o := range all {
		var s etcdv1alpha1.EtcdStorage
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s); err != nil {
			unread("EtcdStorage "+o.GetName(), err)
			continue
		}
		e.Storages = append(e.Storages, s)
	}
	if len(e.Storages) > 0 {
		e.Unkept = Unkept(ctx, x.cluster, x.clock, doctor.Storage)
	}
	return doctor.Storages(e)
}
