// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// The driver as its manifests make it is well; a second controller, a node plugin that leaves the udev rule, a Node without its label, and classes that
// differ are found. A cluster without volumes has nothing of it, and who may read nothing is told so.
func TestDoctorVolumes(t *testing.T) {
	clearEnvironment(t)
	if doctor.VolumeDriver != volumes.Driver {
		t.Errorf("the doctor looks for driver %s", doctor.VolumeDriver)
	}
	cluster := controlplane.Lend(t)
	p := patient{t, cluster}
	expect(t, 0, "", p.ask("volumes"), "0 problems, 0 warnings, 0 notes, 0 ok\n")
	var manifests []string
	for _, name := range []string{"storage-classes", "controller", "node"} {
		manifests = append(manifests, "-f", filepath.Join(testkit.Root(t), "config", "digitalocean-csi-driver", "base", name+".yaml"))
	}
	mustKubectl(t, cluster, "", append([]string{"apply", "--server-side"}, manifests...)...)
	makeNode(t, cluster, "doctor-1", providerid.Format(7), "10.0.0.9/24", nil)
	t.Cleanup(func() {
		ctx, client := context.Background(), cluster.Client
		_ = client.CoreV1().Nodes().Delete(ctx, "doctor-1", metav1.DeleteOptions{})
		_ = client.StorageV1().CSINodes().Delete(ctx, "doctor-1", metav1.DeleteOptions{})
		_ = client.StorageV1().StorageClasses().Delete(ctx, "another", metav1.DeleteOptions{})
		_ = client.AppsV1().StatefulSets("kube-system").Delete(ctx, "volumes", metav1.DeleteOptions{})
		// t.Context() has ended by now, and kubectl runs in it.
		cmd := exec.CommandContext(ctx, testkit.Binary(t, "kubectl"), append([]string{"--kubeconfig", cluster.Kubeconfig, "delete", "--wait=false", "--ignore-not-found"}, manifests...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	mustKubectl(t, cluster, "", "-n", "kube-system", "patch", "daemonset", "csi-do-node", "--subresource=status", "--type=merge", "-p",
		`{"status":{"desiredNumberScheduled":1,"currentNumberScheduled":1,"numberMisscheduled":0,"numberReady":1}}`)
	mustKubectl(t, cluster, "", "-n", "kube-system", "patch", "statefulset", "csi-do-controller", "--subresource=status", "--type=merge", "-p",
		`{"status":{"replicas":1,"readyReplicas":1}}`)
	csiNode := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "doctor-1"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: volumes.Driver, NodeID: "7", TopologyKeys: []string{"region"}}}},
	}
	if _, err := cluster.Client.StorageV1().CSINodes().Create(t.Context(), csiNode, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, 2, "", p.ask("volumes"), "PROBLEM  volume-topology: 1 Node without the label region: doctor-1\n", "1 problem, 0 warnings, 0 notes, 3 ok\n")
	mustKubectl(t, cluster, "", "label", "node", "doctor-1", "region=nyc1")
	expect(t, 0, "", p.ask("volumes"), "ok       volume-drivers: one controller and one node plugin run driver dobs.csi.digitalocean.com: StatefulSet kube-system/csi-do-controller and "+
		"DaemonSet kube-system/csi-do-node\n", "ok       automount-rule: DaemonSet kube-system/csi-do-node removes the udev rule 99-digitalocean-automount.rules\n",
		"ok       volume-topology: Nodes that have the driver with their droplet's ID and region: 1\n", "ok       volume-classes: StorageClasses that are those of the driver's manifests: 4\n")

	mustKubectl(t, cluster, `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"volumes"},"spec":{"serviceName":"x","selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"digitalocean/do-csi-plugin:v4.16.0"}]}}}}`, "-n", "kube-system", "create", "-f", "-")
	mustKubectl(t, cluster, `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"another","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},
		"provisioner":"other"}`, "create", "-f", "-")
	mustKubectl(t, cluster, "", "delete", "storageclass", "do-block-storage-xfs")
	mustKubectl(t, cluster, `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"do-block-storage-xfs"},"provisioner":"dobs.csi.digitalocean.com"}`, "create", "-f", "-")
	without := []byte(`[{"op":"remove","path":"/spec/template/spec/containers/0/args/2"}]`)
	if _, err := cluster.Client.AppsV1().DaemonSets("kube-system").Patch(t.Context(), "csi-do-node", types.JSONPatchType, without, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, 2, "", p.ask("volumes"), "PROBLEM  volume-drivers: 2 controllers run driver dobs.csi.digitalocean.com: StatefulSet kube-system/csi-do-controller and StatefulSet kube-system/volumes\n",
		"warning  automount-rule: DaemonSet kube-system/csi-do-node does not remove the udev rule 99-digitalocean-automount.rules\n",
		"warning  volume-classes: 2 StorageClasses are the default: another, do-block-storage\n",
		"warning  volume-classes: StorageClass do-block-storage-xfs differs from the one of the driver's manifests: allowVolumeExpansion is false, not true, parameter fstype is unset, not xfs\n")
	expect(t, 2, "", p.ask("volumes", "--as", "nobody"), "warning  volume-drivers: not read: StatefulSets: ", "not read: Nodes and CSINodes: ", "not read: StorageClasses: ", ", 0 ok\n")
}
