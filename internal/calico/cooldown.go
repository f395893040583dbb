// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// cooldown is how long a released address must not be assigned again, seen at one time. Since Calico 3.33 a release only stamps the address, and a later
// write of its block frees it once the stamp is older than IPAMConfig's ipCooldownSeconds (design/ipam/ipam-core-library.md, "IP release and cooldown").
// With 0, which is the default and all that older versions know, an address is free at once.
type cooldown struct {
	now    time.Time
	period time.Duration
}

// over reports whether an address that was released at that time may be free. Calico compares the same way (lib/ipam: garbageCollect).
func (c cooldown) over(releasedAt time.Time) bool { return releasedAt.Before(c.now.Add(-c.period)) }

// ipamConfigKey is where IPAMConfig is stored in etcd (libcalico-go, lib/backend/model ipam_config.go), and ipamConfigName its name in Kubernetes.
const (
	ipamConfigKey  = "/calico/ipam/v2/config"
	ipamConfigName = "default"
)

// parseCooldown reads the period from an IPAMConfig as it is stored; both datastores name the field alike. A negative number means none, as for Calico.
func parseCooldown(value []byte) (time.Duration, error) {
	var config struct {
		Seconds int64 `json:"ipCooldownSeconds"`
	}
	if err := json.Unmarshal(value, &config); err != nil {
		return 0, fmt.Errorf("parsing Calico's IPAMConfig: %w", err)
	}
	return time.Duration(max(0, config.Seconds)) * time.Second, nil
}

// cooldownOf is the cooldown by what a read of ipamConfigKey has found.
func (d *Etcd) cooldownOf(found []*mvccpb.KeyValue) (cooldown, error) {
	c := cooldown{now: d.clock.Now()}
	for _, kv := range found {
		var err error
		if c.period, err = parseCooldown(kv.Value); err != nil {
			return c, err
		}
	}
	return c, nil
}

// configMemory keeps the period for a while, as Calico's own controller does between its periodic syncs (kube-controllers, node: "Cold IP garbage
// collection"): the kubernetes datastore has no read of several objects at once.
type configMemory struct {
	mu     sync.Mutex // guards what follows
	period time.Duration
	until  time.Time
}

// configFor is how long the period is kept.
const configFor = time.Minute

// cooldown reads the period from the API server, at most once a minute.
func (d *KubernetesAPI) cooldown(ctx context.Context) (cooldown, error) {
	d.config.mu.Lock()
	defer d.config.mu.Unlock()
	now := d.clock.Now()
	if now.Before(d.config.until) {
		return cooldown{now: now, period: d.config.period}, nil
	}
	object, err := d.read(ctx, kindIPAMConfig, ipamConfigName)
	if err != nil {
		return cooldown{}, fmt.Errorf("reading Calico's IPAMConfig: %w", err)
	}
	var period time.Duration
	if object != nil {
		if period, err = parseCooldown(object.spec); err != nil {
			return cooldown{}, err
		}
	}
	d.config.period, d.config.until = period, now.Add(configFor)
	return cooldown{now: now, period: period}, nil
}

// laterAttribute is what Calico since 3.32 writes of an allocation and the library of this program does not know.
type laterAttribute struct {
	ReleasedAt *time.Time        `json:"releasedAt"`
	Alternate  map[string]string `json:"alternateOwnerAttrs"`
}

// Names of attributes that Calico's CNI plugin writes for pods of KubeVirt since 3.32 (lib/backend/model block.go).
const (
	attributeVMIName = "vmi-name"
	attributeVMIUID  = "vmi-uid"
	attributeVMUID   = "vm-uid"
	attributeVMIMUID = "vmim-uid"
)

// releasedAt is when the allocation of an attribute was released, the zero time if it was not.
func (b *storedBlock) releasedAt(index int) time.Time {
	if at := b.later[index].ReleasedAt; at != nil {
		return *at
	}
	return time.Time{}
}

// virtualMachine is the virtual machine that an allocation belongs to, as "namespace/name".
func (b *storedBlock) virtualMachine(index int) string {
	owner := b.Attributes[index].AttrSecondary
	if owner[attributeVMIName] == "" {
		return ""
	}
	return owner[model.IPAMBlockAttributeNamespace] + "/" + owner[attributeVMIName]
}

// alternateHost is the host that the allocation of an attribute moves to or came from, "" for none.
func (b *storedBlock) alternateHost(index int) string {
	if len(b.later[index].Alternate) == 0 {
		return ""
	}
	return cmp.Or(b.later[index].Alternate[model.IPAMBlockAttributeNode], "an unnamed host")
}

// outlivesHost says why the allocation of an attribute may be in use when its host and its pod are gone, "" if it cannot.
func (b *storedBlock) outlivesHost(index int) string {
	if unknown := unknownField(b.attributes[index]); unknown != "" {
		return fmt.Sprintf("has attribute %q, which this program does not know", unknown)
	}
	if other := b.alternateHost(index); other != "" {
		return "is also that of " + other
	}
	if machine := b.virtualMachine(index); machine != "" {
		return "belongs to virtual machine " + machine
	}
	return ""
}

// markReleased puts addresses into cooldown: they keep their places in the block, under one attribute that names no owner.
func (b *storedBlock) markReleased(ordinals []int, at time.Time) error {
	at = at.UTC().Truncate(time.Second) // as metav1.Time is stored
	later := laterAttribute{ReleasedAt: &at}
	stored, err := json.Marshal(map[string]any{"releasedAt": at})
	if err != nil {
		return err
	}
	index := len(b.Attributes)
	b.Attributes, b.attributes, b.later = append(b.Attributes, model.AllocationAttribute{}), append(b.attributes, stored), append(b.later, later)
	for _, ordinal := range ordinals {
		b.Allocations[ordinal] = &index
		b.SetSequenceNumberForOrdinal(ordinal)
	}
	return nil
}

// free makes an address assignable, after all others that are: Calico assigns the one that has been free the longest.
func (b *storedBlock) free(ordinal int) {
	b.Allocations[ordinal] = nil
	b.Unallocated = append(b.Unallocated, ordinal)
	b.ClearSequenceNumberForOrdinal(ordinal)
}

// freeCooled frees the addresses whose cooldown is over, as every write of a block does in Calico.
func (b *storedBlock) freeCooled(c cooldown) {
	for ordinal, index := range b.Allocations {
		if index == nil {
			continue
		}
		if at := b.releasedAt(*index); !at.IsZero() && c.over(at) {
			b.free(ordinal)
		}
	}
}
