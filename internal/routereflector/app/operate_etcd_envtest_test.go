// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	calicooptions "github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/sim/calicostatus"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// The program itself on Calico's etcd, by its environment: it enables a topology in a cluster that serves none of Calico's kinds.
func TestOperateOnEtcd(t *testing.T) {
	t.Parallel()
	cluster, etcd := controlplane.New(t), testkit.NewEtcd(t)
	cluster.InstallCRDs(t, controlplane.OwnKind(t, "routereflectortopologies"))
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, etcd.Endpoint
	libcalico, err := clientv3.New(*config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = libcalico.Close() }()
	if err := libcalico.EnsureInitialized(t.Context(), "v3.31.0", "k8s,bgp"); err != nil {
		t.Fatal(err)
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cluster.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		makeNodeInBoth(t, c, libcalico, i)
	}
	ctx, stop := context.WithCancel(t.Context())
	sim, err := calicostatus.Start(ctx, calicostatus.Options{Etcd: libcalico, Up: 100 * time.Millisecond, Answer: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	program := testkit.Start(t, filepath.Join(t.TempDir(), "log"), []string{"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + etcd.Endpoint},
		testkit.Binary(t, Component), "--kubeconfig", cluster.Kubeconfig, "--metrics-bind-address", "0", "--health-probe-bind-address", "0",
		"--settle-period", "1s", "--coalesce-period", "50ms", "--leader-elect", "--leader-election-namespace", "default")
	topology := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	v1alpha1.SetDefaults(topology)
	if err := c.Create(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the topology to be Ready", func() string {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(topology), topology); err != nil {
			return err.Error()
		}
		if topology.Status.Phase == v1alpha1.PhaseReady {
			return ""
		}
		status, _ := yaml.Marshal(topology.Status)
		return string(status) + program.Output()
	})
	reflectors := 0
	nodes, err := libcalico.Nodes().List(t.Context(), calicooptions.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		if n.Spec.BGP.RouteReflectorClusterID != "" && n.Labels[v1alpha1.ReflectorLabel] == "main" {
			reflectors++
		}
	}
	if reflectors != 3 {
		t.Errorf("there are %d reflectors", reflectors)
	}
	program.Signal(syscall.SIGTERM)
	<-program.Done()
	if code := program.ExitCode(); code != 0 || !strings.Contains(program.Output(), "etcdv3") {
		t.Errorf("it ended with exit code %d:\n%s", code, program.Output())
	}
	stop()
	sim.Wait()
}

// makeNodeInBoth makes a Ready Node, and its Calico Node as calico-node does.
func makeNodeInBoth(t *testing.T, c client.Client, libcalico clientv3.Interface, i int) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}}
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(clock.RealClock{}.Now().Add(-time.Hour)),
	}}
	if err := c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	n := libapiv3.NewNode()
	n.Name = node.Name
	n.Spec = libapiv3.NodeSpec{
		OrchRefs: []libapiv3.OrchRef{{NodeName: node.Name, Orchestrator: "k8s"}},
		BGP:      &libapiv3.NodeBGPSpec{IPv4Address: fmt.Sprintf("10.0.0.%d/24", i+1)},
	}
	if _, err := libcalico.Nodes().Create(t.Context(), n, calicooptions.SetOptions{}); err != nil {
		t.Fatal(err)
	}
}
