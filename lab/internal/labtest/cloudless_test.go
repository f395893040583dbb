// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package labtest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWithoutCloud boots a lab whose machines stand on nothing: nobody is waited for, and the nodes process deletes Nodes.
func TestWithoutCloud(t *testing.T) {
	l := newLab(t)
	l.up("--cloud=none", "--calico-datastore=none", "--nodes=2", "--components=etcd,kube-apiserver,nodes")
	node := must.Get(l.client().CoreV1().Nodes().Get(t.Context(), "node-2", metav1.GetOptions{})).Or(t)
	if node.Spec.ProviderID != "" || len(node.Status.Addresses) == 0 || node.Status.Addresses[0].Address != "172.30.0.3" {
		t.Errorf("provider ID %q, addresses %v", node.Spec.ProviderID, node.Status.Addresses)
	}
	for _, taint := range node.Spec.Taints {
		if strings.Contains(taint.Key, "cloudprovider") {
			t.Errorf("taint %v", taint)
		}
	}
	if described := l.described(); described.DigitalOcean != nil {
		t.Errorf("lab.json speaks of a cloud: %+v", described.DigitalOcean)
	}
	for _, args := range [][]string{{"droplet", "list"}, {"droplet", "create", "x"}} {
		if output, err := l.try(args...); err == nil || !strings.Contains(output, "has no cloud; use `lab node`") {
			t.Errorf("lab %v: %v, %s", args, err, output)
		}
	}
	l.run("node", "remove", "node-2")
	await(t, "node-2 to go", func(ctx context.Context) (bool, any) {
		_, err := l.client().CoreV1().Nodes().Get(ctx, "node-2", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	l.run("down")
	if output, err := l.try("up", "--cloud=digitalocean"); err == nil || !strings.Contains(output, "contradicts the lab in") {
		t.Errorf("another cloud for the same folder: %v, %s", err, output)
	}
}
