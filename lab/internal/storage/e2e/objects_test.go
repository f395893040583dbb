// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/lab/internal/storage"
)

const (
	namespace = "default"
	system    = "kube-system"
	ext4Class = "do-block-storage"
	xfsClass  = "do-block-storage-xfs"
	dataPath  = "/data"
	fileName  = "numbers"
)

var snapshots = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}

// awaitDriver waits until both workloads of the driver are ready.
func (l *lab) awaitDriver() {
	l.Helper()
	l.await("the driver's pods", func() error {
		controller, err := l.api.AppsV1().StatefulSets(system).Get(l.Context(), "csi-do-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		node, err := l.api.AppsV1().DaemonSets(system).Get(l.Context(), "csi-do-node", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := controller.Status; s.ObservedGeneration != controller.Generation || s.ReadyReplicas != *controller.Spec.Replicas || s.UpdatedReplicas != s.Replicas {
			return fmt.Errorf("the controller's status is %+v", s)
		}
		s := node.Status
		if s.ObservedGeneration != node.Generation || s.NumberReady == 0 || s.NumberReady != s.DesiredNumberScheduled ||
			s.UpdatedNumberScheduled != s.DesiredNumberScheduled {
			return fmt.Errorf("the node plugin's status is %+v", s)
		}
		return nil
	})
}

// claim describes a PersistentVolumeClaim.
func claim(name, class, size string, source *corev1.TypedLocalObjectReference) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, DataSource: source,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}
}

func (l *lab) createClaim(name, class, size string, source *corev1.TypedLocalObjectReference) {
	l.Helper()
	_, err := l.api.CoreV1().PersistentVolumeClaims(namespace).Create(l.Context(), claim(name, class, size, source), metav1.CreateOptions{})
	l.must(err)
}

// writer describes a pod with a counter that writes to a claim. It leaves a silent machine after a second.
func (l *lab) writer(claimName string) corev1.PodSpec {
	soon, root, grace := int64(1), int64(0), int64(2)
	pod := corev1.PodSpec{
		AutomountServiceAccountToken: new(bool), TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "counter", Image: storage.Image("counter"), ImagePullPolicy: corev1.PullNever,
			Args:            []string{filepath.Join(dataPath, fileName), "/records", "$(POD)-$(NODE)"},
			SecurityContext: &corev1.SecurityContext{RunAsUser: &root},
			Env:             []corev1.EnvVar{field("NODE", "spec.nodeName"), field("POD", "metadata.name")},
			VolumeMounts:    []corev1.VolumeMount{{Name: "data", MountPath: dataPath}, {Name: "records", MountPath: "/records"}},
		}},
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName}}},
			{Name: "records", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: l.records}}},
		},
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon,
		})
	}
	return pod
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// createWriter makes a pod that counts in a claim.
func (l *lab) createWriter(name, claimName string) {
	l.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: l.writer(claimName)}
	_, err := l.api.CoreV1().Pods(namespace).Create(l.Context(), pod, metav1.CreateOptions{})
	l.must(err)
}

// createSet makes a StatefulSet of one counter, with a claim of its own.
func (l *lab) createSet(name, class string) {
	l.Helper()
	labels := map[string]string{"app": name}
	_, err := l.api.AppsV1().StatefulSets(namespace).Create(l.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: l.templated()},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claim("data", class, "1Gi", nil)},
		},
	}, metav1.CreateOptions{})
	l.must(err)
}

// templated is writer without the claim, which the StatefulSet adds.
func (l *lab) templated() corev1.PodSpec {
	pod := l.writer("")
	pod.Volumes = slices.DeleteFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "data" })
	return pod
}

// deleteSet removes a StatefulSet with its claim.
// spreadDriver waits until the driver's controllers are on two machines, as where no machine has failed. Both are on the
// one that is left after a failure, and nothing moves one back: here it is deleted.
func (l *lab) spreadDriver() {
	l.Helper()
	pods := l.api.CoreV1().Pods(system)
	l.await("the driver's controllers on two machines", func() error {
		list, err := pods.List(l.Context(), metav1.ListOptions{LabelSelector: "app=csi-do-controller"})
		if err != nil {
			return err
		}
		var on []string
		for _, pod := range list.Items {
			if pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" {
				on = append(on, pod.Spec.NodeName)
			}
		}
		if len(on) > 1 && on[0] != on[1] {
			return nil
		}
		if len(on) > 1 {
			err = pods.Delete(l.Context(), list.Items[1].Name, metav1.DeleteOptions{})
		}
		return errors.Join(err, fmt.Errorf("they are on %v", on))
	})
	l.awaitDriver()
}

func (l *lab) deleteSet(name string) {
	l.Helper()
	l.must(l.api.AppsV1().StatefulSets(namespace).Delete(l.Context(), name, metav1.DeleteOptions{}))
	l.deleteClaim("data-" + name + "-0")
}

func (l *lab) deletePod(name string) {
	l.Helper()
	l.must(l.api.CoreV1().Pods(namespace).Delete(l.Context(), name, metav1.DeleteOptions{}))
	l.await("pod "+name+" to be gone", func() error {
		_, err := l.api.CoreV1().Pods(namespace).Get(l.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

func (l *lab) deleteClaim(name string) {
	l.Helper()
	l.must(l.api.CoreV1().PersistentVolumeClaims(namespace).Delete(l.Context(), name, metav1.DeleteOptions{}))
}

// awaitPod waits until a pod runs, and returns it.
func (l *lab) awaitPod(name string) *corev1.Pod {
	l.Helper()
	var pod *corev1.Pod
	l.await("pod "+name, func() (err error) {
		if pod, err = l.api.CoreV1().Pods(namespace).Get(l.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return fmt.Errorf("it is %s on %q: %+v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.ContainerStatuses)
		}
		return nil
	})
	return pod
}

// volumeOf is the PersistentVolume of a claim.
func (l *lab) volumeOf(claimName string) *corev1.PersistentVolume {
	l.Helper()
	found, err := l.api.CoreV1().PersistentVolumeClaims(namespace).Get(l.Context(), claimName, metav1.GetOptions{})
	l.must(err)
	pv, err := l.api.CoreV1().PersistentVolumes().Get(l.Context(), found.Spec.VolumeName, metav1.GetOptions{})
	l.must(err)
	return pv
}

// mountOf is where the file system of a pod's claim is to be seen from here.
func (l *lab) mountOf(pod *corev1.Pod, claimName string) string {
	l.Helper()
	path, err := l.see(pod.Spec.NodeName, filepath.Join(
		"/var/lib/kubelet/pods", string(pod.UID), "volumes/kubernetes.io~csi", l.volumeOf(claimName).Name, "mount"))
	l.must(err)
	return path
}

// record is the last number that writers whose names begin with a prefix have recorded, and the name of the writer.
func (l *lab) record(prefix string) (number int, writer string) {
	l.Helper()
	for _, line := range l.recorded(prefix) {
		text, who, _ := strings.Cut(line, " ")
		if n, err := strconv.Atoi(text); err == nil && n > number {
			number, writer = n, who
		}
	}
	return number, writer
}

// recorded are all lines that writers have recorded.
func (l *lab) recorded(prefix string) []string {
	l.Helper()
	files, err := filepath.Glob(filepath.Join(l.records, prefix+"*"))
	l.must(err)
	var all []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		l.must(err)
		text := string(content)
		if end := strings.LastIndexByte(text, '\n'); end >= 0 {
			all = append(all, strings.Split(text[:end], "\n")...)
		}
	}
	return all
}

// awaitCount waits until a counter has recorded some more numbers, on a given machine unless that is empty.
func (l *lab) awaitCount(prefix, machine string) time.Duration {
	l.Helper()
	const more = 5
	from, _ := l.record(prefix)
	return l.await("the counter "+prefix+" to count on", func() error {
		number, writer := l.record(prefix)
		if number < from+more || !strings.HasPrefix(writer, prefix+"-"+machine) {
			return fmt.Errorf("%s has recorded %d, it was %d before", writer, number, from)
		}
		return nil
	})
}

// checkNumbers checks that the file of a volume has all numbers from 1 on, once each, and each that was recorded, by the one writer that recorded it.
func (l *lab) checkNumbers(file, prefix string) {
	l.Helper()
	recorded := l.recorded(prefix) // before the file is read: what is recorded is in it
	content, err := os.ReadFile(file)
	l.must(err)
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	if !strings.HasSuffix(string(content), "\n") {
		lines = lines[:len(lines)-1] // it is being written
	}
	for i, line := range lines {
		if text, _, _ := strings.Cut(line, " "); text != strconv.Itoa(i+1) {
			l.Fatalf("line %d of the volume is %q", i+1, line)
		}
	}
	for _, line := range recorded {
		text, _, _ := strings.Cut(line, " ")
		number, err := strconv.Atoi(text)
		l.must(err)
		if number > len(lines) {
			l.Fatalf("%q was recorded and lost: the volume has %d numbers", line, len(lines))
		}
		if lines[number-1] != line {
			l.Fatalf("%q was recorded, and the volume has %q", line, lines[number-1])
		}
	}
	l.Logf("%d numbers are on the volume, %d of them recorded by %d writers", len(lines), len(recorded), l.writers(recorded))
}

func (l *lab) writers(lines []string) int {
	names := map[string]bool{}
	for _, line := range lines {
		_, who, _ := strings.Cut(line, " ")
		names[who] = true
	}
	return len(names)
}

// snapshotOf makes a VolumeSnapshot of a claim and waits until it can be used.
func (l *lab) snapshotOf(name, claimName string) {
	l.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"source": map[string]any{"persistentVolumeClaimName": claimName}},
	}}
	_, err := l.dynamic.Resource(snapshots).Namespace(namespace).Create(l.Context(), object, metav1.CreateOptions{})
	l.must(err)
	l.await("snapshot "+name, func() error {
		got, err := l.dynamic.Resource(snapshots).Namespace(namespace).Get(l.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ready, _, _ := unstructured.NestedBool(got.Object, "status", "readyToUse"); !ready {
			return fmt.Errorf("its status is %v", got.Object["status"])
		}
		return nil
	})
}

// outOfService sets or removes, by hand, the taint by which Kubernetes gives up a machine's pods and volumes.
func (l *lab) outOfService(machine string, on bool) {
	l.Helper()
	l.await("the taint of "+machine, func() error {
		node, err := l.api.CoreV1().Nodes().Get(l.Context(), machine, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
		if on {
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
		}
		_, err = l.api.CoreV1().Nodes().Update(l.Context(), node, metav1.UpdateOptions{})
		return err
	})
}

// cordon makes the scheduler avoid a machine, or not.
func (l *lab) cordon(machine string, on bool) {
	l.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)
	_, err := l.api.CoreV1().Nodes().Patch(l.Context(), machine, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	l.must(err)
}

// awaitNode waits until a Node is Ready, or not.
func (l *lab) awaitNode(machine string, ready bool) {
	l.Helper()
	l.await(fmt.Sprintf("node %s to be ready: %t", machine, ready), func() error {
		node, err := l.api.CoreV1().Nodes().Get(l.Context(), machine, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && (c.Status == corev1.ConditionTrue) == ready {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v", node.Status.Conditions)
	})
}
