// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// podKey names a pod; the pod of a name may be followed by another one with another UID.
type podKey struct{ namespace, name string }

func keyOf(pod *corev1.Pod) podKey { return podKey{pod.Namespace, pod.Name} }

func (k podKey) String() string { return k.namespace + "/" + k.name }

// sandbox is a pod that a machine runs: what there is to tear down even after the pod has left the API.
type sandbox struct {
	machine *machine
	pod     *corev1.Pod
}

// enqueuePod makes a pod due for work if it is, or was, on a machine of the fleet.
func (f *Fleet) enqueuePod(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if ok && f.machine(pod.Spec.NodeName) != nil {
		f.podQueue.Add(keyOf(pod))
	}
}

// enqueuePodsOf makes every pod due that a machine runs or should run.
func (f *Fleet) enqueuePodsOf(m *machine) {
	pods, err := f.pods.GetIndexer().ByIndex(byNode, m.Name)
	if err != nil {
		panic(err) // unreachable: the index was declared when the informer was made
	}
	for _, pod := range pods {
		f.enqueuePod(pod)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, sb := range f.sandboxes {
		if sb.machine == m {
			f.podQueue.Add(key)
		}
	}
}

func (f *Fleet) workOnPods(ctx context.Context) {
	for {
		key, shutdown := f.podQueue.Get()
		if shutdown {
			return
		}
		err := f.syncPod(ctx, key)
		switch {
		case err == nil:
			f.podQueue.Forget(key)
		case ctx.Err() == nil:
			f.cfg.Logger.V(1).Info("Work on pod failed and will be tried again", "pod", key.String(), "error", err.Error())
			f.podQueue.AddRateLimited(key)
		}
		f.podQueue.Done(key)
	}
}

// syncPod brings the pod of a name to where it should be, and first removes what an earlier pod of that name has left.
func (f *Fleet) syncPod(ctx context.Context, key podKey) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	obj, exists, err := f.pods.GetStore().GetByKey(key.String())
	if err != nil {
		return err
	}
	var pod *corev1.Pod
	if exists {
		pod = obj.(*corev1.Pod)
	}
	if sb, running := f.sandbox(key); running && (pod == nil || pod.UID != sb.pod.UID) {
		if !sb.machine.begin() {
			return nil // comes back when the machine thaws
		}
		defer sb.machine.end()
		if err := f.teardown(ctx, sb.machine, sb.pod); err != nil {
			return err
		}
	}
	if pod == nil {
		return nil
	}
	m := f.machine(pod.Spec.NodeName)
	if m == nil || !m.isRegistered() || !m.begin() {
		return nil // not ours, or comes back when the machine registers or thaws
	}
	defer m.end()
	switch {
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return nil // stands for a static pod, which these kubelets do not have
	case pod.DeletionTimestamp != nil:
		return f.terminate(ctx, m, pod)
	case isTerminal(pod):
		return f.teardown(ctx, m, pod)
	default:
		return f.start(ctx, m, pod)
	}
}

// start runs a pod: an address first, then the status that says so.
func (f *Fleet) start(ctx context.Context, m *machine, pod *corev1.Pod) error {
	now := metav1.NewTime(f.cfg.Clock.Now())
	if _, running := f.sandbox(keyOf(pod)); running && pod.Status.Phase == corev1.PodRunning {
		return f.patchPodStatus(ctx, pod, gatedStatus(pod, now))
	}
	addresses := []netip.Addr{m.Address}
	if !pod.Spec.HostNetwork {
		if m.PodNetwork == nil {
			return nil // no CNI plugin: it stays Pending
		}
		var err error
		if addresses, err = m.PodNetwork.Add(ctx, pod.DeepCopy()); err != nil {
			return fmt.Errorf("giving pod %s an address: %w", keyOf(pod), err)
		}
	}
	// From here on there is something to tear down, whatever becomes of the status.
	f.keepSandbox(keyOf(pod), sandbox{machine: m, pod: pod})
	status := runningStatus(pod, m.Address, addresses, now)
	if err := f.patchPodStatus(ctx, pod, status); err != nil {
		return err
	}
	f.cfg.Logger.V(1).Info("Started pod", "pod", keyOf(pod).String(), "node", m.Name, "addresses", addresses)
	return nil
}

// terminate ends a pod that is being deleted, in kubelet's order: its network goes, its status becomes final, and then
// it is removed from the API, so that its address is free before its name is.
func (f *Fleet) terminate(ctx context.Context, m *machine, pod *corev1.Pod) error {
	if err := f.teardown(ctx, m, pod); err != nil {
		return err
	}
	if !isTerminal(pod) {
		status := finalStatus(pod, metav1.NewTime(f.cfg.Clock.Now()))
		if err := f.patchPodStatus(ctx, pod, status); err != nil {
			return err
		}
	}
	now := int64(0)
	err := f.cfg.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now,
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err = ignoreSuperseded(err); err != nil {
		return fmt.Errorf("removing pod %s: %w", keyOf(pod), err)
	}
	f.cfg.Logger.V(1).Info("Removed pod", "pod", keyOf(pod).String(), "node", m.Name)
	return nil
}

// teardown takes a pod's address back, whether or not this process remembers having given it.
func (f *Fleet) teardown(ctx context.Context, m *machine, pod *corev1.Pod) error {
	if !pod.Spec.HostNetwork && m.PodNetwork != nil {
		if err := m.PodNetwork.Del(ctx, pod.DeepCopy()); err != nil {
			return fmt.Errorf("taking the address of pod %s back: %w", keyOf(pod), err)
		}
	}
	f.dropSandbox(keyOf(pod), pod.UID)
	return nil
}

// patchPodStatus writes a status if the pod is still the same one; if it is not, there is nothing to write.
func (f *Fleet) patchPodStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := podStatusPatch(pod, status)
	if err != nil || patch == nil {
		return err
	}
	_, err = f.cfg.Client.CoreV1().Pods(pod.Namespace).
		Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err = ignoreSuperseded(err); err != nil {
		return fmt.Errorf("writing status of pod %s: %w", keyOf(pod), err)
	}
	return nil
}

// ignoreSuperseded forgives that the pod is gone, or that its name now belongs to another: the watch will tell.
func ignoreSuperseded(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (f *Fleet) sandbox(key podKey) (sandbox, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sb, ok := f.sandboxes[key]
	return sb, ok
}

func (f *Fleet) keepSandbox(key podKey, sb sandbox) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sandboxes[key] = sb
}

func (f *Fleet) dropSandbox(key podKey, uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sb, ok := f.sandboxes[key]; ok && sb.pod.UID == uid {
		delete(f.sandboxes, key)
	}
}
