// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/rights"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/clusterroutes"
)

// Datastore is Calico's datastore, whichever of the two it is. Each write is one write, and holds only for what was seen: else the error is a
// [calico.ConflictError], and nothing was written.
type Datastore interface {
	// Informers are the kinds of the API server that are watched, Writes those that are written in a round.
	Informers() []client.Object
	Writes() []outputs.Write
	// OnChange lets f be called, without delay, after changes that no informer tells of.
	OnChange(f func())
	// View is Calico's side of the cluster as it was last seen; it makes no request. Nodes are those of NodesFrom.
	View(ctx context.Context) (calico.BGPView, error)
	// NodesFrom makes the World's nodes and whose datastore it is.
	NodesFrom(v calico.BGPView, kubernetes []corev1.Node, workloads map[string]int, as uint32) ([]routereflector.Node, *routereflector.Binding)
	// Claim makes the datastore ours before the first write, where that is not so by itself, and notes so in b.
	Claim(ctx context.Context, v calico.BGPView, b *routereflector.Binding) error
	// DatastoreReady asks live whether the datastore may be written to.
	DatastoreReady(ctx context.Context) (bool, error)
	// ClusterRoutes asks live what decides who programs the routes between nodes.
	ClusterRoutes(ctx context.Context) (clusterroutes.Settings, error)
	// Unchanged asks live whether the reflectors still are those of the nodes, which were made of the view; object is for whom, in the error.
	Unchanged(ctx context.Context, v calico.BGPView, nodes []routereflector.Node, object string) error
	// Rediscover asks how the datastore is served, after an answer that it is not. [calico.ErrGroupMoved] wants a new start.
	Rediscover(ctx context.Context) error

	ChangeNode(ctx context.Context, c calico.NodeChange) error
	CreatePeer(ctx context.Context, p routereflector.Peer) error
	UpdatePeer(ctx context.Context, p routereflector.Peer, uid, resourceVersion string) error
	DeletePeer(ctx context.Context, name, uid, resourceVersion string) error
	SetMesh(ctx context.Context, have *calicov3.BGPConfiguration, on bool) error
	CreateStatus(ctx context.Context, r calico.StatusRequest) error
	DeleteStatus(ctx context.Context, name, uid string) error
}

// KubernetesDatastore is Calico's kubernetes datastore: its kinds are the API server's, and a Calico Node is the Kubernetes Node.
type KubernetesDatastore struct {
	*calico.BGPKubernetes

	// Reader reads from the informers, Live from the API server.
	Reader, Live client.Reader
	// Client writes Nodes.
	Client client.Client
}

// Informers implements Datastore.
func (d *KubernetesDatastore) Informers() []client.Object { return Informers() }

// Writes implements Datastore.
func (d *KubernetesDatastore) Writes() []outputs.Write {
	patched := func(kind string, fields ...string) outputs.Write {
		return outputs.Write{System: outputs.Kubernetes, Kind: kind, Verbs: []string{"patch"}, Fields: fields, Bound: true}
	}
	node := []string{outputs.Field("metadata", "annotations", routereflector.ClusterIDAnnotation)}
	for _, label := range routereflector.RoleLabels() {
		node = append(node, outputs.Field("metadata", "labels", label))
	}
	narrow := []outputs.Write{patched("nodes", node...)}
	for _, group := range rights.List(rights.CalicoGroups) {
		narrow = append(narrow,
			patched("bgppeers."+group, outputs.Field("spec")), patched("bgpconfigurations."+group, calico.MeshFields()...))
	}
	return outputs.Narrowed(reconcile.Granted(rights.Rounds(rights.Reflectors().Roles("kubernetes"))), narrow...)
}

// OnChange implements Datastore: informers tell of everything.
func (d *KubernetesDatastore) OnChange(func()) {}

// View implements Datastore.
func (d *KubernetesDatastore) View(ctx context.Context) (calico.BGPView, error) {
	var configurations calicov3.BGPConfigurationList
	var informations calicov3.ClusterInformationList
	var peers calicov3.BGPPeerList
	var statuses calicov3.CalicoNodeStatusList
	var filters calicov3.BGPFilterList
	for _, list := range []client.ObjectList{&configurations, &informations, &peers, &statuses, &filters} {
		if err := d.Reader.List(ctx, list); err != nil {
			return calico.BGPView{}, fmt.Errorf("reading Calico's objects: %w", err)
		}
	}
	v := calico.BGPView{
		Peers: peers.Items, Configurations: configurations.Items, Informations: informations.Items, Statuses: statuses.Items,
	}
	for i := range filters.Items {
		v.Filters = append(v.Filters, filters.Items[i].Name)
	}
	return v, nil
}

// NodesFrom implements Datastore. The datastore is part of the cluster, so nothing says whose it is.
func (d *KubernetesDatastore) NodesFrom(
	_ calico.BGPView, kubernetes []corev1.Node, workloads map[string]int, as uint32,
) ([]routereflector.Node, *routereflector.Binding) {
	nodes := make([]routereflector.Node, 0, len(kubernetes))
	for i := range kubernetes {
		nodes = append(nodes, routereflector.NodeFrom(&kubernetes[i], workloads[kubernetes[i].Name], as))
	}
	return nodes, nil
}

// Claim implements Datastore.
func (d *KubernetesDatastore) Claim(context.Context, calico.BGPView, *routereflector.Binding) error {
	return nil
}

// Unchanged implements Datastore.
func (d *KubernetesDatastore) Unchanged(ctx context.Context, _ calico.BGPView, nodes []routereflector.Node, object string) error {
	live := &metav1.PartialObjectMetadataList{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := d.Live.List(ctx, live, client.HasLabels{v1alpha1.ReflectorLabel}); err != nil {
		return fmt.Errorf("reading again which Nodes are reflectors: %w", err)
	}
	var is, was []string
	for _, n := range live.Items {
		is = append(is, n.Name+" "+string(n.UID)+" "+n.Labels[v1alpha1.ReflectorLabel])
	}
	for _, n := range nodes {
		if label, marked := n.Labels[v1alpha1.ReflectorLabel]; marked && !n.CalicoLabel {
			was = append(was, n.Name+" "+n.UID+" "+label)
		}
	}
	for _, n := range slices.Concat(is, was) {
		if !slices.Contains(is, n) || !slices.Contains(was, n) {
			name, _, _ := strings.Cut(n, " ")
			return &calico.ConflictError{Key: object, Detail: "the reflectors have changed since the plan was made, see Node " + name}
		}
	}
	return nil
}

// ChangeNode changes labels and Calico's annotation in one patch: between two patches the node would have sessions of one kind by the label and of
// another by the ID, and lose both (measured: up to 30 s). Anything that has changed on the Node since the step was decided holds the patch back.
func (d *KubernetesDatastore) ChangeNode(ctx context.Context, c calico.NodeChange) error {
	metadata := map[string]any{"uid": c.UID, "resourceVersion": c.ResourceVersion, "labels": c.Labels}
	if c.ClusterID != nil {
		id := c.ClusterID
		if *id == "" {
			id = nil
		}
		metadata["annotations"] = map[string]*string{routereflector.ClusterIDAnnotation: id}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Node}}
	err = d.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return &calico.ConflictError{Key: "Node " + c.Node, Detail: err.Error()}
	}
	if err != nil {
		return fmt.Errorf("patching Node %s: %w", c.Node, err)
	}
	return nil
}

// EtcdDatastore is Calico's etcdv3 datastore: its kinds are in etcd, Calico Nodes among them, alongside Kubernetes' Nodes.
type EtcdDatastore struct {
	*calico.BGPEtcd

	Clock clock.PassiveClock

	mu     sync.Mutex           // guards absent
	absent map[string]time.Time // since when Calico Nodes have been seen without a Kubernetes Node
}

// EtcdInformers are the kinds of the API server that are watched where Calico keeps its data in etcd.
func EtcdInformers() []client.Object {
	return []client.Object{&v1alpha1.RouteReflectorTopology{}, &corev1.Node{}}
}

// EtcdCacheOptions are [CacheOptions] for those.
func EtcdCacheOptions() cache.Options {
	return cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: trimNode}}}
}

// Informers implements Datastore.
func (d *EtcdDatastore) Informers() []client.Object { return EtcdInformers() }

// Writes implements Datastore.
func (d *EtcdDatastore) Writes() []outputs.Write {
	all := reconcile.Granted(rights.Rounds(rights.Reflectors().Roles("etcdv3")))
	for kind, verbs := range map[string][]string{
		"clusterinformations": {"put"}, "nodes": {"put"}, "bgpconfigurations": {"put"},
		"bgppeers": {"put", "delete"}, "caliconodestatuses": {"put", "delete"},
	} {
		all = append(all, outputs.Write{System: outputs.CalicoEtcd, Kind: kind, Verbs: verbs})
	}
	return all
}

// View implements Datastore.
func (d *EtcdDatastore) View(context.Context) (calico.BGPView, error) { return d.BGPEtcd.View() }

// NodesFrom implements Datastore. That a Calico Node has no Kubernetes Node counts from when it was first seen, so that neither a machine that joins
// again nor a new start of this program ends a grace period early.
func (d *EtcdDatastore) NodesFrom(
	v calico.BGPView, kubernetes []corev1.Node, workloads map[string]int, as uint32,
) ([]routereflector.Node, *routereflector.Binding) {
	nodes, present, referenced := routereflector.NodesFrom(v.Nodes, kubernetes, workloads, as)
	d.mu.Lock()
	defer d.mu.Unlock()
	still := map[string]time.Time{}
	for i := range nodes {
		if n := &nodes[i]; n.ReadySince.IsZero() {
			since, seen := d.absent[n.Name]
			if !seen {
				// In whole seconds, as all times in Kubernetes' and Calico's objects: an answer given right after the grace period must not seem older.
				since = d.Clock.Now().Truncate(time.Second).Add(time.Second)
			}
			n.ReadySince, still[n.Name] = since, since
		}
	}
	d.absent = still
	return nodes, &routereflector.Binding{Cluster: d.Cluster(), Recorded: v.Recorded(), Present: present, Referenced: referenced}
}

// Claim implements Datastore.
func (d *EtcdDatastore) Claim(ctx context.Context, v calico.BGPView, b *routereflector.Binding) error {
	info := v.Information()
	if b == nil || b.Recorded != "" || info == nil {
		return nil
	}
	if err := d.Bind(ctx, info); err != nil {
		return err
	}
	b.Recorded = b.Cluster
	return nil
}

// Unchanged implements Datastore. The roles that count are those of the nodes: what the round itself has written since the view is not a surprise.
func (d *EtcdDatastore) Unchanged(ctx context.Context, v calico.BGPView, nodes []routereflector.Node, _ string) error {
	now := make(map[string]*routereflector.Node, len(nodes))
	for i := range nodes {
		now[nodes[i].Name] = &nodes[i]
	}
	v.Nodes = slices.Clone(v.Nodes)
	for i := range v.Nodes {
		if n, known := now[v.Nodes[i].Name]; known {
			v.Nodes[i].Labels, v.Nodes[i].ClusterID = n.Labels, n.ClusterID
		}
	}
	return d.BGPEtcd.Unchanged(ctx, v)
}

// Rediscover implements Datastore.
func (d *EtcdDatastore) Rediscover(context.Context) error { return nil }
