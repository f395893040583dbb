// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"context"
	"flag"
	"os"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/apitesting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// TestMain lets more tests run at once than there are processors: nearly all of them only wait, for a second or for ten.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

// directVariable, if set, leaves the proxy out: what fails then as well is the test's doing.
const directVariable = "MOORING_FIDELITY_DIRECT"

// valuePrefix stands before each stored value; the tests change it to make values that cannot be read.
const valuePrefix = "test!"

var (
	scheme = newScheme()
	codec  = apitesting.TestCodec(serializer.NewCodecFactory(scheme), examplev1.SchemeGroupVersion)
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(s))
	utilruntime.Must(examplev1.AddToScheme(s))
	return s
}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

// newClient returns a client of a tenant of its own, as API servers make one.
func newClient(t *testing.T) *kubernetes.Client {
	t.Helper()
	endpoint, _ := tenantproxy.StartEtcd(t, false)
	if os.Getenv(directVariable) == "" {
		cfg := must.Get(tenantproxy.Configure(endpoint, "/fidelity/a-tenant/", "a-tenant")).Or(t)
		cfg.SystemPrefix = "" // a record of the compact revision is a write, and some tests count writes
		endpoint = tenantproxy.Serve(t, cfg)
	}
	client := must.Get(kubernetes.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})).Or(t)
	t.Cleanup(func() { _ = client.Close() })
	lists := storagetesting.NewKubernetesRecorder(client.Kubernetes)
	client.KV, client.Kubernetes = storagetesting.NewKVRecorder(client.KV, lists), lists
	return client
}

// transformer is one whose working the tests exchange while the store holds on to it.
type transformer struct {
	now atomic.Pointer[value.Transformer]
}

func newTransformer() *transformer {
	t := &transformer{}
	t.set(storagetesting.NewPrefixTransformer([]byte(valuePrefix), false))
	return t
}

func (t *transformer) set(now value.Transformer) { t.now.Store(&now) }
func (t *transformer) get() value.Transformer    { return *t.now.Load() }

func (t *transformer) TransformFromStorage(ctx context.Context, data []byte, about value.Context) ([]byte, bool, error) {
	return t.get().TransformFromStorage(ctx, data, about)
}

func (t *transformer) TransformToStorage(ctx context.Context, data []byte, about value.Context) ([]byte, error) {
	return t.get().TransformToStorage(ctx, data, about)
}

// A store is an etcd3 store over a tenant of its own.
type store struct {
	storage.Interface
	client      *kubernetes.Client
	transformer *transformer
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{client: newClient(t), transformer: newTransformer()}
	versioner := storage.APIObjectVersioner{}
	compactor := etcd3.NewCompactor(s.client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	made, err := etcd3.New(s.client, compactor, codec, newPod, newPodList, "", "/pods/", schema.GroupResource{Resource: "pods"}, s.transformer,
		etcd3.LeaseManagerConfig{ReuseDurationSeconds: 1, MaxObjectCount: 1000}, etcd3.NewDefaultDecoder(codec, versioner), versioner)
	must.Do(t, err)
	t.Cleanup(made.Close)
	s.Interface = made
	return s
}

// UpdatePrefixTransformer makes storagetesting.InterfaceWithPrefixTransformer of the store.
func (s *store) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	original := s.transformer.get().(*storagetesting.PrefixTransformer)
	changed := *original // its counters are copied while nobody counts
	s.transformer.set(modify(&changed))
	return func() { s.transformer.set(original) }
}

// reads returns how many objects were decoded since it was asked last.
func (s *store) reads() uint64 {
	return s.transformer.get().(*storagetesting.PrefixTransformer).GetReadsAndReset()
}
