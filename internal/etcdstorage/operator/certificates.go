// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
)

// purposes are the CAs in the order in which they are looked after.
func purposes() []pki.Purpose { return []pki.Purpose{pki.Serving, pki.Client} }

// Keys in Secrets with certificates (kubernetes.io/tls).
const (
	keyCert = "tls.crt"
	keyKey  = "tls.key"
)

// place is where a bundle or a certificate is: one of the operator's own objects, or a destination.
type place struct {
	pki.Place
	destination *Destination
}

// places lists what holds bundles and certificates of a purpose.
func (w World) places(purpose pki.Purpose) (bundles, leaves []place) {
	for _, d := range w.sortedDestinations(w.Destinations) {
		_, refused := w.refusal(d)
		if d.Namespace == w.Settings.Namespace {
			continue // it never gets anything
		}
		held := d.Delivered != Mark(&w.Storage) && w.obstructed()
		p := place{Place: pki.Place{Name: d.String(), Blocked: refused || held}, destination: &d}
		switch {
		case purpose == pki.Serving && d.Kind == KindConfigMap:
			p.Bundle = d.Data[v1alpha1.ServingCAKey]
			bundles = append(bundles, p)
		case purpose == pki.Client && d.Kind == KindSecret:
			p.Pair, p.Leaf = pki.Pair{Cert: d.Data[keyCert], Key: d.Data[keyKey]}, w.client(d).leaf(w.Storage.Name)
			leaves = append(leaves, p)
		}
	}
	if purpose == pki.Serving {
		return bundles, []place{w.servingPlace()}
	}
	return []place{w.clientCAPlace()}, leaves
}

// obstructed reports that somebody else's object keeps the endpoint from being served. Nothing is delivered for the first time then, since
// anyone who got it would turn to an endpoint that is not this tenant's, or not there. What was delivered before is renewed: it may be in use.
func (w World) obstructed() bool {
	return slices.ContainsFunc(Refs(w.Storage.Name), func(ref Ref) bool {
		o, exists := w.object(ref.Kind, ref.Name)
		serves := ref.Kind != KindBudget && ref.Kind != KindNetworkPolicy && (ref.Name != UserSecretName(w.Storage.Name) || w.usersWanted())
		return serves && exists && !o.ownedBy(string(w.Storage.UID))
	})
}

func (w World) sortedDestinations(all []Destination) []Destination {
	return slices.SortedFunc(slices.Values(all), func(a, b Destination) int { return cmp.Compare(a.String(), b.String()) })
}

func (w World) servingPlace() place {
	name := ServingName(w.Storage.Name)
	o, exists := w.object(KindSecret, name)
	_, ours := w.own(KindSecret, name)
	out := place{Place: pki.Place{
		Name: KindSecret + " " + name, Blocked: exists && !ours,
		Leaf: pki.ServingLeaf(ProxyName(w.Storage.Name), w.Settings.Namespace, w.Settings.ClusterDomain),
	}}
	if ours {
		data := o.secretData()
		out.Pair = pki.Pair{Cert: data[keyCert], Key: data[keyKey]}
	}
	return out
}

func (w World) clientCAPlace() place {
	name := ClientCAName(w.Storage.Name)
	o, exists := w.object(KindConfigMap, name)
	_, ours := w.own(KindConfigMap, name)
	out := place{Place: pki.Place{Name: KindConfigMap + " " + name, Blocked: exists && !ours}}
	if ours {
		out.Bundle = o.configData(v1alpha1.ClientCAKey)
	}
	return out
}

// signers are the CAs of both purposes, as they are stored.
func (w World) signers() map[pki.Purpose]pki.Signers {
	out := map[pki.Purpose]pki.Signers{}
	if o, ours := w.own(KindSecret, SignersName(w.Storage.Name)); ours {
		for _, purpose := range purposes() {
			out[purpose], _ = pki.ParseSigners(purpose, o.secretData())
		}
	}
	return out
}

func (w World) validity(purpose pki.Purpose) pki.Validity {
	s := w.Storage.Spec
	if purpose == pki.Serving {
		return pki.Validity{Signing: s.SigningCertificateValidity.Duration, Leaf: s.ServingCertificateValidity.Duration}
	}
	return pki.Validity{Signing: s.SigningCertificateValidity.Duration, Leaf: s.ClientCertificateValidity.Duration}
}

// certificates adds what is to be done about certificates, up to the first step on which the rest depends.
func (w World) certificates(p *Plan) {
	if o, exists := w.object(KindSecret, SignersName(w.Storage.Name)); exists && !o.ownedBy(string(w.Storage.UID)) {
		return // the refusal says so; without CAs nothing can be issued
	}
	w.recoverCAs(p)
	w.issuer(p)
	w.record(p)
	w.list(p)
	signers := w.signers()
	for _, purpose := range purposes() {
		offer, _ := w.offer(purpose)
		bundles, leaves := w.places(purpose)
		d := pki.MakePlan(pki.World{
			Now: w.Now, Validity: w.validity(purpose), Signers: signers[purpose], Bundles: plain(bundles), Leaves: plain(leaves),
			Origin: w.origin(), Offer: offer,
		})
		if r, late := w.overdue(purpose, d); late {
			p.Refusals = append(p.Refusals, r)
		}
		p.Certificates = append(p.Certificates, Certificates{Purpose: purpose, Plan: d, Signers: signers[purpose], Leaves: plain(leaves), Bundles: plain(bundles)})
		for _, s := range d.Steps {
			if !p.add(w.certificateStep(purpose, signers, s, bundles, leaves)) {
				break
			}
		}
	}
	w.emptyRevoked(p)
}

func plain(places []place) []pki.Place {
	out := make([]pki.Place, 0, len(places))
	for _, p := range places {
		out = append(out, p.Place)
	}
	return out
}

// certificateStep is the write that a step of package pki comes to.
func (w World) certificateStep(purpose pki.Purpose, signers map[pki.Purpose]pki.Signers, s pki.Step, bundles, leaves []place) Step {
	changed := func(to pki.Signers) Write {
		all := maps.Clone(signers)
		all[purpose] = to
		return w.signersWrite(all, string(purpose)+" CA: "+s.Because())
	}
	switch s := s.(type) {
	case pki.MakeCA:
		return MakeCA{w.signersWrite(signers, "a "+string(purpose)+" CA is needed: "+s.Because()), purpose, s.Generation, w.validity(purpose).Signing}
	case pki.TakeCA:
		return TakeCA{changed(s.Signers)}
	case pki.ChangeSigners:
		return Apply{changed(s.Signers)}
	case pki.Publish:
		at := bundles[s.At]
		if at.destination != nil {
			return DeliverBundle{Delivery{About{at.Name, s.Because()}, *at.destination}, s.Bundle}
		}
		return Apply{w.write(w.clientCA(s.Bundle), s.Because())}
	case pki.IssueLeaf:
		at := leaves[s.At]
		issuance := Issuance{at.Leaf, of(signers[purpose], s.Generation), w.validity(purpose).Leaf}
		if at.destination != nil {
			return DeliverClient{Delivery{About{at.Name, s.Because()}, *at.destination}, issuance}
		}
		return IssueServing{w.write(w.secret(ServingName(w.Storage.Name), "kubernetes.io/tls", nil), s.Because()), issuance}
	}
	panic(fmt.Sprintf("operator: there is no write for %T", s)) // a program error: the set of steps is closed
}

func of(signers pki.Signers, generation int) pki.CA {
	for _, ca := range signers {
		if ca.Generation == generation {
			return ca
		}
	}
	return pki.CA{}
}

// signersWrite is that of the Secret with the CAs.
func (w World) signersWrite(signers map[pki.Purpose]pki.Signers, reason string) Write {
	data := map[string][]byte{}
	for purpose, cas := range signers {
		maps.Copy(data, cas.Data(purpose))
	}
	if record := cmp.Or(w.origin(), w.recorded()); record != "" {
		data[issuerKey] = []byte(record)
	}
	if clients := w.clients(); len(clients) > 0 {
		data[clientsKey] = encodeClients(clients)
	}
	return w.write(w.secret(SignersName(w.Storage.Name), "Opaque", data), reason)
}
