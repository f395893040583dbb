// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package loadbalancer carries the traffic of the simulated cloud's network load balancers to real machines. As at DigitalOcean, packets for the
// address of a load balancer come to a droplet unchanged, whose kube-proxy knows that address, and only droplets that pass the health check
// get any. Here that is a route: from the lab's own network namespace to all healthy droplets in turn, by connection.
//
// Load balancers of the other type (REGIONAL), which end connections and open new ones, carry nothing here.
package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/cloud"
	"github.com/mooring-dev/mooring/lab/internal/subcommand"
)

const (
	pollInterval = time.Second
	// checkTimeout bounds one health check: a machine that is cut off does not respond at all.
	checkTimeout = time.Second
	networkType  = "REGIONAL_NETWORK"
)

// NewCommand returns the hidden subcommand that the supervisor runs.
func NewCommand() *cobra.Command {
	var access blueprint.CloudAccess
	command := subcommand.Hidden(blueprint.LoadBalancers, "Carry the traffic of load balancers", func(ctx context.Context) error { return run(ctx, access) })
	flags := command.Flags()
	flags.StringVar(&access.AdminURL, "admin-url", "", "administrator's interface of the simulated cloud")
	flags.StringVar(&access.CAFile, "ca-file", "", "authority that proves it")
	flags.StringVar(&access.CertFile, "cert-file", "", "certificate for it")
	flags.StringVar(&access.KeyFile, "key-file", "", "its key")
	return command
}

func run(ctx context.Context, access blueprint.CloudAccess) error {
	client, err := cloud.Connect(access)
	if err != nil {
		return err
	}
	// Connections, not pairs of machines, take turns.
	if err := os.WriteFile("/proc/sys/net/ipv4/fib_multipath_hash_policy", []byte("1"), 0o600); err != nil {
		return fmt.Errorf("letting connections take turns: %w", err)
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var routes map[netip.Addr][]netip.Addr
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		balancers, err := client.LoadBalancers(ctx)
		var droplets []cloud.Droplet
		if err == nil {
			droplets, err = client.Droplets(ctx)
		}
		if err == nil {
			routes = follow(routes, healthy(ctx, Plan(balancers, droplets)), logger)
		} else if ctx.Err() == nil {
			logger.Error("The load balancers stay as they were", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Target is a droplet of a load balancer, with the check that it must pass.
type Target struct {
	Address netip.Addr
	// Port is the check's; Path is empty if a connection is enough.
	Port int
	Path string
}

// Plan lists the targets of each load balancer of the network type, by its address and in order. Droplets that are not active are none.
func Plan(balancers []digitalocean.LoadBalancer, droplets []cloud.Droplet) map[netip.Addr][]Target {
	private := map[int]netip.Addr{}
	for _, d := range droplets {
		if address, err := netip.ParseAddr(d.PrivateIP); err == nil && d.Status == "active" {
			private[d.ID] = address
		}
	}
	plan := map[netip.Addr][]Target{}
	for _, b := range balancers {
		address, err := netip.ParseAddr(b.IP)
		if err != nil || b.Type != networkType {
			continue // it has no address yet, or is of the other type
		}
		targets := []Target{}
		for _, id := range b.DropletIDs {
			if !private[id].IsValid() {
				continue
			}
			t := Target{Address: private[id], Port: b.HealthCheck.Port}
			if b.HealthCheck.Protocol != "tcp" {
				t.Path = b.HealthCheck.Path
			}
			targets = append(targets, t)
		}
		slices.SortFunc(targets, func(a, b Target) int { return a.Address.Compare(b.Address) })
		plan[address] = targets
	}
	return plan
}

// healthy checks all targets at once and leaves out those that do not pass.
func healthy(ctx context.Context, plan map[netip.Addr][]Target) map[netip.Addr][]netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var group sync.WaitGroup
	passed := map[netip.Addr][]bool{}
	for at, targets := range plan {
		results := make([]bool, len(targets))
		passed[at] = results
		for i, t := range targets {
			group.Go(func() { results[i] = t.passes(ctx) })
		}
	}
	group.Wait()
	routes := map[netip.Addr][]netip.Addr{}
	for at, targets := range plan {
		routes[at] = []netip.Addr{}
		for i, t := range targets {
			if passed[at][i] {
				routes[at] = append(routes[at], t.Address)
			}
		}
	}
	return routes
}

// passes reports whether the target passes its check.
func (t Target) passes(ctx context.Context) bool {
	at := net.JoinHostPort(t.Address.String(), strconv.Itoa(t.Port))
	if t.Path == "" {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+t.Path, nil)
	if err != nil {
		return false
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// follow makes the routes agree with what is wanted and returns those that do.
func follow(have, want map[netip.Addr][]netip.Addr, logger *slog.Logger) map[netip.Addr][]netip.Addr {
	now := map[netip.Addr][]netip.Addr{}
	for at, targets := range have {
		if _, ok := want[at]; ok {
			continue
		}
		err := netlink.RouteDel(&netlink.Route{Dst: only(at)})
		if err != nil && !errors.Is(err, unix.ESRCH) {
			logger.Error("The route to a load balancer that is gone stays", "address", at, "error", err)
			now[at] = targets
		}
	}
	for at, targets := range want {
		if before, ok := have[at]; ok && slices.Equal(before, targets) {
			now[at] = targets
			continue
		}
		route := &netlink.Route{Dst: only(at)}
		if len(targets) == 0 {
			route.Type = unix.RTN_UNREACHABLE
		}
		for _, target := range targets {
			route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{Gw: target.AsSlice()})
		}
		if err := netlink.RouteReplace(route); err != nil {
			logger.Error("The route to a load balancer cannot be made", "address", at, "targets", targets, "error", err)
			continue // it is tried again
		}
		now[at] = targets
		logger.Info("Load balancer", "address", at, "targets", targets)
	}
	return now
}

func only(address netip.Addr) *net.IPNet {
	return &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
}
