// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// An address that is the endpoint's own keeps nothing from being put back, whatever its handle is called; nor does one
// in cooldown, which is nobody's. The same address is refused if it names another pod or another machine, and so is a
// Node whose own address another machine has by now.
func TestAnEndpointIsPutBackOverItsOwnAddress(t *testing.T) {
	w := newWorld(t)
	machine(t, w.calico, "n2", 2, 1)
	machine(t, w.calico, "n1", 1, 1)
	var endpoint, node Object
	for _, object := range w.read(t, "n1").host.Objects {
		if strings.Contains(object.Key, "/workloadendpoints/") {
			endpoint = object
		}
		if strings.Contains(object.Key, "/nodes/") {
			node = object
		}
	}
	w.remove(t, "n1")
	between := func(text, begin, end string) string {
		_, after, _ := strings.Cut(text, begin)
		found, _, _ := strings.Cut(after, end)
		return found
	}
	address, sandbox := between(endpoint.Value, `"ipNetworks":["`, "/"), between(endpoint.Value, `"containerID":"`, `"`)
	tunnel, pod := between(node.Value, `"ipv4IPIPTunnelAddr":"`, `"`), between(endpoint.Value, `"pod":"`, `"`)
	without := endpoint
	without.Value = strings.Replace(endpoint.Value, `"containerID":"`+sandbox+`",`, "", 1)
	of := func(node, pod string) map[string]string {
		return map[string]string{"node": node, "namespace": "default", "pod": pod}
	}
	for name, test := range map[string]struct {
		object          Object
		address, handle string
		attributes      map[string]string
		refused, cooled bool
	}{
		"its sandbox":                  {object: endpoint, address: address, handle: "k8s-pod-network." + sandbox, attributes: of("n1", pod)},
		"its sandbox, as once":         {object: endpoint, address: address, handle: sandbox},
		"its virtual machine":          {object: endpoint, address: address, handle: "k8s-pod-network.vmi.default.v", attributes: of("n1", pod)},
		"it names no sandbox":          {object: without, address: address, handle: "k8s-pod-network." + sandbox, attributes: of("n1", pod)},
		"in cooldown":                  {object: endpoint, address: address, handle: "another", cooled: true},
		"another pod's":                {object: endpoint, address: address, handle: "another", attributes: of("n1", pod+"x"), refused: true},
		"of the pod elsewhere":         {object: endpoint, address: address, handle: "another", attributes: of("n2", pod), refused: true},
		"of nobody known":              {object: endpoint, address: address, handle: "another", refused: true},
		"its tunnel":                   {object: node, address: tunnel, handle: "ipip-tunnel-addr-n1"},
		"its tunnel by another handle": {object: node, address: tunnel, handle: "t", attributes: map[string]string{"node": "n1", "type": "ipipTunnelAddress"}},
		"its tunnel in cooldown":       {object: node, address: tunnel, handle: "another", cooled: true},
		"another's tunnel":             {object: node, address: tunnel, handle: "t", attributes: map[string]string{"node": "n2", "type": "ipipTunnelAddress"}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			must.Do(t, w.calico.Client().IPAM().AssignIP(t.Context(), ipam.AssignIPArgs{
				IP: cnet.MustParseIP(test.address), HandleID: &test.handle, Hostname: "n2", Attrs: test.attributes,
			}))
			defer func() { must.Do(t, w.calico.Client().IPAM().ReleaseByHandle(t.Context(), test.handle)) }()
			if test.cooled {
				defer w.cool(t, test.handle)()
			}
			if err := w.store.CheckRestore(t.Context(), test.object); errors.Is(err, ErrNotRestored) != test.refused || err != nil && !test.refused {
				t.Errorf("got %v, want it refused: %t", err, test.refused)
			}
		})
	}
	must.Get(w.calico.Start(t.Context(), caliconode.Host{Name: "heir", KubernetesNode: "heir", Address: netip.AddrFrom4([4]byte{172, 30, 0, 1})})).Or(t)
	if err := w.store.Restore(t.Context(), node); !errors.Is(err, ErrNotRestored) || !strings.Contains(err.Error(), "heir") {
		t.Errorf("the address is another machine's: got %v, want a refusal that names it", err)
	}
}

// cool puts the addresses of a handle into cooldown, as Calico's release does where ipCooldownSeconds is set, until undo is called.
func (w *world) cool(t *testing.T, handle string) (undo func()) {
	t.Helper()
	for key, value := range w.etcd.Dump(t) {
		if strings.HasPrefix(key, "/calico/ipam/v2/assignment/") && strings.Contains(value, `"handle_id":"`+handle+`"`) {
			w.put(t, key, strings.Replace(value, `"handle_id":"`+handle+`"`, `"handle_id":null,"releasedAt":"2026-01-01T00:00:00Z"`, 1))
			return func() { w.put(t, key, value) }
		}
	}
	t.Fatalf("no block has an address under %s", handle)
	return nil
}
