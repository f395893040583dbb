// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"fmt"
	"strings"
	"testing"
)

func nobody(string, string) bool { return false }

const leftoverBlock = `{"cidr":"10.0.0.0/30","affinity":"host:n1","allocations":[0,1,2,null],"unallocated":[3],"attributes":[` +
	`{"handle_id":"net.a","secondary":{"namespace":"default","node":"n1","pod":"a","timestamp":"2026-01-01 00:00:00 UTC"}},` +
	`{"handle_id":"net.b","secondary":{"namespace":"default","node":"n1","pod":"b","vmi":"b"}},` +
	`{"handle_id":"tunnel","secondary":{"node":"n1","type":"ipipTunnelAddress"}}],"sequenceNumber":3,"sequenceNumberForAllocation":{"0":2},"deleted":false}`

// Only what says of itself no more than Calico's CNI plugin writes can be a leftover.
func TestLeftoverOfABlock(t *testing.T) {
	t.Parallel()
	var found PodHoldings
	found.addBlock([]byte(leftoverBlock), nobody)
	if len(found.Leftovers) != 1 || found.Count != 1 || found.Leftovers[0].Handle != "net.a" || found.Leftovers[0].Sequence != 2 || found.Leftovers[0].Host != "n1" {
		t.Errorf("got %+v", found)
	}
	var alive PodHoldings
	alive.addBlock([]byte(leftoverBlock), func(namespace, name string) bool { return namespace == "default" && name == "a" })
	if len(alive.Leftovers) != 0 || alive.Count != 1 {
		t.Errorf("of a pod that is alive: got %+v", alive)
	}
}

// However many pods seem gone, what is kept is bounded.
func TestLeftoversAreBounded(t *testing.T) {
	t.Parallel()
	var found PodHoldings
	for i := range mostLeftovers + 10 {
		found.addEndpoint(endpointPrefix+fmt.Sprintf("default/n1-k8s-pod%d-eth0", i), 1, nobody)
	}
	if len(found.Leftovers) != mostLeftovers || found.Count != mostLeftovers+10 {
		t.Errorf("%d are kept of %d", len(found.Leftovers), found.Count)
	}
}

func FuzzLeftovers(f *testing.F) {
	f.Add("default/n1-k8s-a-eth0", leftoverBlock)
	f.Add("default/n--1-k8s-a--b-eth0", strings.Replace(leftoverBlock, "[0,1,2,null]", "[0,7]", 1))
	f.Add("", `{"cidr":"10.0.0.0/99","attributes":[{"handle_id":"x","secondary":{"pod":"p","node":"n","namespace":"d"}}]}`)
	f.Fuzz(func(t *testing.T, key, block string) {
		var found PodHoldings
		found.addEndpoint(endpointPrefix+key, 1, nobody)
		found.addBlock([]byte(block), nobody)
		for _, l := range found.Leftovers {
			address := l.Block.IsValid() && l.Block.Contains(l.Address) && l.Handle != ""
			if l.Host == "" || l.Namespace == "" || l.Pod == "" || address == (l.Endpoint.Name != "") {
				t.Fatalf("%+v is neither an address nor an endpoint of a pod", l)
			}
		}
	})
}
