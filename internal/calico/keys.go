// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"fmt"
	"net/netip"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
)

// Where Calico v3 keeps things in etcd (libcalico-go, lib/backend/model). They MUST match Calico's, and keys_test.go compares them with
// what libcalico-go computes.
const (
	nodePrefix            = "/calico/resources/v3/projectcalico.org/nodes/"
	endpointPrefix        = "/calico/resources/v3/projectcalico.org/workloadendpoints/"
	clusterInformationKey = "/calico/resources/v3/projectcalico.org/clusterinformations/default"
	felixPrefix           = "/calico/resources/v3/projectcalico.org/felixconfigurations/"
	affinityPrefix        = "/calico/ipam/v2/host/"
	blockPrefix           = "/calico/ipam/v2/assignment/"
)

func nodeKey(name string) string { return nodePrefix + name }

// felixKey is the key of a host's own FelixConfiguration (libcalico-go names it "node.<name>").
func felixKey(host string) string { return felixPrefix + "node." + host }

func endpointKey(namespace, name string) string { return endpointPrefix + namespace + "/" + name }

func blockModelKey(cidr netip.Prefix) model.BlockKey { return model.BlockKey{CIDR: toCalicoNet(cidr)} }

func blockKey(cidr netip.Prefix) (string, error) { return model.KeyToDefaultPath(blockModelKey(cidr)) }

func affinityKey(host string, cidr netip.Prefix) (string, error) {
	return model.KeyToDefaultPath(model.BlockAffinityKey{Host: host, CIDR: toCalicoNet(cidr), AffinityType: model.IPAMAffinityTypeHost})
}

func handleKey(handle string) (string, error) {
	return model.KeyToDefaultPath(model.IPAMHandleKey{HandleID: handle})
}

func toCalicoNet(p netip.Prefix) cnet.IPNet { return cnet.MustParseCIDR(p.String()) }

func fromCalicoNet(n cnet.IPNet) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(n.String())
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("reading CIDR %q: %w", n.String(), err)
	}
	return p.Masked(), nil
}
