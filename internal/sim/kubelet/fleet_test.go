// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mooring-dev/mooring/internal/sim/kubelet"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// world is a fleet against a real API server; the names of its machines begin with the test's own prefix.
type world struct {
	*kubelet.Fleet
	t      *testing.T
	client kubernetes.Interface
}

// newWorld runs a fleet with quick heartbeats and the machines given until the test ends.
func newWorld(t *testing.T, machines ...kubelet.Machine) *world {
	t.Helper()
	return newWorldOf(t, kubelet.Config{}, machines...)
}

// newWorldOf is newWorld for a fleet with these options.
func newWorldOf(t *testing.T, config kubelet.Config, machines ...kubelet.Machine) *world {
	t.Helper()
	client := controlplane.Shared(t).Client
	config.Client, config.LeaseInterval, config.StatusInterval, config.Logger = client, 100*time.Millisecond, time.Hour, logr.Discard()
	fleet := kubelet.NewFleet(config)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- fleet.Run(ctx) }()
	w := &world{Fleet: fleet, t: t, client: client}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, name := range fleet.Machines() {
			w.deleteNode(context.WithoutCancel(ctx), name)
		}
	})
	for _, m := range machines {
		w.must(fleet.Add(m))
	}
	for _, m := range machines {
		w.eventually(m.Name+" is registered and has a Lease", func() bool { return w.node(m.Name) != nil && w.lease(m.Name) != nil })
	}
	return w
}

func machine(name string) kubelet.Machine {
	return kubelet.Machine{Name: name, Zone: "west", Address: netip.MustParseAddr("192.168.7.1")}
}

func (w *world) must(err error) {
	w.t.Helper()
	must.Do(w.t, err)
}

func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	testkit.Eventually(w.t, what, func() string {
		if condition() {
			return ""
		}
		return "not yet"
	})
}

// node returns the Node, nil if there is none.
func (w *world) node(name string) *corev1.Node {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return node
}

// lease returns the Node's Lease, nil if there is none.
func (w *world) lease(name string) *coordinationv1.Lease {
	w.t.Helper()
	lease, err := w.client.CoordinationV1().Leases("kube-node-lease").Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.must(err)
	return lease
}

// deleteNode deletes a Node and, as kube-controller-manager's garbage collector would, its Lease.
func (w *world) deleteNode(ctx context.Context, name string) {
	w.t.Helper()
	for _, err := range []error{
		w.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}),
		w.client.CoordinationV1().Leases("kube-node-lease").Delete(ctx, name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Error(err)
		}
	}
}

// heartbeats waits until the machine has renewed its Lease a number of times: the clock of these tests.
func (w *world) heartbeats(name string, n int) {
	w.t.Helper()
	last := ""
	for range n {
		w.eventually(name+" renews its Lease", func() bool {
			lease := w.lease(name)
			if lease == nil || lease.ResourceVersion == last {
				return false
			}
			last = lease.ResourceVersion
			return true
		})
	}
}

func conditions(node *corev1.Node) map[corev1.NodeConditionType]corev1.ConditionStatus {
	all := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, condition := range node.Status.Conditions {
		all[condition.Type] = condition.Status
	}
	return all
}

func TestNodeIsRegistered(t *testing.T) {
	t.Parallel()
	m := machine("reg-plain")
	m.ProviderID, m.Labels = "sim://reg-plain", map[string]string{"example.com/pool": "a"}
	w := newWorld(t, m)
	node, lease := w.node(m.Name), w.lease(m.Name)

	for label, want := range map[string]string{
		corev1.LabelHostname: m.Name, corev1.LabelOSStable: "linux", corev1.LabelTopologyZone: "west", "example.com/pool": "a",
	} {
		if got := node.Labels[label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	if node.Labels[corev1.LabelArchStable] == "" || node.Spec.ProviderID != m.ProviderID || node.Status.NodeInfo.KubeletVersion == "" {
		t.Errorf("labels %v, provider ID %q, nodeInfo %+v", node.Labels, node.Spec.ProviderID, node.Status.NodeInfo)
	}
	wantAddresses := []corev1.NodeAddress{{Type: "InternalIP", Address: "192.168.7.1"}, {Type: "Hostname", Address: m.Name}}
	if !slices.Equal(node.Status.Addresses, wantAddresses) {
		t.Errorf("addresses %v", node.Status.Addresses)
	}
	wantConditions := map[corev1.NodeConditionType]corev1.ConditionStatus{
		"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True",
	}
	if diff := cmp.Diff(wantConditions, conditions(node)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	for _, resource := range []corev1.ResourceName{"cpu", "memory", "pods", "ephemeral-storage"} {
		if capacity, allocatable := node.Status.Capacity[resource], node.Status.Allocatable[resource]; capacity.IsZero() || allocatable.IsZero() {
			t.Errorf("capacity or allocatable of %s is missing", resource)
		}
	}
	wantOwner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.Name, UID: node.UID}}
	if diff := cmp.Diff(wantOwner, lease.OwnerReferences); diff != "" || *lease.Spec.HolderIdentity != m.Name {
		t.Errorf("the Lease is held by %q; owner (-want +got):\n%s", *lease.Spec.HolderIdentity, diff)
	}
	w.heartbeats(m.Name, 3)
}

func TestNodeWaitsForTheCloudProvider(t *testing.T) {
	t.Parallel()
	m := machine("reg-cloud")
	m.ExternalCloudProvider = true
	w := newWorld(t, m)
	node := w.node(m.Name)
	if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == "node.cloudprovider.kubernetes.io/uninitialized" && taint.Effect == corev1.TaintEffectNoSchedule
	}) {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	if zone, ok := node.Labels[corev1.LabelTopologyZone]; ok {
		t.Errorf("the kubelet set zone %q, which is the cloud provider's to set", zone)
	}
	if got := node.Annotations["alpha.kubernetes.io/provided-node-ip"]; got != "192.168.7.1" {
		t.Errorf("provided IP %q", got)
	}
	// The cloud provider adds an address; the kubelet leaves it, even when it reports again.
	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: "ExternalIP", Address: "203.0.113.7"})
	must.Get(w.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})).Or(t)
	w.must(w.Restart(m.Name))
	w.heartbeats(m.Name, 5)
	if got := w.node(m.Name).Status.Addresses; len(got) != 3 {
		t.Errorf("addresses %v", got)
	}
}

func TestExistingNodeIsAdopted(t *testing.T) {
	t.Parallel()
	client := controlplane.Shared(t).Client
	existing := must.Get(client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "reg-adopt", Labels: map[string]string{"keep": "me", corev1.LabelTopologyZone: "east"},
	}}, metav1.CreateOptions{})).Or(t)
	m := machine("reg-adopt")
	m.ProviderID = "sim://too-late"
	w := newWorld(t, m)
	w.eventually("the adopted Node becomes Ready", func() bool { return conditions(w.node(m.Name))["Ready"] == "True" })
	node := w.node(m.Name)
	if node.UID != existing.UID || node.Labels["keep"] != "me" || node.Labels[corev1.LabelTopologyZone] != "west" {
		t.Errorf("UID %s (was %s), labels %v", node.UID, existing.UID, node.Labels)
	}
	if node.Spec.ProviderID != "" {
		t.Errorf("provider ID %q was set on an existing Node, which a kubelet does not do", node.Spec.ProviderID)
	}
}

func TestDeletedNodeComesBackOnlyWithARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, machine("del-node"), machine("del-clock"))
	before := w.node("del-node")
	w.deleteNode(t.Context(), "del-node")
	w.heartbeats("del-clock", 10)
	if w.node("del-node") != nil || w.lease("del-node") != nil {
		t.Error("a kubelet registered its deleted Node again without being restarted")
	}
	w.must(w.Restart("del-node"))
	w.eventually("the Node is registered again", func() bool { return w.node("del-node") != nil && w.lease("del-node") != nil })
	if node := w.node("del-node"); node.UID == before.UID || w.lease("del-node").OwnerReferences[0].UID != node.UID {
		t.Errorf("UID %s before and %s after, Lease owned by %v", before.UID, node.UID, w.lease("del-node").OwnerReferences)
	}
}

func TestFrozenAndDestroyedMachinesAreSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, machine("quiet-frozen"), machine("quiet-gone"), machine("quiet-clock"))
	w.must(w.Freeze("quiet-frozen"))
	w.must(w.Destroy("quiet-gone"))
	state := func() string {
		return fmt.Sprint(w.node("quiet-frozen").ResourceVersion, w.lease("quiet-frozen").ResourceVersion,
			w.node("quiet-gone").ResourceVersion, w.lease("quiet-gone").ResourceVersion)
	}
	before := state()
	w.heartbeats("quiet-clock", 10)
	if after := state(); after != before {
		t.Errorf("something was written: revisions %s, before %s", after, before)
	}
	if got, want := w.Machines(), []string{"quiet-clock", "quiet-frozen"}; !slices.Equal(got, want) {
		t.Errorf("machines %v, want %v", got, want)
	}

	// What kube-controller-manager does to the Node of a silent kubelet.
	node := w.node("quiet-frozen")
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].Status = corev1.ConditionUnknown
	}
	must.Get(w.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})).Or(t)
	w.must(w.Thaw("quiet-frozen"))
	w.eventually("the thawed machine is Ready", func() bool { return conditions(w.node("quiet-frozen"))["Ready"] == "True" })
	w.heartbeats("quiet-frozen", 2)
	w.deleteNode(t.Context(), "quiet-gone")
}

func TestBadMachinesAreRefused(t *testing.T) {
	t.Parallel()
	fleet := kubelet.NewFleet(kubelet.Config{})
	for what, m := range map[string]kubelet.Machine{
		"no name":      {Address: netip.MustParseAddr("10.0.0.1")},
		"bad name":     {Name: "Not_A_Name", Address: netip.MustParseAddr("10.0.0.1")},
		"no address":   {Name: "a"},
		"bad zone":     {Name: "a", Address: netip.MustParseAddr("10.0.0.1"), Zone: "a b"},
		"bad label":    {Name: "a", Address: netip.MustParseAddr("10.0.0.1"), Labels: map[string]string{"a/b/c": ""}},
		"bad label v.": {Name: "a", Address: netip.MustParseAddr("10.0.0.1"), Labels: map[string]string{"a": "b c"}},
	} {
		if err := fleet.Add(m); err == nil {
			t.Errorf("%s: added", what)
		}
	}
	must.Do(t, fleet.Add(machine("a")))
	if err := fleet.Add(machine("a")); err == nil {
		t.Error("a second machine of the same name was added")
	}
	for deed, do := range map[string]func(string) error{
		"freeze": fleet.Freeze, "thaw": fleet.Thaw, "restart": fleet.Restart, "destroy": fleet.Destroy,
	} {
		if err := do("b"); err == nil {
			t.Errorf("%s of an unknown machine was no error", deed)
		}
	}
	if err := fleet.Run(t.Context()); err == nil {
		t.Error("a fleet without client ran")
	}
}

// TestFleetSurvivesTheAPIServer is serial because all tests share the API server.
func TestFleetSurvivesTheAPIServer(t *testing.T) { //nolint:paralleltest // see above
	w := newWorld(t, machine("kill-api"))
	controlplane.Shared(t).Kill(t, "kube-apiserver")
	testkit.Eventually(t, "the API server is back", func() string {
		if err := w.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error(); err != nil {
			return err.Error()
		}
		return ""
	})
	w.heartbeats("kill-api", 3)
}
