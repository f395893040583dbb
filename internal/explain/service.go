// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// ServiceEvidence is what was read of a Service.
type ServiceEvidence struct {
	Now time.Time
	// Input is what decides about its load balancer. Without DigitalOcean's word it has neither droplets nor certificates
	// nor the load balancer there is: those that the Service needs are taken for granted then.
	Input loadbalancer.Input
	// Cloud reports whether DigitalOcean was asked.
	Cloud finding.Side
	// Lost reports that DigitalOcean knows no load balancer of the ID that the Service names.
	Lost       bool
	Events     []finding.Event
	EventsRead finding.Side
	// Unkept is why what the cloud component has reported may be old, "" while it works.
	Unkept string
}

// Service explains the load balancer of a Service: what stands on the Service, what each annotation gives, what is
// refused, and which Nodes get traffic.
func Service(e ServiceEvidence) Explanation {
	service := e.Input.Service
	asks := loadbalancer.Asks(service) == nil
	sections := []Section{}
	if asks {
		in := e.granted()
		result, err := loadbalancer.Desired(in)
		sections = append(sections, e.status(), e.desired(result, err), annotations(in, err), e.nodes(result))
	} else {
		sections = append(sections, e.status())
	}
	sections = append(sections, events(e.Events, e.EventsRead, asks, e.Now))
	return explanation("Service", service.Namespace, service.Name, sections...)
}

// granted is the input with what is taken for granted where nobody asked DigitalOcean: a droplet for each Node that has
// no provider ID, and the certificate that is asked for.
func (e ServiceEvidence) granted() loadbalancer.Input {
	in := e.Input
	if e.Cloud == (finding.Side{}) {
		return in
	}
	in.Droplets, in.Certificates = slices.Clone(in.Droplets), slices.Clone(in.Certificates)
	for _, n := range in.Nodes {
		if n.Spec.ProviderID == "" {
			in.Droplets = append(in.Droplets, instance.Droplet{ID: -1 - len(in.Droplets), Name: n.Name})
		}
	}
	effective := in.Cluster.Effective(in.Service)
	if c, ok := loadbalancer.AssumedCertificate(effective); ok {
		in.Certificates = append(in.Certificates, c)
	}
	if name := effective.Annotations[annotation.CertificateName]; name != "" {
		in.Certificates = append(in.Certificates, loadbalancer.Certificate{ID: "(" + name + ")", Name: name})
	}
	return in
}

// status is what stands on the Service, with the verdict and what a person can do.
func (e ServiceEvidence) status() (s Section) {
	s, service, v := Section{Title: "Service"}, e.Input.Service, e.Judge()
	ill := v.State.NeedsAttention()
	if err := loadbalancer.Asks(service); err != nil {
		s.say("asks for", "no load balancer of DigitalOcean: %v", err)
		if v.State != finding.Agree {
			s.verdict(v.Source, v, e.Now)
		}
		return s
	}
	s.say("asks for", "a load balancer of DigitalOcean (type LoadBalancer, no class)")
	if at := service.DeletionTimestamp; at != nil && v.Source != byDeletion {
		s.say("deletion", "requested %s ago", ago(e.Now, at.Time))
	} else if at != nil {
		s.sayIf(ill, v.Source, "%s", v.Text(e.Now))
	}
	if id := service.Annotations[annotation.LoadBalancerID]; id != "" {
		s.say("has", "load balancer %s", id)
	}
	var addresses []string
	for _, in := range service.Status.LoadBalancer.Ingress {
		addresses = append(addresses, cmp.Or(in.Hostname, in.IP))
	}
	switch {
	case len(addresses) > 0:
		s.say("answers at", "%s", strings.Join(addresses, ", "))
	case v.Source == byAddress:
		s.sayIf(ill, "answers at", "nothing yet: %s", v.Text(e.Now))
	default:
		s.sayIf(ill, "answers at", "nothing yet: status.loadBalancer is empty")
	}
	for _, c := range service.Status.Conditions {
		s.sayIf(c.Status == metav1.ConditionFalse, "condition", "%s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message)
	}
	s.unkept(e.Unkept)
	if v.Source == byTrouble {
		s.heed("trouble", "%s", v.What)
	}
	if v.Next = cmp.Or(v.Next, map[bool]string{true: agreement.CloudNext}[e.Cloud.Problem != ""]); v.Next != "" {
		s.say("next", "%s", v.Next)
	}
	return s
}

// cloudComponent makes load balancers.
const cloudComponent = "digitalocean-cloud-controller-manager"

// desired is the load balancer that there must be, or why there is none.
func (e ServiceEvidence) desired(result loadbalancer.Result, err error) Section {
	s := Section{Title: "Load balancer (digitalocean-cloud-controller-manager)"}
	if !s.told(e.Cloud, "DigitalOcean") {
		s.say("assumed", "that the droplets and certificates of the Service exist")
	}
	if result.Disowned {
		s.say("disowned", "nothing is sent, annotation %s forbids it", annotation.Disown)
	}
	for _, problem := range each(err) {
		s.heed("refused", "%v", problem)
	}
	if err == nil {
		for _, l := range RequestLines(result.Request, result.CreateOnly) {
			s.say(l.Topic, "%s", l.Text)
		}
	}
	if o := e.Input.Observed; o != nil {
		if p := loadbalancer.Publish(e.Input.Service, *o); !p.Ready {
			s.heed("state", "%s", p.Message)
		}
		if err == nil && !result.Disowned {
			diffs := loadbalancer.Diff(*o, result.Request)
			for _, d := range diffs {
				s.heed("to change", "%s", d)
			}
			if service := e.Input.Service; len(diffs) > 0 {
				s.say("next", "%s changes it within a minute; if not: kubectl -n %s describe service %s", cloudComponent,
					service.Namespace, service.Name)
			}
		}
	}
	if w := result.Certificate; w != nil && err == nil {
		s.sayIf(w.Failed, "certificate", "%s", w.Message)
	}
	for _, w := range result.Warnings {
		s.heed("warning", "%s (%s)", w.Message, w.Reason)
	}
	return s
}

// each are the sentences of an error.
func each(err error) []error {
	if problems, ok := errors.AsType[loadbalancer.Problems](err); ok {
		return problems
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// RequestLines are what is worth reading of what is sent for a load balancer.
func RequestLines(r loadbalancer.Request, only loadbalancer.CreateOnly) []Line {
	var s Section
	line := s.say
	region := ""
	if r.Region != "" {
		region = ", in " + r.Region
	}
	line("load balancer", "%s, %s, %s, %s%s", r.Name, r.Type, r.Network, r.NetworkStack, region)
	if only != (loadbalancer.CreateOnly{}) {
		line("address", "%s, when it is made", only.IP)
	}
	for _, rule := range r.ForwardingRules {
		line("forwards", "%s", rule)
	}
	line("health check", "%s", r.HealthCheck)
	if r.StickySessions.Type != annotation.StickyNone {
		line("sticky", "%s", r.StickySessions)
	}
	for _, option := range []struct {
		on   bool
		text string
	}{
		{r.SizeSlug != "", "size " + r.SizeSlug},
		{r.SizeUnit > 0, fmt.Sprintf("size %d", r.SizeUnit)},
		{r.RedirectHTTPToHTTPS, "HTTP is redirected to HTTPS"},
		{r.EnableProxyProtocol, "PROXY protocol"},
		{r.EnableBackendKeepalive, "connections to droplets are kept open"},
		{r.DisableLetsEncryptDNSRecords, "no DNS records for Let's Encrypt"},
		{r.Subnet != "", "subnet " + r.Subnet},
		{r.Project != "", "project " + r.Project},
	} {
		if option.on {
			line("option", "%s", option.text)
		}
	}
	if r.HTTPIdleTimeoutSeconds != nil {
		line("option", "idle HTTP connections are closed after %d s", *r.HTTPIdleTimeoutSeconds)
	}
	for _, rule := range r.Firewall.Allow {
		line("allows", "%s", rule)
	}
	for _, rule := range r.Firewall.Deny {
		line("denies", "%s", rule)
	}
	return s.Lines
}

// annotations says of each annotation, the Service's or the cluster's default, what it gives: what would be sent is
// compared with what would be sent without it, so that it is the planner that says.
func annotations(in loadbalancer.Input, refused error) Section {
	s := Section{Title: "Effects of annotations"}
	effective := in.Cluster.Effective(in.Service)
	entries := map[string]annotation.Entry{}
	for _, entry := range annotation.Table() {
		entries[entry.Name] = entry
	}
	for _, name := range slices.Sorted(maps.Keys(effective.Annotations)) {
		entry, known := entries[name]
		if !known || entry.Written && name == annotation.LoadBalancerID {
			continue // those that nobody knows are among the warnings
		}
		said := annotation.Quote(effective.Annotations[name])
		if annotation.IsDefault(name, in.Service.Annotations, effective.Annotations) {
			said += ", a default of the cluster"
		}
		s.say(strings.TrimPrefix(name, annotation.Prefix), "%s: %s", said, gives(in, name, entry, refused))
	}
	return s
}

// gives says what an annotation changes.
func gives(in loadbalancer.Input, name string, entry annotation.Entry, refused error) string {
	blamed := func(problem error) bool {
		wrong, ok := errors.AsType[*annotation.Error](problem)
		return ok && wrong.Annotation == name
	}
	if slices.ContainsFunc(each(refused), blamed) {
		return "it is refused, see above"
	}
	without, err := loadbalancer.Desired(bare(in, name))
	with, _ := loadbalancer.Desired(in)
	switch {
	case refused != nil:
		return entry.Effect
	case err != nil:
		return "without it: " + err.Error()
	}
	before, after := RequestLines(without.Request, without.CreateOnly), RequestLines(with.Request, with.CreateOnly)
	var gained, lost []string
	for _, l := range after {
		if !slices.Contains(before, l) {
			gained = append(gained, l.Topic+" "+l.Text)
		}
	}
	for _, l := range before {
		if !slices.Contains(after, l) {
			lost = append(lost, l.Topic+" "+l.Text)
		}
	}
	switch {
	case len(gained) > 0:
		return strings.Join(gained, "; ")
	case len(lost) > 0:
		return "takes away: " + strings.Join(lost, "; ")
	}
	return "changes nothing that is sent. " + entry.Effect
}

// bare is the input without an annotation, be it the Service's or the cluster's default.
func bare(in loadbalancer.Input, name string) loadbalancer.Input {
	in.Service = in.Service.DeepCopy()
	delete(in.Service.Annotations, name)
	in.Cluster.Defaults = maps.Clone(in.Cluster.Defaults)
	delete(in.Cluster.Defaults, name)
	return in
}

// nodes returns which Nodes get traffic, and why others do not.
func (e ServiceEvidence) nodes(result loadbalancer.Result) Section {
	s := Section{Title: "Nodes"}
	var targets, down []string
	for _, t := range result.Targets {
		if ready := readyOf(e.node(t.Node)); ready != nil && ready.Status != corev1.ConditionTrue {
			down = append(down, t.Node)
		}
		text := fmt.Sprintf("%s (droplet %d)", t.Node, t.Droplet)
		if t.Droplet < 0 {
			text = t.Node + " (no provider ID yet)"
		}
		targets = append(targets, text)
	}
	if len(targets) > 0 {
		s.say("targets", "%d: %s", len(targets), finding.First(targets, mostTargets))
	}
	if len(down) > 0 {
		s.sayIf(len(down) == len(targets), "not ready",
			"%d: %s: they stay targets, and the health check of the load balancer leaves them out",
			len(down), finding.First(down, mostTargets))
	}
	unexpected := loadbalancer.Unexpected(result.LeftOut, e.Input.Nodes)
	for i, l := range result.LeftOut {
		if i == mostTargets {
			s.say("left out", "%d more", len(result.LeftOut)-i)
			break
		}
		text := fmt.Sprintf("node %s %s", l.Node, l.Reason)
		s.sayIf(slices.Contains(unexpected, text), "left out", "%s", text)
	}
	return s
}

// node is the Node of a name, nil if there is none.
func (e ServiceEvidence) node(name string) *corev1.Node {
	at := slices.IndexFunc(e.Input.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if at < 0 {
		return nil
	}
	return e.Input.Nodes[at]
}

// mostTargets is how many Nodes are named.
const mostTargets = 20
