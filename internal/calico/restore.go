// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrNotRestored is the kind of error that says why an object is not re-created; nothing was written then.
var ErrNotRestored = errors.New("not restored")

// Restore re-creates an object as it was. It refuses (ErrNotRestored) what exists again, what belongs to IPAM (addresses, once released, may
// be anybody's), and an endpoint whose address has since been assigned to another. The check and the write are one transaction.
// Annotations named in without are left out.
func (d *Etcd) Restore(ctx context.Context, object Object, without ...string) error {
	value := []byte(object.Value)
	seen := map[string]int64{object.Key: 0}
	switch {
	case strings.HasPrefix(object.Key, nodePrefix), isResource(object.Key):
	case strings.HasPrefix(object.Key, endpointPrefix):
		if err := d.checkAddresses(ctx, object, seen); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: %s is IPAM's, which assigns addresses anew", ErrNotRestored, object.Key)
	}
	for _, annotation := range without {
		stripped, err := setAnnotation(value, annotation, "")
		if err != nil {
			return fmt.Errorf("restoring %s: %w", object.Key, err)
		}
		value = stripped
	}
	_, err := d.commit(ctx, nil, seen, clientv3.OpPut(object.Key, string(value)))
	var conflict *ConflictError
	if errors.As(err, &conflict) && conflict.Key == object.Key {
		return fmt.Errorf("%w: %s exists again and stays as it is", ErrNotRestored, object.Key)
	}
	if err != nil {
		return fmt.Errorf("restoring %s: %w", object.Key, err)
	}
	return nil
}

// IsIPAM says whether an object belongs to IPAM, which is never restored.
func IsIPAM(key string) bool { return strings.HasPrefix(key, "/calico/ipam/") }

func isResource(key string) bool {
	for _, prefix := range resourcePrefixes() {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// checkAddresses refuses an endpoint one of whose addresses is assigned under another handle by now, and notes the blocks' revisions.
func (d *Etcd) checkAddresses(ctx context.Context, object Object, seen map[string]int64) error {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(object.Key, endpointPrefix), "/")
	parsed, err := model.ParseValue(model.ResourceKey{Kind: libapiv3.KindWorkloadEndpoint, Namespace: namespace, Name: name}, []byte(object.Value))
	wep, ok := parsed.(*libapiv3.WorkloadEndpoint)
	if err != nil || !ok {
		return fmt.Errorf("%w: %s in the journal is no workload endpoint", ErrNotRestored, object.Key)
	}
	for _, network := range wep.Spec.IPNetworks {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return fmt.Errorf("%w: %s in the journal has address %q", ErrNotRestored, object.Key, network)
		}
		if err := d.checkAddress(ctx, prefix.Addr(), wep.Spec.ContainerID, object.Key, seen); err != nil {
			return err
		}
	}
	return nil
}

func (d *Etcd) checkAddress(ctx context.Context, address netip.Addr, containerID, endpoint string, seen map[string]int64) error {
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
		if a.Address == address && !strings.HasSuffix(a.Handle, "."+containerID) {
			return fmt.Errorf("%w: address %s of %s is assigned to handle %s by now", ErrNotRestored, address, endpoint, a.Handle)
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
