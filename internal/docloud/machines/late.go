// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"
	nodehelpers "k8s.io/cloud-provider/node/helpers"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/loop"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

const (
	// firstLook is how soon a Node that was described without a public address is looked at again, twice as late each time.
	firstLook = 5 * time.Second
	// lastLook is how long after its description; then the framework's look at all addresses every few minutes is enough.
	lastLook = 10 * time.Minute
)

// addresses writes public addresses of droplets that come after the Node was described. Without one a Node gets no traffic from external
// load balancers, and the framework looks for it five minutes later.
type addresses struct {
	m    *Instances
	loop *loop.Loop

	mu    sync.Mutex // guards since
	since map[string]describedNode
}

// describedNode is a Node that was described without a public address.
type describedNode struct {
	uid types.UID
	at  time.Time
}

func newAddresses(m *Instances, clock clock.WithTicker) *addresses {
	a := &addresses{m: m, since: map[string]describedNode{}}
	a.loop = loop.New(loop.Options{
		Name: "digitalocean-late-address", Clock: clock, Gate: &loop.Gate{}, Keys: func() []string { return nil }, Pass: a.look,
		Resync: 24 * time.Hour, FirstRetry: firstLook, LastRetry: lastLook / 10,
	})
	a.loop.Follow()
	return a
}

// watch looks again at a Node if it is about to be described without a public address.
func (a *addresses) watch(node *corev1.Node, described []corev1.NodeAddress) {
	if public(described) || loadbalancer.IsPrivate(node) {
		return
	}
	a.mu.Lock()
	a.since[node.Name] = describedNode{node.UID, a.m.clock.Now()}
	a.mu.Unlock()
	a.loop.AddAfter(node.Name, firstLook)
}

// look compares a Node's addresses with its droplet's.
func (a *addresses) look(ctx context.Context, name string) loop.Result {
	a.mu.Lock()
	known := a.since[name]
	a.mu.Unlock()
	passed := a.m.clock.Since(known.at)
	node, addresses, err := a.now(ctx, name)
	switch {
	case err != nil && passed < lastLook:
		return loop.Result{Failed: true}
	case err == nil && node != nil && node.UID == known.uid && !public(addresses) && passed < lastLook:
		return loop.Result{Next: max(passed, firstLook)}
	case err == nil && node != nil && node.UID == known.uid && public(addresses):
		if err := a.write(ctx, node, addresses); err != nil {
			return loop.Result{Failed: true}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since[name] == known {
		delete(a.since, name)
	}
	return loop.Result{}
}

// now returns a Node and the addresses that it must have. The Node is nil if there is nothing to be done for it.
func (a *addresses) now(ctx context.Context, name string) (*corev1.Node, []corev1.NodeAddress, error) {
	nodes, err := a.m.nodes()
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 || public(nodes[i].Status.Addresses) {
		return nil, nil, nil
	}
	node := nodes[i]
	id, err := providerid.Parse(node.Spec.ProviderID)
	if err != nil {
		return nil, nil, err // it may not be described yet
	}
	list, err := a.m.snapshot.Get(ctx, a.m.pendingAge())
	if err != nil {
		return nil, nil, err
	}
	droplet, ok := list.Droplet(id)
	if !ok {
		return nil, nil, fmt.Errorf("droplet %d is not in the list of droplets", id)
	}
	described, err := instance.Describe(droplet)
	if err != nil {
		return nil, nil, err
	}
	provided, err := asProvided(node, described.Addresses)
	return node, provided, err
}

// write replaces a Node's addresses, if it is as it was read.
func (a *addresses) write(ctx context.Context, node *corev1.Node, addresses []corev1.NodeAddress) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"status":   map[string]any{"addresses": addresses},
	})
	if err != nil {
		return fmt.Errorf("encoding addresses: %w", err)
	}
	a.m.mu.Lock()
	client := a.m.client
	a.m.mu.Unlock()
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

// asProvided puts addresses as the framework does for a Node whose kubelet was given addresses (kubelet, --node-ip).
func asProvided(node *corev1.Node, addresses []corev1.NodeAddress) ([]corev1.NodeAddress, error) {
	if ip, ok := node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr]; ok {
		return nodehelpers.GetNodeAddressesFromNodeIP(ip, addresses)
	}
	return addresses, nil
}

// public reports whether a public address is among them.
func public(addresses []corev1.NodeAddress) bool {
	return slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeExternalIP })
}
