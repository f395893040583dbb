// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
)

const (
	bridgeDevice = "pods"
	podDevice    = "eth0"
)

// Build furnishes the network namespace of the calling thread, which must be new and empty: lo, the bridge, and the prefixes local, all of whose
// addresses are this namespace's own then (ip-route(8), type local).
func Build(local ...netip.Prefix) error {
	link, err := netlink.LinkByName("lo")
	if err == nil && link.Attrs().Flags&net.FlagUp != 0 {
		err = errors.New("it is not a new one, as lo is on")
	}
	if err != nil {
		return fmt.Errorf("furnishing a network namespace: %w", err)
	}
	lo, err := linkUp("lo")
	if err != nil {
		return err
	}
	for _, prefix := range local {
		route := &netlink.Route{
			LinkIndex: lo.Attrs().Index, Dst: ipNet(prefix), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("making %v local: %w", prefix, err)
		}
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = bridgeDevice
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
		return fmt.Errorf("making the bridge of the pods: %w", err)
	}
	if err := addAddress(bridgeDevice, netip.PrefixFrom(Gateway(), PodRange().Bits())); err != nil {
		return err
	}
	if _, err = linkUp(bridgeDevice); err != nil {
		return err
	}
	// There is no way from here to the outside, and only a router says so (ip_error in net/ipv4/route.c); else pods wait in vain. Where /proc may
	// not be written, they do.
	_ = os.WriteFile("/proc/sys/net/ipv4/conf/"+bridgeDevice+"/forwarding", []byte("1"), 0o600)
	return nil
}

// connect makes a pod's namespace and its cable. Nothing is left of a pod that could not be connected.
func connect(port string, address netip.Addr) (*netns.Namespace, error) {
	namespace, err := netns.New()
	if err != nil {
		return nil, err
	}
	if err := plug(port, namespace); err != nil {
		namespace.Close()
		return nil, err
	}
	if err := namespace.Do(func() error { return configure(address) }); err != nil {
		return nil, errors.Join(err, disconnect(Attachment{Namespace: namespace, port: port}))
	}
	return namespace, nil
}

// disconnect kills what runs in the namespace and removes both ends of the cable.
func disconnect(a Attachment) error {
	// The cable first: nobody hears the end of what is killed next, and the address is nobody's when this returns.
	link, err := netlink.LinkByName(a.port)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	a.Close()
	if err != nil {
		return fmt.Errorf("taking %s off the bridge: %w", a.port, err)
	}
	return nil
}

// plug makes a cable from the bridge into the namespace.
func plug(port string, namespace *netns.Namespace) error {
	file, err := namespace.Open()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	bridge, err := netlink.LinkByName(bridgeDevice)
	if err != nil {
		return fmt.Errorf("finding the bridge of the pods: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = port, bridge.Attrs().Index
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: podDevice, PeerNamespace: netlink.NsFd(file.Fd())}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("making the cable %s: %w", port, err)
	}
	if _, err := linkUp(port); err != nil {
		return errors.Join(err, netlink.LinkDel(cable))
	}
	return nil
}

// configure runs in the pod's namespace.
func configure(address netip.Addr) error {
	if _, err := linkUp("lo"); err != nil {
		return err
	}
	if err := addAddress(podDevice, netip.PrefixFrom(address, PodRange().Bits())); err != nil {
		return err
	}
	link, err := linkUp(podDevice)
	if err != nil {
		return err
	}
	gateway := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: Gateway().AsSlice()}
	if err := netlink.RouteAdd(gateway); err != nil {
		return fmt.Errorf("making the default route: %w", err)
	}
	// As container runtimes do: a pod's ports are its own, so no user needs a right to listen on a low one. Where /proc may not be written,
	// only root may.
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0o600)
	return nil
}

func linkUp(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("switching %s on: %w", name, err)
	}
	return link, nil
}

func addAddress(device string, address netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("finding %s: %w", device, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
		return fmt.Errorf("giving %s the address %v: %w", device, address, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
