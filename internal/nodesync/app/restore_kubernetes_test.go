// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// onlyFile is the one file of a folder.
func onlyFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files: %v (%v)", files, err)
	}
	return files[0]
}

// kubernetesDatastore makes the cluster Calico's datastore until the test ends, since another test wants none, and returns how its objects are reached.
func kubernetesDatastore(t *testing.T, api *controlplane.Cluster) (resource func(plural string) dynamic.ResourceInterface) {
	t.Helper()
	api.InstallCalicoCRDs(t)
	raw := must.Get(dynamic.NewForConfig(api.Config)).Or(t)
	resource = func(plural string) dynamic.ResourceInterface {
		return raw.Resource(schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: plural})
	}
	info := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crd.projectcalico.org/v1", "kind": "ClusterInformation", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"datastoreReady": true},
	}}
	must.Get(resource("clusterinformations").Create(t.Context(), info, metav1.CreateOptions{})).Or(t)
	t.Cleanup(func() {
		_ = resource("clusterinformations").Delete(context.Background(), "default", metav1.DeleteOptions{})
	})
	return resource
}

// In the kubernetes datastore a user's object is put back, what is IPAM's is not, and nothing goes into another cluster.
func TestRestoreIntoTheKubernetesDatastore(t *testing.T) { //nolint:paralleltest // ClusterInformation is the cluster's only one
	const name = "restored-hep"
	api := controlplane.Shared(t)
	resource := kubernetesDatastore(t, api)
	t.Cleanup(func() { _ = resource("hostendpoints").Delete(context.Background(), name, metav1.DeleteOptions{}) })
	system := must.Get(api.Client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})).Or(t)
	objects := []calico.Object{
		{Key: "/apis/crd.projectcalico.org/v1/hostendpoints/" + name, Revision: 1, Value: `{"apiVersion":"crd.projectcalico.org/v1","kind":"HostEndpoint",` +
			`"metadata":{"name":"` + name + `"},"spec":{"node":"gone","interfaceName":"eth0"}}`},
		{Key: "/apis/crd.projectcalico.org/v1/blockaffinities/gone-10-0-0-0-26", Revision: 1, Value: `{}`},
	}
	restore := func(cluster string) (int, string) {
		dir := t.TempDir()
		entry := controller.Entry{Time: time.Now(), ClusterUID: cluster, Host: "gone", KubernetesNode: "gone", Objects: objects}
		must.Do(t, (controller.FolderJournal{Dir: dir}).Record(t.Context(), entry))
		return program(t, []string{"DATASTORE_TYPE=kubernetes"}, "restore", "--kubeconfig="+api.Kubeconfig, onlyFile(t, dir))
	}
	if code, out := restore("another"); code != 1 || !strings.Contains(out, "check ETCD_ENDPOINTS and --kubeconfig") {
		t.Errorf("the journal of another cluster: got exit code %d and %q", code, out)
	}
	if code, out := restore(string(system.UID)); code != 0 || out != "restored "+objects[0].Key+"\n" {
		t.Errorf("got exit code %d and %q, want 0 and what was restored", code, out)
	}
	got := must.Get(resource("hostendpoints").Get(t.Context(), name, metav1.GetOptions{})).Or(t)
	if node, _, _ := unstructured.NestedString(got.Object, "spec", "node"); node != "gone" {
		t.Errorf("restored %v", got.Object)
	}
	if list, err := resource("blockaffinities").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("got affinities %v (%v), want none", list.Items, err)
	}
}
