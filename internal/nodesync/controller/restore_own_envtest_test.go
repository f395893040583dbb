// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// An address that is the endpoint's own keeps nothing from being put back, whatever its handle is called; nor does one
// in cooldown, which is nobody's. The same address is refused if it names another pod or another machine.
func TestAnEndpointIsPutBackOverItsOwnAddress(t *testing.T) {
	s := newStage(t, 3)
	entry := s.journalled()
	var endpoint, node calico.Object
	for _, object := range entry.Objects {
		if strings.Contains(object.Key, "/workloadendpoints/") {
			endpoint = object
		}
		if strings.Contains(object.Key, "/nodes/") {
			node = object
		}
	}
	between := func(text, begin, end string) string {
		_, after, _ := strings.Cut(text, begin)
		found, _, _ := strings.Cut(after, end)
		return found
	}
	address, sandbox := between(endpoint.Value, `"ipNetworks":["`, "/"), between(endpoint.Value, `"containerID":"`, `"`)
	pod, host := between(endpoint.Value, `"pod":"`, `"`), s.name("0")
	tunnel := between(node.Value, `"ipv4IPIPTunnelAddr":"`, `"`)
	of := func(node, pod string) map[string]string {
		return map[string]string{"node": node, "namespace": "default", "pod": pod}
	}
	for name, test := range map[string]struct {
		object                   calico.Object
		address, handle          string
		attributes               map[string]string
		refused, without, cooled bool
	}{
		"its sandbox":                  {object: endpoint, address: address, handle: "k8s-pod-network." + sandbox, attributes: of(host, pod)},
		"its sandbox, as once":         {object: endpoint, address: address, handle: sandbox},
		"its virtual machine":          {object: endpoint, address: address, handle: "k8s-pod-network.vmi.default.v", attributes: of(host, pod)},
		"it names no sandbox":          {object: endpoint, address: address, handle: "k8s-pod-network." + sandbox, attributes: of(host, pod), without: true},
		"in cooldown":                  {object: endpoint, address: address, handle: "another", cooled: true},
		"another pod's":                {object: endpoint, address: address, handle: "another", attributes: of(host, pod+"x"), refused: true},
		"of the pod elsewhere":         {object: endpoint, address: address, handle: "another", attributes: of(s.name("1"), pod), refused: true},
		"of nobody known":              {object: endpoint, address: address, handle: "another", refused: true},
		"its tunnel":                   {object: node, address: tunnel, handle: "ipip-tunnel-addr-" + host},
		"its tunnel by another handle": {object: node, address: tunnel, handle: "t", attributes: map[string]string{"node": host, "type": "ipipTunnelAddress"}},
		"its tunnel in cooldown":       {object: node, address: tunnel, handle: "another", cooled: true},
		"another's tunnel":             {object: node, address: tunnel, handle: "t", attributes: map[string]string{"node": s.name("1"), "type": "ipipTunnelAddress"}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			object := test.object
			if test.without {
				object.Value = strings.Replace(object.Value, `"containerID":"`+sandbox+`",`, "", 1)
			}
			must.Do(t, s.calico.Client().IPAM().AssignIP(t.Context(), ipam.AssignIPArgs{
				IP: cnet.MustParseIP(test.address), HandleID: &test.handle, Hostname: s.name("1"), Attrs: test.attributes,
			}))
			defer func() {
				if err := s.calico.Client().IPAM().ReleaseByHandle(t.Context(), test.handle); err != nil {
					t.Error(err)
				}
			}()
			if test.cooled {
				defer s.cool(test.handle)()
			}
			if err := s.store.CheckRestore(t.Context(), object); errors.Is(err, calico.ErrNotRestored) != test.refused || err != nil && !test.refused {
				t.Errorf("got %v, want it refused: %t", err, test.refused)
			}
		})
	}
}

// cool puts the addresses of a handle into cooldown, as Calico's release does where ipCooldownSeconds is set, until
// undo is called.
func (s *stage) cool(handle string) (undo func()) {
	s.t.Helper()
	put := func(key, value string) {
		must.Get(s.etcd.Client.Put(s.t.Context(), key, value)).Or(s.t)
	}
	for key, value := range s.etcd.Dump(s.t) {
		if !strings.HasPrefix(key, "/calico/ipam/v2/assignment/") || !strings.Contains(value, `"handle_id":"`+handle+`"`) {
			continue
		}
		put(key, strings.Replace(value, `"handle_id":"`+handle+`"`, `"handle_id":null,"releasedAt":"2026-01-01T00:00:00Z"`, 1))
		return func() { put(key, value) }
	}
	s.t.Fatalf("no block has an address under %s", handle)
	return nil
}
