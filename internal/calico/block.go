// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
)

func decodeBlock(key model.BlockKey, value []byte) (*model.AllocationBlock, error) {
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
	return b, nil
}

func parseBlock(key model.BlockKey, value []byte) (Block, error) {
	b, err := decodeBlock(key, value)
	if err != nil {
		return Block{}, err
	}
	return translateBlock(b)
}

func translateBlock(b *model.AllocationBlock) (Block, error) {
	cidr, err := fromCalicoNet(b.CIDR)
	if err != nil {
		return Block{}, err
	}
	block := Block{CIDR: cidr, AffineTo: affineTo(b)}
	for ordinal, index := range b.Allocations {
		if index == nil {
			continue
		}
		address, ok := netip.AddrFromSlice(b.OrdinalToIP(ordinal).IP)
		if !ok {
			return Block{}, fmt.Errorf("position %d has no address", ordinal)
		}
		block.Allocations = append(block.Allocations, Allocation{
			Address: address.Unmap(), Handle: handleOf(b, *index), Sequence: b.GetSequenceNumberForOrdinal(ordinal),
			Host: b.Attributes[*index].AttrSecondary[model.IPAMBlockAttributeNode], Attributes: b.Attributes[*index].AttrSecondary,
		})
	}
	return block, nil
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

// emptyBlock reports whether nothing is assigned in the block but what Calico itself reserves for Windows.
func emptyBlock(b *model.AllocationBlock) bool {
	for _, index := range b.Allocations {
		if index != nil && !strings.EqualFold(handleOf(b, *index), ipam.WindowsReservedHandle) {
			return false
		}
	}
	return true
}

// releaseFromBlock takes the assignments out of the block and returns how many each handle lost. If any of them is no longer the
// assignment that was seen the block is left as it is, and the error says which.
func releaseFromBlock(b *model.AllocationBlock, assignments []Assignment) (map[string]int, error) {
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
		if handle := handleOf(b, *b.Allocations[ordinal]); handle != a.Handle {
			return nil, fmt.Errorf("address %s is assigned to handle %s by now", a.Address, handle)
		}
		if sequence := b.GetSequenceNumberForOrdinal(ordinal); sequence != a.Sequence {
			return nil, fmt.Errorf("address %s was assigned again (sequence number %d, not %d)", a.Address, sequence, a.Sequence)
		}
		if slices.Contains(ordinals, ordinal) {
			return nil, fmt.Errorf("address %s is named twice", a.Address)
		}
		ordinals = append(ordinals, ordinal)
		lost[a.Handle]++
	}
	for _, ordinal := range ordinals {
		b.Allocations[ordinal] = nil
		b.Unallocated = append(b.Unallocated, ordinal)
		b.ClearSequenceNumberForOrdinal(ordinal)
	}
	dropUnusedAttributes(b)
	// Calico's IPAM counts every write of a block, and later assignments take this number (libcalico-go, lib/ipam: updateBlock).
	b.SequenceNumber++
	return lost, nil
}

// dropUnusedAttributes removes attributes to which no allocation refers and renumbers the others, as Calico's IPAM does.
func dropUnusedAttributes(b *model.AllocationBlock) {
	used := make([]bool, len(b.Attributes))
	for _, index := range b.Allocations {
		if index != nil {
			used[*index] = true
		}
	}
	renumbered := make([]int, len(b.Attributes))
	kept := make([]model.AllocationAttribute, 0, len(b.Attributes))
	for i, attribute := range b.Attributes {
		renumbered[i] = len(kept)
		if used[i] {
			kept = append(kept, attribute)
		}
	}
	for ordinal, index := range b.Allocations {
		if index != nil {
			b.Allocations[ordinal] = &renumbered[*index]
		}
	}
	b.Attributes = kept
}
