// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// readTimeout bounds each live read of the API server.
const readTimeout = 15 * time.Second

// NodeMetadata is the kind whose informer tells KubernetesCluster of Nodes that come and go: nothing but metadata is kept in memory.
func NodeMetadata() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}

// KubernetesCluster is the Cluster behind a real API server.
type KubernetesCluster struct {
	reader client.Reader
	clock  clock.PassiveClock
	wake   chan struct{}

	mu        sync.Mutex          // guards all below
	synced    func() bool         // nil until Follow
	sightings map[string]sighting // by Node name
}

// sighting is a deletion that was watched.
type sighting struct {
	uid string
	at  time.Time
}

// sightingLife is how long a sighting is kept that no Calico Node needs: longer than any list or watch lags behind another.
const sightingLife = time.Hour

// longestSighting is how long any sighting is kept. Its absence has long been remembered by then.
const longestSighting = 24 * time.Hour

// NewKubernetesCluster reads live through reader, which must not be a cache (manager.GetAPIReader).
func NewKubernetesCluster(reader client.Reader, clock clock.PassiveClock) *KubernetesCluster {
	return &KubernetesCluster{reader: reader, clock: clock, wake: make(chan struct{}, 1), sightings: map[string]sighting{}}
}

// Wake receives a value when a Node has appeared or gone since the last one was received.
func (k *KubernetesCluster) Wake() <-chan struct{} { return k.wake }

// Informer is the part of an informer that Follow needs.
type Informer interface {
	AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error)
}

// Follow watches Nodes through an informer of NodeMetadata. All replicas follow, so that a new leader knows what its upstream project saw.
func (k *KubernetesCluster) Follow(informer Informer) error {
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    k.appeared,
		DeleteFunc: k.went,
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.synced = registration.HasSynced
	return nil
}

func (k *KubernetesCluster) appeared(obj any) {
	node, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	k.mu.Lock()
	delete(k.sightings, node.Name)
	k.mu.Unlock()
	k.rouse()
}

// went records a deletion that was watched. A tombstone is no such thing: it says that the watch broke and that the Node was missing from
// the next list, which is just what a wrong or partial list looks like.
func (k *KubernetesCluster) went(obj any) {
	if node, ok := obj.(*metav1.PartialObjectMetadata); ok {
		k.mu.Lock()
		for name, s := range k.sightings {
			if k.clock.Since(s.at) > longestSighting {
				delete(k.sightings, name) // in a replica that does not lead nobody else forgets
			}
		}
		k.sightings[node.Name] = sighting{uid: string(node.UID), at: k.clock.Now()}
		k.mu.Unlock()
	}
	k.rouse()
}

func (k *KubernetesCluster) rouse() {
	select {
	case k.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// get reads one object live.
func (k *KubernetesCluster) get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string, object client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	object.GetObjectKind().SetGroupVersionKind(kind)
	return k.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
}

// listLive reads one answer of the API server's to a list of a core kind.
func listLive(ctx context.Context, reader client.Reader, kind string, list client.ObjectList, options ...client.ListOption) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return reader.List(ctx, list, options...)
}

// eachPage reads a list of a core kind page by page, each of so many objects at most.
func eachPage[L any, P interface {
	*L
	client.ObjectList
}](ctx context.Context, reader client.Reader, kind string, size int64, visit func(P), options ...client.ListOption) error {
	for token := ""; ; {
		page := P(new(L))
		if err := listLive(ctx, reader, kind, page, append(options, client.Limit(size), client.Continue(token))...); err != nil {
			return err
		}
		visit(page)
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}

// UID implements Cluster.
func (k *KubernetesCluster) UID(ctx context.Context) (string, error) {
	namespace := &metav1.PartialObjectMetadata{}
	err := k.get(ctx, corev1.SchemeGroupVersion.WithKind("Namespace"), "", metav1.NamespaceSystem, namespace)
	return string(namespace.UID), err
}

// Synced implements Cluster.
func (k *KubernetesCluster) Synced() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.synced != nil && k.synced()
}

// Sightings implements Cluster.
func (k *KubernetesCluster) Sightings() []nodesync.Sighting {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]nodesync.Sighting, 0, len(k.sightings))
	for name, s := range k.sightings {
		out = append(out, nodesync.Sighting{Node: name, UID: s.uid})
	}
	slices.SortFunc(out, func(a, b nodesync.Sighting) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// ForgetSightings implements Cluster.
func (k *KubernetesCluster) ForgetSightings(needed map[string]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, s := range k.sightings {
		if !needed[name] && k.clock.Since(s.at) > sightingLife {
			delete(k.sightings, name)
		}
	}
}

// ListNodes implements Cluster. Without a resourceVersion the API server answers with the most recent state, by a quorum read
// (Kubernetes API concepts, "Resource versions").
func (k *KubernetesCluster) ListNodes(ctx context.Context) ([]nodesync.KubernetesNode, error) {
	list := &metav1.PartialObjectMetadataList{}
	if err := listLive(ctx, k.reader, "NodeList", list); err != nil {
		return nil, err
	}
	nodes := make([]nodesync.KubernetesNode, 0, len(list.Items))
	for _, n := range list.Items {
		nodes = append(nodes, nodesync.KubernetesNode{Name: n.Name, UID: string(n.UID)})
	}
	return nodes, nil
}

// LookUp implements Cluster. Only the API server's own NotFound for this Node counts as gone.
func (k *KubernetesCluster) LookUp(ctx context.Context, name string) nodesync.Lookup {
	err := k.get(ctx, corev1.SchemeGroupVersion.WithKind("Node"), "", name, NodeMetadata())
	switch {
	case err == nil:
		return nodesync.Lookup{Node: name, Verdict: nodesync.VerdictAlive}
	case isNotFound(err, "nodes", name):
		return nodesync.Lookup{Node: name, Verdict: nodesync.VerdictGone}
	default:
		return nodesync.Lookup{Node: name, Verdict: nodesync.VerdictUnknown, Detail: err.Error()}
	}
}

// RunningPods implements Cluster.
func (k *KubernetesCluster) RunningPods(ctx context.Context, name string) (nodesync.RunningPods, error) {
	pods, err := k.runningPods(ctx, "spec.nodeName", name)
	if err != nil || len(pods) == 0 {
		return nodesync.RunningPods{Node: name}, err
	}
	return nodesync.RunningPods{Node: name, Count: len(pods), Example: pods[0]}, nil
}

// runningPods returns the pods in phase Running whose field has the value, as "namespace/name", sorted.
func (k *KubernetesCluster) runningPods(ctx context.Context, field, value string) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	if err := listLive(ctx, k.reader, "PodList", list, client.MatchingFields{field: value, "status.phase": string(corev1.PodRunning)}); err != nil {
		return nil, err
	}
	pods := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		pods = append(pods, item.Namespace+"/"+item.Name)
	}
	slices.Sort(pods)
	return pods, nil
}
