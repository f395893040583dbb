// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// autoscalerTaint is what the cluster autoscaler puts on a Node that it is about to delete (k8s.io/cloud-provider, controllers/service).
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// uninitializedTaint is what a Node has until its cloud provider has described it (k8s.io/cloud-provider, api.TaintExternalCloudProvider).
const uninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// backends are the Nodes of a load balancer.
type backends struct {
	// ready are the Nodes that get traffic, in the order given.
	ready   []*corev1.Node
	targets []Target
	leftOut []LeftOut
	// privateOnly reports that a Node was left out because it has a private address and no public one.
	privateOnly bool
}

// notSelected is why a Node that the Service does not want gets no traffic.
const notSelected = "is not selected by annotation " + annotation.NodeSelector

// backendsOf picks the Nodes that get traffic. Those that Kubernetes excludes are left out first (the conditions of k8s.io/cloud-provider's
// service controller; a Node that is not Ready stays, since a load balancer checks health by itself), then those without a usable address:
//
//	INTERNAL                      any address will do
//	REGIONAL, EXTERNAL            a public IPv4 address, or a private one
//	REGIONAL_NETWORK, EXTERNAL    a public IPv4 address
//
// A Node that may not be the droplet that it names is left out too; what is a target already stays one.
func (in Input) backendsOf(nodes []*corev1.Node, lbType, network string, selected labels.Selector) backends {
	var b backends
	for _, node := range nodes {
		disputed, _ := in.disputed(node)
		reason := cmp.Or(Excluded(node), disputed)
		if reason == "" && !selected.Matches(labels.Set(node.Labels)) {
			reason = notSelected
		}
		if reason == "" && network == annotation.NetworkExternal {
			a := addressesOf(node)
			switch {
			case a.public4:
			case a.private4 && lbType == annotation.TypeRegional:
			case a.private4:
				reason = "has no public IPv4 address, which a " + lbType + " load balancer needs"
				b.privateOnly = true
			default:
				reason = "has no IPv4 address"
			}
		}
		if reason != "" {
			b.leaveOut(node, reason)
			continue
		}
		b.ready = append(b.ready, node)
	}
	return b
}

// disputed returns why a Node may not be the droplet that it names, empty for nothing, and whether a new list of droplets
// decides. What is a target stays.
func (in Input) disputed(node *corev1.Node) (why string, unseen bool) {
	if in.Identities == nil {
		return "", false
	}
	d, disputed := in.Identities.Disputed[node.Name]
	id, unseen := in.Identities.Unseen[node.Name]
	switch {
	case !disputed && !unseen: // nearly all
		return "", false
	case in.Observed != nil && !d.Owned && slices.Contains(in.Observed.DropletIDs, id+d.Droplet): // one of them is 0
		return "", false
	case unseen:
		return "names a droplet that DigitalOcean does not show yet", true
	}
	return d.Why, false
}

func (b *backends) leaveOut(node *corev1.Node, reason string) {
	b.leftOut = append(b.leftOut, LeftOut{Node: node.Name, Reason: reason})
}

// Excluded says why a Node gets no traffic whatever its addresses, empty for those that do.
func Excluded(node *corev1.Node) string {
	label, labeled := node.Labels[corev1.LabelNodeExcludeBalancers]
	switch exclude, err := strconv.ParseBool(label); {
	case !node.DeletionTimestamp.IsZero():
		return "is being deleted"
	case labeled && (exclude || err != nil):
		return "has the label " + corev1.LabelNodeExcludeBalancers
	case slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint }):
		return "has the taint " + autoscalerTaint
	}
	return ""
}

// selector selects the Nodes that the Service wants. With an error it selects all.
func (in Input) selector(s annotation.Settings) (labels.Selector, error) {
	if in.AllSelected {
		return labels.Everything(), nil
	}
	selected, err := labels.Parse(s.NodeSelector)
	if err != nil {
		return labels.Everything(), &annotation.Error{Annotation: annotation.NodeSelector, Value: s.NodeSelector, Problem: "which is not a selector of labels: " + err.Error()}
	}
	return selected, nil
}

// targets are the Nodes that may be targets: all, or those where endpoints of the Service are. Endpoints that are not ready yet count, so that their
// Node is a target when they are; without any all Nodes are, and the health check decides.
func (in Input) targets(s annotation.Settings, result *Result) []*corev1.Node {
	switch {
	case !s.LocalTargetsOnly:
		return in.Nodes
	case in.Service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal:
		result.warn(annotation.ReasonNoEffect, fmt.Sprintf("annotation %s has no effect without spec.externalTrafficPolicy: Local", annotation.LocalTargetsOnly))
		return in.Nodes
	}
	local := slices.DeleteFunc(slices.Clone(in.Nodes), func(n *corev1.Node) bool { return !in.EndpointNodes[n.Name] })
	if len(local) == 0 {
		return in.Nodes
	}
	return local
}

// EndpointNodes are the names of the Nodes with endpoints in the EndpointSlices of a Service, ready or not.
func EndpointNodes(all []*discoveryv1.EndpointSlice) map[string]bool {
	nodes := map[string]bool{}
	for _, slice := range all {
		for _, endpoint := range slice.Endpoints {
			if endpoint.NodeName != nil {
				nodes[*endpoint.NodeName] = true
			}
		}
	}
	return nodes
}

// NetworkTypeLabel on a Node reports whether its machine is public or private: that a private one has no public address is as it must be. It is the
// upstream project's, as of v0.1.70 (its pull request 950), and MUST NOT be changed.
const NetworkTypeLabel = "doks.digitalocean.com/node-network-type"

// IsPrivate reports whether a Node's machine has no public address on purpose.
func IsPrivate(node *corev1.Node) bool { return node.Labels[NetworkTypeLabel] == "private" }

// addresses are the kinds of addresses that a Node has.
type addresses struct{ public4, public6, private4 bool }

func addressesOf(node *corev1.Node) addresses {
	var a addresses
	for _, address := range node.Status.Addresses {
		ip, err := netip.ParseAddr(address.Address)
		if err != nil {
			continue
		}
		ip = ip.Unmap()
		switch address.Type {
		case corev1.NodeExternalIP:
			a.public4, a.public6 = a.public4 || ip.Is4(), a.public6 || ip.Is6()
		case corev1.NodeInternalIP:
			a.private4 = a.private4 || ip.Is4() && ip.IsPrivate()
		default:
		}
	}
	return a
}

// problem says why there is no target at all, nil if there is one.
func (b *backends) problem(nodes int) error {
	switch {
	case len(b.ready) > 0:
		return nil
	case nodes == 0:
		return fmt.Errorf("%w: the cluster has no nodes", ErrNoNodes)
	case b.privateOnly:
		return fmt.Errorf("%w: of type %s, it needs a node with a public IPv4 address; for nodes without, set annotation %s to %s or %s to %s",
			ErrNoEligibleNodes, annotation.TypeRegionalNetwork, annotation.Type, annotation.TypeRegional, annotation.Network, annotation.NetworkInternal)
	}
	return fmt.Errorf("%w: %s", ErrNoNodes, b.why())
}

// why names the Nodes that are left out, the first few of them.
func (b *backends) why() string {
	const shown = 3
	var parts []string
	for i, l := range b.leftOut {
		if i == shown {
			parts = append(parts, fmt.Sprintf("and %d more are left out", len(b.leftOut)-shown))
			break
		}
		parts = append(parts, "node "+l.Node+" "+l.Reason)
	}
	return strings.Join(parts, ", ")
}

// droplets returns the IDs of the ready Nodes' droplets in the upstream project's order: those with a provider ID in the order of Nodes, then those
// that were found by name in the order of droplets. A Node whose droplet is not found, or could be one of several, is left out; if that leaves
// none, it is an error, since droplets that are not found are not reason to take all targets away.
func (b *backends) droplets(all []instance.Droplet, identities *instance.Identities) ([]int, error) {
	ids, byID := []int{}, map[int]string{}
	var unnamed []*corev1.Node
	add := func(id int, node string) {
		if _, twice := byID[id]; !twice {
			ids, byID[id] = append(ids, id), node
			b.targets = append(b.targets, Target{Node: node, Droplet: id})
		}
	}
	for _, node := range b.ready {
		id, err := providerid.Parse(node.Spec.ProviderID)
		switch {
		case errors.Is(err, providerid.ErrEmpty):
			unnamed = append(unnamed, node)
		case err != nil:
			return nil, fmt.Errorf("%w: node %s: %w; label it %s if it is to get no traffic", ErrForeignNode, node.Name, err, corev1.LabelNodeExcludeBalancers)
		default:
			add(id, node.Name)
		}
	}
	found := map[int]string{}
	for _, node := range unnamed {
		d, err := instance.Match(node, all)
		switch {
		case err != nil:
			b.leaveOut(node, reasonOf(err))
			continue
		case identities != nil && identities.Required && !identities.Tagged(d):
			b.leaveOut(node, fmt.Sprintf("has the name of %s, which lacks the tag %s", d, identities.Tag))
			continue
		}
		found[d.ID] = node.Name
	}
	for _, d := range all {
		if node, ok := found[d.ID]; ok {
			add(d.ID, node)
		}
	}
	slices.SortFunc(b.targets, func(x, y Target) int { return cmp.Or(strings.Compare(x.Node, y.Node), x.Droplet-y.Droplet) })
	slices.SortStableFunc(b.leftOut, func(x, y LeftOut) int { return strings.Compare(x.Node, y.Node) })
	if len(b.ready) > 0 && len(ids) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoNodes, b.why())
	}
	return ids, nil
}

// reasonOf says why no droplet was found for a Node, as the end of the sentence "node X …".
func reasonOf(err error) string {
	if ambiguous, ok := errors.AsType[*instance.AmbiguousError](err); ok {
		return fmt.Sprintf("has no provider ID, and droplets %s share its %s", join(ambiguous.Droplets), ambiguous.By)
	}
	return "has no provider ID, and no droplet matches its name"
}

// join writes numbers as a list for people.
func join(ids []int) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(id)
	}
	return strings.Join(words, ", ")
}
