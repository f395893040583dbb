// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrNotRestored is the kind of error that says why an object is not re-created; nothing was written then.
var ErrNotRestored = errors.New("not restored")

// ErrUnchanged is the kind of error that says that an object is there just as it was; nothing was written then.
var ErrUnchanged = errors.New("unchanged")

// Restore re-creates an object as it was; one that is there just so is left as it is (ErrUnchanged). It refuses (ErrNotRestored) what exists
// again in another form, what is IPAM's (addresses, once released, may be anybody's), an endpoint or a Node with an address that has since
// been assigned to another, and a Node whose own address another Node has. Checks and write are one transaction, as far as the blocks in
// question exist. Annotations named in without are left out.
func (d *Etcd) Restore(ctx context.Context, object Object, without ...string) error {
	seen := map[string]int64{object.Key: 0}
	if err := d.checkRestorable(ctx, object, seen); err != nil {
		return err
	}
	value, err := object.stripped(without)
	if err != nil {
		return err
	}
	_, err = d.commit(ctx, nil, seen, clientv3.OpPut(object.Key, string(value)))
	var conflict *ConflictError
	if errors.As(err, &conflict) && conflict.Key == object.Key {
		return d.existing(ctx, object.Key, value)
	}
	if err != nil {
		return fmt.Errorf("restoring %s: %w", object.Key, err)
	}
	return nil
}

func (d *Etcd) checkRestorable(ctx context.Context, object Object, seen map[string]int64) error {
	switch {
	case strings.HasPrefix(object.Key, nodePrefix):
		return d.checkNode(ctx, object, seen)
	case strings.HasPrefix(object.Key, endpointPrefix):
		return d.checkEndpoint(ctx, object, seen)
	case isResource(object.Key):
		return nil
	case IsIPAM(object.Key):
		return fmt.Errorf("%w: %s is IPAM's, which assigns addresses again", ErrNotRestored, object.Key)
	}
	return fmt.Errorf("%w: %q is not a key of a kind that is restored", ErrNotRestored, object.Key)
}

// existing tells an object that is there just as it was (ErrUnchanged) from another.
func (d *Etcd) existing(ctx context.Context, key string, value []byte) error {
	resp, err := d.get(ctx, key)
	if err != nil {
		return fmt.Errorf("reading %s: %w", key, err)
	}
	if len(resp.Kvs) == 1 && bytes.Equal(resp.Kvs[0].Value, value) {
		return fmt.Errorf("%w: %s is there just as it was", ErrUnchanged, key)
	}
	return fmt.Errorf("%w: %s exists again and stays as it is", ErrNotRestored, key)
}

// MachineIsBack reports whether a host has a Calico Node that is not the one of the object: a machine that has joined again since, onto which
// nothing old must be put.
func (d *Etcd) MachineIsBack(ctx context.Context, host string, objects []Object) (bool, error) {
	resp, err := d.get(ctx, nodeKey(host))
	if err != nil {
		return false, fmt.Errorf("reading Calico Node %s: %w", host, err)
	}
	if len(resp.Kvs) == 0 {
		return false, nil
	}
	now, err := nodeOf(nodeKey(host), resp.Kvs[0].Value)
	if err != nil {
		return true, nil //nolint:nilerr // whatever it is, it is not the one that was removed
	}
	for _, object := range objects {
		if then, err := nodeOf(object.Key, []byte(object.Value)); err == nil && then.UID == now.UID && now.UID != "" {
			return false, nil
		}
	}
	return true, nil
}

func nodeOf(key string, value []byte) (*libapiv3.Node, error) {
	name, ok := strings.CutPrefix(key, nodePrefix)
	if !ok {
		return nil, errors.New("it is not a Node")
	}
	parsed, err := model.ParseValue(model.ResourceKey{Kind: libapiv3.KindNode, Name: name}, value)
	if err != nil {
		return nil, err
	}
	node, ok := parsed.(*libapiv3.Node)
	if !ok {
		return nil, errors.New("it is not a Node")
	}
	return node, nil
}

// checkNode refuses a Node whose tunnel addresses are assigned to others by now, or whose own address another Node has: a machine that
// inherited it, whose calico-node would refuse to start then.
func (d *Etcd) checkNode(ctx context.Context, object Object, seen map[string]int64) error {
	node, err := nodeOf(object.Key, []byte(object.Value))
	if err != nil {
		return fmt.Errorf("%w: %s in the journal: %w", ErrNotRestored, object.Key, err)
	}
	for _, text := range tunnelAddresses(node) {
		address, err := netip.ParseAddr(text)
		if err != nil {
			continue // nothing that IPAM could have assigned
		}
		own := func(a Allocation) bool {
			tunnel := strings.HasSuffix(a.Attributes[model.IPAMBlockAttributeType], "TunnelAddress")
			return strings.HasSuffix(a.Handle, "-tunnel-addr-"+node.Name) || tunnel && a.Host == node.Name
		}
		if err := d.checkAddress(ctx, address, own, object.Key, seen); err != nil {
			return err
		}
	}
	return d.checkOwnAddress(ctx, node)
}

// tunnelAddresses are those that calico-node takes from IPAM (node/pkg/allocateip).
func tunnelAddresses(node *libapiv3.Node) []string {
	addresses := []string{node.Spec.IPv4VXLANTunnelAddr, node.Spec.IPv6VXLANTunnelAddr}
	if node.Spec.BGP != nil {
		addresses = append(addresses, node.Spec.BGP.IPv4IPIPTunnelAddr)
	}
	if node.Spec.Wireguard != nil {
		addresses = append(addresses, node.Spec.Wireguard.InterfaceIPv4Address, node.Spec.Wireguard.InterfaceIPv6Address)
	}
	return addresses
}

func (d *Etcd) checkOwnAddress(ctx context.Context, node *libapiv3.Node) error {
	own := ownAddresses(node)
	if len(own) == 0 {
		return nil
	}
	resp, err := d.get(ctx, nodePrefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("reading Calico Nodes: %w", err)
	}
	for _, kv := range resp.Kvs {
		other, err := nodeOf(string(kv.Key), kv.Value)
		if err != nil || other.Name == node.Name {
			continue
		}
		for _, address := range ownAddresses(other) {
			if slices.Contains(own, address) {
				return fmt.Errorf("%w: Calico Node %s has address %s of %s by now", ErrNotRestored, other.Name, address, node.Name)
			}
		}
	}
	return nil
}

func ownAddresses(node *libapiv3.Node) []netip.Addr {
	if node.Spec.BGP == nil {
		return nil
	}
	var out []netip.Addr
	for _, text := range []string{node.Spec.BGP.IPv4Address, node.Spec.BGP.IPv6Address} {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			out = append(out, prefix.Addr())
		}
	}
	return out
}

// IsIPAM reports whether an object belongs to IPAM, which is never restored.
func IsIPAM(key string) bool { return strings.HasPrefix(key, "/calico/ipam/") || isCustomIPAM(key) }

func isResource(key string) bool {
	for _, prefix := range resourcePrefixes() {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// checkEndpoint refuses an endpoint one of whose addresses is another's by now, and notes the blocks' revisions.
func (d *Etcd) checkEndpoint(ctx context.Context, object Object, seen map[string]int64) error {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(object.Key, endpointPrefix), "/")
	parsed, err := model.ParseValue(model.ResourceKey{Kind: libapiv3.KindWorkloadEndpoint, Namespace: namespace, Name: name}, []byte(object.Value))
	wep, ok := parsed.(*libapiv3.WorkloadEndpoint)
	if err != nil || !ok {
		return fmt.Errorf("%w: %s in the journal is not a workload endpoint", ErrNotRestored, object.Key)
	}
	own := func(a Allocation) bool { return ownedBy(wep, a) }
	for _, network := range wep.Spec.IPNetworks {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return fmt.Errorf("%w: %s in the journal has address %q", ErrNotRestored, object.Key, network)
		}
		if err := d.checkAddress(ctx, prefix.Addr(), own, object.Key, seen); err != nil {
			return err
		}
	}
	return nil
}

// ownedBy reports that an address is the endpoint's own: its handle ends in the endpoint's sandbox, or it says that it
// is of the endpoint's pod on the endpoint's machine. The handle of a virtual machine's address names the machine
// instead of a sandbox, and an old one nothing else than it.
func ownedBy(wep *libapiv3.WorkloadEndpoint, a Allocation) bool {
	if sandbox := wep.Spec.ContainerID; sandbox != "" && (a.Handle == sandbox || strings.HasSuffix(a.Handle, "."+sandbox)) {
		return true
	}
	namespace, pod := a.Attributes[model.IPAMBlockAttributeNamespace], a.Attributes[model.IPAMBlockAttributePod]
	return a.Host == wep.Spec.Node && pod != "" && pod == wep.Spec.Pod && namespace == wep.Namespace
}

// checkAddress refuses an address that is assigned and not the object's own, and notes the block's revision. One in
// cooldown is nobody's.
func (d *Etcd) checkAddress(
	ctx context.Context, address netip.Addr, own func(Allocation) bool, whose string, seen map[string]int64,
) error {
	cidr, found, err := d.blockOf(ctx, address)
	if err != nil || !found {
		return err
	}
	key, block, revision, err := d.readBlock(ctx, cidr)
	if err != nil {
		return err
	}
	seen[key] = revision
	if block == nil {
		return nil
	}
	translated, err := translateBlock(block)
	if err != nil {
		return err
	}
	for _, a := range translated.Allocations {
		if a.Address == address && a.ReleasedAt.IsZero() && !own(a) {
			return fmt.Errorf("%w: address %s of %s is assigned to handle %s by now", ErrNotRestored, address, whose, a.Handle)
		}
	}
	return nil
}

// blockOf finds the block that holds an address, by the keys of all blocks.
func (d *Etcd) blockOf(ctx context.Context, address netip.Addr) (netip.Prefix, bool, error) {
	resp, err := d.get(ctx, blockPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return netip.Prefix{}, false, fmt.Errorf("reading the keys of IPAM blocks: %w", err)
	}
	for _, kv := range resp.Kvs {
		if cidr := cidrOfKey(string(kv.Key)); cidr.IsValid() && cidr.Contains(address) {
			return cidr, true, nil
		}
	}
	return netip.Prefix{}, false, nil
}
