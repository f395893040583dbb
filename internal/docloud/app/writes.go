// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/clustertag"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/shutdowns"
	"github.com/mooring-dev/mooring/internal/docloud/startuptaint"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// outsideRounds are what Kubernetes' framework writes, with what answers it: labels of Nodes and the account's record.
// Nothing else is sent outside of rounds.
func outsideRounds() []outputs.Write {
	return []outputs.Write{
		{System: outputs.Kubernetes, Kind: "nodes", Verbs: []string{"update", "delete"}},
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

// Writes are all writes of the program, of which a test compares those to Kubernetes with the roles.
func Writes() []outputs.Write {
	return slices.Concat(
		outsideRounds(), balancers.Writes(), firewalls.Writes(), clustertag.Writes(), shutdowns.Writes(), startuptaint.Writes(),
	)
}
