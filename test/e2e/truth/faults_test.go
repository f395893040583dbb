// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// fault is one row of the table: what is broken of which part, and how.
type fault struct {
	name string
	broken
	make func(w *world)
	// more is asked about, alongside the part and those that it affects.
	more []part
}

// faults is the whole table.
func faults() (all []fault) {
	for _, list := range [][]fault{
		componentFaults(), driverFaults(), tokenFaults(), cloudFaults(), balancerFaults(), volumeFaults(), tenantFaults(),
		topologyFaults(), machineFaults(),
	} {
		all = append(all, list...)
	}
	return all
}

// keeps are the parts of which a component alone reports how they are. Those that are read on both sides, machines and
// volumes, are not among them.
func keeps(component string) []part {
	return map[string][]part{
		cloud: {{"service", "shop/front"}}, storage: {{"tenant", "team-a"}},
		reflectors: {{"topology", "main"}},
	}[component]
}

// workload is the Deployment of a component.
func (w *world) workload(component string) *appsv1.Deployment {
	w.Helper()
	for _, o := range w.objects {
		if d, is := o.(*appsv1.Deployment); is && strings.HasSuffix(strings.Split(image(d), ":")[0], "/"+component) {
			return d
		}
	}
	w.Fatalf("the world has no Deployment of %s", component)
	return nil
}

func image(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }

// stop makes a Lease one that was last renewed so long ago.
func (w *world) stop(component string, age time.Duration) {
	w.Helper()
	l := leases()[component]
	delete(w.beating, l[0]+"/"+l[1])
	at := w.leaseOf(l[0], l[1])
	at.Spec.RenewTime.Time = w.now.Add(-age)
}

// remove takes a component away, as kubectl delete does.
func (w *world) remove(component string) {
	w.Helper()
	d := w.workload(component)
	drop[appsv1.Deployment](w, d.Namespace, d.Name)
	w.stop(component, time.Hour)
}

// scale makes a component one with so many pods, of which none is ready.
func (w *world) scale(component string, n int32) {
	w.Helper()
	d := w.workload(component)
	d.Spec.Replicas, d.Status.Replicas, d.Status.ReadyReplicas = &n, n, 0
	w.stop(component, time.Hour)
}

// forbid takes away the rights that service accounts of that name have in the whole cluster.
func (w *world) forbid(accounts ...string) {
	w.Helper()
	for key, o := range w.objects {
		b, is := o.(*rbacv1.ClusterRoleBinding)
		if is && slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return slices.Contains(accounts, s.Name) }) {
			delete(w.objects, key)
		}
	}
}

func componentFaults() (all []fault) {
	for _, c := range []string{cloud, nodeSync, reflectors, storage} {
		add := func(name string, affects []part, change func(w *world)) {
			all = append(all, fault{name: c + ": " + name, broken: broken{part: part{"component", c}, affects: affects}, make: change})
		}
		add("frozen for 25 s", keeps(c), func(w *world) { w.stop(c, 25*time.Second) })
		add("frozen for an hour", keeps(c), func(w *world) { w.stop(c, time.Hour) })
		add("its Lease was never made", keeps(c), func(w *world) {
			l := leases()[c]
			delete(w.beating, l[0]+"/"+l[1])
			delete(w.objects, "/registry/leases/"+l[0]+"/"+l[1])
		})
		add("its Lease is released, and nobody takes it", keeps(c), func(w *world) {
			l := leases()[c]
			w.stop(c, 10*time.Minute)
			none := ""
			w.leaseOf(l[0], l[1]).Spec.HolderIdentity = &none
		})
		add("gone", keeps(c), func(w *world) { w.remove(c) })
		add("gone with its Lease", keeps(c), func(w *world) {
			w.remove(c)
			l := leases()[c]
			delete(w.objects, "/registry/leases/"+l[0]+"/"+l[1])
		})
		add("scaled to 0", keeps(c), func(w *world) { w.scale(c, 0) })
		add("no pod is ready", keeps(c), func(w *world) { w.scale(c, 2) })
		add("no pod is ready, though one renews the Lease", keeps(c), func(w *world) { w.workload(c).Status.ReadyReplicas = 0 })
		add("installed twice", nil, func(w *world) {
			d := w.workload(c).DeepCopy()
			d.Name, d.UID = "second-"+d.Name, ""
			w.put(d)
		})
		add("its rights are missing", nil, func(w *world) { w.forbid(w.workload(c).Spec.Template.Spec.ServiceAccountName) })
		all[len(all)-1].blind = map[string]string{"version": "it does not look at rights"}
		all[len(all)-2].blind = map[string]string{"version": "it lists both"}
	}
	add := func(c, version string) {
		all = append(all, fault{
			name:   c + ": of an old version",
			broken: broken{part: part{"component", c}, blind: map[string]string{"version": "it lists the versions"}},
			make: func(w *world) {
				containers := w.workload(c).Spec.Template.Spec.Containers
				containers[0].Image = strings.Split(containers[0].Image, ":")[0] + ":" + version
			},
		})
	}
	add(cloud, "v0.0.1")
	add(nodeSync, "v0.0.1")
	add(reflectors, "v0.0.1")
	for i := len(all) - 3; i < len(all); i++ { // the sentence names all of the release
		all[i].may = []part{{"component", cloud}, {"component", driver}, {"component", nodeSync}, {"component", reflectors}}
		all[i].may = slices.DeleteFunc(all[i].may, func(p part) bool {
			same := p.name == nodeSync || p.name == reflectors
			return p == all[i].part || same != (all[i].part.name == nodeSync || all[i].part.name == reflectors)
		})
	}
	return all
}

// objectOf is what of a kind has that name.
func objectOf[T runtime.Object](w *world, name string) T {
	w.Helper()
	for _, o := range w.objects {
		if typed, is := o.(T); is && strings.HasSuffix(keyNameOf(w, o), "/"+name) {
			return typed
		}
	}
	w.Fatalf("the world has no %T %s", *new(T), name)
	return *new(T)
}

func keyNameOf(w *world, object runtime.Object) string {
	for key, o := range w.objects {
		if o == object {
			return key
		}
	}
	return ""
}

func driverFaults() (all []fault) {
	controller := func(w *world) *appsv1.StatefulSet { return objectOf[*appsv1.StatefulSet](w, "csi-do-controller") }
	plugin := func(w *world) *appsv1.DaemonSet { return objectOf[*appsv1.DaemonSet](w, "csi-do-node") }
	add := func(name string, change func(w *world)) { // what it attaches is read on both sides
		all = append(all, fault{name: driver + ": " + name, broken: broken{part: part{"component", driver}}, make: change})
	}
	add("no pod of its controller is ready", func(w *world) { controller(w).Status.ReadyReplicas = 0 })
	add("its controller is scaled to 0", func(w *world) {
		n := int32(0)
		controller(w).Spec.Replicas, controller(w).Status.ReadyReplicas = &n, 0
	})
	add("its controller is gone", func(w *world) { delete(w.objects, keyNameOf(w, controller(w))) })
	add("no pod of its node plugin is ready", func(w *world) { plugin(w).Status.NumberReady = 0 })
	add("its node plugin runs on 2 of 3 machines", func(w *world) { plugin(w).Status.NumberReady = 2 })
	add("its node plugin is gone", func(w *world) { delete(w.objects, keyNameOf(w, plugin(w))) })
	add("gone", func(w *world) {
		delete(w.objects, keyNameOf(w, plugin(w)))
		delete(w.objects, keyNameOf(w, controller(w)))
	})
	add("two controllers", func(w *world) {
		second := controller(w).DeepCopy()
		second.Name, second.UID = "second", ""
		w.put(second)
	})
	add("its rights are missing", func(w *world) {
		w.forbid(controller(w).Spec.Template.Spec.ServiceAccountName)
	})
	for i, f := range all {
		if slices.ContainsFunc([]string{"2 of 3", "two", "rights"}, func(n string) bool { return strings.Contains(f.name, n) }) {
			all[i].blind = map[string]string{"version": "it lists what there is"}
		}
	}
	return all
}
