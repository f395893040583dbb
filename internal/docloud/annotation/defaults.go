// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Defaults are what annotations say that a Service does not carry: the cluster's own. [NewDefaults] makes them; nil for none.
type Defaults map[string]string

// NewDefaults checks what is to be the default of annotations, by their full names. It refuses what is not known, what belongs to one Service, and
// values that would be refused or doubted on a Service; the error is one sentence for each. A cluster has no old manifests in this place, so that
// nothing is taken for compatibility's sake but what has no effect at all, of which the warnings tell.
func NewDefaults(values map[string]string) (Defaults, []Warning, error) {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if problem := noDefault(name); problem != "" {
			problems = append(problems, problem)
		}
	}
	probe := maps.Clone(values)
	if probe == nil {
		probe = map[string]string{}
	}
	probe[Type], probe[OverrideHealthCheck] = TypeRegional, "" // what uses all of them
	_, all, err := Parse(probe, Options{})
	if err != nil && len(problems) == 0 {
		problems = append(problems, err.Error())
	}
	_, unmanaged := IsFirewallManaged(values)
	var warnings []Warning
	for _, w := range slices.Concat(all, unmanaged) {
		switch {
		case w.Reason == ReasonDoubtful && len(problems) == 0, len(unmanaged) > 0 && w == unmanaged[0]:
			problems = append(problems, w.Message)
		case w.Reason == ReasonNoEffect:
			warnings = append(warnings, w)
		}
	}
	problems = append(problems, contradictions(values)...)
	if len(problems) > 0 {
		return nil, nil, fmt.Errorf("%s", strings.Join(problems, "; "))
	}
	return Defaults(maps.Clone(values)), warnings, nil
}

// noDefault says why an annotation has no default, empty if it may have one.
func noDefault(name string) string {
	e, known := lookup(name)
	switch {
	case known && e.PerService != "":
		return fmt.Sprintf("annotation %s cannot have a default: %s", name, e.PerService)
	case known:
		return ""
	}
	message := fmt.Sprintf("annotation %s is not known", name)
	var names []string
	for _, e := range Table() {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	if near := prose.Nearest(name, names, mostMistaken); near != "" {
		return message + fmt.Sprintf("; did you mean %s?", near)
	}
	if slices.Contains(names, Prefix+name) {
		return message + fmt.Sprintf("; did you mean %s?", Prefix+name)
	}
	return message
}

// contradictions are defaults that no Service could have together. Those of which the one or the other counts are refused by Parse.
func contradictions(values map[string]string) []string {
	var problems []string
	for _, certificate := range []string{CertificateName, CertificateDomains} {
		if values[certificate] != "" && passes(values) {
			problems = append(problems, fmt.Sprintf("annotation %s is %s and %s is %s: only one of them can be a default",
				certificate, Quote(values[certificate]), TLSPassthrough, Quote(values[TLSPassthrough])))
		}
	}
	if values[Network] == NetworkInternal && values[NetworkStack] == StackDual {
		problems = append(problems, fmt.Sprintf("annotation %s is %q and %s is %q: an internal load balancer has no IPv6 address",
			Network, NetworkInternal, NetworkStack, StackDual))
	}
	return problems
}

func passes(values map[string]string) bool {
	yes, err := strconv.ParseBool(values[TLSPassthrough])
	return err == nil && yes
}

// Over returns the annotations of a Service, and the defaults of those that it does not carry. A default gives way to all that the Service
// says on the same subject: its size to the other kind of size, its certificate to another way to name one or to passthrough, and DUALSTACK
// to a network that has no IPv6. So a Service that is right by itself is right with every default. What is returned MUST NOT be changed.
func (d Defaults) Over(own map[string]string) map[string]string {
	if len(d) == 0 {
		return own
	}
	out := maps.Clone(d)
	for _, subject := range subjects() {
		if slices.ContainsFunc(subject, func(name string) bool { return says(name, own) }) {
			for _, name := range subject {
				delete(out, name)
			}
		}
	}
	maps.Copy(out, own)
	if _, asked := own[NetworkStack]; !asked && out[Network] == NetworkInternal {
		delete(out, NetworkStack)
	}
	return out
}

// subjects are annotations of which a load balancer can have one.
func subjects() [][]string {
	return [][]string{{SizeSlug, SizeUnit}, {CertificateID, CertificateName, CertificateDomains, TLSPassthrough}}
}

// says reports whether a Service's annotation asks for something.
func says(name string, own map[string]string) bool {
	if name == TLSPassthrough {
		return passes(own)
	}
	return own[name] != ""
}

// IsDefault reports whether the value of an annotation is not the Service's own. values are those of [Defaults.Over].
func IsDefault(name string, own, values map[string]string) bool {
	_, there := values[name]
	_, carried := own[name]
	return there && !carried
}
