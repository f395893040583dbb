// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// With --mode=report the real program says what it and Kubernetes' framework would do about a new Node, one whose
// machine is gone, a new Service and a firewall, and writes nothing but its Leases.
func TestReportWritesNothing(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	cloud := sim.New(sim.Options{Seed: 5})
	enforces := startManager(t, cloud, c.Kubeconfig, nil)
	readyFleet(t, c, cloud, "stays", "leaves")
	enforces.Stop()
	must.Do(t, cloud.Account("").DeleteDroplet("leaves"))
	notReady(t, c, "leaves")
	droplet(t, cloud, sim.DropletSpec{Name: "joins"})
	node(t, c, "joins")
	service(t, c, "would-be")
	state := func() (out []string) {
		for _, name := range []string{"stays", "leaves", "joins"} {
			n := must.Get(c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})).Or(t)
			out = append(out, name+" "+n.ResourceVersion)
		}
		s := must.Get(c.Client.CoreV1().Services("default").Get(t.Context(), "would-be", metav1.GetOptions{})).Or(t)
		others := metav1.ListOptions{FieldSelector: "involvedObject.kind!=Lease"} // than that of the election
		events := must.Get(c.Client.CoreV1().Events("").List(t.Context(), others)).Or(t)
		return append(out, s.Name+" "+s.ResourceVersion, fmt.Sprintf("%d Events", len(events.Items)))
	}
	before := state()
	m := startManager(t, cloud, c.Kubeconfig,
		[]string{"DO_CLUSTER_ID=report", "PUBLIC_ACCESS_FIREWALL_NAME=fw", "PUBLIC_ACCESS_FIREWALL_TAGS=k8s"},
		"--mode=report", "--leader-elect=true", "--out-of-service-taint")
	for _, want := range []string{
		`"verb":"delete","path":"/api/v1/nodes/leaves"`, `"verb":"update","path":"/api/v1/nodes/joins"`, `"would":"create"`,
		`"would":"making firewall \"fw\""`, `"verb":"patch","path":"/api/v1/namespaces/default/services/would-be/status"`,
	} {
		testkit.Eventually(t, want, func() string {
			if strings.Contains(m.Output(), want) {
				return ""
			}
			return "it does not say so"
		})
	}
	m.Stop()
	if after := state(); !slices.Equal(after, before) {
		t.Errorf("before: %v\nafter:  %v", before, after)
	}
	if stats := cloud.Stats(); stats.Writes() > 0 {
		t.Errorf("%d writes to DigitalOcean: %v", stats.Writes(), stats.Routes)
	}
	if n := strings.Count(m.Output(), `"path":"/api/v1/nodes/leaves"`); n > 4 {
		t.Errorf("%d lines about the Node that would be deleted", n)
	}
}
