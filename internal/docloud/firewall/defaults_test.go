// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
)

// The cluster's defaults count for the firewall as they do for load balancers.
func TestDefaults(t *testing.T) {
	t.Parallel()
	const balancer, nodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort
	const external = "tcp 80" + everybody
	before := []firewall.InboundRule{
		{Protocol: "tcp", Ports: "80", Sources: firewall.Peers{Addresses: []string{"0.0.0.0/0", "::/0"}}},
		{Protocol: "tcp", Ports: "10256", Sources: firewall.Peers{LoadBalancerUIDs: []string{"lb-1"}}},
	}
	for name, tt := range map[string]struct {
		defaults map[string]string
		service  *corev1.Service
		before   []firewall.InboundRule
		want     string
		problem  string
	}{
		"no default":            {nil, service(balancer), nil, external + "; tcp 10256" + everybody, ""},
		"who may connect":       {map[string]string{annotation.AllowRules: "cidr:10.0.0.0/8"}, service(balancer), nil, "tcp 80 from 10.0.0.0/8; tcp 10256" + everybody, ""},
		"its own ranges":        {map[string]string{annotation.AllowRules: "cidr:10.0.0.0/8"}, service(balancer, ranges("192.0.2.0/24")), nil, "tcp 80 from 192.0.2.0/24; tcp 10256" + everybody, ""},
		"not managed":           {map[string]string{annotation.FirewallManaged: "false"}, service(nodePort), nil, "", ""},
		"managed all the same":  {map[string]string{annotation.FirewallManaged: "false"}, service(nodePort, with(annotation.FirewallManaged, "true")), nil, "tcp 30080" + everybody, ""},
		"internal":              {map[string]string{annotation.Network: "INTERNAL"}, service(balancer), before, "", ""},
		"external all the same": {map[string]string{annotation.Network: "INTERNAL"}, service(balancer, with(annotation.Network, "EXTERNAL")), nil, external + "; tcp 10256" + everybody, ""},
		"internal, a load balancer that is older": {map[string]string{annotation.Network: "INTERNAL"}, service(balancer, with(annotation.LoadBalancerID, "lb-1")), before,
			external + "; tcp 10256 from load balancer lb-1", ""},
		"internal, one that was made so": {map[string]string{annotation.Network: "INTERNAL"}, service(balancer, with(annotation.LoadBalancerID, "lb-1")), []firewall.InboundRule{}, "", ""},
		"internal, by its own word":      {map[string]string{annotation.Network: "INTERNAL"}, service(balancer, with(annotation.LoadBalancerID, "lb-1"), with(annotation.Network, "INTERNAL")), before, "", ""},
		"a port that is not there": {map[string]string{annotation.HealthCheckPort: "81"}, service(balancer, with(annotation.OverrideHealthCheck, "")), nil, "",
			`annotation ` + annotation.HealthCheckPort + ` is "81" by the cluster's default, but the Service has no such port`},
	} {
		in := firewall.Input{Config: config(), Services: []*corev1.Service{tt.service}}
		var err error
		if in.Config.Defaults, _, err = annotation.NewDefaults(tt.defaults); err != nil {
			t.Fatal(err)
		}
		if tt.before != nil {
			in.Observed = &firewall.Observed{ID: "fw", InboundRules: tt.before}
		}
		result := firewall.Desired(in)
		if got := rules(result.Request.InboundRules); got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
		if (tt.problem != "") != (len(result.Problems) == 1) || tt.problem != "" && !strings.HasPrefix(result.Problems[0].Err.Error(), tt.problem) {
			t.Errorf("%s: %+v", name, result.Problems)
		}
	}
}
