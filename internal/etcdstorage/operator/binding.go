// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// boundTo is the cluster ID of the core that the EtcdStorage is bound to; "" if it is bound to none yet.
func (w World) boundTo() string {
	if w.Storage.Status.Core == nil {
		return ""
	}
	return w.Storage.Status.Core.ClusterID
}

// accepted reports whether a person has decided that the core that answers is the right one.
func (w World) accepted() bool {
	return w.Storage.Annotations[v1alpha1.AcceptCoreAnnotation] == w.Core.ClusterID
}

// foreignCore is the refusal to do anything at a core that is not the one that the EtcdStorage is bound to: it may be a stranger's, with
// keys and tenants of the same names. One that is bound to none, since an earlier version made it, needs its record at this core.
func (w World) foreignCore() (Refusal, bool) {
	if w.Core.Problem != "" || w.accepted() {
		return Refusal{}, false
	}
	owner, claimed := w.owner()
	bound := w.boundTo()
	var why string
	switch {
	case bound != "" && bound != w.Core.ClusterID:
		why = "the EtcdStorage is bound to the one with cluster ID " + bound
	case bound == "" && claimed && owner.Core != "" && owner.Core != w.Core.ClusterID:
		why = fmt.Sprintf("its record of the tenant was written at the one with cluster ID %s, of which it is a copy", owner.Core)
	case bound == "" && !claimed && w.begun() && !w.exiting():
		why = "it has no record of the EtcdStorage, which was served from another core before"
	default:
		return Refusal{}, false
	}
	return refuse(ReasonForeignCore, "the core etcd at these URLs has cluster ID %s, but %s: nothing is created or deleted there; correct --etcd-core-url, or if this is its core from now on run: "+
		"kubectl annotate etcdstorage %s --overwrite %s=%s", w.Core.ClusterID, why, quote(w.Storage.Name), v1alpha1.AcceptCoreAnnotation, w.Core.ClusterID), true
}

// bind adds what is missing of the binding to this core: in the record, and then in the status. It reports whether something was.
func (w World) bind(p *Plan, owner Owner) bool {
	switch here := w.Core.ClusterID; {
	case owner.Core != here:
		replaced := owner
		owner.Core = here
		p.add(Claim{Record{About{OwnersPrefix + owner.Tenant, "the record does not name this core"}, owner}, []Owner{replaced}, w.Core.Revision})
	case w.boundTo() != here && !w.StatusLacksCore:
		p.add(Bind{About{"EtcdStorage/" + w.Storage.Name, "its prefix is claimed at the core with cluster ID " + here}, here})
	default:
		return false
	}
	return true
}
