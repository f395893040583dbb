// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// owner is the tenant's record, if it is this EtcdStorage's.
func (w World) owner() (Owner, bool) {
	i := slices.IndexFunc(w.Core.Owners, func(o Owner) bool { return w.isOurs(o) })
	if i < 0 {
		return Owner{}, false
	}
	return w.Core.Owners[i], true
}

// isOurs reports that a record is that of this EtcdStorage. A released one is nobody's.
func (w World) isOurs(o Owner) bool {
	return o.Tenant == w.Storage.Name && o.UID == string(w.Storage.UID) && o.Cluster == w.Settings.Cluster && !o.Released
}

// claim is the step that makes the prefix the tenant's, or the reason why it cannot be. One that has claimed it before, whose record is lost because
// the same core came back from a backup, claims it again.
func (w World) claim() (Claim, *Refusal) {
	prefix := Prefix(&w.Storage)
	mine, err := tenancy.ParsePrefix(prefix)
	if err != nil {
		r := refuse(ReasonInvalidSpec, "spec.prefix: %v", err)
		return Claim{}, &r
	}
	replaces, r := w.inTheWay(mine)
	if r != nil {
		return Claim{}, r
	}
	kept := slices.ContainsFunc(replaces, func(o Owner) bool { return o.Prefix == prefix })
	restored := w.begun() && w.boundTo() == w.Core.ClusterID
	if w.Core.Keys > 0 && !w.Storage.Spec.AdoptExistingData && !restored {
		whose := "of an unknown owner"
		if kept {
			whose = "of an EtcdStorage that was deleted and had spec.deletionPolicy Retain"
		}
		r := refuse(ReasonExistingData, "the core has %d keys under %s, %s; set spec.adoptExistingData to true to adopt them, or choose another spec.prefix",
			w.Core.Keys, prefix, whose)
		return Claim{}, &r
	}
	if r := w.noRoom(); r != nil {
		return Claim{}, r
	}
	return Claim{Record{About{OwnersPrefix + w.Storage.Name, "the prefix has no owner yet"}, Owner{
		Tenant: w.Storage.Name, Prefix: prefix, LeaseSpace: w.leaseSpace(mine, replaces), Cluster: w.Settings.Cluster, UID: string(w.Storage.UID),
		Core: w.Core.ClusterID,
	}}, replaces, w.Core.Revision}, nil
}

// inTheWay are the records that a claim replaces, or the reason why one of them may not be replaced.
func (w World) inTheWay(mine tenancy.Prefix) (replaces []Owner, r *Refusal) {
	for _, o := range sortedOwners(w.Core.Owners) {
		theirs, err := tenancy.ParsePrefix(o.Prefix)
		overlaps, sameTenant := err != nil || theirs.Overlaps(mine), o.Tenant == w.Storage.Name
		gone := o.Released || sameTenant && o.Cluster == w.Settings.Cluster
		switch {
		case !overlaps && !sameTenant:
		case !gone:
			r := refuse(ReasonPrefixTaken, "the core's %s belongs to tenant %s of the cluster with UID %s; choose another name and spec.prefix", o.Prefix, o.Tenant, o.Cluster)
			return nil, &r
		case overlaps && o.Prefix != mine.String():
			r := refuse(ReasonPrefixTaken, "spec.prefix %s overlaps %s, where data of tenant %s was retained; choose another one", mine, o.Prefix, o.Tenant)
			return nil, &r
		default:
			replaces = append(replaces, o)
		}
	}
	return replaces, nil
}

func sortedOwners(owners []Owner) []Owner {
	return slices.SortedFunc(slices.Values(owners), func(a, b Owner) int { return cmp.Compare(a.Tenant, b.Tenant) })
}

// leaseSpace is the number of the tenant's leases: that of the data that is taken over, or the one that the prefix leads to unless another has it.
func (w World) leaseSpace(mine tenancy.Prefix, replaces []Owner) string {
	for _, o := range replaces {
		if _, err := tenancy.ParseLeaseSpace(o.LeaseSpace); err == nil && o.Prefix == mine.String() {
			return o.LeaseSpace
		}
	}
	space := tenancy.DeriveLeaseSpace(mine)
	for w.spaceTaken(space) {
		n, err := strconv.ParseUint(space.String(), 10, 32)
		next, nextErr := tenancy.ParseLeaseSpace(strconv.FormatUint(n+1, 10))
		if err != nil || nextErr != nil {
			next, _ = tenancy.ParseLeaseSpace("1")
		}
		space = next
	}
	return space.String()
}

func (w World) spaceTaken(space tenancy.LeaseSpace) bool {
	return slices.ContainsFunc(w.Core.Owners, func(o Owner) bool { return o.LeaseSpace == space.String() })
}
