// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

const (
	// Account is the name of the only account.
	Account = "lab"
	// Region is where all that is created here is.
	Region = "nyc1"
	// ControlPlane is the name of the droplet that stands for the machine on which the control plane runs.
	ControlPlane = "control-plane"
	// zoneTag is what the tag begins with that says in which zone of the lab a droplet is: DigitalOcean has regions only.
	zoneTag = "zone:"
	// realTag is the tag of a droplet that is a real machine.
	realTag = "lab:real"
)

// nodeTag is the tag of droplets that join the cluster.
func nodeTag() string { return "k8s:" + blueprint.ClusterID }

// specOf is the droplet of a new machine.
func specOf(name, zone string, isReal bool) digitalocean.DropletSpec {
	spec := digitalocean.DropletSpec{Name: name, Region: Region, Tags: []string{"k8s", nodeTag(), zoneTag + zone}}
	if isReal {
		spec.Tags = append(spec.Tags, realTag)
	}
	return spec
}

// Machines lists the machines that droplets are: those with the cluster's tag that have booted and have an address. The former list says which of
// them are frozen, and in which zone those are that do not say it. Of two droplets with one name the older is the machine.
func Machines(former machines.List, droplets []digitalocean.Droplet) machines.List {
	var list machines.List
	for _, d := range droplets {
		name, address := strings.ToLower(d.Name), privateAddress(d)
		_, taken := list.Find(name)
		if taken || !isNode(d) || d.Status == "new" || !address.IsValid() || !machines.ValidName(name) {
			continue
		}
		m := machines.Machine{
			Name: name, Zone: zoneOf(d), Address: address, State: machines.Running, ExternalCloudProvider: true, Droplet: d.ID,
			Real: slices.Contains(tagsOf(d), realTag),
		}
		before, known := former.Find(name)
		known = known && before.Droplet == d.ID
		switch {
		case d.Status != "active":
			m.State = machines.Off
		case known && before.State == machines.Frozen:
			m.State = machines.Frozen
		}
		if m.Zone == "" && known {
			m.Zone = before.Zone
		} else if m.Zone == "" {
			m.Zone = list.EmptiestZone()
		}
		list.Machines = append(list.Machines, m)
	}
	return list
}

// booting reports whether a machine will come of a droplet by itself.
func booting(droplets []digitalocean.Droplet) bool {
	return slices.ContainsFunc(droplets, func(d digitalocean.Droplet) bool {
		return isNode(d) && (d.Status == "new" || len(d.Networks.V4) == 0)
	})
}

func tagsOf(d digitalocean.Droplet) []string {
	if d.Tags == nil {
		return nil
	}
	return *d.Tags
}

func isNode(d digitalocean.Droplet) bool {
	return slices.ContainsFunc(tagsOf(d), func(tag string) bool { return strings.EqualFold(tag, nodeTag()) })
}

func zoneOf(d digitalocean.Droplet) string {
	for _, tag := range tagsOf(d) {
		if zone, ok := strings.CutPrefix(tag, zoneTag); ok {
			return zone
		}
	}
	return ""
}

// addressOf returns the first address of a kind: private or public.
func addressOf(d digitalocean.Droplet, kind string) string {
	for _, network := range d.Networks.V4 {
		if network.Type == kind {
			return network.IPAddress
		}
	}
	return ""
}

func privateAddress(d digitalocean.Droplet) netip.Addr {
	address, err := netip.ParseAddr(addressOf(d, "private"))
	if err != nil {
		return netip.Addr{}
	}
	return address
}
