// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// The README's first command, without a terminal: it ends with the main job done, or with another exit code.
func TestDemo(t *testing.T) {
	t.Parallel()
	testkit.Binary(t, "calico-node-sync")
	dir := filepath.Join(t.TempDir(), "lab")
	out, err := exec.CommandContext(t.Context(), testkit.Binary(t, "lab"), "demo", "--dir", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("the demo failed: %v\n%s", err, out)
	}
	for _, want := range []string{"machine node-3 destroyed", "remove Calico Node node-3", "Nothing of node-3 is left", "Nothing of the others has changed"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the demo does not say %q:\n%s", want, out)
		}
	}
}

// calico-node-sync with the kubernetes datastore, as the account and with the rights that config/ gives it.
func TestKubernetesDatastoreWithTheShippedRights(t *testing.T) {
	t.Parallel()
	testkit.Binary(t, "calico-node-sync")
	dir := filepath.Join(t.TempDir(), "lab")
	lab := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), testkit.Binary(t, "lab"), append(args, "--dir", dir)...).CombinedOutput()
		if err != nil {
			t.Fatalf("lab %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	t.Cleanup(func() {
		_ = exec.Command(testkit.Binary(t, "lab"), "down", "--dir", dir).Run()
	})
	lab("up", "--calico-datastore", "kubernetes", "--with", "calico-node-sync", "--calico-node-sync-grace-period", "1s", "--nodes", "4",
		"--node-monitor-grace-period", "8s")
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	affinities := func() (held, others int) {
		resource := schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: "blockaffinities"}
		list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			if node := item.Object["spec"].(map[string]any)["node"]; node == "node-2" {
				held++
			} else {
				others++
			}
		}
		return held, others
	}
	held, before := affinities()
	if held == 0 {
		t.Fatal("node-2 has no affinity to begin with")
	}
	// What kube-controllers would have made, had it been told to.
	endpoints := client.Resource(schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: "hostendpoints"})
	_, err = endpoints.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crd.projectcalico.org/v1", "kind": "HostEndpoint", "spec": map[string]any{"node": "node-2", "interfaceName": "*"},
		"metadata": map[string]any{"name": "node-2-auto-hep", "labels": map[string]any{"projectcalico.org/created-by": "calico-kube-controllers"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lab("node", "remove", "node-2")
	// Running pods hold the clean-up back until pod garbage collection has removed them, which takes up to 80 s by itself.
	testkit.Eventually(t, "the pods of node-2 to go", func() string {
		pods, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).List(t.Context(), metav1.ListOptions{
			FieldSelector: "spec.nodeName=node-2",
		})
		if err != nil {
			return err.Error()
		}
		if len(pods.Items) > 0 {
			return pods.Items[0].GetName() + " is still there"
		}
		return ""
	})
	testkit.Eventually(t, "the affinities of node-2 to go", func() string {
		if held, _ := affinities(); held > 0 {
			return lab("logs", "calico-node-sync")
		}
		return ""
	})
	if _, err := endpoints.Get(t.Context(), "node-2-auto-hep", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the host endpoint of node-2: got %v, want it to be gone before the affinities are", err)
	}
	if _, after := affinities(); after != before {
		t.Errorf("affinities of other nodes: had %d, have %d", before, after)
	}
}
