// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// volumeDriver is the one whose part the test plays: it says that what is to be attached is.
const volumeDriver = "dobs.csi.digitalocean.com"

// A machine is switched off with a Pod that has a volume. Its Node gets the taint out-of-service, Kubernetes deletes the Pod and detaches the volume, and the
// taint goes when the machine is back. Kubernetes' controllers are real; a driver of volumes there is none. How long it took is printed, and not asserted.
func TestAMachineThatIsOff(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it needs minutes, of which most are Kubernetes' own: run it without -short")
	}
	s := newSite(t, "--nodes=4", "--calico-datastore=none")
	const name = "node-1"
	v := &volumeOnNode{site: s, node: name}
	v.attach()
	begin := time.Now()
	s.run("droplet", "power-off", name)
	testkit.Eventually(t, "the taint out-of-service", func() string {
		if n := v.get(); !slices.Contains(taints(n), corev1.TaintNodeOutOfService) {
			return fmt.Sprint(ready(n), taints(n))
		}
		return ""
	})
	t.Logf("the Node has the taint after %s", since(begin))
	testkit.Eventually(t, "the Pod to go", func() string {
		_, err := s.client.CoreV1().Pods("default").Get(t.Context(), "database", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there (%v)", err)
		}
		return ""
	})
	testkit.Eventually(t, "the volume to be detached", func() string {
		if names := v.attachments(); len(names) > 0 {
			return fmt.Sprint(names)
		}
		return ""
	})
	t.Logf("the volume is detached after %s", since(begin))
	for _, other := range []string{"node-2", "node-3", "node-4"} {
		n, err := s.client.CoreV1().Nodes().Get(t.Context(), other, metav1.GetOptions{})
		s.must(err)
		if slices.Contains(taints(n), corev1.TaintNodeOutOfService) {
			t.Errorf("Node %s has the taint as well", other)
		}
	}
	s.run("droplet", "power-on", name)
	testkit.Eventually(t, "the taint to go", func() string {
		if n := v.get(); ready(n) != corev1.ConditionTrue || slices.Contains(taints(n), corev1.TaintNodeOutOfService) {
			return fmt.Sprint(ready(n), taints(n))
		}
		return ""
	})
}

// volumeOnNode is a Pod with a volume on a Node.
type volumeOnNode struct {
	*site

	node string
}

func (v *volumeOnNode) get() *corev1.Node {
	v.t.Helper()
	node, err := v.client.CoreV1().Nodes().Get(v.t.Context(), v.node, metav1.GetOptions{})
	v.must(err)
	return node
}

// attachments are the VolumeAttachments of the Node.
func (v *volumeOnNode) attachments() []string {
	v.t.Helper()
	list, err := v.client.StorageV1().VolumeAttachments().List(v.t.Context(), metav1.ListOptions{})
	v.must(err)
	var names []string
	for _, a := range list.Items {
		if a.Spec.NodeName == v.node {
			names = append(names, a.Name)
		}
	}
	return names
}

// attach makes a Pod with a volume on the Node, and waits until Kubernetes calls the volume attached.
func (v *volumeOnNode) attach() {
	v.t.Helper()
	ctx, core := v.t.Context(), v.client.CoreV1()
	_, err := core.Nodes().Patch(ctx, v.node, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"true"}}}`), metav1.PatchOptions{})
	v.must(err)
	_, err = v.client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: volumeDriver}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		v.must(err)
	}
	size, class := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, ""
	_, err = core.PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "database"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: volumeDriver, VolumeHandle: "11111111-1111-4111-8111-111111111111"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "database"},
		},
	}, metav1.CreateOptions{})
	v.must(err)
	_, err = core.PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "database"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: "database", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	v.must(err)
	testkit.Eventually(v.t, "the Pod to be admitted, which needs the namespace's service account", func() string {
		_, err := core.Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "database"},
			Spec: corev1.PodSpec{
				NodeName: v.node, Containers: []corev1.Container{{Name: "c", Image: "database"}},
				Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "database"},
				}}},
			},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		return ""
	})
	testkit.Eventually(v.t, "the volume to be attached", func() string {
		for _, name := range v.attachments() {
			_, err := v.client.StorageV1().VolumeAttachments().Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
			if err != nil {
				return err.Error()
			}
		}
		if n := v.get(); len(n.Status.VolumesAttached) == 0 {
			return fmt.Sprintf("VolumeAttachments %v", v.attachments())
		}
		return ""
	})
}
