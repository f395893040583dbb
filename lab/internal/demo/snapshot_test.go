// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package demo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/demo"
)

const (
	resources = "/calico/resources/v3/projectcalico.org/"
	ipam      = "/calico/ipam/v2/"
)

// snapshot is a small datastore in Calico's format: node-3 with a pod and a tunnel, node-30 with a pod that has borrowed an address of node-3's block.
func snapshot() demo.Snapshot {
	values := map[string]string{
		resources + "nodes/node-3":                                        `{"metadata":{"name":"node-3"}}`,
		resources + "nodes/node-30":                                       `{"metadata":{"name":"node-30"}}`,
		resources + "felixconfigurations/default":                         `{"metadata":{"name":"default"}}`,
		resources + "felixconfigurations/node.node-3":                     `{"metadata":{"name":"node.node-3"}}`,
		resources + "workloadendpoints/lab/node--3-k8s-sample--3--1-eth0": `{"metadata":{"namespace":"lab"},"spec":{"node":"node-3","pod":"sample-3-1"}}`,
		resources + "workloadendpoints/lab/node--30-k8s-sample--x-eth0":   `{"metadata":{"namespace":"lab"},"spec":{"node":"node-30","pod":"sample-x"}}`,
		ipam + "host/node-3/ipv4/block/10.244.0.64-26":                    `{"state":"confirmed"}`,
		ipam + "assignment/ipv4/block/10.244.0.64-26": `{"cidr":"10.244.0.64/26","affinity":"host:node-3","allocations":[0,1,2,null],"attributes":[
			{"handle_id":"ipip-tunnel-addr-node-3","secondary":{"node":"node-3","type":"ipipTunnelAddress"}},
			{"handle_id":"pod-of-3","secondary":{"node":"node-3","namespace":"lab","pod":"sample-3-1"}},
			{"handle_id":"pod-of-30","secondary":{"node":"node-30","namespace":"lab","pod":"sample-x"}}]}`,
		ipam + "handle/ipip-tunnel-addr-node-3": `{"block":{"10.244.0.64/26":1}}`,
		ipam + "handle/pod-of-3":                `{"block":{"10.244.0.64/26":1}}`,
		ipam + "handle/pod-of-30":               `{"block":{"10.244.0.64/26":1}}`,
	}
	s := demo.Snapshot{}
	for key, value := range values {
		s[key] = demo.Entry{Value: value, Revision: 1}
	}
	return s
}

func TestOfListsWhatBelongsToAMachine(t *testing.T) {
	t.Parallel()
	items := must.Get(snapshot().Of("node-3")).Or(t)
	var got []string
	for _, item := range items {
		got = append(got, item.Kind+" "+item.Text)
	}
	want := []string{
		"Node node-3",
		"FelixConfiguration node.node-3",
		"workload endpoint of pod lab/sample-3-1",
		"address 10.244.0.64 of the machine's ipipTunnelAddress",
		"address 10.244.0.65 of pod lab/sample-3-1",
		"IPAM handle ipip-tunnel-addr-node-3",
		"IPAM handle pod-of-3",
		"block affinity to 10.244.0.64/26",
		"IPAM block 10.244.0.64/26",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if items, err := snapshot().Of("node-4"); err != nil || len(items) != 0 {
		t.Errorf("of a machine that is not there: %v, %v", items, err)
	}
}

func TestOfRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	for _, key := range []string{ipam + "assignment/ipv4/block/10.244.0.0-26", resources + "workloadendpoints/lab/x"} {
		s := snapshot()
		s[key] = demo.Entry{Value: "{"}
		if _, err := s.Of("node-3"); err == nil {
			t.Errorf("a damaged %s was passed over", key)
		}
	}
}

func TestMentions(t *testing.T) {
	t.Parallel()
	if got := snapshot().Mentions("node-3"); len(got) != 6 {
		t.Errorf("node-3 is mentioned in %d keys: %s", len(got), strings.Join(got, "\n"))
	}
	for _, key := range snapshot().Mentions("node-30") {
		if !strings.Contains(key, "30") && !strings.Contains(key, "block") {
			t.Errorf("node-30 is not mentioned in %s", key)
		}
	}
	if got := snapshot().Mentions("ode-3"); got != nil {
		t.Errorf("part of a name is mentioned in %v", got)
	}
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	before, after := snapshot(), snapshot()
	if got := demo.Differences(before, after, nil); got != nil {
		t.Errorf("equal snapshots differ: %v", got)
	}
	node, felix := resources+"nodes/node-30", resources+"felixconfigurations/default"
	delete(after, node)
	after[felix] = demo.Entry{Value: after[felix].Value, Revision: 2}
	after["/calico/new"] = demo.Entry{}
	after[ipam+"handle/pod-of-30"] = demo.Entry{Value: "{}", Revision: 2}
	delete(after, resources+"nodes/node-3")
	got := demo.Differences(before, after, map[string]bool{resources + "nodes/node-3": true})
	want := []string{"changed: " + ipam + "handle/pod-of-30", "gone:    " + node, "new:     /calico/new", "touched: " + felix}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(snapshot().Nodes()); got != "[node-3 node-30]" {
		t.Error(got)
	}
}
