// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// certManager plays cert-manager in the namespace of a stage, whenever it is asked to.
type certManager struct {
	*stage
	// denied says why requests are not approved, "" if they are. spoil changes what is put into a Secret.
	denied string
	spoil  func(data map[string][]byte)
}

func certificateKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: operator.KindCertificate}
}

// installCertManager makes the cluster serve Certificates.
func installCertManager(t *testing.T, g *stage) *certManager {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("testdata", "certificates.yaml"))).Or(t)
	var crd apiextensionsv1.CustomResourceDefinition
	must.Do(t, yaml.UnmarshalStrict(text, &crd))
	g.cluster.Serve(t, &crd)
	return &certManager{stage: g}
}

// work looks at all Certificates of the namespace once, as the clock of the stage has it, and issues, renews or refuses.
// It returns how many CAs it issued.
func (c *certManager) work() (issued int) {
	c.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(certificateKind())
	must.Do(c.t, c.admin.List(c.t.Context(), list, client.InNamespace(c.namespace)))
	for _, item := range list.Items {
		if item.GetDeletionTimestamp() != nil || !c.due(&item) {
			continue
		}
		if c.denied != "" {
			c.status(&item, map[string]any{"type": "Issuing", "status": "False", "reason": "Denied",
				"message": "The certificate request has failed to complete and will be retried: " + c.denied})
			continue
		}
		c.issue(&item)
		issued++
	}
	return issued
}

// due reports whether a Certificate has no Secret, one of another issuer, or one of which two thirds of the life are over.
func (c *certManager) due(item *unstructured.Unstructured) bool {
	secret := &corev1.Secret{}
	name, _, _ := unstructured.NestedString(item.Object, "spec", "secretName")
	err := c.admin.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, secret)
	issuer, _, _ := unstructured.NestedString(item.Object, "spec", "issuerRef", "name")
	if err != nil || secret.Annotations["cert-manager.io/issuer-name"] != issuer {
		return true
	}
	renew, err := time.Parse(time.RFC3339, secret.Annotations["test/renew"])
	return err != nil || !c.clock.Now().Before(renew)
}

// issue makes a CA of a new key and puts it where the Certificate says.
func (c *certManager) issue(item *unstructured.Unstructured) {
	c.t.Helper()
	text, _, _ := unstructured.NestedString(item.Object, "spec", "duration")
	life := must.Get(time.ParseDuration(text)).Or(c.t)
	common, _, _ := unstructured.NestedString(item.Object, "spec", "commonName")
	now := c.clock.Now()
	ca := must.Get(pki.NewCA(rand.Reader, now, common, pki.Serving, 1, life)).Or(c.t)
	data := map[string][]byte{corev1.TLSCertKey: ca.CertPEM, corev1.TLSPrivateKeyKey: ca.KeyPEM, "ca.crt": ca.CertPEM}
	if c.spoil != nil {
		c.spoil(data)
	}
	name, _, _ := unstructured.NestedString(item.Object, "spec", "secretName")
	labels, _, _ := unstructured.NestedStringMap(item.Object, "spec", "secretTemplate", "labels")
	annotations, _, _ := unstructured.NestedStringMap(item.Object, "spec", "secretTemplate", "annotations")
	for field, key := range map[string]string{"name": "issuer-name", "kind": "issuer-kind", "group": "issuer-group"} {
		annotations["cert-manager.io/"+key], _, _ = unstructured.NestedString(item.Object, "spec", "issuerRef", field)
	}
	annotations["test/renew"] = now.Add(life * 2 / 3).UTC().Format(time.RFC3339)
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: c.namespace, Name: name}
	switch err := c.admin.Get(c.t.Context(), key, secret); {
	case apierrors.IsNotFound(err):
		c.create(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace, Labels: labels, Annotations: annotations}, Type: corev1.SecretTypeTLS, Data: data,
		})
	case err != nil:
		c.t.Fatal(err)
	default:
		secret.Data = data
		maps.Copy(secret.Annotations, annotations)
		must.Do(c.t, c.admin.Update(c.t.Context(), secret))
	}
	c.status(item, map[string]any{"type": "Ready", "status": "True", "reason": "Ready", "message": "Certificate is up to date and has not expired"})
}

func (c *certManager) status(item *unstructured.Unstructured, condition map[string]any) {
	c.t.Helper()
	condition["lastTransitionTime"] = c.clock.Now().UTC().Format(time.RFC3339)
	patch := must.Get(json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})).Or(c.t)
	must.Do(c.t, c.admin.Status().Patch(c.t.Context(), item, client.RawPatch(types.MergePatchType, patch)))
}

func key(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }

func gvkOf(ref operator.Ref) schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
}
