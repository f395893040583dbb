// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
)

// longestLinger is for how long a sandbox may run at most on a machine whose kubelet is at work after its pod was deleted by force.
const longestLinger = 4 * time.Second

// churnSandboxes starts and ends sandboxes of pods that keep their names, as those of a StatefulSet, on this machine or another: in order, by force, or
// so that a pod gets another sandbox. What a sandbox had stays where nobody asks the CNI plugin to take it down.
func (sl *slot) churnSandboxes() {
	sl.takeDown()
	living := len(sl.pods)
	switch n := sl.IntN(12); {
	case living < 2 || n < 4:
		if name, ok := sl.takeName(); ok && living < 6 {
			sl.addPod(name)
		} else if ok {
			sl.returnName(name)
		}
	case n < 8:
		sl.deleteByForce(sl.IntN(living))
	case n < 10:
		sl.restartSandbox(sl.IntN(living))
	case n < 11:
		p := sl.pods[0]
		sl.pods = sl.pods[1:]
		if sl.end(p, false) {
			sl.returnName(p.Name)
		}
	default:
		sl.kubeletDies()
	}
}

// takeName takes the name of a pod that does not exist now.
func (sl *slot) takeName() (name string, ok bool) {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	if len(sl.absent) == 0 {
		return "", false
	}
	i := sl.IntN(len(sl.absent))
	name = sl.absent[i]
	sl.absent = slices.Delete(sl.absent, i, i+1)
	return name, true
}

func (sl *slot) returnName(name string) {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	sl.absent = append(sl.absent, name)
}

// mayLeak reports whether another sandbox may leave something, counting what is still there of earlier ones.
func (sl *slot) mayLeak() bool {
	handles := ipamPrefix + "handle/"
	if sl.kind == apiconfig.Kubernetes {
		handles = customPrefix + "ipamhandles/"
	}
	sl.dead[sl.name] = slices.DeleteFunc(sl.dead[sl.name], func(p *stormPod) bool { return !sl.history.has(handles + caliconode.HandleID(p.Pod)) })
	return len(sl.dead[sl.name]) < mostLeaks
}

// deleteByForce deletes a pod while its sandbox runs on, for good if the kubelet is dead.
func (sl *slot) deleteByForce(i int) {
	p := sl.pods[i]
	sl.pods = slices.Delete(sl.pods, i, i+1)
	p.lost = sl.mayLeak() && !sl.one(3)
	sl.truth.with(func() { p.life.gone = time.Now() })
	if !sl.deletePod(p) {
		return
	}
	sl.count("pods deleted by force")
	sl.returnName(p.Name)
	sl.lingering = append(sl.lingering, p)
	if !sl.kubeletDead.Load() {
		sl.letLast(p)
	}
}

// letLast lets a sandbox without its pod end soon.
func (sl *slot) letLast(p *stormPod) {
	last := time.Now().Add(sl.between(0, longestLinger))
	sl.truth.with(func() { p.life.lasts = last })
}

// takeDown ends the sandboxes that lingered for long enough.
func (sl *slot) takeDown() {
	sl.lingering = slices.DeleteFunc(sl.lingering, func(p *stormPod) bool {
		if p.life.lasts.IsZero() || time.Now().Before(p.life.lasts) {
			return false
		}
		if !p.lost {
			return sl.release(p)
		}
		sl.count("leftovers on machines that stay")
		sl.dead[sl.name] = append(sl.dead[sl.name], p)
		return true
	})
}

// restartSandbox is a sandbox that dies and is replaced: the pod stays, and the CNI plugin is not asked to take the first one down.
func (sl *slot) restartSandbox(i int) {
	old := sl.pods[i]
	revision, ok := sl.revision()
	if !ok || !sl.mayLeak() {
		return
	}
	sl.pods = slices.Delete(sl.pods, i, i+1)
	sl.truth.with(func() { old.life.end(revision) })
	sl.dead[sl.name] = append(sl.dead[sl.name], old)
	sl.count("old sandboxes under equal names")
	pod := old.DeepCopy()
	pod.UID = types.UID(fmt.Sprintf("sandbox %d", sl.next.Add(1)))
	sl.connect(&stormPod{Pod: pod, uid: old.uid, life: &podLife{}})
}

// kubeletDies lets the kubelet be dead for some time, in which pods are deleted by force and their sandboxes run on.
func (sl *slot) kubeletDies() {
	sl.count("dead kubelets")
	sl.kubeletDead.Store(true)
	sl.persist("marking "+sl.name+" as not ready", func(ctx context.Context) error { return sl.setReady(ctx, sl.name, corev1.ConditionUnknown) })
	for range 1 + sl.IntN(3) {
		if len(sl.pods) > 0 {
			sl.deleteByForce(sl.IntN(len(sl.pods)))
		}
		if !sl.pause(sl.between(time.Second, 8*time.Second)) {
			break
		}
	}
	sl.reviveKubelet()
}

// reviveKubelet starts a dead kubelet, which takes down what has no pod any more.
func (sl *slot) reviveKubelet() {
	if !sl.kubeletDead.Load() {
		return
	}
	for _, p := range sl.lingering {
		if p.life.lasts.IsZero() {
			sl.letLast(p)
		}
	}
	sl.persist("marking "+sl.name+" as ready", func(ctx context.Context) error { return sl.setReady(ctx, sl.name, corev1.ConditionTrue) })
	sl.kubeletDead.Store(false)
}

// beNaive is the controller that anybody would write first: what has no Node or pod is removed.
func (st *storm) beNaive(ctx context.Context) {
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType = st.kind
	config.Spec.Kubeconfig, config.Spec.K8sClientQPS = st.api.Kubeconfig, 1000
	if st.kind == apiconfig.EtcdV3 {
		config.Spec.EtcdEndpoints = newRelay(st.t, st.etcd.Endpoint).url()
	}
	store, err := caliconode.Connect(*config)
	if err != nil {
		st.t.Error(err)
		return
	}
	defer func() { _ = store.Close() }()
	for ctx.Err() == nil {
		if st.kind == apiconfig.EtcdV3 {
			st.removeNodesNaively(ctx, store)
		}
		st.removeAddressesNaively(ctx, store)
	}
}

func (st *storm) isGone(ctx context.Context, node string) bool {
	_, err := st.api.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func (st *storm) removeNodesNaively(ctx context.Context, store *caliconode.Datastore) {
	list, err := store.Client().Nodes().List(ctx, options.ListOptions{})
	if err != nil {
		return
	}
	for _, node := range list.Items {
		if len(node.Spec.OrchRefs) > 0 && st.isGone(ctx, node.Name) {
			_, _ = store.Client().Nodes().Delete(ctx, node.Name, options.DeleteOptions{})
		}
	}
}

func (st *storm) removeAddressesNaively(ctx context.Context, store *caliconode.Datastore) {
	blocks, err := store.Backend().List(ctx, model.BlockListOptions{}, "")
	if err != nil {
		return
	}
	var addresses []ipam.ReleaseOptions
	for _, kv := range blocks.KVPairs {
		block, _ := kv.Value.(*model.AllocationBlock)
		for ordinal, index := range block.Allocations {
			if index == nil {
				continue
			}
			of := block.Attributes[*index].AttrSecondary
			_, err := st.api.Client.CoreV1().Pods(of[ipam.AttributeNamespace]).Get(ctx, of[ipam.AttributePod], metav1.GetOptions{})
			if of[ipam.AttributePod] != "" && apierrors.IsNotFound(err) || of[ipam.AttributeNode] != "" && st.isGone(ctx, of[ipam.AttributeNode]) {
				addresses = append(addresses, ipam.ReleaseOptions{Address: block.OrdinalToIP(ordinal).String()})
			}
		}
	}
	_, _, _ = store.Client().IPAM().ReleaseIPs(context.WithoutCancel(ctx), addresses...) // it panics when the context ends
}
