// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// disagreements is one reading, with the pods that there are.
func (w *kubeWorld) disagreements(t *testing.T) []ipamcheck.Disagreement {
	t.Helper()
	data := must.Get(w.store.IPAM(t.Context())).Or(t)
	if data.PoolsUnread != "" || len(data.Pools)*len(data.Blocks)*len(data.Handles)*len(data.Affinities)*len(data.Endpoints)*len(data.Nodes) == 0 {
		t.Fatalf("read %+v", data)
	}
	pods := must.Get(w.api.Client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})).Or(t)
	data.Pods = map[ipamcheck.Pod]bool{}
	for _, p := range pods.Items {
		data.Pods[ipamcheck.Pod{Namespace: p.Namespace, Name: p.Name}] = true
	}
	return ipamcheck.Check(data)
}

// edit changes an object and returns what puts it back, with a new resourceVersion.
func (w *kubeWorld) edit(t *testing.T, of dynamic.ResourceInterface, name string, change func(object map[string]any)) (undo func()) {
	t.Helper()
	before := must.Get(of.Get(t.Context(), name, metav1.GetOptions{})).Or(t)
	planted := before.DeepCopy()
	change(planted.Object)
	must.Get(of.Update(t.Context(), planted, metav1.UpdateOptions{})).Or(t)
	return func() {
		now := must.Get(of.Get(t.Context(), name, metav1.GetOptions{})).Or(t)
		before.SetResourceVersion(now.GetResourceVersion())
		must.Get(of.Update(context.WithoutCancel(t.Context()), before, metav1.UpdateOptions{})).Or(t)
	}
}

// without deletes an object of Calico and returns what creates it again.
func (w *kubeWorld) without(t *testing.T, kind, name string) (undo func()) {
	t.Helper()
	object := w.get(t, kind, name)
	w.drop(t, kind, name)
	return func() {
		object.SetResourceVersion("")
		object.SetUID("")
		w.create(t, kind, object.Object)
	}
}

// with creates an object of Calico and returns what deletes it.
func (w *kubeWorld) with(t *testing.T, kind, name string, spec map[string]any) (undo func()) {
	t.Helper()
	w.object(t, kind, name, spec)
	return func() { w.drop(t, kind, name) }
}

// annotations are those of an object as it is read, made if there are none.
func annotations(object map[string]any) map[string]any {
	metadata := object["metadata"].(map[string]any)
	if metadata["annotations"] == nil {
		metadata["annotations"] = map[string]any{}
	}
	return metadata["annotations"].(map[string]any)
}

// Each disagreement that this datastore can have is found in custom resources exactly once, and nothing else with it.
func TestIPAMFindsExactlyWhatIsPlantedInCustomResources(t *testing.T) { //nolint:paralleltest // it is the only one in the cluster
	w := newKubeWorld(t)
	w.join(t, "ipam-a", 51, 2)
	w.join(t, "ipam-b", 52, 1)
	defer func() {
		for _, name := range []string{"ipam-a", "ipam-b"} {
			w.dropPods(t, name)
			w.leave(t, name)
			if err := w.clean(t, w.store, name); err != nil {
				t.Error(err)
			}
		}
	}()
	own := func(found []ipamcheck.Disagreement) []ipamcheck.Disagreement { // other tests may have left something
		return slices.DeleteFunc(found, func(d ipamcheck.Disagreement) bool { return strings.Contains(d.Subject+d.Detail, "kdd-") })
	}
	if found := own(w.disagreements(t)); len(found) > 0 {
		t.Fatalf("nothing is planted, and found are %+v", found)
	}
	cores := func(resource string) dynamic.ResourceInterface {
		of := w.raw.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource})
		if resource == "pods" {
			return of.Namespace("default")
		}
		return of
	}
	affinity, block := w.affinityOf(t, "ipam-a")
	cidr := block.Object["spec"].(map[string]any)["cidr"].(string)
	stored := must.Get(w.api.Client.CoreV1().Pods("default").Get(t.Context(), pod("ipam-a", 0).Name, metav1.GetOptions{})).Or(t)
	handle := caliconode.HandleID(stored)
	other := must.Get(w.api.Client.CoreV1().Pods("default").Get(t.Context(), pod("ipam-b", 0).Name, metav1.GetOptions{})).Or(t)
	spec := func(object map[string]any) map[string]any { return object["spec"].(map[string]any) }
	stray := "k8s-pod-network." + strings.Repeat("e", 64)
	for kind, plant := range map[ipamcheck.Kind]func() (undo func()){
		ipamcheck.HandleMissing: func() func() { return w.without(t, kindHandle, handle) },
		ipamcheck.HandleCount: func() func() {
			return w.edit(t, w.of(kindHandle), handle, func(o map[string]any) { spec(o)["block"] = map[string]any{cidr: int64(2)} })
		},
		ipamcheck.HandleWithoutAddress: func() func() {
			return w.with(t, kindHandle, stray, map[string]any{"handleID": stray, "block": map[string]any{cidr: int64(1)}, "deleted": false})
		},
		ipamcheck.FreeAndAssigned: func() func() {
			return w.edit(t, w.of(kindBlock), block.GetName(), func(o map[string]any) {
				for ordinal, index := range spec(o)["allocations"].([]any) {
					if index != nil {
						spec(o)["unallocated"] = append(spec(o)["unallocated"].([]any), int64(ordinal))
						return
					}
				}
			})
		},
		ipamcheck.AddressWithoutHandle: func() func() {
			return w.edit(t, w.of(kindBlock), block.GetName(), func(o map[string]any) {
				free := spec(o)["unallocated"].([]any)
				spec(o)["unallocated"] = free[1:]
				spec(o)["attributes"] = append(spec(o)["attributes"].([]any), map[string]any{"secondary": map[string]any{"node": "ipam-a"}})
				spec(o)["allocations"].([]any)[free[0].(int64)] = int64(len(spec(o)["attributes"].([]any)) - 1)
			})
		},
		ipamcheck.AffinityMissing: func() func() { return w.without(t, kindAffinity, affinity) },
		ipamcheck.AffinityDeleting: func() func() {
			return w.edit(t, w.of(kindAffinity), affinity, func(o map[string]any) { spec(o)["state"] = "pendingDeletion" })
		},
		ipamcheck.AffinityMismatch: func() func() {
			undo := w.without(t, kindAffinity, affinity)
			other := strings.Replace(affinity, "ipam-a", "ipam-b", 1)
			w.create(t, kindAffinity, map[string]any{
				"metadata": map[string]any{"name": other},
				"spec":     map[string]any{"node": "ipam-b", "cidr": cidr, "state": "confirmed", "deleted": "false", "type": "host"},
			})
			return func() { w.drop(t, kindAffinity, other); undo() }
		},
		ipamcheck.AffinityWithoutBlock: func() func() {
			return w.with(t, kindAffinity, "ipam-a-10-244-250-0-26",
				map[string]any{"node": "ipam-a", "cidr": "10.244.250.0/26", "state": "confirmed", "deleted": "false", "type": "host"})
		},
		ipamcheck.NodeAddressTwice: func() func() {
			return w.edit(t, cores("nodes"), "ipam-a", func(o map[string]any) { annotations(o)[annotationIPv4] = "172.30.1.52/24" })
		},
		ipamcheck.EndpointOthersAddress: func() func() {
			return w.edit(t, cores("pods"), stored.Name, func(o map[string]any) { annotations(o)[annotationPodIPs] = other.Annotations[annotationPodIPs] })
		},
		ipamcheck.EndpointUnassigned: func() func() {
			return w.edit(t, cores("pods"), stored.Name, func(o map[string]any) {
				annotations(o)[annotationPodIPs] = stored.Annotations[annotationPodIPs] + ",10.244.250.1/32"
			})
		},
	} {
		undo := plant()
		if found := own(w.disagreements(t)); len(found) != 1 || found[0].Kind != kind {
			t.Errorf("%s: found %+v", kind, found)
		} else {
			w.repair(t, found[0], func() []ipamcheck.Disagreement { return own(w.disagreements(t)) })
		}
		undo()
	}
	if found := own(w.disagreements(t)); len(found) > 0 {
		t.Errorf("nothing is planted any more, and found are %+v", found)
	}
}

// repair ends a disagreement and undoes that again, if a program can; otherwise it must be refused.
func (w *kubeWorld) repair(t *testing.T, x ipamcheck.Disagreement, check func() []ipamcheck.Disagreement) {
	t.Helper()
	repair, err := w.store.PlanRepair(t.Context(), x)
	if repairable := len(ipamcheck.Planned([]ipamcheck.Disagreement{x}).Repairs) > 0; !repairable {
		if err == nil {
			t.Errorf("%s is for a person, and would be repaired by %+v", x.Kind, repair)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", x.Kind, err)
		return
	}
	for key, seen := range repair.seen {
		stale := Repair{Change: repair.Change, seen: maps.Clone(repair.seen)}
		stale.seen[key] = seen + 1
		if err := w.store.ApplyRepair(t.Context(), stale); !errors.Is(err, ErrConflict) {
			t.Errorf("%s, with %s at another revision: %v", x.Kind, key, err)
		}
	}
	if err := w.store.ApplyRepair(t.Context(), repair); err != nil {
		t.Errorf("%s: %v", x.Kind, err)
		return
	}
	if left := check(); len(left) > 0 && (x.Kind != ipamcheck.AffinityMismatch || left[0].Kind != ipamcheck.AffinityMissing) {
		t.Errorf("%s: found %+v after the repair", x.Kind, left)
	}
	if err := w.store.Revert(t.Context(), repair.Change, true); err != nil {
		t.Errorf("%s: undoing it as a dry run: %v", x.Kind, err)
	}
	if err := w.store.Revert(t.Context(), repair.Change, false); err != nil {
		t.Errorf("%s: undoing it: %v", x.Kind, err)
	}
	if err := w.store.Revert(t.Context(), repair.Change, false); !errors.Is(err, ErrUnchanged) {
		t.Errorf("%s: undoing it twice: %v", x.Kind, err)
	}
	if found := check(); len(found) != 1 || found[0].Kind != x.Kind {
		t.Errorf("%s: found %+v after it was undone", x.Kind, found)
	}
	foreign := repair.Change
	foreign.After, foreign.Before = `{"somebody":"else"}`, "{}"
	if err := w.store.Revert(t.Context(), foreign, false); !errors.Is(err, ErrNotRestored) {
		t.Errorf("%s: undoing it after another write: %v", x.Kind, err)
	}
}

// affinityOf is the name of an affinity of the host, and its block.
func (w *kubeWorld) affinityOf(t *testing.T, host string) (name string, block *unstructured.Unstructured) {
	t.Helper()
	list := must.Get(w.of(kindAffinity).List(t.Context(), metav1.ListOptions{})).Or(t)
	for _, item := range list.Items {
		if spec := item.Object["spec"].(map[string]any); spec["node"] == host {
			return item.GetName(), w.get(t, kindBlock, strings.NewReplacer(".", "-", "/", "-").Replace(spec["cidr"].(string)))
		}
	}
	t.Fatalf("%s has no affinity", host)
	return "", nil
}
