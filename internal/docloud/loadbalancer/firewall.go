// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// firewallOf builds the load balancer's firewall. spec.loadBalancerSourceRanges wins over the annotation with allow rules. Ranges are written in
// their shortest form, without duplicates and sorted: the upstream project sends them in random order, which made every comparison differ.
func firewallOf(service *corev1.Service, s annotation.Settings) (Firewall, []annotation.Warning, error) {
	f := Firewall{Allow: s.Allow, Deny: s.Deny}
	if len(service.Spec.LoadBalancerSourceRanges) == 0 {
		return f, nil, nil
	}
	var warnings []annotation.Warning
	if _, own := service.Annotations[annotation.AllowRules]; own && len(s.Allow) > 0 {
		warnings = append(warnings, annotation.Warning{
			Reason:  annotation.ReasonNoEffect,
			Message: "annotation " + annotation.AllowRules + " has no effect alongside spec.loadBalancerSourceRanges",
		})
	}
	f.Allow = nil
	for _, written := range service.Spec.LoadBalancerSourceRanges {
		prefix, ok := parseRange(written)
		if !ok {
			return f, warnings, &SpecError{
				Field: "spec.loadBalancerSourceRanges", Value: written, Problem: "it must be a range such as 192.0.2.0/24 or 2001:db8::/32",
			}
		}
		f.Allow = append(f.Allow, "cidr:"+prefix.String())
	}
	slices.Sort(f.Allow)
	f.Allow = slices.Compact(f.Allow)
	return f, warnings, nil
}

// parseRange reads a range as Kubernetes does (k8s.io/utils/net, ParseIPNets): blanks around it and leading zeros do not matter, host bits are
// cleared, and an IPv4 range written as IPv6 is one of IPv4.
func parseRange(s string) (netip.Prefix, bool) {
	host, mask, found := strings.Cut(strings.TrimSpace(s), "/")
	bits, ok := digits(mask)
	if !found || !ok {
		return netip.Prefix{}, false
	}
	address, err := netip.ParseAddr(withoutZeros(host))
	if err != nil || address.Zone() != "" || bits > address.BitLen() {
		return netip.Prefix{}, false
	}
	if address.Is4In6() && bits >= 96 {
		address, bits = address.Unmap(), bits-96
	}
	return netip.PrefixFrom(address, bits).Masked(), true
}

// digits reads a number that has nothing but digits.
func digits(s string) (int, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// withoutZeros removes leading zeros from each part of an address, which netip refuses.
func withoutZeros(address string) string {
	var out strings.Builder
	for len(address) > 0 {
		end := strings.IndexAny(address, ".:")
		if end < 0 {
			end = len(address)
		}
		part := address[:end]
		for len(part) > 1 && part[0] == '0' {
			part = part[1:]
		}
		out.WriteString(part)
		if end < len(address) {
			out.WriteByte(address[end])
			end++
		}
		address = address[end:]
	}
	return out.String()
}
