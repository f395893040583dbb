// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Sources returns from where a Service's load balancer may be reached, sorted and each once: spec.loadBalancerSourceRanges, else the rules of the
// annotation with allow rules; nil for from anywhere. It is what the load balancer's own firewall allows. Unlike that, which hands an allow rule
// to DigitalOcean as it is, it refuses a rule that it cannot read: anyone who widens a firewall must know by what. The error is a [SpecError] or an
// annotation.Error.
func Sources(service *corev1.Service, s annotation.Settings) ([]netip.Prefix, error) {
	f, _, err := firewallOf(service, s)
	if err != nil {
		return nil, err
	}
	var sources []netip.Prefix
	for _, rule := range f.Allow {
		prefix, ok := parseRule(rule)
		if !ok {
			return nil, &annotation.Error{
				Annotation: annotation.AllowRules, Value: service.Annotations[annotation.AllowRules],
				Problem: "where " + annotation.Quote(rule) + " is neither ip:ADDRESS nor cidr:RANGE",
			}
		}
		sources = append(sources, prefix)
	}
	slices.SortFunc(sources, netip.Prefix.Compare)
	return slices.Compact(sources), nil
}

// parseRule reads a rule of a load balancer's firewall.
func parseRule(rule string) (netip.Prefix, bool) {
	kind, source, _ := strings.Cut(rule, ":")
	switch kind {
	case "ip":
		address, err := netip.ParseAddr(source)
		if err != nil || address.Zone() != "" {
			return netip.Prefix{}, false
		}
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), true
	case "cidr":
		return parseRange(source)
	}
	return netip.Prefix{}, false
}

// HealthPorts returns the TCP ports of the nodes that a Service's load balancer checks: always kube-proxy's, or the Service's own health check
// port if it wants local traffic only, and after it the node port of the checked port if an annotation asks for that. The error is an
// annotation.Error.
func HealthPorts(service *corev1.Service, s annotation.HealthCheck) ([]int, error) {
	usual := s
	usual.Override = false
	h, err := healthCheckOf(service, usual)
	if err != nil || !s.Override {
		return []int{h.Port}, err
	}
	asked, err := healthCheckOf(service, s)
	if err != nil || asked.Port == 0 || asked.Port == h.Port {
		return []int{h.Port}, err
	}
	return []int{h.Port, asked.Port}, nil
}

// KubeProxyPort is where kube-proxy reports whether a node takes traffic (KEP-3836); load balancers check it.
const KubeProxyPort = kubeProxyPort

// Untagged returns the load balancers of this cluster's Services that lack the cluster's tag, in the order of their IDs. A Service's is the one
// that its annotation names, and only if the Service holds it, which a name in an annotation does not prove, and it could be deleted with
// the Service (see [MayDelete]): the tag is what allows that and a take-over, so that it MUST NOT be put on what may be another cluster's, a
// person's, or another Service's. Those that a Service has let go of are left out, and
// those whose tags are not shown are in, since they are unknown.
func Untagged(services []*corev1.Service, list []Observed, clusterID string, droplets []int) []Observed {
	tag := ClusterTag(clusterID)
	if tag == "" {
		return nil
	}
	var out []Observed
	for _, service := range services {
		id := service.Annotations[annotation.LoadBalancerID]
		if id == "" || Asks(service) != nil || service.DeletionTimestamp != nil {
			continue
		}
		i := slices.IndexFunc(list, func(o Observed) bool { return o.ID == id })
		if i < 0 || slices.ContainsFunc(list[i].Tags, func(t string) bool { return strings.EqualFold(t, tag) }) {
			continue
		}
		search := Search{Service: service, Others: services, ClusterID: clusterID, Droplets: droplets}
		if may, _ := MayDelete(search, list[i]); may && search.claimOf(service, list[i]) != none {
			out = append(out, list[i])
		}
	}
	slices.SortFunc(out, func(a, b Observed) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b Observed) bool { return a.ID == b.ID })
}
