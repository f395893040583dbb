// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/sim/calicostatus"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// The program itself, by its command line: it enables a topology and says so in Events.
func TestOperate(t *testing.T) { //nolint:paralleltest // the kinds are cluster-scoped
	cluster := controlplane.Shared(t)
	cluster.InstallCalicoCRDs(t)
	cluster.InstallCRDs(t, controlplane.OwnKind(t, "routereflectortopologies"))
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.Kubeconfig = apiconfig.Kubernetes, cluster.Kubeconfig
	libcalico, err := clientv3.New(*config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = libcalico.Close() }()
	if err := libcalico.EnsureInitialized(t.Context(), "v3.31.0", "k8s,bgp"); err != nil {
		t.Fatal(err)
	}
	bgp, err := calico.OpenBGP(t.Context(), cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	bgp.AddToScheme(scheme)
	c, err := client.New(cluster.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-%d", i), Annotations: map[string]string{routereflector.IPv4Annotation: fmt.Sprintf("10.0.0.%d/24", i+1)},
		}}
		if err := c.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(clock.RealClock{}.Now().Add(-time.Hour)),
		}}
		if err := c.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	sim, err := calicostatus.Start(ctx, calicostatus.Options{Config: cluster.Config, Up: 100 * time.Millisecond, Answer: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	// A process of its own, as the program takes over the log of the whole process.
	program := testkit.Start(t, filepath.Join(t.TempDir(), "log"), nil, testkit.Binary(t, Component),
		"--kubeconfig", cluster.Kubeconfig, "--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--settle-period", "1s",
		"--coalesce-period", "50ms", "--leader-elect", "--leader-election-namespace", "default")
	testkit.Eventually(t, "the kind to be served and a topology to be created", func() string {
		topology := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
		v1alpha1.SetDefaults(topology)
		if err := c.Create(t.Context(), topology); err != nil {
			return err.Error()
		}
		return ""
	})
	testkit.Eventually(t, "the topology to be Ready", func() string {
		topology := &v1alpha1.RouteReflectorTopology{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "main"}, topology); err != nil {
			return err.Error()
		}
		if topology.Status.Phase == v1alpha1.PhaseReady {
			return ""
		}
		status, _ := yaml.Marshal(topology.Status)
		return string(status)
	})
	testkit.Eventually(t, "the Events", func() string {
		events, err := cluster.Client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		reasons := map[string]bool{}
		for _, e := range events.Items {
			reasons[e.Reason] = true
		}
		if reasons["Promoted"] && reasons["MeshDisabled"] && reasons["PeerWritten"] {
			return ""
		}
		return fmt.Sprint(reasons)
	})
	program.Signal(syscall.SIGTERM)
	<-program.Done()
	if code := program.ExitCode(); code != 0 {
		t.Errorf("it ended with exit code %d", code)
	}
	stop()
	sim.Wait()
}
