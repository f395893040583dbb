// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) {
	logrus.SetLevel(logrus.PanicLevel)
	testkit.Main(m)
}

// stage is an API server and a real Calico datastore with machines on both sides. The API server is simulated for a change, and real in CI and at
// night. The Nodes of a stage carry its prefix, since stages of one package share the API server.
type stage struct {
	t       *testing.T
	prefix  string
	api     *cluster.Cluster
	etcd    *testkit.Etcd
	calico  *caliconode.Datastore
	store   *calico.Etcd
	cluster *KubernetesCluster
	clock   *clocktesting.FakeClock
	config  nodesync.Config
	agents  map[string]*caliconode.Agent
	state   *ConfigMapState
}

// newStage sets up machines "0" to "n-1" with two pods each, and a watch on the Nodes.
func newStage(t *testing.T, machines int) *stage {
	t.Helper()
	s := &stage{
		t: t, prefix: strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())) + "-", api: cluster.Shared(t),
		etcd: testkit.NewEtcd(t), clock: clocktesting.NewFakeClock(time.Now()), config: nodesync.DefaultConfig(),
		agents: map[string]*caliconode.Agent{},
	}
	if len(s.prefix) > 40 {
		s.prefix = s.prefix[len(s.prefix)-40:]
	}
	s.prefix = "n" + strings.Trim(s.prefix, "-") + "-"
	s.openDatastore()
	for i := range machines {
		s.join(string(rune('0' + i)))
	}
	s.follow()
	if machines > 0 {
		// The first round ever records the cluster; what the tests compare begins after that.
		must.Get(s.reconciler().pass(t.Context())).Or(t)
	}
	return s
}

func (s *stage) openDatastore() {
	s.t.Helper()
	var err error
	if s.store, err = calico.OpenEtcd(calico.EtcdConfig{Endpoints: []string{s.etcd.Endpoint}}); err != nil {
		s.t.Fatal(err)
	}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, s.etcd.Endpoint
	if s.calico, err = caliconode.Connect(*config); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = s.store.Close()
		_ = s.calico.Close()
	})
	must.Do(s.t, s.calico.Initialize(s.t.Context(), "10.244.0.0/16"))
}

// follow starts the watch on Nodes and waits until it is filled.
func (s *stage) follow() {
	s.t.Helper()
	informers := must.Get(cache.New(s.api.Config, cache.Options{Scheme: runtime.NewScheme()})).Or(s.t)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = informers.Start(ctx)
	}()
	s.t.Cleanup(func() { stop(); <-done })
	informer := must.Get(informers.GetInformer(ctx, NodeMetadata())).Or(s.t)
	reader := must.Get(client.New(s.guarded(), client.Options{Scheme: runtime.NewScheme()})).Or(s.t)
	s.cluster = NewKubernetesCluster(reader, s.clock)
	s.state = &ConfigMapState{Client: reader, Namespace: "default", Name: s.prefix + "state"}
	must.Do(s.t, s.cluster.Follow(informer))
	testkit.Eventually(s.t, "the watch on Nodes", func() string {
		if s.cluster.Synced() {
			return ""
		}
		return "not synced"
	})
}

func (s *stage) name(machine string) string { return s.prefix + machine }

// join registers a Node and starts calico-node there, with two pods.
func (s *stage) join(machine string) {
	s.t.Helper()
	name := s.name(machine)
	s.createNode(machine)
	s.startCalicoNode(machine)
	for _, pod := range []string{"a", "b"} {
		must.Get(s.agents[machine].PodNetwork().Add(s.t.Context(), podOn(name, pod))).Or(s.t)
	}
}

func (s *stage) createNode(machine string) {
	s.t.Helper()
	name := s.name(machine)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must.Get(s.api.Client.CoreV1().Nodes().Create(s.t.Context(), node, metav1.CreateOptions{})).Or(s.t)
	s.t.Cleanup(func() { s.dropNode(context.Background(), name) })
}

func (s *stage) startCalicoNode(machine string) {
	s.t.Helper()
	agent := must.Get(s.calico.Start(s.t.Context(), caliconode.Host{
		Name: s.name(machine), KubernetesNode: s.name(machine), Address: netip.AddrFrom4([4]byte{172, 30, 0, machine[0]}), IPIP: true,
	})).Or(s.t)
	s.agents[machine] = agent
}

func podOn(node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: node + "-" + name, UID: types.UID("uid-" + node + name)},
		Spec:       corev1.PodSpec{NodeName: node, ServiceAccountName: "default"},
	}
}

// leave deletes the Node of a machine that is gone, and waits until the watch has seen it go.
func (s *stage) leave(machine string) {
	s.t.Helper()
	name := s.name(machine)
	s.dropNode(s.t.Context(), name)
	testkit.Eventually(s.t, "the watch to see the Node go", func() string {
		for _, sighting := range s.cluster.Sightings() {
			if sighting.Node == name {
				return ""
			}
		}
		return "not yet"
	})
}

func (s *stage) dropNode(ctx context.Context, name string) {
	err := s.api.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
}

// reconciler is a controller that has just started, a process of its own: what several share is in the servers.
func (s *stage) reconciler() *Reconciler {
	state := &ConfigMapState{Client: s.state.Client, Namespace: s.state.Namespace, Name: s.state.Name}
	return &Reconciler{
		Datastore: s.store, Cluster: s.cluster, State: state, Config: s.config, Writes: Writes(), Clock: s.clock, Log: logr.Discard(),
		Metrics: NewMetrics(prometheus.NewRegistry()), Wake: s.cluster.Wake(),
	}
}

// pass is a round as Start makes it: one that serves requests.
func (r *Reconciler) pass(ctx context.Context) (time.Duration, error) {
	done := reconcile.New(r.serving()).Round(ctx, reconcile.Only)
	return done.Plan.Next, done.Err
}

// settle runs rounds, with the time that they ask for in between, until one has nothing more to do, and fails if that takes too many.
func (s *stage) settle(r *Reconciler) {
	s.t.Helper()
	quiet := 0
	for range 40 {
		before := s.etcd.Revision(s.t)
		next := must.Get(r.pass(s.t.Context())).Or(s.t)
		if next >= r.Config.Resync && s.etcd.Revision(s.t) == before {
			quiet++
		}
		if quiet > 2 {
			return
		}
		s.clock.Step(next)
	}
	s.t.Fatal("the controller does not come to rest")
}

// passTime runs rounds with the time they ask for in between.
func (s *stage) passTime(r *Reconciler, rounds int) {
	s.t.Helper()
	for range rounds {
		s.clock.Step(must.Get(r.pass(s.t.Context())).Or(s.t))
	}
}

// expectUnchanged fails unless the datastore is as the dump, but for what the named machines left.
func (s *stage) expectUnchanged(want map[string]string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.etcd.Dump(s.t)); diff != "" {
		s.t.Errorf("the datastore differs (-want +got):\n%s", diff)
	}
}
