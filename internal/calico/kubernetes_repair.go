// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
)

func customNames() repairNames {
	key := func(kind, name string) string { return objectPath + plural(kind) + "/" + name }
	return repairNames{
		block:  func(cidr netip.Prefix) (string, error) { return key(kindBlock, resourceName(cidr)), nil },
		handle: func(id string) (string, error) { return key(kindHandle, strings.ToLower(id)), nil },
		affinity: func(host string, cidr netip.Prefix) (string, error) {
			return key(kindAffinity, affinityName(host, cidr)), nil
		},
		node: func(host string) string { return "/api/v1/nodes/" + host },
		newHandle: func(id string) map[string]any {
			return map[string]any{"handleID": id, "deleted": false}
		},
		newAffinity: func(host string, cidr netip.Prefix) map[string]any {
			return map[string]any{"node": host, "type": model.IPAMAffinityTypeHost, "cidr": cidr.String(), "deleted": "false"}
		},
	}
}

// PlanRepair reads what a disagreement is about, and returns the write that ends it, as that of etcd does. The values
// of the change are specs.
func (d *KubernetesAPI) PlanRepair(ctx context.Context, x ipamcheck.Disagreement) (Repair, error) {
	keys, err := customNames().of(x)
	if err != nil {
		return Repair{}, err
	}
	r := newRepairReading(keys)
	for _, key := range keys {
		if err := d.readInto(ctx, r, key); err != nil {
			return Repair{}, fmt.Errorf("reading what %s is about: %w", x.Kind, err)
		}
	}
	change, err := r.decide(x, customNames())
	return Repair{Change: change, seen: r.seen}, err
}

// readInto reads one object for a repair. Of a Node, only whether it exists matters.
func (d *KubernetesAPI) readInto(ctx context.Context, r *repairReading, key string) error {
	if host, ok := strings.CutPrefix(key, customNames().node("")); ok {
		delete(r.seen, key) // a kubelet writes it all the time
		uid, err := d.MachineUID(ctx, host)
		if err == nil && uid != "" {
			r.reading.data.Nodes = append(r.reading.data.Nodes, ipamcheck.Node{Name: host})
		}
		return err
	}
	object, err := d.readKey(ctx, key)
	if err != nil || object == nil {
		return err
	}
	if r.seen[key], err = object.revision(); err != nil {
		return err
	}
	r.values[key] = string(object.spec)
	switch object.kind {
	case kindAffinity:
		return r.reading.addCustomAffinity(object)
	case kindHandle:
		return r.reading.addCustomHandle(object)
	}
	stored, err := decodeCustomBlock(object)
	if err != nil {
		return err
	}
	r.blocks[stored.CIDR.String()] = stored
	return r.reading.addCustomBlock(object)
}

// readKey returns the block, handle or affinity of a key of a repair, nil if there is none.
func (d *KubernetesAPI) readKey(ctx context.Context, key string) (*customResource, error) {
	kind, name, err := ipamKind(key)
	if err != nil {
		return nil, err
	}
	return d.read(ctx, kind, name)
}

// ipamKind returns kind and name of a key.
func ipamKind(key string) (kind, name string, err error) {
	path, ours := strings.CutPrefix(key, objectPath)
	collection, name, named := strings.Cut(path, "/")
	for _, kind := range []string{kindBlock, kindHandle, kindAffinity} {
		if ours && named && collection == plural(kind) {
			return kind, name, nil
		}
	}
	return "", "", fmt.Errorf("%q is not the key of a block, a handle or an affinity in the kubernetes datastore", key)
}

// ApplyRepair writes a repair, if all that it depends on is as it was read. There is no transaction over several
// objects here: the others are read again right before the write, which itself depends on its object alone.
func (d *KubernetesAPI) ApplyRepair(ctx context.Context, r Repair) error {
	if err := d.checkReady(ctx); err != nil {
		return err
	}
	var object *customResource
	for _, key := range slices.Sorted(maps.Keys(r.seen)) {
		found, err := d.readKey(ctx, key)
		if err == nil {
			err = expectRevision(found, key, r.seen[key])
		}
		if err != nil {
			return fmt.Errorf("repairing %s: %w", r.Change.Key, err)
		}
		if key == r.Change.Key {
			object = found
		}
	}
	if err := d.writeSpec(ctx, r.Change.Key, object, r.Change.After); err != nil {
		return fmt.Errorf("repairing %s: %w", r.Change.Key, err)
	}
	return nil
}

// writeSpec gives an object another spec, creates it if it is nil, and deletes it if the spec is empty.
func (d *KubernetesAPI) writeSpec(ctx context.Context, key string, object *customResource, spec string) error {
	kind, name, err := ipamKind(key)
	switch {
	case err != nil:
		return err
	case object == nil:
		return d.create(ctx, kind, name, json.RawMessage(spec))
	case spec == "":
		return d.remove(ctx, object)
	}
	raw, err := withFields(object.raw, map[string]any{"spec": json.RawMessage(spec)})
	if err != nil {
		return err
	}
	_, err = d.update(ctx, object, raw)
	return err
}

// Revert undoes a change, if its object has the spec that the change left; otherwise it refuses (ErrNotRestored). An
// object as before is ErrUnchanged.
func (d *KubernetesAPI) Revert(ctx context.Context, c Change, dryRun bool) error {
	if _, _, err := ipamKind(c.Key); err != nil || c.Before == c.After {
		return errors.Join(fmt.Errorf("%w: %q is not a key that a repair has changed; check DATASTORE_TYPE", ErrNotRestored, c.Key), err)
	}
	object, err := d.readKey(ctx, c.Key)
	if err != nil {
		return fmt.Errorf("reading %s: %w", c.Key, err)
	}
	now := ""
	if object != nil {
		now = string(object.spec)
	}
	switch {
	case sameJSON(now, c.Before):
		return fmt.Errorf("%w: %s is there just as it was before the repair", ErrUnchanged, c.Key)
	case !sameJSON(now, c.After):
		return fmt.Errorf("%w: %s was written after the repair and stays as it is", ErrNotRestored, c.Key)
	case dryRun:
		return nil
	}
	if err := d.checkReady(ctx); err != nil {
		return err
	}
	if err := d.writeSpec(ctx, c.Key, object, c.Before); err != nil {
		return fmt.Errorf("restoring %s: %w", c.Key, err)
	}
	return nil
}

// sameJSON reports whether two texts are the same JSON value, or are both empty.
func sameJSON(a, b string) bool {
	var left, right any
	if a == "" || b == "" {
		return a == b
	}
	return json.Unmarshal([]byte(a), &left) == nil && json.Unmarshal([]byte(b), &right) == nil && reflect.DeepEqual(left, right)
}
