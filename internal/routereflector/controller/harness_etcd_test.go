// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// stageMaker makes a stage with so many nodes.
type stageMaker func(t *testing.T, nodes int) *stage

// inBoth runs a test in each of Calico's datastores; for a change alone in etcd, as most tests that are not run in both use the other.
func inBoth(t *testing.T, test func(t *testing.T, newStage stageMaker)) {
	t.Helper()
	if cases.Number(t, 1, 2, 2) == 2 {
		t.Run("kubernetes", func(t *testing.T) {
			t.Parallel()
			test(t, newStage)
		})
	}
	t.Run("etcdv3", func(t *testing.T) {
		t.Parallel()
		test(t, newEtcdStage)
	})
}

// newEtcdStage is a cluster whose Calico keeps its data in an etcd of its own.
func newEtcdStage(t *testing.T, nodes int) *stage {
	t.Helper()
	return etcdStageOn(t, cluster.Lend(t)).with(nodes)
}

func etcdStageOn(t *testing.T, on *cluster.Cluster) *stage {
	t.Helper()
	s := &stage{t: t, cluster: on, etcd: testkit.NewEtcd(t)}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, s.etcd.Endpoint
	s.open(config, etcdScheme())
	return s
}

// etcdScheme knows none of Calico's kinds.
func etcdScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	_ = corev1.AddToScheme(scheme)
	_ = v1alpha1.AddToScheme(scheme)
	return scheme
}

// calicoName is the name of a Node in Calico, which here is another one than in Kubernetes for each third.
func (s *stage) calicoName(i int) string {
	if s.etcd != nil && i%3 == 2 {
		return "calico-" + nodeName(i)
	}
	return nodeName(i)
}

// makeCalicoNode does what calico-node and kube-controllers do for a Node.
func (s *stage) makeCalicoNode(name string, node *corev1.Node, address string) {
	s.t.Helper()
	n := libapiv3.NewNode()
	n.Name, n.Labels = name, maps.Clone(node.Labels)
	n.Annotations = map[string]string{"projectcalico.org/kube-labels": "{}"}
	n.Spec = libapiv3.NodeSpec{
		OrchRefs: []libapiv3.OrchRef{{NodeName: node.Name, Orchestrator: "k8s"}}, BGP: &libapiv3.NodeBGPSpec{IPv4Address: address},
	}
	if _, err := s.calico.Nodes().Create(s.t.Context(), n, options.SetOptions{}); err != nil {
		s.t.Error(err)
	}
}

// calicoNodes are the nodes as Calico reads them.
func (s *stage) calicoNodes() []libapiv3.Node {
	s.t.Helper()
	list, err := s.calico.Nodes().List(s.t.Context(), options.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// peers are the BGPPeers as Calico reads them.
func (s *stage) peers() []calicov3.BGPPeer {
	s.t.Helper()
	list, err := s.calico.BGPPeers().List(s.t.Context(), options.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

// pause is a moment for the others.
func (s *stage) pause() <-chan time.Time { return clock.RealClock{}.After(20 * time.Millisecond) }

// openEtcd is a program's own way to the datastore.
func (s *stage) openEtcd(ctx context.Context, p *cluster.Program) *etcdOf {
	s.t.Helper()
	etcd, err := calico.OpenEtcd(calico.EtcdConfig{Endpoints: []string{s.etcd.Endpoint}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = etcd.Close() })
	bgp := calico.NewBGPEtcd(etcd, s.clusterUID(ctx), clock.RealClock{})
	return &etcdOf{EtcdDatastore: &EtcdDatastore{BGPEtcd: bgp, Clock: clock.RealClock{}}, program: p}
}

func (s *stage) clusterUID(ctx context.Context) string {
	s.t.Helper()
	namespace, err := s.cluster.Client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return string(namespace.UID)
}

// etcdOf is the datastore as a program sees it. Each write of it is one transaction.
type etcdOf struct {
	*EtcdDatastore

	program *cluster.Program
}

func (d *etcdOf) DatastoreReady(ctx context.Context) (ready bool, err error) {
	err = d.program.Call("GET /etcd/clusterinformations/default", func() error {
		ready, err = d.EtcdDatastore.DatastoreReady(ctx)
		return err
	})
	return ready, err
}

func (d *etcdOf) Unchanged(ctx context.Context, v calico.BGPView, nodes []routereflector.Node, object string) error {
	return d.program.Call("GET /etcd/nodes", func() error { return d.EtcdDatastore.Unchanged(ctx, v, nodes, object) })
}

func (d *etcdOf) Claim(ctx context.Context, v calico.BGPView, b *routereflector.Binding) error {
	if b.Recorded != "" {
		return d.EtcdDatastore.Claim(ctx, v, b) // no request
	}
	return d.program.Call("PUT /etcd/clusterinformations/default", func() error { return d.EtcdDatastore.Claim(ctx, v, b) })
}

func (d *etcdOf) ChangeNode(ctx context.Context, c calico.NodeChange) error {
	return d.program.Call("PUT /etcd/nodes/"+c.Node, func() error { return d.EtcdDatastore.ChangeNode(ctx, c) })
}

func (d *etcdOf) CreatePeer(ctx context.Context, p routereflector.Peer) error {
	return d.program.Call("PUT /etcd/bgppeers/"+p.Name, func() error { return d.EtcdDatastore.CreatePeer(ctx, p) })
}

func (d *etcdOf) UpdatePeer(ctx context.Context, p routereflector.Peer, uid, version string) error {
	return d.program.Call("PUT /etcd/bgppeers/"+p.Name, func() error { return d.EtcdDatastore.UpdatePeer(ctx, p, uid, version) })
}

func (d *etcdOf) DeletePeer(ctx context.Context, name, uid, version string) error {
	return d.program.Call("DELETE /etcd/bgppeers/"+name, func() error { return d.EtcdDatastore.DeletePeer(ctx, name, uid, version) })
}

func (d *etcdOf) SetMesh(ctx context.Context, have *calicov3.BGPConfiguration, on bool) error {
	return d.program.Call("PUT /etcd/bgpconfigurations/default", func() error { return d.EtcdDatastore.SetMesh(ctx, have, on) })
}

func (d *etcdOf) CreateStatus(ctx context.Context, r calico.StatusRequest) error {
	return d.program.Call("PUT /etcd/caliconodestatuses/"+r.Name, func() error { return d.EtcdDatastore.CreateStatus(ctx, r) })
}

func (d *etcdOf) DeleteStatus(ctx context.Context, name, uid string) error {
	return d.program.Call("DELETE /etcd/caliconodestatuses/"+name, func() error { return d.EtcdDatastore.DeleteStatus(ctx, name, uid) })
}
