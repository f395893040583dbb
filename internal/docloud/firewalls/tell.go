// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
)

// Reasons of events. Alerts and scripts select by them: they MUST not be changed. FirewallConfigError and the warnings of package annotation are
// on Services, the others on the firewall's stand-in.
const (
	// reasonConfig, Warning on Services: a value that the firewall depends on cannot be parsed; its rules for the Service stay.
	reasonConfig = "FirewallConfigError"
	// reasonForeign, Warning: the firewall of that name covers other droplets only, and is left alone.
	reasonForeign = "FirewallForeign"
	// reasonRefused, Warning: DigitalOcean refuses the desired firewall.
	reasonRefused = "FirewallRefused"
	// reasonFailed, Warning: the firewall could not be read or written; it is retried.
	reasonFailed = "UpdateFirewallFailed"
	// reasonDoubt, Warning: the firewall is not changed while it is unknown which cluster the account belongs to.
	reasonDoubt = "DigitalOceanAccountInDoubt"
	// reasonRepaired, Normal: rules, tags or the name were changed elsewhere and are repaired.
	reasonRepaired = "FirewallRepaired"
	// reasonRecreated, Warning: the firewall was deleted elsewhere and is created again.
	reasonRecreated = "FirewallRecreated"
)

// standIn is the Lease of kube-system that events about the firewall are on, which is not an object of the cluster: the record of the account
// that it is in (package machines, RecordName).
const standIn = "digitalocean-cloud-controller-manager-account"

// note is what makes one thing to tell another than the next: a Service, or the firewall itself if it has none, a reason, and a cause.
type note struct {
	namespace, name string
	uid             types.UID
	kind, reason    string
	cause           string
}

// telling is a note and its words, which may change while the note is the same.
type telling struct {
	note
	message string
}

// warn notes something about the firewall that people have to know while it holds. What is the same although its words differ has an empty cause.
func (p *one) warn(reason, cause, message string) {
	p.tellings = append(p.tellings, telling{note{kind: corev1.EventTypeWarning, reason: reason, cause: cause}, message})
}

// about notes something about a Service.
func (p *one) about(service *corev1.Service, reason, cause, message string) {
	p.tellings = append(p.tellings, telling{note{
		namespace: service.Namespace, name: service.Name, uid: service.UID, kind: corev1.EventTypeWarning, reason: reason, cause: cause,
	}, message})
}

// say tells something about the firewall that has just happened.
func (p *one) say(kind, reason, message string) {
	p.c.recorder.Event(note{}.object(), kind, reason, message)
}

// tell sends an event for each thing that did not hold before this pass. A pass that failed does not know what has stopped to hold.
func (p *one) tell(err error) {
	c := p.c
	if err != nil && len(p.tellings) == 0 && !errors.Is(err, doapi.ErrRateLimited) && !errors.Is(err, context.Canceled) {
		p.warn(reasonFailed, "", err.Error())
	}
	if p.decided {
		c.metrics.leftOut.Set(float64(len(p.result.Problems)))
		c.metrics.rules.Set(float64(len(p.result.Request.InboundRules)))
		for _, problem := range p.result.Problems {
			p.about(problem.Service, reasonConfig, problem.Err.Error(), problem.Message())
		}
		for _, w := range p.result.Warnings {
			p.about(w.Service, w.Reason, w.Message, w.Message)
		}
	}
	told := map[note]bool{}
	for _, t := range p.tellings {
		if !told[t.note] && !c.memory.told[t.note] {
			c.recorder.Event(t.object(), t.kind, t.reason, t.message)
		}
		told[t.note] = true
	}
	if err != nil {
		for n := range c.memory.told {
			told[n] = true
		}
	}
	c.memory.told = told
}

// object is what an event is on.
func (n note) object() runtime.Object {
	if n.name == "" {
		return &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: metav1.NamespaceSystem, Name: standIn}
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: n.namespace, Name: n.name, UID: n.uid}
}

// texts are differences in words, not too many.
func texts(all []firewall.Difference) string {
	const shown = 20
	out := make([]string, 0, min(len(all), shown)+1)
	for i, d := range all {
		if i == shown {
			out = append(out, "and more")
			break
		}
		out = append(out, d.Message)
	}
	return strings.Join(out, "; ")
}
