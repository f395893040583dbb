// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// install applies what the etcdv3 file installs, the Deployment included, and returns a configuration with which one is its service account.
func install(t *testing.T, server *objects.Server) *rest.Config {
	t.Helper()
	for _, u := range files(t)["dist/calico-node-sync-etcdv3.yaml"] {
		if err := server.Apply(t.Context(), u); err != nil {
			t.Fatalf("applying %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	config := rest.CopyConfig(controlplane.Shared(t).Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":calico-node-sync",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	return config
}

// TestAccountKeepsAJournal records, lists, reads and prunes with the rights of the shipped account, and in no other namespace.
func TestAccountKeepsAJournal(t *testing.T) {
	t.Parallel()
	config := install(t, objects.Connect(t))
	journal := must.Get(controller.NewConfigMapJournal(config, namespace)).Or(t)
	entry := controller.Entry{
		Time: time.Now(), Host: "account-test", Steps: []string{"remove it"}, Objects: []calico.Object{{Key: "/calico/x", Value: "{}"}},
	}
	testkit.Eventually(t, "the rights", func() string {
		if err := journal.Record(t.Context(), entry); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := journal.Record(t.Context(), entry); err != nil {
		t.Errorf("again: %v", err)
	}
	kept := entriesOf(t, journal, entry.Host)
	if len(kept) != 1 {
		t.Fatalf("listed: %+v", kept)
	}
	if got, err := journal.Read(t.Context(), kept[0]); err != nil || got.Host != entry.Host {
		t.Errorf("read: %+v (%v)", got, err)
	}
	journal.Retention = time.Hour
	if pruned, err := journal.Prune(t.Context(), time.Now().Add(24*time.Hour)); err != nil || pruned != 1 {
		t.Errorf("pruned %d entries (%v), want 1", pruned, err)
	}
	if left := entriesOf(t, journal, entry.Host); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
	journal.Namespace = metav1.NamespaceDefault
	if err := journal.Record(t.Context(), entry); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: got %v, want a refusal", err)
	}
}

func entriesOf(t *testing.T, journal *controller.ConfigMapJournal, host string) []controller.KeptEntry {
	t.Helper()
	all := must.Get(journal.List(t.Context())).Or(t)
	var out []controller.KeptEntry
	for _, kept := range all {
		if kept.Host == host {
			out = append(out, kept)
		}
	}
	return out
}

// TestAccountWritesEvents writes Events with the rights of the shipped account, and finds them about the shipped Deployment as kubectl describe does:
// repetitions are counted, and machines told apart.
func TestAccountWritesEvents(t *testing.T) {
	t.Parallel()
	server := objects.Connect(t)
	config := install(t, server)
	account := kubernetes.NewForConfigOrDie(config)
	reader := must.Get(client.New(config, client.Options{Scheme: runtime.NewScheme()})).Or(t)
	deployment := &appsv1.Deployment{}
	if err := server.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "calico-node-sync"}, deployment); err != nil {
		t.Fatal(err)
	}
	awaitRights(t, account)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: account.EventsV1()})
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); broadcaster.Shutdown() })
	must.Do(t, broadcaster.StartRecordingToSinkWithContext(ctx))
	told := &controller.KubernetesEvents{
		Recorder: broadcaster.NewRecorder(runtime.NewScheme(), "calico-node-sync"), Reader: reader, Namespace: namespace,
		Deployment: controller.DeploymentName, Log: logr.Discard(),
	}
	search := func(count int, repeated bool) {
		t.Helper()
		testkit.Eventually(t, "the Events", func() string {
			list, err := controlplane.Shared(t).Client.CoreV1().Events(namespace).SearchWithContext(t.Context(), scheme.Scheme, deployment)
			if err != nil {
				return err.Error()
			}
			series := false
			for _, event := range list.Items {
				series = series || event.Series != nil && event.Series.Count > 1
			}
			if len(list.Items) != count || series != repeated {
				return fmt.Sprintf("%d Events, repeated: %v: %+v", len(list.Items), series, list.Items)
			}
			return ""
		})
	}
	for _, node := range []string{"n1", "n2"} {
		told.Record(t.Context(), controller.Event{Reason: controller.ReasonMachineCleaned, Action: "CleanUp", Node: node, Note: "it is clean"})
	}
	search(2, false)
	told.Record(t.Context(), controller.Event{Reason: controller.ReasonMachineCleaned, Action: "CleanUp", Node: "n1", Note: "it is clean again"})
	search(2, true)
}

// awaitRights waits until the roles are in force: client-go does not try again what was refused.
func awaitRights(t *testing.T, account kubernetes.Interface) {
	t.Helper()
	testkit.Eventually(t, "the right to write Events", func() string {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, InvolvedObject: corev1.ObjectReference{Namespace: namespace}}
		if _, err := account.CoreV1().Events(namespace).Create(t.Context(), event, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err.Error()
		}
		if _, err := account.AppsV1().Deployments(namespace).Get(t.Context(), "calico-node-sync", metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}
