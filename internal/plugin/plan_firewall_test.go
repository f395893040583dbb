// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const firewallServices = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: np, namespace: shop, annotations: {kubernetes.digitalocean.com/firewall-managed: perhaps}}
  spec: {type: NodePort, ports: [{port: 80, nodePort: 30080}]}
- apiVersion: v1
  kind: Service
  metadata: {name: web, namespace: shop, annotations: {kubernetes.digitalocean.com/load-balancer-id: lb-1}}
  spec: {type: LoadBalancer, loadBalancerSourceRanges: [192.0.2.0/24], ports: [{port: 443, protocol: UDP}]}
- apiVersion: v1
  kind: Service
  metadata: {name: bad, namespace: shop, annotations: {service.beta.kubernetes.io/do-loadbalancer-type: GLOBAL}}
  spec: {type: LoadBalancer, ports: [{port: 80}]}
`

func TestPlanFirewallForPeople(t *testing.T) {
	t.Parallel()
	file := filepath.Join(planFiles(t, map[string]string{"services.yaml": firewallServices}), "services.yaml")
	code, stdout, stderr := runWith(t, "", "plan", "firewall", "-f", file, "--name", "k8s-public", "--tag", "k8s:worker")
	const want = `Firewall k8s-public
  covers          droplets with the tag k8s:worker
  lets in         tcp 10256 from load balancer lb-1
  lets in         tcp 30080 from 0.0.0.0/0, ::/0
  lets in         udp 443 from 192.0.2.0/24
  lets out        tcp to 0.0.0.0/0, ::/0
  lets out        udp to 0.0.0.0/0, ::/0
  lets out        icmp to 0.0.0.0/0, ::/0
  left out        service shop/bad: annotation service.beta.kubernetes.io/do-loadbalancer-type is "GLOBAL", it must be REGIONAL or REGIONAL_NETWORK
  warning         service shop/np: annotation kubernetes.digitalocean.com/firewall-managed is "perhaps", which is neither true nor false: the firewall opens the Service's ports
`
	if diff := cmp.Diff(want, stdout); diff != "" || code != 1 || !strings.Contains(stderr, "1 of 3 services cannot be parsed, see above") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, diff)
	}
	for _, format := range []string{"json", "yaml"} {
		if _, stdout, _ := runWith(t, "", "plan", "fw", "-f", file, "--name", "n1", "--tag", "a,b", "-o", format); !strings.Contains(stdout, "inbound_rules") || !strings.Contains(stdout, "shop/bad") {
			t.Errorf("-o %s: %s", format, stdout)
		}
	}
}

func TestPlanFirewallForPrograms(t *testing.T) {
	t.Parallel()
	const input = `{"name": "k8s-public", "tags": ["k8s:worker"], "defaultType": "REGIONAL", "color": "red", "services": [
		{"metadata": {"name": "np"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]}},
		{"metadata": {"name": "lb"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}},
		{"kind": "Node", "metadata": {"name": "x"}}, null]}`
	code, stdout, stderr := runWith(t, input, "plan", "firewall")
	const anywhere = `{"addresses":["0.0.0.0/0","::/0"]}`
	const want = `{"request":{"name":"k8s-public","inbound_rules":[{"protocol":"tcp","ports":"30080","sources":` + anywhere + `}],"outbound_rules":[` +
		`{"protocol":"tcp","ports":"all","destinations":` + anywhere + `},{"protocol":"udp","ports":"all","destinations":` + anywhere +
		`},{"protocol":"icmp","destinations":` + anywhere + `}],"droplet_ids":null,"tags":["k8s:worker"]},` +
		`"error":"service x is left out: services[2] of standard input: it is a Node, it must be a Service; service is left out: services[3] of standard input: ` +
		`it is null, it must be a Service","leftOut":[{"service":"x","error":"services[2] of standard input: it is a Node, it must be a Service"},` +
		`{"service":"","error":"services[3] of standard input: it is null, it must be a Service"}]}`
	var got bytes.Buffer
	if err := json.Compact(&got, []byte(stdout)); err != nil {
		t.Fatal(err)
	}
	if code != 0 || got.String() != want {
		t.Errorf("exit code %d\n%s\nwant\n%s", code, &got, want)
	}
	if !strings.Contains(stderr, `note: "color" of standard input is not known and has no effect; known are name, tags, defaultType, defaults, services`) {
		t.Errorf("notes: %s", stderr)
	}
}

func TestPlanFirewallRefuses(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"":                         "standard input is empty: it must be a JSON object, or give -f FILE",
		"[]":                       "standard input must be one JSON object: it is a JSON array",
		`{"tags": "k8s"}`:          "the JSON object on standard input: field tags cannot be a JSON string",
		"{":                        "standard input must be one JSON object",
		`{"services": {"a": "b"}}`: "field services cannot be a JSON object",
	} {
		if code, _, stderr := runWith(t, input, "plan", "firewall"); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %s", input, code, stderr)
		}
	}
	for _, tt := range []struct{ args, want string }{
		{"--name x", "--name needs -f; without -f everything is in the JSON object on standard input"},
		{"-f x --name x", "give the firewall's --name and at least one --tag"},
		{"-f x --name x --tag y --default-type z", "--default-type is \"z\", it must be REGIONAL or REGIONAL_NETWORK"},
		{"-f /nowhere --name x --tag y", "reading Services: open /nowhere"},
		{"-f - --name x --tag y", "there is no Service in standard input"},
	} {
		if code, _, stderr := runWith(t, "", append([]string{"plan", "firewall"}, strings.Fields(tt.args)...)...); code == 0 || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit code %d, %s", tt.args, code, stderr)
		}
	}
	if code, stdout, _ := runWith(t, `{"defaultType": "x"}`, "plan", "firewall"); code != 0 || !strings.Contains(stdout, `"tags": null`) {
		t.Errorf("a default type that is none: exit code %d, %s", code, stdout)
	}
}
