// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// libcalico is Calico's own client, the second judge of what is written.
func libcalico(t *testing.T, api *cluster.Cluster) clientv3.Interface {
	t.Helper()
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.Kubeconfig, config.Spec.K8sClientQPS = apiconfig.Kubernetes, api.Kubeconfig(t), 1000
	c := must.Get(clientv3.New(*config)).Or(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// readRaw reads an object as an informer does.
func readRaw[T any](t *testing.T, b *BGPKubernetes, resource, name string) *T {
	t.Helper()
	raw := must.Get(do(t.Context(), b.client.Get().Resource(resource).Name(name))).Or(t)
	out := new(T)
	must.Do(t, json.Unmarshal(raw, out))
	object, ok := any(out).(metav1.Object)
	if !ok {
		t.Fatalf("%T is not an object", out)
	}
	NormalizeBGP(object)
	return out
}

func everyOption() routereflector.Peer {
	return routereflector.Peer{Name: "judged-clients", Topology: "judged", PeerSpec: routereflector.PeerSpec{
		NodeSelector: "!has(bgp.mooring.dev/reflector)", PeerSelector: "bgp.mooring.dev/reflector == 'judged'", MaxRestartSeconds: 90,
		PasswordSecret: "bgp", PasswordKey: "rr", TTLSecurity: 2, Filters: "a,b", SourceAddress: "None",
	}}
}

// What is written of a BGPPeer is what Calico's own client reads, and after that client has rewritten it, it is still known as ours.
func TestPeersAsCalicoReadsThem(t *testing.T) {
	t.Parallel()
	api := cluster.Own(t, controlplane.CalicoCRDs(t)...)
	b, err := OpenBGP(t.Context(), api.Config)
	if err != nil {
		t.Fatal(err)
	}
	if b.Group() != crdGroup {
		t.Fatalf("the group is %s", b.Group())
	}
	calico := libcalico(t, api)
	for _, name := range []string{"a", "b"} { // which Calico's client looks for when it validates
		f := apiv3.NewBGPFilter()
		f.Name = name
		must.Get(calico.BGPFilter().Create(t.Context(), f, options.SetOptions{})).Or(t)
	}
	want := everyOption()
	must.Do(t, b.CreatePeer(t.Context(), want))
	if err := b.CreatePeer(t.Context(), want); !errors.Is(err, ErrConflict) {
		t.Errorf("creating it again gave %v, want a conflict", err)
	}
	seen, err := calico.BGPPeers().Get(t.Context(), want.Name, options.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.PeerSpec.Spec(), seen.Spec); diff != "" || seen.Labels[v1alpha1.TopologyLabel] != "judged" {
		t.Errorf("Calico reads labels %v and another spec: %s", seen.Labels, diff)
	}
	// Calico's client validates what it writes, and moves our label.
	two := int32(2)
	seen.Spec.NumAllowedLocalASNumbers = &two
	if _, err := calico.BGPPeers().Update(t.Context(), seen, options.SetOptions{}); err != nil {
		t.Fatalf("Calico does not take what was written: %v", err)
	}
	moved := readRaw[apiv3.BGPPeer](t, b, "bgppeers", want.Name)
	if moved.Labels[v1alpha1.TopologyLabel] != "judged" {
		t.Errorf("it is not known as ours any more: %v", moved.Labels)
	}
	view, err := b.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var w routereflector.World
	if configuration, unread := view.Into(&w); configuration != nil || len(unread) > 0 || len(w.Peers) != 1 || w.Peers[0].Topology != "judged" || !w.Mesh.On || w.DatastoreReady {
		t.Errorf("a look gives %+v, with %q unread", w, unread)
	}
	if !w.Filters["a"] || !w.Filters["b"] || len(w.Filters) != 2 {
		t.Errorf("a look finds the filters %v", w.Filters)
	}
	want.PeerSpec = routereflector.PeerSpec{NodeSelector: "all()", PeerSelector: want.PeerSelector, SourceAddress: "UseNodeIP"}
	if err := b.UpdatePeer(t.Context(), want, string(moved.UID), "1"); !errors.Is(err, ErrConflict) {
		t.Errorf("an update of an older version gave %v, want a conflict", err)
	}
	must.Do(t, b.UpdatePeer(t.Context(), want, string(moved.UID), moved.ResourceVersion))
	if seen, err = calico.BGPPeers().Get(t.Context(), want.Name, options.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.PeerSpec.Spec(), seen.Spec); diff != "" {
		t.Errorf("options that are no longer wanted stay: %s", diff)
	}
	now := readRaw[apiv3.BGPPeer](t, b, "bgppeers", want.Name)
	if err := b.DeletePeer(t.Context(), want.Name, "00000000-0000-0000-0000-000000000000", now.ResourceVersion); !errors.Is(err, ErrConflict) {
		t.Errorf("deleting one with another UID gave %v, want a conflict", err)
	}
	must.Do(t, b.DeletePeer(t.Context(), want.Name, string(now.UID), now.ResourceVersion))
}

// The mesh goes off and on as Calico's own client reads and validates it, with its options kept meanwhile, even if Calico's client has moved the
// annotation that keeps them.
func TestMeshAsCalicoReadsIt(t *testing.T) {
	t.Parallel()
	api := cluster.Own(t, controlplane.CalicoCRDs(t)...)
	b := must.Get(OpenBGP(t.Context(), api.Config)).Or(t)
	configurations := libcalico(t, api).BGPConfigurations()
	on := true
	c := apiv3.NewBGPConfiguration()
	c.Name, c.Spec.NodeToNodeMeshEnabled = "default", &on
	c.Spec.NodeMeshMaxRestartTime = &metav1.Duration{Duration: 77 * time.Second}
	c.Spec.NodeMeshPassword = &apiv3.BGPPassword{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "bgp"}, Key: "mesh",
	}}
	c.Annotations = map[string]string{"example.com/kept": "yes"}
	before := must.Get(configurations.Create(t.Context(), c, options.SetOptions{})).Or(t)
	for range 2 { // the second time with the annotation moved
		must.Do(t, b.SetMesh(t.Context(), readRaw[apiv3.BGPConfiguration](t, b, "bgpconfigurations", "default"), false))
		off, err := configurations.Get(t.Context(), "default", options.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if off, err = configurations.Update(t.Context(), off, options.SetOptions{}); err != nil {
			t.Fatalf("Calico does not take the configuration without the mesh: %v", err)
		}
		if *off.Spec.NodeToNodeMeshEnabled || off.Spec.NodeMeshPassword != nil || off.Annotations["example.com/kept"] != "yes" {
			t.Errorf("the mesh off is %+v", off)
		}
		must.Do(t, b.SetMesh(t.Context(), readRaw[apiv3.BGPConfiguration](t, b, "bgpconfigurations", "default"), true))
		after, err := configurations.Get(t.Context(), "default", options.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
			t.Errorf("the mesh is not as it was: %s", diff)
		}
		if diff := cmp.Diff(before.Annotations, after.Annotations); diff != "" {
			t.Errorf("the annotations are not as they were: %s", diff)
		}
	}
}

// Where projectcalico.org/v3 is served it is used, and a program that began with the other group is told to start again.
func TestGroups(t *testing.T) {
	t.Parallel()
	api := cluster.Own(t, controlplane.CalicoCRDs(t)...)
	before := must.Get(OpenBGP(t.Context(), api.Config)).Or(t)
	if err := before.Rediscover(t.Context()); err != nil {
		t.Errorf("nothing has moved, and the error is %v", err)
	}
	api.Serve(t, controlplane.CalicoKindsV3(t, slices.Sorted(maps.Keys(bgpKinds()))...)...)
	testkit.Eventually(t, "projectcalico.org/v3 to be found", func() string {
		if err := before.Rediscover(t.Context()); !errors.Is(err, ErrGroupMoved) {
			return "the error is " + errorText(err)
		}
		return ""
	})
	b := must.Get(OpenBGP(t.Context(), api.Config)).Or(t)
	if b.Group() != v3Group {
		t.Fatalf("the group is %s", b.Group())
	}
	want := everyOption()
	must.Do(t, b.CreatePeer(t.Context(), want))
	got := readRaw[apiv3.BGPPeer](t, b, "bgppeers", want.Name)
	if diff := cmp.Diff(want.PeerSpec.Spec(), got.Spec); diff != "" {
		t.Errorf("it differs: %s", diff)
	}
	must.Do(t, b.SetMesh(t.Context(), nil, false))
	must.Do(t, b.SetMesh(t.Context(), readRaw[apiv3.BGPConfiguration](t, b, "bgpconfigurations", "default"), true))
}

func errorText(err error) string {
	if err == nil {
		return "nil"
	}
	return err.Error()
}

// An update names every field of Calico's type, so that none is left over of what somebody else has set.
func TestPeerFields(t *testing.T) {
	t.Parallel()
	var want []string
	for f := range reflect.TypeFor[apiv3.BGPPeerSpec]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		want = append(want, name)
	}
	got := peerFields()
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Calico's fields differ (-Calico +ours): %s", diff)
	}
}

// What is in the mesh's annotation and was not written there is an error that says where, and nothing is lost by it.
func TestMeshAnnotation(t *testing.T) {
	t.Parallel()
	c := apiv3.NewBGPConfiguration()
	c.Annotations = map[string]string{v1alpha1.MeshAnnotation: "{"}
	_, err := meshPatch(c, true)
	want := `BGPConfiguration default, annotation bgp.mooring.dev/mesh-before: "{" is not what was written there; correct or remove it: unexpected end of JSON input`
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

// FuzzMeshAnnotation: whatever stands in the annotations, there is a patch or an error.
func FuzzMeshAnnotation(f *testing.F) {
	f.Add(`{"nodeMeshMaxRestartTime":"77s"}`, `{"annotations":{"bgp.mooring.dev/mesh-before":"{}"}}`)
	f.Add("{", "null")
	f.Fuzz(func(t *testing.T, before, metadata string) {
		c := apiv3.NewBGPConfiguration()
		c.Annotations = map[string]string{v1alpha1.MeshAnnotation: before, metadataAnnotation: metadata}
		patch, err := meshPatch(c, true)
		if err == nil && patch == nil {
			t.Error("neither a patch nor an error")
		}
		NormalizeBGP(c)
	})
}
