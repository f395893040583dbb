// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// broken lists what must hold at every instant of a tenant's life and does not: pairs that are published validate against all bundles that are; a
// prefix has one owner; what is made for a tenant has a finalizer that will undo it; a Deployment has what its pods mount, and the etcd user that they
// log in as.
func (g *stage) broken(name string) []string {
	ctx := context.WithoutCancel(g.t.Context())
	storage := &v1alpha1.EtcdStorage{}
	err := g.admin.Get(ctx, types.NamespacedName{Name: name}, storage)
	if err != nil && !apierrors.IsNotFound(err) {
		return []string{err.Error()}
	}
	out := slices.Concat(g.brokenPairs(ctx, storage, name), g.brokenOwners(ctx, storage))
	return append(out, g.brokenDeployment(ctx, name)...)
}

// find reads an object's data; nil if there is none.
func (g *stage) find(ctx context.Context, kind, namespace, name string) (map[string][]byte, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if kind == operator.KindSecret {
		o := &corev1.Secret{}
		err := g.admin.Get(ctx, key, o)
		return o.Data, err
	}
	o := &corev1.ConfigMap{}
	err := g.admin.Get(ctx, key, o)
	out := map[string][]byte{}
	for key, value := range o.Data {
		out[key] = []byte(value)
	}
	return out, err
}

func (g *stage) brokenPairs(ctx context.Context, storage *v1alpha1.EtcdStorage, name string) (out []string) {
	type where struct{ kind, namespace, name, key string }
	check := func(bundles, pairs []where, options x509.VerifyOptions) {
		for _, b := range bundles {
			bundle, err := g.find(ctx, b.kind, b.namespace, b.name)
			if apierrors.IsNotFound(err) || err == nil && len(bundle[b.key]) == 0 {
				continue
			}
			for _, p := range pairs {
				pair, err := g.find(ctx, p.kind, p.namespace, p.name)
				if apierrors.IsNotFound(err) || err == nil && len(pair["tls.crt"]) == 0 {
					continue
				}
				if err := validates(g.clock.Now(), pair, bundle[b.key], options); err != nil {
					out = append(out, fmt.Sprintf("the pair in %s/%s against the bundle in %s/%s at %s: %v", p.namespace, p.name, b.namespace, b.name, g.clock.Now(), err))
				}
			}
		}
	}
	var trust, clients []where
	for _, d := range storage.Spec.CACertConfigMaps {
		trust = append(trust, where{operator.KindConfigMap, d.Namespace, d.Name, v1alpha1.ServingCAKey})
	}
	for _, d := range storage.Spec.ClientCertSecrets {
		clients = append(clients, where{operator.KindSecret, d.Namespace, d.Name, ""})
	}
	check(trust, []where{{operator.KindSecret, g.namespace, operator.ServingName(name), ""}}, x509.VerifyOptions{
		DNSName: operator.ProxyName(name) + "." + g.namespace + ".svc", KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	check([]where{{operator.KindConfigMap, g.namespace, operator.ClientCAName(name), v1alpha1.ClientCAKey}}, clients,
		x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return out
}

// validates checks a pair as the peer of its owner does.
func validates(now time.Time, pair map[string][]byte, bundle []byte, options x509.VerifyOptions) error {
	parsed, err := tls.X509KeyPair(pair["tls.crt"], pair["tls.key"])
	if err != nil {
		return err
	}
	options.Roots, options.CurrentTime = x509.NewCertPool(), now
	options.Roots.AppendCertsFromPEM(bundle)
	_, err = parsed.Leaf.Verify(options)
	return err
}

// ownersNow are the records of all tenants in the core.
func (g *stage) ownersNow(ctx context.Context) (out []operator.Owner, err error) {
	answer, err := g.root.Get(ctx, operator.OwnersPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range answer.Kvs {
		var o operator.Owner
		if err := json.Unmarshal(kv.Value, &o); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func (g *stage) brokenOwners(ctx context.Context, storage *v1alpha1.EtcdStorage) (out []string) {
	owners, err := g.ownersNow(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for i, a := range owners {
		for _, b := range owners[i+1:] {
			mine, errA := tenancy.ParsePrefix(a.Prefix)
			theirs, errB := tenancy.ParsePrefix(b.Prefix)
			if errA != nil || errB != nil || mine.Overlaps(theirs) || a.LeaseSpace == b.LeaseSpace {
				out = append(out, fmt.Sprintf("two owners: %+v and %+v", a, b))
			}
		}
		if a.UID == string(storage.UID) && !a.Released && !slices.Contains(storage.Finalizers, v1alpha1.Finalizer) {
			out = append(out, fmt.Sprintf("%+v is claimed, and nothing would release it", a))
		}
	}
	return out
}

func (g *stage) brokenDeployment(ctx context.Context, name string) (out []string) {
	d, err := g.cluster.Client.AppsV1().Deployments(g.namespace).Get(ctx, operator.ProxyName(name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return []string{err.Error()}
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		var err error
		switch {
		case v.Secret != nil:
			_, err = g.find(ctx, operator.KindSecret, g.namespace, v.Secret.SecretName)
		case v.ConfigMap != nil:
			_, err = g.find(ctx, operator.KindConfigMap, g.namespace, v.ConfigMap.Name)
		}
		if err != nil {
			out = append(out, "its pods would not start: "+err.Error())
		}
	}
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if user, ok := strings.CutPrefix(arg, "--core-username="); ok {
			if got, err := g.root.UserGet(ctx, user); err != nil || !slices.Contains(got.Roles, operator.EtcdRole(name)) {
				out = append(out, fmt.Sprintf("its pods cannot log in as %s: %v %v", user, got, err))
			}
		}
	}
	return out
}
