// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// NormalizeDomain returns a DNS domain as names end with it: in lower case and without dots around it.
func NormalizeDomain(domain string) string { return strings.ToLower(strings.Trim(domain, ".")) }

// validateDomains returns one sentence for the first domain that is none, or that is part of another: then one name would have two meanings.
func validateDomains(domains []string) error {
	for i, d := range domains {
		if d != NormalizeDomain(d) || !validNodeName(d) {
			return fmt.Errorf("the domain %q is not a DNS domain: use the form %q", d, "example.com")
		}
		for _, other := range slices.Concat(domains[:i], domains[i+1:]) {
			if strings.HasSuffix(d, "."+other) {
				return fmt.Errorf("the domains %q and %q overlap, so that one name could mean two machines: name just one of them", other, d)
			}
		}
	}
	return nil
}

// Spellings returns the names under which a machine may be known that goes by this name, the name itself first: with each configured domain,
// if it has none of them; without, if it has one. Names with different domains never mean the same machine.
//
// A machine counts as gone only if all of them are, so that a domain can only ever save machines.
func (c Config) Spellings(name string) []string {
	spellings := []string{name}
	for _, d := range c.Domains {
		if short, ok := strings.CutSuffix(name, "."+d); ok && short != "" {
			return append(spellings, short)
		}
	}
	for _, d := range c.Domains {
		if name != "" && !slices.Contains(spellings, name+"."+d) {
			spellings = append(spellings, name+"."+d)
		}
	}
	return spellings
}

// NamesOf lists the names under which the machine of a Subject may be listed, and must not be: none of a second Calico Node.
func (c Config) NamesOf(of Subject) []string {
	if of.Second {
		return nil
	}
	served := strings.Fields(of.Served)
	return slices.DeleteFunc(c.Spellings(of.KubernetesNode), func(name string) bool { return slices.Contains(served, name) })
}

// identify returns the name of the Kubernetes Node that a Calico Node belongs to, and whether that is its own name for lack of an orchRef,
// which is believed only of hosts without a Node and, if so configured, of Nodes without orchRefs.
// gate and message say why it belongs to none that may be judged.
func (c Config) identify(n CalicoNode) (name string, adopted bool, gate Gate, message string) {
	if n.orphan() || n.former != "" {
		return cmp.Or(n.former, n.Name), false, "", ""
	}
	if c.AdoptUnreferenced && len(n.OrchRefs) == 0 {
		return n.Name, true, "", ""
	}
	name, gate, message = kubernetesName(n)
	return name, false, gate, message
}

// claims counts, for each Kubernetes Node that is listed, the Calico Nodes that mean it: a mapping of names that is not one to one proves
// nothing. Without domains there is no mapping.
func (c Config) claims(nodes []CalicoNode, r roster) map[string]int {
	if len(c.Domains) == 0 {
		return nil
	}
	claims := make(map[string]int, len(nodes))
	for _, n := range nodes {
		if name, _, gate, _ := c.identify(n); gate == "" {
			for _, spelling := range r.listedSpellings(c, name) {
				claims[spelling]++
			}
		}
	}
	return claims
}

// listedSpellings returns what is listed of the names that a machine may be known by: its own name alone, if that is.
func (r roster) listedSpellings(c Config, name string) []string {
	if r.listed[name] {
		return []string{name}
	}
	if len(c.Domains) == 0 {
		return nil
	}
	return slices.DeleteFunc(c.Spellings(name), func(s string) bool { return !r.listed[s] })
}

// WithoutCalicoNode lists the Kubernetes Nodes that no Calico Node belongs to, by its orchRef or by its name, in the order given: machines
// on which no calico-node has ever started with this datastore, or whose Calico Node somebody removed. Pods there have no network.
func WithoutCalicoNode(nodes []CalicoNode, kubernetes []string, c Config) []string {
	known := make(map[string]bool, 2*len(nodes))
	for _, n := range nodes {
		if n.Implied {
			continue
		}
		for _, spelling := range c.Spellings(n.Name) {
			known[spelling] = true
		}
		for _, ref := range n.OrchRefs {
			if ref.Orchestrator == OrchestratorKubernetes && ref.NodeName != "" {
				for _, spelling := range c.Spellings(ref.NodeName) {
					known[spelling] = true
				}
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(kubernetes), func(name string) bool { return known[name] })
}
