// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Components are the components that run in the cluster, in the order of [components] and then of their workloads. Without a workload a
// Lease in one of Mooring's namespaces counts, so that a program outside of the cluster is seen. The proxies of etcd storage belong to their
// tenants and are left out.
func Components(e ControllerEvidence) (out []finding.Component) {
	e.Workloads = sorted(e.Workloads)
	for _, c := range components() {
		if c.name == storageProxy {
			continue
		}
		out = append(out, e.installed(c)...)
	}
	return out
}

// installed are the installations of a component, and one without a place for what is missing.
func (e ControllerEvidence) installed(c component) (out []finding.Component) {
	workloads := c.of(e.Workloads)
	for _, w := range workloads {
		out = append(out, e.running(c, w))
	}
	for _, l := range e.Leases {
		stopped := l.Holder == "" && l.Stale(e.Now) // by somebody, in good order
		if len(workloads) == 0 && e.elects(c, l) && !stopped {
			out = append(out, e.led(finding.Component{Name: c.name, Namespace: l.Namespace}, l))
		}
	}
	if problem := e.missing(c, workloads); problem != "" && (len(out) == 0 || c.name == Driver) {
		out = append(out, finding.Component{Name: c.name, Problem: problem, Absent: true})
	}
	return out
}

// missing says what of a component is nowhere, "" if nothing shows that it is missing. DigitalOcean's own volume driver
// stands in for ours, and the controller of a managed cluster is not visible.
func (e ControllerEvidence) missing(c component, workloads []Workload) string {
	trace := e.Traces[c.name]
	if e.NotRead() != "" {
		return "" // it may be in what was not read
	}
	if _, account := e.lease(c.leaseIn, accountLease); c.name == Cloud && account {
		trace = "Lease " + c.leaseIn + "/" + accountLease
	}
	switch {
	case len(workloads) > 0:
		return c.half(workloads)
	case trace == "":
		return ""
	case c.name == Driver && RunsDriver(e.Workloads):
		return ""
	case slices.ContainsFunc(e.Workloads, c.rivaled):
		return ""
	}
	return fmt.Sprintf("there is %s, and nothing that runs it in namespaces %s", trace, strings.Join(e.Namespaces, ", "))
}

// running is the state of one workload.
func (e ControllerEvidence) running(c component, w Workload) finding.Component {
	out := finding.Component{Name: c.name, Namespace: w.Namespace, Workload: w.reference(), Ready: w.Ready, Wanted: w.Wanted}
	for _, image := range w.Images {
		if (Workload{Images: []string{image}}).runs(c.name) {
			out.Version = tag(image)
		}
	}
	namespace, name := c.election(w)
	if l, found := e.lease(namespace, name); found {
		out = e.led(out, l)
	}
	out.Unread = e.unknown(c, name != "")
	leads, pods := e.leads(c, w), e.pods(c, w)
	if leads.Severity == finding.Problem && e.LeaseProblem == "" {
		out.Problem = leads.What
	}
	if w.Ready == 0 {
		out.Problem = cmp.Or(pods.What, out.Problem)
	}
	return out
}

// unknown is why it is unknown whether a component works, "" if it is known.
func (e ControllerEvidence) unknown(c component, elects bool) string {
	switch {
	case c.name == Driver && len(e.Unread) > 0: // the other half of it may be there
		return e.Unread[0].Name + " could not be read"
	case elects && e.LeaseProblem != "":
		return "its Lease could not be read"
	}
	return ""
}

// half says which half of the volume driver is missing, "" if none is, or if it is another component.
func (c component) half(workloads []Workload) string {
	onNodes := 0
	for _, w := range workloads {
		if w.Kind == "DaemonSet" {
			onNodes++
		}
	}
	switch {
	case c.name != Driver:
		return ""
	case onNodes == len(workloads):
		return "there is its node plugin, and no controller"
	case onNodes == 0:
		return "there is its controller, and no node plugin"
	}
	return ""
}

// led adds what a Lease shows of its leader.
func (e ControllerEvidence) led(c finding.Component, l Lease) finding.Component {
	c.Leader = l.Holder
	if !l.Renewed.IsZero() {
		renewed := l.Renewed
		c.Renewed = &renewed
	}
	account, _ := e.lease("kube-system", accountLease)
	if c.Problem = l.problem(e.Now); c.Problem == "" && c.Name == Cloud && account.Token != nil {
		t := account.Token
		c.Token, c.Problem = true, fmt.Sprintf("its token, for %s: %s: %s", prose.Span(e.Now.Sub(t.LastTransitionTime.Time)), t.Reason, t.Message)
	}
	return c
}
