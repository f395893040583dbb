// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"context"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// increaseRV writes something that is not a pod.
func increaseRV(client *clientv3.Client) storagetesting.IncreaseRVFunc {
	return func(ctx context.Context, t *testing.T) int64 {
		resp, err := client.KV.Put(ctx, "increaseRV", "ok")
		if err != nil {
			t.Fatalf("writing a key: %v", err)
		}
		return resp.Header.Revision
	}
}

// compact forgets the tenant's history up to a revision, as the API server's compactor does, and waits until the store knows.
func compact(s storage.Interface, client *clientv3.Client) storagetesting.Compaction {
	return func(ctx context.Context, t *testing.T, resourceVersion string) {
		rv, err := storage.APIObjectVersioner{}.ParseResourceVersion(resourceVersion)
		must.Do(t, err)
		version := int64(0)
		if version, _, _, err = etcd3.Compact(ctx, client, version, int64(rv)); err != nil {
			_, _, _, err = etcd3.Compact(ctx, client, version, int64(rv)) // the first call only learns the version
		}
		must.Do(t, err)
		if !utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot) {
			return
		}
		deadline := time.Now().Add(time.Minute)
		for s.CompactRevision() != int64(rv) {
			if time.Now().After(deadline) {
				t.Fatalf("the store knows the compact revision %d and not %d", s.CompactRevision(), rv)
			}
			<-time.After(20 * time.Millisecond)
		}
	}
}

// storedAsWritten checks what is in etcd itself.
func storedAsWritten(client *clientv3.Client) storagetesting.KeyValidation {
	return func(ctx context.Context, t *testing.T, key string) {
		resp, err := client.KV.Get(ctx, key)
		if err != nil || len(resp.Kvs) == 0 {
			t.Fatalf("reading %s: %v, %v", key, resp, err)
		}
		object := must.Get(runtime.Decode(codec, resp.Kvs[0].Value[len(valuePrefix):])).Or(t)
		if pod := object.(*example.Pod); pod.ResourceVersion != "" {
			t.Errorf("the stored object has the resource version %q", pod.ResourceVersion)
		}
	}
}

// fewReads checks how many objects were decoded and how many pages were asked for: the pages double as long as they are not full.
func fewReads(s *store) storagetesting.CallsValidation {
	return func(t *testing.T, pageSize, objects uint64) {
		if reads := s.reads(); reads != objects {
			t.Errorf("%d objects were read instead of %d", reads, objects)
		}
		calls := uint64(1)
		for limit, sum := pageSize, uint64(1); pageSize != 0 && sum < objects; calls++ {
			limit = min(2*limit, 10_000)
			sum += limit
		}
		kv := s.client.KV.(*storagetesting.KVRecorder)
		if got := kv.GetReadsAndReset() + kv.GetStreamReadsAndReset(); got != calls { // a list without pages is one stream
			t.Fatalf("%d reads of etcd instead of %d", got, calls)
		}
	}
}

// sharedTests are those that run on the store and on the watch cache alike.
func sharedTests() map[string]func(context.Context, *testing.T, storage.Interface) {
	return map[string]func(context.Context, *testing.T, storage.Interface){
		"CreateWithTTL":                              storagetesting.RunTestCreateWithTTL,
		"CreateWithKeyExist":                         storagetesting.RunTestCreateWithKeyExist,
		"Get":                                        storagetesting.RunTestGet,
		"UnconditionalDelete":                        storagetesting.RunTestUnconditionalDelete,
		"ConditionalDelete":                          storagetesting.RunTestConditionalDelete,
		"DeleteWithSuggestion":                       storagetesting.RunTestDeleteWithSuggestion,
		"DeleteWithSuggestionAndConflict":            storagetesting.RunTestDeleteWithSuggestionAndConflict,
		"DeleteWithConflict":                         storagetesting.RunTestDeleteWithConflict,
		"DeleteWithSuggestionOfDeletedObject":        storagetesting.RunTestDeleteWithSuggestionOfDeletedObject,
		"ValidateDeletionWithSuggestion":             storagetesting.RunTestValidateDeletionWithSuggestion,
		"ValidateDeletionWithOnlySuggestionValid":    storagetesting.RunTestValidateDeletionWithOnlySuggestionValid,
		"PreconditionalDeleteWithSuggestion":         storagetesting.RunTestPreconditionalDeleteWithSuggestion,
		"PreconditionalDeleteWithOnlySuggestionPass": storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass,
		"ListPaging":                                 storagetesting.RunTestListPaging,
		"GetListRecursivePrefix":                     storagetesting.RunTestGetListRecursivePrefix,
		"NamespaceScopedList":                        storagetesting.RunTestNamespaceScopedList,
		"KeySchema":                                  storagetesting.RunTestKeySchema,
		"GuaranteedUpdateWithTTL":                    storagetesting.RunTestGuaranteedUpdateWithTTL,
		"GuaranteedUpdateWithConflict":               storagetesting.RunTestGuaranteedUpdateWithConflict,
		"GuaranteedUpdateWithSuggestionAndConflict":  storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict,
		"Watch":                                  storagetesting.RunTestWatch,
		"DeleteTriggerWatch":                     storagetesting.RunTestDeleteTriggerWatch,
		"WatchFromNonZero":                       storagetesting.RunTestWatchFromNonZero,
		"DelayedWatchDelivery":                   storagetesting.RunTestDelayedWatchDelivery,
		"WatcherTimeout":                         storagetesting.RunTestWatcherTimeout,
		"WatchDeleteEventObjectHaveLatestRV":     storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV,
		"WatchInitializationSignal":              storagetesting.RunTestWatchInitializationSignal,
		"ClusterScopedWatch":                     storagetesting.RunTestClusterScopedWatch,
		"NamespaceScopedWatch":                   storagetesting.RunTestNamespaceScopedWatch,
		"SendInitialEventsBackwardCompatibility": storagetesting.RunSendInitialEventsBackwardCompatibility,
		"WatchSemantics":                         storagetesting.RunWatchSemantics,
		"WatchSemanticInitialEventsExtended":     storagetesting.RunWatchSemanticInitialEventsExtended,
		"WatchListMatchSingle":                   storagetesting.RunWatchListMatchSingle,
	}
}

// storeTests are those that run on the store alone, or differently there.
func storeTests() map[string]func(context.Context, *testing.T, *store) {
	return map[string]func(context.Context, *testing.T, *store){
		"Create": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestCreate(ctx, t, s, storedAsWritten(s.client.Client))
		},
		"List": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestList(ctx, t, s, compact(s, s.client.Client), false, s.client.Kubernetes.(*storagetesting.KubernetesRecorder))
		},
		"ConsistentList": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestConsistentList(ctx, t, s, increaseRV(s.client.Client), false, true, false)
		},
		"GetListNonRecursive": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestGetListNonRecursive(ctx, t, increaseRV(s.client.Client), s)
		},
		"CompactRevision": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestCompactRevision(ctx, t, s, increaseRV(s.client.Client), compact(s, s.client.Client))
		},
		"ListContinuation": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestListContinuation(ctx, t, s, fewReads(s))
		},
		"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestListContinuationWithFilter(ctx, t, s, fewReads(s))
		},
		"ListInconsistentContinuation": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestListInconsistentContinuation(ctx, t, s, compact(s, s.client.Client))
		},
		"ListResourceVersionMatch": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestListResourceVersionMatch(ctx, t, s)
		},
		"GuaranteedUpdate": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestGuaranteedUpdate(ctx, t, s, storedAsWritten(s.client.Client))
		},
		"GuaranteedUpdateChecksStoredData": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestGuaranteedUpdateChecksStoredData(ctx, t, s)
		},
		"TransformationFailure": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestTransformationFailure(ctx, t, s)
		},
		"Stats": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestStats(ctx, t, s, codec, s.transformer, false)
		},
		"WatchFromZero": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestWatchFromZero(ctx, t, s, compact(s, s.client.Client))
		},
		"WatchError":         func(ctx context.Context, t *testing.T, s *store) { storagetesting.RunTestWatchError(ctx, t, s) },
		"WatchContextCancel": func(ctx context.Context, t *testing.T, s *store) { storagetesting.RunTestWatchContextCancel(ctx, t, s) },
		"WatchErrorIsBlockingFurtherEvents": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunWatchErrorIsBlockingFurtherEvents(ctx, t, s)
		},
		"WatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, s *store) {
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, false)
		},
	}
}

// alone reports that a test cannot run alongside others: it sets a feature gate of the whole process, or reads within the second that a lease lasts.
func alone(name string) bool {
	switch name {
	case "Get", "WatchSemantics", "WatchSemanticInitialEventsExtended", "WatchListMatchSingle", "SendInitialEventsBackwardCompatibility":
		return true
	default:
		return false
	}
}

// TestStore runs Kubernetes' tests of storage on an etcd3 store over the proxy.
func TestStore(t *testing.T) { //nolint:tparallel // some of its parts set feature gates of the whole process
	for name, run := range sharedTests() {
		t.Run(name, func(t *testing.T) {
			if !alone(name) {
				t.Parallel()
			}
			run(t.Context(), t, newStore(t))
		})
	}
	for name, run := range storeTests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t.Context(), t, newStore(t))
		})
	}
}
