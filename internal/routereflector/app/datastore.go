// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/manager"
	"github.com/mooring-dev/mooring/internal/routereflector/controller"
)

// datastore is Calico's datastore on its way to the reconciler.
type datastore struct {
	scheme    *runtime.Scheme
	cache     cache.Options
	informers []client.Object
	// ready is for the readiness check.
	ready func(ctx context.Context) (bool, error)
	// serve makes what the reconciler uses.
	serve func(mgr *manager.Manager) (controller.Datastore, error)
	// told is what the first line of the log says of it: keys and values.
	told  []any
	close func() error
}

func openDatastore(ctx context.Context, log logr.Logger, c calico.Config, config *rest.Config) (*datastore, error) {
	if c.Kind == calico.EtcdV3 {
		return openEtcd(ctx, log, c.Etcd, config)
	}
	return openKubernetes(ctx, config)
}

func openKubernetes(ctx context.Context, config *rest.Config) (*datastore, error) {
	bgp, err := calico.OpenBGP(ctx, config)
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	bgp.AddToScheme(scheme)
	return &datastore{
		scheme: scheme, cache: controller.CacheOptions(), informers: controller.Informers(), ready: bgp.DatastoreReady,
		serve: func(mgr *manager.Manager) (controller.Datastore, error) {
			return &controller.KubernetesDatastore{
				BGPKubernetes: bgp, Reader: mgr.GetCache(), Live: mgr.GetAPIReader(), Client: mgr.GetClient(),
			}, nil
		},
		told:  []any{"datastore", calico.Kubernetes, "calicoGroup", bgp.Group().String()},
		close: func() error { return nil },
	}, nil
}

// openEtcd connects. An etcd that does not respond yet is waited for (readiness tells), but one that can never be talked to, since the
// certificates do not fit, ends the program.
func openEtcd(ctx context.Context, log logr.Logger, c calico.EtcdConfig, config *rest.Config) (*datastore, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	cluster, err := clusterUID(ctx, config)
	if err != nil {
		return nil, err
	}
	etcd, err := calico.OpenEtcd(c)
	if err != nil {
		return nil, err
	}
	if err := etcd.Ping(ctx); err != nil {
		if errors.Is(err, calico.ErrUntrusted) {
			return nil, errors.Join(err, etcd.Close())
		}
		log.Error(err, "Calico's datastore does not respond, will try again")
	}
	bgp := calico.NewBGPEtcd(etcd, cluster, clock.RealClock{})
	return &datastore{
		scheme: scheme, cache: controller.EtcdCacheOptions(), informers: controller.EtcdInformers(), ready: bgp.DatastoreReady,
		serve: func(mgr *manager.Manager) (controller.Datastore, error) {
			return &controller.EtcdDatastore{BGPEtcd: bgp, Clock: clock.RealClock{}}, mgr.Add(bgp)
		},
		told: []any{"datastore", calico.EtcdV3}, close: etcd.Close,
	}, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

// clusterUID is the UID of the namespace kube-system, by which clusters are told apart.
func clusterUID(ctx context.Context, config *rest.Config) (string, error) {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("making a client for the namespace kube-system: %w", err)
	}
	namespace, err := c.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the namespace kube-system, whose UID says which cluster Calico's etcd belongs to: %w", err)
	}
	return string(namespace.UID), nil
}
