// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// use is who listens on a port of the machines themselves, "" if nobody is known to. Anyone who may write a Service would open such a port
// on all machines, for everybody; and it would not even be served: kube-proxy answers on it in place of who should, or does not. WireGuard's
// ports are not among them: it is made to be reached by strangers.
func use(protocol, port string) string {
	return map[string]string{
		protocolTCP + " 22":    "SSH",
		protocolTCP + " 179":   "BGP between the machines",
		protocolTCP + " 2379":  "etcd",
		protocolTCP + " 2380":  "etcd between its members",
		protocolTCP + " 5473":  "Calico's Typha",
		protocolTCP + " 6443":  "the Kubernetes API server",
		protocolTCP + " 10250": "the kubelet",
		protocolTCP + " 10255": "the kubelet, read-only",
		protocolTCP + " 10257": "kube-controller-manager",
		protocolTCP + " 10259": "kube-scheduler",
		protocolUDP + " 4789":  "VXLAN, which carries the traffic of pods",
		protocolUDP + " 8472":  "VXLAN, which carries the traffic of pods",
	}[protocol+" "+port]
}

// spared takes the machines' own ports out of what a Service opens to addresses, with a warning for each. A load balancer may still check one.
func (in Input) spared(service *corev1.Service, rules []InboundRule) (left []InboundRule, warnings []Warning) {
	if in.Config.AllowReserved {
		return rules, nil
	}
	for _, r := range rules {
		owner := use(r.Protocol, r.Ports)
		if owner == "" || len(r.Sources.Addresses) == 0 {
			left = append(left, r)
			continue
		}
		warnings = append(warnings, Warning{Service: service, Warning: annotation.Warning{
			Reason: annotation.ReasonPortReserved,
			Message: fmt.Sprintf("the firewall does not open %s, which this service asks for: on the machines it is that of %s; take another port, or start the cloud controller manager "+
				"with --firewall-allow-reserved-ports", what(r.Protocol, r.Ports), owner),
		}})
	}
	return left, warnings
}
