// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/lab/internal/bgp/fabric"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

func address(text string) netip.Addr { return netip.MustParseAddr(text) }

func nodeAt(name, address string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	if address != "" {
		node.Annotations[routereflector.IPv4Annotation] = address + "/16"
	}
	return node
}

func podAt(node, address string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{PodIP: address, Phase: corev1.PodRunning}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// dual gives a node, a machine of the network and a pod their IPv6 addresses as well; with six they have those alone.
func dual(w world) world {
	w.nodes[0].Annotations[routereflector.IPv6Annotation] = "fd00:172:30::2/64"
	w.pods[0].Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.7"}, {IP: "fd00:10:244::7"}}
	w.hosts[0].AddressV6 = netip.PrefixFrom(address("fd00:172:30::2"), 64)
	w.hosts[0].Pods = []netip.Addr{address("10.244.0.7"), address("fd00:10:244::7")}
	return w
}

func six(w world) world {
	w = dual(w)
	delete(w.nodes[0].Annotations, routereflector.IPv4Annotation)
	w.pods[0].Status.PodIP, w.pods[0].Status.PodIPs = "fd00:10:244::7", w.pods[0].Status.PodIPs[1:]
	w.hosts[0].Address, w.hosts[0].Pods = netip.Prefix{}, w.hosts[0].Pods[1:]
	return w
}

// TestFamilies follows machines with addresses of both families, and with IPv6 ones alone.
func TestFamilies(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(world) world{"dual stack": dual, "IPv6": six} {
		whole := make(quiet())
		check := func(what string, w world, want changes) {
			t.Helper()
			if want.pods == nil {
				want.pods = map[string][]netip.Addr{}
			}
			if diff := cmp.Diff(want, plan(w), cmp.AllowUnexported(changes{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, what, diff)
			}
		}
		check("nothing to do", whole, changes{})
		booted := make(quiet())
		booted.hosts = nil
		check("it has booted", booted, changes{add: []fabric.Machine{whole.hosts[0]}})
		other := make(quiet())
		other.nodes[0].Annotations[routereflector.IPv6Annotation] = "fd00:172:30::9/64"
		other.hosts = nil
		check("the Node has the IPv6 address of an earlier machine", other, changes{awaited: []string{"a"}})
		moved := make(quiet())
		moved.hosts[0].AddressV6 = netip.PrefixFrom(address("fd00:172:30::9"), 64)
		check("the network has the IPv6 address of an earlier machine", moved, changes{remove: []string{"a"}, add: []fabric.Machine{whole.hosts[0]}})
		lost := make(quiet())
		lost.pods[0].Status.PodIPs = lost.pods[0].Status.PodIPs[:1]
		if want := lost.hosts[0].Pods[:1]; name == "dual stack" {
			check("a pod loses an address", lost, changes{pods: map[string][]netip.Addr{"a": want}})
		}
	}
}

func hostAt(name, at string, pods ...netip.Addr) fabric.Machine {
	return fabric.Machine{Name: name, Address: netip.PrefixFrom(address(at), 16), Pods: pods}
}

// quiet is a world in which one machine is in the network and nothing is to do.
func quiet() world {
	return world{
		list:  machines.List{Machines: []machines.Machine{{Name: "a", Address: address("172.30.0.2"), State: machines.Running}}},
		nodes: []*corev1.Node{nodeAt("a", "172.30.0.2")},
		pods:  []*corev1.Pod{podAt("a", "10.244.0.7")},
		hosts: []fabric.Machine{hostAt("a", "172.30.0.2", address("10.244.0.7"))},
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	list := func(w *world) *machines.Machine { return &w.list.Machines[0] }
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	hostNetwork := func(p *corev1.Pod) { p.Spec.HostNetwork = true }
	for name, c := range map[string]struct {
		change func(*world)
		want   changes
	}{
		"nothing to do":                        {func(*world) {}, changes{}},
		"a machine is destroyed":               {func(w *world) { w.list = machines.List{} }, changes{remove: []string{"a"}}},
		"it is switched off":                   {func(w *world) { list(w).State = machines.Off }, changes{remove: []string{"a"}}},
		"it is frozen: BIRD goes on":           {func(w *world) { list(w).State = machines.Frozen }, changes{}},
		"its Node is deleted, and it is there": {func(w *world) { w.nodes = nil }, changes{}},
		"it has booted": {func(w *world) { w.hosts = nil },
			changes{add: []fabric.Machine{hostAt("a", "172.30.0.2", address("10.244.0.7"))}}},
		"it has booted, without pods so far": {func(w *world) { w.hosts, w.pods = nil, nil },
			changes{add: []fabric.Machine{hostAt("a", "172.30.0.2")}, awaited: []string{"a"}}},
		"it has no Node yet":             {func(w *world) { w.hosts, w.nodes, w.pods = nil, nil, nil }, changes{awaited: []string{"a"}}},
		"calico-node has not started":    {func(w *world) { w.hosts, w.nodes = nil, []*corev1.Node{nodeAt("a", "")} }, changes{awaited: []string{"a"}}},
		"the Node is an earlier one's":   {func(w *world) { w.hosts = nil; list(w).Address = address("172.30.0.9") }, changes{awaited: []string{"a"}}},
		"nobody waits for a silent one":  {func(w *world) { w.hosts, w.nodes = nil, nil; list(w).State = machines.Frozen }, changes{}},
		"nor for one that waits for CCM": {func(w *world) { w.hosts, w.nodes = nil, nil; list(w).ExternalCloudProvider = true }, changes{}},
		"another one of the name": {func(w *world) {
			list(w).Address, w.nodes = address("172.30.0.9"), []*corev1.Node{nodeAt("a", "172.30.0.9")}
		}, changes{remove: []string{"a"}, add: []fabric.Machine{hostAt("a", "172.30.0.9", address("10.244.0.7"))}}},
		"pods come, in any order": {func(w *world) {
			w.pods = append(w.pods, podAt("a", "10.244.0.9"), podAt("a", "10.244.0.3"))
		}, changes{pods: map[string][]netip.Addr{"a": {address("10.244.0.3"), address("10.244.0.7"), address("10.244.0.9")}}}},
		"the last pod goes": {func(w *world) { w.pods = nil }, changes{pods: map[string][]netip.Addr{"a": nil}, awaited: []string{"a"}}},
		"pods without an address of their own": {func(w *world) {
			w.pods = append(w.pods, podAt("a", ""), podAt("a", "fd00::1"), podAt("a", "10.244.0.9", ended), podAt("a", "10.244.0.9", failed),
				podAt("a", "172.30.0.2", hostNetwork), podAt("b", "10.244.0.9"))
		}, changes{}},
	} {
		w := quiet()
		c.change(&w)
		options := cmp.Options{cmp.AllowUnexported(changes{}), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}
		if diff := cmp.Diff(c.want, plan(w), options); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestPending(t *testing.T) {
	t.Parallel()
	c := changes{remove: []string{"b"}, add: []fabric.Machine{hostAt("c", "172.30.0.4"), hostAt("b", "172.30.0.5")}, awaited: []string{"c", "a"}}
	if diff := cmp.Diff([]string{"a", "b", "c"}, c.pending()); diff != "" {
		t.Error(diff)
	}
	if got := (changes{pods: map[string][]netip.Addr{"a": nil}}).pending(); len(got) > 0 {
		t.Errorf("pods alone make %v pending", got)
	}
}

// TestEtcd follows machines whose addresses Calico keeps in etcd: what stands on the Nodes is nothing there.
func TestEtcd(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(world) world{"IPv4": func(w world) world { return w }, "dual stack": dual, "IPv6": six} {
		whole := make(quiet())
		given := routereflector.CalicoNode{Name: "a", IPv4: whole.hosts[0].Address.Addr(), IPv6: whole.hosts[0].AddressV6.Addr()}
		for what, test := range map[string]struct {
			calico []routereflector.CalicoNode
			want   changes
		}{
			"calico-node has started":     {[]routereflector.CalicoNode{given}, changes{add: []fabric.Machine{whole.hosts[0]}}},
			"calico-node has not started": {nil, changes{awaited: []string{"a"}}},
			"it has no address":           {[]routereflector.CalicoNode{{Name: "a"}}, changes{awaited: []string{"a"}}},
		} {
			w := make(quiet())
			w.hosts, w.calico, w.inEtcd = nil, test.calico, true
			if test.want.pods == nil {
				test.want.pods = map[string][]netip.Addr{}
			}
			if diff := cmp.Diff(test.want, plan(w), cmp.AllowUnexported(changes{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, what, diff)
			}
		}
	}
}
