// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"
	nodehelpers "k8s.io/cloud-provider/node/helpers"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

const (
	// lastLook is how long after its description a Node is looked at that has no public address; then the framework's look
	// at all addresses every few minutes is enough.
	lastLook = 10 * time.Minute
	// theToken is the key of a look at the token's health, which no Node is called.
	theToken = ""
	// longestPause is the longest time between two looks at a Node that waits.
	longestPause = 5 * time.Minute
)

// waiting are the Nodes that wait for something of their droplets: new ones until they can be described, and described
// ones for a public address, without which a Node gets no traffic from external load balancers. The framework would try
// the first again after pauses that double, and look at the second five minutes later. Both are looked at again after a
// quarter of the time that they have waited, and at once when DigitalOcean serves again.
type waiting struct {
	m    *Instances
	loop *reconcile.Loop

	mu    sync.Mutex // guards all below
	nodes map[string]waitingNode
	// again makes the framework's controller of Nodes try a new Node again, nil before it has started.
	again func(*corev1.Node)
}

// waitingNode is a Node that waits, since when, and when DigitalOcean was asked for its droplet alone.
type waitingNode struct {
	uid          types.UID
	since, asked time.Time
	described    bool
}

func newWaiting(m *Instances, clock clock.WithTicker) *waiting {
	w := &waiting{m: m, nodes: map[string]waitingNode{}}
	w.loop = reconcile.NewLoop(reconcile.LoopOptions{
		Name: "digitalocean-waiting-node", Clock: clock, Gate: &reconcile.Gate{}, Keys: w.names, Pass: w.look,
		Resync: 24 * time.Hour, FirstRetry: m.config.PendingAge, LastRetry: lastLook / 10,
	})
	w.loop.Follow()
	return w
}

// names are those of the Nodes that wait.
func (w *waiting) names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.nodes))
}

// entry returns what is known of a Node that waits; one that was unknown waits from now on.
func (w *waiting) entry(node *corev1.Node) waitingNode {
	known, ok := w.nodes[node.Name]
	if !ok || known.uid != node.UID || known.described && uninitialized(node) {
		known = waitingNode{uid: node.UID, since: w.m.clock.Now()}
	}
	return known
}

// pause is how long after the last look at a Node that has waited since then there is another.
func (w *waiting) pause(since time.Time) time.Duration {
	return min(max(w.m.clock.Since(since)/4, w.m.config.PendingAge), longestPause)
}

// turn reports how old the list may be for a new Node, and whether DigitalOcean may be asked for its droplet alone: at
// first, since that is quickest, and later while that takes fewer calls than the list for all that wait.
func (w *waiting) turn(node *corev1.Node) (age time.Duration, alone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, now := w.entry(node), w.m.clock.Now()
	pause := w.pause(known.since)
	if known.asked.IsZero() || now.Sub(known.asked) >= pause && len(w.nodes) < w.m.snapshot.Latest().pages() {
		if alone = w.m.seeking.AllowN(now, 1); alone {
			known.asked = now
		}
	}
	w.nodes[node.Name] = known
	return max(pause/2, w.m.config.PendingAge), alone
}

// failed looks again at a new Node that could not be described.
func (w *waiting) failed(node *corev1.Node) {
	w.mu.Lock()
	known := w.entry(node)
	w.nodes[node.Name] = known
	w.mu.Unlock()
	w.loop.AddAfter(node.Name, w.pause(known.since))
}

// describe notes that a new Node is about to be described, and looks at it again if it has no public address.
func (w *waiting) describe(node *corev1.Node, described []corev1.NodeAddress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if public(described) || loadbalancer.IsPrivate(node) {
		delete(w.nodes, node.Name)
		return
	}
	w.nodes[node.Name] = waitingNode{uid: node.UID, since: w.m.clock.Now(), described: true}
	w.loop.AddAfter(node.Name, w.m.config.PendingAge)
}

// look tries a new Node again, and compares the addresses of a described one with its droplet's.
func (w *waiting) look(ctx context.Context, name string) reconcile.Result {
	if name == theToken {
		if err := w.m.recordToken(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "The token's health was not recorded, will try again")
		}
		return reconcile.Result{Next: w.m.config.TokenEvery}
	}
	w.mu.Lock()
	known, again := w.nodes[name], w.again
	w.mu.Unlock()
	node, err := w.node(name)
	switch {
	case err != nil:
		return reconcile.Result{Failed: true}
	case node == nil || node.UID != known.uid:
	case uninitialized(node):
		if again != nil && !known.described {
			again(node)
		}
		return reconcile.Result{Next: w.pause(known.since)}
	case !public(node.Status.Addresses) && w.m.clock.Since(known.since) < lastLook:
		if done, err := w.compare(ctx, node); err != nil {
			return reconcile.Result{Failed: true}
		} else if !done {
			return reconcile.Result{Next: w.pause(known.since)}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes[name] == known {
		delete(w.nodes, name)
	}
	return reconcile.Result{}
}

// node returns a Node, nil for none of the name.
func (w *waiting) node(name string) (*corev1.Node, error) {
	nodes, err := w.m.nodes()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, nil
	}
	return nodes[i], nil
}

// compare writes the addresses of a Node's droplet if there is a public one among them, and reports whether it has.
func (w *waiting) compare(ctx context.Context, node *corev1.Node) (done bool, err error) {
	id, err := providerid.Parse(node.Spec.ProviderID)
	if err != nil {
		return false, err
	}
	list, err := w.m.shared(ctx, w.m.config.PendingAge)
	if err != nil {
		return false, err
	}
	droplet, ok := list.Droplet(id)
	if !ok {
		return false, fmt.Errorf("droplet %d is not in the list of droplets", id)
	}
	described, err := instance.Describe(droplet)
	if err != nil {
		return false, err
	}
	provided, err := asProvided(node, described.Addresses)
	if err != nil || !public(provided) {
		return false, err
	}
	return true, w.write(ctx, node, provided)
}

// write replaces a Node's addresses, if it is as it was read.
func (w *waiting) write(ctx context.Context, node *corev1.Node, addresses []corev1.NodeAddress) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"status":   map[string]any{"addresses": addresses},
	})
	if err != nil {
		return fmt.Errorf("encoding addresses: %w", err)
	}
	w.m.mu.Lock()
	client := w.m.client
	w.m.mu.Unlock()
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
