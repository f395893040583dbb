// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ipamcheck_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// sandbox is a container ID, and handle the handle of its addresses.
func sandbox(i int) string { return fmt.Sprintf("%064x", i) }

func handle(i int) string { return "k8s-pod-network." + sandbox(i) }

// healthy draws a datastore in which nothing disagrees: machines with blocks of both families, of which some are
// borrowed from, tunnels, pods of one or two addresses, addresses in cooldown, virtual machines, addresses that
// Calico reserves for Windows, and changes that are under way and agree.
func healthy(t *rapid.T) ipamcheck.Data {
	d := ipamcheck.Data{
		Pools: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/64")}, Pods: map[ipamcheck.Pod]bool{},
	}
	machines := rapid.IntRange(2, 5).Draw(t, "machines")
	for m := range machines {
		host := fmt.Sprintf("n%d", m)
		d.Nodes = append(d.Nodes, ipamcheck.Node{Name: host, Revision: 5, BGP: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 0, byte(m + 1)})}})
		for _, base := range []netip.Addr{netip.AddrFrom4([4]byte{10, 244, byte(m), 0}), netip.MustParseAddr(fmt.Sprintf("fd00:10:244::%x00", m+1))} {
			cidr := netip.PrefixFrom(base, base.BitLen()-6)
			b := ipamcheck.Block{CIDR: cidr, AffineTo: host, Revision: 7}
			for address := base; cidr.Contains(address); address = address.Next() {
				b.Free = append(b.Free, address)
			}
			d.Blocks = append(d.Blocks, b)
			d.Affinities = append(d.Affinities, ipamcheck.Affinity{Host: host, CIDR: cidr, Revision: 6, State: "confirmed"})
		}
	}
	d.Blocks[0].AffineTo, d.Affinities[0].Host = "virtual:load-balancer", "virtual:load-balancer"
	for i := range rapid.IntRange(4, 20).Draw(t, "pods") {
		addPod(t, &d, i+1, fmt.Sprintf("n%d", rapid.IntRange(0, machines-1).Draw(t, "machine")))
	}
	take(t, &d, ipamcheck.Allocation{Handle: "vxlan-tunnel-addr-n1", Host: "n1"}, true)
	take(t, &d, ipamcheck.Allocation{Cooling: true, Sequence: 3}, false)
	take(t, &d, ipamcheck.Allocation{Handle: "windows-reserved-ipam-handle", Reserved: true}, false)
	take(t, &d, ipamcheck.Allocation{Handle: "k8s-pod-network.default-vm", Shared: true, Pod: ipamcheck.Pod{Namespace: "default", Name: "virt-launcher"}}, true)
	return d
}

// take assigns the next free address of any block, and counts it under its handle.
func take(t *rapid.T, d *ipamcheck.Data, a ipamcheck.Allocation, count bool) netip.Addr {
	b := &d.Blocks[rapid.IntRange(0, len(d.Blocks)-1).Draw(t, "block")]
	a.Address, b.Free = b.Free[0], b.Free[1:]
	b.Allocations = append(b.Allocations, a)
	if !count {
		return a.Address
	}
	i := slices.IndexFunc(d.Handles, func(h ipamcheck.Handle) bool { return h.ID == a.Handle })
	if i < 0 {
		i = len(d.Handles)
		d.Handles = append(d.Handles, ipamcheck.Handle{ID: a.Handle, Revision: 9, Counts: map[netip.Prefix]int{}})
	}
	d.Handles[i].Counts[b.CIDR]++
	return a.Address
}

func addPod(t *rapid.T, d *ipamcheck.Data, i int, host string) {
	pod := ipamcheck.Pod{Namespace: "default", Name: fmt.Sprintf("pod-%d", i)}
	e := ipamcheck.Endpoint{Key: "default/" + pod.Name, Revision: 11, Host: host, Pod: pod, Sandbox: sandbox(i)}
	for range rapid.IntRange(1, 2).Draw(t, "addresses") {
		e.Addresses = append(e.Addresses, take(t, d, ipamcheck.Allocation{Handle: handle(i), Sequence: uint64(i), Host: host, Pod: pod}, true))
	}
	d.Endpoints, d.Pods[pod] = append(d.Endpoints, e), true
}

// podBlock is a block of a machine with an address of the pod, and the place of that address.
func podBlock(d *ipamcheck.Data, address netip.Addr) (*ipamcheck.Block, int) {
	for i := range d.Blocks {
		for j, a := range d.Blocks[i].Allocations {
			if a.Address == address {
				return &d.Blocks[i], j
			}
		}
	}
	panic("no block has " + address.String())
}

// plants put one disagreement each into a datastore.
func plants() map[ipamcheck.Kind]func(d *ipamcheck.Data) {
	first := func(d *ipamcheck.Data) (*ipamcheck.Block, int) { return podBlock(d, d.Endpoints[0].Addresses[0]) }
	handleOf := func(d *ipamcheck.Data, id string) int {
		return slices.IndexFunc(d.Handles, func(h ipamcheck.Handle) bool { return h.ID == id })
	}
	own := func(d *ipamcheck.Data) int { // an affinity of a machine
		return slices.IndexFunc(d.Affinities, func(a ipamcheck.Affinity) bool { return a.Host == "n1" })
	}
	return map[ipamcheck.Kind]func(d *ipamcheck.Data){
		ipamcheck.FreeAndAssigned: func(d *ipamcheck.Data) { b, i := first(d); b.Free = append(b.Free, b.Allocations[i].Address) },
		ipamcheck.BlocksOverlap: func(d *ipamcheck.Data) {
			d.Blocks = append(d.Blocks, ipamcheck.Block{CIDR: netip.PrefixFrom(d.Blocks[2].CIDR.Addr().Next(), d.Blocks[2].CIDR.Addr().BitLen())})
		},
		ipamcheck.EndpointOthersAddress: func(d *ipamcheck.Data) { d.Endpoints[0].Addresses = slices.Clone(d.Endpoints[1].Addresses[:1]) },
		ipamcheck.EndpointUnassigned: func(d *ipamcheck.Data) {
			d.Endpoints[0].Addresses = append(d.Endpoints[0].Addresses, netip.MustParseAddr("10.244.200.1"))
		},
		ipamcheck.NodeAddressTwice: func(d *ipamcheck.Data) { d.Nodes[1].BGP = d.Nodes[0].BGP },
		ipamcheck.HandleMissing:    func(d *ipamcheck.Data) { i := handleOf(d, handle(1)); d.Handles = slices.Delete(d.Handles, i, i+1) },
		ipamcheck.HandleCount: func(d *ipamcheck.Data) {
			i := handleOf(d, handle(1))
			for cidr := range d.Handles[i].Counts {
				d.Handles[i].Counts[cidr]++
				break
			}
		},
		ipamcheck.HandleWithoutAddress: func(d *ipamcheck.Data) {
			d.Handles = append(d.Handles, ipamcheck.Handle{ID: handle(999), Counts: map[netip.Prefix]int{d.Blocks[0].CIDR: 1}})
		},
		ipamcheck.AddressWithoutHandle: func(d *ipamcheck.Data) {
			b := &d.Blocks[1]
			b.Allocations, b.Free = append(b.Allocations, ipamcheck.Allocation{Address: b.Free[0], Host: "n0"}), b.Free[1:]
		},
		ipamcheck.AffinityMissing:  func(d *ipamcheck.Data) { i := own(d); d.Affinities = slices.Delete(d.Affinities, i, i+1) },
		ipamcheck.AffinityMismatch: func(d *ipamcheck.Data) { d.Affinities[own(d)].Host = "n0" },
		ipamcheck.AffinityDeleting: func(d *ipamcheck.Data) { d.Affinities[own(d)].State = "pendingDeletion" },
		ipamcheck.AffinityWithoutBlock: func(d *ipamcheck.Data) {
			d.Affinities = append(d.Affinities, ipamcheck.Affinity{Host: "n1", CIDR: netip.MustParsePrefix("10.244.200.0/26"), State: "confirmed"})
		},
		ipamcheck.BlockOutsidePools: func(d *ipamcheck.Data) {
			cidr := netip.MustParsePrefix("10.99.0.0/26")
			d.Blocks = append(d.Blocks, ipamcheck.Block{CIDR: cidr, AffineTo: "n1"})
			d.Affinities = append(d.Affinities, ipamcheck.Affinity{Host: "n1", CIDR: cidr, State: "confirmed"})
		},
		ipamcheck.OldSandbox: func(d *ipamcheck.Data) {
			b := &d.Blocks[1]
			b.Allocations = append(b.Allocations, ipamcheck.Allocation{Address: b.Free[0], Handle: handle(998), Host: d.Endpoints[0].Host, Pod: d.Endpoints[0].Pod})
			d.Handles, b.Free = append(d.Handles, ipamcheck.Handle{ID: handle(998), Counts: map[netip.Prefix]int{b.CIDR: 1}}), b.Free[1:]
		},
		ipamcheck.PodGone: func(d *ipamcheck.Data) { delete(d.Pods, d.Endpoints[0].Pod) },
	}
}

func kinds(found []ipamcheck.Disagreement) []ipamcheck.Kind {
	out := make([]ipamcheck.Kind, 0, len(found))
	for _, d := range found {
		out = append(out, d.Kind)
	}
	return out
}

// A healthy datastore has no disagreement; with one of each kind planted, exactly that is found, once.
func TestFindsExactlyWhatIsPlanted(t *testing.T) {
	t.Parallel()
	for _, m := range ipamcheck.Meanings() {
		plant := plants()[m.Kind]
		if plant == nil {
			t.Fatalf("kind %s is never planted", m.Kind)
		}
		t.Run(string(m.Kind), func(t *testing.T) {
			t.Parallel()
			cases.Check(t, func(t *rapid.T) {
				d := healthy(t)
				if found := ipamcheck.Check(d); len(found) > 0 {
					t.Fatalf("a healthy datastore has %+v", found)
				}
				plant(&d)
				shuffle(t, &d)
				found := ipamcheck.Check(d)
				if len(found) != 1 || found[0].Kind != m.Kind || found[0].Detail == "" || found[0].Subject == "" {
					t.Fatalf("found %+v, not one %s", found, m.Kind)
				}
				for _, f := range ipamcheck.Findings(d, found) {
					if f.Check != string(m.Kind) || f.Severity == finding.OK || !strings.Contains(f.What, found[0].Detail) || f.Why == "" || f.Do == "" {
						t.Fatalf("reported as %+v", f)
					}
				}
			})
		})
	}
}

// shuffle changes the order of everything.
func shuffle(t *rapid.T, d *ipamcheck.Data) {
	d.Blocks, d.Handles, d.Affinities = rapid.Permutation(d.Blocks).Draw(t, "blocks"), rapid.Permutation(d.Handles).Draw(t, "handles"), rapid.Permutation(d.Affinities).Draw(t, "affinities")
	d.Endpoints, d.Nodes = rapid.Permutation(d.Endpoints).Draw(t, "endpoints"), rapid.Permutation(d.Nodes).Draw(t, "nodes")
}

// Every change that Calico makes in several writes is confirmed by no second reading in which it has gone on.
func TestChangesUnderWayAreNotConfirmed(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		d := healthy(t)
		after := ipamcheck.Check(d)
		plants()[rapid.SampledFrom([]ipamcheck.Kind{
			ipamcheck.HandleCount, ipamcheck.HandleWithoutAddress, ipamcheck.AffinityDeleting, ipamcheck.AffinityWithoutBlock, ipamcheck.OldSandbox, ipamcheck.PodGone,
		}).Draw(t, "kind")](&d)
		before := ipamcheck.Check(d)
		if left := ipamcheck.Confirmed(before, after); len(left) > 0 {
			t.Fatalf("confirmed %+v", left)
		}
		for i := range d.Handles {
			d.Handles[i].Revision++
		}
		for i := range d.Affinities {
			d.Affinities[i].Revision++
		}
		for _, left := range ipamcheck.Confirmed(before, ipamcheck.Check(d)) {
			if left.Kind != ipamcheck.OldSandbox && left.Kind != ipamcheck.PodGone {
				t.Fatalf("confirmed what was written since: %+v", left)
			}
		}
		if again := ipamcheck.Confirmed(ipamcheck.Check(d), ipamcheck.Check(d)); len(again) != 1 {
			t.Fatalf("the same state is not confirmed: %+v", again)
		}
	})
}

// What cannot be read is said, and nothing is concluded from it.
func TestUnreadIsReported(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		d := healthy(t)
		d.Blocks = d.Blocks[1:]
		d.Unreadable, d.UnreadableBlock = []string{"/calico/ipam/v2/assignment/ipv4/block/10.244.0.0-26"}, true
		d.Pools, d.PoolsUnread, d.Pods, d.PodsUnread = nil, "ippools is forbidden", nil, "pods is forbidden"
		found := ipamcheck.Check(d)
		if len(found) > 0 {
			t.Fatalf("concluded %v from what is not known", kinds(found))
		}
		findings := ipamcheck.Findings(d, found)
		if len(findings) != 3 || slices.ContainsFunc(findings, func(f finding.Finding) bool { return !f.Unread || f.Check != ipamcheck.CheckIPAM }) {
			t.Fatalf("reported as %+v", findings)
		}
	})
}

func TestHealthyIsSaid(t *testing.T) {
	t.Parallel()
	want := "1 address of 1 block agree with 0 handles, 1 affinity, 0 endpoints and 2 pools"
	d := ipamcheck.Data{Blocks: []ipamcheck.Block{{Allocations: make([]ipamcheck.Allocation, 1)}}, Affinities: make([]ipamcheck.Affinity, 1), Pools: make([]netip.Prefix, 2)}
	if got := ipamcheck.Findings(d, nil); len(got) != 1 || got[0].Severity != finding.OK || got[0].What != want {
		t.Errorf("got %+v", got)
	}
}
