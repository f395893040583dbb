// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// exit undoes what was made, unless the core is not the one that it was made at: first what can write to the core, then what was delivered,
// then the data or its release, then the rest. The data of somebody else, whose prefix this EtcdStorage never got, is not touched.
func (w World) exit(p *Plan) {
	if !w.held() {
		return
	}
	if r, foreign := w.foreignCore(); foreign {
		p.Waiting, p.Refusals = r.Message, append(p.Refusals, r)
		return
	}
	w.remove(p, Ref{"apps/v1", KindDeployment, ProxyName(w.Storage.Name)}, "the EtcdStorage is being deleted")
	if p.ended || len(p.Steps) > 0 {
		return
	}
	if _, ours := w.own(KindDeployment, ProxyName(w.Storage.Name)); ours || w.Pods > 0 {
		p.Waiting = fmt.Sprintf("%d proxies still exist", w.Pods)
		return
	}
	w.withdraw(p)
	if w.Core.Problem != "" {
		p.Waiting = w.Core.Problem
		p.Refusals = append(p.Refusals, Refusal{ReasonCoreUnreachable, w.Core.Problem + "; if the core is gone for good, remove the finalizer " +
			v1alpha1.Finalizer + " by hand"})
		return
	}
	w.leaveCore(p)
	if p.ended {
		return
	}
	if p.Waiting = w.leaveIssuer(p, "the EtcdStorage is being deleted"); p.Waiting != "" || len(p.Steps) > 0 {
		return
	}
	for _, ref := range Refs(w.Storage.Name) {
		w.remove(p, ref, "the EtcdStorage is being deleted")
	}
	if len(p.Steps) == 0 {
		p.add(Unhold{About{"EtcdStorage/" + w.Storage.Name, "there is nothing left to clean up"}})
	}
}

// withdraw takes back what was delivered to the tenant.
func (w World) withdraw(p *Plan) {
	for _, d := range w.sortedDestinations(slices.Concat(w.Destinations, w.Revoked)) {
		if d.State == Readable && d.Delivered == Mark(&w.Storage) {
			p.add(Withdraw{Delivery{About{d.String(), "the EtcdStorage is being deleted"}, d}})
		}
	}
}

// leaveCore removes the tenant's users, and its data as the policy says. Without the claim it removes nothing: the role and the users of
// this name are then those of another tenant, such as one of the same name in another cluster.
func (w World) leaveCore(p *Plan) {
	owner, claimed := w.owner()
	if !claimed || w.bind(p, owner) {
		return
	}
	if w.Core.RoleExists || len(w.Core.Users) > 0 {
		what := strings.Join(append([]string{"role " + EtcdRole(w.Storage.Name)}, w.Core.Users...), ", ")
		p.add(RetireUsers{About{"etcd " + what, "the EtcdStorage is being deleted"}, w.Core.Users, true})
	}
	if p.ended {
		return
	}
	if w.Storage.Spec.DeletionPolicy != v1alpha1.DeletionDelete {
		p.add(Release{Record{About{OwnersPrefix + owner.Tenant, "spec.deletionPolicy is Retain: the data stays as it is"}, owner}})
		return
	}
	const why = "spec.deletionPolicy is Delete"
	if w.Core.Keys > 0 {
		p.add(DeleteKeys{Record{About{fmt.Sprintf("%d keys under %s", w.Core.Keys, owner.Prefix), why}, owner}})
	}
	if len(w.Core.Leases) > 0 {
		p.add(RevokeLeases{Record{About{fmt.Sprintf("%d leases", len(w.Core.Leases)), why}, owner}, w.Core.Leases})
	}
	if w.Core.Records > 0 {
		p.add(DeleteRecords{Record{About{SystemPrefix(owner.Tenant), why}, owner}})
	}
	// Only when counting has shown that nothing is left is the record itself removed.
	p.add(Forget{Record{About{OwnersPrefix + owner.Tenant, "no key, lease or record of the tenant is left"}, owner}})
}
