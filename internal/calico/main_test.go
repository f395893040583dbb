// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"net/netip"
	"os"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) {
	if os.Getenv("MOORING_TEST_CALICO_LOG") == "" {
		logrus.SetLevel(logrus.PanicLevel)
	}
	testkit.Main(m)
}

// world is a datastore with machines in it, as calico-node and the CNI plugin leave it.
type world struct {
	etcd   *testkit.Etcd
	store  *Etcd
	calico *caliconode.Datastore
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{etcd: testkit.NewEtcd(t)}
	var err error
	if w.store, err = OpenEtcd(EtcdConfig{Endpoints: []string{w.etcd.Endpoint}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	w.calico = connect(t, w.etcd)
	return w
}

func connect(t *testing.T, etcd *testkit.Etcd) *caliconode.Datastore {
	t.Helper()
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType = apiconfig.EtcdV3
	config.Spec.EtcdEndpoints = etcd.Endpoint
	store := must.Get(caliconode.Connect(*config)).Or(t)
	t.Cleanup(func() { _ = store.Close() })
	pool6 := caliconode.Pool{CIDR: "fd00:10:244::/64", Encapsulation: caliconode.VXLAN}
	pool4 := caliconode.Pool{Name: "vxlan", CIDR: "10.245.0.0/16", Encapsulation: caliconode.VXLAN}
	must.Do(t, store.Initialize(t.Context(), "10.244.0.0/16", pool6, pool4))
	return store
}

// machine starts calico-node on a machine with every kind of tunnel and connects pods.
func machine(t *testing.T, store *caliconode.Datastore, name string, last byte, pods int) *caliconode.Agent {
	t.Helper()
	agent := must.Get(store.Start(t.Context(), caliconode.Host{
		Name: name, KubernetesNode: name, Address: netip.AddrFrom4([4]byte{172, 30, 0, last}),
		IPIP: true, VXLAN: true, VXLANv6: true, Wireguard: true, WireguardV6: true,
	})).Or(t)
	for i := range pods {
		must.Get(agent.PodNetwork().Add(t.Context(), pod(name, i))).Or(t)
	}
	return agent
}

func pod(host string, i int) *corev1.Pod {
	name := host + "-pod-" + string(rune('a'+i))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: host, ServiceAccountName: "default"},
	}
}
