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

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
)

func TestTheFirewallFollowsServicesAndNothingIsSentAgain(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.becomes() // also for a cluster that serves nothing
	np := "tcp " + w.nodePort("np") + everybody
	w.becomes(np)
	w.service("web", corev1.ServiceTypeLoadBalancer, nil, port(80))
	w.becomes(np, "tcp 80"+everybody, "tcp 10256"+everybody)
	id := w.balancer("web")
	w.annotate("web", annotation.LoadBalancerID, id)
	w.becomes(np, "tcp 80"+everybody, "tcp 10256 "+id)
	w.patch("web", map[string]any{"spec": map[string]any{"loadBalancerSourceRanges": []string{"192.0.2.0/24"}}})
	w.becomes(np, "tcp 80 192.0.2.0/24", "tcp 10256 "+id)
	w.annotate("web", annotation.FirewallManaged, "false")
	w.becomes(np)
	w.delete("np")
	w.becomes()
	w.looked()
	mark := w.mark()
	w.annotate("web", "example.com/irrelevant", "x")
	w.service("inner", corev1.ServiceTypeClusterIP, nil, port(80))
	w.looked()
	if got := w.writes(mark); len(got) != 0 {
		t.Errorf("writes %v after changes that matter to nobody", got)
	}
	if got := w.writes(0); got[postRoute] != 1 || got[putRoute] > 6 {
		t.Errorf("writes %v, want one POST and at most one PUT per change", got)
	}
}

// predecessors is a firewall as the upstream project leaves it, which DigitalOcean shows with its own words.
func (w *world) predecessors(inbound ...digitalocean.InboundRule) digitalocean.Firewall {
	w.t.Helper()
	anywhere := digitalocean.Peers{Addresses: []string{"::/0", "0.0.0.0/0"}}
	f, err := w.account.CreateFirewall(digitalocean.Firewall{
		Name: w.name, Tags: &w.config.Tags, InboundRules: inbound,
		OutboundRules: []digitalocean.OutboundRule{
			{Protocol: "icmp", Destinations: anywhere}, {Protocol: "udp", Ports: "all", Destinations: anywhere}, {Protocol: "tcp", Ports: "all", Destinations: anywhere},
		},
	})
	w.must(err)
	return f
}

func open(port string) digitalocean.InboundRule {
	return digitalocean.InboundRule{Protocol: "tcp", Ports: port, Sources: digitalocean.Peers{Addresses: []string{"::/0", "0.0.0.0/0"}}}
}

func TestThePredecessorsFirewallIsTakenOverWithoutAWrite(t *testing.T) {
	w := newWorld(t)
	np := w.nodePort("np")
	w.service("web", corev1.ServiceTypeLoadBalancer, nil, port(80))
	w.predecessors(open("80"), open(np), open("10256"))
	w.run()
	w.looked()
	if got := w.writes(0); len(got) != 0 {
		t.Errorf("writes %v, nothing differs", got)
	}
}

func TestDriftIsRepaired(t *testing.T) { //nolint:tparallel // newWorld makes it parallel, its cases share one firewall
	w := newWorld(t)
	np := "tcp " + w.nodePort("np") + everybody
	w.run()
	f := w.becomes(np)
	for name, edit := range map[string]func(*digitalocean.Firewall){
		"a rule was taken away": func(f *digitalocean.Firewall) { f.InboundRules = nil },
		"a rule was added":      func(f *digitalocean.Firewall) { f.InboundRules = append(f.InboundRules, open("22")) },
		"a rule was narrowed":   func(f *digitalocean.Firewall) { f.InboundRules[0].Sources.Addresses = []string{"192.0.2.1"} },
		"the tags were changed": func(f *digitalocean.Firewall) { f.Tags = &[]string{} },
		"it was renamed":        func(f *digitalocean.Firewall) { f.Name = "renamed-" + f.Name },
		"the way out is barred": func(f *digitalocean.Firewall) { f.OutboundRules = f.OutboundRules[:1] },
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // one after the other, on one firewall
			w.t = t
			w.must(w.account.EditFirewall(f.ID, edit))
			if got := w.becomes(np); got.ID != f.ID {
				t.Errorf("it is %+v", got)
			}
		})
	}
	w.t = t
	w.told(lease, "FirewallRepaired", w.name, "inbound tcp 22 from 0.0.0.0/0 is not wanted")
	testkit.Eventually(t, "the metric", func() string {
		if n := testutil.ToFloat64(collect(w, "mooring_digitalocean_firewall_drift_repaired_total")); n != 6 {
			return fmt.Sprint(n)
		}
		return ""
	})
}

func TestDeletedElsewhereItIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	np := "tcp " + w.nodePort("np") + everybody
	w.service("web", corev1.ServiceTypeLoadBalancer, nil, port(80))
	w.run()
	f := w.becomes(np, "tcp 80"+everybody, "tcp 10256"+everybody)
	w.annotate("web", annotation.Type, "GLOBAL") // what it had is kept, also when all has to be made again
	w.told("web", "FirewallConfigError", annotation.Type, `"GLOBAL"`, annotation.TypeRegionalNetwork, "tcp 80 from 0.0.0.0/0")
	w.must(w.account.DeleteFirewall(f.ID))
	again := w.becomes(np, "tcp 80"+everybody, "tcp 10256"+everybody)
	if again.ID == f.ID {
		t.Error("it was not deleted")
	}
	w.told(lease, "FirewallRecreated", w.name, f.ID)
}

func TestABadServiceStopsNobodyAndKeepsWhatItHas(t *testing.T) {
	w := newWorld(t)
	w.service("web", corev1.ServiceTypeLoadBalancer, nil, port(80))
	w.run()
	w.becomes("tcp 80"+everybody, "tcp 10256"+everybody)
	w.annotate("web", annotation.Network, "PUBLIC")
	w.service("new", corev1.ServiceTypeLoadBalancer, map[string]string{annotation.AllowRules: "everybody"}, port(81))
	np := "tcp " + w.nodePort("np") + everybody
	w.becomes(np, "tcp 80"+everybody, "tcp 10256"+everybody)
	w.told("web", "FirewallConfigError", annotation.Network, `"PUBLIC"`, annotation.NetworkExternal, annotation.NetworkInternal, "tcp 80 from 0.0.0.0/0")
	w.told("new", "FirewallConfigError", annotation.AllowRules, `"everybody"`, "cidr:RANGE")
	w.delete("np")
	w.becomes("tcp 80"+everybody, "tcp 10256"+everybody)
	w.looked()
	w.told("web", "FirewallConfigError") // still once
	if n := testutil.ToFloat64(collect(w, "mooring_digitalocean_firewall_services_left_out")); n != 2 {
		t.Errorf("%v services are left out", n)
	}
	w.annotate("web", annotation.Network, annotation.NetworkInternal)
	w.annotate("new", annotation.AllowRules, "ip:192.0.2.7, cidr:2001:db8::/32")
	w.becomes("tcp 81 192.0.2.7/32,2001:db8::/32", "tcp 10256"+everybody)
}

func TestALoadBalancerThatDoesNotExistStopsItsServiceOnly(t *testing.T) {
	w := newWorld(t, func(o *digitalocean.Options) { o.Firewalls.KnownBalancers = true })
	w.run()
	w.becomes()
	w.service("web", corev1.ServiceTypeLoadBalancer, map[string]string{annotation.LoadBalancerID: "no-such-one"}, port(80))
	np := "tcp " + w.nodePort("np") + everybody
	w.becomes(np)
	w.told("web", "FirewallConfigError", annotation.LoadBalancerID, `"no-such-one"`)
	w.looked()
	mark := w.mark()
	w.looked()
	if got := w.writes(mark); len(got) != 0 {
		t.Errorf("it is tried again and again: %v", got)
	}
	id := w.balancer("web")
	w.annotate("web", annotation.LoadBalancerID, id)
	w.becomes(np, "tcp 80"+everybody, "tcp 10256 "+id)
	refused := 0
	for _, e := range w.sim.Requests(journal.Filter{Route: putRoute}) {
		if e.Status == http.StatusUnprocessableEntity {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("DigitalOcean refused %d requests, want the first one only", refused)
	}
}

func TestAForeignFirewallIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	d, err := w.account.CreateDroplet(digitalocean.DropletSpec{Name: "other", Tags: []string{"web"}})
	w.must(err)
	w.predecessors(open("22"))
	tags := []string{"web"}
	w.must(w.account.EditFirewall(w.name, func(f *digitalocean.Firewall) { f.Tags, f.DropletIDs = &tags, &[]int{d.ID} }))
	np := "tcp " + w.nodePort("np") + everybody
	w.run()
	w.told(lease, "FirewallForeign", w.name, "web", workers)
	w.looked()
	if got := w.writes(0); len(got) != 0 {
		t.Errorf("writes %v", got)
	}
	tags = []string{"web", workers} // handed over
	w.must(w.account.EditFirewall(w.name, func(f *digitalocean.Firewall) { f.Tags = &tags }))
	if f := w.becomes(np); !slices.Equal(*f.DropletIDs, []int{d.ID}) {
		t.Errorf("its droplets are %v: those that people gave it stay", *f.DropletIDs)
	}
}

// A cache that lacks a Service closes nothing: what is to be closed is looked for at the API server itself.
func TestAnOldCacheClosesNothing(t *testing.T) {
	w := newWorld(t)
	s := w.service("hidden", corev1.ServiceTypeNodePort, nil, port(80))
	hidden := fmt.Sprint(s.Spec.Ports[0].NodePort)
	w.patch("hidden", map[string]any{"metadata": map[string]any{"labels": map[string]any{own: nil}}}) // the informer does not see it now
	w.predecessors(open(hidden))
	w.run()
	w.looked()
	np := "tcp " + w.nodePort("np") + everybody
	w.becomes(np, "tcp "+hidden+everybody)
	w.delete("hidden")
	w.becomes(np)
}

func TestAnotherAccountIsNotTouched(t *testing.T) {
	w := newWorld(t, func(o *digitalocean.Options) {
		o.Accounts = []digitalocean.AccountOptions{
			{Name: "ours", Tokens: []digitalocean.Token{{Value: digitalocean.DefaultToken}}}, {Name: "theirs", Tokens: []digitalocean.Token{{Value: "dop_v1_theirs"}}},
		}
	})
	np := "tcp " + w.nodePort("np") + everybody
	w.run()
	w.becomes(np)
	theirs := w.sim.Account("theirs")
	_, err := theirs.CreateDroplet(digitalocean.DropletSpec{Name: "x", Tags: []string{workers}})
	w.must(err)
	made, err := theirs.CreateFirewall(digitalocean.Firewall{Name: w.name, Tags: &w.config.Tags, InboundRules: []digitalocean.InboundRule{open("22")}})
	w.must(err)
	w.token.set("dop_v1_theirs")
	mark := w.mark()
	testkit.Eventually(t, "an event", func() string {
		for _, e := range w.events() {
			if e.Reason == "DigitalOceanAccountInDoubt" || strings.Contains(e.Message, "is left as it is") {
				return ""
			}
		}
		if got := testutil.ToFloat64(collect(w, "mooring_digitalocean_firewall_syncs_total", "failed")); got >= 2 {
			return ""
		}
		return w.story()
	})
	w.nodePort("more")
	w.looked()
	if got := w.writes(mark); len(got) != 0 {
		t.Errorf("writes %v with a token of another account", got)
	}
	if all := theirs.Firewalls(); len(all) != 1 || all[0].ID != made.ID || !slices.Equal(opened(all[0]), []string{"tcp 22" + everybody}) && len(all[0].InboundRules) != 1 {
		t.Errorf("theirs are %+v", all)
	}
}

// After the gate is closed, at the end of the process, nothing is written any more.
func TestNothingIsWrittenAtTheEnd(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.becomes()
	if !w.cloud.Drain(10 * time.Second) {
		t.Fatal("a pass did not end")
	}
	mark := w.mark()
	w.nodePort("np")
	waitForSeveralResyncs(t, w)
	if got := w.writes(mark); len(got) != 0 {
		t.Errorf("writes %v", got)
	}
}
