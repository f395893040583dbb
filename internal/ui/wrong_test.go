// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/topology"
	"github.com/mooring-dev/mooring/internal/ui"
)

// broken is a machine that is down.
func broken(name, next string) agreement.Row {
	since := at(-7)
	return agreement.Row{Machine: name, HasNode: true, Verdict: finding.Down, Findings: []finding.Verdict{
		{State: finding.Down, What: "droplet 5 is switched off", Since: &since, Next: next},
	}}
}

// Above all else is the worst of each part, with its reason, since when, a command and who acts next, whatever the filter;
// a part with more fills what room there is.
func TestWrong(t *testing.T) {
	t.Parallel()
	since, reported := at(-7), at(-1)
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "CoreUnreachable", Message: "no answer", LastTransitionTime: metav1.NewTime(at(-3))}
	w := ui.World{
		ReadAt: at(0), Machines: []agreement.Row{broken("node-10", ""), broken("node-2", "switch the droplet on")},
		Waits: []finding.Verdict{{State: finding.Held, What: "3 machines wait", On: "a, b, c", ObservedAt: reported, Next: "kubectl mooring confirm nodes 3f2a"}},
		Tenants: []ui.Tenant{tenant("team-a", ready, func(t *ui.Tenant) {
			t.Status.Conditions = append(t.Status.Conditions, metav1.Condition{Type: "Reconciling", Status: metav1.ConditionTrue})
		})},
		Components: []finding.Component{{Name: "etcd-storage-operator", Namespace: "kube-apiserver-storage"}},
	}
	machine := ui.Fault{
		Key: "machines", What: "node-2 down: droplet 5 is switched off", Since: &since, Command: "kubectl mooring explain node node-2",
		Next: "switch the droplet on", Who: "you",
	}
	waits := ui.Fault{
		Key: "waits", What: "3 machines wait: a, b, c:", Since: &reported, Command: "kubectl mooring confirm nodes 3f2a", Who: "you",
	}
	is := ui.View(w, ui.Filter{Text: "nothing like this"}, "").Wrong
	if diff := cmp.Diff([]ui.Fault{machine, waits}, is.First[:2]); diff != "" {
		t.Error(diff)
	}
	tenantSince := at(-3)
	last := is.First[2]
	if last.Key != "tenants" || last.Who != "etcd-storage-operator" || !last.Since.Equal(tenantSince) || last.Command != "kubectl mooring explain etcdstorage team-a" {
		t.Errorf("%+v", last)
	}
	if !strings.HasSuffix(is.More, "more, below") {
		t.Errorf("more: %q", is.More)
	}
	w.Waits, w.Tenants, w.Components = nil, nil, nil
	w.CheckedAt = at(0)
	for _, fault := range ui.View(w, ui.Filter{}, "").Wrong.First {
		if fault.Key != "machines" {
			t.Errorf("%+v", fault)
		}
	}
	w.Machines = nil
	if is := ui.View(w, ui.Filter{}, "").Wrong; len(is.First) != 0 || is.More != "" {
		t.Errorf("all is well, and %+v", is)
	}
}

// Who acts next is the component that the next step begins with; a name that a shell would run is in no command.
func TestWhoActsAndWhatIsCopied(t *testing.T) {
	t.Parallel()
	for next, who := range map[string]string{
		"calico-node-sync removes it: at its next reconcile": "calico-node-sync", "the cloud controller manager deletes the Node": "digitalocean-cloud-controller-manager",
		"check whether calico-node-sync runs": "you", "": "you",
	} {
		w := ui.World{ReadAt: at(0), Machines: []agreement.Row{broken("$(reboot)", next)}}
		if fault := ui.View(w, ui.Filter{}, "").Wrong.First[0]; fault.Who != who || fault.Command != "kubectl mooring agreement" {
			t.Errorf("%q: %+v", next, fault)
		}
	}
}

// Names are in the order that people expect, node-2 before node-10, wherever there are names.
func TestNaturalOrder(t *testing.T) {
	t.Parallel()
	names := []string{"n-10", "n-2", "n-1"}
	w := ui.World{ReadAt: at(0), Zones: map[string]string{}}
	for i, name := range names {
		w.Machines = append(w.Machines, agreement.Row{Machine: name, HasNode: true, Verdict: finding.Agree})
		w.Zones[name] = "z" + name[1:]
		w.Balancers = append(w.Balancers, balancer("shop", name, at(i), []string{"192.0.2.1"}))
		w.Tenants = append(w.Tenants, tenant(name, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue}))
		w.Topologies = append(w.Topologies, topology.Map{Name: name, Troubles: []string{"x"}})
		w.Excluded = append(w.Excluded, ui.Excluded{Node: name, Reason: "r"})
	}
	p := ui.View(w, ui.Filter{}, "")
	var zones []string
	for _, z := range p.Machines.Zones {
		zones = append(zones, z.Name)
	}
	if want := []string{"z-1", "z-2", "z-10"}; !slices.Equal(zones, want) {
		t.Errorf("zones %v", zones)
	}
	for _, l := range p.Lists {
		var got []string
		for _, r := range l.Rows {
			got = append(got, strings.TrimPrefix(r.Cells[0].Text, "shop/"))
		}
		if len(got) > 0 && !slices.Equal(got, []string{"n-1", "n-2", "n-10"}) {
			t.Errorf("%s: %v", l.Key, got)
		}
		if l.Key == "balancers" && !strings.Contains(l.Rows[0].Cells[4].Text, "without n-1 (r), n-2 (r), n-10 (r)") {
			t.Errorf("targets: %q", l.Rows[0].Cells[4].Text)
		}
	}
	w.Zones = nil
	if got := ui.Names(w, ui.Filter{})["no zone"]; !slices.Equal(got, []string{"n-1", "n-2", "n-10"}) {
		t.Errorf("squares: %v", got)
	}
}

// judged is a load balancer with that verdict.
func judged(state finding.State, what string, since time.Time) func(*ui.Balancer) {
	return func(b *ui.Balancer) {
		b.Verdict = finding.Verdict{State: state, What: what, Since: &since, Next: "see why"}
	}
}

// A tenant of which some proxies are not ready for longer than its operator takes is wrong, with its age and what to do.
func TestTenantThatIsPartlyReadyForLong(t *testing.T) {
	t.Parallel()
	for minutes, want := range map[int]string{5: "changing", 25: "bad"} {
		since := metav1.NewTime(at(minutes))
		w := ui.World{ReadAt: at(0), CheckedAt: at(0), Tenants: []ui.Tenant{
			tenant("a", metav1.Condition{Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(600))}, func(t *ui.Tenant) {
				t.Spec.Replicas, t.Status.ReadyReplicas = 3, 1
				t.Status.Conditions = append(t.Status.Conditions,
					metav1.Condition{Type: "Reconciling", Status: metav1.ConditionTrue, LastTransitionTime: since})
			}),
		}}
		text := ui.Text(w, 120, finding.Plain)
		if !strings.Contains(text, "Tenants of etcd     "+want) {
			t.Errorf("after %d minutes:\n%s", minutes, text)
		}
		const age = "  ! a: 2 of 3 proxies are not ready (since 25m)\n    to do: kubectl get pods -A -l etcd.mooring.dev/storage=a\n"
		if bad := want == "bad"; strings.Contains(text, age) != bad {
			t.Errorf("after %d minutes:\n%s", minutes, text)
		}
	}
}
