// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
)

// What is read but not watched: tenants' objects, which the operator may read by their names alone, and the core's credentials, which are
// not its own. A glance at the metadata of each, once a minute, starts a check of those EtcdStorages of which something changed; without it
// that would wait for the next resync.

// versions are those of the objects that an EtcdStorage depends on, by kind, namespace and name.
type versions map[string]string

// glance looks at what no informer tells of; seen are the versions of the glance before.
func (r *Reconciler) glance(ctx context.Context, seen map[types.UID]versions) map[types.UID]versions {
	r.reportExpired(ctx) // first: what follows takes long with many tenants
	if err := r.watchCore(ctx); err != nil && ctx.Err() == nil {
		r.Log.V(1).Info("The core's revision was not compared", "reason", err.Error())
	}
	seen, differ := r.glanceOnce(ctx, seen)
	r.requeue(differ...)
	return seen
}

// credentialsKey is where the versions of the credentials are kept, which all EtcdStorages share.
const credentialsKey types.UID = ""

// glanceOnce compares with the versions that were seen last, and returns the current ones, and the EtcdStorages for which one differs. An object that
// cannot be read counts as unchanged.
func (r *Reconciler) glanceOnce(ctx context.Context, seen map[types.UID]versions) (now map[types.UID]versions, differ []string) {
	list, err := r.storages(ctx)
	if err != nil {
		return seen, nil
	}
	shared := versions{}
	for _, o := range r.credentialObjects() {
		r.version(ctx, shared, seen[credentialsKey], o.kind, o.at)
	}
	if !maps.Equal(shared, seen[credentialsKey]) {
		r.forgetReadings()
	}
	now = map[types.UID]versions{credentialsKey: shared}
	for _, item := range list.Items {
		storage, err := typed(&item)
		if err != nil {
			continue
		}
		was := seen[item.GetUID()]
		is := maps.Clone(shared)
		for _, at := range storage.Spec.CACertConfigMaps {
			r.version(ctx, is, was, operator.KindConfigMap, at)
		}
		for _, at := range storage.Spec.ClientCertSecrets {
			r.version(ctx, is, was, operator.KindSecret, at)
		}
		now[item.GetUID()] = is
		if was == nil || maps.Equal(was, is) {
			continue
		}
		r.Log.V(1).Info("An object that is not watched has changed", "etcdStorage", item.GetName(), "objects", differing(was, is))
		differ = append(differ, item.GetName())
	}
	return now, differ
}

func differing(was, is versions) string {
	var out []string
	for name, version := range is {
		if was[name] != version {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// named is an object by its kind and name.
type named struct {
	kind string
	at   v1alpha1.Destination
}

// credentialObjects are those with the credentials for the core.
func (r *Reconciler) credentialObjects() []named {
	own := func(kind, name string) named {
		return named{kind, v1alpha1.Destination{Namespace: r.Settings.Namespace, Name: name}}
	}
	out := []named{own(operator.KindConfigMap, r.Settings.CAConfigMap), own(operator.KindSecret, r.Settings.CertsSecret)}
	if r.AdminSecret != "" {
		out = append(out, own(operator.KindSecret, r.AdminSecret))
	}
	return out
}

// version adds the version of an object: its UID and resourceVersion, and "" if there is none.
func (r *Reconciler) version(ctx context.Context, into, was versions, kind string, at v1alpha1.Destination) {
	name := kind + " " + at.Namespace + "/" + at.Name
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: at.Namespace, Name: at.Name}, o); {
	case err == nil:
		into[name] = string(o.UID) + "/" + o.ResourceVersion
	case apierrors.IsNotFound(err):
		into[name] = ""
	default:
		into[name] = was[name]
	}
}
