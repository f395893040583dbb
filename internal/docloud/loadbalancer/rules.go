// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// securePort gets https by itself when there is a certificate or passthrough and no list says otherwise.
const securePort = 443

// forwarding builds the forwarding rules of one Service.
type forwarding struct {
	// service is with the cluster's defaults, own are the annotations without.
	service     *corev1.Service
	own         map[string]string
	settings    annotation.Settings
	certificate string
	warnings    []annotation.Warning
	problems    Problems
}

// rules returns one rule per port of the Service, in the order of the ports, and one for HTTP/3 after them.
func (f *forwarding) rules() []ForwardingRule {
	var rules []ForwardingRule
	regional := f.settings.Type == annotation.TypeRegional
	protocols := f.protocols()
	for _, port := range f.service.Spec.Ports {
		f.checkPort(port)
		protocol := annotation.ProtocolTCP
		switch {
		case port.Protocol == corev1.ProtocolUDP:
			protocol = annotation.ProtocolUDP
		case regional:
			protocol = f.settings.Protocol
			if named, ok := protocols[port.Port]; ok {
				protocol = named
			}
		}
		rule := ForwardingRule{EntryProtocol: protocol, EntryPort: int(port.Port), TargetProtocol: protocol, TargetPort: int(port.Port)}
		if regional {
			rule.TargetPort = int(port.NodePort)
		}
		if protocol == annotation.ProtocolHTTPS || protocol == annotation.ProtocolHTTP2 {
			f.secure(&rule)
		}
		rules = append(rules, rule)
	}
	if regional {
		rules = f.http3(rules)
		f.unusedSettings(rules)
	}
	return rules
}

// checkPort refuses what no load balancer forwards and warns of what DigitalOcean will refuse.
func (f *forwarding) checkPort(port corev1.ServicePort) {
	switch {
	case port.Protocol != corev1.ProtocolTCP && port.Protocol != corev1.ProtocolUDP:
		f.problems = append(f.problems, &SpecError{
			Field: fmt.Sprintf("the protocol of port %d", port.Port), Value: string(port.Protocol), Problem: "it must be TCP or UDP",
		})
	case f.settings.Type == annotation.TypeRegional && port.NodePort == 0 && f.noNodePorts():
		f.warn(fmt.Sprintf("port %d has no node port, without which a %s load balancer cannot reach it", port.Port, annotation.TypeRegional))
	case port.Port >= assumed.ReservedPortFirst && port.Port <= assumed.ReservedPortLast:
		f.warn(fmt.Sprintf("port %d will be refused: DigitalOcean keeps %d to %d for itself", port.Port, assumed.ReservedPortFirst, assumed.ReservedPortLast))
	}
}

// noNodePorts reports that a missing node port is none to come: the Service is one that the API server has seen, or asks for none.
func (f *forwarding) noNodePorts() bool {
	allocate := f.service.Spec.AllocateLoadBalancerNodePorts
	return f.service.UID != "" || allocate != nil && !*allocate
}

func (f *forwarding) warn(message string) {
	f.warnings = append(f.warnings, annotation.Warning{Reason: ReasonSpec, Message: message})
}

func (f *forwarding) idle(name, problem string) {
	if annotation.IsDefault(name, f.own, f.service.Annotations) {
		return
	}
	f.warnings = append(f.warnings, annotation.Warning{
		Reason: annotation.ReasonNoEffect, Message: fmt.Sprintf("annotation %s is %s, %s", name, annotation.Quote(f.service.Annotations[name]), problem),
	})
}

// ReasonSpec (Warning): a field of the Service's spec is sent as it is, or ignored. MUST NOT change: it is the reason of an event.
const ReasonSpec = "ServiceFieldDoubtful"

// protocols returns the protocols that the lists give to ports. A later list wins over an earlier one: http2 over the https that 443 gets by
// itself, and for numbers that are not ports, which the upstream project cuts to 32 bits after it has looked for duplicates.
func (f *forwarding) protocols() map[int32]string {
	s := f.settings
	secure := f.certificate != "" || s.TLSPassthrough
	if secure && len(s.TLSPorts) == 0 {
		s.TLSPorts = []int{securePort}
	}
	protocols := map[int32]string{}
	for _, list := range []struct {
		ports    []int
		protocol string
	}{{s.HTTPPorts, annotation.ProtocolHTTP}, {s.TLSPorts, annotation.ProtocolHTTPS}, {s.HTTP2Ports, annotation.ProtocolHTTP2}} {
		for _, port := range list.ports {
			protocols[int32(port)] = list.protocol
		}
	}
	return protocols
}

// secure completes a rule with https or http2, which needs a certificate or passthrough and not both.
func (f *forwarding) secure(rule *ForwardingRule) {
	switch {
	case f.certificate == "" && !f.settings.TLSPassthrough:
		f.tlsProblem(rule, fmt.Sprintf("so that it needs %s, %s or %s: set one of them",
			annotation.CertificateID, annotation.CertificateName, annotation.TLSPassthrough))
	case f.certificate != "" && f.settings.TLSPassthrough:
		name := f.certificateBy()
		f.tlsProblem(rule, fmt.Sprintf("but annotation %s is %q and %s is %q: remove one of them",
			name, f.service.Annotations[name], annotation.TLSPassthrough, f.service.Annotations[annotation.TLSPassthrough]))
	case f.settings.TLSPassthrough:
		rule.TLSPassthrough = true
	default:
		rule.CertificateID, rule.TargetProtocol = f.certificate, annotation.ProtocolHTTP
	}
}

// certificateBy is the annotation that names the certificate.
func (f *forwarding) certificateBy() string {
	switch {
	case f.settings.CertificateID != "":
		return annotation.CertificateID
	case len(f.settings.CertificateDomains) > 0:
		return annotation.CertificateDomains
	}
	return annotation.CertificateName
}

// tlsProblem refuses a port once; what is wrong is the same for all others.
func (f *forwarding) tlsProblem(rule *ForwardingRule, problem string) {
	if slices.ContainsFunc(f.problems, func(err error) bool { _, ok := err.(*tlsError); return ok }) { //nolint:errorlint // own list, unwrapped
		return
	}
	f.problems = append(f.problems, &tlsError{rule: *rule, problem: problem})
}

// tlsError is a port that needs TLS and cannot have it.
type tlsError struct {
	rule    ForwardingRule
	problem string
}

func (e *tlsError) Error() string {
	return fmt.Sprintf("port %d has the protocol %s, %s", e.rule.EntryPort, e.rule.EntryProtocol, e.problem)
}

// http3 appends the rule for HTTP/3. The port must be one of the Service's; without it nothing is added.
func (f *forwarding) http3(rules []ForwardingRule) []ForwardingRule {
	if f.settings.HTTP3Port == nil {
		return rules
	}
	number := *f.settings.HTTP3Port
	refuse := func(problem string) []ForwardingRule {
		f.problems = append(f.problems, &annotation.Error{
			Annotation: annotation.HTTP3Port, Value: f.service.Annotations[annotation.HTTP3Port], Problem: problem,
		})
		return rules
	}
	switch {
	case f.settings.TLSPassthrough:
		return refuse(fmt.Sprintf("but %s is %q: TLS cannot be passed through for HTTP/3, remove one of them",
			annotation.TLSPassthrough, f.service.Annotations[annotation.TLSPassthrough]))
	case f.certificate == "":
		return refuse(fmt.Sprintf("so that it needs %s or %s: set one of them", annotation.CertificateID, annotation.CertificateName))
	}
	i := slices.IndexFunc(f.service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == int32(number) })
	if i < 0 {
		f.idle(annotation.HTTP3Port, "but the Service has no such port")
		return rules
	}
	return append(rules, ForwardingRule{
		EntryProtocol: annotation.ProtocolHTTP3, EntryPort: number, CertificateID: f.certificate,
		TargetProtocol: annotation.ProtocolHTTP, TargetPort: int(f.service.Spec.Ports[i].NodePort),
	})
}

// unusedSettings warns of listed ports that the Service does not have, and of certificates and passthrough that no rule uses.
func (f *forwarding) unusedSettings(rules []ForwardingRule) {
	s := f.settings
	for _, list := range []struct {
		name  string
		ports []int
	}{{annotation.HTTPPorts, s.HTTPPorts}, {annotation.TLSPorts, s.TLSPorts}, {annotation.HTTP2Ports, s.HTTP2Ports}} {
		var missing []string
		for _, port := range list.ports {
			if !slices.ContainsFunc(f.service.Spec.Ports, func(p corev1.ServicePort) bool {
				return int(p.Port) == port && p.Protocol != corev1.ProtocolUDP
			}) {
				missing = append(missing, strconv.Itoa(port))
			}
		}
		if len(missing) > 0 {
			f.idle(list.name, "but the Service has no TCP port "+strings.Join(missing, ", "))
		}
	}
	if len(f.problems) > 0 {
		return
	}
	const unused = "but no port of the Service uses it: name one in " + annotation.TLSPorts
	if s.TLSPassthrough && !slices.ContainsFunc(rules, func(r ForwardingRule) bool { return r.TLSPassthrough }) {
		f.idle(annotation.TLSPassthrough, unused)
	}
	if f.certificate != "" && !slices.ContainsFunc(rules, func(r ForwardingRule) bool { return r.CertificateID != "" }) {
		f.idle(f.certificateBy(), unused)
	}
}
