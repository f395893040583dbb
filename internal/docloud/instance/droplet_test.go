// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

func public(address string) instance.Network {
	return instance.Network{Address: netip.MustParseAddr(address), Public: true}
}

func private(address string) instance.Network {
	return instance.Network{Address: netip.MustParseAddr(address)}
}

func droplet(id int, name string, networks ...instance.Network) instance.Droplet {
	return instance.Droplet{ID: id, Name: name, Status: instance.StatusActive, Size: "s-1vcpu-1gb", Region: "nyc1", Networks: networks}
}

func node(name, providerID string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	name := corev1.NodeAddress{Type: corev1.NodeHostName, Address: "web-1"}
	internal := func(a string) corev1.NodeAddress { return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a} }
	external := func(a string) corev1.NodeAddress { return corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a} }
	for what, tt := range map[string]struct {
		networks []instance.Network
		want     []corev1.NodeAddress
	}{
		"all of them, in Kubernetes' order and not in the API's": {
			[]instance.Network{public("2001:db8::5"), public("203.0.113.5"), private("10.1.0.5")},
			[]corev1.NodeAddress{name, internal("10.1.0.5"), external("203.0.113.5"), external("2001:db8::5")},
		},
		"the first of each": {
			[]instance.Network{private("10.1.0.5"), private("10.2.0.5"), public("203.0.113.5"), public("203.0.113.6")},
			[]corev1.NodeAddress{name, internal("10.1.0.5"), external("203.0.113.5")},
		},
		"no private network": {
			[]instance.Network{public("203.0.113.5")}, []corev1.NodeAddress{name, external("203.0.113.5")},
		},
		"nothing but IPv6": {
			[]instance.Network{public("2001:db8::5")}, []corev1.NodeAddress{name, external("2001:db8::5")},
		},
		"a private IPv6 address counts for nothing": {
			[]instance.Network{private("fd00::5"), private("10.1.0.5")}, []corev1.NodeAddress{name, internal("10.1.0.5")},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			got, err := instance.Describe(droplet(4242, "web-1", tt.networks...))
			want := instance.Metadata{ProviderID: "digitalocean://4242", InstanceType: "s-1vcpu-1gb", Region: "nyc1", Addresses: tt.want}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A droplet that is just being made has no address; a Node initialized from it would never get one.
func TestDescribeWithoutAddress(t *testing.T) {
	t.Parallel()
	_, err := instance.Describe(droplet(4242, "web-1"))
	if want := `droplet 4242 ("web-1") has no address yet`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestIsShutdown(t *testing.T) {
	t.Parallel()
	for status, want := range map[instance.Status]bool{"new": false, "active": false, "off": true, "archive": false, "": false} {
		if got := instance.IsShutdown(instance.Droplet{Status: status}); got != want {
			t.Errorf("%q: %v", status, got)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	droplets := []instance.Droplet{
		droplet(1, "web-1", private("10.0.0.1"), public("198.51.100.1")), droplet(2, "Web-2"), droplet(3, "twin"), droplet(4, "TWIN"),
		droplet(5, "gpu", private("10.0.0.5")), droplet(6, "10.0.0.1"), droplet(7, "other-vpc", private("10.0.0.9")), droplet(8, "x", private("10.0.0.9")),
		droplet(9, "v6", public("2001:db8::9")), droplet(2, "Web-2"),
	}
	for name, tt := range map[string]struct {
		node *corev1.Node
		want int
		err  error
		says string
	}{
		"provider ID":                       {node: node("any", "digitalocean://5"), want: 5},
		"provider ID alone counts":          {node: node("web-1", "digitalocean://99"), err: instance.ErrNoDroplet, says: "no droplet matches node web-1: there is no droplet 99"},
		"provider ID of another cloud":      {node: node("web-1", "aws:///i-1"), err: providerid.ErrForeign},
		"name":                              {node: node("web-1", ""), want: 1},
		"name, without regard to case":      {node: node("web-2", ""), want: 2},
		"a name that is an address":         {node: node("198.51.100.1", ""), want: 1},
		"an IPv6 address, written longer":   {node: node("2001:db8:0::9", ""), want: 9},
		"the name comes before the address": {node: node("10.0.0.1", ""), want: 6},
		"unknown":                           {node: node("nobody", ""), err: instance.ErrNoDroplet, says: "no droplet matches node nobody: there is no droplet of that name"},
		"unknown address":                   {node: node("10.9.9.9", ""), err: instance.ErrNoDroplet, says: "no droplet matches node 10.9.9.9: there is no droplet with that address"},
		"two of one name": {
			node: node("twin", ""), err: &instance.AmbiguousError{Node: "twin", By: "name", Droplets: []int{3, 4}},
			says: "node twin has the name of 2 droplets, 3 and 4: delete or rename those that are not this node, or start its kubelet with --provider-id=digitalocean://ID",
		},
		"two of one address, in two VPCs": {
			node: node("10.0.0.9", ""), err: &instance.AmbiguousError{Node: "10.0.0.9", By: "address", Droplets: []int{7, 8}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := instance.Match(tt.node, droplets)
			var wanted, ambiguous *instance.AmbiguousError
			if errors.As(tt.err, &wanted) {
				if !errors.As(err, &ambiguous) || !cmp.Equal(wanted, ambiguous) {
					t.Errorf("%v, want %v", err, tt.err)
				}
			} else if got.ID != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%d, %v; want %d, %v", got.ID, err, tt.want, tt.err)
			}
			if tt.says != "" && err.Error() != tt.says {
				t.Errorf("says\n%s, want\n%s", err, tt.says)
			}
		})
	}
}
