// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package startuptaint

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// Controller removes the taint. Follow and Start are called once each, in either order.
type Controller struct {
	*reconcile.Runner[World, reconcile.None, Remove, reconcile.None]

	log    logr.Logger
	client kubernetes.Interface         // set by Start, before the runner starts
	nodes  corelisters.NodeLister       // set by Follow, before the runner follows, as the next
	csi    storagelisters.CSINodeLister // of the kubelets' registrations
}

// New makes a Controller that does nothing until it is started and follows Nodes. Its writes pass the gate, if there is one.
func New(clk clock.WithTicker, gate *reconcile.Gate, mode outputs.Mode, log logr.Logger) *Controller {
	c := &Controller{log: log.WithName("startup-taint")}
	c.Runner = reconcile.New(reconcile.Options[World, reconcile.None, Remove, reconcile.None]{
		LoopOptions: reconcile.LoopOptions{
			Name: "digitalocean-startup-taint", Clock: clk, Gate: gate, First: time.Second,
			Resync: 5 * time.Minute, FirstRetry: time.Second, LastRetry: time.Minute,
		},
		Log: c.log, Failure: "Start-up taints were not removed, will try again", Time: time.Minute, Mode: mode,
		Writes:  Writes(),
		Observe: c.observe, Plan: MakePlan, Apply: c.apply,
		Subject: func(r Remove) string { return string(r.UID) },
	})
	return c
}

// Writes are all that a round writes.
func Writes() []outputs.Write {
	return []outputs.Write{{
		System: outputs.Kubernetes, Kind: "nodes", Verbs: []string{"patch"}, Fields: []string{outputs.Field("spec", "taints")}, Bound: true,
	}}
}

// Follow reads Nodes and CSINodes from informers that somebody else starts. A Node that gets the taint and a driver that is
// registered are looked at now.
func (c *Controller) Follow(factory informers.SharedInformerFactory) {
	nodes, csi := factory.Core().V1().Nodes(), factory.Storage().V1().CSINodes()
	c.nodes, c.csi = nodes.Lister(), csi.Lister()
	for _, informer := range []cache.SharedIndexInformer{nodes.Informer(), csi.Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: c.look, UpdateFunc: func(_, is any) { c.look(is) },
		})
		if err != nil {
			c.log.Error(err, "Changes cannot be watched; Nodes are looked at every five minutes")
		}
	}
	c.Runner.Follow(nodes.Informer().HasSynced, csi.Informer().HasSynced)
}

// look asks for a round if an object is a Node with the taint, or the CSINode of one.
func (c *Controller) look(object any) {
	node, _ := object.(*corev1.Node)
	if csi, ok := object.(*storagev1.CSINode); ok {
		node, _ = c.nodes.Get(csi.Name)
	}
	if node != nil && Tainted(node) {
		c.Add(reconcile.Only)
	}
}

// Start makes rounds until ctx ends; it waits for Follow. There are no Events about it: kubelets join all the time.
func (c *Controller) Start(ctx context.Context, client kubernetes.Interface, _ record.EventRecorder) {
	c.client = client
	c.Runner.Start(ctx)
}

func (c *Controller) observe(context.Context, string) (w World, err error) {
	all, err := c.nodes.List(labels.Everything())
	if err != nil {
		return w, fmt.Errorf("listing nodes: %w", err)
	}
	w.CSINodes = map[string]*storagev1.CSINode{}
	for _, node := range all {
		if !Tainted(node) {
			continue
		}
		w.Nodes = append(w.Nodes, node)
		if csi, err := c.csi.Get(node.Name); err == nil { // of what is in memory it can only be missing
			w.CSINodes[node.Name] = csi
		}
	}
	return w, nil
}

// apply writes the taints of a Node, if it is just as it was read.
func (c *Controller) apply(ctx context.Context, _ World, r Remove) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": r.UID, "resourceVersion": r.ResourceVersion},
		"spec":     map[string]any{"taints": r.Keep},
	})
	if err != nil {
		return fmt.Errorf("encoding taints: %w", err)
	}
	if _, err = c.client.CoreV1().Nodes().Patch(ctx, r.Node, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("%s: %w", r, err)
	}
	c.log.Info("Removed the start-up taint: the volume driver is registered", "node", r.Node)
	return nil
}
