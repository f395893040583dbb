// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Which objects are about one host alone, and which of them programs made: only these go without being asked for. What a user wrote is never one of them.
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
