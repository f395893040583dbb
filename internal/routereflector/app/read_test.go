// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
)

// A BGPPeer of ours that somebody has edited with calicoctl is still ours: Calico's tools move the labels of crd.projectcalico.org/v1 into an annotation.
func TestPlanKnowsOwnPeersAfterCalicoctl(t *testing.T) {
	t.Parallel()
	const label = "labels: {bgp.mooring.dev/topology: main}"
	const moved = `annotations: {projectcalico.org/metadata: '{"labels":{"bgp.mooring.dev/topology":"main"}}'}`
	if strings.Count(peersYAML, label) != 2 {
		t.Fatalf("the file has another form: %s", peersYAML)
	}
	dir := folder(t, map[string]string{
		"t.yaml": topology, "nodes.json": nodes(7, 3), "peers.yaml": strings.ReplaceAll(peersYAML, label, moved),
		"off.yaml": "kind: BGPConfiguration\nmetadata: {name: default}\nspec: {nodeToNodeMeshEnabled: false}\n",
	})
	out, _, err := run(t, dir, "", "-f", "t.yaml", "--nodes", "nodes.json", "--bgppeers", "peers.yaml", "--bgpconfiguration", "off.yaml")
	if err != nil || !strings.Contains(out, "Nothing to do.") {
		t.Errorf("%v\n%s", err, out)
	}
}
