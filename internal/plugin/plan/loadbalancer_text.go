// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/explain"
)

// lbPlan is the answer for one Service in the human form. Its JSON form is that of the machine form and what a person wants to know in addition.
type lbPlan struct {
	Namespace string `json:"namespace,omitempty"`
	lbAnswer
	// Draft reports that the Service does not exist yet: its name and node ports are the API server's to give.
	Draft    bool                   `json:"draft,omitempty"`
	Warnings []annotation.Warning   `json:"warnings,omitempty"`
	Targets  []loadbalancer.Target  `json:"targets,omitempty"`
	LeftOut  []loadbalancer.LeftOut `json:"leftOut,omitempty"`
}

// plansText is plans for people, a paragraph each.
func plansText(plans []lbPlan) string {
	var b strings.Builder
	for i, p := range plans {
		if i > 0 {
			b.WriteByte('\n')
		}
		p.text(&b)
	}
	return b.String()
}

// text writes one plan: what it is on the left, one value per line on the right.
func (p lbPlan) text(b *strings.Builder) {
	fmt.Fprintf(b, "Service %s\n", strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"))
	line := lines(b)
	switch {
	case p.Error != "":
		line("refused", "%s", p.Error)
	case p.Disowned:
		line("disowned", "nothing is sent, annotation %s forbids it", annotation.Disown)
	}
	if p.Request != nil {
		var only loadbalancer.CreateOnly
		if p.CreateOnly != nil {
			only = *p.CreateOnly
		}
		for _, l := range explain.RequestLines(*p.Request, only) {
			line(l.Topic, "%s", l.Text)
		}
		for _, t := range p.Targets {
			line("target", "node %s, droplet %d", t.Node, t.Droplet)
		}
	}
	for _, l := range p.LeftOut {
		line("left out", "node %s %s", l.Node, l.Reason)
	}
	for _, w := range p.Warnings {
		line("warning", "%s", w.Message)
	}
	if p.Draft && p.Request != nil {
		line("note", "the service does not exist yet: the API server gives it the UID of which the default name is made, and its node ports")
	}
}

// lines writes lines with a label: values may be anybody's text, and one value is one line.
func lines(b *strings.Builder) func(label, format string, args ...any) {
	return func(label, format string, args ...any) {
		fmt.Fprintf(b, "  %-16s%s\n", label, strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "))
	}
}
