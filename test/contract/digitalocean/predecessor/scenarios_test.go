// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package predecessor_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// httpScenarios is http-scenarios.json.
type httpScenarios struct {
	NodeSets  map[string][]json.RawMessage `json:"node_sets"`
	Scenarios []struct {
		Name        string     `json:"name"`
		DefaultType string     `json:"default_lb_type"`
		Steps       []httpStep `json:"steps"`
	} `json:"scenarios"`
}

type httpStep struct {
	Op      string          `json:"op"`
	Service json.RawMessage `json:"service_before"`
	NodeSet string          `json:"node_set"`
	Calls   []struct {
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Status int             `json:"status"`
		Body   json.RawMessage `json:"body"`
	} `json:"calls"`
	After map[string]string `json:"annotations_after"`
}

// What the upstream project sends in the course of a load balancer's life, Mooring would send too, with two differences: it sends nothing where
// nothing differs, and the network stack never changes.
func TestHTTPScenarios(t *testing.T) {
	t.Parallel()
	var all httpScenarios
	load(t, "http-scenarios.json", &all)
	sent := 0
	for _, scenario := range all.Scenarios {
		var observed *loadbalancer.Observed
		for _, step := range scenario.Steps {
			in := loadbalancer.Input{
				Service: decode[corev1.Service](t, step.Service), Nodes: decodeNodes(t, all.NodeSets[step.NodeSet]), Observed: observed,
				// The region is not in the file; the bodies have these.
				Cluster: loadbalancer.Cluster{ID: "cid", VPC: "vpc", Region: "nyc1", DefaultType: scenario.DefaultType},
			}
			for _, call := range step.Calls {
				if call.Method != http.MethodPost && call.Method != http.MethodPut {
					continue
				}
				sent++
				observed = checkStep(t, scenario.Name+" "+scenario.DefaultType+" "+step.Op, in, call.Body, call.Method, step)
			}
		}
	}
	if sent == 0 {
		t.Fatal("http-scenarios.json has no request")
	}
	t.Logf("%d requests of the upstream project compared", sent)
}

// checkStep compares one request and returns the load balancer as it is afterwards.
func checkStep(t *testing.T, where string, in loadbalancer.Input, body json.RawMessage, method string, step httpStep) *loadbalancer.Observed {
	t.Helper()
	result, err := loadbalancer.Desired(in)
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	want := result.Request
	if in.Observed != nil && in.Observed.NetworkStack != "" {
		// B2 of the facts: the upstream project lets the stack follow the Nodes.
		var theirs loadbalancer.Request
		must.Do(t, json.Unmarshal(body, &theirs))
		want.NetworkStack = theirs.NetworkStack
	}
	got := must.Get(json.Marshal(want)).Or(t)
	if !sameBytes(t, body, got) {
		t.Errorf("%s:\nsends %s\nwant  %s", where, got, body)
	}
	if in.Observed != nil {
		differs := len(loadbalancer.Diff(*in.Observed, result.Request)) > 0
		if update := strings.HasPrefix(step.Op, "update"); differs != update {
			t.Errorf("%s: a PUT is needed: %v, want %v", where, differs, update)
		}
	} else if method == http.MethodPut {
		t.Errorf("%s: a PUT without a load balancer", where)
	}
	for name, value := range result.Annotate {
		if step.After[name] != value {
			t.Errorf("%s: would write annotation %s: %s, the upstream project has %q", where, name, value, step.After[name])
		}
	}
	return made(result.Request, step.After[annotation.LoadBalancerID])
}

// made is the load balancer that a request makes, in the plainest way.
func made(r loadbalancer.Request, id string) *loadbalancer.Observed {
	return &loadbalancer.Observed{
		ID: id, Name: r.Name, Status: loadbalancer.StatusActive, Region: r.Region, Type: r.Type, Network: r.Network, NetworkStack: r.NetworkStack,
		VPC: r.VPC, SizeUnit: 1, ForwardingRules: r.ForwardingRules, HealthCheck: &r.HealthCheck, StickySessions: &r.StickySessions,
		DropletIDs: r.DropletIDs, Tags: r.Tags, Firewall: &r.Firewall,
	}
}
