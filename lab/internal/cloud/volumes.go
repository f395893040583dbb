// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/disks"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	realmachine "github.com/mooring-dev/mooring/lab/internal/realnode/describe"
)

const (
	// metadataAddress is where a droplet finds its metadata service (DigitalOcean's documentation).
	metadataAddress = "169.254.169.254"
	// attachTime is how long an attachment, a detachment or a change of size takes; at DigitalOcean it is several seconds.
	attachTime = 500 * time.Millisecond
)

// openDisks makes volumes disks of this machine.
func (o options) openDisks() (*disks.Disks, error) {
	if err := os.MkdirAll(o.disks, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the disks: %w", err)
	}
	return disks.New(o.disks), nil
}

// listenToMachines serves the API and the metadata service on the network of real machines.
func (o options) listenToMachines(ctx context.Context, s *servers, sim *digitalocean.Simulator, config *tls.Config, logger *slog.Logger) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		prefix := netip.MustParseAddr(metadataAddress)
		err = netlink.AddrReplace(lo, &netlink.Addr{IPNet: &net.IPNet{IP: prefix.AsSlice(), Mask: net.CIDRMask(prefix.BitLen(), prefix.BitLen())}})
	}
	if err != nil {
		return fmt.Errorf("giving this network the address of the metadata service: %w", err)
	}
	api, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort(o.machinesAddress, strconv.Itoa(o.apiPort)))
	if err != nil {
		return fmt.Errorf("serving the API to machines: %w", err)
	}
	s.add(tls.NewListener(api, config), sim.Handler(), logger)
	metadata, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort(metadataAddress, "80"))
	if err != nil {
		return fmt.Errorf("serving the metadata service to machines: %w", err)
	}
	s.add(metadata, sim.Metadata(o.identify), logger)
	return nil
}

// identify finds the droplet that asks about itself by its address, or by that of a pod on it: at DigitalOcean pods come from their droplet's address.
func (o options) identify(r *http.Request) (account, droplet string, ok bool) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", "", false
	}
	list, err := machines.Load(o.machines)
	if err != nil {
		return "", "", false
	}
	for _, m := range list.Machines {
		if address := from.Addr().Unmap(); m.Address == address || realmachine.PodCIDR(m.Address).Contains(address) {
			return Account, strconv.Itoa(m.Droplet), true
		}
	}
	return "", "", false
}
