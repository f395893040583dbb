// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// certificate is the first one of PEM data.
func certificate(t fatal, data []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("no PEM block in %q", data)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return cert
}

// admits reports whether a proxy with what the operator has written lets a client in: by the bundle of CAs, and by the list of those that
// are revoked.
func (w World) admits(t fatal, cert *x509.Certificate) bool {
	t.Helper()
	o, _ := w.own(KindConfigMap, ClientCAName(w.Storage.Name))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(o.configData(v1alpha1.ClientCAKey))
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: w.Now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return false
	}
	list := strings.Split(string(o.configData(v1alpha1.RevokedClientsKey)), "\n")
	names := []string{"cn:" + cert.Subject.CommonName}
	for _, u := range cert.URIs {
		names = append(names, "uri:"+u.String())
	}
	return !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
}

// without is the world after somebody has deleted an object.
func (w World) without(kind, name string) World {
	w.Objects = slices.DeleteFunc(slices.Clone(w.Objects), func(o Object) bool { return o.Kind == kind && o.meta("name") == name })
	return w
}

// name returns which of the tenant's Secrets the spec names from now on.
func (w World) name(secrets []int) World {
	all := slices.Concat(w.Destinations, w.Revoked)
	w.Storage.Spec.ClientCertSecrets, w.Destinations, w.Revoked = nil, nil, nil
	for _, n := range secrets {
		w.Storage.Spec.ClientCertSecrets = append(w.Storage.Spec.ClientCertSecrets, v1alpha1.Destination{Namespace: "tenant", Name: fmt.Sprintf("client-%d", n)})
	}
	for _, d := range all {
		switch at := (v1alpha1.Destination{Namespace: d.Namespace, Name: d.Name}); {
		case d.Kind != KindSecret || slices.Contains(w.Storage.Spec.ClientCertSecrets, at):
			w.Destinations = append(w.Destinations, d)
		default:
			w.Revoked = append(w.Revoked, d)
		}
	}
	return w
}

// TestRevocation names Secrets, and names them no more, and again, in any order, as time goes by and processes die. At each rest exactly the
// certificates in Secrets that are named are let in, those that were copied out of them while they were named, and none that was ever in a
// Secret before it was named again; Secrets that are not named are empty; and the record forgets clients whose CA is gone.
func TestRevocation(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		const secrets = 3
		w := world("a").delivering(1, secrets)
		w.Storage.Spec.ClientCertSecrets = nil
		copies := map[string][]*x509.Certificate{} // by Secret, since it was named last
		var before []*x509.Certificate             // all others that there ever were
		look := func(was, _ World, s Step) {
			if s, ok := s.(DeliverClient); ok && !slices.ContainsFunc(was.recordedClients(), func(c issuedClient) bool { return c.RevokedAt == 0 && slices.Equal(c.leaf("a").URIs, s.Leaf.URIs) }) {
				t.Fatalf("%s: nobody would know of it", s)
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "times") {
			var named []int
			for n := range secrets {
				if rapid.Bool().Draw(t, "named") {
					named = append(named, n)
				}
			}
			w = w.name(named)
			for name, certs := range copies {
				if !slices.ContainsFunc(w.Storage.Spec.ClientCertSecrets, func(d v1alpha1.Destination) bool { return d.Name == name }) {
					before = append(before, certs...)
					delete(copies, name)
				}
			}
			if rapid.IntRange(0, 5).Draw(t, "the Secret with the CAs is deleted") == 0 {
				w = w.without(KindSecret, SignersName("a"))
			}
			w.Now = w.Now.Add(time.Duration(rapid.IntRange(0, 4000).Draw(t, "hours")) * time.Hour)
			w, _ = carryOut(t, w, rapid.IntRange(1, 9).Draw(t, "steps before death"), look)
			for _, d := range w.Destinations {
				if d.Kind == KindSecret {
					copies[d.Name] = append(copies[d.Name], certificate(t, d.Data[keyCert]))
				}
			}
			for name, certs := range copies {
				if last := certs[len(certs)-1]; !w.admits(t, last) {
					t.Fatalf("the certificate in %s is refused: %v", name, last.URIs)
				}
			}
			for _, cert := range before {
				if w.admits(t, cert) {
					t.Fatalf("%v is let in, and its Secret is named no more, or was named again", cert.URIs)
				}
			}
			for _, d := range w.Revoked {
				if !d.empty() {
					t.Fatalf("%s still has what was issued", d)
				}
			}
			oldest := w.signers()[pki.Client][0].Generation
			for _, c := range w.recordedClients() {
				if c.RevokedAt != 0 && c.RevokedAt < oldest {
					t.Fatalf("%+v is remembered, and the oldest CA is %d", c, oldest)
				}
			}
		}
	})
}

// Certificates of versions that gave clients no number are known by their common name, unless that is a client's that is let in.
func TestRevocationOfClientsWithoutNumber(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, world("a").delivering(0, 2), 9, nil)
	w, _ = carryOut(t, w.name([]int{1}), 9, nil)
	const first, name = "uri:urn:mooring:etcd-client:tenant/client-0/1\n", "cn:client-tenant-client-0\n"
	if list := w.revokedList(); !strings.Contains(list, "\n"+first+name+"# uri:urn:mooring:etcd-client:tenant/client-1/1\n") {
		t.Error(list)
	}
	w, _ = carryOut(t, w.name([]int{0, 1}), 9, nil)
	if list := w.revokedList(); !strings.Contains(list, first) || strings.Contains(list, name) {
		t.Error(list)
	}
	if got := w.client(Destination{Namespace: "tenant", Name: "client-0"}).Number; got != 2 {
		t.Errorf("the Secret that is named again has the client %d", got)
	}
}

// TestTheSecretWithTheCAsIsDeleted shows that nobody is cut off by it: the certificates in use stay, bundles trust their CAs and those that
// sign from now on, an API server with the bundle of its start reaches proxies until their certificate is due, and the loss is told.
func TestTheSecretWithTheCAsIsDeleted(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, world("a").delivering(1, 1), 9, nil)
	serving := func() *x509.Certificate {
		o, _ := w.own(KindSecret, ServingName("a"))
		return certificate(t, o.secretData()[keyCert])
	}
	bundle := func() []byte {
		i := slices.IndexFunc(w.Destinations, func(d Destination) bool { return d.Kind == KindConfigMap })
		return w.Destinations[i].Data[v1alpha1.ServingCAKey]
	}
	atStart, was, client := bundle(), serving(), w.Destinations[1].Data[keyCert]
	w, done := carryOut(t, w.without(KindSecret, SignersName("a")), 1, nil)
	if first, ok := done[0].(Recover); !ok || !strings.Contains(first.Reason, "its keys are lost") {
		t.Errorf("%v", kinds(done))
	}
	if !serving().Equal(was) || !slices.Equal(w.Destinations[1].Data[keyCert], client) || !w.admits(t, certificate(t, client)) {
		t.Error("a certificate that is in use was replaced, or is refused")
	}
	if !strings.HasPrefix(string(bundle()), string(atStart)) || len(bundle()) == len(atStart) {
		t.Error("the bundle has lost the CA of before, or has not got the next one")
	}
	for _, c := range MakePlan(w).Certificates {
		if !c.Plan.Rotating || c.Plan.Issuer != 2 {
			t.Errorf("%s: rotating %t, CA %d signs", c.Purpose, c.Plan.Rotating, c.Plan.Issuer)
		}
	}
	w.Now = was.NotAfter.Add(-w.Storage.Spec.ServingCertificateValidity.Duration / 4)
	if w, _ = carryOut(t, w, 9, nil); serving().Equal(was) {
		t.Error("it was not renewed in its time")
	}
}
