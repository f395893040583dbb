// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// namingWorld is a quiet world whose datastore may name pods.
type namingWorld struct {
	quietWorld
	LeftoverStore
	names bool
}

func (n *namingWorld) Sweep(context.Context, int64) (calico.Sweep, error) {
	return calico.Sweep{NamesPods: n.names}, nil
}

func (n *namingWorld) PodHoldings(context.Context, int64, func(namespace, name string) bool) (calico.PodHoldings, error) {
	return calico.PodHoldings{}, nil
}

// podServer is as much of an API server as lists the metadata of many pods, page by page, and counts what it is asked.
type podServer struct {
	pods  int
	calls atomic.Int64
	wrong atomic.Value // the first request that asks for more than metadata, or for more than a page
	// peak is the largest heap at any call.
	peak atomic.Uint64
}

func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.calls.Add(1)
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	s.peak.Store(max(s.peak.Load(), memory.HeapInuse))
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil || limit > podMetadataPerPage || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		s.wrong.CompareAndSwap(nil, r.Method+" "+r.URL.String()+", "+r.Header.Get("Accept"))
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	first, _ := strconv.Atoi(r.FormValue("continue"))
	page := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for i := first; i < min(first+limit, s.pods); i++ {
		name := fmt.Sprintf("web-%06d-5d8f6c7b9d-x2x4z", i)
		page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("3f1c5a52-0b1e-4c8e-9a44-" + name), Labels: map[string]string{"app": "web", "pod-template-hash": "5d8f6c7b9d"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d8f6c7b9d", UID: "6c1c5a52-0b1e-4c8e-9a44-5a1a0f0f0f0f"}},
		}})
	}
	if first+limit < s.pods {
		page.Continue = strconv.Itoa(first + limit)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page)
}

// reader is a client of the server that asks nobody which kinds there are.
func (s *podServer) reader(tb testing.TB) client.Reader {
	tb.Helper()
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	reader := must.Get(client.New(&rest.Config{Host: server.URL, QPS: -1}, client.Options{Scheme: apiruntime.NewScheme(), Mapper: mapper})).Or(tb)
	return reader
}

// sweepPodsOf lets a reconciler sweep a datastore that names pods or does not.
func sweepPodsOf(tb testing.TB, s *podServer, names bool) *Reconciler {
	tb.Helper()
	cluster := NewKubernetesCluster(s.reader(tb), clock.RealClock{})
	w := &namingWorld{names: names}
	r := &Reconciler{
		Datastore: w, Cluster: w, LeftoverStore: w, LeftoverCluster: cluster, Config: nodesync.DefaultConfig(), Clock: clock.RealClock{}, Log: logr.Discard(),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	must.Get(r.pass(tb.Context())).Or(tb)
	if r.podsFailed {
		tb.Fatalf("the pods could not be listed: %v", s.wrong.Load())
	}
	return r
}

// A sweep lists pods' metadata alone, 2,000 in one call; between sweeps, and where nothing in the datastore names a pod, it lists none.
func TestCallsOfASweep(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pods  int
		names bool
		calls int64
	}{{pods: 0, names: true, calls: 1}, {pods: 2*podMetadataPerPage + 1, names: true, calls: 3}, {pods: 2*podMetadataPerPage + 1, names: false, calls: 0}} {
		s := &podServer{pods: test.pods}
		r := sweepPodsOf(t, s, test.names)
		for range 3 {
			must.Get(r.pass(t.Context())).Or(t)
		}
		if got := s.calls.Load(); got != test.calls {
			t.Errorf("%+v: %d calls for a sweep and three rounds after it", test, got)
		}
	}
}

// What the list of pods of a sweep costs with 15,000 machines of twenty pods.
func BenchmarkSweepOfPods(b *testing.B) {
	for b.Loop() {
		s := &podServer{pods: 300_000}
		sweepPodsOf(b, s, true)
		b.ReportMetric(float64(s.calls.Load()), "calls/op")
		b.ReportMetric(float64(s.peak.Load())/(1<<20), "peak-MiB")
	}
}
