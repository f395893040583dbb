// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/chromium"
	"github.com/mooring-dev/mooring/internal/ui"
)

// inHealth is a cluster of so many machines in which nothing needs attention.
func inHealth(machines int) ui.World {
	w := worldOf(machines + 1)
	w.Notes, w.Waits = nil, nil
	w.Machines = slices.DeleteFunc(w.Machines, func(r agreement.Row) bool { return !r.HasNode })
	for i := range w.Machines {
		r := &w.Machines[i]
		r.Verdict, r.Findings, r.Node, r.Droplet = finding.Agree, nil, "Ready", fmt.Sprintf("droplet %d", 4000+i)
	}
	reflectors := w.Topologies[0].Groups[0].Reflectors
	for i := range reflectors {
		reflectors[i].Node, reflectors[i].Established = w.Machines[i].Machine, reflectors[i].Expected
	}
	w.Findings = slices.DeleteFunc(w.Findings, func(f finding.Finding) bool { return f.Severity != finding.OK })
	w.Balancers = slices.DeleteFunc(w.Balancers, func(b ui.Balancer) bool { return len(b.Status.LoadBalancer.Ingress) == 0 })
	for i := range w.Volumes.Volumes {
		w.Volumes.Volumes[i].Verdict, w.Volumes.Volumes[i].Findings = finding.Agree, nil
	}
	w.Tenants = slices.DeleteFunc(w.Tenants, func(t ui.Tenant) bool { return !meta.IsStatusConditionTrue(t.Status.Conditions, "Ready") })
	for i := range w.Tenants {
		usage := w.Tenants[i].Status.Usage
		usage.Bytes, usage.Keys = *resource.NewQuantity(3<<20, resource.BinarySI), 913
	}
	w.Entries = slices.DeleteFunc(w.Entries, func(e finding.Event) bool { return e.Warning })
	w.Components = []finding.Component{
		{Name: "calico-node-sync", Namespace: "mooring-system", Workload: "deployment/calico-node-sync", Version: "v0.1.0", Ready: 2, Wanted: 2, Leader: "calico-node-sync-7d9f-x", Renewed: new(w.ReadAt)},
		{Name: "digitalocean-cloud-controller-manager", Namespace: "kube-system", Workload: "deployment/digitalocean-cloud-controller-manager", Version: "v0.1.0", Ready: 2, Wanted: 2, Leader: "cloud-5c4b-y", Renewed: new(w.ReadAt)},
	}
	return w
}

// inTrouble is the same cluster after a bad night: a reflector's machine is off, others contradict each other, and a component does not run.
func inTrouble(machines int) ui.World {
	w, well := worldOf(machines), inHealth(machines)
	w.Components = well.Components
	w.Components[0].Ready, w.Components[0].Problem = 0, "no pod of 2 pods is ready"
	since := w.ReadAt.Add(-3 * time.Minute)
	off := &w.Machines[0]
	off.Verdict, off.Node, off.Droplet = finding.Down, "NotReady", off.Droplet+", off"
	off.Findings = []finding.Verdict{{State: finding.Down, What: "droplet 4000 is switched off", Since: &since, Next: "switch the droplet on, or delete it: its Node is then deleted"}}
	w.Machines[2].Verdict, w.Machines[2].Findings = finding.Settling, []finding.Verdict{{
		State: finding.Settling, What: "the Node has just joined and is not Ready yet", Next: "its kubelet reports Ready when the network is available",
	}}
	reflector := &w.Topologies[0].Groups[0].Reflectors[0]
	reflector.Node, reflector.NotReady, reflector.Established = off.Machine, true, 0
	return w
}

// TestPictures takes pictures of the page for a person to look at, and has axe-core judge each, if a person wants either: with 5, 240 and 5,000 machines,
// in health and in trouble, light and dark, wide and 390 px. What no person need look at is asserted: nothing is wider than the window, trouble comes
// first, and in health nothing is called ill.
func TestPictures(t *testing.T) { //nolint:paralleltest // one browser at a time
	if os.Getenv(screenshots) == "" && os.Getenv(axeScript) == "" {
		t.Skipf("neither %s nor %s is set: run `make screenshots`", screenshots, axeScript)
	}
	browser := chromium.Start(t)
	for _, machines := range []int{5, 240, 5000} {
		for state, world := range map[string]ui.World{"health": inHealth(machines), "trouble": inTrouble(machines)} {
			server := serve(t, &source{world: world}, clock.RealClock{})
			for _, width := range []int{1440, 390} {
				name := fmt.Sprintf("%d-%s-%d", machines, state, width)
				p := browser.Open(width, 900)
				p.Go(server.URL())
				drawn(p)
				want(t, p, `String(document.documentElement.scrollWidth - document.documentElement.clientWidth)`, "0")
				want(t, p, `document.querySelector("#sections li").className`, map[string]string{"health": "part good", "trouble": "part bad"}[state])
				picture(t, p, name)
				judge(t, p, name)
				quiet(t, p, server.URL())
				p.Close()
			}
		}
	}
}
