// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/sim/calicostatus"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// v3Stage is a cluster in which Calico's kinds are served in both groups, as where Calico's API server runs. Here they are separate CRDs, so that what
// goes to the wrong group is seen to.
func v3Stage(t *testing.T, nodes int) *stage {
	t.Helper()
	s := &stage{t: t, cluster: cluster.Own(t, controlplane.CalicoCRDs(t)...)}
	s.cluster.Serve(t, controlplane.OwnKind(t, "routereflectortopologies"))
	s.config = s.cluster.Config
	v3 := schema.GroupVersion{Group: "projectcalico.org", Version: "v3"}
	s.cluster.Serve(t, controlplane.CalicoKindsV3(t, "bgppeers", "bgpconfigurations", "bgpfilters", "caliconodestatuses", "clusterinformations")...)
	testkit.Eventually(t, "the group to be served, and chosen", func() string {
		b, err := calico.OpenBGP(t.Context(), s.cluster.Config)
		if err != nil {
			return err.Error()
		}
		if b.Group() != v3 {
			return b.Group().String()
		}
		s.client, err = client.New(s.cluster.Config, client.Options{Scheme: schemeOf(b)})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	info := calicov3.NewClusterInformation()
	ready := true
	info.Name, info.Spec.DatastoreReady = "default", &ready
	if err := s.client.Create(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	s.makeNodes(nodes)
	ctx, cancel := context.WithCancel(t.Context())
	sim, err := calicostatus.Start(ctx, calicostatus.Options{Config: s.cluster.Config, Group: v3, Up: sessionsUp, Answer: answer})
	if err != nil {
		t.Fatal(err)
	}
	s.sim = sim
	t.Cleanup(func() { cancel(); sim.Wait() })
	return s
}

// Where projectcalico.org/v3 is served, all of it happens there: enabling, a filter that is waited for, a process that dies after each write, and the
// way back. crd.projectcalico.org is not touched, not even read.
func TestTheGroupOfCalicosAPI(t *testing.T) {
	t.Parallel()
	s := v3Stage(t, 6)
	s.create("main", "session: {filters: [imports]}")
	p := s.start()
	expectCondition(t, s.await("main", v1alpha1.PhaseRefused), v1alpha1.ConditionAccepted, "BGPFilterNotFound", "there is no BGPFilter imports")
	onlyStatus(t, p)
	requests := p.program.Since(0)
	p.stop()
	filter := calicov3.NewBGPFilter()
	filter.Name = "imports"
	if err := s.client.Create(t.Context(), filter); err != nil {
		t.Fatal(err)
	}
	for !s.ended("main") {
		p := s.start(func(_ *Reconciler, p *cluster.Program) { p.DieAt(cluster.Death{Write: 1, After: true}) })
		s.awaitDeathOr(p, "main")
		p.stop()
		requests = append(requests, p.program.Since(0)...)
	}
	s.expectOneAtATime()
	if got := s.reflectors(); len(got) != 3 || s.mesh() {
		t.Errorf("the reflectors are %v, the mesh is on: %t", got, s.mesh())
	}
	p = s.start()
	if err := s.client.Delete(t.Context(), s.topology("main")); err != nil {
		t.Fatal(err)
	}
	s.awaitGone("main")
	s.expectOnlyStanding()
	p.stop()
	requests = append(requests, p.program.Since(0)...)
	if got := s.reflectors(); len(got) != 0 || !s.mesh() {
		t.Errorf("afterwards the reflectors are %v, the mesh is on: %t", got, s.mesh())
	}
	in := 0
	for _, r := range requests {
		if strings.Contains(r, "/apis/crd.projectcalico.org") {
			t.Errorf("it went to the wrong group: %s", r)
		}
		if strings.Contains(r, "/apis/projectcalico.org/v3/bgppeers") {
			in++
		}
	}
	if in == 0 {
		t.Error("there was no request for BGPPeers")
	}
}
