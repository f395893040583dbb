// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apiModel is a Kubernetes API server in memory: Nodes with UIDs, pods, the namespace kube-system, one ConfigMap, and watches on Nodes.
type apiModel struct {
	uid   string            // of kube-system
	nodes map[string]string // UIDs by name
	pods  map[string]modelPod
	// kubelets are by Node.
	kubelets map[string]*modelKubelet
	now      func() time.Time
	// configMap is the controller's, nil for none.
	configMap *unstructured.Unstructured
	version   int
	watches   []*watchModel
}

// modelPod is a pod. handle is under which IPAM gave it its address.
type modelPod struct {
	node, phase, address, handle, endpoint string
}

func newAPIModel(uid string) *apiModel {
	return &apiModel{uid: uid, nodes: map[string]string{}, pods: map[string]modelPod{}, kubelets: map[string]*modelKubelet{}}
}

// clone copies all but the watches, whose ends are elsewhere.
func (a *apiModel) clone() *apiModel {
	c := newAPIModel(a.uid)
	c.nodes, c.pods, c.version = maps.Clone(a.nodes), maps.Clone(a.pods), a.version
	for name, kubelet := range a.kubelets {
		copied := *kubelet
		c.kubelets[name] = &copied
	}
	if a.configMap != nil {
		c.configMap = a.configMap.DeepCopy()
	}
	return c
}

func (a *apiModel) createNode(name string) {
	a.version++
	a.nodes[name] = fmt.Sprintf("uid-%s-%d", name, a.version)
	a.kubelets[name] = &modelKubelet{ready: true, readySince: a.now()}
	a.tell(nodeEvent{name: name, uid: a.nodes[name]})
}

func (a *apiModel) deleteNode(name string) {
	uid := a.nodes[name]
	delete(a.nodes, name)
	delete(a.kubelets, name)
	a.tell(nodeEvent{name: name, uid: uid, gone: true})
}

func (a *apiModel) tell(e nodeEvent) {
	for _, w := range a.watches {
		if !w.broken {
			w.pending = append(w.pending, e)
		}
	}
}

// watchModel is one process's watch on Nodes and the store that its informer fills: events come late, and are lost when it breaks. Then the
// Nodes are listed again, and what is missing from that list becomes a tombstone (client-go, tools/cache: DeltaFIFO.Replace).
type watchModel struct {
	api     *apiModel
	known   map[string]string
	pending []nodeEvent
	broken  bool
	synced  bool
	// witnessed is told of each deletion that comes through, rather than being found out later.
	witnessed func(name string)
}

type nodeEvent struct {
	name, uid string
	gone      bool
}

// deliver hands on as many of the pending events, into the real handlers.
func (w *watchModel) deliver(k *KubernetesCluster, n int) {
	if w.broken || !w.synced {
		w.relist(k)
		return
	}
	n = min(n, len(w.pending))
	for _, e := range w.pending[:n] {
		if e.gone {
			delete(w.known, e.name)
			w.witnessed(e.name)
			k.went(partialNode(e.name, e.uid))
			continue
		}
		w.known[e.name] = e.uid
		k.appeared(partialNode(e.name, e.uid))
	}
	w.pending = slices.Clone(w.pending[n:])
}

// relist is a watch that begins again.
func (w *watchModel) relist(k *KubernetesCluster) {
	w.pending, w.broken, w.synced = nil, false, true
	for _, name := range slices.Sorted(maps.Keys(w.known)) {
		if w.api.nodes[name] == "" {
			k.went(toolscache.DeletedFinalStateUnknown{Key: name, Obj: partialNode(name, w.known[name])})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.api.nodes)) {
		if w.known[name] == "" {
			k.appeared(partialNode(name, w.api.nodes[name]))
		}
	}
	w.known = maps.Clone(w.api.nodes)
}

func (w *watchModel) breaks() { w.pending, w.broken = nil, true }

func partialNode(name, uid string) *metav1.PartialObjectMetadata {
	node := NodeMetadata()
	node.Name, node.UID = name, types.UID(uid)
	return node
}

// answer is how the API server or the way to it spoils an answer.
type answer string

const (
	truthful  answer = "truthful"
	timesOut  answer = "times out"
	forbidden answer = "forbidden"
	other404  answer = "404 of something else" // a proxy's page
	emptyList answer = "an empty list"
	partly    answer = "a part of the list"
)

// clientModel reads and writes an apiModel as client.Reader and client.Client do, for the parts that the controller uses.
type clientModel struct {
	client.Client
	api *apiModel
	// answers is asked how each read is answered.
	answers func() answer
}

var errTimeout = errors.New("context deadline exceeded while awaiting headers")

func (c *clientModel) failure(resource, name string) error {
	of := schema.GroupResource{Resource: resource}
	switch c.answers() {
	case timesOut:
		return errTimeout
	case forbidden:
		return apierrors.NewForbidden(of, name, errors.New("no such permission"))
	case other404:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource",
			Details: &metav1.StatusDetails{Kind: resource, Name: name, Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse}}},
		}}
	default:
		return nil
	}
}

func (c *clientModel) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	resource := map[string]string{"Node": "nodes", "Namespace": "namespaces", "ConfigMap": "configmaps", "Pod": "pods", "Lease": "leases"}[kind]
	if err := c.failure(resource, key.Name); err != nil {
		return err
	}
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: resource}, key.Name)
	// client-go fills in the plural as the kind of the details (api/errors: NewNotFound).
	switch kind {
	case "Namespace":
		object.SetUID(types.UID(c.api.uid))
	case "Node":
		if c.api.nodes[key.Name] == "" {
			return notFound
		}
		object.SetName(key.Name)
		object.SetUID(types.UID(c.api.nodes[key.Name]))
		if whole, ok := object.(*unstructured.Unstructured); ok {
			return setReady(whole, *c.api.kubelets[key.Name])
		}
	case "Lease":
		kubelet := c.api.kubelets[key.Name]
		if kubelet == nil {
			return notFound
		}
		renewed := kubelet.lease(c.api.now()).UTC().Format(metav1.RFC3339Micro)
		return unstructured.SetNestedField(object.(*unstructured.Unstructured).Object, renewed, "spec", "renewTime")
	case "Pod":
		pod, there := c.api.pods[key.Name]
		if !there {
			return notFound
		}
		whole := object.(*unstructured.Unstructured).Object
		if err := unstructured.SetNestedField(whole, pod.node, "spec", "nodeName"); err != nil {
			return err
		}
		return unstructured.SetNestedField(whole, pod.phase, "status", "phase")
	case "ConfigMap":
		if c.api.configMap == nil {
			return notFound
		}
		c.api.configMap.DeepCopyInto(object.(*unstructured.Unstructured))
	default:
		return fmt.Errorf("the model has no %q", kind)
	}
	return nil
}

func (c *clientModel) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	kind := list.GetObjectKind().GroupVersionKind().Kind
	resource := map[string]string{"NodeList": "nodes", "PodList": "pods"}[kind]
	if err := c.failure(resource, ""); err != nil {
		return err
	}
	var items []runtime.Object
	var o client.ListOptions
	for _, option := range options {
		option.ApplyToList(&o)
	}
	switch kind {
	case "NodeList":
		for _, name := range slices.Sorted(maps.Keys(c.api.nodes)) {
			items = append(items, partialNode(name, c.api.nodes[name]))
		}
	case "PodList":
		for _, name := range slices.Sorted(maps.Keys(c.api.pods)) {
			p := c.api.pods[name]
			if o.FieldSelector.Matches(fields.Set{"spec.nodeName": p.node, "status.phase": p.phase, "status.podIP": p.address}) {
				items = append(items, podItem(list, name, p))
			}
		}
	default:
		return fmt.Errorf("the model has no %q", kind)
	}
	switch a := c.answers(); {
	case a == emptyList:
		items = nil
	case a == partly:
		items = items[:len(items)/2]
	}
	return meta.SetList(list, items)
}

// setReady writes the condition Ready into a Node.
func setReady(node *unstructured.Unstructured, k modelKubelet) error {
	status := map[bool]string{true: "True", false: "Unknown"}[k.ready]
	condition := map[string]any{"type": "Ready", "status": status, "lastTransitionTime": k.readySince.UTC().Format(time.RFC3339)}
	return unstructured.SetNestedSlice(node.Object, []any{condition}, "status", "conditions")
}

// podItem is a pod as it stands in a list of this kind.
func podItem(list client.ObjectList, name string, p modelPod) runtime.Object {
	if _, whole := list.(*unstructured.UnstructuredList); !whole {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "ns", "name": name},
		"status":   map[string]any{"phase": p.phase, "podIP": p.address, "podIPs": []any{map[string]any{"ip": p.address}}},
	}}
}

func (c *clientModel) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	if c.api.configMap != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, object.GetName())
	}
	c.store(object)
	return nil
}

func (c *clientModel) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	of := schema.GroupResource{Resource: "configmaps"}
	switch {
	case c.api.configMap == nil:
		return apierrors.NewNotFound(of, object.GetName())
	case c.api.configMap.GetResourceVersion() != object.GetResourceVersion():
		return apierrors.NewConflict(of, object.GetName(), errors.New("the object has been modified"))
	}
	c.store(object)
	return nil
}

func (c *clientModel) store(object client.Object) {
	c.api.version++
	object.SetResourceVersion(strconv.Itoa(c.api.version))
	c.api.configMap = object.(*unstructured.Unstructured).DeepCopy()
}

// confirm is a person who annotates the ConfigMap, if it is there.
func (a *apiModel) confirm(annotation, value string) bool {
	if a.configMap == nil {
		return false
	}
	a.version++
	annotations := a.configMap.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotation] = value
	a.configMap.SetAnnotations(annotations)
	a.configMap.SetResourceVersion(strconv.Itoa(a.version))
	return true
}
