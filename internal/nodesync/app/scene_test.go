// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// scene is a real API server and a real Calico datastore with machines on both sides. Scenes share the API server, so each has names of its own.
type scene struct {
	t       *testing.T
	prefix  string
	cluster *controlplane.Cluster
	etcd    *testkit.Etcd
	calico  *caliconode.Datastore
	agents  map[string]*caliconode.Agent
}

// newScene sets up machines "0" to "n-1", each with a Kubernetes Node, a started calico-node and a pod's address.
func newScene(t *testing.T, prefix string, machines int) *scene {
	t.Helper()
	logrus.SetLevel(logrus.PanicLevel)
	s := &scene{t: t, prefix: prefix + "-", cluster: controlplane.Shared(t), etcd: testkit.NewEtcd(t), agents: map[string]*caliconode.Agent{}}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, s.etcd.Endpoint
	store := must.Get(caliconode.Connect(*config)).Or(t)
	s.calico = store
	t.Cleanup(func() { _ = store.Close() })
	must.Do(t, store.Initialize(t.Context(), "10.244.0.0/16"))
	for i := range machines {
		s.join(fmt.Sprint(i))
	}
	return s
}

func (s *scene) name(machine string) string { return s.prefix + machine }

func (s *scene) join(machine string) {
	s.t.Helper()
	name := s.name(machine)
	s.createNode(name)
	agent := s.start(machine, name)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-pod", UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: name, ServiceAccountName: "default"},
	}
	must.Get(agent.PodNetwork().Add(s.t.Context(), pod)).Or(s.t)
}

func (s *scene) createNode(name string) {
	s.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must.Get(s.cluster.Client.CoreV1().Nodes().Create(s.t.Context(), node, metav1.CreateOptions{})).Or(s.t)
	s.t.Cleanup(func() { s.drop(context.Background(), name) })
}

// start is calico-node starting on a machine; nodeRef is the Kubernetes Node that it says it is, "" for none.
func (s *scene) start(machine, nodeRef string) *caliconode.Agent {
	s.t.Helper()
	agent, err := s.calico.Start(s.t.Context(), caliconode.Host{
		Name: s.name(machine), KubernetesNode: nodeRef, Address: netip.AddrFrom4([4]byte{172, 30, byte(len(s.agents) / 250), byte(len(s.agents)%250 + 1)}), IPIP: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.agents[machine] = agent
	return agent
}

// leave deletes the Kubernetes Nodes of machines.
func (s *scene) leave(machines ...string) {
	s.t.Helper()
	for _, m := range machines {
		s.drop(s.t.Context(), s.name(m))
	}
}

func (s *scene) drop(ctx context.Context, name string) {
	if err := s.cluster.Client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
}

func (s *scene) env() []string { return []string{"ETCD_ENDPOINTS=" + s.etcd.Endpoint} }

// run runs a command of the program against the scene.
func (s *scene) run(name string, args ...string) (int, string) {
	s.t.Helper()
	return program(s.t, s.env(), append([]string{name, "--kubeconfig", s.cluster.Kubeconfig}, args...)...)
}

// left are the keys of Calico's datastore that name a machine.
func (s *scene) left(machine string) []string {
	s.t.Helper()
	var keys []string
	for key, value := range s.etcd.Dump(s.t) {
		if strings.Contains(key, s.name(machine)) || strings.Contains(strings.ReplaceAll(key, "--", "-"), s.name(machine)) ||
			strings.Contains(value, `"`+s.name(machine)+`"`) {
			keys = append(keys, key)
		}
	}
	return keys
}

// expectRevision fails unless the store is where it was.
func (s *scene) expectRevision(want int64, when string) {
	s.t.Helper()
	if got := s.etcd.Revision(s.t); got != want {
		s.t.Errorf("%s: the store moved from revision %d to %d", when, want, got)
	}
}

// reader reads the cluster live.
func reader(t *testing.T, cluster *controlplane.Cluster) client.Reader {
	t.Helper()
	live := must.Get(client.New(cluster.Config, client.Options{Scheme: runtime.NewScheme()})).Or(t)
	return live
}
