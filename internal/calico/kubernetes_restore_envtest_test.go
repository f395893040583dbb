// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// An address whose restore is interrupted between handle and block, or which another write beats, is counted once when it is restored in the end. Where
// its block is gone the block is made again, with the claim of the machine, and Calico's own IPAM goes on with it.
func TestRestoringAnAddressInTheKubernetesDatastore(t *testing.T) {
	w := newKubeWorld(t)
	const host = "kdd-reassigned"
	agent := w.join(t, host, 77, 1)
	defer func() { w.leave(t, host); w.dropPods(t, host) }()
	held := w.read(t, host).host.Addresses
	address := held[slices.IndexFunc(held, func(a HeldAddress) bool { return a.Attributes["pod"] != "" })]
	before := w.specs(t)
	release := func() {
		t.Helper()
		assignment := Assignment{Address: address.Address, Handle: address.Handle, Sequence: w.sequenceOf(t, host, address)}
		must.Do(t, w.store.RemoveLeftovers(t.Context(), Guard{Host: host}, []Leftover{{Host: host, Block: address.Block, Reservation: assignment}}))
	}
	count := func() any {
		t.Helper()
		return w.get(t, kindHandle, strings.ToLower(address.Handle)).Object["spec"].(map[string]any)["block"].(map[string]any)[address.Block.String()]
	}
	for name, disturb := range map[string]func(store *traffic){
		"it dies before the block": func(c *traffic) {
			c.before = func(r *http.Request) error {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/ipamblocks/") {
					return errCrash
				}
				return nil
			}
		},
		"another write beats it": func(c *traffic) {
			c.once(http.MethodPut, "/ipamblocks/", func() {
				block := w.get(t, kindBlock, resourceName(address.Block))
				block.SetAnnotations(map[string]string{"touched": "by another"})
				if _, err := w.of(kindBlock).Update(t.Context(), block, metav1.UpdateOptions{}); err != nil {
					t.Error(err)
				}
			})
		},
	} {
		release()
		store, traffic := w.open(t)
		disturb(traffic)
		if err := store.RestoreAddress(t.Context(), host, address, false); !errors.Is(err, errCrash) && !errors.Is(err, ErrConflict) {
			t.Fatalf("%s: got %v, want that it fails", name, err)
		}
		if err := w.store.RestoreAddress(t.Context(), host, address, false); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := count(); got != int64(1) {
			t.Errorf("%s: the handle counts %v addresses, want 1", name, got)
		}
	}

	release()
	s := w.read(t, host)
	for _, b := range s.host.Blocks { // as far as nothing else is in it
		for _, a := range s.assignments(b) {
			must.Do(t, w.store.RemoveLeftovers(t.Context(), Guard{Host: host}, []Leftover{{Host: host, Block: b.CIDR, Reservation: a}}))
		}
	}
	for kind, name := range map[string]string{kindBlock: resourceName(address.Block), kindAffinity: affinityName(host, address.Block)} {
		must.Do(t, w.of(kind).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	if err := w.store.RestoreAddress(t.Context(), host, address, true); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	for _, a := range held {
		must.Do(t, w.store.RestoreAddress(t.Context(), host, a, false))
	}
	for _, a := range held {
		if err := w.store.RestoreAddress(t.Context(), host, a, false); !errors.Is(err, ErrUnchanged) {
			t.Errorf("restoring %s again: got %v, want that it is assigned just as it was", a.Address, err)
		}
	}
	after := w.specs(t)
	for _, specs := range []map[string]any{before, after} {
		for key, spec := range specs {
			if strings.HasPrefix(key, kindBlock+" ") { // what counts writes, and the order of the free
				for _, field := range []string{"sequenceNumber", "sequenceNumberForAllocation", "unallocated", "attributes", "allocations"} {
					delete(spec.(map[string]any), field)
				}
			}
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the datastore after its block is made again (-want +got):\n%s", diff)
	}
	w.addPod(t, agent, 1)
}

// Where another makes the block first, or the API server takes no block, nothing is left of the attempt: no handle that counts what is not there,
// and no claim of the host, unless the host itself has the block by now.
func TestARestoreThatIsBeatenToTheBlockLeavesNothing(t *testing.T) {
	w := newKubeWorld(t)
	const host, other = "kdd-beaten", "kdd-beater"
	address := HeldAddress{
		Block: netip.MustParsePrefix("10.244.250.0/26"), Address: netip.MustParseAddr("10.244.250.7"), Handle: "k8s-pod-network.kdd-beaten",
		Attributes: map[string]string{"node": host, "pod": "p", "namespace": "default"},
	}
	name := resourceName(address.Block)
	blockOf := func(owner string) {
		block, err := emptyBlockFor(owner, address.Block)
		if err != nil {
			t.Error(err)
			return
		}
		spec := map[string]any{}
		if err := json.Unmarshal(block.object, &spec); err != nil {
			t.Error(err)
		}
		spec["strictAffinity"], spec["attributes"] = false, []any{}
		w.create(t, kindBlock, map[string]any{"metadata": map[string]any{"name": name}, "spec": spec})
	}
	for _, test := range []struct {
		name    string
		disturb func(c *traffic)
		claimed bool
		refused func(error) bool
	}{
		{"another host's block", func(c *traffic) { c.once(http.MethodPost, "/ipamblocks", func() { blockOf(other) }) }, false, isConflict},
		{"the host's own block", func(c *traffic) { c.once(http.MethodPost, "/ipamblocks", func() { blockOf(host) }) }, true, isConflict},
		{"no right to make blocks", func(c *traffic) {
			c.answer = func(r *http.Request) *http.Response {
				if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/ipamblocks") {
					response := page404(r)
					response.StatusCode, response.Status = http.StatusForbidden, "403 Forbidden"
					return response
				}
				return nil
			}
		}, false, apierrors.IsForbidden},
	} {
		store, traffic := w.open(t)
		test.disturb(traffic)
		before := w.specs(t)
		if err := store.RestoreAddress(t.Context(), host, address, false); !test.refused(err) {
			t.Fatalf("%s: got %v, want that it is refused", test.name, err)
		}
		after := w.specs(t)
		if claim := kindAffinity + " " + affinityName(host, address.Block); (after[claim] != nil) != test.claimed {
			t.Errorf("%s: the host's claim is %v, want that there is one: %v", test.name, after[claim], test.claimed)
		} else {
			delete(after, claim)
		}
		delete(after, kindBlock+" "+name)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s: the attempt leaves something (-want +got):\n%s", test.name, diff)
		}
		w.drop(t, kindBlock, name)
		w.drop(t, kindAffinity, affinityName(host, address.Block))
		w.drop(t, kindHandle, address.Handle)
	}
}

func isConflict(err error) bool { return errors.Is(err, ErrConflict) }

// sequenceOf is the sequence number of an assigned address.
func (w *kubeWorld) sequenceOf(t *testing.T, host string, address HeldAddress) uint64 {
	t.Helper()
	for _, a := range w.read(t, host).host.Addresses {
		if a.Address == address.Address {
			return a.Sequence
		}
	}
	t.Fatalf("address %s is not assigned", address.Address)
	return 0
}
