// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
)

// issuing lets a tenant's CAs come from an issuer.
func (w World) issuing() World {
	w.Storage.Spec.IssuerRef = &v1alpha1.IssuerRef{Name: "x", Kind: "ClusterIssuer", Group: "cert-manager.io"}
	w.CertManager.State = Readable
	return w
}

// begunIssuing is the world when the Certificates have just been written and nothing is issued.
func begunIssuing(t *testing.T) World {
	t.Helper()
	w := world("a").delivering(1, 1).issuing()
	for range 20 {
		for _, s := range MakePlan(w).Steps {
			w = w.After(t, s)
		}
	}
	return w
}

// The order of a new tenant whose CAs come from an issuer: what is asked for is noted first, and there is no Deployment whose pods could not start.
func TestTheOrderOfANewTenantWithAnIssuer(t *testing.T) {
	t.Parallel()
	_, done := carryOut(t, world("a").delivering(1, 1).issuing(), 99, nil)
	want := `Hold EtcdStorage/a
Claim /.etcd.mooring.dev/owners/a
Bind EtcdStorage/a
Apply Secret/a-signers
Apply Certificate/a-serving-ca
Apply Certificate/a-client-ca
TakeCA Secret/a-signers
DeliverBundle ConfigMap tenant/ca-0
Apply Secret/a-signers
IssueServing Secret/a-server-cert
TakeCA Secret/a-signers
Apply ConfigMap/a-ca-cert
Apply Secret/a-signers
DeliverClient Secret tenant/client-0
Apply Service/etcd-a
Apply PodDisruptionBudget/etcd-a
Apply NetworkPolicy/etcd-a
Apply Deployment/etcd-a`
	if got := strings.Join(kinds(done), "\n"); got != want {
		t.Errorf("%s", got)
	}
	if w := begunIssuing(t); len(MakePlan(w).Steps) > 0 || w.HasProxies() {
		t.Errorf("%v", kinds(w.steps()))
	}
}

func (w World) steps() []Step { return MakePlan(w).Steps }

// What is asked of cert-manager is a contract with it, and with those who approve requests.
func TestTheCertificateOfAnIssuer(t *testing.T) {
	t.Parallel()
	o, _ := begunIssuing(t).own(KindCertificate, "a-serving-ca")
	spec, _ := o.Content["spec"].(map[string]any)
	want := "map[commonName:etcd-a serving CA duration:26280h0m0s isCA:true issuerRef:map[group:cert-manager.io kind:ClusterIssuer name:x] " +
		"privateKey:map[algorithm:ECDSA encoding:PKCS8 rotationPolicy:Always size:256] renewBefore:13140h0m0s secretName:a-serving-ca " +
		"secretTemplate:map[annotations:map[etcd.mooring.dev/delivered-by:a/uid-a] labels:map[app.kubernetes.io/instance:a app.kubernetes.io/managed-by:etcd-storage-operator " +
		"app.kubernetes.io/name:etcd-storage-proxy app.kubernetes.io/part-of:mooring etcd.mooring.dev/storage:a]] usages:[cert sign crl sign]]"
	if got := fmt.Sprint(spec); got != want || o.Content["apiVersion"] != "cert-manager.io/v1" {
		t.Errorf("%s", got)
	}
	w := world(strings.Repeat("x", 58)).issuing()
	if name := w.certificate(pki.Serving).(map[string]any)["spec"].(map[string]any)["commonName"].(string); len(name) > 64 {
		t.Errorf("a common name of %d bytes: %s", len(name), name)
	}
	if got := fmt.Sprintln(IssuerRefs("a")); got != "[Certificate/a-serving-ca Secret/a-serving-ca Certificate/a-client-ca Secret/a-client-ca]\n" {
		t.Error(got)
	}
}

// says lets cert-manager say something about a Certificate.
func (w World) says(kind, status, reason, message string) World {
	w.Objects = slices.Clone(w.Objects)
	for i, o := range w.Objects {
		if o.Kind == KindCertificate {
			c := map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": kind, "status": status, "reason": reason, "message": message}}}}
			c["metadata"], c["spec"] = o.Content["metadata"], o.Content["spec"]
			w.Objects[i].Content = c
		}
	}
	return w
}

// Why there is no CA from an issuer, in words with the next step in them.
func TestIssuerRefusals(t *testing.T) {
	t.Parallel()
	const see = "; see: kubectl describe clusterissuer x; kubectl -n storage describe certificate,certificaterequest -l etcd.mooring.dev/storage=a"
	for want, change := range map[string]func(World) World{
		"CertManagerMissing spec.issuerRef names ClusterIssuer x, and the API server serves no Certificates of cert-manager.io/v1: install cert-manager, or drop spec.issuerRef": func(w World) World {
			w.CertManager.State = Missing
			return w
		},
		"MissingPermission spec.issuerRef names ClusterIssuer x, and the operator may not read Certificates of cert-manager in namespace storage: apply its Role of this version": func(w World) World {
			w.CertManager.State = Forbidden
			return w
		},
		"IssuerNotReady the API server does not respond about Certificates of cert-manager: boom": func(w World) World {
			w.CertManager = CertManager{State: Failed, Problem: "boom"}
			return w
		},
		"IssuerNotReady ClusterIssuer x has not issued the client CA: cert-manager reports nothing about Certificate a-client-ca; check whether it runs" + see: func(w World) World { return w },
		"IssuerNotReady ClusterIssuer x has not issued the serving CA: DoesNotExist: Issuing certificate as Secret does not exist" + see: func(w World) World {
			return w.says("Ready", "False", "DoesNotExist", "Issuing certificate as Secret does not exist")
		},
		"IssuerNotReady ClusterIssuer x has not issued the serving CA: policy.cert-manager.io: The certificate request has failed to complete and will be retried: no policy approved it" + see: func(w World) World {
			return w.says("Issuing", "False", "policy.cert-manager.io", "The certificate request has failed to complete and will be retried: no policy approved it")
		},
		"IssuerNotReady Issuer y has not issued the serving CA: cert-manager reports nothing about Certificate a-serving-ca; check whether it runs; " +
			"see: kubectl -n storage describe issuer y; kubectl -n storage describe certificate,certificaterequest -l etcd.mooring.dev/storage=a": func(w World) World {
			w.Storage.Spec.IssuerRef = &v1alpha1.IssuerRef{Name: "y", Kind: "Issuer", Group: "cert-manager.io"}
			return w
		},
		"IssuerNotReady Pool y has not issued the serving CA: cert-manager reports nothing about Certificate a-serving-ca; check whether it runs; " +
			"see: kubectl describe pool.issuers.example y; kubectl -n storage describe certificate,certificaterequest -l etcd.mooring.dev/storage=a": func(w World) World {
			w.Storage.Spec.IssuerRef = &v1alpha1.IssuerRef{Name: "y", Kind: "Pool", Group: "issuers.example"}
			return w
		},
		"UnusableCA Secret storage/a-client-ca, where ClusterIssuer x has put the client CA: its certificate cannot be used: it holds something else than certificates in PEM; " +
			"name another issuer in spec.issuerRef": func(w World) World {
			w.Objects = append(w.Objects, Object{KindSecret, map[string]any{
				"metadata": map[string]any{"name": "a-client-ca", "annotations": map[string]any{v1alpha1.DeliveredAnnotation: Mark(&w.Storage)}}, "data": map[string]any{keyCert: "eA=="},
			}})
			return w
		},
		"ForeignObject namespace storage has Certificate a-serving-ca, Secret a-client-ca, not of this EtcdStorage; delete or rename them, or choose another name": func(World) World {
			w := world("a").issuing()
			w.Objects = []Object{foreign(Ref{certManagerVersion, KindCertificate, "a-serving-ca"}), foreign(Ref{"v1", KindSecret, "a-client-ca"})}
			return w
		},
	} {
		var got []string
		for _, r := range MakePlan(change(begunIssuing(t))).Refusals {
			got = append(got, string(r.Reason)+" "+r.Message)
		}
		if !slices.Contains(got, want) {
			t.Errorf("want %s\ngot  %s", want, strings.Join(got, "\n     "))
		}
	}
}

// A Secret of somebody else is not given to cert-manager, which would overwrite it; the other CA is asked for.
func TestACertificateIsNotPutOverASecret(t *testing.T) {
	t.Parallel()
	w := world("a").issuing()
	w.Objects = []Object{foreign(Ref{"v1", KindSecret, "a-serving-ca"})}
	w, done := carryOut(t, w, 99, nil)
	if got := kinds(done); slices.Contains(got, "Apply Certificate/a-serving-ca") || !slices.Contains(got, "Apply Certificate/a-client-ca") || w.HasProxies() {
		t.Errorf("%v", got)
	}
}

// While cert-manager is away, or late, what is there goes on and is renewed; that it is late is said when the next CA should sign.
func TestAnIssuerThatIsLate(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, world("a").delivering(1, 1).issuing(), 99, nil)
	signing := w.Storage.Spec.SigningCertificateValidity.Duration
	w.CertManager.State = Failed // the model's cert-manager renews nothing then
	for range 9 {
		w.Now = w.Now.Add(signing / 12)
		w, _ = carryOut(t, w, 99, nil)
	}
	w.CertManager.State = Readable
	if p := MakePlan(w); len(p.Refusals) > 0 {
		t.Errorf("%v", p.Refusals)
	}
	w.Now = w.Now.Add(signing / 10)
	want := "IssuerNotReady ClusterIssuer x has not renewed the serving CA, which expires at 2029-11-20T03:00:00Z: Failed: out of order"
	refusals := MakePlan(w.says("Issuing", "False", "Failed", "out of order")).Refusals
	if len(refusals) != 2 || !strings.HasPrefix(string(refusals[0].Reason)+" "+refusals[0].Message, want) {
		t.Errorf("%v", refusals)
	}
}

// When no issuer is named any more, Certificates and Secrets go, the operator makes CAs itself, and those of the issuer are trusted until
// they sign. The same when the EtcdStorage goes. A Certificate that does not end holds the deletion back.
func TestAnIssuerIsLeft(t *testing.T) {
	t.Parallel()
	served, _ := carryOut(t, world("a").delivering(1, 1).issuing(), 99, nil)
	left := []string{"Remove Certificate/a-serving-ca", "Remove Certificate/a-client-ca", "Remove Secret/a-serving-ca", "Remove Secret/a-client-ca"}
	w := served
	w.Storage.Spec.IssuerRef = nil
	w, done := carryOut(t, w, 99, nil)
	var removed []string
	for _, s := range kinds(done) {
		if strings.HasPrefix(s, "Remove") {
			removed = append(removed, s)
		}
	}
	signers := w.signers()[pki.Serving]
	if !slices.Equal(removed, left) || w.IssuerConcerned() || len(signers) != 2 || signers[0].Origin != "ClusterIssuer.cert-manager.io/x" || signers[1].Origin != "" {
		t.Errorf("%v, %d CAs", removed, len(signers))
	}
	_, done = carryOut(t, exited(served), 99, nil)
	if got := kinds(done); !containsAll(got, left) || slices.Index(got, left[1]) > slices.Index(got, left[2]) {
		t.Errorf("%v", got)
	}
	stuck := exited(served)
	for range 30 {
		for _, s := range MakePlan(stuck).Steps {
			if field[Ref](s, "Ref").Kind != KindCertificate {
				stuck = stuck.After(t, s)
			}
		}
	}
	for i, o := range stuck.Objects {
		if o.Kind == KindCertificate {
			stuck.Objects[i].Content["metadata"].(map[string]any)["deletionTimestamp"] = epoch().Format(time.RFC3339)
		}
	}
	if p := MakePlan(stuck); p.Waiting != "Certificate/a-client-ca is still there" || len(p.Steps) > 0 {
		t.Errorf("%q %v", p.Waiting, kinds(p.Steps))
	}
	stuck.CertManager = CertManager{State: Failed, Problem: "boom"}
	if p := MakePlan(stuck); p.Waiting != "the API server does not respond about Certificates: boom" {
		t.Errorf("%q", p.Waiting)
	}
}

func containsAll(list, want []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(list, w) })
}
