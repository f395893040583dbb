// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Desired returns what the load balancer of a Service must be. The error is [Problems], every reason at once; the result then still holds the
// warnings and the Nodes left out.
//
// What DigitalOcean does not let change (type, network, network stack, region, VPC) is taken from the load balancer there is; if something
// else is asked for, a warning says so. The name of a load balancer that was renamed by hand is kept while no annotation asks for another.
func Desired(in Input) (Result, error) {
	service := in.Cluster.Effective(in.Service)
	s, warnings, err := annotation.Parse(in.Service.Annotations, in.options())
	result := Result{Warnings: warnings, Disowned: s.Disowned}
	var problems Problems
	if errs, ok := errors.AsType[annotation.Errors](err); ok {
		problems = append(problems, errs.Unwrap()...)
	}
	if s.Type != annotation.TypeRegional && s.Type != annotation.TypeRegionalNetwork {
		return result, append(problems, fmt.Errorf("%w: %s is of type %s, which a Service cannot have", ErrNotOurs, in.Observed, s.Type))
	}
	fixed := in.fixed(s, &result)
	req := in.plain(s, fixed)

	// A wrong annotation makes the rules that depend on it wrong as well; it is enough to say so once.
	parsed := err == nil
	if fixed.problem != nil {
		problems = append(problems, fixed.problem)
	}
	certificate := ""
	if parsed && s.Type == annotation.TypeRegional {
		if certificate, err = in.certificate(s, &result); err != nil {
			problems, parsed = append(problems, err), false
		}
	}
	f := forwarding{service: service, own: in.Service.Annotations, settings: s, certificate: certificate}
	req.ForwardingRules = in.forwards(&f, &result)
	problems = append(problems, relevant(f.problems, parsed && result.Certificate == nil)...)
	if req.HealthCheck, err = healthCheckOf(service, s.HealthCheck); err != nil && parsed {
		problems = append(problems, err)
	}
	var more []annotation.Warning
	if req.Firewall, more, err = firewallOf(in.Service, s); err != nil {
		problems = append(problems, err)
	}
	result.Warnings = append(result.Warnings, more...)
	in.ignored(&result)

	b := fixed.backends
	if err := b.problem(len(in.Nodes)); err != nil {
		problems = append(problems, err)
	}
	if req.DropletIDs, err = b.droplets(in.Droplets, in.Identities); err != nil {
		problems = append(problems, err)
	}
	result.Targets, result.LeftOut = b.targets, b.leftOut
	if len(problems) > 0 {
		return result, problems.blame(in.Service, service)
	}
	in.written(&result)
	result.Request, result.CreateOnly = req, CreateOnly{IP: s.IP}
	return result, nil
}

// forwards returns the forwarding rules. While a certificate is waited for those of the load balancer there is stay: what serves is changed when its
// successor can.
func (in Input) forwards(f *forwarding, result *Result) []ForwardingRule {
	rules := f.rules()
	if result.Certificate != nil && in.Observed != nil {
		return slices.Clone(in.Observed.ForwardingRules)
	}
	result.Warnings = append(result.Warnings, f.warnings...)
	return rules
}

// relevant returns the problems of rules that are worth saying: without parsed annotations those of the spec alone.
func relevant(problems Problems, parsed bool) Problems {
	if parsed {
		return problems
	}
	return slices.DeleteFunc(problems, func(err error) bool {
		_, spec := errors.AsType[*SpecError](err)
		return !spec
	})
}

// plain returns the request but for what depends on ports and Nodes.
func (in Input) plain(s annotation.Settings, f fixedFields) Request {
	req := Request{
		Name: NameOf(in.Service), Algorithm: s.Algorithm, Region: f.region,
		SizeSlug: s.SizeSlug, SizeUnit: s.SizeUnit, Type: s.Type,
		StickySessions:      StickySessions{Type: s.Sticky.Type, CookieName: s.Sticky.Cookie, CookieTTL: s.Sticky.TTL},
		RedirectHTTPToHTTPS: s.RedirectHTTPToHTTPS, EnableProxyProtocol: s.ProxyProtocol, EnableBackendKeepalive: s.BackendKeepalive,
		VPC: f.vpc, Subnet: s.Subnet, Project: s.Project, DisableLetsEncryptDNSRecords: s.DisableLetsEncryptDNSRecords,
		TLSCipherPolicy: s.TLSCipherPolicy, HTTPIdleTimeoutSeconds: s.HTTPIdleTimeout, Network: f.network, NetworkStack: f.stack,
	}
	if s.Name == "" && in.Observed != nil {
		req.Name = cmp.Or(in.Observed.Name, req.Name)
	}
	if s.Project == "" && in.Observed != nil {
		req.Project = in.Observed.Project // a PUT resets what it leaves out, and the default project is not where somebody has put it
	}
	if s.TLSCipherPolicy == "" && in.Observed != nil && in.Observed.TLSCipherPolicy != annotation.CipherDefault {
		req.TLSCipherPolicy = in.Observed.TLSCipherPolicy // likewise
	}
	if tag := ClusterTag(in.Cluster.ID); tag != "" {
		req.Tags = append([]string{tag}, in.otherTags()...)
	}
	return req
}

// otherTags are the tags that people have given to the load balancer there is. A PUT may replace all tags by those that it carries, so that it
// carries them too; the upstream project's would drop them. Those of clusters are no such tags: one that was handed over has one owner from then on.
func (in Input) otherTags() []string {
	if in.Observed == nil {
		return nil
	}
	return slices.DeleteFunc(sorted(in.Observed.Tags), func(tag string) bool { return strings.HasPrefix(tag, ClusterTagPrefix) })
}

// fixedFields are the fields that cannot change, and the Nodes, which depend on them and on which the stack depends.
type fixedFields struct {
	network, stack, region, vpc string
	backends                    backends
	// problem is why the stack asked for cannot be.
	problem error
}

// fixed returns the fields that cannot change: those of the load balancer there is, else those asked for.
func (in Input) fixed(s annotation.Settings, result *Result) fixedFields {
	o := in.Observed
	if o == nil {
		o = &Observed{}
	}
	own, effective := in.Service.Annotations, in.Cluster.Effective(in.Service).Annotations
	keep := func(field, by, is, asked string) string {
		if is != "" && asked != "" && is != asked && !annotation.IsDefault(by, own, effective) {
			result.warn(ReasonKept, fmt.Sprintf("the load balancer's %s stays %s, %s is asked for: DigitalOcean does not change it, "+
				"only a new load balancer can have another", field, is, asked))
		}
		return cmp.Or(is, asked)
	}
	var f fixedFields
	// The controller itself writes the type on the Service, so that a difference is nobody's wish but in this case.
	keep("type", annotation.Type, o.Type, s.TypeAsked)
	f.network = keep("network", annotation.Network, o.Network, s.Network)
	f.region = keep("region", "", o.Region, in.Cluster.Region)
	f.vpc = in.Cluster.VPC
	if f.vpc != "" {
		f.vpc = keep("VPC", "", o.VPC, f.vpc)
	}
	keep("address", annotation.IP, o.IP, s.IP)
	selected, err := in.selector(s)
	f.backends = in.backendsOf(in.targets(s, result), s.Type, f.network, selected)
	if err != nil {
		f.problem = err
		return f
	}
	if o.NetworkStack != "" {
		f.stack = keep("network stack", annotation.NetworkStack, o.NetworkStack, s.NetworkStack)
		lacking := without6(f.backends.ready)
		if s.Type == annotation.TypeRegionalNetwork && f.stack == annotation.StackDual && len(lacking) > 0 {
			result.warn(ReasonKept, fmt.Sprintf("the load balancer's network stack stays %s, but %s: clients over IPv6 do not reach them",
				annotation.StackDual, lack(lacking)))
		}
		return f
	}
	f.stack, f.problem = stackOf(s, f.network, f.backends.ready)
	return f
}

// ignored warns of fields of the spec that nothing is done with.
func (in Input) ignored(result *Result) {
	spec := in.Service.Spec
	if spec.LoadBalancerIP != "" {
		result.warn(ReasonSpec, fmt.Sprintf("spec.loadBalancerIP is %q and has no effect: use annotation %s", spec.LoadBalancerIP, annotation.IP))
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		result.warn(ReasonSpec, fmt.Sprintf("spec.sessionAffinity is ClientIP, which holds behind the load balancer only: "+
			"use annotation %s for the load balancer itself", annotation.StickySessionsType))
	}
}

// written returns which annotations are to be written for the load balancer there is.
func (in Input) written(result *Result) {
	if result.Disowned {
		result.Annotate = nil
		return
	}
	if in.Observed == nil {
		return
	}
	result.annotate(in.Service.Annotations, annotation.LoadBalancerID, in.Observed.ID)
	result.annotate(in.Service.Annotations, annotation.Type, in.Observed.Type)
}

// annotate asks for an annotation unless it is there already.
func (r *Result) annotate(have map[string]string, name, value string) {
	if value == "" || have[name] == value {
		return
	}
	if r.Annotate == nil {
		r.Annotate = map[string]string{}
	}
	r.Annotate[name] = value
}

func (r *Result) warn(reason, message string) {
	r.Warnings = append(r.Warnings, annotation.Warning{Reason: reason, Message: message})
}

// Asks reports whether a Service is to be given a load balancer by this controller. The error wraps [ErrNotOurs] and says why not: it is not of
// type LoadBalancer, or another controller has been asked for by class. A Service without a type is taken for one that was not sent through
// the API server, which always sets one.
func Asks(service *corev1.Service) error {
	name := strings.TrimPrefix(service.Namespace+"/"+service.Name, "/")
	switch class := service.Spec.LoadBalancerClass; {
	case service.Spec.Type != "" && service.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return fmt.Errorf("%w: service %s is of type %s, not %s", ErrNotOurs, name, service.Spec.Type, corev1.ServiceTypeLoadBalancer)
	case class != nil:
		return fmt.Errorf("%w: service %s has loadBalancerClass %q, which leaves it to another controller", ErrNotOurs, name, *class)
	}
	return nil
}
