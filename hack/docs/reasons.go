// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	docloud "github.com/mooring-dev/mooring/internal/docloud/app"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operatorapp"
	nodesync "github.com/mooring-dev/mooring/internal/nodesync/app"
	routereflector "github.com/mooring-dev/mooring/internal/routereflector/app"
)

// group is where constants of one meaning are: those of a package whose names match.
type group struct{ folder, names string }

// eventSource is what a program writes Events with.
type eventSource struct {
	program, about string
	// on is what its Events are on, unless the comment of a reason says otherwise.
	on     string
	groups []group
	// conditions are those whose reasons are Events as well, as TYPE=STATUS; of is their kind.
	of         string
	conditions []string
	// silent is a reason of theirs that is not an Event.
	silent string
}

// eventSources are all that write Events.
func eventSources() []eventSource {
	const lease = "Lease kube-system/digitalocean-cloud-controller-manager-account"
	return []eventSource{
		{
			program: nodesync.Component, on: "Deployment", groups: []group{{"internal/nodesync/controller", `^Reason`}},
			about: "On the Deployment of `--events-deployment`, or on the Namespace if there is no such Deployment; the related object is the Node. " +
				"A warning is not repeated while its cause lasts, nor within one hour.",
		},
		{
			program: routereflector.Component, on: "RouteReflectorTopology", groups: []group{{"internal/routereflector/controller", `^(event|seed)[A-Z]`}},
			about: "Warnings are recorded when a condition becomes true, or its reason changes.",
			of:    "RouteReflectorTopology", conditions: []string{"Accepted=False", "Degraded=True", "Frozen=True"},
		},
		{
			program: docloud.Component, on: "Node", groups: []group{{"internal/docloud/machines", `^Event`}, {"internal/docloud/shutdowns", `^Event`}},
			about: "Each is recorded at most once in ten minutes. Kubernetes' node controllers, which the program runs, write Events of their own.",
		},
		{
			program: docloud.Component, on: "Service",
			groups: []group{
				{"internal/docloud/annotation", `^Reason`}, {"internal/docloud/loadbalancer", `^Reason`},
			},
			about: "Recorded when a cause begins. Kubernetes' service controller, which the program runs, writes Events of its own, such as `SyncLoadBalancerFailed`.",
		},
		{
			program: docloud.Component, on: lease, groups: []group{{"internal/docloud/firewalls", `^reason`}},
			about: "About the firewall, which is not an object of the cluster; recorded when a cause begins.",
		},
		{
			program: operatorapp.Component, on: "EtcdStorage", groups: []group{{"internal/etcdstorage/controller", `^event`}},
			about: "Warnings are recorded when a condition becomes true, or its reason changes; of ProxyReady only if a proxy was ready before, " +
				"and of Deployed only `WriteFailed`. A deletion that a person requested does not cause a warning.",
			silent: "Deleting",
			of:     "EtcdStorage", conditions: []string{"Conflict=True", "QuotaExceeded=True", "CertificatesReady=False", "CoreReachable=False", "CoreHealthy=False", "ProxyReady=False"},
		},
	}
}

// event is a reason of Events.
type event struct{ reason, kind, on, meaning string }

// eventForm is how the comment of an Event's reason begins: with its type, and what it is on if that is not what its neighbors are on.
var eventForm = regexp.MustCompile(`^\(?(Normal|Warning)(?: on ([A-Z]\w+?)s?)?\)?: (.+)$`)

// eventsOf are the Events of a source, by reason.
func eventsOf(root string, s eventSource) ([]event, error) {
	var out []event
	for _, g := range s.groups {
		all, err := reasonsOf(root, g)
		if err != nil {
			return nil, err
		}
		for _, c := range all {
			parts := eventForm.FindStringSubmatch(c.doc)
			if parts == nil {
				return nil, fmt.Errorf("%s.%s: the comment must begin with its type, as in %q", g.folder, c.name, "// "+c.name+", Warning: what has happened.")
			}
			out = append(out, event{c.value, parts[1], cmp.Or(parts[2], s.on), capital(parts[3])})
		}
	}
	for _, k := range kinds() {
		if k.name != s.of {
			continue
		}
		all, err := conditionsOf(root, k)
		if err != nil {
			return nil, err
		}
		for _, c := range all {
			for _, r := range c.reasons {
				if r.reason != s.silent && slices.Contains(s.conditions, c.name+"="+r.status) && !slices.ContainsFunc(out, func(e event) bool { return e.reason == r.reason }) {
					out = append(out, event{r.reason, "Warning", s.on, r.meaning})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b event) int { return strings.Compare(a.reason, b.reason) })
	return out, nil
}

// reasonForm is how Kubernetes wants reasons to be.
var reasonForm = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)

// reasonsOf are the constants of a group.
func reasonsOf(root string, g group) ([]constant, error) {
	all, err := constants(root, g.folder)
	if err != nil {
		return nil, err
	}
	named := regexp.MustCompile(g.names)
	all = slices.DeleteFunc(all, func(c constant) bool { return !named.MatchString(c.name) || !reasonForm.MatchString(c.value) })
	if len(all) == 0 {
		return nil, fmt.Errorf("no constant of %s is named %s", g.folder, g.names)
	}
	return all, nil
}

// capital begins a sentence, unless it begins with the name of a field.
func capital(text string) string {
	if first, _, _ := strings.Cut(text, " "); strings.Contains(strings.TrimSuffix(first, "."), ".") {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// eventsPage renders the Events of all programs.
func eventsPage(root string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header + "# Events\n\nWritten by `make generate` from the constants of the code; do not edit. Reasons are stable.\n\n" +
		"`kubectl events --for KIND/NAME`, or `kubectl describe`, shows them as long as the API server keeps them, an hour by default.\n" +
		"The message of each names the objects and what to do.\n")
	program := ""
	for _, s := range eventSources() {
		all, err := eventsOf(root, s)
		if err != nil {
			return nil, err
		}
		if s.program != program {
			program = s.program
			fmt.Fprintf(&b, "\n## %s\n", program)
		}
		fmt.Fprintf(&b, "\n### on %s\n\n%s\n\n| reason | type | meaning |\n|---|---|---|\n", s.on, wrap(s.about, ""))
		for _, e := range all {
			if e.on != s.on {
				e.meaning = "(on the " + e.on + ") " + e.meaning
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.reason, e.kind, cell(escape(e.meaning)))
		}
	}
	b.WriteString("\n## Of all programs\n\nKubernetes' leader election writes `LeaderElection` on its Lease. Programs that are not listed record no Events.\n")
	return b.Bytes(), nil
}

// kind is a kind with conditions.
type kind struct {
	name, about string
	// types has the types of its conditions, reasons the reasons.
	types   group
	reasons []group
}

// kinds are all with conditions.
func kinds() []kind {
	const ready = "Ready is the summary: its reason is that of the condition that keeps it from being True. "
	shared := group{"internal/platform/conditions", `^Reason`}
	return []kind{
		{
			name: "EtcdStorage", types: group{"api/etcd/v1alpha1", `^Condition`},
			reasons: []group{{"internal/etcdstorage/operator", `^Reason`}, {"internal/etcdstorage/controller", `^reason`}, shared},
			about:   ready + "These are CoreReachable, CertificatesReady and ProxyReady when they are not True, and whatever the plan refuses.",
		},
		{
			name: "RouteReflectorTopology", types: group{"api/bgp/v1alpha1", `^Condition`},
			reasons: []group{{"internal/routereflector", `^Reason`}, {"internal/routereflector/controller", `^reason`}, {shared.folder, `^ReasonReady$`}},
			about: ready + "These are Accepted when it is False, and Frozen, Degraded and Progressing when they are True. The reason that delays a plan is also the " +
				"reason of Progressing.",
		},
		{
			name: "Token", types: group{"internal/docloud/instance", `^ConditionToken`}, reasons: []group{{"internal/docloud/instance", `^Token`}},
			about: "No kind: digitalocean-cloud-controller-manager writes the condition as JSON to the annotation `cloud.mooring.dev/token-healthy` of the Lease " +
				"kube-system/digitalocean-cloud-controller-manager-account.",
		},
	}
}

// condition is a type of conditions with its reasons.
type condition struct {
	name, meaning string
	reasons       []conditionReason
}

type conditionReason struct{ reason, status, meaning string }

// conditionForm is how the comment of a condition's reason begins: with the conditions whose reason it is.
var conditionForm = regexp.MustCompile(`^Of ([A-Z]\w+=\w+(?:, [A-Z]\w+=\w+)*): (.+)$`)

// conditionsOf are the conditions of a kind: Ready first, the others by name, their reasons by status and reason.
func conditionsOf(root string, k kind) ([]condition, error) {
	types, err := reasonsOf(root, k.types)
	if err != nil {
		return nil, err
	}
	var out []condition
	for _, t := range types {
		out = append(out, condition{name: t.value, meaning: t.doc})
	}
	if k.name != "Token" {
		out = append(out, condition{name: "Ready", meaning: "The object is in its desired state."},
			condition{name: "Reconciling", meaning: "Work is in progress, or waits for something that comes about without a person. It is absent otherwise; " +
				"its reason is that of Ready if Ready is not True."},
			condition{name: "Stalled", meaning: "The work cannot go on until a person does what the message says. It is absent otherwise; its reason is that of Ready."})
	}
	for _, g := range k.reasons {
		all, err := reasonsOf(root, g)
		if err != nil {
			return nil, err
		}
		for _, c := range all {
			parts := conditionForm.FindStringSubmatch(c.doc)
			if parts == nil {
				return nil, fmt.Errorf("%s.%s: the comment must begin with its conditions, as in %q", g.folder, c.name, "// "+c.name+" of Ready=False: what is wrong.")
			}
			for of := range strings.SplitSeq(parts[1], ", ") {
				name, status, _ := strings.Cut(of, "=")
				i := slices.IndexFunc(out, func(have condition) bool { return have.name == name })
				if i < 0 || !slices.Contains([]string{"True", "False", "Unknown"}, status) {
					return nil, fmt.Errorf("%s.%s is a reason of %s, which %s does not have", g.folder, c.name, of, k.name)
				}
				out[i].reasons = append(out[i].reasons, conditionReason{c.value, status, capital(parts[2])})
			}
		}
	}
	slices.SortFunc(out, func(a, b condition) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), strings.Compare(a.name, b.name))
	})
	for _, c := range out {
		slices.SortFunc(c.reasons, func(a, b conditionReason) int {
			return cmp.Or(strings.Compare(a.status, b.status), strings.Compare(a.reason, b.reason))
		})
		if c.meaning == "" || len(c.reasons) == 0 && c.name != "Reconciling" {
			return nil, fmt.Errorf("condition %s of %s has no meaning or no reason", c.name, k.name)
		}
	}
	return out, nil
}

// last puts Ready before the others.
func last(c condition) int {
	if c.name == "Ready" {
		return 0
	}
	return 1
}

// conditionsPage renders the conditions of all kinds.
func conditionsPage(root string) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header + "# Conditions\n\nWritten by `make generate` from the constants of the code; do not edit. Types and reasons are stable.\n\n" +
		"`kubectl describe` shows them; the message of each names the objects and what to do.\n")
	for _, k := range kinds() {
		all, err := conditionsOf(root, k)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", k.name, wrap(k.about, ""))
		for _, c := range all {
			fmt.Fprintf(&b, "\n### %s of %s\n\n%s\n", c.name, k.name, prose(c.meaning))
			if len(c.reasons) > 0 {
				b.WriteString("\n| status | reason | meaning |\n|---|---|---|\n")
			}
			for _, r := range c.reasons {
				fmt.Fprintf(&b, "| %s | `%s` | %s |\n", r.status, r.reason, cell(escape(r.meaning)))
			}
		}
	}
	return b.Bytes(), nil
}
