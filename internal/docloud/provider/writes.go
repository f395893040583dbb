// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// OutsideRounds are what Kubernetes' framework writes, with what answers it: labels of Nodes and the account's record.
// Nothing else is sent outside of rounds.
func OutsideRounds() []outputs.Write {
	return []outputs.Write{
		{System: outputs.Kubernetes, Kind: "nodes", Verbs: []string{"update"}},
		{System: outputs.Kubernetes, Kind: "nodes", Verbs: []string{"delete"}, Bound: true},
		{System: outputs.Kubernetes, Kind: "nodes", Verbs: []string{"patch"}, Fields: []string{
			outputs.Field("metadata", "labels"), outputs.Field("metadata", "annotations", instance.LabelsAnnotation),
			outputs.Field("spec", "taints"),
		}},
		{System: outputs.Kubernetes, Kind: "nodes/status", Verbs: []string{"patch"}, Fields: []string{
			outputs.Field("status", "addresses"), outputs.Field("status", "conditions"),
		}},
		{System: outputs.Kubernetes, Kind: "services/status", Verbs: []string{"patch"}, Fields: []string{
			outputs.Field("metadata", "finalizers"), outputs.Field("status", "loadBalancer"),
		}},
		{System: outputs.Kubernetes, Kind: "events", Verbs: []string{"create", "patch"}},
		{System: outputs.Kubernetes, Kind: "leases.coordination.k8s.io", Verbs: []string{"create", "update"}},
	}
}
