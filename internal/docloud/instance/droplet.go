// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// Droplet is what the rest of the component knows of a droplet (schema "droplet" of the API). Fields that a scoped token does not return are
// empty.
type Droplet struct {
	ID     int
	Name   string
	Status Status
	// Size and Region are slugs.
	Size, Region string
	// Networks are the interfaces in the API's order, IPv4 and IPv6 together.
	Networks []Network
	Tags     []string
	// VPC is the UUID of the droplet's VPC.
	VPC     string
	Created time.Time
	// Volumes are the IDs of attached volumes, nil if the token may not see them.
	Volumes []string
}

// Network is one address of a droplet.
type Network struct {
	Address netip.Addr
	Public  bool
}

// Status is a droplet's state as the API spells it.
type Status string

// The states of a droplet.
const (
	StatusNew     Status = "new"
	StatusActive  Status = "active"
	StatusOff     Status = "off"
	StatusArchive Status = "archive"
)

// address returns the first address of a kind as text, empty for none.
func (d Droplet) address(public, v4 bool) string {
	i := slices.IndexFunc(d.Networks, func(n Network) bool { return n.Public == public && n.Address.Is4() == v4 })
	if i < 0 {
		return ""
	}
	return d.Networks[i].Address.String()
}

func (d Droplet) String() string { return fmt.Sprintf("droplet %d (%q)", d.ID, d.Name) }

// Metadata is what Kubernetes is told of a Node's machine. It stands for the type of the same name in k8s.io/cloud-provider, which a pure
// package does not import. There are no zones and no labels in addition.
type Metadata struct {
	ProviderID   string
	InstanceType string
	Region       string
	Addresses    []corev1.NodeAddress
}

// Describe returns a droplet's metadata. The addresses are, in this order: the droplet's name as Hostname, its first private IPv4 address as
// InternalIP, its first public IPv4 address and its first public IPv6 address as ExternalIP. What a droplet does not have is left out: the
// upstream project refuses a droplet without a private network, Mooring takes it. A droplet without any address is an error, since it is about to
// get one and a Node that were initialized without would stay so.
func Describe(d Droplet) (Metadata, error) {
	addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: d.Name}}
	for _, a := range []struct {
		kind    corev1.NodeAddressType
		address string
	}{
		{corev1.NodeInternalIP, d.address(false, true)},
		{corev1.NodeExternalIP, d.address(true, true)},
		{corev1.NodeExternalIP, d.address(true, false)},
	} {
		if a.address != "" {
			addresses = append(addresses, corev1.NodeAddress{Type: a.kind, Address: a.address})
		}
	}
	if len(addresses) == 1 {
		return Metadata{}, fmt.Errorf("%s has no address yet", d)
	}
	return Metadata{ProviderID: providerid.Format(d.ID), InstanceType: d.Size, Region: d.Region, Addresses: addresses}, nil
}

// IsShutdown reports whether a droplet is switched off. An archived droplet is not, as with the upstream project: nobody switched it off, and it does
// not come back by being switched on.
func IsShutdown(d Droplet) bool { return d.Status == StatusOff }
