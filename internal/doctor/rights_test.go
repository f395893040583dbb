// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// asked are the rights of workloads, of which those are missing that no says.
func asked(no func(doctor.Question) bool, workloads ...doctor.Workload) doctor.RightsEvidence {
	e := doctor.RightsEvidence{Workloads: runs(workloads...).Workloads, Allowed: map[doctor.Question]bool{}}
	for _, q := range doctor.Questions(e.Workloads) {
		e.Allowed[q] = !no(q)
	}
	return e
}

func nothing(doctor.Question) bool { return false }

func inKubernetes(w *doctor.Workload) { w.Env["DATASTORE_TYPE"] = doctor.Variable{Value: "kubernetes"} }

func inEtcd(w *doctor.Workload) { w.Env["ETCD_ENDPOINTS"] = doctor.Variable{Elsewhere: true} }

// volumeDriver is one half of digitalocean-csi-driver, without a csi-snapshotter.
func volumeDriver(kind string) doctor.Workload {
	return doctor.Workload{
		Kind: kind, Namespace: "kube-system", Name: "csi-do-controller", Wanted: 1, Ready: 1, Account: "csi-do-controller-sa",
		Images: []string{"example.com/mooring/digitalocean-csi-driver:v1", "example.com/csi-attacher:v4"},
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	noLeases := func(q doctor.Question) bool { return q.Resource == "leases" && q.Verb != "create" }
	noCalico := func(q doctor.Question) bool {
		return q.Resource == "ipamhandles" && slices.Contains([]string{"list", "delete"}, q.Verb)
	}
	operator := deployment("kube-apiserver-storage/etcd-storage-operator", storageImage)
	for name, test := range map[string]struct {
		evidence doctor.RightsEvidence
		want     []string
		do       string
	}{
		"all there":       {asked(nothing, nodeSync(inKubernetes), operator, cloudManager()), nil, ""},
		"somebody else's": {asked(func(doctor.Question) bool { return true }, deployment("a/b", "nginx")), nil, ""},
		"stopped":         {asked(func(doctor.Question) bool { return true }, nodeSync(pods(0, 0))), nil, ""},
		"in its namespace": {
			asked(noLeases, nodeSync(inEtcd)),
			[]string{
				"problem rights: ServiceAccount mooring-system/calico-node-sync may not get leases.coordination.k8s.io in namespace kube-node-lease, which Role calico-node-sync allows it",
				"problem rights: ServiceAccount mooring-system/calico-node-sync may not get, update leases.coordination.k8s.io calico-node-sync.nodes.mooring.dev in namespace " +
					"mooring-system, which Role calico-node-sync allows it",
			},
			"kubectl auth reconcile -f dist/calico-node-sync-etcdv3.yaml",
		},
		"everywhere": {
			asked(noCalico, nodeSync(inKubernetes)),
			[]string{"problem rights: ServiceAccount mooring-system/calico-node-sync may not list, delete ipamhandles.crd.projectcalico.org, which ClusterRole mooring-calico-node-sync-datastore allows it"},
			"kubectl auth reconcile -f dist/calico-node-sync-kubernetes.yaml",
		},
		"in another namespace": {
			asked(noLeases, deployment("b/etcd-storage-operator", storageImage)),
			[]string{"problem rights: ServiceAccount b/etcd-storage-operator may not get, update leases.coordination.k8s.io etcd-storage-operator.etcd.mooring.dev in namespace b, " +
				"which Role etcd-storage-operator allows it"},
			"sed 's/namespace: kube-apiserver-storage$/namespace: b/' dist/etcd-storage-operator.yaml | kubectl auth reconcile -f -; an error about a kind that is not registered does no harm",
		},
		"the upstream project's account": {
			asked(func(q doctor.Question) bool { return q.Resource == "deployments" }, deployment("kube-system/kube-calico-controller", syncImage, inEtcd)),
			[]string{"problem rights: ServiceAccount kube-system/kube-calico-controller may not get deployments.apps kube-calico-controller in namespace kube-system, which Role calico-node-sync allows it"},
			"bind the roles of dist/calico-node-sync-etcdv3.yaml to ServiceAccount kube-system/kube-calico-controller in place of mooring-system/calico-node-sync",
		},
		"under another name": {
			asked(func(q doctor.Question) bool { return q.Resource == "deployments" }, deployment("mooring-system/second", syncImage, inEtcd, func(w *doctor.Workload) { w.Account = "calico-node-sync" })),
			[]string{"problem rights: ServiceAccount mooring-system/calico-node-sync may not get deployments.apps second in namespace mooring-system, which Role calico-node-sync allows it"},
			"add second to the resourceNames of deployments: kubectl -n mooring-system edit role calico-node-sync",
		},
		"no account": {
			asked(func(q doctor.Question) bool { return q.Resource == "deployments" }, nodeSync(inEtcd, func(w *doctor.Workload) { w.Account = "" })),
			[]string{"problem rights: ServiceAccount mooring-system/default may not get deployments.apps calico-node-sync in namespace mooring-system, which Role calico-node-sync allows it"},
			"bind the roles of dist/calico-node-sync-etcdv3.yaml to ServiceAccount mooring-system/default in place of mooring-system/calico-node-sync",
		},
		"the volume driver's controller": {
			asked(func(q doctor.Question) bool { return q.Resource == "volumeattachments" && q.Subresource == "status" }, volumeDriver("StatefulSet"), volumeDriver("DaemonSet")),
			[]string{"problem rights: ServiceAccount kube-system/csi-do-controller-sa may not patch volumeattachments/status.storage.k8s.io, which ClusterRole csi-do-attacher-role allows it"},
			"kubectl auth reconcile -f releases/digitalocean-csi-driver/latest.yml; an error about a kind that is not registered does no harm",
		},
		"a volume driver without snapshots": {
			asked(func(q doctor.Question) bool { return q.Resource == "volumesnapshotclasses" }, volumeDriver("StatefulSet")), nil, "",
		},
		"by Helm": {
			asked(noCalico, nodeSync(inKubernetes, made("calico-node-sync", "m"), func(w *doctor.Workload) { w.Labels["app.kubernetes.io/managed-by"] = "Helm" })),
			[]string{"problem rights: ServiceAccount mooring-system/calico-node-sync may not list, delete ipamhandles.crd.projectcalico.org, which ClusterRole mooring-calico-node-sync-datastore allows it"},
			"helm -n mooring-system upgrade m with your values adds it again",
		},
		"of cert-manager": {
			asked(func(q doctor.Question) bool { return q.Group == "cert-manager.io" && q.Verb == "delete" }, operator),
			[]string{"note rights: ServiceAccount kube-apiserver-storage/etcd-storage-operator may not delete certificates.cert-manager.io in namespace kube-apiserver-storage, " +
				"which Role etcd-storage-operator allows it"},
			"kubectl auth reconcile -f dist/etcd-storage-operator.yaml; an error about a kind that is not registered does no harm",
		},
		"of anyone who reads metrics": {
			asked(func(q doctor.Question) bool { return q.Resource == "tokenreviews" }, cloudManager(func(w *doctor.Workload) { w.Account = "cloud-controller-manager" })),
			[]string{"warning rights: ServiceAccount kube-system/cloud-controller-manager may not create tokenreviews.authentication.k8s.io, which ClusterRole system:cloud-controller-manager allows it"},
			"kubectl auth reconcile -f releases/digitalocean-cloud-controller-manager/latest.yml",
		},
		"a journal that is a folder": {
			asked(func(q doctor.Question) bool { return q.Resource == "configmaps" && q.Verb == "delete" }, nodeSync(inEtcd, args("--journal=folder"))), nil, "",
		},
		"a datastore that nobody knows": {
			asked(noCalico, nodeSync(env("DATASTORE_TYPE", doctor.Variable{Elsewhere: true}))),
			[]string{"note rights: not read: rights of Deployment mooring-system/calico-node-sync: its variables do not name Calico's datastore, so that " +
				"rights for Calico's objects in Kubernetes were not checked"},
			"",
		},
		"a kubeconfig": {
			asked(noCalico, nodeSync(inKubernetes, args("--kubeconfig=/etc/k"))),
			[]string{"note rights: not read: rights of Deployment mooring-system/calico-node-sync: it has --kubeconfig, so that its rights are those of that user"}, "",
		},
		"variables of the predecessor": {
			asked(func(q doctor.Question) bool { return q.Resource == "routereflectortopologies" && q.Verb == "create" },
				deployment("mooring-system/calico-route-reflector-operator", rrImage, inKubernetes, env("ROUTE_REFLECTOR_MIN", doctor.Variable{Value: "3"}))),
			[]string{"problem rights: ServiceAccount mooring-system/calico-route-reflector-operator may not create routereflectortopologies.bgp.mooring.dev, " +
				"which ClusterRole mooring-calico-route-reflector-operator-environment allows it"},
			"kubectl auth reconcile -f dist/calico-route-reflector-operator-environment.yaml; an error about a kind that is not registered does no harm",
		},
		"nobody may ask": {
			doctor.RightsEvidence{Workloads: runs(nodeSync(inEtcd)).Workloads, Problem: "you may not create subjectaccessreviews"},
			[]string{"warning rights: not read: rights: you may not create subjectaccessreviews"}, "request the right to read it, or ask a person who has it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findings := doctor.Rights(test.evidence)
			if diff := cmp.Diff(test.want, said(findings)); diff != "" {
				t.Error(diff)
			}
			if test.do != "" && findings[0].Do != test.do {
				t.Errorf("do %s", findings[0].Do)
			}
		})
	}
	if findings := doctor.Rights(asked(nothing, nodeSync(inKubernetes))); len(findings) != 1 || findings[0].Severity != finding.OK {
		t.Errorf("%+v", findings)
	}
	// Without answers nothing is well.
	if findings := doctor.Rights(doctor.RightsEvidence{Workloads: runs(nodeSync(inEtcd)).Workloads, Problem: "x"}); len(findings) != 1 {
		t.Errorf("%+v", findings)
	}
}

// Each right that is missing is found, each that is there is not, in whichever order the workloads come.
func TestRightsAreFoundEachAndOrderBlind(t *testing.T) {
	t.Parallel()
	workloads := []doctor.Workload{
		nodeSync(inKubernetes), cloudManager(), deployment("kube-apiserver-storage/etcd-storage-operator", storageImage),
		deployment("mooring-system/calico-route-reflector-operator", rrImage, inEtcd),
	}
	cases.Check(t, func(t *rapid.T) {
		e := asked(nothing, workloads...)
		all := doctor.Questions(e.Workloads)
		if len(all) < 100 {
			t.Fatalf("%d questions", len(all))
		}
		missing := rapid.SampledFrom(all).Draw(t, "missing")
		e.Allowed[missing] = false
		got := doctor.Rights(e)
		if n := len(said(got)); n != 1 || !strings.Contains(got[0].What, " "+missing.Verb+" "+missing.Resource) || !strings.Contains(got[0].What, missing.Account) && got[0].Severity != finding.OK {
			t.Fatalf("%+v: %v", missing, said(got))
		}
		other := asked(nothing, workloads...)
		shuffle(t, other.Workloads)
		other.Allowed[missing] = false
		if diff := cmp.Diff(got, doctor.Rights(other)); diff != "" {
			t.Fatal(diff)
		}
	})
}
