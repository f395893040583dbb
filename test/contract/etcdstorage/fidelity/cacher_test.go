// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"context"
	"fmt"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/utils/clock"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A cached is a watch cache over an etcd3 store over a tenant of its own.
type cached struct {
	*cacher.CacheDelegator
	client *kubernetes.Client
	config cacher.Config
}

// hasty is a clock on which the cache looks for compactions many times a second instead of every fifteen.
type hasty struct{ clock.RealClock }

func (h hasty) NewTimer(d time.Duration) clock.Timer {
	return hastyTimer{h.RealClock.NewTimer(hurried(d))}
}

type hastyTimer struct{ clock.Timer }

func (t hastyTimer) Reset(d time.Duration) bool { return t.Timer.Reset(hurried(d)) }

func hurried(d time.Duration) time.Duration {
	if d == 15*time.Second {
		return 50 * time.Millisecond
	}
	return d
}

// podAttributes is what the cache selects pods by.
func podAttributes(object runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := object.(*example.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not a pod", object)
	}
	return pod.Labels, fields.Set{
		"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy), "status.phase": string(pod.Status.Phase),
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
	}, nil
}

func newCached(t *testing.T, change ...func(*cacher.Config)) *cached {
	t.Helper()
	c := &cached{client: newClient(t)}
	versioner := storage.APIObjectVersioner{}
	compactor := etcd3.NewCompactor(c.client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	below, err := etcd3.New(c.client, compactor, codec, newPod, newPodList, "/registry", "/pods/", schema.GroupResource{Resource: "pods"},
		identity.NewEncryptCheckTransformer(), etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(codec, versioner), versioner)
	must.Do(t, err)
	t.Cleanup(below.Close)
	c.config = cacher.Config{
		Storage: below, Versioner: versioner, GroupResource: schema.GroupResource{Resource: "pods"}, EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix: "/pods/", KeyFunc: func(o runtime.Object) (string, error) { return storage.NamespaceKeyFunc("/pods/", o) },
		GetAttrsFunc: podAttributes, NewFunc: newPod, NewListFunc: newPodList, Indexers: &cache.Indexers{},
		Codec: serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion), Clock: hasty{},
	}
	for _, f := range change {
		f(&c.config)
	}
	made := must.Get(cacher.NewCacherFromConfig(c.config)).Or(t)
	t.Cleanup(made.Stop)
	must.Do(t, made.Wait(t.Context()))
	c.CacheDelegator = cacher.NewCacheDelegator(made, below)
	t.Cleanup(c.Stop)
	return c
}

// byNode are the indexes that the API server's cache of pods has.
func byNode(config *cacher.Config) {
	config.IndexerFuncs = map[string]storage.IndexerFunc{"spec.nodeName": func(o runtime.Object) string { return o.(*example.Pod).Spec.NodeName }}
	config.Indexers = &cache.Indexers{
		"f:spec.nodeName":      func(o any) ([]string, error) { return []string{o.(*example.Pod).Spec.NodeName}, nil },
		"f:metadata.namespace": func(o any) ([]string, error) { return []string{o.(*example.Pod).Namespace}, nil },
	}
}

func withoutNamespaces(config *cacher.Config) {
	config.KeyFunc = func(o runtime.Object) (string, error) { return storage.NoNamespaceKeyFunc("/pods/", o) }
}

// Create waits until the cache has the object, which some tests take for granted.
func (c *creating) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	if err := c.cached.Create(ctx, key, object, out, ttl); err != nil {
		return err
	}
	testkit.Eventually(c.t, "the cache to have the object", func() string {
		now := newPod()
		if err := c.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, now); err != nil {
			return err.Error()
		}
		if !apiequality.Semantic.DeepEqual(now, out) {
			return "it has another"
		}
		return ""
	})
	return nil
}

type creating struct {
	*cached
	t *testing.T
}

// indexed reports that the test needs the indexes of pods, and whether it has pods outside namespaces.
func indexed(name string) []func(*cacher.Config) {
	switch name {
	case "NamespaceScopedList", "NamespaceScopedWatch":
		return []func(*cacher.Config){byNode}
	case "ClusterScopedWatch":
		return []func(*cacher.Config){byNode, withoutNamespaces}
	default:
		return nil
	}
}

// TestWatchCache runs Kubernetes' tests on the watch cache over the proxy.
func TestWatchCache(t *testing.T) { //nolint:tparallel // some of its parts set feature gates of the whole process
	nothing := func(context.Context, *testing.T, string) {}
	for name, run := range sharedTests() {
		t.Run(name, func(t *testing.T) {
			if !alone(name) {
				t.Parallel()
			}
			c := newCached(t, indexed(name)...)
			if name == "WatchSemantics" || name == "WatchSemanticInitialEventsExtended" || name == "WatchListMatchSingle" {
				run(t.Context(), t, &creating{cached: c, t: t})
				return
			}
			run(t.Context(), t, c)
		})
	}
	for name, run := range map[string]func(context.Context, *testing.T, *cached){
		"Create": func(ctx context.Context, t *testing.T, c *cached) { storagetesting.RunTestCreate(ctx, t, c, nothing) },
		"ListContinuation": func(ctx context.Context, t *testing.T, c *cached) {
			storagetesting.RunTestListContinuation(ctx, t, c, func(*testing.T, uint64, uint64) {})
		},
		"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, c *cached) {
			storagetesting.RunTestListContinuationWithFilter(ctx, t, c, func(*testing.T, uint64, uint64) {})
		},
		"WatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, c *cached) {
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, c, true)
		},
		"WatchBookmarksWithCorrectResourceVersion": func(ctx context.Context, t *testing.T, c *cached) {
			storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(ctx, t, c)
		},
		"CompactRevision": func(ctx context.Context, t *testing.T, c *cached) {
			storagetesting.RunTestCompactRevision(ctx, t, c, increaseRV(c.client.Client), compact(c, c.client.Client))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t.Context(), t, newCached(t))
		})
	}
}

// TestConsistentListsFromTheCache is the one that etcd's own grpc-proxy fails: such a list asks etcd for a progress notification on the watch
// stream, and waits three seconds for it before it falls back to reading etcd.
func TestConsistentListsFromTheCache(t *testing.T) {
	for _, snapshots := range []bool{true, false} {
		t.Run(fmt.Sprintf("ListFromCacheSnapshot=%v", snapshots), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ListFromCacheSnapshot, snapshots)
			t.Run("List", func(t *testing.T) {
				t.Parallel()
				c := newCached(t)
				storagetesting.RunTestList(t.Context(), t, c, compact(c, c.client.Client), true, c.client.Kubernetes.(*storagetesting.KubernetesRecorder))
			})
			t.Run("ConsistentList", func(t *testing.T) {
				t.Parallel()
				c := newCached(t)
				storagetesting.RunTestConsistentList(t.Context(), t, c, increaseRV(c.client.Client), true, true, snapshots)
			})
			t.Run("GetListNonRecursive", func(t *testing.T) {
				t.Parallel()
				c := newCached(t)
				storagetesting.RunTestGetListNonRecursive(t.Context(), t, increaseRV(c.client.Client), c)
			})
		})
	}
}
