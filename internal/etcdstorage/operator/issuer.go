// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
)

// Of cert-manager the tenant's two CAs are taken and nothing else: one Certificate for each in the operator's namespace, whose Secret is read. What
// cert-manager renews there is one more CA among those that package pki knows, so that the overlap is the same as with CAs of the operator's own.

// KindCertificate is that of cert-manager.
const KindCertificate = "Certificate"

// certManagerVersion is the group and version of Certificates, certManagerGroup the group of its own issuers.
const (
	certManagerGroup   = "cert-manager.io"
	certManagerVersion = certManagerGroup + "/v1"
)

// Annotations with which cert-manager says on a Secret who has issued what is in it.
const (
	issuerNameAnnotation = "cert-manager.io/issuer-name"
	issuerKindAnnotation = "cert-manager.io/issuer-kind"
)

// issuerKey in the Secret with the CAs says from which issuer CAs come. It is written before any Certificate and removed after the last, so
// that none is forgotten. MUST NOT change.
const issuerKey = "issuer"

// CertManager is what is known of cert-manager: Missing where the API server serves no Certificates.
type CertManager struct {
	State DestinationState
	// Problem is the API server's answer where State is Failed.
	Problem string
}

// CAName is the Certificate of cert-manager for a CA, and the Secret that it is put into. MUST NOT change.
func CAName(name string, purpose pki.Purpose) string { return name + "-" + string(purpose) + "-ca" }

// IssuerRefs lists what there is in the operator's namespace, alongside [Refs], for an EtcdStorage of this name whose CAs come from an issuer.
func IssuerRefs(name string) []Ref {
	var out []Ref
	for _, purpose := range purposes() {
		out = append(out, Ref{certManagerVersion, KindCertificate, CAName(name, purpose)}, Ref{"v1", KindSecret, CAName(name, purpose)})
	}
	return out
}

// IssuerConcerned reports that [IssuerRefs] matter: an issuer is named, or was, and not everything of it is gone.
func (w World) IssuerConcerned() bool { return w.Storage.Spec.IssuerRef != nil || w.recorded() != "" }

// origin is the issuer from which CAs shall come; "" for the operator itself.
func (w World) origin() string {
	if r := w.Storage.Spec.IssuerRef; r != nil {
		return r.Kind + "." + r.Group + "/" + r.Name
	}
	return ""
}

// recorded is the issuer from which CAs came so far.
func (w World) recorded() string {
	o, ours := w.own(KindSecret, SignersName(w.Storage.Name))
	if !ours {
		return ""
	}
	return string(o.secretData()[issuerKey])
}

// issued is the Secret into which cert-manager has written a CA for this EtcdStorage. Its owner is nobody; it has the mark that the
// Certificate asks for.
func (w World) issued(purpose pki.Purpose) (o Object, ours bool) {
	o, exists := w.object(KindSecret, CAName(w.Storage.Name, purpose))
	return o, exists && o.annotation(v1alpha1.DeliveredAnnotation) == Mark(&w.Storage)
}

// offer is the CA that the issuer has issued last; nil if there is none, and an error if it cannot be used. What another issuer has issued
// before is none.
func (w World) offer(purpose pki.Purpose) (*pki.CA, error) {
	r := w.Storage.Spec.IssuerRef
	o, ours := w.issued(purpose)
	if r == nil || !ours || !holdsOrLacks(o, issuerNameAnnotation, r.Name) || !holdsOrLacks(o, issuerKindAnnotation, r.Kind) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	data := o.secretData()
	if len(data[keyCert]) == 0 {
		return nil, nil //nolint:nilnil // as above
	}
	return pki.ParseOffer(pki.Pair{Cert: data[keyCert], Key: data[keyKey]})
}

func holdsOrLacks(o Object, annotation, value string) bool {
	is := o.annotation(annotation)
	return is == "" || is == value
}

// certificate asks cert-manager for a CA: a new key for each, of a kind that the operator reads, with a mark on the Secret that makes it the
// EtcdStorage's. It is renewed at half of its life, as one of the operator's own.
func (w World) certificate(purpose pki.Purpose) any {
	name, r := CAName(w.Storage.Name, purpose), w.Storage.Spec.IssuerRef
	common := ProxyName(w.Storage.Name)
	return map[string]any{
		"apiVersion": certManagerVersion, "kind": KindCertificate, "metadata": w.meta(name),
		"spec": map[string]any{
			"isCA": true, "commonName": common[:min(len(common), 48)] + " " + string(purpose) + " CA", "secretName": name,
			"duration": w.Storage.Spec.SigningCertificateValidity, "renewBefore": metav1.Duration{Duration: w.Storage.Spec.SigningCertificateValidity.Duration / 2}, "usages": []string{"cert sign", "crl sign"},
			"privateKey": map[string]any{"algorithm": "ECDSA", "size": 256, "encoding": "PKCS8", "rotationPolicy": "Always"},
			"secretTemplate": map[string]any{
				"labels": w.labels(), "annotations": map[string]string{v1alpha1.DeliveredAnnotation: Mark(&w.Storage)},
			},
			"issuerRef": map[string]any{"name": r.Name, "kind": r.Kind, "group": r.Group},
		},
	}
}

// issuer adds what is to be done about Certificates.
func (w World) issuer(p *Plan) {
	switch {
	case w.origin() == "":
		if w.recorded() == "" || w.CertManager.State == Forbidden || w.leaveIssuer(p, "spec.issuerRef is gone") != "" || len(p.Steps) > 0 {
			return
		}
		data := map[string][]byte{}
		for purpose, cas := range w.signers() {
			maps.Copy(data, cas.Data(purpose))
		}
		if clients := w.clients(); len(clients) > 0 {
			data[clientsKey] = encodeClients(clients)
		}
		p.add(Apply{w.write(w.secret(SignersName(w.Storage.Name), "Opaque", data), "nothing is left of an issuer")})
	case w.recorded() != w.origin():
		p.add(Apply{w.signersWrite(w.signers(), "CAs come from "+w.origin()+" from now on")})
	case w.CertManager.State == Readable:
		for _, purpose := range purposes() {
			w.ask(p, purpose)
		}
	}
}

// ask adds the write of a Certificate. Where a Secret of somebody else is in its place there must be none, since cert-manager would overwrite that.
func (w World) ask(p *Plan, purpose pki.Purpose) {
	_, occupied := w.object(KindSecret, CAName(w.Storage.Name, purpose))
	_, issued := w.issued(purpose)
	s := Apply{w.write(w.certificate(purpose), "there is none")}
	live, exists := w.object(KindCertificate, s.Ref.Name)
	switch {
	case !exists && occupied && !issued, exists && !live.ownedBy(string(w.Storage.UID)), exists && holds(live.Content, s.Content):
		return
	case exists:
		s.Reason = "it differs from the desired state"
	}
	p.add(s)
}

// leaveIssuer adds the removal of the Certificates, and of their Secrets when those are gone; cert-manager would write them again. It returns what it
// waits for, "" if for nothing.
func (w World) leaveIssuer(p *Plan, why string) (waiting string) {
	if w.recorded() == "" {
		return ""
	}
	if w.CertManager.State == Failed {
		return "the API server does not respond about Certificates: " + w.CertManager.Problem
	}
	for _, purpose := range purposes() {
		ref := Ref{certManagerVersion, KindCertificate, CAName(w.Storage.Name, purpose)}
		if _, ours := w.own(ref.Kind, ref.Name); ours {
			w.remove(p, ref, why)
			waiting = ref.String() + " is still there"
			continue
		}
		if o, ours := w.issued(purpose); ours && o.meta("deletionTimestamp") == "" {
			ref := Ref{"v1", KindSecret, o.meta("name")}
			p.add(Remove{About{ref.String(), why}, ref, o.meta("uid")})
		}
	}
	return waiting
}

// foreignToIssuer are objects of somebody else where a Certificate or its Secret should be. A Secret with our mark and no Certificate is a remainder.
func (w World) foreignToIssuer() (out []string) {
	if w.Storage.Spec.IssuerRef == nil {
		return nil
	}
	for _, purpose := range purposes() {
		name := CAName(w.Storage.Name, purpose)
		o, exists := w.object(KindCertificate, name)
		ours := exists && o.ownedBy(string(w.Storage.UID))
		if exists && !ours {
			out = append(out, KindCertificate+" "+name)
		}
		_, occupied := w.object(KindSecret, name)
		if _, issued := w.issued(purpose); occupied && !issued && !ours {
			out = append(out, KindSecret+" "+name)
		}
	}
	return out
}

// issuerRefusals say why there is no CA from the issuer.
func (w World) issuerRefusals() (out []Refusal) {
	r := w.Storage.Spec.IssuerRef
	if r == nil {
		return nil
	}
	switch w.CertManager.State {
	case Missing:
		return []Refusal{refuse(ReasonNoCertManager, "spec.issuerRef names %s %s, and the API server serves no Certificates of %s: install cert-manager, or drop spec.issuerRef",
			r.Kind, r.Name, certManagerVersion)}
	case Forbidden:
		return []Refusal{refuse(ReasonMissingPermission, "spec.issuerRef names %s %s, and the operator may not read Certificates of cert-manager in namespace %s: apply its Role of this version",
			r.Kind, r.Name, w.Settings.Namespace)}
	case Failed:
		return []Refusal{refuse(ReasonIssuerNotReady, "the API server does not respond about Certificates of cert-manager: %s", w.CertManager.Problem)}
	case Readable:
	}
	for _, purpose := range purposes() {
		_, ours := w.own(KindCertificate, CAName(w.Storage.Name, purpose))
		switch offer, err := w.offer(purpose); {
		case err != nil:
			out = append(out, refuse(ReasonUnusableCA, "Secret %s/%s, where %s %s has put the %s CA: %v; name another issuer in spec.issuerRef",
				w.Settings.Namespace, CAName(w.Storage.Name, purpose), r.Kind, r.Name, purpose, err))
		case offer == nil && ours:
			out = append(out, refuse(ReasonIssuerNotReady, "%s %s has not issued the %s CA: %s", r.Kind, r.Name, purpose, w.said(purpose)))
		}
	}
	return out
}

// overdue reports that the issuer is late with the next CA. That it has given none yet is said otherwise.
func (w World) overdue(purpose pki.Purpose, d pki.Plan) (Refusal, bool) {
	offer, err := w.offer(purpose)
	if !d.Overdue || offer == nil || err != nil {
		return Refusal{}, false
	}
	r := w.Storage.Spec.IssuerRef
	return refuse(ReasonIssuerNotReady, "%s %s has not renewed the %s CA, which expires at %s: %s", r.Kind, r.Name, purpose,
		offer.NotAfter().UTC().Format(time.RFC3339), w.said(purpose)), true
}

// said is what cert-manager says about a Certificate, and where more is to be seen.
func (w World) said(purpose pki.Purpose) string {
	name, r := CAName(w.Storage.Name, purpose), w.Storage.Spec.IssuerRef
	o, _ := w.object(KindCertificate, name)
	says := "cert-manager reports nothing about Certificate " + name + "; check whether it runs"
	if message := cmp.Or(o.condition("Issuing", "False"), o.condition("Ready", "False")); message != "" {
		says = message
	}
	kind := strings.ToLower(r.Kind)
	if r.Group != certManagerGroup {
		kind += "." + r.Group
	}
	where := ""
	if r.Kind == "Issuer" {
		where = " -n " + w.Settings.Namespace
	}
	return fmt.Sprintf("%s; see: kubectl%s describe %s %s; kubectl -n %s describe certificate,certificaterequest -l %s=%s", short300(says), where, kind, r.Name,
		w.Settings.Namespace, v1alpha1.StorageLabel, w.Storage.Name)
}

// short300 leaves room for the commands in a condition.
func short300(text string) string {
	const most = 300
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// annotation is one of an object's annotations.
func (o Object) annotation(key string) string {
	metadata, _ := o.Content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	text, _ := annotations[key].(string)
	return text
}

// condition is the reason and the message of one of an object's conditions, if it has this status.
func (o Object) condition(kind, status string) string {
	is, _ := o.Content["status"].(map[string]any)
	list, _ := is["conditions"].([]any)
	for _, c := range list {
		fields, _ := c.(map[string]any)
		if fields["type"] == kind && fields["status"] == status {
			reason, _ := fields["reason"].(string)
			message, _ := fields["message"].(string)
			return strings.TrimSuffix(reason+": "+message, ": ")
		}
	}
	return ""
}
