// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package predecessor_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// maxWaived is how many of a hundred vectors may be waived.
const maxWaived = 3

// waiver is a way in which Mooring differs on purpose: the vectors of droplets to which it applies have another answer. No vector of a load
// balancer is waived. It is a rule and no list of names, so that it holds for vectors that nobody here has seen, and only for those.
type waiver struct {
	reason  string
	applies func(dropletVector) bool
}

// waivers is the one list of them. A waiver that is needed by none of the vectors to which it applies is an error, so that it cannot grow stale.
func waivers() []waiver {
	return []waiver{
		{
			reason: "the upstream project refuses a droplet without a private network, so that its Node is never initialized; Mooring gives the addresses there are",
			applies: func(v dropletVector) bool {
				return strings.Contains(v.Error, "could not get private ip") && !v.has("private") && v.has("public")
			},
		},
		{
			reason: "the upstream project does not find a Node whose name is an address of its droplet, since v0.1.62; Mooring does, as its documentation promises",
			applies: func(v dropletVector) bool {
				address, err := netip.ParseAddr(v.identity().Metadata.Name)
				return err == nil && v.identity().Spec.ProviderID == "" && strings.Contains(v.Error, "not found") && v.owns(address)
			},
		},
		{
			reason: "the upstream project takes a provider ID with a sign or leading zeros; Mooring takes the one that it writes, so that a droplet has one ID",
			applies: func(v dropletVector) bool {
				number, ok := strings.CutPrefix(v.identity().Spec.ProviderID, "digitalocean://")
				id, err := strconv.Atoi(number)
				return ok && err == nil && strconv.Itoa(id) != number
			},
		},
	}
}

// waived returns the reason why a vector may be answered differently, empty if it may not.
func waived(v dropletVector) string {
	for _, w := range waivers() {
		if w.applies(v) {
			return w.reason
		}
	}
	return ""
}

// has reports whether the droplet has an address of a kind, public of either family, private of IPv4.
func (v dropletVector) has(kind string) bool {
	for family, networks := range v.Droplet.Networks {
		if kind == "private" && family != "v4" {
			continue
		}
		if slices.ContainsFunc(networks, func(n dropletNetwork) bool { return n.Type == kind }) {
			return true
		}
	}
	return false
}

// identity is what a vector's Node says of itself.
func (v dropletVector) identity() (node struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
}) {
	_ = json.Unmarshal(v.Node, &node) // what is not a Node has no name, and the test of the vector says so
	return node
}

// owns reports whether the droplet has an address.
func (v dropletVector) owns(address netip.Addr) bool {
	for _, networks := range v.Droplet.Networks {
		if slices.ContainsFunc(networks, func(n dropletNetwork) bool { return n.Address == address }) {
			return true
		}
	}
	return false
}
