// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// storedBlock is a block together with the JSON object in which it is stored. A newer Calico writes fields that this program does not know: a write changes
// what it means to change, and keeps every other field of the block and of its attributes.
type storedBlock struct {
	*model.AllocationBlock
	object []byte
	// attributes are Attributes as stored, one for one, and later what they say that Attributes does not.
	attributes []json.RawMessage
	later      []laterAttribute
}

func decodeBlock(key model.BlockKey, value []byte) (*storedBlock, error) {
	parsed, err := model.ParseValue(key, value)
	if err != nil {
		return nil, err
	}
	b, ok := parsed.(*model.AllocationBlock)
	if !ok {
		return nil, errors.New("the value is not an IPAM block")
	}
	if b.CIDR.String() != key.CIDR.String() {
		return nil, fmt.Errorf("the block says it is %s", b.CIDR)
	}
	for ordinal, index := range b.Allocations {
		if ordinal >= b.NumAddresses() || index != nil && (*index < 0 || *index >= len(b.Attributes)) {
			return nil, fmt.Errorf("the allocation at position %d refers to nothing", ordinal)
		}
	}
	var raw struct {
		Attributes []json.RawMessage `json:"attributes"`
	}
	if err := json.Unmarshal(value, &raw); err != nil {
		return nil, err
	}
	later := make([]laterAttribute, len(raw.Attributes))
	for i, attribute := range raw.Attributes {
		if isPlain(attribute) {
			continue
		}
		if err := json.Unmarshal(attribute, &later[i]); err != nil {
			return nil, fmt.Errorf("parsing attribute %d: %w", i, err)
		}
	}
	if len(later) != len(b.Attributes) {
		return nil, errors.New("the block has two lists of attributes")
	}
	return &storedBlock{AllocationBlock: b, object: value, attributes: raw.Attributes, later: later}, nil
}

// encode returns the JSON object with what assigning and releasing change.
func (b *storedBlock) encode() ([]byte, error) {
	return withFields(b.object, map[string]any{
		"allocations": b.Allocations, "unallocated": b.Unallocated, "attributes": b.attributes, "sequenceNumber": b.SequenceNumber,
		"sequenceNumberForAllocation": b.SequenceNumberForAllocation,
	})
}

// withFields is a JSON object with other values in some of its fields.
func withFields(raw []byte, fields map[string]any) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if object == nil {
		return nil, errors.New("it is not an object")
	}
	for field, value := range fields {
		if err := put(object, field, value); err != nil {
			return nil, err
		}
	}
	return json.Marshal(object)
}

// unknownField is the name of a field of an attribute that says something and that this program does not know, "" for none. Whatever wrote it may mean that the
// address is another's as well.
func unknownField(attribute json.RawMessage) string {
	var fields, owner map[string]json.RawMessage
	if json.Unmarshal(attribute, &fields) != nil {
		return ""
	}
	if name := fieldBeside(fields, "handle_id", "secondary", "releasedAt", "alternateOwnerAttrs"); name != "" {
		return name
	}
	if json.Unmarshal(fields["secondary"], &owner) != nil {
		return ""
	}
	// What Calico up to v3.33 writes for pods (cni-plugin, pkg/ipamplugin) and for tunnels of every kind (node/pkg/allocateip).
	known := []string{
		model.IPAMBlockAttributePod, model.IPAMBlockAttributeNamespace, model.IPAMBlockAttributeNode, model.IPAMBlockAttributeTimestamp,
		model.IPAMBlockAttributeType,
	}
	if says(owner[attributeVMIName]) {
		known = append(known, attributeVMIName, attributeVMIUID, attributeVMUID, attributeVMIMUID)
	}
	return fieldBeside(owner, known...)
}

// fieldBeside is the name of the first field that says something and is none of these, "" for none.
func fieldBeside(fields map[string]json.RawMessage, known ...string) string {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, name) && says(fields[name]) {
			return name
		}
	}
	return ""
}

// says reports whether a field is there with another value than its kind's zero.
func says(field json.RawMessage) bool {
	return !slices.Contains([]string{"", "null", "{}", "[]", `""`, "false", "0"}, string(field))
}

func parseBlock(key model.BlockKey, value []byte) (Block, error) {
	b, err := decodeBlock(key, value)
	if err != nil {
		return Block{}, err
	}
	return translateBlock(b)
}

func translateBlock(b *storedBlock) (Block, error) {
	cidr, err := fromCalicoNet(b.CIDR)
	if err != nil {
		return Block{}, err
	}
	block := Block{CIDR: cidr, AffineTo: affineTo(b.AllocationBlock)}
	for ordinal, index := range b.Allocations {
		if index == nil {
			continue
		}
		address, ok := netip.AddrFromSlice(b.OrdinalToIP(ordinal).IP)
		if !ok {
			return Block{}, fmt.Errorf("position %d has no address", ordinal)
		}
		unknown := ""
		if !isPlain(b.attributes[*index]) {
			unknown = unknownField(b.attributes[*index])
		}
		block.Allocations = append(block.Allocations, Allocation{Attributes: b.Attributes[*index].AttrSecondary, Allocation: nodesync.Allocation{
			Address: address.Unmap(), Handle: handleOf(b.AllocationBlock, *index), Sequence: b.GetSequenceNumberForOrdinal(ordinal),
			Host:    b.Attributes[*index].AttrSecondary[model.IPAMBlockAttributeNode],
			Unknown: unknown, ReleasedAt: b.releasedAt(*index),
			VirtualMachine: b.virtualMachine(*index), AlternateHost: b.alternateHost(*index),
			AssignedAt: assignedAt(b.Attributes[*index].AttrSecondary),
		}})
	}
	return block, nil
}

// assignedAt is the time that Calico's CNI plugin writes with an assignment, in the form of Go's Time.String (cni-plugin/pkg/ipamplugin).
func assignedAt(attributes map[string]string) time.Time {
	at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", attributes[model.IPAMBlockAttributeTimestamp])
	if err != nil {
		return time.Time{}
	}
	return at
}

func affineTo(b *model.AllocationBlock) string {
	switch {
	case b.AffinityType() == model.IPAMAffinityTypeHost:
		return b.Host()
	case b.Affinity != nil && *b.Affinity != "":
		return *b.Affinity
	case b.HostAffinity != nil:
		return *b.HostAffinity
	}
	return ""
}

// isVirtual tells whether an affinity is virtual, such as that of load balancers' addresses, which belong to no host.
func isVirtual(affinity string) bool {
	return strings.HasPrefix(affinity, model.IPAMAffinityTypeVirtual+":")
}

// handleOf is the handle of an attribute, without what an old Windows CNI plugin left behind its end
// (libcalico-go, lib/ipam: sanitizeHandle).
func handleOf(b *model.AllocationBlock, index int) string {
	handle := b.Attributes[index].AttrPrimary
	if handle == nil {
		return ""
	}
	clean, _, _ := strings.Cut(*handle, "\r")
	return clean
}

// usage says what the block is in use for, "" if it may go: nothing is assigned but what Calico itself reserves for Windows, and no address is in cooldown.
func (b *storedBlock) usage(c cooldown) string {
	for _, index := range b.Allocations {
		if index == nil || strings.EqualFold(handleOf(b.AllocationBlock, *index), ipam.WindowsReservedHandle) {
			continue
		}
		at := b.releasedAt(*index)
		switch {
		case at.IsZero():
			return "it is in use"
		case !c.over(at):
			return "an address of it is in cooldown until " + at.Add(c.period).UTC().Format(time.RFC3339)
		}
	}
	return ""
}

// releaseFromBlock takes a host's assignments out of the block and returns how many each handle lost. If any of them is no longer the
// assignment that was seen the block is left as it is, and the error says which. Handle and sequence number do not say all: with a newer Calico
// the address of a virtual machine that moves keeps both, and names another host. Where Calico is configured to wait before an address is assigned again,
// the addresses are put into cooldown, as a release by Calico does; and what has cooled down goes with this write, as with every write of Calico's.
func releaseFromBlock(b *storedBlock, host string, assignments []Assignment, c cooldown) (map[string]int, error) {
	ordinals := make([]int, 0, len(assignments))
	lost := map[string]int{}
	for _, a := range assignments {
		ordinal, err := b.IPToOrdinal(cnet.IP{IP: a.Address.AsSlice()})
		if err != nil {
			return nil, fmt.Errorf("address %s is not of block %s", a.Address, b.CIDR)
		}
		if ordinal >= len(b.Allocations) || b.Allocations[ordinal] == nil {
			return nil, fmt.Errorf("address %s is no longer assigned", a.Address)
		}
		index := *b.Allocations[ordinal]
		if at := b.releasedAt(index); !at.IsZero() {
			return nil, fmt.Errorf("address %s was released at %s", a.Address, at.UTC().Format(time.RFC3339))
		}
		if handle := handleOf(b.AllocationBlock, index); handle != a.Handle {
			return nil, fmt.Errorf("address %s is assigned to handle %s by now", a.Address, handle)
		}
		if sequence := b.GetSequenceNumberForOrdinal(ordinal); sequence != a.Sequence {
			return nil, fmt.Errorf("address %s was assigned again (sequence number %d, not %d)", a.Address, sequence, a.Sequence)
		}
		if of := b.Attributes[index].AttrSecondary[model.IPAMBlockAttributeNode]; of != "" && of != host {
			return nil, fmt.Errorf("address %s is of host %s by now", a.Address, of)
		}
		if why := b.outlivesHost(index); why != "" {
			return nil, fmt.Errorf("address %s %s by now", a.Address, why)
		}
		if slices.Contains(ordinals, ordinal) {
			return nil, fmt.Errorf("address %s is named twice", a.Address)
		}
		ordinals = append(ordinals, ordinal)
		lost[a.Handle]++
	}
	if c.period > 0 {
		if err := b.markReleased(ordinals, c.now); err != nil {
			return nil, err
		}
	} else {
		for _, ordinal := range ordinals {
			b.free(ordinal)
		}
	}
	b.freeCooled(c)
	dropUnusedAttributes(b)
	// Calico's IPAM counts every write of a block, and later assignments take this number (libcalico-go, lib/ipam: updateBlock).
	b.SequenceNumber++
	return lost, nil
}

// dropUnusedAttributes removes attributes to which no allocation refers and renumbers the others, as Calico's IPAM does.
func dropUnusedAttributes(b *storedBlock) {
	used := make([]bool, len(b.Attributes))
	for _, index := range b.Allocations {
		if index != nil {
			used[*index] = true
		}
	}
	renumbered := make([]int, len(b.Attributes))
	kept, stored, later := b.Attributes[:0:0], b.attributes[:0:0], b.later[:0:0]
	for i, attribute := range b.Attributes {
		renumbered[i] = len(kept)
		if used[i] {
			kept, stored, later = append(kept, attribute), append(stored, b.attributes[i]), append(later, b.later[i])
		}
	}
	for ordinal, index := range b.Allocations {
		if index != nil {
			b.Allocations[ordinal] = &renumbered[*index]
		}
	}
	b.Attributes, b.attributes, b.later = kept, stored, later
}
