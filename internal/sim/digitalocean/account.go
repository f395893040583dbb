// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

func getAccount(c *call) result {
	info := c.account.info
	if c.can("droplet:read") {
		info.DropletLimit = &c.account.limit
	}
	if c.can("reserved_ip:read") {
		info.FloatingIPLimit = new(3)
	}
	return ok(map[string]any{"account": info})
}

func listRegions(c *call) result {
	return listing(c, "regions", slices.Values(c.sim.catalog.regions), func(r *Region) any { return r })
}

func listSizes(c *call) result {
	return listing(c, "sizes", slices.Values(c.sim.catalog.sizes), func(s *Size) any { return s })
}

func listVPCs(c *call) result {
	return listing(c, "vpcs", c.account.vpcs.valuesAt(c.whenListed()), func(v *VPC) any { return v })
}

func getVPC(c *call) result {
	vpc, found := c.account.vpcs.getAt(c.params["vpc_id"], c.whenSeenByGet())
	if !found {
		return notFound().result()
	}
	return ok(map[string]any{"vpc": vpc})
}

// addVPC adds a network; what is empty gets a value. The first of a region is its default (OpenAPI: vpcs). A range that is not valid gets one of its own.
func (a *account) addVPC(vpc VPC, now time.Time) *VPC {
	number := a.vpcs.len()
	if vpc.ID == "" {
		vpc.ID = a.sim.newUUID()
	}
	if vpc.Name == "" {
		vpc.Name = fmt.Sprintf("vpc-%s-%02d", vpc.Region, number)
	}
	prefix, err := netip.ParsePrefix(vpc.IPRange)
	if err != nil || !prefix.Addr().Is4() {
		prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100 + byte(number%100), 0, 0}), 16)
	}
	vpc.IPRange = prefix.Masked().String()
	if _, found := a.regionVPC(vpc.Region); !found {
		vpc.Default = true
	}
	vpc.URN = "do:vpc:" + vpc.ID
	vpc.CreatedAt = rfc3339(now)
	a.vpcs.put(vpc.ID, &vpc, now)
	a.networks[vpc.ID] = newPool(prefix)
	return &vpc
}

// regionVPC returns the default network of a region.
func (a *account) regionVPC(region string) (*VPC, bool) {
	for vpc := range a.vpcs.values() {
		if vpc.Region == region && vpc.Default {
			return vpc, true
		}
	}
	return nil, false
}

// defaultVPC returns the network that a region's droplets and load balancers join if they ask for none.
func (a *account) defaultVPC(region string, now time.Time) *VPC {
	if vpc, found := a.regionVPC(region); found {
		return vpc
	}
	return a.addVPC(VPC{Region: region, Name: "default-" + region}, now)
}

// vpcFor checks the network that a request names, or returns the region's default.
func (a *account) vpcFor(uuid, region string, now time.Time) (*VPC, *refusal) {
	if uuid == "" {
		return a.defaultVPC(region, now), nil
	}
	vpc, found := a.vpcs.get(uuid)
	if !found {
		return nil, refuse(http.StatusNotFound, "vpc_uuid %q does not exist", uuid)
	}
	if vpc.Region != region {
		return nil, invalid("vpc_uuid %q is in region %s, not in %s", uuid, vpc.Region, region)
	}
	return vpc, nil
}
