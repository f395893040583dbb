// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// NewScheme knows what is read and written as its kind. EtcdStorages and the objects in the operator's namespace are read as they are, so that one
// of them that cannot be understood harms no other.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

// CacheOptions narrows what is watched: EtcdStorages, and of the operator's namespace what has its label.
func CacheOptions(namespace string) (cache.Options, error) {
	ours, err := labels.Parse(v1alpha1.StorageLabel)
	if err != nil {
		return cache.Options{}, fmt.Errorf("making a selector: %w", err)
	}
	out := cache.Options{ByObject: map[client.Object]cache.ByObject{}}
	for _, kind := range OwnKinds() {
		out.ByObject[kind] = cache.ByObject{Label: ours, Namespaces: map[string]cache.Config{namespace: {}}}
	}
	return out, nil
}

// Informers are the kinds that readiness waits for.
func Informers() []client.Object {
	return append([]client.Object{blank(StorageKind(), "", "")}, OwnKinds()...)
}

// Identity finds out who the operator is: the UID of the cluster, and its own name.
func Identity(ctx context.Context, live client.Client) (cluster, user string, err error) {
	system := &corev1.Namespace{}
	if err := live.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", "", fmt.Errorf("reading the UID of namespace %s, which identifies the cluster: %w", metav1.NamespaceSystem, err)
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := live.Create(ctx, review); err != nil {
		return "", "", fmt.Errorf("reading the program's own user from the API server: %w", err)
	}
	return string(system.UID), review.Status.UserInfo.Username, nil
}

// Preflight reads one object of each kind that will be watched. An informer that may not read would be silent about it for minutes; the error
// says in a sentence what is missing: the CRD, a right, or the API server.
func Preflight(ctx context.Context, config *rest.Config, live client.Client, namespace string) error {
	for _, kind := range Informers() {
		gvk := kind.GetObjectKind().GroupVersionKind()
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		options := []client.ListOption{client.Limit(1)}
		if gvk != StorageKind() {
			options = append(options, client.InNamespace(namespace))
		}
		switch err := live.List(ctx, list, options...); {
		case err == nil:
		case meta.IsNoMatchError(err) && gvk == StorageKind():
			return errors.New("the API server does not serve EtcdStorage: apply config/crd first")
		case meta.IsNoMatchError(err):
			return fmt.Errorf("the API server does not serve %s of %s", gvk.Kind, gvk.GroupVersion())
		case apierrors.IsForbidden(err):
			return fmt.Errorf("a right is missing, apply the operator's ClusterRole and its Role in namespace %s: %w", namespace, err)
		default:
			return unreachable(config, err)
		}
	}
	return nil
}

// unreachable names the API server, and leaves out the request that happened to be the first.
func unreachable(config *rest.Config, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return fmt.Errorf("asking API server %s: %w", config.Host, err)
}
