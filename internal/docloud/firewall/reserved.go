// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// use is who listens on a port of the machines themselves, "" if nobody is known to. Anyone who may write a Service would open such a port
// on all machines, for everybody; and it would not even be served: kube-proxy answers on it in place of who should, or does not. WireGuard's
// ports are not among them: it is made to be reached by strangers.
func use(protocol, port string) string {
	return map[string]string{
		protocolTCP + " 22":    "SSH",
		protocolTCP + " 111":   "rpcbind",
		protocolTCP + " 179":   "BGP between the machines",
		protocolTCP + " 2379":  "etcd",
		protocolTCP + " 2380":  "etcd between its members",
		protocolTCP + " 2381":  "etcd's metrics",
		protocolTCP + " 5473":  "Calico's Typha",
		protocolTCP + " 6443":  "the Kubernetes API server",
		protocolTCP + " 9091":  "the metrics of Calico's Felix",
		protocolTCP + " 9100":  "Prometheus' node exporter",
		protocolTCP + " 9178":  "calico-route-reflector-operator",
		protocolTCP + " 9179":  "calico-route-reflector-operator",
		protocolTCP + " 10249": "the metrics of kube-proxy",
		protocolTCP + " 10250": "the kubelet",
		protocolTCP + " 10255": "the kubelet, read-only",
		protocolTCP + " 10257": "kube-controller-manager",
		protocolTCP + " 10258": "the cloud controller manager",
		protocolTCP + " 10259": "kube-scheduler",
		protocolTCP + " 10260": "the cloud controller manager's webhooks",
		protocolUDP + " 111":   "rpcbind",
		protocolUDP + " 4789":  "VXLAN, which carries the traffic of pods",
		protocolUDP + " 8472":  "VXLAN, which carries the traffic of pods",
	}[protocol+" "+port]
}

// ParsePorts reads ports such as 22 and 4789/udp, separated by commas; without a protocol they are of TCP.
func ParsePorts(text string) ([]string, error) {
	var ports []string
	for port := range strings.SplitSeq(text, ",") {
		number, protocol, named := strings.Cut(strings.ToLower(strings.TrimSpace(port)), "/")
		if !named {
			protocol = protocolTCP
		}
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 || protocol != protocolTCP && protocol != protocolUDP {
			return nil, fmt.Errorf("%q is not a port: give ports such as 22 and 4789/udp, separated by commas", port)
		}
		ports = append(ports, what(protocol, strconv.FormatUint(n, 10)))
	}
	return ports, nil
}

// AllowFlag is the flag that allows Services to open reserved ports: true for all, or some in the form of [ParsePorts].
type AllowFlag struct{ *Config }

// Set implements the Value of a flag.
func (f AllowFlag) Set(text string) (err error) {
	f.Allowed, f.AllowReserved = nil, text == "true"
	if text != "true" && text != "false" {
		f.Allowed, err = ParsePorts(text)
	}
	return err
}

// String implements the Value of a flag.
func (f AllowFlag) String() string {
	if f.Config == nil || len(f.Allowed) == 0 {
		return strconv.FormatBool(f.Config != nil && f.AllowReserved)
	}
	return strings.Join(f.Allowed, ", ")
}

// Type implements the Value of a flag.
func (AllowFlag) Type() string { return "ports" }

// spared takes the machines' own ports out of what a Service opens to addresses, with a warning for each. A load balancer may still check one.
func (in Input) spared(service *corev1.Service, rules []InboundRule) (left []InboundRule, warnings []Warning) {
	for _, r := range rules {
		owner, port := use(r.Protocol, r.Ports), what(r.Protocol, r.Ports)
		if owner == "" && slices.Contains(in.Config.Reserved, port) {
			owner = "a program of your own (--firewall-reserved-ports)"
		}
		allowed := in.Config.AllowReserved || slices.Contains(in.Config.Allowed, port)
		if owner == "" || allowed || len(r.Sources.Addresses) == 0 {
			left = append(left, r)
			continue
		}
		warnings = append(warnings, Warning{Service: service, Warning: annotation.Warning{
			Reason: annotation.ReasonPortReserved,
			Message: fmt.Sprintf("the firewall does not open %s, which this service asks for: on the machines it is that of %s; take another port, or start the cloud controller manager "+
				"with --firewall-allow-reserved-ports", port, owner),
		}})
	}
	return left, warnings
}
