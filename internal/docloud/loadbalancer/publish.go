// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Published is what a Service's status shows.
type Published struct {
	Status corev1.LoadBalancerStatus
	// Ready reports that Status may be shown. Otherwise Message says in one sentence what is waited for, or, with Failed, what is wrong.
	Ready   bool
	Failed  bool
	Message string
}

// Publish returns what the status of a Service shows of its load balancer: the hostname of its annotation, else the load balancer's IPv4
// address and then its IPv6 address. The answer is the same no matter who asks; the upstream project forgets the hostname when only asked for
// the status.
//
// The mode of the addresses is VIP, which lets kube-proxy deliver connections from within the cluster without going through the load balancer.
// That is wrong where the load balancer speaks the PROXY protocol: the droplets expect its header and kube-proxy sends none (the upstream project's
// issue 811). There the mode is Proxy, which needs no hostname as a detour. What counts is what the load balancer does, not what is asked for.
func Publish(service *corev1.Service, o Observed) Published {
	switch {
	case o.Status == StatusNew:
		return Published{Message: fmt.Sprintf("%s is being made", o)}
	case o.Status != StatusActive:
		return Published{
			Failed: true, Message: fmt.Sprintf("%s has the status %q: DigitalOcean could not make it; delete it there to have it created again", o, o.Status),
		}
	}
	// Wrong annotations are for Desired to tell; the hostname is independent of them.
	settings, _, _ := annotation.Parse(service.Annotations, annotation.Options{FixedType: o.Type})
	if settings.Hostname != "" {
		return Published{Ready: true, Status: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{Hostname: settings.Hostname}}}}
	}
	mode := corev1.LoadBalancerIPModeVIP
	if o.EnableProxyProtocol && o.Type == annotation.TypeRegional {
		mode = corev1.LoadBalancerIPModeProxy
	}
	var p Published
	for _, ip := range []string{o.IP, o.IPv6} {
		if ip != "" {
			p.Status.Ingress = append(p.Status.Ingress, corev1.LoadBalancerIngress{IP: ip, IPMode: &mode})
		}
	}
	if p.Ready = len(p.Status.Ingress) > 0; !p.Ready {
		p.Message = fmt.Sprintf("%s has no address yet", o)
	}
	return p
}

// sameStatus reports whether two statuses show the same.
func sameStatus(a, b corev1.LoadBalancerStatus) bool {
	return slices.EqualFunc(a.Ingress, b.Ingress, func(x, y corev1.LoadBalancerIngress) bool {
		mode := func(m *corev1.LoadBalancerIPMode) corev1.LoadBalancerIPMode {
			if m == nil {
				return ""
			}
			return *m
		}
		return x.IP == y.IP && x.Hostname == y.Hostname && mode(x.IPMode) == mode(y.IPMode) && len(x.Ports) == len(y.Ports)
	})
}

// addressesIn are those of a status, for people.
func addressesIn(status corev1.LoadBalancerStatus) string {
	var all []string
	for _, in := range status.Ingress {
		for _, address := range []string{in.IP, in.Hostname} {
			if address != "" {
				all = append(all, address)
			}
		}
	}
	return strings.Join(all, " and ")
}
