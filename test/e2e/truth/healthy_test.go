// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	bgpv1alpha1 "github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/routereflector"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// Names in every world. The leader of each component holds its Lease.
const (
	system      = "kube-system"
	mooring     = "mooring-system"
	region      = "nyc1"
	cloud       = "digitalocean-cloud-controller-manager"
	driver      = "digitalocean-csi-driver"
	nodeSync    = "calico-node-sync"
	reflectors  = "calico-route-reflector-operator"
	storage     = "etcd-storage-operator"
	account     = cloud + "-account"
	calicoKinds = "crd.projectcalico.org/v1"
)

// leases are those of leader election, by component.
func leases() map[string][2]string {
	return map[string][2]string{
		cloud:      {system, "cloud-controller-manager"},
		nodeSync:   {mooring, "calico-node-sync.nodes.mooring.dev"},
		reflectors: {mooring, "calico-route-reflector-operator.bgp.mooring.dev"},
		storage:    {"kube-apiserver-storage", "etcd-storage-operator.etcd.mooring.dev"},
	}
}

// healthy is a cluster in which all components work: three machines, of which two are route reflectors, a load
// balancer, a volume in use, and a tenant.
func healthy(t *testing.T, now time.Time) *world {
	t.Helper()
	w := &world{
		T: t, now: now, objects: map[string]runtime.Object{}, droplets: map[string]int{}, token: sim.DefaultToken,
		beating: map[string]bool{},
	}
	w.cloud = sim.New(sim.Options{Seed: 1, Clock: clocktesting.NewFakeClock(now.Add(-2 * time.Hour))})
	w.account = w.cloud.Account("")
	for _, file := range []string{
		cloud + "-token-file", driver, nodeSync + "-kubernetes", reflectors + "-kubernetes", storage,
	} {
		w.manifest(file + ".yaml")
	}
	for _, o := range w.objects {
		makeReady(o)
	}
	for component, l := range leases() {
		w.lease(l[0], l[1], component+"-pod-1")
	}
	w.lease(system, "kube-controller-manager", "server-1")
	accountLease := w.lease(system, account, "")
	owner, err := w.api().Account(t.Context())
	w.must(err)
	accountLease.Annotations = map[string]string{
		"cloud.mooring.dev/account": owner.UUID, "cloud.mooring.dev/team": owner.Team,
	}
	w.put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: mooring, Name: "calico-node-sync-state"},
		Data:       map[string]string{"memory.json": "{}"},
	})
	for i, name := range []string{"w1", "w2", "w3"} {
		w.machine(name, i+1, i < 2)
	}
	w.topology()
	w.service()
	w.claim()
	w.tenant()
	return w
}

// makeReady makes all pods of a workload ready.
func makeReady(o runtime.Object) {
	switch o := o.(type) {
	case *appsv1.Deployment:
		n := int32(1)
		if o.Spec.Replicas != nil {
			n = *o.Spec.Replicas
		}
		o.Status.Replicas, o.Status.ReadyReplicas = n, n
	case *appsv1.StatefulSet:
		o.Status.Replicas, o.Status.ReadyReplicas = 1, 1
		if o.Spec.Replicas != nil {
			o.Status.Replicas, o.Status.ReadyReplicas = *o.Spec.Replicas, *o.Spec.Replicas
		}
	case *appsv1.DaemonSet:
		o.Status.DesiredNumberScheduled, o.Status.NumberReady = 3, 3
	}
}

func (w *world) lease(namespace, name, holder string) *coordinationv1.Lease {
	w.Helper()
	seconds, at := int32(15), metav1.NewMicroTime(w.now)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
	if holder != "" {
		l.Spec.HolderIdentity = &holder
		w.beating[namespace+"/"+name] = true
	}
	w.put(l)
	return l
}

func (w *world) machine(name string, number int, reflector bool) {
	w.Helper()
	d, err := w.account.CreateDroplet(sim.DropletSpec{Name: name, Region: region})
	w.must(err)
	w.droplets[name] = d.ID
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				"region": region, corev1.LabelTopologyRegion: region, corev1.LabelHostname: name,
				corev1.LabelTopologyZone: "zone-" + strconv.Itoa(number),
			},
			Annotations: map[string]string{routereflector.IPv4Annotation: fmt.Sprintf("10.0.%d.%d/16", number/250, number%250)},
		},
		Spec: corev1.NodeSpec{ProviderID: providerid.Format(d.ID)},
	}
	if reflector {
		n.Labels[bgpv1alpha1.ReflectorLabel] = "main"
		n.Annotations[routereflector.ClusterIDAnnotation] = "244.0.0.1"
	}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: w.ago(29 * 24 * time.Hour),
	}}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", number/250, number%250)},
		{Type: corev1.NodeExternalIP, Address: fmt.Sprintf("198.51.%d.%d", 100+number/250, number%250)},
	}
	w.put(n, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
			Name: volumes.Driver, NodeID: strconv.Itoa(d.ID), TopologyKeys: []string{"region"},
		}}},
	})
}

// topology is what calico-route-reflector-operator keeps, and Calico's settings.
func (w *world) topology() {
	w.Helper()
	status := map[string]any{
		"phase": "Ready", "mode": "Flat", "mesh": "Off", "clients": 1, "desiredReflectors": 2, "readyReflectors": 2,
		"observedGeneration": 1,
		"sessions":           map[string]any{"established": 2, "expected": 2, "summary": "2/2"},
		"conditions": []metav1.Condition{
			{Type: bgpv1alpha1.ConditionAccepted, Status: "True", Reason: "Accepted", LastTransitionTime: w.ago(time.Hour)},
			{Type: bgpv1alpha1.ConditionDegraded, Status: "False", Reason: "Healthy", LastTransitionTime: w.ago(time.Hour)},
			{Type: "Ready", Status: "True", Reason: "Ready", LastTransitionTime: w.ago(time.Hour)},
		},
		"reflectors": []any{
			map[string]any{
				"node": "w1", "zone": "zone-1", "clusterID": "244.0.0.1", "role": "Reflector", "clients": 1, "established": 1,
				"lastObserved": w.ago(time.Minute),
			},
			map[string]any{
				"node": "w2", "zone": "zone-2", "clusterID": "244.0.0.1", "role": "Reflector", "clients": 1, "established": 1,
				"lastObserved": w.ago(time.Minute),
			},
		},
	}
	spec := map[string]any{"rollout": map[string]any{"mode": "Manual"}, "redundancy": 2}
	main := w.custom(bgpv1alpha1.GroupVersion.String(), "RouteReflectorTopology", "main",
		map[string]any{"spec": spec, "status": status})
	main.SetGeneration(1)
	const is = "bgp.mooring.dev/reflector == 'main'"
	for name, from := range map[string]string{"main-clients": "!has(bgp.mooring.dev/reflector)", "main-reflectors": is} {
		p := w.custom(calicoKinds, "BGPPeer", name, map[string]any{
			"spec": map[string]any{"nodeSelector": from, "peerSelector": is},
		})
		p.SetLabels(map[string]string{bgpv1alpha1.TopologyLabel: "main"})
	}
	w.custom(calicoKinds, "BGPConfiguration", "default", map[string]any{
		"spec": map[string]any{"nodeToNodeMeshEnabled": false},
	})
	w.custom(calicoKinds, "ClusterInformation", "default", map[string]any{
		"spec": map[string]any{"datastoreReady": true, "calicoVersion": "v3.32.0"},
	})
	w.custom(calicoKinds, "IPPool", "pods", map[string]any{
		"spec": map[string]any{"cidr": "10.1.0.0/16", "ipipMode": "Never", "vxlanMode": "Never", "blockSize": 26},
	})
}

// api is a client of DigitalOcean.
func (w *world) api() *doapi.Client {
	w.Helper()
	api, err := doapi.New(doapi.Options{
		URL: "http://simulator/", Token: doapi.StaticToken(sim.DefaultToken), Transport: w.cloud.Transport(),
	})
	w.must(err)
	return api
}

// service is a Service whose load balancer is what the cloud component would have made.
func (w *world) service() {
	w.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front", Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"},
			Ports: []corev1.ServicePort{{Name: "https", Port: 443, NodePort: 30443, Protocol: corev1.ProtocolTCP}},
		},
	}
	s.UID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
	in := loadbalancer.Input{Service: s, Cluster: loadbalancer.Cluster{Region: region, DefaultType: annotation.DefaultType}}
	for name := range w.droplets {
		in.Nodes = append(in.Nodes, of[corev1.Node](w, "", name))
	}
	result, err := loadbalancer.Desired(in)
	w.must(err)
	o, err := w.api().CreateLoadBalancer(w.Context(), result.Request, result.CreateOnly)
	w.must(err)
	w.must(w.account.SetLoadBalancerStatus(o.ID, "active"))
	made, err := w.account.LoadBalancer(o.ID)
	w.must(err)
	w.balancer = o.ID
	s.Annotations[annotation.LoadBalancerID] = o.ID
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: made.IP}}
	w.put(s)
}

// claim is a claim whose volume a Pod uses on w1.
func (w *world) claim() {
	w.Helper()
	v, err := w.account.CreateVolume(sim.VolumeSpec{Name: "pvc-data", Size: 5, Description: volumes.Description})
	w.must(err)
	w.volume = v.ID
	w.must(w.account.AttachVolume(v.ID, w.droplets["w1"]))
	class := "do-block-storage"
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	source := "pvc-data"
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "claim-data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: source, AccessModes: modes,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size, AccessModes: modes},
	}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: source},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName: class,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: volumes.Driver, VolumeHandle: v.ID},
			},
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: claim.UID},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
		Spec: corev1.PodSpec{
			NodeName: "w1", Containers: []corev1.Container{{Name: "db", Image: "example.com/db"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	w.put(claim, pv, pod, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "attachment-data"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: volumes.Driver, NodeName: "w1",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &source},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	})
}

// tenant is an EtcdStorage of which everything is well.
func (w *world) tenant() {
	w.Helper()
	s := &etcdv1alpha1.EtcdStorage{}
	etcdv1alpha1.SetDefaults(s)
	s.Generation = 1
	late := metav1.NewTime(w.now.Add(3 * 365 * 24 * time.Hour))
	year := metav1.NewTime(w.now.Add(300 * 24 * time.Hour))
	s.Status = etcdv1alpha1.EtcdStorageStatus{
		ObservedGeneration: 1, Endpoint: "https://etcd-team-a.mooring-system.svc:2379", Prefix: "/team-a/",
		Proxies: "3/3", ReadyReplicas: s.Spec.Replicas,
		Usage: &etcdv1alpha1.Usage{
			Keys: 12, Bytes: resource.MustParse("1Mi"), ObservedAt: w.ago(72 * time.Hour), // its numbers are the same since
		},
		Certificates: &etcdv1alpha1.CertificateTimes{ServingCA: &late, ClientCA: &late, Serving: &year, Client: &year},
	}
	for kind, status := range map[string]metav1.ConditionStatus{
		"Ready": "True", etcdv1alpha1.ConditionCoreHealthy: "True", etcdv1alpha1.ConditionQuotaExceeded: "False",
		etcdv1alpha1.ConditionCoreReachable: "True", etcdv1alpha1.ConditionCoreWentBack: "False",
	} {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: "AsItIs", LastTransitionTime: w.ago(72 * time.Hour),
		})
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	w.must(err)
	delete(content, "metadata")
	u := w.custom(etcdv1alpha1.GroupVersion.String(), "EtcdStorage", "team-a", content)
	u.SetGeneration(1)
}
