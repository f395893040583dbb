// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/realnode/describe"
)

const (
	bridgeDevice  = "machines"
	machineDevice = "eth0"
)

// Build furnishes the network namespace of the calling thread, which must be new and empty, as the network of real
// machines: a bridge with the control plane's address, on which each machine hangs with a cable, eth0 on its side.
//
// It routes: from each machine to the others' pods, whose ranges lead to their machines.
func Build() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil && lo.Attrs().Flags&net.FlagUp != 0 {
		err = errors.New("it is not a new one, as lo is on")
	}
	if err != nil {
		return fmt.Errorf("furnishing a network namespace: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("switching lo on: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = bridgeDevice
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("making the bridge of the machines: %w", err)
	}
	if err := configure(bridgeDevice, netip.PrefixFrom(netip.MustParseAddr(blueprint.ControlPlaneAddress), machines.Network().Bits())); err != nil {
		return err
	}
	// Machines on one bridge are not to be told of a shorter way: they would forget it with the machine at its end.
	for name, value := range map[string]string{"ip_forward": "1", "conf/all/send_redirects": "0", "conf/" + bridgeDevice + "/send_redirects": "0"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0o600); err != nil {
			return fmt.Errorf("setting net/ipv4/%s: %w", name, err)
		}
	}
	return nil
}

// connect puts a machine's namespace on the bridge. The cable has the name port on the bridge's side.
func connect(port string, namespace *netns.Namespace, address netip.Addr) error {
	file, err := namespace.Open()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	bridge, err := netlink.LinkByName(bridgeDevice)
	if err != nil {
		return fmt.Errorf("finding the bridge of the machines: %w", err)
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = port, bridge.Attrs().Index
	cable := &netlink.Veth{LinkAttrs: attributes, PeerName: machineDevice, PeerNamespace: netlink.NsFd(file.Fd())}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("making the cable %s: %w", port, err)
	}
	if err := plug(port, true); err != nil {
		return err
	}
	err = namespace.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			return fmt.Errorf("switching lo on: %w", err)
		}
		if err := configure(machineDevice, netip.PrefixFrom(address, machines.Network().Bits())); err != nil {
			return err
		}
		gateway := netip.MustParseAddr(blueprint.ControlPlaneAddress)
		if err := netlink.RouteAdd(&netlink.Route{Gw: gateway.AsSlice()}); err != nil {
			return fmt.Errorf("making the default route: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	pods := describe.PodCIDR(address)
	if err := netlink.RouteReplace(&netlink.Route{Dst: ipNet(pods), Gw: address.AsSlice()}); err != nil {
		return fmt.Errorf("making the route to %v: %w", pods, err)
	}
	return nil
}

// disconnect removes a machine's cable and the route to its pods. What is not there is no error.
func disconnect(port string, address netip.Addr) error {
	err := netlink.RouteDel(&netlink.Route{Dst: ipNet(describe.PodCIDR(address)), Gw: address.AsSlice()})
	if errors.Is(err, unix.ESRCH) {
		err = nil
	}
	link, linkErr := netlink.LinkByName(port)
	if _, none := errors.AsType[netlink.LinkNotFoundError](linkErr); none {
		return err
	}
	if linkErr == nil {
		linkErr = netlink.LinkDel(link)
	}
	return errors.Join(err, linkErr)
}

// plug makes a machine's cable carry packets, or not.
func plug(port string, on bool) error {
	link, err := netlink.LinkByName(port)
	switch {
	case err != nil:
	case on:
		err = netlink.LinkSetUp(link)
	default:
		err = netlink.LinkSetDown(link)
	}
	if err != nil {
		return fmt.Errorf("switching the cable %s: %w", port, err)
	}
	return nil
}

// configure gives a device an address and switches it on.
func configure(device string, address netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("finding %s: %w", device, err)
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
		return fmt.Errorf("giving %s the address %v: %w", device, address, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("switching %s on: %w", device, err)
	}
	return nil
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
