// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

const (
	// kubeProxyPort and healthPath are where kube-proxy reports whether a node takes traffic (KEP-3836).
	kubeProxyPort = 10256
	healthPath    = "/healthz"
)

// healthCheckOf builds the health check. By default kube-proxy is asked: on the Service's own health check port if it wants local traffic only,
// else on kube-proxy's; neither speaks the PROXY protocol, so that the check is told not to. With the override the Service's own port is
// checked, by the load balancer's own setting of the PROXY protocol.
func healthCheckOf(service *corev1.Service, s annotation.HealthCheck) (HealthCheck, error) {
	plain := false
	h := HealthCheck{
		Protocol: annotation.ProtocolHTTP, Port: kubeProxyPort, Path: healthPath, ProxyProtocol: &plain,
		Interval: s.Interval, Timeout: s.Timeout, HealthyThreshold: s.HealthyThreshold, UnhealthyThreshold: s.UnhealthyThreshold,
	}
	spec := service.Spec
	if spec.Type == corev1.ServiceTypeLoadBalancer && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && spec.HealthCheckNodePort != 0 {
		h.Port = int(spec.HealthCheckNodePort)
	}
	if !s.Override {
		return h, nil
	}
	port, err := checkedPort(service, s.Port)
	if err != nil {
		return h, err
	}
	h.Protocol, h.Port, h.Path, h.ProxyProtocol = s.Protocol, port, s.Path, nil
	return h, nil
}

// checkedPort returns the node port of the port that is checked: the one asked for, else the first TCP port.
func checkedPort(service *corev1.Service, asked *int) (int, error) {
	refuse := func(name, problem string) error {
		return &annotation.Error{Annotation: name, Value: service.Annotations[name], Problem: problem}
	}
	var tcp []string
	for _, p := range service.Spec.Ports {
		switch {
		case asked == nil && p.Protocol == corev1.ProtocolTCP:
			return int(p.NodePort), nil
		case asked != nil && int(p.Port) == *asked && p.Protocol == corev1.ProtocolUDP:
			return 0, refuse(annotation.HealthCheckPort, "but that is a UDP port, which cannot be checked")
		case asked != nil && int(p.Port) == *asked:
			return int(p.NodePort), nil
		case p.Protocol == corev1.ProtocolTCP:
			tcp = append(tcp, fmt.Sprint(p.Port))
		}
	}
	switch {
	case asked == nil:
		return 0, refuse(annotation.OverrideHealthCheck, "but the Service has no TCP port that could be checked")
	case len(tcp) == 0:
		return 0, refuse(annotation.HealthCheckPort, "but the Service has no such port, and no TCP port at all")
	}
	return 0, refuse(annotation.HealthCheckPort, "but the Service has no such port: its TCP ports are "+strings.Join(tcp, ", "))
}
