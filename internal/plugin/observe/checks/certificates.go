// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"encoding/base64"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/metadata"

	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/tenants"
)

const certificatesLong = `Find certificates that have expired or expire soon: within 14 days, or within the last sixth of their validity if that is shorter, since
automatic renewal happens after two thirds of it; those of EtcdStorages within the last tenth, since etcd-storage-operator renews them after two thirds or five sixths.

Only public data is read: the CA bundles of webhooks and aggregated API servers, the expiry of the certificates of EtcdStorages, the CA bundles
that their tenants and the core have in ConfigMaps, and the client CAs of the API server. Secrets are only counted; with --secrets
the tls.crt of those of type kubernetes.io/tls is read. The API server also sends their keys, which are neither read nor printed.`

// authenticationConfigMap is where an API server publishes its CAs of clients
// (k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust).
const authenticationConfigMap = "extension-apiserver-authentication"

// lookAtCertificates reads what is public, and Secrets if it is asked to.
func lookAtCertificates(ctx context.Context, x *Examination) []finding.Finding {
	l := &certificateLook{Examination: x}
	l.webhooks(ctx)
	l.apiServices(ctx)
	l.tenants(ctx)
	l.configMaps(ctx)
	if x.Secrets {
		l.secrets(ctx)
	} else {
		l.count(ctx)
	}
	l.evidence.Now = x.cluster.ServerTime(x.clock.Now())
	return finding.Merge(
		doctor.Certificates(l.evidence), tenants.Certificates(tenants.Evidence{Now: l.evidence.Now, Storages: l.storages}),
	)
}

// certificateLook gathers certificates.
type certificateLook struct {
	*Examination
	evidence doctor.CertificateEvidence
	storages []etcdv1alpha1.EtcdStorage
	// maps are the ConfigMaps with certificates, by what says that they are there.
	maps []etcdv1alpha1.Destination
}

func (l *certificateLook) unread(side string, err error) { unread(&l.evidence.Unread, side, err) }

// unread adds a side that could not be read.
func unread(to *[]finding.Side, side string, err error) {
	if err != nil {
		*to = append(*to, finding.Side{Name: side, Problem: observe.OneLine(err)})
	}
}

func (l *certificateLook) trusts(where string, bundle []byte) {
	if len(bundle) > 0 { // none means the CAs of the machine, or that somebody is yet to write it
		l.evidence.Bundles = append(l.evidence.Bundles, doctor.Bundle{Where: where, PEM: bundle})
	}
}

// webhooks are those of admission.
func (l *certificateLook) webhooks(ctx context.Context) {
	api := l.cluster.Typed.AdmissionregistrationV1()
	validating, err := observe.All[admissionregistrationv1.ValidatingWebhookConfiguration](
		ctx, "", api.ValidatingWebhookConfigurations().List,
	)
	l.unread("ValidatingWebhookConfigurations", err)
	for _, c := range validating {
		for _, w := range c.Webhooks {
			l.trusts(fmt.Sprintf("ValidatingWebhookConfiguration %s, webhook %s", c.Name, w.Name), w.ClientConfig.CABundle)
		}
	}
	mutating, err := observe.All[admissionregistrationv1.MutatingWebhookConfiguration](
		ctx, "", api.MutatingWebhookConfigurations().List,
	)
	l.unread("MutatingWebhookConfigurations", err)
	for _, c := range mutating {
		for _, w := range c.Webhooks {
			l.trusts(fmt.Sprintf("MutatingWebhookConfiguration %s, webhook %s", c.Name, w.Name), w.ClientConfig.CABundle)
		}
	}
}

// apiServices are those of aggregated API servers.
func (l *certificateLook) apiServices(ctx context.Context) {
	all, _, err := l.cluster.List(ctx, observe.APIServices())
	l.unread("APIServices", err)
	for _, o := range all {
		text, _, _ := unstructured.NestedString(o.Object, "spec", "caBundle") // another type there is not what the API server would take
		if bundle, err := base64.StdEncoding.DecodeString(text); err == nil {
			l.trusts("APIService "+o.GetName(), bundle)
		}
	}
}

// tenants are EtcdStorages, whose status says when what ends.
func (l *certificateLook) tenants(ctx context.Context) {
	var unread []finding.Side
	l.storages, _, unread = l.cluster.Storages(ctx)
	l.evidence.Unread = append(l.evidence.Unread, unread...)
	for i := range l.storages {
		l.maps = append(l.maps, l.storages[i].Spec.CACertConfigMaps...)
	}
}

// configMaps are those that are known to hold authorities: tenants', the core's, and the API server's own.
func (l *certificateLook) configMaps(ctx context.Context) {
	ours, _, _ := l.workloads(ctx)
	l.maps = append(l.maps, doctor.CoreAuthorities(ours)...)
	l.maps = append(l.maps, etcdv1alpha1.Destination{Namespace: metav1.NamespaceSystem, Name: authenticationConfigMap})
	seen := map[etcdv1alpha1.Destination]bool{}
	for _, d := range l.maps {
		if seen[d] {
			continue
		}
		seen[d] = true
		where := "ConfigMap " + d.Namespace + "/" + d.Name
		m, err := l.cluster.Typed.CoreV1().ConfigMaps(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // what should make it says so
		}
		if err != nil {
			l.unread(where, err)
			continue
		}
		// Under these keys our components and the API server keep authorities.
		for _, key := range []string{"serving-ca.crt", "ca.crt", "client-ca-file", "requestheader-client-ca-file"} {
			l.trusts(where+", key "+key, []byte(m.Data[key]))
		}
	}
}

// tlsSecrets chooses Secrets of type kubernetes.io/tls.
func tlsSecrets() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("type", string(corev1.SecretTypeTLS)).String()}
}

// secrets reads the public part of Secrets.
func (l *certificateLook) secrets(ctx context.Context) {
	all, err := observe.All[corev1.Secret](
		ctx, "", l.cluster.Typed.CoreV1().Secrets(metav1.NamespaceAll).List, tlsSecrets(),
	)
	l.unread("Secrets", err)
	for _, s := range all {
		l.evidence.Bundles = append(l.evidence.Bundles, doctor.Bundle{Where: "Secret " + s.Namespace + "/" + s.Name, PEM: s.Data[corev1.TLSCertKey], Leaf: true})
	}
}

// count counts Secrets by their metadata alone.
func (l *certificateLook) count(ctx context.Context) {
	client, err := metadata.NewForConfig(l.cluster.Config)
	if err == nil {
		var all []*metav1.PartialObjectMetadata
		all, err = observe.All[metav1.PartialObjectMetadata](
			ctx, "", client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).List, tlsSecrets(),
		)
		l.evidence.Closed = len(all)
	}
	l.evidence.ClosedProblem = observe.OneLine(err)
}
