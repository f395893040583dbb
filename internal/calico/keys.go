// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"fmt"
	"net/netip"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// Where Calico v3 keeps things in etcd. They MUST match Calico's, and keys_test.go compares them with
// what libcalico-go computes.
const (
	nodePrefix            = assumed.CalicoResources + "nodes/"
	endpointPrefix        = assumed.CalicoResources + "workloadendpoints/"
	clusterInformationKey = assumed.CalicoResources + "clusterinformations/default"
	affinityPrefix        = assumed.CalicoAffinities
	blockPrefix           = assumed.CalicoBlocks
	handlePrefix          = assumed.CalicoHandles
)

// reportKey is where a host's Felix keeps what it last reported, for good; the report that expires is next to it.
func reportKey(host string) string {
	return assumed.CalicoReports + host + "/last_reported_status"
}

func nodeKey(name string) string { return nodePrefix + name }

// writtenResource is the resource that a key holds one of, as the kubernetes datastore calls it.
func writtenResource(key string) string {
	if rest, found := strings.CutPrefix(key, assumed.CalicoResources); found {
		resource, _, _ := strings.Cut(rest, "/")
		return resource
	}
	for prefix, kind := range map[string]string{blockPrefix: kindBlock, affinityPrefix: kindAffinity, handlePrefix: kindHandle} {
		if strings.HasPrefix(key, prefix) {
			return plural(kind)
		}
	}
	return key
}

// resourcePrefixes are where the kinds stand of which an object can be about one host alone.
func resourcePrefixes() map[string]string {
	const root = assumed.CalicoResources
	return map[string]string{
		apiv3.KindFelixConfiguration: root + "felixconfigurations/",
		apiv3.KindBGPConfiguration:   root + "bgpconfigurations/",
		apiv3.KindHostEndpoint:       root + "hostendpoints/",
		apiv3.KindBGPPeer:            root + "bgppeers/",
		apiv3.KindCalicoNodeStatus:   root + "caliconodestatuses/",
	}
}

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
