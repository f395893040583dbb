// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// stackOf returns the network stack of a load balancer that is to be made:
//
//	INTERNAL             IPV4; DUALSTACK is refused
//	REGIONAL             as asked for, else DUALSTACK: it is a proxy, its droplets need no IPv6
//	REGIONAL_NETWORK     as asked for, else DUALSTACK if every ready Node has a public IPv6 address, else IPV4
//
// A load balancer that exists keeps the stack it has, so that Nodes that come and go do not flip it (the API takes no change).
func stackOf(s annotation.Settings, network string, ready []*corev1.Node) (string, error) {
	if network == annotation.NetworkInternal {
		if s.NetworkStack == annotation.StackDual {
			return "", &annotation.Error{
				Annotation: annotation.NetworkStack, Value: s.NetworkStack,
				Problem: "but the load balancer is " + annotation.NetworkInternal + ": it must be " + annotation.StackIPv4,
			}
		}
		return annotation.StackIPv4, nil
	}
	if s.Type == annotation.TypeRegional || s.NetworkStack == annotation.StackIPv4 {
		if s.NetworkStack != "" {
			return s.NetworkStack, nil
		}
		return annotation.StackDual, nil
	}
	lacking := without6(ready)
	switch {
	case len(lacking) == 0 && len(ready) > 0:
		return annotation.StackDual, nil
	case s.NetworkStack == annotation.StackDual && len(ready) > 0:
		return "", &annotation.Error{
			Annotation: annotation.NetworkStack, Value: s.NetworkStack,
			Problem: fmt.Sprintf("but %s: every node of a %s load balancer needs one; give them IPv6, or ask for %s",
				lack(lacking), annotation.TypeRegionalNetwork, annotation.StackIPv4),
		}
	}
	return annotation.StackIPv4, nil
}

// without6 returns the names of Nodes without a public IPv6 address.
func without6(nodes []*corev1.Node) []string {
	var names []string
	for _, node := range nodes {
		if !addressesOf(node).public6 {
			names = append(names, node.Name)
		}
	}
	return names
}

// lack returns which Nodes have no public IPv6 address, the first few of them by name.
func lack(names []string) string {
	const shown = 3
	switch {
	case len(names) == 1:
		return "node " + names[0] + " has no public IPv6 address"
	case len(names) > shown:
		return fmt.Sprintf("nodes %s and %d more have no public IPv6 address", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return "nodes " + strings.Join(names, ", ") + " have no public IPv6 address"
}
