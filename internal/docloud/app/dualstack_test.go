// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// statusPatches is how many patches of the status of Nodes the API server has served.
func statusPatches(t *testing.T, c *controlplane.Cluster) int {
	t.Helper()
	page := must.Get(c.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())).Or(t)
	sum := 0
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="nodes"`) && strings.Contains(line, `subresource="status"`) &&
			strings.Contains(line, `verb="PATCH"`) {
			fields := strings.Fields(line)
			n := must.Get(strconv.ParseFloat(fields[len(fields)-1], 64)).Or(t)
			sum += int(n)
		}
	}
	return sum
}

// A Node with two addresses of one type, as every dual-stack machine has, is not written again while nothing changes; and is, when something does.
func TestDualStackNodesAreNotWrittenAgain(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	cloud := sim.New(sim.Options{Seed: 8})
	m := startManager(t, cloud, c.Kubeconfig, nil, "--v=2")
	nodes := map[string]sim.Droplet{}
	for _, name := range []string{"dual-1", "dual-2", "dual-told"} {
		nodes[name] = droplet(t, cloud, sim.DropletSpec{Name: name, IPv6: true})
		node(t, c, name)
	}
	told := nodes["dual-told"].Networks
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"alpha.kubernetes.io/provided-node-ip":"%s,%s"}}}`, public(told.V4), public(told.V6))
	_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), "dual-told", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	must.Do(t, err)
	for name, d := range nodes {
		testkit.Eventually(t, "the Node to be initialized with both addresses", func() string {
			n, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || !strings.Contains(fmt.Sprint(n.Status.Addresses), public(d.Networks.V6)) {
				return fmt.Sprint(err)
			}
			return initialized(t, c, name, d)
		})
	}
	sweeps := func() int { return strings.Count(m.Output(), "Update 3 nodes status took") }
	wait := func(n int) {
		t.Helper()
		before := sweeps()
		testkit.Eventually(t, "the addresses to be looked at again", func() string {
			if got := sweeps(); got < before+n {
				return fmt.Sprintf("%d times; %s", got-before, m.Output())
			}
			return ""
		})
	}
	wait(2)
	before := statusPatches(t, c)
	wait(4)
	if n := statusPatches(t, c) - before; n != 0 {
		t.Errorf("%d writes of the status of Nodes of which nothing has changed", n)
	}
	// Somebody takes an address away: it is put back.
	_, err = c.Client.CoreV1().Nodes().PatchStatus(t.Context(), "dual-1", []byte(`{"status":{"addresses":[{"type":"ExternalIP","address":"`+public(nodes["dual-1"].Networks.V6)+`","$patch":"delete"}]}}`))
	must.Do(t, err)
	testkit.Eventually(t, "the address to be back", func() string {
		n, err := c.Client.CoreV1().Nodes().Get(t.Context(), "dual-1", metav1.GetOptions{})
		if err != nil || len(n.Status.Addresses) != 4 {
			return fmt.Sprint(err, n)
		}
		return ""
	})
}

// public is the public address among some.
func public[A sim.NetworkV4 | sim.NetworkV6](all []A) string {
	for _, a := range all {
		switch a := any(a).(type) {
		case sim.NetworkV4:
			if a.Type == "public" {
				return a.IPAddress
			}
		case sim.NetworkV6:
			if a.Type == "public" {
				return a.IPAddress
			}
		}
	}
	return ""
}
