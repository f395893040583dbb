// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// defaultHistoryBytes is the bound of history of a tenant that sets none: the default of --quota-history-bytes of etcd-storage-proxy.
const defaultHistoryBytes = 256 << 20

// hundred is the whole, in percent.
const hundred = 100

// Promises is what the tenants of a core may have together. Those of other clusters are not known.
type Promises struct {
	// Bytes may be stored and be written between two compactions, by the tenants that are bounded.
	Bytes int64
	// Unbounded counts the tenants without a bound of bytes, of which only the history is in Bytes.
	Unbounded int
	// Quota is that of the smallest member; 0 if none reports one, as etcd before 3.6.
	Quota int64
}

// Promises adds up the bounds of the tenants whose prefix is claimed at the core, and of this one.
func (w World) Promises() Promises {
	out := Promises{Quota: w.CoreQuota}
	out.add(w.Storage)
	for _, other := range w.Others {
		if slices.ContainsFunc(w.Core.Owners, func(o Owner) bool {
			return o.Tenant == other.Name && o.UID == string(other.UID) && o.Cluster == w.Settings.Cluster && !o.Released
		}) {
			out.add(w.Settings.Bounded(other))
		}
	}
	return out
}

func (p *Promises) add(storage v1alpha1.EtcdStorage) {
	q := storage.Spec.Quota
	if q.Bytes == nil {
		p.Unbounded++
	} else {
		p.Bytes += q.Bytes.Value()
	}
	if q.HistoryBytes == nil {
		p.Bytes += defaultHistoryBytes
	} else {
		p.Bytes += q.HistoryBytes.Value()
	}
}

// Exceed reports whether they are more than a part of the quota, in percent.
func (p Promises) Exceed(percent int64) bool { return p.Quota > 0 && p.Bytes > p.Quota*percent/hundred }

// Message says how much is promised of how much, and what can be done.
func (p Promises) Message() string {
	size := func(bytes int64) string { return resource.NewQuantity(bytes>>20<<20, resource.BinarySI).String() }
	return fmt.Sprintf("the tenants of the core etcd may store and write %s between two compactions, and its smallest member has a quota of %s: lower spec.quota.bytes or "+
		"spec.quota.historyBytes of tenants, or raise --quota-backend-bytes of etcd", size(p.Bytes), size(p.Quota))
}

// noRoom is the refusal of a tenant that the core has not promised anything yet.
func (w World) noRoom() *Refusal {
	percent := w.Settings.OvercommitPercent
	if percent == 0 || w.begun() {
		return nil
	}
	p := w.Promises()
	if !p.Exceed(percent) {
		return nil
	}
	r := refuse(ReasonCoreOvercommitted, "with this one %s; --core-overcommit-percent of the operator, %d, allows no more", p.Message(), percent)
	return &r
}
