// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Which objects are about one host alone, and which of them programs made: only these go without being asked for. What a user wrote is never
// one of them.
func TestAboutHost(t *testing.T) {
	t.Parallel()
	byControllers := &apiv3.HostEndpoint{Spec: apiv3.HostEndpointSpec{Node: "a"}}
	byControllers.Labels = map[string]string{"projectcalico.org/created-by": "calico-kube-controllers"}
	changed := &apiv3.FelixConfiguration{Spec: apiv3.FelixConfigurationSpec{DefaultEndpointToHostAction: "Accept"}}
	for what, c := range map[string]struct {
		name      string
		object    any
		host      string
		automatic bool
	}{
		"a host endpoint of a user":              {"eth0", &apiv3.HostEndpoint{Spec: apiv3.HostEndpointSpec{Node: "a"}}, "a", false},
		"a host endpoint of Calico's":            {"a-auto-hep", byControllers, "a", true},
		"Felix as calico-node sets it up":        {"node.a", &apiv3.FelixConfiguration{Spec: apiv3.FelixConfigurationSpec{DefaultEndpointToHostAction: "Return"}}, "a", true},
		"Felix as a user wants it":               {"node.a", changed, "a", false},
		"Felix of all hosts":                     {"default", changed, "", false},
		"BGP of one host":                        {"node.a", &apiv3.BGPConfiguration{}, "a", false},
		"BGP of all hosts":                       {"default", &apiv3.BGPConfiguration{}, "", false},
		"a peering of one host":                  {"p", &apiv3.BGPPeer{Spec: apiv3.BGPPeerSpec{Node: "a"}}, "a", false},
		"a peering of all hosts":                 {"p", &apiv3.BGPPeer{}, "", false},
		"a question about a host":                {"q", &apiv3.CalicoNodeStatus{Spec: apiv3.CalicoNodeStatusSpec{Node: "a"}}, "a", false},
		"a kind that is about no host in itself": {"node.a", &apiv3.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "node.a"}}, "", false},
	} {
		if host, automatic := aboutHost(c.name, c.object); host != c.host || automatic != c.automatic {
			t.Errorf("%s: about %q, automatic %t; want %q, %t", what, host, automatic, c.host, c.automatic)
		}
	}
}

// The cheap test agrees with the parser on every key of a host, and spares the others.
func TestWhichEndpointsMayBeAHosts(t *testing.T) {
	t.Parallel()
	s := newHostScan([]string{"node-1", "a", "b--c", "x-"})
	for name, want := range map[string]bool{
		"node--1-k8s-pod--1-eth0": true, "a-k8s-pod-eth0": true, "b----c-k8s-p-e": true, "node--10-k8s-pod-eth0": false, "node-1-k8s-pod-eth0": false,
		"x---k8s-p-e": true, "": false, "-": false, "node--1": true, "aa-k8s-p-e": false,
	} {
		key := endpointPrefix + "default/" + name
		if got := s.mayOwn(key); got != want || s.hosts[endpointHost(key)] != nil && !got {
			t.Errorf("%s: %t, the parser says %q", name, got, endpointHost(key))
		}
	}
	for _, key := range []string{"", "/", endpointPrefix, endpointPrefix + "x"} {
		if s.mayOwn(key) {
			t.Errorf("%q", key)
		}
	}
}

// A block is parsed if a host's name stands in it, wherever that may be in something that is not a JSON object, and whatever the name is made of.
func TestWhichBlocksMayConcern(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		`{"affinity":"host:node-1"}`: true, `{"attributes":[{"secondary":{"node":"node-1"}}]}`: true, `{"node":"node-1"}`: true,
		`{"node":"node-10"}`: false, `{"node":"my-node-1"}`: false, `{}`: false, ``: false, `node-1`: true, `{"node":"xnode-1y`: true, `{"node":"NODE+2"}`: false,
	} {
		if got := newHostScan([]string{"node-1", "node-3"}).mayConcern("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26", []byte(value)); got != want {
			t.Errorf("%s: %t", value, got)
		}
	}
	if !newHostScan([]string{"NODE+2"}).mayConcern("", []byte(`{"node":"NODE+2"}`)) {
		t.Error("a name with characters of its own")
	}
}
