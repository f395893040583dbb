// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// RowOf is for tests.
func RowOf(rows []volumes.Row, claim, volume string) *volumes.Row { return rowOf(rows, claim, volume) }

// EventSources is for tests.
func EventSources() map[string][]string { return eventSources() }

// ConfirmText is what a list of one thing of each kind looks like.
func ConfirmText(now time.Time, columns int) string {
	held := nodesync.Awaiting{
		Hash: "3f2a9c01d4be", Gate: nodesync.GateMass, Count: 12, Why: "12 nodes are gone whose deletion was not watched, including removals of the last 1h0m0s; the mass guard allows 4 of 40",
		Machines: []string{"node-00", "node-01", "node-02", "node-03", "node-04", "node-05", "node-06", "node-07", "node-08", "node-09"},
	}
	old := nodesync.Awaiting{
		Hash: "5a5a5a5a5a5a", Gate: nodesync.GateOverlap, Count: 1, Machines: []string{"a\x1b[2J"}, Why: "only 0 of 1 Calico Nodes have their Kubernetes Node, less than 50 % (--min-overlap-percent): " +
			"check that this is the right cluster and the right datastore",
	}
	state := nodeState{namespace: "mooring-system", waits: held, savedAt: now.Add(-40 * time.Second)}
	refused, given := state, state
	refused.confirmation = "0123456789ab/2026-01-31T04:00:00Z"
	given.confirmation = held.Confirmation(now.Add(time.Hour))
	return confirmations{
		Nodes: []nodesAwaiting{
			state.awaiting(now), refused.awaiting(now), given.awaiting(now),
			nodeState{namespace: "kube-system", waits: old, savedAt: now.Add(-3 * time.Hour)}.awaiting(now),
		},
		Topologies: []topologyAwaiting{
			{Name: "main", Reason: "NodesVanished", Why: "of 20 Nodes there are 8 left", Word: "5d0c77aa", Command: "kubectl mooring confirm topology main 5d0c77aa"},
			{Name: "old", Reason: "MeshNotManaged", Why: "the topology is being deleted", Word: "MeshNotManaged", Command: "kubectl mooring confirm topology old MeshNotManaged"},
			{Name: "rack", Reason: "SelectorMatchesNothing", Why: "spec.clientSelector selects none of the 20 Nodes", Word: "aabbccdd", Confirmed: true},
		},
		Unread: []string{"reading ConfigMap kube-system/calico-node-sync-state: configmaps is forbidden"},
	}.text(now, columns)
}
