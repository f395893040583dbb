// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// upstream makes the load balancer that the upstream project makes for a Service, byte for byte as recorded in the shared HTTP scenarios but for
// names, ports and droplets.
func (w *world) upstream(s *corev1.Service, lbType string, change func(map[string]any)) digitalocean.LoadBalancer {
	w.t.Helper()
	var droplets []int
	for _, d := range w.account.Droplets() {
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
		"sticky_sessions": map[string]any{"type": "none"}, "droplet_ids": droplets, "tags": []string{"k8s:" + w.name},
		"disable_lets_encrypt_dns_records": false, "firewall": map[string]any{}, "network": "EXTERNAL", "network_stack": stack,
	}
	if change != nil {
		change(body)
	}
	encoded, err := json.Marshal(body)
	w.must(err)
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://api.example/v2/load_balancers", strings.NewReader(string(encoded)))
	w.must(err)
	request.Header.Set("Authorization", "Bearer "+digitalocean.DefaultToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := w.sim.Transport().RoundTrip(request)
	w.must(err)
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		LoadBalancer digitalocean.LoadBalancer `json:"load_balancer"`
	}
	w.must(json.NewDecoder(response.Body).Decode(&answer))
	lb, err := w.account.LoadBalancer(answer.LoadBalancer.ID)
	w.must(err)
	return lb
}

func TestLoadBalancersOfThePredecessorAreTakenOverWithoutAPut(t *testing.T) {
	w := newWorld(t)
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
	mark := w.sim.Mark()
	w.run()
	for name, id := range ids {
		if name == "hosted" {
			testkit.Eventually(t, "the hostname", func() string {
				return map[bool]string{true: w.story()}[published(w.service(name)) != "web.example" || w.service(name).Annotations[annotation.LoadBalancerID] != id]
			})
			continue
		}
		if lb := w.balancer(name); lb.ID != id {
			t.Errorf("service %s has load balancer %s, want %s", name, lb.ID, id)
		}
	}
	w.looked()
	if got := w.writes(mark); len(got) != 0 {
		t.Errorf("writes %v, want none", got)
	}
}

func TestLoadBalancerOfAnotherClusterIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	theirs, err := w.account.CreateLoadBalancer(digitalocean.LoadBalancer{
		Name: "edge", Tags: []string{"k8s:another"}, ForwardingRules: []digitalocean.ForwardingRule{
			{EntryProtocol: "tcp", EntryPort: 1, TargetProtocol: "tcp", TargetPort: 2},
		},
	})
	w.must(err)
	w.run()
	w.create("web", "name", "edge")
	w.create("fine")
	w.balancer("fine")
	w.told("web", "LoadBalancerForeign", "edge", "k8s:another", "left alone")
	w.looked()
	w.must(w.client.CoreV1().Services(w.name).Delete(t.Context(), "web", *deleteNow()))
	w.gone("web")
	if still, err := w.account.LoadBalancer(theirs.ID); err != nil || still.Tags[0] != "k8s:another" {
		t.Errorf("their load balancer is %+v: %v", still, err)
	}
	if got := w.writes(0); len(got) != 1 || got[createRoute] != 1 {
		t.Errorf("writes %v, want the POST for the other service", got)
	}
}

func TestDeletingACopyKeepsTheOriginalsLoadBalancer(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.create("original")
	lb := w.balancer("original")
	w.create("copy", annotation.LoadBalancerID, lb.ID)
	w.told("copy", "LoadBalancerForeign", w.name+"/original", "has precedence")
	w.must(w.client.CoreV1().Services(w.name).Delete(t.Context(), "copy", *deleteNow()))
	w.gone("copy")
	w.looked()
	if got := w.balancer("original"); got.ID != lb.ID || w.writes(0)["DELETE /v2/load_balancers/{lb_id}"] != 0 {
		t.Errorf("load balancer %s, want %s; writes %v", got.ID, lb.ID, w.writes(0))
	}
}
