// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package fabric is the network between the machines of a BGP lab: one network namespace for each machine, all on one bridge, which is in a
// namespace of its own. Nothing of it is reachable from the machine that the lab runs on, and the kernel removes all of it when the lab's
// process ends (package netns).
//
//	node-1: eth0 172.30.0.2/16 ─┐
//	        cali0 10.244.1.5/32 │
//	                            ├─ bridge
//	node-2: eth0 172.30.0.3/16 ─┘
//	        cali0 10.244.2.9/32
//
// With IPv6, each has an address of fd00:172:30::/64 as well, or instead, and so have pods one of fd00:10:244::/64.
//
// Pod addresses are reachable only through routes that BIRD has learned by BGP.
package fabric

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
)

// Machine is what a machine of the fabric is made of.
type Machine struct {
	Name string
	// Address is the node's own, with the length of the network that all machines share, and AddressV6 its IPv6 address. One of them may be missing.
	Address, AddressV6 netip.Prefix
	// Pods are the addresses of its pods.
	Pods []netip.Addr
}

// Host is a machine of the fabric.
type Host struct {
	Machine
	*netns.Namespace
	// port is its end of the cable on the bridge; no two machines ever have the same.
	port string
}

// Fabric is a network of machines. Add, Unplug and SetPods must be called by one goroutine at a time; Hosts may be called by any.
type Fabric struct {
	bridge *netns.Namespace
	mu     sync.Mutex // guards what follows
	hosts  []Host
	ports  int
}

// podDevice is the device of the pods. Calico's template has BIRD ignore devices whose names begin so (confd bird.cfg.template, protocol direct).
const (
	podDevice    = "cali0"
	podPeer      = "cali0-pods"
	nodeDevice   = "eth0"
	bridgeDevice = "bridge"
)

// New makes a network without machines. The error wraps netns.ErrNotAllowed where that is the cause.
func New() (*Fabric, error) {
	bridge, err := netns.New()
	if err != nil {
		return nil, err
	}
	if err := bridge.Do(makeBridge); err != nil {
		bridge.Close()
		return nil, fmt.Errorf("making the bridge: %w", err)
	}
	return &Fabric{bridge: bridge}, nil
}

// Hosts returns the machines that are there now, in the order in which they came.
func (f *Fabric) Hosts() []Host {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.hosts)
}

// Close removes the network and kills what runs in it.
func (f *Fabric) Close() {
	for _, h := range f.Hosts() {
		h.Close()
	}
	f.bridge.Close()
}

func makeBridge() error {
	if err := linkUp("lo"); err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = bridgeDevice
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
		return err
	}
	return linkUp(bridgeDevice)
}

// Add makes a machine's namespace and puts it on the bridge. Nothing is left of a machine that could not be made.
func (f *Fabric) Add(m Machine) (Host, error) {
	namespace, err := netns.New()
	if err != nil {
		return Host{}, fmt.Errorf("connecting %s: %w", m.Name, err)
	}
	f.mu.Lock()
	f.ports++
	h := Host{Machine: m, Namespace: namespace, port: "port" + strconv.Itoa(f.ports)}
	f.mu.Unlock()
	if err := f.connect(h); err != nil {
		_ = f.unplug(h)
		namespace.Close()
		return Host{}, fmt.Errorf("connecting %s: %w", m.Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts = append(f.hosts, h)
	return h, nil
}

func (f *Fabric) connect(h Host) error {
	file, err := h.Open()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := f.bridge.Do(func() error { return plug(h.port, file, h.hardwareAddress()) }); err != nil {
		return err
	}
	return h.Do(func() error { return configure(h.Machine) })
}

// Unplug takes a machine off the network, with all that runs in it: nothing more is heard of it, not even the end of its connections. It is
// no longer one of Hosts; the caller ends what runs in it and closes its namespace.
func (f *Fabric) Unplug(name string) (Host, error) {
	f.mu.Lock()
	i := slices.IndexFunc(f.hosts, func(h Host) bool { return h.Name == name })
	if i < 0 {
		f.mu.Unlock()
		return Host{}, fmt.Errorf("there is no machine %s", name)
	}
	h := f.hosts[i]
	f.hosts = slices.Delete(slices.Clone(f.hosts), i, i+1)
	f.mu.Unlock()
	if err := f.unplug(h); err != nil {
		return h, fmt.Errorf("unplugging %s: %w", name, err)
	}
	return h, nil
}

// unplug removes both ends of the cable.
func (f *Fabric) unplug(h Host) error {
	return f.bridge.Do(func() error {
		link, err := netlink.LinkByName(h.port)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
}

// SetPods gives a machine these pod addresses and takes all others from it.
func (f *Fabric) SetPods(name string, pods []netip.Addr) error {
	for _, h := range f.Hosts() {
		if h.Name != name {
			continue
		}
		if err := h.Do(func() error { return replacePods(h.Pods, pods) }); err != nil {
			return fmt.Errorf("changing the pods of %s: %w", name, err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for i := range f.hosts {
			if f.hosts[i].Name == name {
				f.hosts[i].Pods = slices.Clone(pods)
			}
		}
	}
	return nil
}

func replacePods(have, want []netip.Addr) error {
	for _, pod := range want {
		if !slices.Contains(have, pod) {
			if err := addAddress(podDevice, netip.PrefixFrom(pod, pod.BitLen())); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
		}
	}
	for _, pod := range have {
		if !slices.Contains(want, pod) {
			if err := removeAddress(podDevice, netip.PrefixFrom(pod, pod.BitLen())); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
				return err
			}
		}
	}
	return nil
}

// hardwareAddress is made of the machine's address, so that one that comes with the address of another that has gone is heard of at once: its neighbors go
// on with what they know for half a minute. The first bits say that it is administered locally, and that it is one machine's.
func (m Machine) hardwareAddress() net.HardwareAddr {
	address := m.Address
	if !address.IsValid() {
		address = m.AddressV6
	}
	if !address.IsValid() {
		return nil // the kernel's choice
	}
	bytes := address.Addr().AsSlice()
	return append(net.HardwareAddr{0x02, 0x00}, bytes[len(bytes)-4:]...)
}

// plug makes a cable from the bridge to another namespace, with this hardware address at that end.
func plug(port string, namespace *os.File, hardware net.HardwareAddr) error {
	bridge, err := netlink.LinkByName(bridgeDevice)
	if err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = port, bridge.Attrs().Index
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: nodeDevice, PeerNamespace: netlink.NsFd(namespace.Fd()), PeerHardwareAddr: hardware}
	if err := netlink.LinkAdd(cable); err != nil {
		return err
	}
	return linkUp(port)
}

// configure gives a machine its addresses. It runs in its namespace.
func configure(m Machine) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = podDevice
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: podPeer}); err != nil {
		return fmt.Errorf("making %s: %w", podDevice, err)
	}
	for _, name := range []string{"lo", nodeDevice, podDevice, podPeer} {
		if err := linkUp(name); err != nil {
			return err
		}
	}
	for _, address := range []netip.Prefix{m.Address, m.AddressV6} {
		if !address.IsValid() {
			continue
		}
		if err := addAddress(nodeDevice, address); err != nil {
			return err
		}
	}
	for _, pod := range m.Pods {
		if err := addAddress(podDevice, netip.PrefixFrom(pod, pod.BitLen())); err != nil {
			return err
		}
	}
	return nil
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("switching %s on: %w", name, err)
	}
	return nil
}

func addAddress(device string, address netip.Prefix) error {
	return change("giving", netlink.AddrAdd, device, address)
}

func removeAddress(device string, address netip.Prefix) error {
	return change("taking", netlink.AddrDel, device, address)
}

// change gives an address to a device or takes it.
func change(deed string, do func(netlink.Link, *netlink.Addr) error, device string, address netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("finding %s: %w", device, err)
	}
	ip := &net.IPNet{IP: address.Addr().AsSlice(), Mask: net.CIDRMask(address.Bits(), address.Addr().BitLen())}
	own := &netlink.Addr{IPNet: ip}
	if address.Addr().Is6() {
		own.Flags = unix.IFA_F_NODAD // nobody else has it, and it is to be of use at once
	}
	if err := do(link, own); err != nil {
		return fmt.Errorf("%s the address %v of %s: %w", deed, address, device, err)
	}
	return nil
}

// Missing lists, in the order of targets, those that the host has no route to. It asks the kernel and sends nothing.
func (h Host) Missing(targets []netip.Addr) ([]netip.Addr, error) {
	var missing []netip.Addr
	err := h.Do(func() error {
		for _, target := range targets {
			routes, err := netlink.RouteGet(target.AsSlice())
			if err != nil || len(routes) == 0 {
				missing = append(missing, target)
			}
		}
		return nil
	})
	return missing, err
}

// FewMachines is how many machines the kernel's table of neighbors holds by default: the table is shared by all namespaces, and in a full mesh
// each of n machines knows n-1 others. Above about 32 it overflows, and packets are lost.
const FewMachines = 32

// RaiseNeighborLimits makes room in the kernel's table of neighbors for so many machines, and returns what undoes that. It changes nothing for
// few machines. It fails for those who are not the machine's root.
func RaiseNeighborLimits(machines int) (restore func() error, err error) {
	if machines <= FewMachines {
		return func() error { return nil }, nil
	}
	var undo []func() error
	restore = func() error {
		var errs []error
		for _, u := range undo {
			errs = append(errs, u())
		}
		return errors.Join(errs...)
	}
	need := machines * machines
	// From the highest to the lowest, since each must be below the next.
	for _, limit := range []struct {
		name string
		want int
	}{{"gc_thresh3", 8 * need}, {"gc_thresh2", 4 * need}, {"gc_thresh1", 2 * need}} {
		u, err := raise("/proc/sys/net/ipv4/neigh/default/"+limit.name, limit.want)
		if err != nil {
			return restore, fmt.Errorf("making room for %d machines in the kernel's table of neighbors: %w", machines, err)
		}
		undo = append([]func() error{u}, undo...)
	}
	return restore, nil
}

// raise raises a number in a file of the kernel to at least want.
func raise(path string, want int) (undo func() error, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	have, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if have >= want {
		return func() error { return nil }, nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(want)), 0o600); err != nil {
		return nil, err
	}
	return func() error { return os.WriteFile(path, content, 0o600) }, nil
}
