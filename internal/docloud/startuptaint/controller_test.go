// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package startuptaint_test

import (
	"context"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/startuptaint"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { cloud.Main(m) }

// A machine joins with the taint: it keeps it until its kubelet has registered the driver, in whatever order both are
// written, and its other taints stay.
func TestAMachineJoins(t *testing.T) {
	t.Parallel()
	cloud.Both(t, digitalocean.Options{}, func(t *testing.T, w *cloud.World) {
		p := w.NewProgram(nil)
		c := startuptaint.New(clock.RealClock{}, nil, outputs.Enforce, logr.Discard())
		c.Follow(p.Informers)
		p.Run(c.Start)
		early, late, never := w.NodeName("early"), w.NodeName("late"), w.NodeName("never")
		other := taint("example.com/mine", corev1.TaintEffectNoSchedule)
		register := func(name string, drivers ...string) {
			csi := registration(name, w.Node(name).UID, drivers...)
			csi.Labels = map[string]string{cloud.Label: w.Name}
			must.Get(w.Client.StorageV1().CSINodes().Create(t.Context(), csi, metav1.CreateOptions{})).Or(w.T)
			t.Cleanup(func() { _ = w.Client.StorageV1().CSINodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
		}
		join := func(name string) {
			w.Register(name, func(n *corev1.Node) { n.Spec.Taints = tainted(name, "", other).Spec.Taints })
		}
		has := func(name string) bool { return startuptaint.Tainted(w.Node(name)) }
		join(early)
		register(early, volumes) // before the program starts
		join(never)
		register(never, "nfs.example")
		p.Start()
		w.Until("the taint is removed", func() bool { return !has(early) })
		join(late)
		w.Register(w.NodeName("plain"))
		register(late, "nfs.example")
		csi := must.Get(w.Client.StorageV1().CSINodes().Get(t.Context(), late, metav1.GetOptions{})).Or(w.T)
		csi.Spec.Drivers = append(csi.Spec.Drivers, storagev1.CSINodeDriver{Name: volumes, NodeID: "1"})
		must.Get(w.Client.StorageV1().CSINodes().Update(t.Context(), csi, metav1.UpdateOptions{})).Or(w.T)
		w.Until("the taint is removed", func() bool { return !has(late) })
		if taints := w.Node(late).Spec.Taints; !slices.Contains(taints, other) {
			t.Errorf("the other taints are %v", taints)
		}
		if !has(never) {
			t.Errorf("node %s lost its taint, and its driver is not registered", never)
		}
	})
}
