// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fabric_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/bgp/fabric"
	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"

	"github.com/mooring-dev/mooring/internal/testkit"
)

func machine(i int) fabric.Machine {
	return fabric.Machine{
		Name:    fmt.Sprintf("m%d", i),
		Address: netip.MustParsePrefix(fmt.Sprintf("172.30.0.%d/16", i+2)),
		Pods:    []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.244.%d.1", i))},
	}
}

func build(t *testing.T, machines int) *fabric.Fabric {
	t.Helper()
	f, err := fabric.New()
	if errors.Is(err, netns.ErrNotAllowed) {
		testkit.Skip(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	for i := range machines {
		if _, err := f.Add(machine(i)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// measure probes until every pair was probed a few times.
func measure(t *testing.T, ends []probe.End) probe.Report {
	t.Helper()
	const interval = 5 * time.Millisecond
	p, err := probe.Start(t.Context(), ends, interval)
	if err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(40 * interval)
	defer timer.Stop()
	<-timer.C
	return probe.Summarize(p.Stop(), interval, nil)
}

// TestMachinesReachEachOtherButNotTheirPods sees that node addresses are on one network, and that pods' need routes which nobody has made.
func TestMachinesReachEachOtherButNotTheirPods(t *testing.T) {
	t.Parallel()
	f := build(t, 3)
	nodes, pods := ends(f.Hosts()), []probe.End{}
	for _, h := range f.Hosts() {
		pods = append(pods, probe.End{Node: h.Name, Address: h.Pods[0], Do: h.Do})
	}
	if r := measure(t, nodes); r.All.Sent == 0 || r.All.Lost > 0 {
		t.Errorf("between node addresses: %+v; nothing should be lost", r.All)
	}
	if r := measure(t, pods); r.All.Sent == 0 || r.All.Lost != r.All.Sent {
		t.Errorf("between pod addresses: %+v; all should be lost", r.All)
	}
	first, second := f.Hosts()[0], f.Hosts()[1]
	missing, err := first.Missing([]netip.Addr{second.Pods[0], second.Address.Addr()})
	if err != nil || len(missing) != 1 || missing[0] != second.Pods[0] {
		t.Errorf("routes are missing to %v (%v), want only to the pod", missing, err)
	}
}

// TestMachinesOfBothFamilies has a machine with both addresses and two with IPv6 alone: they reach each other by IPv6 at once, and pods not.
func TestMachinesOfBothFamilies(t *testing.T) {
	t.Parallel()
	f := build(t, 0)
	for i := range 3 {
		m := machine(i)
		m.AddressV6 = netip.MustParsePrefix(fmt.Sprintf("fd00:172:30::%x/64", i+2))
		m.Pods = append(m.Pods, netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%x::1", i)))
		if i > 0 {
			m.Address = netip.Prefix{}
		}
		if _, err := f.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	var nodes []probe.End
	for _, h := range f.Hosts() {
		nodes = append(nodes, probe.End{Node: h.Name, Address: h.AddressV6.Addr(), Do: h.Do})
	}
	nodes = append(nodes, probe.End{Node: "m0", Address: f.Hosts()[0].Address.Addr(), Do: f.Hosts()[0].Do})
	r := measure(t, nodes)
	if r.Pairs != 6 || r.IPv6 == nil || r.IPv6.All != r.All || r.All.Sent == 0 || r.All.Lost > 0 {
		t.Errorf("between node addresses: %d pairs, %+v, by IPv6 %+v; want 6 and nothing lost, and nothing between families", r.Pairs, r.All, r.IPv6)
	}
	first, second := f.Hosts()[0], f.Hosts()[1]
	missing, err := first.Missing([]netip.Addr{second.Pods[1], second.AddressV6.Addr()})
	if err != nil || len(missing) != 1 || missing[0] != second.Pods[1] {
		t.Errorf("routes are missing to %v (%v), want only to the pod", missing, err)
	}
}

// ends are the machines' own addresses.
func ends(hosts []fabric.Host) []probe.End {
	var out []probe.End
	for _, h := range hosts {
		out = append(out, probe.End{Node: h.Name, Address: h.Address.Addr(), Do: h.Do})
	}
	return out
}

// TestMachinesComeAndGo unplugs a machine under a probe, whose sockets are in its namespace, and adds another with its address.
func TestMachinesComeAndGo(t *testing.T) {
	t.Parallel()
	f := build(t, 2)
	const interval = 5 * time.Millisecond
	p, err := probe.Start(t.Context(), ends(f.Hosts()), interval)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := f.Unplug("m1")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	if _, err := f.Unplug("m1"); err == nil {
		t.Error("a machine was unplugged twice")
	}
	timer := time.NewTimer(20 * interval)
	<-timer.C
	for pair, shots := range p.Stop() {
		if len(shots) > 0 && shots[len(shots)-1].Arrived {
			t.Errorf("a packet from %s to %s arrived although one of them is gone", pair.From, pair.To)
		}
	}
	again := machine(1)
	again.Name = "m1-again"
	if _, err := f.Add(again); err != nil {
		t.Fatal(err)
	}
	if r := measure(t, ends(f.Hosts())); r.Pairs != 2 || r.All.Sent == 0 || r.All.Lost > 0 {
		t.Errorf("with the new machine: %d pairs, %+v; nothing should be lost", r.Pairs, r.All)
	}
}

// TestPodsFollow gives a machine pods and takes them.
func TestPodsFollow(t *testing.T) {
	t.Parallel()
	f := build(t, 1)
	stays, comes := netip.MustParseAddr("10.244.0.1"), netip.MustParseAddr("10.244.0.9")
	for _, want := range [][]netip.Addr{{stays, comes}, {comes}, {comes}, {}, {stays}} {
		if err := f.SetPods("m0", want); err != nil {
			t.Fatal(err)
		}
		h := f.Hosts()[0]
		var have []netip.Addr
		err := h.Do(func() error {
			device, err := net.InterfaceByName("cali0")
			if err != nil {
				return err
			}
			addresses, err := device.Addrs()
			for _, a := range addresses {
				if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
					have = append(have, p.Addr())
				}
			}
			return err
		})
		slices.SortFunc(have, netip.Addr.Compare)
		if err != nil || !slices.Equal(have, want) || !slices.Equal(h.Pods, want) {
			t.Errorf("the device has %v, the machine says %v (%v), want %v", have, h.Pods, err, want)
		}
	}
}

// TestFabricStaysInside sees that this machine's own network has got no device of the fabric.
func TestFabricStaysInside(t *testing.T) {
	t.Parallel()
	build(t, 1)
	out, err := exec.CommandContext(t.Context(), "ip", "-o", "link").Output()
	if err != nil {
		testkit.Skip(t, "the program ip is needed: %v", err)
	}
	for _, name := range []string{"cali0", "port0"} {
		if strings.Contains(string(out), " "+name) {
			t.Errorf("this machine has a device %s", name)
		}
	}
}

func TestFewMachinesNeedNoMoreNeighbors(t *testing.T) {
	t.Parallel()
	restore, err := fabric.RaiseNeighborLimits(10)
	if err != nil {
		t.Fatal(err)
	}
	if err := restore(); err != nil {
		t.Error(err)
	}
}
