// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"slices"
	"strings"
)

// kubernetesName returns the name of the Kubernetes Node that a Calico Node belongs to.
// ok is false when it belongs to none that we may judge; gate and message then say why.
//
// calico-node writes an orchRef when it runs under Kubernetes (node/pkg/lifecycle/startup: configureNodeRef), and only then.
// A Calico Node without one is a route reflector, a bare-metal host or something older: not ours, however its name may look.
func kubernetesName(n CalicoNode) (name string, gate Gate, message string) {
	for _, ref := range n.OrchRefs {
		if ref.Orchestrator != OrchestratorKubernetes {
			return "", GateOtherOrchestrator, "it belongs to orchestrator " + quote(ref.Orchestrator)
		}
	}
	for _, ref := range n.OrchRefs {
		switch {
		case ref.NodeName == "":
			return "", GateNoIdentity, "its orchRef names no Kubernetes Node"
		case name != "" && name != ref.NodeName:
			return "", GateAmbiguousName, "its orchRefs name two Kubernetes Nodes, " + quote(name) + " and " + quote(ref.NodeName)
		}
		name = ref.NodeName
	}
	if name == "" {
		return "", GateNoIdentity, "it has no orchRef, so nothing shows that it was ever a Kubernetes Node"
	}
	return name, "", ""
}

func quote(s string) string { return "\"" + s + "\"" }

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range slices.Sorted(slices.Values(names)) {
		quoted[i] = quote(name)
	}
	return strings.Join(quoted, ", ")
}

// roster is the Kubernetes Nodes that are listed, with all that may mean one of them.
type roster struct {
	listed map[string]bool
	// folded holds their names in lower case, and prefixes what precedes a dot in them, each with the Nodes it stands for.
	folded   map[string]string
	prefixes map[string][]string
}

func newRoster(nodes []KubernetesNode) roster {
	r := roster{listed: make(map[string]bool, len(nodes)), folded: make(map[string]string, len(nodes)), prefixes: map[string][]string{}}
	for _, n := range nodes {
		r.listed[n.Name] = true
		name := strings.ToLower(n.Name)
		r.folded[name] = n.Name
		for i, c := range name {
			if c == '.' {
				r.prefixes[name[:i]] = append(r.prefixes[name[:i]], n.Name)
			}
		}
	}
	return r
}

// doubt says why a name that is not listed may still mean a Node that exists, "" for no doubt. The API server truthfully answers NotFound
// for a Node's name in another case, or for its short name when it goes by the full one; that proves nothing about the machine.
func (r roster) doubt(name string) string {
	if !validNodeName(name) {
		return quote(name) + " is not a valid name of a Kubernetes Node"
	}
	return r.likeness(name)
}

// likeness returns which Node that exists a machine of this name may be, "" for none.
func (r roster) likeness(name string) string {
	like := r.alike(name)
	if len(like) == 0 {
		return ""
	}
	return "Kubernetes Node " + quote(like[0]) + " may be the same machine as " + quote(strings.ToLower(name))
}

// alike lists the Nodes that exist and that a machine of this name may be, the most likely first.
func (r roster) alike(name string) []string {
	name = strings.ToLower(name)
	var like []string
	if node := r.folded[name]; node != "" {
		like = append(like, node)
	}
	like = append(like, slices.Sorted(slices.Values(r.prefixes[name]))...)
	for i, c := range name {
		if node := r.folded[name[:i]]; c == '.' && node != "" {
			like = append(like, node)
		}
	}
	return like
}

// validNodeName reports whether a Kubernetes Node can have the name: a DNS subdomain in lower case (RFC 1123; Kubernetes API conventions).
func validNodeName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}
