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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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

// UID implements Cluster.
func (k *KubernetesCluster) UID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := k.reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, namespace); err != nil {
		return "", err
	}
	return string(namespace.UID), nil
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
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := k.reader.List(ctx, list); err != nil {
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
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := k.reader.Get(ctx, client.ObjectKey{Name: name}, NodeMetadata())
	switch {
	case err == nil:
		return nodesync.Lookup{Node: name, Verdict: nodesync.VerdictAlive}
	case notFoundNode(err, name):
		return nodesync.Lookup{Node: name, Verdict: nodesync.VerdictGone}
	default:
		return nodesync.Lookup{Node: name, Verdict: nodesync.VerdictUnknown, Detail: err.Error()}
	}
}

// notFoundNode tells "there is no such Node" from other 404s, such as a proxy's page or a missing API group.
func notFoundNode(err error, name string) bool {
	status, ok := err.(apierrors.APIStatus)
	// client-go makes up a Status for an answer that is none, such as a proxy's page, and marks it by this cause.
	if !ok || !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "nodes" && details.Name == name
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
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	selector := fields.Set{field: value, "status.phase": string(corev1.PodRunning)}.AsSelector()
	if err := k.reader.List(ctx, list, client.MatchingFieldsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	pods := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		pods = append(pods, item.Namespace+"/"+item.Name)
	}
	slices.Sort(pods)
	return pods, nil
}
