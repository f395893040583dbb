// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"net/netip"
	"testing"
)

// TestAddresses: each that a pod may have is given once before any is given again, wherever one begins, and the last one is followed by an error.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{0, 1, 2, 65533, 65534, 65535, 1<<63 + 5} {
		n := newNetwork(seed)
		var first netip.Addr
		for i := range 1<<16 - 3 {
			address, err := n.nextAddress()
			if err != nil {
				t.Fatalf("seed %d: address %d: %v", seed, i, err)
			}
			if !PodRange().Contains(address) || address == PodRange().Addr() || address == Gateway() || !PodRange().Contains(address.Next()) {
				t.Fatalf("seed %d: a pod got %v", seed, address)
			}
			if i == 0 {
				first = address
			}
		}
		if _, err := n.nextAddress(); !errors.Is(err, ErrFull) {
			t.Errorf("seed %d: one too many: %v", seed, err)
		}
		delete(n.taken, first)
		if again, err := n.nextAddress(); err != nil || again != first {
			t.Errorf("seed %d: the only free one is %v, got %v, %v", seed, first, again, err)
		}
	}
}

// TestDetachFreesTheAddress: a lab may have any number of pods, one after the other.
func TestDetachFreesTheAddress(t *testing.T) {
	n := newNetwork(7)
	for range 2 {
		if _, err := n.Attach(t.Context(), "pod"); err != nil {
			t.Fatal(err)
		}
		if err := n.Detach("pod"); err != nil {
			t.Fatal(err)
		}
	}
	if len(n.taken)+len(n.pods) != 0 {
		t.Errorf("taken: %v, pods: %v", n.taken, n.pods)
	}
}
