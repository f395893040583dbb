// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// TestRightsOfTheTaints runs the real program with exactly the rights of the overlay startup-taint, which has those of
// out-of-service: a machine that is off gets the one taint, a machine whose kubelet has registered the volume driver loses
// the other, nothing is forbidden, and none of the rights that the overlays add is without use.
func TestRightsOfTheTaints(t *testing.T) {
	t.Parallel()
	const overlay = "dist/" + cloudName + "-startup-taint.yaml"
	c := controlplane.New(t)
	install := files(t)[overlay]
	server := objects.ConnectTo(t, c)
	for _, u := range install {
		switch u.GetKind() {
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			must.Do(t, server.Apply(t.Context(), u))
		}
	}
	deployment := objects.OfKind[appsv1.Deployment](t, install, "Deployment")[0]
	args := slices.DeleteFunc(slices.Clone(deployment.Spec.Template.Spec.Containers[0].Args), func(arg string) bool { return strings.HasPrefix(arg, "--token-file=") })
	r := startCloud(t, c, simulate(t, nil), []string{"DO_ACCESS_TOKEN=" + simulated, "REGION=nyc1"}, append(args, "--out-of-service-grace-period=15s"))
	r.healthy()
	r.join("off-1", "off-2")
	renewed := metav1.NowMicro()
	_, err := c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "off-2", Namespace: corev1.NamespaceNodeLease}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed},
	}, metav1.CreateOptions{})
	must.Do(t, err)
	r.switchOff("off-2")
	testkit.Eventually(t, "the taint out-of-service", func() string {
		n, err := c.Client.CoreV1().Nodes().Get(t.Context(), "off-2", metav1.GetOptions{})
		if err != nil || !tainted(n, corev1.TaintNodeOutOfService) {
			return fmt.Sprintf("%v (%v)", n.Spec.Taints, err)
		}
		return ""
	})
	r.volumes("off-1")
	for _, role := range objects.OfKind[rbacv1.ClusterRole](t, install, "ClusterRole") {
		if role.Name != "system:cloud-controller-manager:startup-taint" {
			continue // the others are those of the base
		}
		for _, rule := range role.Rules {
			for _, right := range r.api.unused("", rule) {
				t.Errorf("%s: ClusterRole %s: nothing uses the right to %s", overlay, role.Name, right)
			}
		}
	}
	for _, role := range objects.OfKind[rbacv1.Role](t, install, "Role") {
		if role.Namespace != corev1.NamespaceNodeLease && role.Name != cloudName+"-out-of-service" {
			continue // the others are those of the base
		}
		for _, rule := range role.Rules {
			for _, right := range r.api.unused(role.Namespace, rule) {
				t.Errorf("%s: Role %s/%s: nothing uses the right to %s", overlay, role.Namespace, role.Name, right)
			}
		}
	}
}

// volumes gives a Node the start-up taint and has its kubelet register the volume driver, which removes it.
func (r *cloudRun) volumes(name string) {
	r.t.Helper()
	ctx, client := r.t.Context(), r.cluster.Client
	n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	must.Do(r.t, err)
	const driver, key = "dobs.csi.digitalocean.com", "dobs.csi.digitalocean.com/agent-not-ready"
	body := fmt.Sprintf(`[{"op":"add","path":"/spec/taints","value":[{"key":%q,"effect":"NoSchedule"}]}]`, key)
	must.Get(client.CoreV1().Nodes().Patch(ctx, name, types.JSONPatchType, []byte(body), metav1.PatchOptions{})).Or(r.t)
	_, err = client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: n.UID}}},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "1"}}},
	}, metav1.CreateOptions{})
	must.Do(r.t, err)
	testkit.Eventually(r.t, "the start-up taint to be removed", func() string {
		n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || tainted(n, key) {
			return fmt.Sprintf("%v (%v)", n.Spec.Taints, err)
		}
		return ""
	})
}
