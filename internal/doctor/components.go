// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// The components, by the names of their binaries, images and labels.
const (
	Cloud        = "digitalocean-cloud-controller-manager"
	admission    = "digitalocean-cloud-controller-manager-admission-server"
	NodeSync     = "calico-node-sync"
	Reflectors   = "calico-route-reflector-operator"
	Storage      = "etcd-storage-operator"
	storageProxy = "etcd-storage-proxy"
	Driver       = "digitalocean-csi-driver"
)

// accountLease is where the cloud component keeps whose droplets the cluster's are, and the health of its token
// (package docloud/machines, which links Kubernetes' cloud controllers).
const accountLease = "digitalocean-cloud-controller-manager-account"

// component is one of Mooring's programs.
type component struct {
	name string
	// lease is that of its leader election, in its namespace if leaseIn is empty; no lease for those that elect nobody.
	lease, leaseIn string
	// leaseFlag and leaseInFlag are the flags that name another one. electing is what is the case without --leader-elect.
	leaseFlag, leaseInFlag string
	electing               bool
	// twice is how bad it is that two run, and why; empty where there may be many.
	twice    finding.Severity
	twiceWhy string
	// rivals do the same work.
	rivals []rival
}

// rival is another program with the same work. What is known of it is what docs/migration says.
type rival struct {
	// name is what people call it; empty for one that does no harm alongside ours.
	name string
	// images are the ends of its images' names; workloads the names of its Deployments.
	images, workloads []string
	severity          finding.Severity
	why, do           string
}

// IsOurs reports that one of Mooring's programs is among the images of a Pod, and not another project's of the same
// name.
func IsOurs(images []string) bool {
	return slices.ContainsFunc(components(), func(c component) bool { return c.is(Workload{Images: images}) })
}

// components are all of Mooring's programs that run in a cluster.
func components() []component {
	const id, in = "leader-election-id", "leader-election-namespace"
	return []component{
		{
			name: Cloud, lease: "cloud-controller-manager", leaseIn: "kube-system", leaseFlag: "leader-elect-resource-name", leaseInFlag: "leader-elect-resource-namespace", electing: true,
			twice: finding.Problem, twiceWhy: "both change load balancers, firewalls and Nodes, and they conflict unless both use the same Lease for leader election",
			rivals: []rival{{
				name: "DigitalOcean's own " + Cloud, images: []string{"digitalocean/" + Cloud}, severity: finding.Problem,
				why: "it elects no leader, so that both change load balancers, firewalls and Nodes at the same time",
				do:  "scale it to 0 before ours runs: docs/migration/digitalocean-cloud-controller-manager.md",
			}},
		},
		{name: admission, rivals: []rival{{images: []string{"digitalocean/" + admission}}}},
		{
			name: NodeSync, lease: "calico-node-sync.nodes.mooring.dev", leaseFlag: id, leaseInFlag: in,
			twice: finding.Warning, twiceWhy: "their writes cannot harm each other, but each has its own mass guard and confirmations: together they may remove twice as many",
			rivals: []rival{{
				name: "the old kube-calico-controller", images: []string{"kube-calico-controller"}, workloads: []string{"kube-calico-controller"}, severity: finding.Warning,
				why: "it only supports etcd v2, which no Calico since version 3 uses; in such an etcd it deletes everything that a single list of Nodes does not show",
				do:  "delete it, calico-node-sync does its work: docs/migration/calico-node-sync.md",
			}},
		},
		{
			name: Reflectors, lease: "calico-route-reflector-operator.bgp.mooring.dev", leaseFlag: id, leaseInFlag: in,
			twice: finding.Problem, twiceWhy: "each elects a leader in its own namespace, and both write BGPPeers and labels for the same topologies",
			rivals: []rival{{
				name: "the calico-route-reflector-operator of 2020", workloads: []string{"calico-route-reflector-operator-controller-manager"}, severity: finding.Problem,
				why: "with its topology multi it deletes BGPPeers that it has not created, including ours, and with each topology it labels Nodes as reflectors",
				do:  "scale it to 0: docs/migration/calico-route-reflector-operator.md",
			}},
		},
		{
			name: Storage, lease: "etcd-storage-operator.etcd.mooring.dev", leaseFlag: id, leaseInFlag: in,
			twice: finding.Problem, twiceWhy: "both make proxies and certificates for the same EtcdStorages, each with its own CAs; a tenant's ConfigMap has those of the last writer",
			rivals: []rival{{
				name: "etcdproxy-controller", images: []string{"etcdproxy-controller"}, workloads: []string{"etcdproxy-controller-deployment"}, severity: finding.Problem,
				why: "it makes proxies for all old objects, also for tenants that were migrated, and overwrites the Deployments of the operator",
				do:  "scale it to 0: docs/migration/etcd-storage-operator.md",
			}},
		},
		{name: storageProxy},
		{name: Driver}, // what else keeps volumes from working is in [Volumes]
	}
}

// is reports whether a workload is the rival: by its image, or by its name if it does not run the component.
func (r rival) is(c component, w Workload) bool {
	if w.labeled(c.name) {
		return false
	}
	return slices.ContainsFunc(r.images, w.runs) || slices.Contains(r.workloads, w.Name) && !w.runs(c.name)
}

// is reports whether a workload runs the component: by its image, or by the labels that our manifests and our chart give it.
func (c component) is(w Workload) bool {
	return !c.rivaled(w) && (w.labeled(c.name) || w.runs(c.name))
}

// rivaled reports whether a workload is a rival of the component.
func (c component) rivaled(w Workload) bool {
	return slices.ContainsFunc(c.rivals, func(r rival) bool { return r.is(c, w) })
}

// of are the workloads that run the component, those that are scaled to 0 too.
func (c component) of(workloads []Workload) []Workload {
	var out []Workload
	for _, w := range workloads {
		if c.is(w) {
			out = append(out, w)
		}
	}
	return out
}

// running are those that are to have pods.
func running(workloads []Workload) []Workload {
	return slices.DeleteFunc(slices.Clone(workloads), func(w Workload) bool { return w.Wanted == 0 })
}

// names are workloads in one sentence.
func names(workloads []Workload) string {
	var out []string
	for _, w := range workloads {
		out = append(out, w.String())
	}
	return strings.Join(out, " and ")
}

// RunsCloud reports whether digitalocean-cloud-controller-manager is among workloads, be it DigitalOcean's own.
func RunsCloud(workloads []Workload) bool {
	return slices.ContainsFunc(workloads, func(w Workload) bool { return w.labeled(Cloud) || w.runs(Cloud) })
}

// RunsDriver reports whether a volume driver of DigitalOcean's is among workloads, be it DigitalOcean's own.
func RunsDriver(workloads []Workload) bool {
	return slices.ContainsFunc(workloads, func(w Workload) bool { return w.labeled(Driver) || w.runs(Driver) || w.volumeDriver() == VolumeDriver })
}

// CoreAuthorities are the ConfigMaps by which the operators of etcd storage know their core (--etcd-core-ca-configmap, with its default).
func CoreAuthorities(workloads []Workload) (out []v1alpha1.Destination) {
	at := slices.IndexFunc(components(), func(c component) bool { return c.name == Storage })
	for _, w := range components()[at].of(workloads) {
		out = append(out, v1alpha1.Destination{
			Namespace: w.valueOf("namespace", w.Namespace), Name: w.valueOf("etcd-core-ca-configmap", "etcd-coreserving-ca"),
		})
	}
	return out
}
