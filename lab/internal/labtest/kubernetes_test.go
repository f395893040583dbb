// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package labtest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestKubernetesDatastore boots a lab where Calico keeps its data in Kubernetes.
func TestKubernetesDatastore(t *testing.T) {
	l := newLab(t)
	said := l.up("--calico-datastore=kubernetes", "--nodes=1", "--components=etcd,kube-apiserver,nodes", "--page")
	showsItsPage(t, l, said)
	pods := must.Get(l.client().CoreV1().Pods("lab").List(t.Context(), metav1.ListOptions{})).Or(t)
	for _, pod := range pods.Items {
		if pod.Status.Phase != corev1.PodRunning || pod.Annotations["cni.projectcalico.org/podIP"] == "" {
			t.Errorf("pod %s is %s with annotations %v", pod.Name, pod.Status.Phase, pod.Annotations)
		}
	}
	if len(pods.Items) != 2 {
		t.Errorf("%d pods", len(pods.Items))
	}
	if described := l.described(); described.CalicoEtcd != nil || described.CalicoDatastore != "kubernetes" {
		t.Errorf("lab.json: %+v", described)
	}
	for resource, want := range map[string]int{"blockaffinities": 1, "ipamblocks": 1, "ippools": 1, "clusterinformations": 1} {
		await(t, resource, func(ctx context.Context) (bool, any) {
			var list metav1.PartialObjectMetadataList
			err := l.metadata(resource).Do(ctx).Into(&list)
			return err == nil && len(list.Items) == want, err
		})
	}
}

// showsItsPage: what the lab says on its start is where its machine is shown, and `lab status` says it again.
func showsItsPage(t *testing.T, l *lab, said string) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^page:   (http://127\.0\.0\.1:\d+/\S+/)$`).FindStringSubmatch(said)
	if found == nil {
		t.Fatalf("no page is told of:\n%s", said)
	}
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, found[1]+"page.json", http.NoBody)).Or(t)
	response, err := http.DefaultClient.Do(request)
	must.Do(t, err)
	defer response.Body.Close()
	var page struct {
		Machines struct{ Total int } `json:"machines"`
	}
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil || response.StatusCode != http.StatusOK || page.Machines.Total != 1 {
		t.Errorf("the page: %s, %v, %+v", response.Status, err, page)
	}
	if status := l.run("status"); !strings.Contains(status, "\npage: "+found[1]+"\n") {
		t.Errorf("status does not know the page:\n%s", status)
	}
}
