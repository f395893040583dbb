// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/docloud/csiapp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/upstream"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	volumesFile   = "releases/" + volumesName + "/latest.yml"
	snapshotKinds = "../objects/testdata/volume-snapshot-crds.yaml"
	pluginName    = upstream.PluginName
	nodeSocket    = "/var/lib/kubelet/plugins/" + csi.DriverName
)

var snapshotClass = schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshotClassList"}

// volumes are the two workloads of the volume driver.
func volumes(t *testing.T) (controller *appsv1.StatefulSet, node *appsv1.DaemonSet, all []*unstructured.Unstructured) {
	t.Helper()
	all = files(t)[volumesFile]
	sets, daemons := objects.OfKind[appsv1.StatefulSet](t, all, "StatefulSet"), objects.OfKind[appsv1.DaemonSet](t, all, "DaemonSet")
	if len(sets) != 1 || len(daemons) != 1 {
		t.Fatalf("%d StatefulSets and %d DaemonSets", len(sets), len(daemons))
	}
	return sets[0], daemons[0], all
}

func driverIn(t *testing.T, pod *corev1.PodSpec) *corev1.Container {
	t.Helper()
	for i := range pod.Containers {
		if pod.Containers[i].Name == pluginName {
			return &pod.Containers[i]
		}
	}
	t.Fatalf("there is no container %s", pluginName)
	return nil
}

// TestVolumesHaveThePredecessorsShape: the names of all objects of csi-digitalocean but its registrar's rights, its classes, and what
// can never be changed in its workloads.
func TestVolumesHaveThePredecessorsShape(t *testing.T) {
	t.Parallel()
	controller, node, all := volumes(t)
	have := map[string]bool{}
	for _, u := range all {
		have[u.GetKind()+" "+u.GetName()] = true
	}
	for _, u := range upstream.VolumeDriver() {
		if name := u.GetKind() + " " + u.GetName(); !have[name] && !strings.Contains(name, "csi-do-node-driver-registrar") {
			t.Errorf("there is no %s", name)
		}
	}
	for _, c := range objects.OfKind[storagev1.StorageClass](t, all, "StorageClass") {
		xfs, retain := strings.Contains(c.Name, "xfs"), strings.HasSuffix(c.Name, "retain")
		_, first := c.Annotations["storageclass.kubernetes.io/is-default-class"]
		if c.Provisioner != csi.DriverName || !*c.AllowVolumeExpansion || (c.Parameters["fstype"] == "xfs") != xfs || first != (c.Name == "do-block-storage") ||
			(c.ReclaimPolicy != nil && *c.ReclaimPolicy == corev1.PersistentVolumeReclaimRetain) != retain || c.VolumeBindingMode != nil {
			t.Errorf("StorageClass %+v", c)
		}
	}
	if controller.Spec.ServiceName != "csi-do" || controller.Spec.PodManagementPolicy != "" || len(controller.Spec.VolumeClaimTemplates) != 0 ||
		!hasOnly(controller.Spec.Selector, "csi-do-controller") || !hasOnly(node.Spec.Selector, "csi-do-node") {
		t.Error("something differs that cannot be changed in the upstream project's workloads")
	}
	if driverIn(t, &controller.Spec.Template.Spec).VolumeMounts[0].MountPath != "/var/lib/csi/sockets/pluginproxy/" {
		t.Error("the socket is elsewhere")
	}
}

func hasOnly(s *metav1.LabelSelector, app string) bool {
	return len(s.MatchExpressions) == 0 && len(s.MatchLabels) == 1 && s.MatchLabels["app"] == app
}

// TestVolumeControllerIsRestricted by the standard's own code, and has no writable root file system.
func TestVolumeControllerIsRestricted(t *testing.T) {
	t.Parallel()
	controller, _, _ := volumes(t)
	template := &controller.Spec.Template
	if complaint := objects.Unrestricted(t, &template.ObjectMeta, &template.Spec); complaint != "" {
		t.Error(complaint)
	}
	for _, c := range template.Spec.Containers {
		if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("container %s may write its root file system", c.Name)
		}
		if c.Name != pluginName && !slices.Contains(c.Args, "--leader-election") {
			t.Errorf("container %s of two replicas elects no leader", c.Name)
		}
	}
}

// TestVolumeNodePluginHasOnlyWhatItNeeds: privileged, since Kubernetes lets no other container mount for pods, and nothing of the host in
// addition to its network, disks, kubelet's folder and the folder of udev's rules. It has no token of Kubernetes nor of DigitalOcean, and
// its account no right.
func TestVolumeNodePluginHasOnlyWhatItNeeds(t *testing.T) {
	t.Parallel()
	_, node, all := volumes(t)
	pod := &node.Spec.Template.Spec
	c := driverIn(t, pod)
	if pod.HostPID || pod.HostIPC || len(pod.Containers) != 1 || len(pod.InitContainers) != 0 || *pod.AutomountServiceAccountToken ||
		!*c.SecurityContext.ReadOnlyRootFilesystem || len(c.Env) != 0 || c.SecurityContext.Capabilities != nil {
		t.Errorf("%+v", pod)
	}
	for _, v := range pod.Volumes {
		if v.HostPath == nil || !slices.Contains([]string{nodeSocket, "/var/lib/kubelet/plugins_registry/", "/var/lib/kubelet", "/dev", "/etc/udev/rules.d"}, v.HostPath.Path) {
			t.Errorf("volume %s", v.Name)
		}
	}
	bidirectional := 0
	for _, m := range c.VolumeMounts {
		if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional {
			bidirectional++
		}
	}
	if bidirectional != 1 {
		t.Errorf("%d mounts are seen by other pods: without any, the container need not be privileged", bidirectional)
	}
	for _, b := range objects.OfKind[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding") {
		if b.Subjects[0].Name != "csi-do-controller-sa" {
			t.Errorf("%s is bound to %s", b.Name, b.Subjects[0].Name)
		}
	}
}

// TestVolumeDriverKnowsItsArguments parses those of both workloads, and compares the sockets.
func TestVolumeDriverKnowsItsArguments(t *testing.T) {
	t.Parallel()
	controller, node, _ := volumes(t)
	for _, c := range []*corev1.Container{driverIn(t, &controller.Spec.Template.Spec), driverIn(t, &node.Spec.Template.Spec)} {
		if err := objects.ParseFlags(t, objects.Sure(csiapp.NewCommand), c.Args); err != nil {
			t.Error(err)
		}
		if c.LivenessProbe == nil || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%+v has no probe, or no memory request or limit", c)
		}
	}
	if !slices.Contains(driverIn(t, &node.Spec.Template.Spec).Args, "--kubelet-registration-path="+nodeSocket+"/csi.sock") {
		t.Error("kubelet is told another socket than that of the mounted folder")
	}
	socket := "--csi-address=" + strings.TrimPrefix(driverIn(t, &controller.Spec.Template.Spec).Args[0], "--endpoint=unix://")
	for _, c := range controller.Spec.Template.Spec.Containers {
		if c.Name != pluginName && !slices.Contains(c.Args, socket) {
			t.Errorf("container %s does not use the socket %s", c.Name, socket)
		}
	}
}

// TestVolumesGoOverThePredecessorAndBack on a real API server: nothing has to be deleted, in either direction, and the classes and rights
// are accepted.
func TestVolumesGoOverThePredecessorAndBack(t *testing.T) {
	t.Parallel()
	server := objects.Connect(t)
	content := must.Get(os.ReadFile(snapshotKinds)).Or(t)
	for _, u := range objects.Parse(t, snapshotKinds, content) {
		must.Do(t, server.Apply(t.Context(), u))
	}
	served(t, server, snapshotClass)
	_, _, ours := volumes(t)
	old := upstream.VolumeDriver()
	for _, step := range [][]*unstructured.Unstructured{old, ours, old, ours} {
		for _, u := range step {
			if err := server.Apply(t.Context(), u); err != nil {
				t.Errorf("applying %s %s: %v", u.GetKind(), u.GetName(), err)
			}
		}
	}
	var controller appsv1.StatefulSet
	must.Do(t, server.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "csi-do-controller"}, &controller))
	if image := driverIn(t, &controller.Spec.Template.Spec).Image; !strings.Contains(image, volumesName) {
		t.Errorf("the image is %s", image)
	}
}
