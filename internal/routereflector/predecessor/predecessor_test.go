// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// env is an environment.
type env map[string]string

func (e env) get(name string) string { return e[name] }

// nodes are count nodes in zones a, b and c.
func nodes(count int) []routereflector.Node {
	var out []routereflector.Node
	for i := range count {
		out = append(out, routereflector.Node{
			Name: fmt.Sprintf("node-%04d", i), Ready: corev1.ConditionTrue, IPv4: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
			Labels: map[string]string{"zone": string(rune('a' + i%3))},
		})
	}
	return out
}

// reflecting makes the first ones reflectors, with such a label and the IDs.
func reflecting(list []routereflector.Node, key, value string, ids ...string) []routereflector.Node {
	for i, id := range ids {
		list[i].ClusterID, list[i].Labels[key] = id, value
	}
	return list
}

func off() routereflector.Mesh { return routereflector.Mesh{Exists: true} }

// made is what an environment comes to; it must be right.
func made(t *testing.T, e env, list []routereflector.Node, peers ...string) (v1alpha1.RouteReflectorTopologySpec, []string) {
	t.Helper()
	s, _, problems := Read(e.get)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var all []routereflector.Peer
	for _, name := range peers {
		all = append(all, routereflector.Peer{Name: name})
	}
	r := s.Topology(list, all, off())
	if len(r.Problems) > 0 || r.Topology.Name != "main" {
		t.Fatal(r.Problems, r.Topology.Name)
	}
	return r.Topology.Spec, r.Notes
}

// differs compares a spec with the default one as a few lines of YAML change it.
func differs(t *testing.T, got v1alpha1.RouteReflectorTopologySpec, want string) string {
	t.Helper()
	var w v1alpha1.RouteReflectorTopology
	if err := yaml.UnmarshalStrict([]byte(want), &w.Spec); err != nil {
		t.Fatal(err)
	}
	v1alpha1.SetDefaults(&w)
	return cmp.Diff(w.Spec, got)
}

// Each variable, alone and with what it depends on: what it becomes.
func TestEachVariable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env   env
		nodes int
		want  string
		notes []string
	}{
		"none":       {env{}, 9, "{clusterID: 224.0.0.0, redundancy: 3}", nil},
		"cluster ID": {env{ClusterID: "10.1.2.3"}, 9, "{clusterID: 10.1.2.3, redundancy: 3}", nil},
		"cluster ID of multi": {env{ClusterID: "224.%d.%d.%d", TopologyName: "multi"}, 9, "{clusterID: 224.0.0.1, redundancy: 3}",
			[]string{"all reflectors share one cluster ID, 224.0.0.1, in place of one each by 224.%d.%d.%d"}},
		"zeros are as good as %d": {env{ClusterID: "224.1.0.0", TopologyName: "multi"}, 9, "{clusterID: 224.1.0.1, redundancy: 3}",
			[]string{"all reflectors share one cluster ID, 224.1.0.1, in place of one each by 224.1.%d.%d"}},
		"the default of multi": {env{TopologyName: "multi"}, 9, "{clusterID: 224.0.0.1, redundancy: 3}",
			[]string{"all reflectors share one cluster ID, 224.0.0.1, in place of one each by 224.%d.%d.%d"}},
		"one ID in multi": {env{ClusterID: "1.2.3.4", TopologyName: "multi"}, 9, "{clusterID: 1.2.3.4, redundancy: 3}",
			[]string{"all reflectors share one cluster ID, 1.2.3.4, in place of one each by 1.2.3.4"}},
		"min":                                    {env{Min: "5"}, 9, "{clusterID: 224.0.0.0, redundancy: 5}", nil},
		"min of 1":                               {env{Min: "1"}, 9, "{clusterID: 224.0.0.0, redundancy: 2}", []string{"there are 2 reflectors in place of 1 (spec.redundancy is from 2 to 6)"}},
		"max":                                    {env{Max: "5", Ratio: "0.05"}, 200, "{clusterID: 224.0.0.0, redundancy: 5}", nil},
		"ratio":                                  {env{Ratio: "0.02"}, 200, "{clusterID: 224.0.0.0, redundancy: 4}", nil},
		"the old one's float would make 5 of it": {env{Ratio: "0.002"}, 2000, "{clusterID: 224.0.0.0, redundancy: 4}", nil},
		"a fine ratio":                           {env{Ratio: "0.0125"}, 320, "{clusterID: 224.0.0.0, redundancy: 4}", nil},
		"more than fit": {env{Ratio: "0.05"}, 200, "{clusterID: 224.0.0.0, redundancy: 6}",
			[]string{"there are 6 reflectors in place of 10 (spec.redundancy is from 2 to 6)"}},
		"node label": {env{NodeLabel: "rr=yes"}, 9, "{clusterID: 224.0.0.0, redundancy: 3}", nil}, // see TestAdopts
		"zone label": {env{ZoneLabel: "zone"}, 9, "{clusterID: 224.0.0.0, topologyKeys: [zone], sizing: {perZone: {min: 3, max: 10, ratioPermille: 5}}}", nil},
		"zone label of multi": {env{ZoneLabel: "zone", TopologyName: "multi", ClusterID: "1.2.3.4", Min: "4", Max: "12", Ratio: "0.01"}, 9,
			"{clusterID: 1.2.3.4, topologyKeys: [zone], sizing: {perZone: {min: 2, max: 4, ratioPermille: 10}}}", []string{
				"all reflectors share one cluster ID, 1.2.3.4, in place of one each by 1.2.3.4",
				"ROUTE_REFLECTOR_MIN and ROUTE_REFLECTOR_MAX are divided by the 3 zones that there are now (spec.sizing.perZone)",
			}},
		"incompatible labels": {env{IncompatibleLabels: "gpu=yes, spot=,do-not-select-as-rr"}, 9, "{clusterID: 224.0.0.0, redundancy: 3, reflectors: {required: " +
			"{matchExpressions: [{key: gpu, operator: NotIn, values: ['yes']}, {key: spot, operator: NotIn, values: ['']}, {key: do-not-select-as-rr, operator: DoesNotExist}]}}}", nil},
		"wait timeout": {env{WaitTimeout: "30"}, 9, "{clusterID: 224.0.0.0, redundancy: 3}",
			[]string{"ROUTE_REFLECTOR_WAIT_TIMEOUT is not needed: sessions are checked, without a fixed wait"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, notes := made(t, c.env, nodes(c.nodes))
			if diff := differs(t, spec, c.want); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.notes, notes); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Nodes that the old operator did not count for its ratio do not count.
func TestWhoCounts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(n *routereflector.Node){
		"all":      func(*routereflector.Node) {},
		"NotReady": func(n *routereflector.Node) { n.Ready = corev1.ConditionFalse }, "cordoned": func(n *routereflector.Node) { n.Unschedulable = true },
		"without an address": func(n *routereflector.Node) { n.IPv4 = netip.Addr{} }, "incompatible": func(n *routereflector.Node) { n.Labels["gpu"] = "yes" },
	} {
		list := nodes(100)
		for i := range 20 {
			change(&list[i])
		}
		want := int32(4)
		if name == "all" {
			want = 5
		}
		spec, _ := made(t, env{Ratio: "0.05", IncompatibleLabels: "gpu=yes"}, list)
		if *spec.Redundancy != want {
			t.Errorf("%s: %d, want %d", name, *spec.Redundancy, want)
		}
	}
}

// What the old operator has left is named, and waits for a person.
func TestAdopts(t *testing.T) {
	t.Parallel()
	manual := "are to be adopted; nothing is written until spec.rollout.approvedPlan names the plan (status.plan.hash)"
	for name, c := range map[string]struct {
		env   env
		nodes []routereflector.Node
		peers []string
		want  string
		notes []string
	}{
		"simple": {env{}, reflecting(nodes(9), "calico-route-reflector", "", "224.0.0.0", "224.0.0.0"), []string{"rrs-to-rrs", "peer-to-rrs-1", "rack"},
			"{clusterID: 224.0.0.0, redundancy: 2, rollout: {mode: Manual}, adopt: {nodes: {matchLabels: {calico-route-reflector: ''}}, bgpPeers: [rrs-to-rrs, peer-to-rrs-1]}}",
			[]string{"2 reflectors of the old operator " + manual}},
		"simple with another label": {env{NodeLabel: "rr=yes"}, reflecting(nodes(9), "rr", "yes", "224.0.0.0", "224.0.0.0", "224.0.0.0"), nil,
			"{clusterID: 224.0.0.0, redundancy: 3, rollout: {mode: Manual}, adopt: {nodes: {matchLabels: {rr: 'yes'}}, bgpPeers: [rrs-to-rrs, peer-to-rrs-1]}}",
			[]string{"3 reflectors of the old operator " + manual}},
		"a label of another value is somebody else's": {env{NodeLabel: "rr=yes"}, reflecting(nodes(9), "rr", "no", "224.0.0.0", "224.0.0.0", "224.0.0.0"), nil,
			"{clusterID: 224.0.0.0, redundancy: 3}", nil},
		"an ID that was set by another environment": {env{}, reflecting(nodes(9), "calico-route-reflector", "", "9.9.9.9", "9.9.9.9", "9.9.9.8"), nil,
			"{clusterID: 9.9.9.9, redundancy: 3, rollout: {mode: Manual}, adopt: {nodes: {matchLabels: {calico-route-reflector: ''}}, bgpPeers: [rrs-to-rrs, peer-to-rrs-1]}}",
			[]string{"all reflectors share one cluster ID, 9.9.9.9; 1 of 3 have another one now, and lose their own pods' traffic for some seconds when it changes, one at a time",
				"3 reflectors of the old operator " + manual}},
		"multi": {env{TopologyName: "multi"}, reflecting(nodes(9), "calico-route-reflector", "1", "224.0.7.5", "224.0.7.4", "224.9.9.9"),
			[]string{"rrs-to-rrs", "peer-to-rrs-17-uid"}, "{clusterID: 224.0.7.4, redundancy: 3, rollout: {mode: Manual}, " +
				"adopt: {nodes: {matchExpressions: [{key: calico-route-reflector, operator: Exists}]}, bgpPeers: [rrs-to-rrs, peer-to-rrs-*]}}",
			[]string{"all reflectors share one cluster ID, 224.0.7.4; 2 of 3 have another one now, and lose their own pods' traffic for some seconds when it changes, one at a time",
				"3 reflectors of the old operator " + manual}},
		"more than fit": {env{}, reflecting(nodes(9), "calico-route-reflector", "", slices.Repeat([]string{"224.0.0.0"}, 8)...), nil,
			"{clusterID: 224.0.0.0, redundancy: 6, rollout: {mode: Manual}, adopt: {nodes: {matchLabels: {calico-route-reflector: ''}}, bgpPeers: [rrs-to-rrs, peer-to-rrs-1]}}",
			[]string{"there are 6 reflectors in place of 8 (spec.redundancy is from 2 to 6)", "8 reflectors of the old operator " + manual}},
		"BGPPeers of multi that a change to simple has left": {env{}, reflecting(nodes(9), "calico-route-reflector", "", "224.0.0.0", "224.0.0.0"),
			[]string{"rrs-to-rrs", "peer-to-rrs-1", "peer-to-rrs-17-uid"},
			"{clusterID: 224.0.0.0, redundancy: 2, rollout: {mode: Manual}, adopt: {nodes: {matchLabels: {calico-route-reflector: ''}}, bgpPeers: [rrs-to-rrs, peer-to-rrs-*]}}",
			[]string{"2 reflectors of the old operator " + manual}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, notes := made(t, c.env, c.nodes, c.peers...)
			if diff := differs(t, spec, c.want); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.notes, notes); diff != "" {
				t.Error(diff)
			}
		})
	}
	taken := reflecting(nodes(9), "calico-route-reflector", "", "224.0.0.0")
	taken[0].Labels[v1alpha1.ReflectorLabel] = "other"
	if spec, _ := made(t, env{}, taken); spec.Adopt != nil {
		t.Errorf("what is a topology's already is adopted: %+v", spec.Adopt)
	}
}

// The mesh that is on stays on, as ever.
func TestTheMeshStays(t *testing.T) {
	t.Parallel()
	s, _, _ := Read(env{}.get)
	r := s.Topology(nodes(5), nil, routereflector.Mesh{On: true})
	want := []string{"the node-to-node mesh is on and stays so, as the old operator never turned it off (spec.mesh: Observe)"}
	if r.Topology.Spec.Mesh != v1alpha1.MeshObserve || !slices.Equal(r.Notes, want) {
		t.Errorf("%v, %v", r.Topology.Spec.Mesh, r.Notes)
	}
}

// Bad values, each with the sentence that names it.
func TestBadValues(t *testing.T) {
	t.Parallel()
	const address = "an IPv4 address other than 0.0.0.0, such as 224.0.0.0, or with multi one with %d in it, such as 224.%d.%d.%d"
	for _, c := range []struct {
		env  env
		must string
	}{
		{env{ClusterID: "224.0.0"}, address},
		{env{ClusterID: "0.0.0.0"}, address},
		{env{ClusterID: "fd00::1"}, address},
		{env{ClusterID: "224.0.0.0/8"}, address},
		{env{ClusterID: "224.%d.%d.%d"}, "an IPv4 address; %d is for ROUTE_REFLECTOR_TOPOLOGY multi alone"},
		{env{ClusterID: "224.%d.%s.%d", TopologyName: "multi"}, address},
		{env{Min: "0"}, "a whole number from 1 to 50"},
		{env{Min: "51"}, "a whole number from 1 to 50"},
		{env{Min: "three"}, "a whole number from 1 to 50"},
		{env{Min: "11"}, "at most ROUTE_REFLECTOR_MAX, which is 10"},
		{env{Max: "4"}, "a whole number from 5 to 50"},
		{env{Max: "5.0"}, "a whole number from 5 to 50"},
		{env{Ratio: "0.0009"}, "a number from 0.001 to 0.05"},
		{env{Ratio: "0.051"}, "a number from 0.001 to 0.05"},
		{env{Ratio: "NaN"}, "a number from 0.001 to 0.05"},
		{env{Ratio: "0,005"}, "a number from 0.001 to 0.05"},
		{env{NodeLabel: "=x"}, "a label such as calico-route-reflector= or key=value"},
		{env{NodeLabel: "a b="}, "a label such as calico-route-reflector= or key=value"},
		{env{NodeLabel: "a=b=c"}, "a label such as calico-route-reflector= or key=value"},
		{env{ZoneLabel: "zone="}, "the key of a label, such as topology.kubernetes.io/zone"},
		{env{IncompatibleLabels: "a=b,,c"}, "labels with commas between them: key=value, key= for an empty value, or key for any"},
		{env{TopologyName: "Multi"}, "simple or multi"},
		{env{WaitTimeout: "-1"}, "a whole number from 0 to 86400"},
		{env{WaitTimeout: "5s"}, "a whole number from 0 to 86400"},
	} {
		_, set, problems := Read(c.env.get)
		var want []string
		for name, value := range c.env {
			if name != TopologyName || len(c.env) == 1 {
				want = append(want, fmt.Sprintf("%s %q: must be %s", name, value, c.must))
			}
		}
		if diff := cmp.Diff(want, problems); diff != "" || !set {
			t.Errorf("%v: %s", c.env, diff)
		}
	}
}

// What was good for the old operator and cannot be had here, each with the sentence that says so.
func TestWhatCannotBeHad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  env
		want string
	}{
		{env{Min: "7"}, "ROUTE_REFLECTOR_MIN 7: every client has a session with every reflector, so that a topology has at most 6"},
		{env{ZoneLabel: "zone", Max: "11"}, "ROUTE_REFLECTOR_MAX 11: a zone has at most 10 reflectors"},
		{env{ZoneLabel: "zone", Ratio: "0.0025"}, `ROUTE_REFLECTOR_RATIO "0.0025": with ROUTE_REFLECTOR_ZONE_LABEL it must be a whole number of thousandths`},
	} {
		s, _, problems := Read(c.env.get)
		if r := s.Topology(nodes(9), nil, off()); len(problems) > 0 || !slices.Equal(r.Problems, []string{c.want}) {
			t.Errorf("%v: %v, %v", c.env, problems, r.Problems)
		}
	}
}

// Spaces around values do no harm, and what is empty is as good as absent.
func TestUnset(t *testing.T) {
	t.Parallel()
	if _, set, problems := Read(env{"ROUTE_REFLECTOR_OTHER": "x", Min: " "}.get); set || len(problems) > 0 {
		t.Error(set, problems)
	}
	if s, set, _ := Read(env{Min: " 4 "}.get); !set || s.min != 4 {
		t.Error(set, s.min)
	}
}

// The order of the lists decides nothing, and the lists stay as they are.
func TestOrderBlind(t *testing.T) {
	t.Parallel()
	list := reflecting(nodes(9), "calico-route-reflector", "1", "224.0.7.5", "224.0.7.4", "224.9.9.9")
	turned := slices.Clone(list)
	slices.Reverse(turned)
	e := env{TopologyName: "multi", ZoneLabel: "zone"}
	a, _ := made(t, e, list)
	b, _ := made(t, e, turned)
	if diff := cmp.Diff(a, b); diff != "" || list[0].ClusterID != "224.0.7.5" {
		t.Error(diff)
	}
	if !strings.HasPrefix(Variables()[0].Name, "ROUTE_REFLECTOR_") || len(Variables()) != 9 {
		t.Error(Variables())
	}
}
