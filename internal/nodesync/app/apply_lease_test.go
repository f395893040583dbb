// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/manager"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// hold makes a Lease that somebody renewed so long ago, and returns its namespace, which is a new one.
func hold(t *testing.T, cluster *controlplane.Cluster, prefix, holder string, ago time.Duration) (namespace string) {
	t.Helper()
	namespace = newNamespace(t, cluster, prefix)
	renewed, lasts := metav1.NewMicroTime(time.Now().Add(-ago)), int32(2)
	if ago < 0 {
		lasts = 3600
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: controller.LeaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed, AcquireTime: &renewed, LeaseDurationSeconds: &lasts},
	}
	must.Get(cluster.Client.CoordinationV1().Leases(namespace).Create(t.Context(), lease, metav1.CreateOptions{})).Or(t)
	return namespace
}

// newNamespace makes a namespace, and afterwards takes the Lease from it: a namespace cannot go without kube-controller-manager.
func newNamespace(t *testing.T, cluster *controlplane.Cluster, prefix string) string {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	object = must.Get(cluster.Client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{})).Or(t)
	t.Cleanup(func() {
		_ = cluster.Client.CoordinationV1().Leases(object.Name).Delete(context.Background(), controller.LeaseName, metav1.DeleteOptions{})
	})
	return object.Name
}

// Beside a leader that is at work apply does nothing, and says who it is and what to do. Where nobody leads it takes the Lease, shares the
// controller's state, and gives the Lease back.
func TestApplyCommandBesideALeader(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-leader", 3)
	s.leave("0")
	namespace := hold(t, s.cluster, "apply-leader", "controller-0_abc", -time.Second)
	before := s.etcd.Revision(t)
	code, out := s.run("apply", "--grace-period=0s", "--yes", "--leader-election-namespace="+namespace)
	want := "error: controller-0_abc holds Lease " + namespace + "/" + controller.LeaseName + " and is running: let it do this, unless it runs with --mode=report, or stop it first"
	if code != 1 || !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 1 {
		t.Errorf("beside a leader: got exit code %d and %q, want 1 and %q", code, out, want)
	}
	s.expectRevision(before, "beside a leader")

	alone := newNamespace(t, s.cluster, "apply-alone")
	code, out = s.run("apply", "--grace-period=0s", "--yes", "--leader-election-namespace="+alone)
	if code != 0 || !strings.Contains(out, "7 steps applied") {
		t.Errorf("alone: got exit code %d and %q", code, out)
	}
	lease, err := s.cluster.Client.CoordinationV1().Leases(alone).Get(t.Context(), controller.LeaseName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
		t.Errorf("the Lease afterwards: got %+v (%v), want it held by nobody", lease.Spec, err)
	}
}

// brisk are a Lease's times for tests.
func brisk(namespace string) manager.Options {
	o := manager.DefaultOptions(controller.LeaseName)
	o.LeaderElectionNamespace = namespace
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 2*time.Second, time.Second, 200*time.Millisecond
	return o
}

// A holder that does not renew any more is waited for as long as its Lease lasts, and then succeeded.
func TestApplySucceedsALeaderThatIsGone(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	namespace := hold(t, cluster, "apply-stale", "controller-0_gone", time.Hour)
	var out bytes.Buffer
	_, release, err := lead(t.Context(), cluster.Config, brisk(namespace), newAccount(&out, &out, screen.Text))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if !strings.Contains(out.String(), "was last renewed by controller-0_gone at ") {
		t.Errorf("told %q, want why it waits", out.String())
	}
}

// A Lease that is lost ends the work.
func TestApplyEndsWhenItLosesTheLease(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	namespace := newNamespace(t, cluster, "apply-lost")
	var out bytes.Buffer
	led, release, err := lead(t.Context(), cluster.Config, brisk(namespace), newAccount(&out, &out, screen.Text))
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	leases := cluster.Client.CoordinationV1().Leases(namespace)
	testkit.Eventually(t, "the Lease to be taken away", func() string {
		lease, err := leases.Get(t.Context(), controller.LeaseName, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		holder, lasts, now := "somebody-else", int32(3600), metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &holder, &lasts, &now
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	testkit.Eventually(t, "the work to end", func() string {
		if led.Err() != nil {
			return ""
		}
		return "it goes on"
	})
	if cause := context.Cause(led); !errors.Is(cause, errLeaseLost) {
		t.Errorf("the cause is %v, want %v", cause, errLeaseLost)
	}
}

// What a controller has kept until lately counts: a grace period that it has begun, and who is to confirm what the mass guard holds back.
func TestApplyGoesOnWithWhatAControllerKept(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-kept", 9)
	s.leave("0")
	namespace := newNamespace(t, s.cluster, "apply-kept")
	node, err := s.etcd.Client.Get(t.Context(), "/calico/resources/v3/projectcalico.org/nodes/"+s.name("0"))
	if err != nil || len(node.Kvs) != 1 {
		t.Fatalf("the Calico Node: got %v (%v)", node, err)
	}
	live := must.Get(client.New(s.cluster.Config, client.Options{Scheme: runtime.NewScheme()})).Or(t)
	now, state := time.Now(), &controller.ConfigMapState{Client: live, Namespace: namespace, Name: controller.StateName}
	memory := nodesync.Memory{SavedAt: now, Absences: []nodesync.Absence{
		{CalicoNode: s.name("0"), KubernetesNode: s.name("0"), Since: now.Add(-time.Hour), Revision: node.Kvs[0].ModRevision},
	}}
	must.Do(t, state.Save(t.Context(), memory))
	args := []string{"--leader-election-namespace=" + namespace, "--grace-period=30m"}
	code, out := s.run("apply", append(args, "--yes")...)
	if code != 0 || strings.Contains(out, "waiting") || !strings.Contains(out, "absent for 1h0m") {
		t.Errorf("a grace period that is over: got exit code %d and %q", code, out)
	}
	entries, err := s.cluster.Client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: controller.JournalLabel})
	if err != nil || len(entries.Items) != 1 {
		t.Errorf("the journal where the controller has it: got %d entries (%v), want 1", len(entries.Items), err)
	}
	s.leave("1", "2", "3", "4")
	if _, out := s.run("plan", args...); !strings.Contains(out, "run `kubectl mooring confirm nodes ") || !strings.Contains(out, "or annotate ConfigMap calico-node-sync-state with") {
		t.Errorf("a controller has kept watch until lately, and plan says %q, want the command and the annotation that it looks for", out)
	}
}
