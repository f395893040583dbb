// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

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
