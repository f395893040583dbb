// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs with it
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/manager"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/sim/calicostatus"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

func TestMain(m *testing.M) {
	logrus.SetLevel(logrus.PanicLevel)
	ctrllog.SetLogger(logr.Discard())
	testkit.Main(m)
}

// stage is a cluster with Calico's kinds, ours, and nodes with calico-node on them, for one test, which has the cluster to itself: the kinds
// are cluster-scoped. For a change it is simulated.
type stage struct {
	t       *testing.T
	cluster *cluster.Cluster
	// config is how operators reach the cluster.
	config *rest.Config
	client client.Client
	calico clientv3.Interface
	sim    *calicostatus.Simulator
	// etcd is Calico's datastore where that is etcdv3, else nil.
	etcd *testkit.Etcd
	// narrow wraps what operators use, nil for nothing.
	narrow func(Datastore) Datastore
	// log is that of operators.
	log logr.Logger
}

// timing is [DefaultTiming] in haste. The simulator is quicker still.
func timing() Timing {
	return Timing{Coalesce: 20 * time.Millisecond, Settle: 300 * time.Millisecond, Poll: 100 * time.Millisecond, Resync: 500 * time.Millisecond, MeshStays: 2 * time.Second}
}

const (
	sessionsUp = 200 * time.Millisecond
	answer     = 50 * time.Millisecond
)

func newStage(t *testing.T, nodes int) *stage {
	t.Helper()
	return emptyStage(t, cluster.Lend(t)).with(nodes)
}

// newRealStage is newStage where the test is about what only a real API server does: it authorizes.
func newRealStage(t *testing.T, nodes int) *stage {
	t.Helper()
	return emptyStage(t, cluster.Real(t)).with(nodes)
}

// with adds nodes and the simulator.
func (s *stage) with(nodes int) *stage {
	s.t.Helper()
	s.makeNodes(nodes)
	s.simulate()
	return s
}

// emptyStage has no nodes and no simulator.
func emptyStage(t *testing.T, on *cluster.Cluster) *stage {
	t.Helper()
	on.Serve(t, controlplane.CalicoCRDs(t)...)
	b, err := calico.OpenBGP(t.Context(), on.Config)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, cluster: on}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.Kubeconfig, config.Spec.K8sClientQPS = apiconfig.Kubernetes, on.Kubeconfig(t), 1000
	s.open(config, schemeOf(b))
	return s
}

// open serves our kind, clears the cluster before and after, and connects to Calico's datastore.
func (s *stage) open(config *apiconfig.CalicoAPIConfig, scheme *runtime.Scheme) {
	s.t.Helper()
	s.config = s.cluster.Config
	s.cluster.Serve(s.t, controlplane.OwnKind(s.t, "routereflectortopologies"))
	var err error
	if s.client, err = client.New(s.config, client.Options{Scheme: scheme}); err != nil {
		s.t.Fatal(err)
	}
	if !s.cluster.Simulated() {
		s.clear(s.t.Context())
		s.t.Cleanup(func() { s.clear(context.WithoutCancel(s.t.Context())) })
	}
	if s.calico, err = clientv3.New(*config); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.calico.Close() })
	if err := s.calico.EnsureInitialized(s.t.Context(), "v3.31.0", "k8s,bgp"); err != nil {
		s.t.Fatal(err)
	}
}

func schemeOf(b *calico.BGPKubernetes) *runtime.Scheme {
	scheme := runtime.NewScheme()
	_ = corev1.AddToScheme(scheme)
	_ = v1alpha1.AddToScheme(scheme)
	b.AddToScheme(scheme)
	return scheme
}

// clear removes everything that a test may have left.
func (s *stage) clear(ctx context.Context) {
	s.t.Helper()
	var topologies v1alpha1.RouteReflectorTopologyList
	if err := s.client.List(ctx, &topologies); err != nil {
		s.t.Fatal(err)
	}
	for i := range topologies.Items {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		_ = s.client.Patch(ctx, &topologies.Items[i], patch)
	}
	kinds := Informers()
	if s.etcd != nil {
		kinds = EtcdInformers()
	}
	for _, kind := range kinds {
		if err := s.client.DeleteAllOf(ctx, kind); err != nil {
			s.t.Fatal(err)
		}
	}
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// makeNodes creates Nodes as kubelets and calico-node do, in three zones, Ready for long.
func (s *stage) makeNodes(count int) {
	s.t.Helper()
	var wg sync.WaitGroup
	work := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range work {
				s.makeNode(i)
			}
		})
	}
	for i := range count {
		work <- i
	}
	close(work)
	wg.Wait()
}

func (s *stage) makeNode(i int) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: nodeName(i),
		Labels: map[string]string{
			corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelHostname: nodeName(i), corev1.LabelOSStable: "linux",
		},
	}}
	address := fmt.Sprintf("10.%d.%d.%d/8", 1+i>>16, i>>8&255, i&255)
	if s.etcd != nil {
		s.makeCalicoNode(s.calicoName(i), node, address)
	} else {
		node.Annotations = map[string]string{routereflector.IPv4Annotation: address}
	}
	if err := s.client.Create(s.t.Context(), node); err != nil {
		s.t.Error(err)
		return
	}
	s.setReady(node, corev1.ConditionTrue, time.Hour)
}

func (s *stage) now() time.Time { return clock.RealClock{}.Now() }

// setReady sets a Node's condition as of some time ago.
func (s *stage) setReady(node *corev1.Node, status corev1.ConditionStatus, ago time.Duration) {
	s.t.Helper()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(clock.RealClock{}.Now().Add(-ago)),
	}}
	if err := s.client.Status().Update(s.t.Context(), node); err != nil {
		s.t.Error(err)
	}
}

// simulate starts calico-node on all nodes. It writes as calico-node does, with libcalico-go.
func (s *stage) simulate() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	write := func(ctx context.Context, status *calicov3.CalicoNodeStatus) error {
		have, err := s.calico.CalicoNodeStatus().Get(ctx, status.Name, options.GetOptions{})
		if err != nil {
			return err
		}
		have.Status = status.Status
		_, err = s.calico.CalicoNodeStatus().Update(ctx, have, options.SetOptions{})
		return err
	}
	o := calicostatus.Options{Config: s.cluster.Config, Up: sessionsUp, Answer: answer, Write: write}
	if s.etcd != nil {
		o.Etcd = s.calico
	}
	sim, err := calicostatus.Start(ctx, o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.sim = sim
	s.t.Cleanup(func() { cancel(); sim.Wait() })
}

// process is a running operator.
type process struct {
	done    chan struct{}
	program *cluster.Program
	reader  client.Reader
	metrics *prometheus.Registry
}

// stop ends it and waits.
func (p *process) stop() {
	p.program.Stop()
	<-p.done
}

// start runs the operator. configure may change it before.
func (s *stage) start(configure ...func(*Reconciler, *cluster.Program)) *process {
	s.t.Helper()
	program := cluster.NewProgram(s.t, s.config, cluster.Death{})
	ctx, config := program.Context(), program.Config()
	p := &process{done: make(chan struct{}), program: program, metrics: prometheus.NewRegistry()}
	r := &Reconciler{Timing: timing(), Clock: clock.RealClock{}, Metrics: NewMetrics(p.metrics)}
	for _, f := range configure {
		f(r, program)
	}
	config.Wrap(r.Mode.Transport(nil, nil))
	mgr := s.manage(ctx, p, r, config)
	r.Reader, r.Live, r.Client, p.reader = mgr.GetCache(), mgr.GetAPIReader(), mgr.GetClient(), mgr.GetCache()
	if r.Workloads != nil {
		if err := mgr.Add(r.Workloads); err != nil {
			s.t.Fatal(err)
		}
	}
	if s.narrow != nil {
		r.Calico = s.narrow(r.Calico)
	}
	if err := r.SetupWithManager(mgr); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = mgr.Start(ctx)
	}()
	s.t.Cleanup(p.stop)
	return p
}

// manage makes the manager of an operator, and its way to Calico's datastore.
func (s *stage) manage(ctx context.Context, p *process, r *Reconciler, config *rest.Config) *manager.Manager {
	s.t.Helper()
	o := manager.DefaultOptions("")
	o.MetricsBindAddress, o.HealthProbeBindAddress = manager.Disabled, manager.Disabled
	if s.etcd != nil {
		mgr, err := manager.New(ctx, o, config, manager.Config{
			Component: "test", Logger: s.log, Scheme: etcdScheme(), Cache: EtcdCacheOptions(), Informers: EtcdInformers(),
		})
		if err != nil {
			s.t.Fatal(err)
		}
		store := s.openEtcd(ctx, p.program)
		if err := mgr.Add(store.BGPEtcd); err != nil {
			s.t.Fatal(err)
		}
		r.Calico = store
		return mgr
	}
	bgp, err := calico.OpenBGP(ctx, config)
	if err != nil {
		s.t.Fatal(err)
	}
	mgr, err := manager.New(ctx, o, config, manager.Config{
		Component: "test", Logger: s.log, Scheme: schemeOf(bgp), Cache: CacheOptions(), Informers: Informers(),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	r.Calico = &KubernetesDatastore{BGPKubernetes: bgp, Reader: mgr.GetCache(), Live: mgr.GetAPIReader(), Client: mgr.GetClient()}
	return mgr
}

// create creates a topology with a spec as YAML, or an empty one.
func (s *stage) create(name, spec string) *v1alpha1.RouteReflectorTopology {
	s.t.Helper()
	topology := &v1alpha1.RouteReflectorTopology{}
	if err := yaml.UnmarshalStrict([]byte(spec), &topology.Spec); err != nil {
		s.t.Fatal(err)
	}
	topology.Name = name
	// The fields without omitempty would be sent as null otherwise, so that the API server fills in no default.
	v1alpha1.SetDefaults(topology)
	if err := s.client.Create(s.t.Context(), topology); err != nil {
		s.t.Fatal(err)
	}
	return topology
}

func (s *stage) topology(name string) *v1alpha1.RouteReflectorTopology {
	s.t.Helper()
	topology := &v1alpha1.RouteReflectorTopology{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: name}, topology); err != nil {
		s.t.Fatal(err)
	}
	return topology
}

// changes are those of roles and of the mesh in their order. What is written is seen a moment later: it waits until there are at least as
// many as least.
func (s *stage) changes(least int) (seen []calicostatus.Change) {
	s.t.Helper()
	testkit.Eventually(s.t, fmt.Sprintf("%d changes", least), func() string {
		if seen = s.sim.Changes(); len(seen) >= least {
			return ""
		}
		return fmt.Sprintf("%+v", seen)
	})
	return seen
}

// await waits for a phase.
func (s *stage) await(name string, phase v1alpha1.Phase) *v1alpha1.RouteReflectorTopology {
	s.t.Helper()
	var topology *v1alpha1.RouteReflectorTopology
	testkit.Eventually(s.t, fmt.Sprintf("RouteReflectorTopology %s to be %s", name, phase), func() string {
		topology = s.topology(name)
		if topology.Status.Phase == phase && topology.Status.ObservedGeneration == topology.Generation {
			return ""
		}
		text, _ := json.Marshal(topology.Status) // not YAML, which takes longer than all else that a look does
		return string(text)
	})
	return topology
}

// reflectors are the nodes that are reflectors by their cluster ID in Calico, sorted.
func (s *stage) reflectors() []string {
	s.t.Helper()
	var nodes corev1.NodeList
	if err := s.client.List(s.t.Context(), &nodes); err != nil {
		s.t.Fatal(err)
	}
	var out []string
	judge := func(name string, labels map[string]string, id string) {
		labeled := labels[v1alpha1.ReflectorLabel] != ""
		if id != "" {
			out = append(out, name)
			if !labeled {
				s.t.Errorf("%s has a cluster ID and no label", name)
			}
		} else if labeled {
			s.t.Errorf("%s has a label and no cluster ID", name)
		}
	}
	for _, n := range nodes.Items {
		judge(n.Name, n.Labels, n.Annotations[routereflector.ClusterIDAnnotation])
	}
	if s.etcd != nil {
		if len(out) > 0 {
			s.t.Errorf("the Kubernetes Nodes %v were written, and Calico does not read them", out)
		}
		for _, n := range s.calicoNodes() {
			judge(n.Name, n.Labels, n.Spec.BGP.RouteReflectorClusterID)
		}
	}
	slices.Sort(out)
	return out
}

// mesh reports whether the mesh is on, as Calico reads it.
func (s *stage) mesh() bool {
	s.t.Helper()
	c := s.configuration()
	return c == nil || c.Spec.NodeToNodeMeshEnabled == nil || *c.Spec.NodeToNodeMeshEnabled
}

func (s *stage) configuration() *calicov3.BGPConfiguration {
	s.t.Helper()
	if s.calico == nil {
		c := &calicov3.BGPConfiguration{}
		if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: "default"}, c); client.IgnoreNotFound(err) != nil {
			s.t.Fatal(err)
		}
		return c
	}
	c, err := s.calico.BGPConfigurations().Get(s.t.Context(), "default", options.GetOptions{})
	if err != nil && strings.Contains(err.Error(), "does not exist") {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}
