// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package predecessor_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// loadBalancerVectors is loadbalancer-vectors.json.
type loadBalancerVectors struct {
	Meta struct {
		FakeAPI struct {
			Certificates []loadbalancer.Certificate `json:"certificates"`
			Droplets     []instance.Droplet         `json:"droplets"`
		} `json:"fake_api"`
		Contexts map[string]struct {
			DefaultType string `json:"default_lb_type"`
			Region      string `json:"region"`
			ClusterID   string `json:"cluster_id"`
			VPC         string `json:"cluster_vpc_id"`
		} `json:"contexts"`
	} `json:"meta"`
	NodeSets map[string][]json.RawMessage `json:"node_sets"`
	Services []json.RawMessage            `json:"services"`
	Vectors  []loadBalancerVector         `json:"vectors"`
}

type loadBalancerVector struct {
	ID      int             `json:"id"`
	Name    string          `json:"name"`
	Context string          `json:"context"`
	Service int             `json:"service"`
	NodeSet string          `json:"node_set"`
	LBName  string          `json:"lb_name"`
	Request json.RawMessage `json:"request"`
	Error   string          `json:"error"`
}

// load reads a file of the shared data into v.
func load(t *testing.T, name string, v any) {
	t.Helper()
	data := must.Get(os.ReadFile(testkit.Shared(t, "data", "digitalocean", name))).Or(t)
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func loadLoadBalancerVectors(t *testing.T) loadBalancerVectors {
	t.Helper()
	var v loadBalancerVectors
	load(t, "loadbalancer-vectors.json", &v)
	if len(v.Vectors) == 0 || len(v.Services) == 0 || len(v.NodeSets) == 0 {
		t.Fatal("loadbalancer-vectors.json is empty")
	}
	return v
}

// decode decodes one Kubernetes object.
func decode[T any](t *testing.T, raw json.RawMessage) *T {
	t.Helper()
	object := new(T)
	must.Do(t, json.Unmarshal(raw, object))
	return object
}

func decodeNodes(t *testing.T, raw []json.RawMessage) []*corev1.Node {
	t.Helper()
	nodes := make([]*corev1.Node, len(raw))
	for i := range raw {
		nodes[i] = decode[corev1.Node](t, raw[i])
	}
	return nodes
}

// input is a vector as the pure function takes it.
func (v loadBalancerVectors) input(t *testing.T, vector loadBalancerVector) loadbalancer.Input {
	t.Helper()
	c := v.Meta.Contexts[vector.Context]
	return loadbalancer.Input{
		Service: decode[corev1.Service](t, v.Services[vector.Service]), Nodes: decodeNodes(t, v.NodeSets[vector.NodeSet]),
		Droplets: v.Meta.FakeAPI.Droplets, Certificates: v.Meta.FakeAPI.Certificates,
		Cluster: loadbalancer.Cluster{ID: c.ClusterID, Region: c.Region, VPC: c.VPC, DefaultType: c.DefaultType},
	}
}

// sameBytes compares requests byte for byte but for blanks between tokens. firewall.allow is sorted in the vectors and here.
func sameBytes(t *testing.T, want, got []byte) bool {
	t.Helper()
	var a, b bytes.Buffer
	must.Do(t, json.Compact(&a, want))
	must.Do(t, json.Compact(&b, got))
	return bytes.Equal(a.Bytes(), b.Bytes())
}

// judge counts passed and failed vectors.
type judge struct {
	t               *testing.T
	passed, excused int
}

// say records how a vector went; waiver is why it may go differently, empty if it may not, and problem is empty if it passed.
func (j *judge) say(vector, waiver, problem string) {
	j.t.Helper()
	switch {
	case problem == "":
		j.passed++
	case waiver != "":
		j.excused++
	default:
		j.t.Errorf("vector %s: %s", vector, problem)
	}
}

// end prints the figures.
func (j *judge) end(what string) {
	j.t.Helper()
	j.t.Logf("%s: %d vectors pass, %d are waived", what, j.passed, j.excused)
}

// The waivers apply to what they are meant for, and to nothing else, also among vectors that are not in the file.
func TestWaiversApply(t *testing.T) {
	t.Parallel()
	const private = "getting node addresses of droplet 4242 for node x: could not get private ip: <nil>"
	for name, tt := range map[string]struct {
		node, err, networks string
		waived              bool
	}{
		"no private network": {
			`{"metadata":{"name":"x"},"spec":{"providerID":"digitalocean://4242"}}`, private, `{"v4":[{"ip_address":"198.51.100.1","type":"public"}]}`, true,
		},
		"no network at all":     {`{"metadata":{"name":"x"},"spec":{"providerID":"digitalocean://4242"}}`, private, `{}`, false},
		"with a private one":    {`{"metadata":{"name":"x"}}`, private, `{"v4":[{"ip_address":"10.0.0.1","type":"private"}]}`, false},
		"another error":         {`{"metadata":{"name":"x"}}`, "getting droplet by name: instance not found", `{"v6":[{"ip_address":"2001:db8::1","type":"public"}]}`, false},
		"a name that is its IP": {`{"metadata":{"name":"10.0.0.1"}}`, "instance not found", `{"v4":[{"ip_address":"10.0.0.1","type":"private"}]}`, true},
		"a name that is an IP":  {`{"metadata":{"name":"10.0.0.2"}}`, "instance not found", `{"v4":[{"ip_address":"10.0.0.1","type":"private"}]}`, false},
		"a signed provider ID":  {`{"metadata":{"name":"x"},"spec":{"providerID":"digitalocean://+4242"}}`, "", `{}`, true},
		"no provider ID at all": {`{"metadata":{"name":"x"},"spec":{"providerID":"digitalocean://x"}}`, "invalid", `{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := dropletVector{Node: json.RawMessage(tt.node), Error: tt.err}
			must.Do(t, json.Unmarshal([]byte(tt.networks), &v.Droplet.Networks))
			if got := waived(v); (got != "") != tt.waived {
				t.Errorf("waived: %q", got)
			}
		})
	}
}

// The waivers have reasons, are few, and are needed.
func TestWaivers(t *testing.T) {
	t.Parallel()
	droplets := loadDropletVectors(t).Vectors
	total, needed := len(loadLoadBalancerVectors(t).Vectors)+len(droplets), 0
	for _, w := range waivers() {
		applies, needs := 0, 0
		for _, v := range droplets {
			if w.applies(v) {
				applies++
				if compareDroplet(t, v) != "" {
					needs++
				}
			}
		}
		if needed += needs; applies > 0 && needs == 0 || w.reason == "" {
			t.Errorf("the waiver with the reason %q is not needed: take it from the list", w.reason)
		}
	}
	if needed*100 > total*maxWaived {
		t.Errorf("%d of %d vectors are waived, more than %d %%", needed, total, maxWaived)
	} else {
		t.Logf("%d of %d vectors are waived (%.1f %%)", needed, total, float64(needed)*100/float64(total))
	}
}
