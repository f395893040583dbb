// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package choose

import (
	"fmt"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
)

// WhyAdopted says what taking over a reflector does to it.
func WhyAdopted(w *rr.World, n *rr.Node) string {
	if n.ClusterID == w.Topology.Spec.ClusterID {
		return "spec.adopt names it; it keeps its cluster ID and its sessions"
	}
	return fmt.Sprintf(
		"spec.adopt names it, and its cluster ID %s becomes %s; its own pods' traffic stops for some seconds",
		n.ClusterID, w.Topology.Spec.ClusterID)
}
