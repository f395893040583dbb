// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

func TestPublish(t *testing.T) {
	t.Parallel()
	vip, proxy := corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy
	active := loadbalancer.Observed{ID: "lb", Name: "web", Type: regional, Status: loadbalancer.StatusActive, IP: "203.0.113.9"}
	with := func(change func(*loadbalancer.Observed)) loadbalancer.Observed {
		o := active
		change(&o)
		return o
	}
	ready := func(ingress ...corev1.LoadBalancerIngress) loadbalancer.Published {
		return loadbalancer.Published{Ready: true, Status: corev1.LoadBalancerStatus{Ingress: ingress}}
	}
	for name, tt := range map[string]struct {
		service *corev1.Service
		lb      loadbalancer.Observed
		want    loadbalancer.Published
	}{
		"an address":    {service(), active, ready(corev1.LoadBalancerIngress{IP: "203.0.113.9", IPMode: &vip})},
		"two addresses": {service(), with(func(o *loadbalancer.Observed) { o.IPv6 = "2001:db8::9" }), ready(corev1.LoadBalancerIngress{IP: "203.0.113.9", IPMode: &vip}, corev1.LoadBalancerIngress{IP: "2001:db8::9", IPMode: &vip})},
		"a hostname":    {service("hostname", "Web.Example.COM"), active, ready(corev1.LoadBalancerIngress{Hostname: "web.example.com"})},
		"a hostname alongside an annotation that is wrong": {service("hostname", "web.example.com", "size-unit", "x"), active, ready(corev1.LoadBalancerIngress{Hostname: "web.example.com"})},
		"no hostname at all":                   {service("hostname", "no name"), active, ready(corev1.LoadBalancerIngress{IP: "203.0.113.9", IPMode: &vip})},
		"the PROXY protocol":                   {service(), with(func(o *loadbalancer.Observed) { o.EnableProxyProtocol = true }), ready(corev1.LoadBalancerIngress{IP: "203.0.113.9", IPMode: &proxy})},
		"the PROXY protocol is asked for only": {service("enable-proxy-protocol", "true"), active, ready(corev1.LoadBalancerIngress{IP: "203.0.113.9", IPMode: &vip})},
		"a network load balancer has none":     {service(), with(func(o *loadbalancer.Observed) { o.EnableProxyProtocol, o.Type = true, network }), ready(corev1.LoadBalancerIngress{IP: "203.0.113.9", IPMode: &vip})},
		"new":                                  {service("hostname", "web.example.com"), with(func(o *loadbalancer.Observed) { o.Status = loadbalancer.StatusNew }), loadbalancer.Published{Message: `load balancer "web" (lb) is being made`}},
		"errored":                              {service(), with(func(o *loadbalancer.Observed) { o.Status = loadbalancer.StatusErrored }), loadbalancer.Published{Failed: true, Message: `load balancer "web" (lb) has the status "errored": DigitalOcean could not make it; delete it there to have it created again`}},
		"active, no address yet":               {service(), with(func(o *loadbalancer.Observed) { o.IP = "" }), loadbalancer.Published{Message: `load balancer "web" (lb) has no address yet`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, loadbalancer.Publish(tt.service, tt.lb)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
