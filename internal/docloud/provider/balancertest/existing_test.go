// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// upstream makes the load balancer that the upstream project makes for a Service, byte for byte as recorded in the shared HTTP scenarios but for
// names, ports and droplets.
func (w *world) upstream(s *corev1.Service, lbType string, change func(map[string]any)) digitalocean.LoadBalancer {
	w.T.Helper()
	var droplets []int
	for _, d := range w.Account.Droplets() {
		droplets = append(droplets, d.ID)
	}
	port := s.Spec.Ports[0]
	target, stack := port.Port, annotation.StackIPv4
	if lbType == annotation.TypeRegional {
		target, stack = port.NodePort, annotation.StackDual
	}
	body := map[string]any{
		"name": loadbalancer.DefaultName(s), "algorithm": "round_robin", "region": "nyc1", "type": lbType,
		"forwarding_rules": []any{map[string]any{"entry_protocol": "tcp", "entry_port": port.Port, "target_protocol": "tcp", "target_port": target}},
		"health_check": map[string]any{
			"protocol": "http", "port": 10256, "path": "/healthz", "check_interval_seconds": 3, "response_timeout_seconds": 5,
			"healthy_threshold": 5, "unhealthy_threshold": 3, "proxy_protocol": false,
		},
		"sticky_sessions": map[string]any{"type": "none"}, "droplet_ids": droplets, "tags": []string{"k8s:" + w.Name},
		"disable_lets_encrypt_dns_records": false, "firewall": map[string]any{}, "network": "EXTERNAL", "network_stack": stack,
	}
	if change != nil {
		change(body)
	}
	encoded := must.Get(json.Marshal(body)).Or(w.T)
	request, err := http.NewRequestWithContext(w.T.Context(), http.MethodPost, "http://api.example/v2/load_balancers", strings.NewReader(string(encoded)))
	must.Do(w.T, err)
	request.Header.Set("Authorization", "Bearer "+digitalocean.DefaultToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := w.Sim.Transport().RoundTrip(request)
	must.Do(w.T, err)
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		LoadBalancer digitalocean.LoadBalancer `json:"load_balancer"`
	}
	must.Do(w.T, json.NewDecoder(response.Body).Decode(&answer))
	lb := must.Get(w.Account.LoadBalancer(answer.LoadBalancer.ID)).Or(w.T)
	return lb
}

// ages waits until what was made so far is older than what is made from now on, by times in whole seconds.
func (w *world) ages() {
	w.T.Helper()
	begun := time.Now()
	testkit.Eventually(w.T, "another second", func() string {
		return map[bool]string{true: "it is the same one"}[time.Since(begun) < 1100*time.Millisecond]
	})
}

func TestLoadBalancersOfThePredecessorAreTakenOverWithoutAPut(t *testing.T) {
	both(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.cluster.DefaultType = annotation.TypeRegionalNetwork
		ids := map[string]string{}
		for _, c := range []struct {
			name, lbType string
			noted        bool
			pairs        []string
			change       func(map[string]any)
		}{
			{name: "network", lbType: annotation.TypeRegionalNetwork, noted: true},
			{name: "regional", lbType: annotation.TypeRegional, noted: true, pairs: []string{"type", annotation.TypeRegional}},
			{name: "never-noted", lbType: annotation.TypeRegionalNetwork},
			{name: "untagged", lbType: annotation.TypeRegional, change: func(b map[string]any) { delete(b, "tags") }},
			{name: "named", lbType: annotation.TypeRegionalNetwork, pairs: []string{"name", "edge"}, change: func(b map[string]any) { b["name"] = "edge" }},
			{name: "sized", lbType: annotation.TypeRegional, noted: true, pairs: []string{"size-slug", "lb-medium", "http-idle-timeout-seconds", "90"},
				change: func(b map[string]any) { b["size"], b["http_idle_timeout_seconds"] = "lb-medium", 90 }},
			{name: "hosted", lbType: annotation.TypeRegional, noted: true, pairs: []string{"name", "hosted", "hostname", "web.example"},
				change: func(b map[string]any) { b["name"] = "hosted" }},
			{name: "renamed-by-hand", lbType: annotation.TypeRegional, noted: true, change: func(b map[string]any) { b["name"] = "by-hand" }},
		} {
			s := w.create(c.name, c.pairs...)
			lb := w.upstream(s, c.lbType, c.change)
			ids[c.name] = lb.ID
			if c.noted {
				w.annotate(c.name, annotation.LoadBalancerID, lb.ID, "type", c.lbType)
			}
		}
		w.ages() // the Services are older than the first start
		mark := w.Sim.Mark()
		w.run()
		for name, id := range ids {
			if name == "hosted" {
				testkit.Eventually(t, "the hostname", func() string {
					return map[bool]string{true: w.Story()}[published(w.Service(name)) != "web.example" || w.Service(name).Annotations[annotation.LoadBalancerID] != id]
				})
				continue
			}
			if lb := w.balancer(name); lb.ID != id {
				t.Errorf("service %s has load balancer %s, want %s", name, lb.ID, id)
			}
		}
		w.ReportedOnce("named", "LoadBalancerAdopted", "edge")
		w.ReportedOnce("renamed-by-hand", "LoadBalancerAdopted", "by-hand")
		w.resyncs()
		if got := w.Writes(mark); len(got) != 0 {
			t.Errorf("writes %v, want none", got)
		}
	})
}

func TestLoadBalancerOfAnotherClusterIsLeftAlone(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		theirs := must.Get(w.Account.CreateLoadBalancer(digitalocean.LoadBalancer{
			Name: "edge", Tags: []string{"k8s:another"}, ForwardingRules: []digitalocean.ForwardingRule{
				{EntryProtocol: "tcp", EntryPort: 1, TargetProtocol: "tcp", TargetPort: 2},
			},
		})).Or(w.T)
		w.run()
		w.create("web", "name", "edge")
		w.create("fine")
		w.balancer("fine")
		w.ReportedOnce("web", "LoadBalancerForeign", "edge", "k8s:another", "left alone")
		w.resyncs()
		must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(t.Context(), "web", *deleteNow()))
		w.gone("web")
		if still, err := w.Account.LoadBalancer(theirs.ID); err != nil || still.Tags[0] != "k8s:another" {
			t.Errorf("their load balancer is %+v: %v", still, err)
		}
		if got := w.Writes(0); len(got) != 1 || got[createRoute] != 1 {
			t.Errorf("writes %v, want the POST for the other service", got)
		}
	})
}

func TestDeletingACopyKeepsTheOriginalsLoadBalancer(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.run()
		w.create("original")
		lb := w.balancer("original")
		w.create("copy", annotation.LoadBalancerID, lb.ID)
		w.ReportedOnce("copy", "LoadBalancerForeign", w.Name+"/original", "has precedence")
		must.Do(w.T, w.Client.CoreV1().Services(w.Name).Delete(t.Context(), "copy", *deleteNow()))
		w.gone("copy")
		w.resyncs()
		if got := w.balancer("original"); got.ID != lb.ID || w.Writes(0)["DELETE /v2/load_balancers/{lb_id}"] != 0 {
			t.Errorf("load balancer %s, want %s; writes %v", got.ID, lb.ID, w.Writes(0))
		}
	})
}
