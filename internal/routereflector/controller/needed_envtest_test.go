// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Where all pools are VXLAN's nothing is written but the finalizer and the status, until somebody confirms that the
// reflectors are meant; the same in both datastores.
func TestNothingIsEnabledInVain(t *testing.T) {
	t.Parallel()
	s := newStage(t, 5)
	pool := calicov3.NewIPPool()
	pool.Name, pool.Spec.CIDR, pool.Spec.VXLANMode = "pods", "10.64.0.0/16", calicov3.VXLANModeAlways
	must.Get(s.calico.IPPools().Create(t.Context(), pool, options.SetOptions{})).Or(t)
	t.Cleanup(func() {
		must.Get(s.calico.IPPools().Delete(context.WithoutCancel(t.Context()), "pods", options.DeleteOptions{})).Or(t)
	})
	s.start()
	s.create("main", "{}")
	topology := s.await("main", v1alpha1.PhaseRefused)
	expectCondition(t, topology, v1alpha1.ConditionAccepted, "NotNeeded",
		"route reflectors are not needed: BGP carries no route between nodes, since Felix programs those of IP pools pods (VXLAN); ")
	if peers := s.peerNames(); len(peers) > 0 || len(s.reflectors()) > 0 {
		t.Errorf("there are BGPPeers %v and reflectors %v", peers, s.reflectors())
	}
	s.patch("main", `{"metadata":{"annotations":{"`+v1alpha1.ConfirmAnnotation+`":"NotNeeded"}}}`)
	s.await("main", v1alpha1.PhaseReady)
}
