// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Preflight reads one object of each kind that will be watched. An informer that may not read would be silent about it for minutes; the error
// says in a sentence what is missing: the CRD, a right, or the API server.
func Preflight(ctx context.Context, config *rest.Config, scheme *runtime.Scheme, kinds []client.Object) error {
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return unreachable(config, err)
	}
	for _, kind := range kinds {
		gvk, err := live.GroupVersionKindFor(kind)
		if err != nil {
			return err
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		switch err := live.List(ctx, list, client.Limit(1)); {
		case err == nil:
		case meta.IsNoMatchError(err) && gvk.Group == v1alpha1.GroupVersion.Group:
			return fmt.Errorf("the API server does not serve RouteReflectorTopology: apply config/crd first")
		case meta.IsNoMatchError(err):
			return fmt.Errorf("the API server does not serve %s of %s", gvk.Kind, gvk.GroupVersion())
		case apierrors.IsForbidden(err):
			return fmt.Errorf("a right is missing, apply the operator's ClusterRole: %w", err)
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
