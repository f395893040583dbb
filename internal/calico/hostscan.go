// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"bytes"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// hostScan sorts what is read into the hosts that are asked for.
type hostScan struct {
	names []string
	hosts map[string]*Host
	// claimed are the CIDRs on which one of the hosts has an affinity: their blocks matter no matter which host they are affine to.
	claimed map[netip.Prefix][]string
	// addresses are those of the hosts' machines.
	addresses map[netip.Addr]string
	// doubled are the names with their dashes doubled.
	doubled map[string]bool
	// lengths are those of the names, up to the longest that is told apart.
	lengths [256]bool
	// cooldown is Host.IPCooldown of all.
	cooldown time.Duration
	// unlikeWords reports that a name has characters that no word has.
	unlikeWords bool
}

func newHostScan(hostNames []string) *hostScan {
	s := &hostScan{hosts: map[string]*Host{}, claimed: map[netip.Prefix][]string{}, addresses: map[netip.Addr]string{}, doubled: map[string]bool{}}
	for _, name := range hostNames {
		if name != "" && s.hosts[name] == nil {
			s.hosts[name] = &Host{Host: nodesync.Host{Name: name}}
			s.names = append(s.names, name)
			s.doubled[strings.ReplaceAll(name, "-", "--")] = true
			s.lengths[min(len(name), len(s.lengths)-1)] = true
			s.unlikeWords = s.unlikeWords || strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII || !inWord(byte(r)) })
		}
	}
	slices.Sort(s.names)
	return s
}

func (s *hostScan) result() []Host {
	out := make([]Host, 0, len(s.names))
	for _, name := range s.names {
		s.hosts[name].IPCooldown = s.cooldown
		out = append(out, *s.hosts[name])
	}
	return out
}

// keep notes an object for the journal.
func (h *Host) keep(key string, value []byte, revision int64) {
	h.Objects = append(h.Objects, Object{Key: key, Revision: revision, Value: string(value)})
}

func (s *hostScan) addEndpoint(key string, value []byte, revision int64) {
	named := s.hosts[endpointHost(key)]
	namespace, name, _ := strings.Cut(strings.TrimPrefix(key, endpointPrefix), "/")
	wep, ok := parseEndpoint(namespace, name, value)
	if !ok || wep.Spec.Node != named.Name {
		named.Unreadable = append(named.Unreadable, key)
		return
	}
	named.keep(key, value, revision)
	named.Endpoints = append(named.Endpoints, Endpoint{
		Namespace: namespace, Name: name, Revision: revision, Orchestrator: wep.Spec.Orchestrator, Pod: wep.Spec.Pod,
	})
}

// parseEndpoint parses a WorkloadEndpoint; ok is false for what cannot be parsed as one.
func parseEndpoint(namespace, name string, value []byte) (wep *libapiv3.WorkloadEndpoint, ok bool) {
	parsed, err := model.ParseValue(model.ResourceKey{Kind: libapiv3.KindWorkloadEndpoint, Namespace: namespace, Name: name}, value)
	wep, ok = parsed.(*libapiv3.WorkloadEndpoint)
	return wep, ok && err == nil
}

func (s *hostScan) addAffinity(host, key string, value []byte, revision int64) {
	h := s.hosts[host]
	k, ok := model.BlockAffinityListOptions{Host: host}.KeyFromDefaultPath(key).(model.BlockAffinityKey)
	if !ok {
		h.Unreadable = append(h.Unreadable, key)
		return
	}
	cidr, cidrErr := fromCalicoNet(k.CIDR)
	parsed, err := model.ParseValue(k, value)
	affinity, ok := parsed.(*model.BlockAffinity)
	if err != nil || cidrErr != nil || !ok {
		h.Unreadable = append(h.Unreadable, key)
		return
	}
	h.keep(key, value, revision)
	h.Affinities = append(h.Affinities, Affinity{CIDR: cidr, Revision: revision, State: string(affinity.State)})
	s.claimed[cidr] = append(s.claimed[cidr], host)
}

// addResource keeps an object that is about one of the hosts. A "node.<name>" object that cannot be parsed speaks for that host; others
// do so if the host's name occurs in them.
func (s *hostScan) addResource(kind, name, key string, value []byte, revision int64) {
	parsed, err := model.ParseValue(model.ResourceKey{Kind: kind, Name: name}, value)
	if err != nil {
		for host, h := range s.hosts {
			if name == perNode+host || bytes.Contains(value, []byte(host)) {
				h.Unreadable = append(h.Unreadable, key)
			}
		}
		return
	}
	if peer, ok := parsed.(*apiv3.BGPPeer); ok {
		s.addMention(name, peer.Spec)
	}
	host, automatic := aboutHost(name, parsed)
	if h := s.hosts[host]; h != nil {
		h.keep(key, value, revision)
		resource := Resource{Kind: nodesync.ResourceKind(kind), Name: name, Revision: revision, Automatic: automatic}
		if status, ok := parsed.(*apiv3.CalicoNodeStatus); ok {
			resource.StatusAt = status.Status.LastUpdated.Time
		}
		h.Resources = append(h.Resources, resource)
	}
}

// addNode notes the addresses of a host's machine. One that cannot be parsed has none.
func (s *hostScan) addNode(node *libapiv3.Node) {
	if node.Spec.BGP == nil {
		return
	}
	for _, text := range []string{node.Spec.BGP.IPv4Address, node.Spec.BGP.IPv6Address} {
		text, _, _ = strings.Cut(text, "/")
		if address, err := netip.ParseAddr(text); err == nil {
			s.addresses[address] = node.Name
		}
	}
}

// addMention notes a BGPPeer that points at a host by its address, or that chooses it by its name: whom it is about is not for sure, since
// another machine may have the address by now, and a selector may choose others as well.
func (s *hostScan) addMention(name string, spec apiv3.BGPPeerSpec) {
	if address, err := netip.ParseAddrPort(spec.PeerIP); err == nil {
		s.mentionAddress(name, address.Addr())
	} else if address, err := netip.ParseAddr(spec.PeerIP); err == nil {
		s.mentionAddress(name, address)
	}
	for _, host := range s.names {
		for _, selector := range []string{spec.NodeSelector, spec.PeerSelector} {
			if strings.Contains(selector, "'"+host+"'") || strings.Contains(selector, `"`+host+`"`) {
				s.hosts[host].Mentions = append(s.hosts[host].Mentions, "BGPPeer "+name+" names it in the selector "+selector)
			}
		}
	}
}

func (s *hostScan) mentionAddress(peer string, address netip.Addr) {
	if host := s.addresses[address]; host != "" {
		s.hosts[host].Mentions = append(s.hosts[host].Mentions, "BGPPeer "+peer+" peers with its address "+address.String())
	}
}

// perNode begins the name of a configuration for one host (libcalico-go, lib/clientv3).
const perNode = "node."

// aboutHost returns the host that an object is about alone, "" for none.
func aboutHost(name string, object any) (host string, automatic bool) {
	switch o := object.(type) {
	case *apiv3.FelixConfiguration:
		return configuredHost(name), automaticFelix(o.Spec)
	case *apiv3.BGPConfiguration:
		return configuredHost(name), false
	case *apiv3.HostEndpoint:
		return o.Spec.Node, o.Labels["projectcalico.org/created-by"] == "calico-kube-controllers"
	case *apiv3.BGPPeer:
		return o.Spec.Node, false
	case *apiv3.CalicoNodeStatus:
		return o.Spec.Node, false
	}
	return "", false
}

func configuredHost(name string) string {
	host, ok := strings.CutPrefix(name, perNode)
	if !ok {
		return ""
	}
	return host
}

// automaticFelix reports whether a host's own configuration is what calico-node writes: one setting, and the defaults that libcalico-go's
// client fills in on every write (lib/clientv3/felixconfig.go: setDefaults), which older versions did not.
func automaticFelix(spec apiv3.FelixConfigurationSpec) bool {
	unsetDefault(&spec.BPFConnectTimeLoadBalancing, apiv3.BPFConnectTimeLBTCP)
	unsetDefault(&spec.BPFHostNetworkedNATWithoutCTLB, apiv3.BPFHostNetworkedNATEnabled)
	unsetDefault(&spec.FloatingIPs, apiv3.FloatingIPsDisabled)
	return reflect.DeepEqual(spec, apiv3.FelixConfigurationSpec{DefaultEndpointToHostAction: "Return"})
}

// unsetDefault makes a setting nil that has its default value.
func unsetDefault[T comparable](setting **T, value T) {
	if *setting != nil && **setting == value {
		*setting = nil
	}
}

// addBlock keeps a block for each host that it is affine to, that claims it, or that has an address in it.
func (s *hostScan) addBlock(key string, value []byte) {
	if !s.mayConcern(key, value) {
		return
	}
	k, ok := model.BlockListOptions{}.KeyFromDefaultPath(key).(model.BlockKey)
	var block Block
	var err error
	if ok {
		block, err = parseBlock(k, value)
	}
	if !ok || err != nil {
		s.unreadableBlock(key, value)
		return
	}
	s.keepBlock(block)
}

func (s *hostScan) keepBlock(block Block) {
	concerned, kept := map[string]bool{block.AffineTo: true}, nodesync.Block{CIDR: block.CIDR, AffineTo: block.AffineTo}
	for _, a := range block.Allocations {
		kept.Allocations = append(kept.Allocations, a.Allocation)
		concerned[a.Host] = true
		if h := s.hosts[a.Host]; h != nil && a.Handle != "" {
			h.Addresses = append(h.Addresses, heldAddress(block, a))
		}
	}
	for _, host := range s.claimed[block.CIDR] {
		concerned[host] = true
	}
	for _, name := range s.names {
		if concerned[name] {
			s.hosts[name].Blocks = append(s.hosts[name].Blocks, kept)
		}
	}
}

// mayConcern is a cheap test before parsing: a host's name must stand in the value, or the host must claim the CIDR of the key.
func (s *hostScan) mayConcern(key string, value []byte) bool {
	return s.mentions(value) || len(s.claimed[cidrOfKey(key)]) > 0
}

// mentions reports whether the name of a host stands in a value. In a JSON object it is a word of its own, so that one pass serves however
// many hosts there are; in anything else it may stand anywhere.
func (s *hostScan) mentions(value []byte) bool {
	if s.unlikeWords || !bytes.HasPrefix(value, []byte("{")) || !bytes.HasSuffix(value, []byte("}")) {
		return slices.ContainsFunc(s.names, func(name string) bool { return bytes.Contains(value, []byte(name)) })
	}
	for rest := value; len(rest) > 0; {
		end := 0
		for end < len(rest) && inWord(rest[end]) {
			end++
		}
		if s.lengths[min(end, len(s.lengths)-1)] && s.hosts[string(rest[:end])] != nil {
			return true
		}
		rest = rest[min(end+1, len(rest)):]
	}
	return false
}

// inWord reports whether a character may be in a machine's name, as nearly all are.
func inWord(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || 'A' <= c && c <= 'Z' || c == '_'
}

// cidrOfKey is the CIDR at the end of a block's key, the zero Prefix if there is none.
func cidrOfKey(key string) netip.Prefix {
	cidr, err := netip.ParsePrefix(strings.Replace(key[strings.LastIndex(key, "/")+1:], "-", "/", 1))
	if err != nil {
		return netip.Prefix{}
	}
	return cidr
}

// unreadableBlock speaks for every host that claims a block which cannot be parsed, or whose name occurs in it.
func (s *hostScan) unreadableBlock(key string, value []byte) {
	claimants := s.claimed[cidrOfKey(key)]
	for _, name := range s.names {
		if slices.Contains(claimants, name) || bytes.Contains(value, []byte(name)) {
			s.hosts[name].Unreadable = append(s.hosts[name].Unreadable, key)
		}
	}
}
