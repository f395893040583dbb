// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestTheFirewallFollowsServicesAndNothingIsSentAgain(t *testing.T) {
	both(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.becomes() // also for a cluster that serves nothing
		np := "tcp " + w.nodePort("np") + everybody
		w.becomes(np)
		w.service("web", corev1.ServiceTypeLoadBalancer, nil, cloud.Port(80))
		w.becomes(np, "tcp 80"+everybody, "tcp 10256"+everybody)
		id := w.balancer("web")
		w.Annotate("web", annotation.LoadBalancerID, id)
		w.becomes(np, "tcp 80"+everybody, "tcp 10256 "+id)
		w.PatchService("web", map[string]any{"spec": map[string]any{"loadBalancerSourceRanges": []string{"192.0.2.0/24"}}})
		w.becomes(np, "tcp 80 192.0.2.0/24", "tcp 10256 "+id)
		w.Annotate("web", annotation.FirewallManaged, "false")
		w.becomes(np)
		w.DeleteService("np")
		w.becomes()
		w.resyncs()
		mark := w.Sim.Mark()
		w.Annotate("web", "example.com/irrelevant", "x")
		w.service("inner", corev1.ServiceTypeClusterIP, nil, cloud.Port(80))
		w.resyncs()
		if got := w.Writes(mark); len(got) != 0 {
			t.Errorf("writes %v after changes that matter to nobody", got)
		}
		if got := w.Writes(0); got[postRoute] != 1 || got[putRoute] > 6 {
			t.Errorf("writes %v, want one POST and at most one PUT per change", got)
		}
	})
}

// predecessors is a firewall as the upstream project leaves it, which DigitalOcean shows with its own words.
func (w *world) predecessors(inbound ...digitalocean.InboundRule) digitalocean.Firewall {
	w.T.Helper()
	anywhere := digitalocean.Peers{Addresses: []string{"::/0", "0.0.0.0/0"}}
	f, err := w.Account.CreateFirewall(digitalocean.Firewall{
		Name: w.Name, Tags: &w.config.Tags, InboundRules: inbound,
		OutboundRules: []digitalocean.OutboundRule{
			{Protocol: "icmp", Destinations: anywhere}, {Protocol: "udp", Ports: "all", Destinations: anywhere}, {Protocol: "tcp", Ports: "all", Destinations: anywhere},
		},
	})
	must.Do(w.T, err)
	return f
}

func open(port string) digitalocean.InboundRule {
	return digitalocean.InboundRule{Protocol: "tcp", Ports: port, Sources: digitalocean.Peers{Addresses: []string{"::/0", "0.0.0.0/0"}}}
}

func TestThePredecessorsFirewallIsTakenOverWithoutAWrite(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		np := w.nodePort("np")
		w.service("web", corev1.ServiceTypeLoadBalancer, nil, cloud.Port(80))
		w.predecessors(open("80"), open(np), open("10256"))
		w.run()
		w.resyncs()
		if got := w.Writes(0); len(got) != 0 {
			t.Errorf("writes %v, nothing differs", got)
		}
	})
}

func TestDriftIsRepaired(t *testing.T) {
	both(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		np := "tcp " + w.nodePort("np") + everybody
		w.run()
		f := w.becomes(np)
		for name, edit := range map[string]func(*digitalocean.Firewall){ // one after the other, on one firewall
			"a rule was taken away": func(f *digitalocean.Firewall) { f.InboundRules = nil },
			"a rule was added":      func(f *digitalocean.Firewall) { f.InboundRules = append(f.InboundRules, open("22")) },
			"a rule was narrowed":   func(f *digitalocean.Firewall) { f.InboundRules[0].Sources.Addresses = []string{"192.0.2.1"} },
			"the tags were changed": func(f *digitalocean.Firewall) { f.Tags = &[]string{} },
			"it was renamed":        func(f *digitalocean.Firewall) { f.Name = "renamed-" + f.Name },
			"the way out is barred": func(f *digitalocean.Firewall) { f.OutboundRules = f.OutboundRules[:1] },
		} {
			must.Do(w.T, w.Account.EditFirewall(f.ID, edit))
			if got := w.becomes(np); got.ID != f.ID {
				t.Errorf("%s: it is %+v", name, got)
			}
		}
		w.ReportedOnce(lease, "FirewallRepaired", w.Name, "inbound tcp 22 from 0.0.0.0/0 is not wanted")
		testkit.Eventually(t, "the metric", func() string {
			if n := w.Metric("mooring_digitalocean_firewall_drift_repaired_total"); n != 6 {
				return fmt.Sprint(n)
			}
			return ""
		})
	})
}

func TestDeletedElsewhereItIsMadeAgain(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		np := "tcp " + w.nodePort("np") + everybody
		w.service("web", corev1.ServiceTypeLoadBalancer, nil, cloud.Port(80))
		w.run()
		f := w.becomes(np, "tcp 80"+everybody, "tcp 10256"+everybody)
		w.Annotate("web", annotation.Type, "GLOBAL") // what it had is kept, also when all has to be made again
		w.ReportedOnce("web", "FirewallConfigError", annotation.Type, `"GLOBAL"`, annotation.TypeRegionalNetwork, "tcp 80 from 0.0.0.0/0")
		must.Do(w.T, w.Account.DeleteFirewall(f.ID))
		again := w.becomes(np, "tcp 80"+everybody, "tcp 10256"+everybody)
		if again.ID == f.ID {
			t.Error("it was not deleted")
		}
		w.ReportedOnce(lease, "FirewallRecreated", w.Name, f.ID)
	})
}

func TestABadServiceStopsNobodyAndKeepsWhatItHas(t *testing.T) {
	both(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.service("web", corev1.ServiceTypeLoadBalancer, nil, cloud.Port(80))
		w.run()
		w.becomes("tcp 80"+everybody, "tcp 10256"+everybody)
		w.Annotate("web", annotation.Network, "PUBLIC")
		w.service("new", corev1.ServiceTypeLoadBalancer, map[string]string{annotation.AllowRules: "everybody"}, cloud.Port(81))
		np := "tcp " + w.nodePort("np") + everybody
		w.becomes(np, "tcp 80"+everybody, "tcp 10256"+everybody)
		w.ReportedOnce("web", "FirewallConfigError", annotation.Network, `"PUBLIC"`, annotation.NetworkExternal, annotation.NetworkInternal, "tcp 80 from 0.0.0.0/0")
		w.ReportedOnce("new", "FirewallConfigError", annotation.AllowRules, `"everybody"`, "cidr:RANGE")
		w.closed("web", "FirewallConfigError", `"PUBLIC"`)
		w.closed("new", "FirewallConfigError", `"everybody"`)
		w.DeleteService("np")
		w.becomes("tcp 80"+everybody, "tcp 10256"+everybody)
		w.resyncs()
		w.ReportedOnce("web", "FirewallConfigError") // still once
		if n := w.Metric("mooring_digitalocean_firewall_services_left_out"); n != 2 {
			t.Errorf("%v services are left out", n)
		}
		w.Annotate("web", annotation.Network, annotation.NetworkInternal)
		w.Annotate("new", annotation.AllowRules, "ip:192.0.2.7, cidr:2001:db8::/32")
		w.becomes("tcp 81 192.0.2.7/32,2001:db8::/32", "tcp 10256"+everybody)
		w.closed("web", "")
		w.closed("new", "")
	})
}

// A port that the machines use themselves stays closed, and the Service says so for as long as it asks for it.
func TestAServiceSaysWhatStaysClosed(t *testing.T) {
	both(t, digitalocean.Options{}, func(_ *testing.T, w *world) {
		np := "tcp " + w.nodePort("np") + everybody
		w.service("web", corev1.ServiceTypeLoadBalancer, nil, cloud.Port(22), cloud.Port(80))
		w.run()
		w.becomes(np, "tcp 80"+everybody, "tcp 10256"+everybody)
		w.ReportedOnce("web", "FirewallPortReserved", "tcp 22")
		w.closed("web", "FirewallPortReserved", "does not open tcp 22")
		w.Annotate("web", annotation.Type, "GLOBAL")
		w.closed("web", "FirewallConfigError", `"GLOBAL"`)
	})
}

// closed waits until a Service's condition has the reason and the words, or for an empty reason until there is none.
func (w *world) closed(name, reason string, words ...string) {
	w.T.Helper()
	testkit.Eventually(w.T, "the condition of "+name, func() string {
		s := w.Service(name)
		at := slices.IndexFunc(s.Status.Conditions, func(c metav1.Condition) bool { return c.Type == firewalls.ConditionOpen })
		if at < 0 {
			return map[bool]string{false: "there is none"}[reason == ""]
		}
		c := s.Status.Conditions[at]
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return "it says " + c.Message
			}
		}
		if c.Reason != reason || c.Status != metav1.ConditionFalse || c.LastTransitionTime.IsZero() {
			return fmt.Sprintf("it is %+v", c)
		}
		return ""
	})
}

func TestALoadBalancerThatDoesNotExistStopsItsServiceOnly(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{Firewalls: digitalocean.FirewallOptions{KnownBalancers: true}}, func(t *testing.T, w *world) {
		w.run()
		w.becomes()
		w.service("web", corev1.ServiceTypeLoadBalancer, map[string]string{annotation.LoadBalancerID: "no-such-one"}, cloud.Port(80))
		np := "tcp " + w.nodePort("np") + everybody
		w.becomes(np)
		w.ReportedOnce("web", "FirewallConfigError", annotation.LoadBalancerID, `"no-such-one"`)
		w.resyncs()
		mark := w.Sim.Mark()
		w.resyncs()
		if got := w.Writes(mark); len(got) != 0 {
			t.Errorf("it is tried again and again: %v", got)
		}
		id := w.balancer("web")
		w.Annotate("web", annotation.LoadBalancerID, id)
		w.becomes(np, "tcp 80"+everybody, "tcp 10256 "+id)
		refused := 0
		for _, e := range w.Sim.Requests(journal.Filter{Route: putRoute}) {
			if e.Status == http.StatusUnprocessableEntity {
				refused++
			}
		}
		if refused != 1 {
			t.Errorf("DigitalOcean refused %d requests, want the first one only", refused)
		}
	})
}

func TestAForeignFirewallIsLeftAlone(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		d := must.Get(w.Account.CreateDroplet(digitalocean.DropletSpec{Name: "other", Tags: []string{"web"}})).Or(w.T)
		w.predecessors(open("22"))
		tags := []string{"web"}
		must.Do(w.T, w.Account.EditFirewall(w.Name, func(f *digitalocean.Firewall) { f.Tags, f.DropletIDs = &tags, &[]int{d.ID} }))
		np := "tcp " + w.nodePort("np") + everybody
		w.run()
		w.ReportedOnce(lease, "FirewallForeign", w.Name, "web", workers)
		w.resyncs()
		if got := w.Writes(0); len(got) != 0 {
			t.Errorf("writes %v", got)
		}
		tags = []string{"web", workers} // handed over
		must.Do(w.T, w.Account.EditFirewall(w.Name, func(f *digitalocean.Firewall) { f.Tags = &tags }))
		if f := w.becomes(np); !slices.Equal(*f.DropletIDs, []int{d.ID}) {
			t.Errorf("its droplets are %v: those that people gave it stay", *f.DropletIDs)
		}
	})
}

// A cache that lacks a Service closes nothing: what is to be closed is looked for at the API server itself.
func TestAnOldCacheClosesNothing(t *testing.T) {
	both(t, digitalocean.Options{}, func(_ *testing.T, w *world) {
		s := w.service("hidden", corev1.ServiceTypeNodePort, nil, cloud.Port(80))
		hidden := fmt.Sprint(s.Spec.Ports[0].NodePort)
		w.PatchService("hidden", map[string]any{"metadata": map[string]any{"labels": map[string]any{cloud.Label: nil}}}) // the informer does not see it now
		w.predecessors(open(hidden))
		w.run()
		w.resyncs()
		np := "tcp " + w.nodePort("np") + everybody
		w.becomes(np, "tcp "+hidden+everybody)
		w.DeleteService("hidden")
		w.becomes(np)
	})
}

func TestAnotherAccountIsNotTouched(t *testing.T) {
	t.Parallel()
	simulated(t, cloud.TwoAccounts(), func(t *testing.T, w *world) {
		np := "tcp " + w.nodePort("np") + everybody
		w.run()
		w.becomes(np)
		theirs := w.Sim.Account("theirs")
		must.Get(theirs.CreateDroplet(digitalocean.DropletSpec{Name: "x", Tags: []string{workers}})).Or(w.T)
		made, err := theirs.CreateFirewall(digitalocean.Firewall{Name: w.Name, Tags: &w.config.Tags, InboundRules: []digitalocean.InboundRule{open("22")}})
		must.Do(w.T, err)
		w.Token.Set("theirs")
		mark := w.Sim.Mark()
		testkit.Eventually(t, "an event", func() string {
			for _, e := range w.Events() {
				if e.Reason == "DigitalOceanAccountInDoubt" || strings.Contains(e.Message, "is left as it is") {
					return ""
				}
			}
			if got := w.Metric("mooring_digitalocean_firewall_syncs_total", "failed"); got >= 2 {
				return ""
			}
			return w.Story()
		})
		w.nodePort("more")
		cloud.Elapse(4 * w.timing.Resync)
		if got := w.Writes(mark); len(got) != 0 {
			t.Errorf("writes %v with a token of another account", got)
		}
		if all := theirs.Firewalls(); len(all) != 1 || all[0].ID != made.ID || !slices.Equal(opened(all[0]), []string{"tcp 22" + everybody}) && len(all[0].InboundRules) != 1 {
			t.Errorf("theirs are %+v", all)
		}
	})
}

// After the gate is closed, at the end of the process, nothing is written any more.
func TestNothingIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.becomes()
		if !w.provider.Drain(10 * time.Second) {
			t.Fatal("a pass did not end")
		}
		mark := w.Sim.Mark()
		w.nodePort("np")
		cloud.Elapse(4 * w.timing.Resync)
		if got := w.Writes(mark); len(got) != 0 {
			t.Errorf("writes %v", got)
		}
	})
}
