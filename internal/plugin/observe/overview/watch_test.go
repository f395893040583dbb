// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/ui"
)

// While nobody makes Nodes NotReady, Ready says nothing of a machine.
func TestNobodyWatchesTheMachines(t *testing.T) {
	c := clusterOf(t, controlplane.New(t))
	n, err := c.Typed.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	if _, err := c.Typed.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := tile(seen(t, c), "machines"); got.Text != "1 one side" {
		t.Errorf("where nothing is known of kube-controller-manager: %+v", got)
	}
	lease(t, c, "kube-system", "kube-controller-manager", "a", 2*time.Minute, nil)
	if got := tile(seen(t, c), "machines"); got.State != ui.Unread || got.Text != "1 unknown" {
		t.Errorf("with kube-controller-manager stopped: %+v", got)
	}
}
