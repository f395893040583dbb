// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	libcalicov3 "github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const thisCluster = "11111111-2222-3333-4444-555555555555"

// bgpWorld is a world with the adapter, bound and following.
type bgpWorld struct {
	*world

	bgp    *BGPEtcd
	client libcalicov3.Interface
}

func newBGPWorld(t *testing.T) *bgpWorld {
	t.Helper()
	w := unboundWorld(t)
	w.follow(t)
	info := w.view(t).Informations
	if len(info) != 1 {
		t.Fatalf("there are %d ClusterInformations", len(info))
	}
	must.Do(t, w.bgp.Bind(t.Context(), &info[0]))
	return w
}

func unboundWorld(t *testing.T) *bgpWorld {
	t.Helper()
	w := &bgpWorld{world: newWorld(t)}
	w.bgp, w.client = NewBGPEtcd(w.store, thisCluster, clock.RealClock{}), w.calico.Client()
	return w
}

func (w *bgpWorld) follow(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.bgp.Start(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	testkit.Eventually(t, "everything to be read", func() string {
		if _, err := w.bgp.View(); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (w *bgpWorld) view(t *testing.T) BGPView {
	t.Helper()
	v := must.Get(w.bgp.View()).Or(t)
	return v
}

// seen waits until the view shows what is wanted.
func (w *bgpWorld) seen(t *testing.T, what string, is func(v BGPView) bool) BGPView {
	t.Helper()
	var v BGPView
	testkit.Eventually(t, what, func() string {
		if v = w.view(t); is(v) {
			return ""
		}
		return fmt.Sprintf("%+v", v)
	})
	return v
}

// caughtUp waits until the view shows all Calico Nodes as they are now.
func (w *bgpWorld) caughtUp(t *testing.T) BGPView {
	t.Helper()
	is := map[string]string{}
	resp := must.Get(w.etcd.Client.Get(t.Context(), nodePrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())).Or(t)
	for _, kv := range resp.Kvs {
		is[strings.TrimPrefix(string(kv.Key), nodePrefix)] = strconv.FormatInt(kv.ModRevision, 10)
	}
	return w.seen(t, "all Calico Nodes as they are", func(v BGPView) bool {
		for _, n := range v.Nodes {
			if is[n.Name] != n.ResourceVersion {
				return false
			}
		}
		return int(v.keys) == len(is)
	})
}

func node(v BGPView, name string) routereflector.CalicoNode {
	i := slices.IndexFunc(v.Nodes, func(n routereflector.CalicoNode) bool { return n.Name == name })
	if i < 0 {
		return routereflector.CalicoNode{}
	}
	return v.Nodes[i]
}

// promotion makes the node of a view a reflector.
func promotion(n routereflector.CalicoNode) NodeChange {
	label, id := "main", "244.0.0.1"
	return NodeChange{Node: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: map[string]*string{v1alpha1.ReflectorLabel: &label}, ClusterID: &id}
}

func demotion(n routereflector.CalicoNode) NodeChange {
	none := ""
	return NodeChange{Node: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: map[string]*string{v1alpha1.ReflectorLabel: nil}, ClusterID: &none}
}

// The two components bind a datastore by the same record, and the kinds stand where libcalico-go looks for them.
func TestBGPKeys(t *testing.T) {
	t.Parallel()
	if routereflector.BindingAnnotation != nodesync.BindingAnnotation {
		t.Errorf("the annotations differ: %s, %s", routereflector.BindingAnnotation, nodesync.BindingAnnotation)
	}
	for kind := range bgpPrefixes() {
		want := must.Get(model.KeyToDefaultPath(model.ResourceKey{Kind: kind, Name: "a"})).Or(t)
		if got := bgpKey(kind, "a"); got != want {
			t.Errorf("%s is at %s, not %s", kind, got, want)
		}
	}
}

// A role is one transaction: label and cluster ID come and go together, everything else on the Calico Node stays as it was, and Calico's own client
// reads, validates and writes the Node with it. A start of calico-node and kube-controllers' copying of labels leave it.
func TestRoleInOneWrite(t *testing.T) {
	t.Parallel()
	w := newBGPWorld(t)
	machine(t, w.calico, "a", 1, 0)
	n := node(w.caughtUp(t), "a")
	if n.Kubernetes != "a" || n.IPv4 != netip.MustParseAddr("172.30.0.1") || n.ClusterID != "" || n.Foreign {
		t.Errorf("it was read as %+v", n)
	}
	before := must.Get(w.client.Nodes().Get(t.Context(), "a", options.GetOptions{})).Or(t)
	at := w.etcd.Revision(t)
	must.Do(t, w.bgp.ChangeNode(t.Context(), promotion(n)))
	if now := w.etcd.Revision(t); now != at+1 {
		t.Errorf("a promotion took %d writes", now-at)
	}
	if err := w.bgp.ChangeNode(t.Context(), promotion(n)); !errors.Is(err, ErrConflict) {
		t.Errorf("the same again, with an old revision, gave %v", err)
	}
	after := must.Get(w.client.Nodes().Get(t.Context(), "a", options.GetOptions{})).Or(t)
	want := before.DeepCopy()
	want.ResourceVersion, want.Spec.BGP.RouteReflectorClusterID = after.ResourceVersion, "244.0.0.1"
	metav1.SetMetaDataLabel(&want.ObjectMeta, v1alpha1.ReflectorLabel, "main")
	if diff := cmp.Diff(want, after); diff != "" {
		t.Errorf("Calico reads (-want +got):\n%s", diff)
	}
	// kube-controllers: what it has copied before and Kubernetes has no more goes, the rest stays (kube-controllers/pkg/controllers/node/labels.go).
	metav1.SetMetaDataLabel(&after.ObjectMeta, "zone", "z")
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, "projectcalico.org/kube-labels", `{"zone":"z"}`)
	if _, err := w.client.Nodes().Update(t.Context(), after, options.SetOptions{}); err != nil {
		t.Fatalf("Calico's client does not take the Node: %v", err)
	}
	machine(t, w.calico, "a", 1, 0) // calico-node starts again
	n = node(w.caughtUp(t), "a")
	if n.ClusterID != "244.0.0.1" || n.Labels[v1alpha1.ReflectorLabel] != "main" {
		t.Errorf("the role has not survived: %+v", n)
	}
	must.Do(t, w.bgp.ChangeNode(t.Context(), demotion(n)))
	last := must.Get(w.client.Nodes().Get(t.Context(), "a", options.GetOptions{})).Or(t)
	if _, labeled := last.Labels[v1alpha1.ReflectorLabel]; labeled || last.Spec.BGP.RouteReflectorClusterID != "" || last.Labels["zone"] != "z" {
		t.Errorf("after the demotion Calico reads %v, %+v", last.Labels, last.Spec.BGP)
	}
}

// A Node without BGP gets no cluster ID: Calico would take its Node for one with BGP and without an address.
func TestRoleNeedsBGP(t *testing.T) {
	t.Parallel()
	w := newBGPWorld(t)
	bare := libapiv3.NewNode()
	bare.Name = "bare"
	must.Get(w.client.Nodes().Create(t.Context(), bare, options.SetOptions{})).Or(t)
	n := node(w.seen(t, "the Node", func(v BGPView) bool { return len(v.Nodes) == 1 }), "bare")
	at := w.etcd.Revision(t)
	if err := w.bgp.ChangeNode(t.Context(), promotion(n)); err == nil || !strings.Contains(err.Error(), "calico-node has not set BGP up on it") {
		t.Errorf("the error is %v", err)
	}
	if err := w.bgp.ChangeNode(t.Context(), NodeChange{Node: "gone", ResourceVersion: "3"}); !errors.Is(err, ErrConflict) {
		t.Errorf("for a Node that is gone the error is %v", err)
	}
	if now := w.etcd.Revision(t); now != at {
		t.Error("something was written")
	}
}

// A BGPPeer and a CalicoNodeStatus of ours are what Calico's client reads and takes; fields that nobody wants go, those that this program
// does not know stay.
func TestObjectsAsCalicoReadsThem(t *testing.T) {
	t.Parallel()
	w := newBGPWorld(t)
	ctx, want := t.Context(), everyOption()
	for _, name := range []string{"a", "b"} {
		f := apiv3.NewBGPFilter()
		f.Name = name
		must.Get(w.client.BGPFilter().Create(ctx, f, options.SetOptions{})).Or(t)
	}
	must.Do(t, w.bgp.CreatePeer(ctx, want))
	if err := w.bgp.CreatePeer(ctx, want); !errors.Is(err, ErrConflict) {
		t.Errorf("creating it again gave %v", err)
	}
	seen, err := w.client.BGPPeers().Get(ctx, want.Name, options.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.PeerSpec.Spec(), seen.Spec); diff != "" || seen.Labels[v1alpha1.TopologyLabel] != "judged" || seen.UID == "" || seen.CreationTimestamp.IsZero() {
		t.Errorf("Calico reads %+v, and another spec: %s", seen.ObjectMeta, diff)
	}
	two := int32(2)
	seen.Spec.NumAllowedLocalASNumbers, seen.Annotations = &two, map[string]string{"somebody": "note"}
	if _, err := w.client.BGPPeers().Update(ctx, seen, options.SetOptions{}); err != nil {
		t.Fatalf("Calico does not take what was written: %v", err)
	}
	view := w.seen(t, "the BGPPeer and both filters", func(v BGPView) bool {
		return len(v.Peers) == 1 && v.Peers[0].Spec.NumAllowedLocalASNumbers != nil && len(v.Filters) == 2
	})
	have := view.Peers[0]
	want.PeerSpec = routereflector.PeerSpec{NodeSelector: "all()", PeerSelector: want.PeerSelector, SourceAddress: "UseNodeIP"}
	if err := w.bgp.UpdatePeer(ctx, want, string(have.UID), "1"); !errors.Is(err, ErrConflict) {
		t.Errorf("an update of an older version gave %v", err)
	}
	must.Do(t, w.bgp.UpdatePeer(ctx, want, string(have.UID), have.ResourceVersion))
	if seen, err = w.client.BGPPeers().Get(ctx, want.Name, options.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.PeerSpec.Spec(), seen.Spec); diff != "" || seen.Annotations["somebody"] != "note" || seen.Labels[v1alpha1.TopologyLabel] != "judged" {
		t.Errorf("after the update Calico reads %+v, and another spec: %s", seen.ObjectMeta, diff)
	}
	if err := w.bgp.DeletePeer(ctx, want.Name, "", have.ResourceVersion); !errors.Is(err, ErrConflict) {
		t.Errorf("a deletion of an older version gave %v", err)
	}
	must.Do(t, w.bgp.DeletePeer(ctx, want.Name, "", seen.ResourceVersion))
	w.seen(t, "no BGPPeer", func(v BGPView) bool { return len(v.Peers) == 0 })
}

// A question is one that calico-node can answer, and it goes although calico-node writes it all the time, but only if it is the one that was meant.
func TestQuestions(t *testing.T) {
	t.Parallel()
	w := newBGPWorld(t)
	ctx := t.Context()
	r := StatusRequest{Name: "q", Node: "a", Labels: map[string]string{v1alpha1.TopologyLabel: "main"}, Annotations: map[string]string{"moment": "m"}, Routes: true, Period: 3 * time.Second}
	must.Do(t, w.bgp.CreateStatus(ctx, r))
	if err := w.bgp.CreateStatus(ctx, r); !errors.Is(err, ErrConflict) {
		t.Errorf("the same again gave %v", err)
	}
	status, err := w.client.CalicoNodeStatus().Get(ctx, "q", options.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	three := uint32(3)
	spec := apiv3.CalicoNodeStatusSpec{
		Node: "a", Classes: []apiv3.NodeStatusClassType{apiv3.NodeStatusClassTypeBGP, apiv3.NodeStatusClassTypeRoutes}, UpdatePeriodSeconds: &three,
	}
	if diff := cmp.Diff(spec, status.Spec); diff != "" || status.Annotations["moment"] != "m" {
		t.Errorf("Calico reads %v, and another spec: %s", status.Annotations, diff)
	}
	status.Status.LastUpdated = metav1.Now()
	if status, err = w.client.CalicoNodeStatus().Update(ctx, status, options.SetOptions{}); err != nil {
		t.Fatalf("Calico does not take what was written: %v", err)
	}
	filled := w.seen(t, "the answer", func(v BGPView) bool { return len(v.Statuses) == 1 && !v.Statuses[0].Status.LastUpdated.IsZero() })
	if uid := filled.Statuses[0].UID; uid != status.UID {
		t.Errorf("its UID is %s, not %s", uid, status.UID)
	}
	must.Do(t, w.bgp.DeleteStatus(ctx, "q", "another"))
	if _, err := w.client.CalicoNodeStatus().Get(ctx, "q", options.GetOptions{}); err != nil {
		t.Errorf("another one than the one that was meant has been deleted: %v", err)
	}
	must.Do(t, w.bgp.DeleteStatus(ctx, "q", string(status.UID)))
	w.seen(t, "no question", func(v BGPView) bool { return len(v.Statuses) == 0 })
	if err := w.bgp.DeleteStatus(ctx, "q", string(status.UID)); err != nil {
		t.Errorf("what is gone cannot be deleted: %v", err)
	}
}

// The answers of others are not kept: they may hold every route of a node.
func TestOthersQuestions(t *testing.T) {
	t.Parallel()
	w := newBGPWorld(t)
	s := apiv3.NewCalicoNodeStatus()
	period := uint32(10)
	s.Name, s.Spec.Node, s.Spec.UpdatePeriodSeconds = "theirs", "a", &period
	s.Spec.Classes = []apiv3.NodeStatusClassType{apiv3.NodeStatusClassTypeBGP}
	s.Status.LastUpdated = metav1.Now()
	must.Get(w.client.CalicoNodeStatus().Create(t.Context(), s, options.SetOptions{})).Or(t)
	v := w.seen(t, "the status", func(v BGPView) bool { return len(v.Statuses) == 1 })
	if !v.Statuses[0].Status.LastUpdated.IsZero() {
		t.Errorf("kept: %+v", v.Statuses[0].Status)
	}
}

// What Calico refuses while the mesh is off waits in an annotation, and Calico's client takes the object in both states.
func TestMeshInEtcd(t *testing.T) {
	t.Parallel()
	w := newBGPWorld(t)
	ctx := t.Context()
	must.Do(t, w.bgp.SetMesh(ctx, nil, false))
	if err := w.bgp.SetMesh(ctx, nil, true); !errors.Is(err, ErrConflict) {
		t.Errorf("creating it although it is there gave %v", err)
	}
	read := func(on bool) *apiv3.BGPConfiguration {
		t.Helper()
		c := must.Get(w.client.BGPConfigurations().Get(ctx, "default", options.GetOptions{})).Or(t)
		if c.Spec.NodeToNodeMeshEnabled == nil || *c.Spec.NodeToNodeMeshEnabled != on {
			t.Errorf("the mesh is %v, want %t", c.Spec.NodeToNodeMeshEnabled, on)
		}
		return c
	}
	c, on := read(false), true
	c.Spec.NodeToNodeMeshEnabled, c.Spec.LogSeverityScreen = &on, "Debug"
	c.Spec.NodeMeshMaxRestartTime = &metav1.Duration{Duration: 77 * time.Second}
	c.Spec.NodeMeshPassword = &apiv3.BGPPassword{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "bgp"}, Key: "mesh"}}
	before, err := w.client.BGPConfigurations().Update(ctx, c, options.SetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := func(revision string) *apiv3.BGPConfiguration {
		v := w.seen(t, "the configuration", func(v BGPView) bool {
			return len(v.Configurations) == 1 && v.Configurations[0].ResourceVersion == revision
		})
		return &v.Configurations[0]
	}
	must.Do(t, w.bgp.SetMesh(ctx, have(before.ResourceVersion), false))
	off := read(false)
	if off.Spec.NodeMeshPassword != nil || off.Spec.NodeMeshMaxRestartTime != nil || off.Annotations[v1alpha1.MeshAnnotation] == "" || off.Spec.LogSeverityScreen != "Debug" {
		t.Errorf("while it is off Calico reads %+v", off)
	}
	if off, err = w.client.BGPConfigurations().Update(ctx, off, options.SetOptions{}); err != nil {
		t.Fatalf("Calico does not take what was written: %v", err)
	}
	if err := w.bgp.SetMesh(ctx, before, true); !errors.Is(err, ErrConflict) {
		t.Errorf("a change of an older version gave %v", err)
	}
	must.Do(t, w.bgp.SetMesh(ctx, have(off.ResourceVersion), true))
	after := read(true)
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" || after.Annotations[v1alpha1.MeshAnnotation] != "" {
		t.Errorf("afterwards it differs (%v): %s", after.Annotations, diff)
	}
}

// Nothing is written to a datastore that is closed, another cluster's, or nobody's; nor if it is closed between the look and the write.
func TestGuardOfEveryWrite(t *testing.T) {
	t.Parallel()
	w := unboundWorld(t)
	machine(t, w.calico, "a", 1, 0)
	w.follow(t)
	ctx := t.Context()
	writes := func() map[string]error {
		v := w.view(t)
		n := node(v, "a")
		return map[string]error{
			"ChangeNode": w.bgp.ChangeNode(ctx, promotion(n)), "CreatePeer": w.bgp.CreatePeer(ctx, everyOption()), "SetMesh": w.bgp.SetMesh(ctx, nil, false),
			"CreateStatus": w.bgp.CreateStatus(ctx, StatusRequest{Name: "q", Node: "a"}), "DeleteStatus": w.bgp.DeleteStatus(ctx, "q", "u"),
			"DeletePeer": w.bgp.DeletePeer(ctx, "p", "", "1"), "UpdatePeer": w.bgp.UpdatePeer(ctx, everyOption(), "", "1"),
		}
	}
	expect := func(words string) {
		t.Helper()
		at := w.etcd.Revision(t)
		for name, err := range writes() {
			if err == nil || !strings.Contains(err.Error(), words) || errors.Is(err, ErrConflict) {
				t.Errorf("%s: the error is %v, want %q", name, err, words)
			}
		}
		if w.etcd.Revision(t) != at {
			t.Error("something was written")
		}
	}
	expect(`this etcd is bound to the cluster with UID "" and not to this one, "` + thisCluster + `"`)
	info := w.view(t).Informations[0]
	must.Do(t, w.bgp.Bind(ctx, &info))
	if err := w.bgp.Bind(ctx, &info); !errors.Is(err, ErrConflict) {
		t.Errorf("binding it again by what was seen before gave %v", err)
	}
	other := NewBGPEtcd(w.store, "another", clock.RealClock{})
	if err := other.CreatePeer(ctx, everyOption()); err == nil || !strings.Contains(err.Error(), `bound to the cluster with UID "`+thisCluster) {
		t.Errorf("from another cluster the error is %v", err)
	}
	key := bgpKey(apiv3.KindBGPPeer, "late")
	_, seen, err := w.bgp.open(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	w.setReady(t, false)
	if _, err := w.store.commit(ctx, nil, seen, clientv3.OpPut(key, "{}")); !errors.Is(err, ErrConflict) {
		t.Errorf("a write that was begun before the datastore was closed gave %v", err)
	}
	if ready, err := w.bgp.DatastoreReady(ctx); ready || err != nil {
		t.Errorf("it is ready: %t, %v", ready, err)
	}
	expect("datastoreReady=false")
	w.setReady(t, true)
	if ready, err := w.bgp.DatastoreReady(ctx); !ready || err != nil {
		t.Errorf("it is ready: %t, %v", ready, err)
	}
}

func (w *bgpWorld) setReady(t *testing.T, ready bool) {
	t.Helper()
	info := must.Get(w.client.ClusterInformation().Get(t.Context(), "default", options.GetOptions{})).Or(t)
	info.Spec.DatastoreReady = &ready
	must.Get(w.client.ClusterInformation().Update(t.Context(), info, options.SetOptions{})).Or(t)
}

// calico-node's status reporter takes a question from a watch, as it is stored, updates it, and goes by the kind of the error: after a
// conflict it reads the object again and tries again, after any other it tries the same again for ever (Calico v3.31,
// node/pkg/status/reporter.go). One that Calico's own client has created it can never answer.
func TestQuestionsCanBeAnswered(t *testing.T) {
	t.Parallel()
	w := newBGPWorld(t)
	ctx := t.Context()
	stored := func(name string) *apiv3.CalicoNodeStatus {
		t.Helper()
		kv := must.Get(w.calico.Backend().Get(ctx, model.ResourceKey{Kind: apiv3.KindCalicoNodeStatus, Name: name}, "")).Or(t)
		status, ok := kv.Value.(*apiv3.CalicoNodeStatus)
		if !ok {
			t.Fatalf("%T is stored", kv.Value)
		}
		return status
	}
	answer := func(s *apiv3.CalicoNodeStatus) (*apiv3.CalicoNodeStatus, error) {
		out := s.DeepCopy()
		out.Status.LastUpdated = metav1.Now()
		return w.client.CalicoNodeStatus().Update(ctx, out, options.SetOptions{})
	}
	if err := w.bgp.CreateStatus(ctx, StatusRequest{Name: "question", Node: "a", Period: 2 * time.Second, Labels: map[string]string{v1alpha1.TopologyLabel: "main"}}); err != nil {
		t.Fatal(err)
	}
	_, err := answer(stored("question"))
	if _, conflict := errors.AsType[cerrors.ErrorResourceUpdateConflict](err); !conflict {
		t.Fatalf("the first try gives %v, want a conflict, after which the reporter reads again", err)
	}
	now := must.Get(w.client.CalicoNodeStatus().Get(ctx, "question", options.GetOptions{})).Or(t)
	for range 2 { // it goes on from what an update returns
		if now, err = answer(now); err != nil {
			t.Fatal(err)
		}
	}
	w.seen(t, "the answer", func(v BGPView) bool { return len(v.Statuses) == 1 && !v.Statuses[0].Status.LastUpdated.IsZero() })

	usual := now.DeepCopy()
	usual.ObjectMeta, usual.Status = metav1.ObjectMeta{Name: "usual"}, apiv3.CalicoNodeStatusStatus{}
	must.Get(w.client.CalicoNodeStatus().Create(ctx, usual, options.SetOptions{})).Or(t)
	_, err = answer(stored("usual"))
	if _, invalid := errors.AsType[cerrors.ErrorValidation](err); !invalid {
		t.Errorf("Calico's own objects give %v: if Calico's reporter can answer them by now, noRevision is no longer needed", err)
	}
}
