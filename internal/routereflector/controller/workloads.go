// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Workloads counts the pods on each node that belong to no DaemonSet and are not static. Of a pod it keeps no more than its UID and its node, so
// that a cluster of 15,000 nodes with 30 pods each takes tens of megabytes, not hundreds.
type Workloads struct {
	client kubernetes.Interface
	needed chan struct{}

	mu     sync.Mutex           // guards what follows
	pods   map[types.UID]string // to the node's name
	names  map[string]string    // one string for each node, however many pods share it
	counts map[string]int
	wanted bool
	synced bool
}

// NewWorkloads makes a counter. It counts once it is started and somebody has asked.
func NewWorkloads(c kubernetes.Interface) *Workloads {
	return &Workloads{
		client: c, needed: make(chan struct{}), pods: map[types.UID]string{}, names: map[string]string{}, counts: map[string]int{},
	}
}

// Counts are the numbers by name of the node, and whether all pods have been read. The first call begins to watch them: where no topology asks,
// no pod is ever read.
func (w *Workloads) Counts() (counts map[string]int, synced bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.wanted {
		w.wanted = true
		close(w.needed)
	}
	return maps.Clone(w.counts), w.synced
}

// Start watches pods until the context ends, as soon as somebody asks. It implements manager.Runnable.
func (w *Workloads) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-w.needed:
	}
	selector := fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	pods := cache.NewFilteredListWatchFromClient(w.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.FieldSelector = selector.String() })
	reflector := cache.NewReflectorWithOptions(pods, &corev1.Pod{}, w, cache.ReflectorOptions{Name: "workloads"})
	reflector.WatchListPageSize = podsPerPage
	reflector.RunWithContext(ctx)
	return nil
}

// podsPerPage bounds how many whole pods are in memory at once while they are listed.
const podsPerPage = 500

// NeedLeaderElection implements manager.LeaderElectionRunnable: a replica that waits counts as well, to know when it takes over.
func (w *Workloads) NeedLeaderElection() bool { return false }

func (w *Workloads) set(p *corev1.Pod) {
	if _, counted := w.pods[p.UID]; counted || !routereflector.IsWorkload(p) {
		return
	}
	name, known := w.names[p.Spec.NodeName]
	if !known {
		name = p.Spec.NodeName
		w.names[name] = name
	}
	w.pods[p.UID] = name
	w.counts[name]++
}

// Add implements cache.ReflectorStore.
func (w *Workloads) Add(object any) error {
	if p, ok := object.(*corev1.Pod); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.set(p)
	}
	return nil
}

// Update implements cache.ReflectorStore. A pod's node and owner do not change.
func (w *Workloads) Update(object any) error { return w.Add(object) }

// Delete implements cache.ReflectorStore.
func (w *Workloads) Delete(object any) error {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	name, counted := w.pods[p.UID]
	if !counted {
		return nil
	}
	delete(w.pods, p.UID)
	if w.counts[name]--; w.counts[name] == 0 {
		delete(w.counts, name)
		delete(w.names, name)
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *Workloads) Replace(objects []any, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods, w.names, w.counts = map[types.UID]string{}, map[string]string{}, map[string]int{}
	w.synced = true
	for _, object := range objects {
		if p, ok := object.(*corev1.Pod); ok {
			w.set(p)
		}
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *Workloads) Resync() error { return nil }
