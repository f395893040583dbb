// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bgpv1alpha1 "github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

func tenantFaults() (all []fault) {
	add := func(name string, change func(w *world)) {
		all = append(all, fault{name: "tenant: " + name, broken: broken{part: part{"tenant", "team-a"}}, make: change})
	}
	condition := func(reason string, status metav1.ConditionStatus, kinds ...string) func(w *world) {
		return func(w *world) {
			list := w.conditions("EtcdStorage", "team-a")
			for _, kind := range kinds {
				w.change(list, kind, status, reason)
			}
			w.set("EtcdStorage", "team-a", *list, "status", "conditions")
		}
	}
	add("at its quota", condition("BytesExceeded", "True", etcdv1alpha1.ConditionQuotaExceeded))
	add("the core has no space", condition("NoSpace", "False", etcdv1alpha1.ConditionCoreHealthy))
	add("the core has no leader", condition("NoLeader", "False", etcdv1alpha1.ConditionCoreHealthy))
	add("the core went back", condition("WentBack", "True", etcdv1alpha1.ConditionCoreWentBack))
	add("the core is overcommitted", condition("TooMuch", "True", etcdv1alpha1.ConditionCoreOvercommitted))
	add("the core is unreachable", condition("CoreUnreachable", "False", "Ready", etcdv1alpha1.ConditionCoreReachable))
	add("another's object is in the way", condition("Foreign", "True", etcdv1alpha1.ConditionConflict))
	add("not Ready: a right is missing", condition("MissingPermission", "False", "Ready"))
	add("whether it is Ready is unknown", condition("Unknown", "Unknown", "Ready"))
	add("the core is not healthy as far as is known", condition("Unknown", "Unknown", etcdv1alpha1.ConditionCoreHealthy))
	ends := func(name string, at time.Duration) func(w *world) {
		return func(w *world) {
			w.set("EtcdStorage", "team-a", metav1.NewTime(w.now.Add(at)), "status", "certificates", name)
		}
	}
	add("its serving certificate has expired", ends("serving", -time.Hour))
	add("its client CA has expired", ends("clientCA", -time.Hour))
	add("its serving certificate expires in an hour", ends("serving", time.Hour))
	add("none of its proxies is ready", func(w *world) {
		w.set("EtcdStorage", "team-a", "0/3", "status", "proxies")
		w.set("EtcdStorage", "team-a", 0, "status", "readyReplicas")
	})
	add("no status, for a month", func(w *world) { w.set("EtcdStorage", "team-a", map[string]any{}, "status") })
	add("its deletion hangs for an hour", func(w *world) {
		at := w.ago(time.Hour)
		s := w.customOf("EtcdStorage", "team-a")
		s.SetDeletionTimestamp(&at)
		s.SetFinalizers([]string{"etcd.mooring.dev/cleanup"})
	})
	return all
}

// conditions are those of an object's status.
func (w *world) conditions(kind, name string) *[]metav1.Condition {
	w.Helper()
	var list []metav1.Condition
	status, _ := w.customOf(kind, name).Object["status"].(map[string]any)
	w.decode(status["conditions"], &list)
	return &list
}

// change sets one of them, an hour ago.
func (w *world) change(list *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason string) {
	c := metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "because", LastTransitionTime: w.ago(time.Hour)}
	for i := range *list {
		if (*list)[i].Type == kind {
			(*list)[i] = c
			return
		}
	}
	*list = append(*list, c)
}

func topologyFaults() (all []fault) {
	add := func(name string, change func(w *world), may ...part) {
		// What is wrong with reflectors is told by the names of their machines as well.
		may = append(may, part{"machine", "w1"}, part{"machine", "w2"}, part{"machine", "w3"})
		all = append(all, fault{name: "reflectors: " + name, broken: broken{part: part{"topology", "main"}, may: may}, make: change})
	}
	condition := func(kind string, status metav1.ConditionStatus, reason string) func(w *world) {
		return func(w *world) {
			list := w.conditions("RouteReflectorTopology", "main")
			w.change(list, kind, status, reason)
			w.set("RouteReflectorTopology", "main", *list, "status", "conditions")
		}
	}
	node := func(w *world, name string) *corev1.Node { return of[corev1.Node](w, "", name) }
	add("Degraded", condition(bgpv1alpha1.ConditionDegraded, "True", "SessionsLost"))
	add("Frozen", condition(bgpv1alpha1.ConditionFrozen, "True", "NodesVanished"))
	add("not Accepted", condition(bgpv1alpha1.ConditionAccepted, "False", "SelectorOverlaps"))
	reflector := func(change func(r map[string]any)) func(w *world) {
		return func(w *world) {
			status, _ := w.customOf("RouteReflectorTopology", "main").Object["status"].(map[string]any)
			list, _ := status["reflectors"].([]any)
			r, _ := list[0].(map[string]any)
			change(r)
		}
	}
	add("w1 has lost its sessions", reflector(func(r map[string]any) { r["established"] = int64(0) }))
	add("w1 is not Ready", func(w *world) { w.notReady("w1", corev1.ConditionUnknown) }, part{"claim", "shop/data"})
	add("w1 has no label", func(w *world) { delete(node(w, "w1").Labels, bgpv1alpha1.ReflectorLabel) })
	add("w1 has another cluster ID", func(w *world) {
		node(w, "w1").Annotations[routereflector.ClusterIDAnnotation] = "244.0.0.9"
	})
	add("w2 is gone", func(w *world) { w.deleteMachine("w2") })
	all[len(all)-1].blind = map[string]string{"explain": "w1 is explained, which is well"}
	add("no status", func(w *world) { w.set("RouteReflectorTopology", "main", map[string]any{}, "status") })
	add("its BGPPeers are gone", func(w *world) {
		for _, name := range []string{"main-clients", "main-reflectors"} {
			delete(w.objects, keyNameOf(w, w.customOf("BGPPeer", name)))
		}
	})
	add("the BGPPeer of its reflectors is gone", func(w *world) {
		delete(w.objects, keyNameOf(w, w.customOf("BGPPeer", "main-reflectors")))
	})
	add("it is replacing w1 since an hour", func(w *world) {
		reflector(func(r map[string]any) { r["role"] = "Leaving" })(w)
		condition(bgpv1alpha1.ConditionProgressing, "True", "Progressing")(w)
		w.set("RouteReflectorTopology", "main", "Progressing", "status", "phase")
	})
	return all
}

// notReady is a Node whose condition changed ten minutes ago.
func (w *world) notReady(name string, status corev1.ConditionStatus) {
	w.Helper()
	n := of[corev1.Node](w, "", name)
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = status, w.ago(10*time.Minute)
}

// deleteMachine takes a machine away on all sides but Calico's and the topology's.
func (w *world) deleteMachine(name string) {
	w.Helper()
	w.must(w.account.DeleteDroplet(name))
	drop[corev1.Node](w, "", name)
	drop[storagev1.CSINode](w, "", name)
}

func machineFaults() (all []fault) {
	w3, w2 := part{"machine", "w3"}, part{"machine", "w2"}
	rest := []part{{"service", "shop/front"}, {"topology", "main"}}
	add := func(name string, change func(w *world), may ...part) {
		all = append(all, fault{
			name: "machine: " + name, broken: broken{part: w3, may: append(rest[:2:2], may...)}, make: change,
		})
	}
	node := func(w *world) *corev1.Node { return of[corev1.Node](w, "", "w3") }
	add("its kubelet no longer reports", func(w *world) { w.notReady("w3", corev1.ConditionUnknown) })
	add("its kubelet reports NotReady", func(w *world) { w.notReady("w3", corev1.ConditionFalse) })
	add("no kubelet has ever reported", func(w *world) { node(w).Status.Conditions = nil })
	add("switched off, and its Node is Ready", func(w *world) { w.must(w.account.SetDropletStatus("w3", "off")) })
	add("switched off, and its Node is NotReady", func(w *world) {
		w.must(w.account.SetDropletStatus("w3", "off"))
		w.notReady("w3", corev1.ConditionUnknown)
	})
	add("its droplet is deleted, and its Node is Ready", func(w *world) { w.must(w.account.DeleteDroplet("w3")) })
	add("its droplet is deleted, and its Node is NotReady", func(w *world) {
		w.must(w.account.DeleteDroplet("w3"))
		w.notReady("w3", corev1.ConditionUnknown)
	})
	add("calico-node has written no address", func(w *world) {
		delete(node(w).Annotations, routereflector.IPv4Annotation)
	})
	add("it waits for its cloud controller for a month", func(w *world) {
		node(w).Spec.Taints = []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: "NoSchedule"}}
	})
	add("it has the provider ID of w2", func(w *world) {
		node(w).Spec.ProviderID = of[corev1.Node](w, "", "w2").Spec.ProviderID
	}, w2)
	add("its Node is being deleted for an hour", func(w *world) {
		at := w.ago(time.Hour)
		node(w).DeletionTimestamp, node(w).Finalizers = &at, []string{"example.com/never"}
	})
	add("Calico has a block of a machine that is gone", func(w *world) {
		w.deleteMachine("w3")
		w.custom(calicoKinds, "BlockAffinity", "w3-10-1-0-0-26", map[string]any{
			"spec": map[string]any{"cidr": "10.1.0.0/26", "node": "w3", "state": "confirmed", "deleted": "false"},
		})
		w.stop(nodeSync, time.Hour)
	}, part{"component", nodeSync})
	all = append(all, fault{
		name:   "machine: kube-controller-manager has stopped, and nobody watches kubelets",
		broken: broken{part: w3, affects: []part{{"machine", "w1"}, w2}}, make: func(w *world) {
			delete(w.beating, system+"/kube-controller-manager")
			w.leaseOf(system, "kube-controller-manager").Spec.RenewTime.Time = w.now.Add(-time.Hour)
		},
	})
	return all
}
