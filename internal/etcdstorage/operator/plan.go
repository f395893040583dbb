// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// Plan is what remains to be done. Equal Worlds give equal Plans, whatever the order of their lists.
type Plan struct {
	// Steps are the writes that remain, in order, up to the first on whose outcome the others depend. Each is safe once those before it are done,
	// and a process that dies between two of them plans the rest again.
	Steps []Step
	// Refusals say why other writes are not made.
	Refusals []Refusal
	// Waiting says what a deletion waits for, "" if for nothing.
	Waiting string
	// Owner is the tenant's record in the core, if it is this EtcdStorage's.
	Owner Owner
	// Certificates are the decisions about both CAs.
	Certificates []Certificates

	ended bool // a step was added on which the rest depends
}

// Certificates is what is known and decided about one purpose.
type Certificates struct {
	Purpose         pki.Purpose
	Plan            pki.Plan
	Signers         pki.Signers
	Bundles, Leaves []pki.Place
}

// Next is when something is due by the clock alone; zero if nothing is.
func (p Plan) Next() time.Time {
	var out time.Time
	for _, c := range p.Certificates {
		if n := c.Plan.Next; !n.IsZero() && (out.IsZero() || n.Before(out)) {
			out = n
		}
	}
	return out
}

// add appends a step, and reports whether more may follow.
func (p *Plan) add(s Step) bool {
	if p.ended {
		return false
	}
	p.Steps = append(p.Steps, s)
	p.ended = last(s)
	return !p.ended
}

// MakePlan plans.
func MakePlan(w World) Plan {
	var p Plan
	p.Owner, _ = w.owner()
	if w.exiting() {
		w.exit(&p)
		return p
	}
	p.Refusals = w.refusals()
	if w.fatal(&p) {
		return p
	}
	if !w.held() {
		p.add(Hold{About{"EtcdStorage/" + w.Storage.Name, "its objects must be deleted before it is removed"}})
		return p
	}
	w.certificates(&p)
	if w.Core.Problem == "" && w.Files.Problem == "" && !w.shared() {
		w.users(&p)
		w.objects(&p)
		w.retire(&p)
	}
	return p
}

// fatal deals with what must be settled before anything is made: the spec, which core this is, and whose the prefix is. It reports whether
// the plan ends there. What runs already goes on while the core is away.
func (w World) fatal(p *Plan) bool {
	if slices.ContainsFunc(p.Refusals, func(r Refusal) bool {
		return r.Reason == ReasonInvalidSpec || r.Reason == ReasonPrefixTaken || r.Reason == ReasonForeignCore
	}) {
		return true
	}
	if w.Core.Problem != "" {
		return !w.begun()
	}
	if owner, claimed := w.owner(); claimed {
		return w.held() && w.bind(p, owner)
	}
	step, r := w.claim()
	switch {
	case r != nil:
		p.Refusals = append(p.Refusals, *r)
	case !w.held():
		return false // the finalizer comes first
	default:
		p.add(step)
	}
	return true
}

// begun reports that the EtcdStorage has CAs, which it gets after it has claimed its prefix.
func (w World) begun() bool {
	_, ours := w.own(KindSecret, SignersName(w.Storage.Name))
	return ours
}

// shared reports that the proxies would all be somebody in the core.
func (w World) shared() bool { return w.usersWanted() && w.Core.SharedUser != "" }

// objects adds the writes of the objects that serve the tenant.
func (w World) objects(p *Plan) {
	if p.ended || !w.certified() || w.usersWanted() && w.current() == 0 {
		return
	}
	for _, object := range w.workload(p.Owner) {
		s := Apply{w.write(object, "")}
		live, exists := w.object(s.Ref.Kind, s.Ref.Name)
		switch {
		case !exists:
			s.Reason = "there is none"
		case !live.ownedBy(string(w.Storage.UID)):
			continue // a refusal says so
		case holds(live.Content, s.Content):
			continue
		default:
			s.Reason = "it differs from the desired state"
		}
		if !p.add(s) {
			return
		}
	}
	if off := w.Storage.Spec.NetworkPolicy.Enabled; off != nil && !*off {
		w.remove(p, Ref{"networking.k8s.io/v1", KindNetworkPolicy, ProxyName(w.Storage.Name)}, "spec.networkPolicy.enabled is false")
	}
}

// certified reports that the pods' own Secrets and ConfigMaps are not somebody else's. That they exist is seen to by the steps before, or by
// an issuer.
func (w World) certified() bool {
	for _, ref := range Refs(w.Storage.Name)[:4] {
		if o, exists := w.object(ref.Kind, ref.Name); exists && !o.ownedBy(string(w.Storage.UID)) {
			return false
		}
	}
	if w.Storage.Spec.IssuerRef == nil {
		return true
	}
	// An issuer may give its CA late, or for one purpose only.
	_, serving := w.own(KindSecret, ServingName(w.Storage.Name))
	_, trust := w.own(KindConfigMap, ClientCAName(w.Storage.Name))
	return serving && trust
}

// write is that of an object, with what is there now as its precondition.
func (w World) write(object any, reason string) Write {
	c := content(object)
	o := Object{Content: c}
	kind, _ := c["kind"].(string)
	version, _ := c["apiVersion"].(string)
	s := Write{About: About{kind + "/" + o.meta("name"), reason}, Content: c, Ref: Ref{version, kind, o.meta("name")}}
	if live, exists := w.object(kind, o.meta("name")); exists {
		s.UID, s.ResourceVersion = live.meta("uid"), live.meta("resourceVersion")
	}
	return s
}

// remove adds the deletion of an object, if it is there and the EtcdStorage's.
func (w World) remove(p *Plan, ref Ref, reason string) {
	if o, ours := w.own(ref.Kind, ref.Name); ours && o.meta("deletionTimestamp") == "" {
		p.add(Remove{About{ref.String(), reason}, ref, o.meta("uid")})
	}
}

// refusals lists what is in the way.
func (w World) refusals() []Refusal {
	var out []Refusal
	out = append(out, w.specRefusals()...)
	if r, foreign := w.foreignCore(); foreign {
		out = append(out, r)
	}
	if w.Core.Problem != "" {
		out = append(out, Refusal{ReasonCoreUnreachable, w.Core.Problem})
	}
	if w.Files.Problem != "" {
		out = append(out, Refusal{ReasonCoreCredentials, w.Files.Problem})
	}
	if w.shared() {
		out = append(out, refuse(ReasonSharedUser, "the certificate in Secret %s is that of etcd user %q, so that each proxy would have that user's rights: put one there whose "+
			"common name is not an etcd user, and the administrator's in the Secret of --etcd-core-admin-secret", w.Settings.CertsSecret, w.Core.SharedUser))
	}
	var foreign []string
	for _, ref := range Refs(w.Storage.Name) {
		if o, exists := w.object(ref.Kind, ref.Name); exists && !o.ownedBy(string(w.Storage.UID)) {
			foreign = append(foreign, ref.Kind+" "+ref.Name)
		}
	}
	foreign = append(foreign, w.foreignToIssuer()...)
	if len(foreign) > 0 {
		out = append(out, refuse(ReasonForeignObject, "namespace %s has %s, not of this EtcdStorage; delete or rename them, or choose another name",
			w.Settings.Namespace, strings.Join(foreign, ", ")))
	}
	out = append(out, w.issuerRefusals()...)
	for _, d := range w.sortedDestinations(w.Destinations) {
		if r, refused := w.refusal(d); refused {
			out = append(out, r)
		}
	}
	return out
}

// storageName is what the names of all objects can be made of: "etcd-" before it makes a DNS label (RFC 1123).
var storageName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,56}[a-z0-9])?$`)

// specRefusals are about the spec. The API server refuses most of it as well.
func (w World) specRefusals() []Refusal {
	s := &w.Storage
	if !storageName.MatchString(s.Name) {
		return []Refusal{refuse(ReasonInvalidSpec, "metadata.name %q: at most 58 lower case letters, digits and '-', since the Service is called etcd-<name>", s.Name)}
	}
	signing := s.Spec.SigningCertificateValidity.Duration
	for _, v := range []struct {
		field string
		is    time.Duration
	}{
		{"spec.signingCertificateValidity", signing}, {"spec.servingCertificateValidity", s.Spec.ServingCertificateValidity.Duration},
		{"spec.clientCertificateValidity", s.Spec.ClientCertificateValidity.Duration},
	} {
		if v.is < 10*time.Minute || v.is > signing {
			return []Refusal{refuse(ReasonInvalidSpec, "%s %s: must be at least 10m, and not longer than spec.signingCertificateValidity", v.field, v.is)}
		}
	}
	mine, err := tenancy.ParsePrefix(Prefix(s))
	if err != nil {
		return []Refusal{refuse(ReasonInvalidSpec, "spec.prefix: %v", err)}
	}
	if _, claimed := w.owner(); claimed || w.begun() {
		return nil // it has its prefix, no matter who else asks for it: ages have seconds only, and of two of the same second either may have been first
	}
	var taken []string
	for _, o := range w.Others {
		theirs, err := tenancy.ParsePrefix(Prefix(&o))
		if err == nil && theirs.Overlaps(mine) && older(&o, s) {
			taken = append(taken, fmt.Sprintf("%s of EtcdStorage %s", theirs, o.Name))
		}
	}
	if len(taken) > 0 {
		slices.Sort(taken)
		return []Refusal{refuse(ReasonPrefixTaken, "spec.prefix %s overlaps %s, which is older; choose another one", mine, strings.Join(taken, " and "))}
	}
	return nil
}

// HasProxies reports that there is a Deployment of the EtcdStorage, whatever its state.
func (w World) HasProxies() bool {
	_, ours := w.own(KindDeployment, ProxyName(w.Storage.Name))
	return ours
}

// Deployed says how many proxies are ready, and whether all are of the current template.
func (w World) Deployed() (ready int32, current bool) {
	o, ours := w.own(KindDeployment, ProxyName(w.Storage.Name))
	if !ours {
		return 0, false
	}
	return int32(o.number("status", "readyReplicas")), w.rolledOut()
}

// Defaulted returns a copy of an EtcdStorage with what the API server would fill in.
func Defaulted(s *v1alpha1.EtcdStorage) v1alpha1.EtcdStorage {
	out := *s.DeepCopy()
	v1alpha1.SetDefaults(&out)
	return out
}

// Bounded returns an EtcdStorage with the bounds that hold where it sets none.
func (s Settings) Bounded(storage v1alpha1.EtcdStorage) v1alpha1.EtcdStorage {
	if storage.Spec.Quota.Bytes == nil && s.QuotaBytes > 0 {
		storage.Spec.Quota.Bytes = resource.NewQuantity(s.QuotaBytes, resource.BinarySI)
	}
	return storage
}
