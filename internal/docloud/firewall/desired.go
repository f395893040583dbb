// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Input is everything that decides what the firewall must be.
type Input struct {
	Config Config
	// Services are all Services of the cluster, of any type and in any order.
	Services []*corev1.Service
	// Observed is the firewall there is, nil for none.
	Observed *Observed
	// Balancers are the IDs of all load balancers of the account. Nil means that they are not known, and no Service is doubted for them; they
	// are worth knowing once DigitalOcean has refused a request.
	Balancers []string
}

// Result is what the firewall must be, and what there is to say about it.
type Result struct {
	Request Request
	// Problems are the Services that cannot be understood, in the order of their names.
	Problems []Problem
	// Warnings are about Services that can, in the same order.
	Warnings []Warning
}

// Problem is a Service that opens nothing more and closes nothing, because it cannot be understood.
type Problem struct {
	Service *corev1.Service
	// Err is one sentence that names annotation or field, value, and what may stand there.
	Err error
	// Kept are the rules of the firewall there is that stay for the Service's sake.
	Kept []InboundRule
}

// Message is the sentence for the Service's owner.
func (p Problem) Message() string {
	kept := "which is nothing"
	if len(p.Kept) > 0 {
		texts := make([]string, len(p.Kept))
		for i, r := range p.Kept {
			texts[i] = r.String()
		}
		kept = strings.Join(texts, "; ")
	}
	return fmt.Sprintf("%v; until then the firewall keeps what it has for this service, %s", p.Err, kept)
}

// NamesNoBalancer reports that the Service names a load balancer that does not exist, which shows only if [Input.Balancers] are known.
func (p Problem) NamesNoBalancer() bool {
	wrong, ok := errors.AsType[*annotation.Error](p.Err)
	return ok && wrong.Annotation == annotation.LoadBalancerID
}

// Warning is something about a Service that its owner should know and that stops nothing.
type Warning struct {
	Service *corev1.Service
	annotation.Warning
}

// Desired returns what the firewall must be. It never fails: what is wrong with one Service is told in the result.
func Desired(in Input) Result {
	services := slices.SortedFunc(slices.Values(in.Services), func(a, b *corev1.Service) int {
		return strings.Compare(Key(a), Key(b))
	})
	result := Result{Request: Request{Name: in.Config.Name, OutboundRules: outbound(), Tags: slices.Clone(in.Config.Tags)}}
	var rules []InboundRule
	var bad []*corev1.Service
	for _, service := range services {
		opened, warnings, err := in.open(service)
		for _, w := range warnings {
			result.Warnings = append(result.Warnings, Warning{Service: service, Warning: w})
		}
		if err != nil {
			result.Problems = append(result.Problems, Problem{Service: service, Err: err})
			bad = append(bad, service)
			continue
		}
		opened, refused := in.spared(service, opened)
		result.Warnings = append(result.Warnings, refused...)
		rules = append(rules, opened...)
	}
	if in.Observed != nil {
		result.Request.DropletIDs = slices.Sorted(slices.Values(in.Observed.DropletIDs))
		wanted := accesses(rules)
		for i, service := range bad {
			kept := in.kept(service)
			result.Problems[i].Kept = kept
			rules = append(rules, without(kept, wanted)...)
		}
	}
	result.Request.InboundRules = unique(rules)
	return result
}

// unique sorts rules, each once.
func unique(rules []InboundRule) []InboundRule {
	slices.SortFunc(rules, func(a, b InboundRule) int {
		return cmp.Or(strings.Compare(a.Protocol, b.Protocol), comparePorts(a.Ports, b.Ports), strings.Compare(a.Sources.String(), b.Sources.String()))
	})
	return slices.CompactFunc(rules, func(a, b InboundRule) bool { return a.String() == b.String() })
}

// without takes out of rules what others allow already.
func without(rules []InboundRule, others map[access]bool) []InboundRule {
	var out []InboundRule
	for _, r := range rules {
		r.Sources = r.Sources.keep(func(p peer) bool { return !others[access{r.Protocol, normalPorts(r.Protocol, r.Ports), p}] })
		if len(r.Sources.each()) > 0 {
			out = append(out, r)
		}
	}
	return out
}

// Key names a Service for people and in memory.
func Key(service *corev1.Service) string {
	return strings.TrimPrefix(service.Namespace+"/"+service.Name, "/")
}
