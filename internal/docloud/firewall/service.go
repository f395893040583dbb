// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"errors"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// open returns the rules that a Service needs. Services of other types than NodePort and LoadBalancer need none, and neither do those whose
// annotation reports that the firewall is their owner's business.
func (in Input) open(service *corev1.Service) ([]InboundRule, []annotation.Warning, error) {
	if service.Spec.Type != corev1.ServiceTypeNodePort && service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil, nil, nil
	}
	managed, warnings := annotation.IsFirewallManaged(in.Config.Defaults.Over(service.Annotations))
	switch {
	case !managed:
		return nil, warnings, nil
	case service.Spec.Type == corev1.ServiceTypeNodePort:
		return nodePorts(service), warnings, nil
	}
	rules, err := in.balanced(service)
	return rules, warnings, err
}

// nodePorts opens the node ports of a Service to everybody. A port without one has none yet.
func nodePorts(service *corev1.Service) []InboundRule {
	var rules []InboundRule
	for _, port := range service.Spec.Ports {
		if protocol, ok := protocolOf(port); ok && port.NodePort != 0 {
			rules = append(rules, InboundRule{Protocol: protocol, Ports: number(port.NodePort), Sources: anywhere()})
		}
	}
	return rules
}

// balanced returns what the load balancer of a Service needs of the droplets. One of type REGIONAL, or an internal one, reaches them on its own
// ways. A network load balancer hands packets on with the client's address and its own port, so that the port is open to the clients; and it
// checks the droplets from its own address, which is not known before it has an ID.
func (in Input) balanced(service *corev1.Service) ([]InboundRule, error) {
	settings, _, err := annotation.Parse(service.Annotations, annotation.Options{DefaultType: in.Config.DefaultType, Defaults: in.Config.Defaults})
	if err := relevant(err); err != nil {
		return nil, err
	}
	effective := loadbalancer.Cluster{Defaults: in.Config.Defaults}.Effective(service)
	switch {
	case settings.Type != annotation.TypeRegionalNetwork:
		return nil, nil
	case settings.Network != annotation.NetworkExternal && settings.ID != "" && annotation.IsDefault(annotation.Network, service.Annotations, effective.Annotations):
		// The load balancer may be older than the default, and its network does not change: a default closes nothing.
		return in.kept(service), nil
	case settings.Network != annotation.NetworkExternal:
		return nil, nil
	}
	rules, err := in.passed(effective, settings)
	return rules, loadbalancer.Blame(err, service, effective)
}

// passed returns what an external network load balancer needs. The Service is with the cluster's defaults.
func (in Input) passed(service *corev1.Service, settings annotation.Settings) ([]InboundRule, error) {
	sources, err := loadbalancer.Sources(service, settings)
	if err != nil {
		return nil, err
	}
	clients := anywhere()
	if len(sources) > 0 {
		clients = Peers{}
		for _, prefix := range sources {
			clients.Addresses = append(clients.Addresses, prefix.String())
		}
	}
	var rules []InboundRule
	for _, port := range service.Spec.Ports {
		if protocol, ok := protocolOf(port); ok {
			rules = append(rules, InboundRule{Protocol: protocol, Ports: number(port.Port), Sources: clients})
		}
	}
	checked, err := loadbalancer.HealthPorts(service, settings.HealthCheck)
	if err != nil {
		return nil, err
	}
	checker := anywhere()
	if settings.ID != "" {
		if in.Balancers != nil && !slices.Contains(in.Balancers, settings.ID) {
			return nil, &annotation.Error{
				Annotation: annotation.LoadBalancerID, Value: settings.ID, Problem: "but the account has no such load balancer",
			}
		}
		checker = Peers{LoadBalancerUIDs: []string{settings.ID}}
	}
	for _, port := range checked {
		rules = append(rules, InboundRule{Protocol: protocolTCP, Ports: strconv.Itoa(port), Sources: checker})
	}
	return rules, nil
}

// relevant returns the errors about annotations that the firewall depends on, nil for none. What else is wrong stops the load balancer and not
// the firewall: it goes on for the load balancer there is.
func relevant(err error) error {
	wrong, ok := errors.AsType[annotation.Errors](err)
	if !ok {
		return nil
	}
	wrong = slices.DeleteFunc(slices.Clone(wrong), func(e *annotation.Error) bool {
		return !slices.Contains([]string{annotation.Type, annotation.Network, annotation.HealthCheckPort}, e.Annotation)
	})
	if len(wrong) == 0 {
		return nil
	}
	return wrong
}

// kept returns what the firewall there is may have for the sake of a Service that cannot be understood: by its ports and node ports for
// addresses, and by its health check ports for its load balancer, or for everybody while that had no ID.
func (in Input) kept(service *corev1.Service) []InboundRule {
	served, checked := map[string]bool{}, map[string]bool{}
	checked[protocolTCP+strconv.Itoa(loadbalancer.KubeProxyPort)] = true
	checked[protocolTCP+number(service.Spec.HealthCheckNodePort)] = true
	for _, port := range service.Spec.Ports {
		if protocol, ok := protocolOf(port); ok {
			served[protocol+number(port.Port)], served[protocol+number(port.NodePort)] = true, true
			checked[protocolTCP+number(port.NodePort)] = true
		}
	}
	id := service.Annotations[annotation.LoadBalancerID]
	if in.Balancers != nil && !slices.Contains(in.Balancers, id) {
		id = ""
	}
	if in.Observed == nil {
		return nil
	}
	var out []InboundRule
	for _, r := range in.Observed.InboundRules {
		port := r.Protocol + normalPorts(r.Protocol, r.Ports)
		if port == r.Protocol+allPorts {
			continue
		}
		r.Sources = r.Sources.keep(func(p peer) bool {
			switch p.kind {
			case kindAddress:
				return served[port] || checked[port] && slices.Contains(anywhere().Addresses, p.value)
			case kindLoadBalancer:
				return checked[port] && id != "" && p.value == id
			}
			return false
		})
		if len(r.Sources.each()) > 0 {
			out = append(out, r)
		}
	}
	return unique(out)
}

// protocolOf returns the protocol of a port as a firewall spells it, and false for one that it does not know. No protocol is TCP: the API server
// fills that in.
func protocolOf(port corev1.ServicePort) (string, bool) {
	switch port.Protocol {
	case corev1.ProtocolTCP, "":
		return protocolTCP, true
	case corev1.ProtocolUDP:
		return protocolUDP, true
	case corev1.ProtocolSCTP:
	}
	return "", false
}

func number(port int32) string { return strconv.Itoa(int(port)) }
