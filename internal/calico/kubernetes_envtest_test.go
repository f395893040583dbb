// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// kubeWorld is Calico's kubernetes datastore on a real API server. There is one per API server: its tests are not parallel.
type kubeWorld struct {
	api    *testkit.Cluster
	store  *KubernetesAPI
	calico *caliconode.Datastore
	raw    client.Client
}

func newKubeWorld(t *testing.T) *kubeWorld {
	t.Helper()
	w := &kubeWorld{api: testkit.ControlPlane(t)}
	var err error
	if w.raw, err = client.New(w.api.Config, client.Options{Scheme: runtime.NewScheme()}); err != nil {
		t.Fatal(err)
	}
	w.api.InstallCalicoCRDs(t)
	w.api.AllowPods(t, "default", "default")
	if w.store, err = OpenKubernetes(w.api.Config); err != nil {
		t.Fatal(err)
	}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.Kubeconfig = apiconfig.Kubernetes, w.api.Kubeconfig
	if w.calico, err = caliconode.Connect(*config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.calico.Close() })
	if err := w.calico.Initialize(t.Context(), "10.244.0.0/16"); err != nil {
		t.Fatal(err)
	}
	return w
}

// join registers a Node, starts calico-node there and connects pods.
func (w *kubeWorld) join(t *testing.T, name string, last byte, pods int) *caliconode.Agent {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := w.api.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	agent, err := w.calico.Start(t.Context(), caliconode.Host{
		Name: name, KubernetesNode: name, Address: netip.AddrFrom4([4]byte{172, 30, 1, last}), IPIP: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		p := pod(name, i)
		p.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		p.Spec.AutomountServiceAccountToken = new(bool)
		stored, err := w.api.Client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := agent.PodNetwork().Add(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
	}
	return agent
}

// ipam is every object of IPAM by kind and name, with its spec.
func (w *kubeWorld) ipam(t *testing.T) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, kind := range []string{kindBlock, kindHandle, kindAffinity} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(crdGroup.WithKind(kind + "List"))
		if err := w.raw.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			out[kind+" "+item.GetName()] = item.Object["spec"]
		}
	}
	return out
}

func (w *kubeWorld) read(t *testing.T, name string) seen {
	t.Helper()
	snapshot, err := w.store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !snapshot.DatastoreReady {
		t.Error("the datastore is not ready")
	}
	hosts, err := w.store.Hosts(t.Context(), snapshot.Revision, []string{name})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(snapshot.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("host %s is not in the snapshot %v", name, snapshot.Nodes)
	}
	return seen{node: snapshot.Nodes[i], host: hosts[0]}
}

func TestKubernetesDatastoreIsSweptOfOneHostAndNothingElse(t *testing.T) {
	w := newKubeWorld(t)
	w.join(t, "kdd-alive", 1, 2)
	before := w.ipam(t)
	w.join(t, "kdd-gone", 2, 3)
	s := w.read(t, "kdd-gone")
	if !s.node.Implied || len(s.host.Blocks) != 1 || len(s.host.Affinities) != 1 || len(s.assignments(s.host.Blocks[0])) != 4 {
		t.Fatalf("got %+v, want one block with three pods' addresses and the tunnel's", s)
	}
	block := s.host.Blocks[0]
	if err := w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, s.assignments(block)); err != nil {
		t.Fatal(err)
	}
	if err := w.store.DeleteAffinity(t.Context(), s.guard(), block.CIDR, s.host.Affinities[0].Revision, true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, w.ipam(t)); diff != "" {
		t.Errorf("IPAM is not as it was before the host (-want +got):\n%s", diff)
	}
}

func TestKubernetesDatastoreRefusesWhatChanged(t *testing.T) {
	w := newKubeWorld(t)
	w.join(t, "kdd-busy", 3, 1)
	s := w.read(t, "kdd-busy")
	block, affinity := s.host.Blocks[0], s.host.Affinities[0]
	wrongSequence, wrongHandle := s.assignments(block), s.assignments(block)
	wrongSequence[0].Sequence++
	wrongHandle[0].Handle = "k8s-pod-network.other"
	writes := map[string]func() error{
		"an address that was assigned anew": func() error { return w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, wrongSequence) },
		"an address of another handle":      func() error { return w.store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, wrongHandle) },
		"a block in use": func() error {
			return w.store.DeleteAffinity(t.Context(), s.guard(), block.CIDR, affinity.Revision, true)
		},
		"an affinity with its block": func() error {
			return w.store.DeleteAffinity(t.Context(), s.guard(), block.CIDR, affinity.Revision, false)
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			before := w.ipam(t)
			if err := write(); !errors.Is(err, ErrConflict) {
				t.Errorf("got error %v, want a conflict", err)
			}
			if diff := cmp.Diff(before, w.ipam(t)); diff != "" {
				t.Errorf("something was written (-want +got):\n%s", diff)
			}
		})
	}
}

// meddling does something of somebody else's between our read and our write.
type meddling struct {
	client.Client
	meddle func()
}

func (c *meddling) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	if c.meddle != nil {
		c.meddle()
		c.meddle = nil
	}
	return c.Client.Update(ctx, object, options...)
}

func TestKubernetesDatastoreLosesNoAddressThatIsTakenMeanwhile(t *testing.T) {
	w := newKubeWorld(t)
	w.join(t, "kdd-raced", 4, 2)
	s := w.read(t, "kdd-raced")
	block, handle := s.host.Blocks[0], "k8s-pod-network.newcomer"
	taken := netip.Addr{}
	store := &KubernetesAPI{client: &meddling{Client: w.store.client, meddle: func() {
		assigned, _, err := w.calico.Client().IPAM().AutoAssign(t.Context(), ipam.AutoAssignArgs{
			Num4: 1, HandleID: &handle, Hostname: "kdd-raced", Attrs: map[string]string{"node": "kdd-raced"}, IntendedUse: apiv3.IPPoolAllowedUseWorkload,
		})
		if err != nil || len(assigned.IPs) != 1 {
			t.Fatalf("assigning an address: %v %v", assigned, err)
		}
		taken, _ = netip.AddrFromSlice(assigned.IPs[0].IP.To4())
	}}}

	if err := store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, s.assignments(block)); !errors.Is(err, ErrConflict) {
		t.Fatalf("got error %v, want a conflict", err)
	}
	// The next round reads again and releases what it meant to, although the handles went before the process "died".
	if err := store.ReleaseAddresses(t.Context(), s.guard(), block.CIDR, s.assignments(block)); err != nil {
		t.Fatal(err)
	}
	left := w.read(t, "kdd-raced").host.Blocks[0].Allocations
	if len(left) != 1 || left[0].Address != taken || left[0].Handle != handle {
		t.Errorf("left are %v, want just the newcomer's %s", left, taken)
	}
}
