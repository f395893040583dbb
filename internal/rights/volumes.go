// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package rights

const (
	snapshots = "snapshot.storage.k8s.io"
	storage   = "storage.k8s.io"
)

// Volumes are the rights of digitalocean-csi-driver, which are those of Kubernetes' sidecars.
func Volumes() Component {
	return Component{
		Name: "digitalocean-csi-driver", Values: "digitaloceanCSIDriver", Namespace: "kube-system",
		Account: "csi-do-controller-sa",
		Parts: []Part{{File: "base/rbac.yaml", Roles: []Role{
			{
				Name: "csi-do-provisioner-role", Rules: provisioner(), Why: "The rights of Kubernetes' sidecars, each as its own " +
					"project lists them (deploy/kubernetes/rbac.yaml), without what they need for features that are not used here. " +
					"The driver itself has no client of the API server. There is no access to Secrets. The names are csi-digitalocean's.",
			},
			{Name: "csi-do-attacher-role", Rules: attacher(), Why: "csi-attacher."},
			{Name: "csi-do-snapshotter-role", Rules: snapshotter(), Why: "csi-snapshotter."},
			{
				Name: "csi-do-resizer-role", Rules: resizer(), Why: "csi-resizer. Pods are not read: --handle-volume-inuse-error " +
					"is off, since DigitalOcean grows a volume that is attached.",
			},
			{
				Name: "csi-do-leader-election", In: Own, Why: "The Leases of the sidecars, of which one of each leads.",
				Rules: leaderElection("dobs-csi-digitalocean-com, external-attacher-leader-dobs-csi-digitalocean-com, " +
					"external-snapshotter-leader-dobs-csi-digitalocean-com, external-resizer-dobs-csi-digitalocean-com"),
			},
		}}},
	}
}

func provisioner() []Rule {
	return []Rule{
		{
			Resources: "persistentvolumes", Verbs: "get, list, watch, create, patch, delete", Why: "A PersistentVolume is made " +
				"for a claim, and deleted with it; a patch sets the finalizer that keeps it until its volume is deleted.",
		},
		{
			Resources: "persistentvolumeclaims", Verbs: "get, list, watch, update",
			Why: "Which claims need a volume; an update records progress in annotations.",
		},
		{Group: storage, Resources: "storageclasses", Verbs: "get, list, watch", Why: "The classes of claims."},
		{
			Group: storage, Resources: "volumeattributesclasses", Verbs: "get", Why: "The classes of attributes that claims name.",
		},
		{Resources: "events", Verbs: "create, patch", Why: "Events about claims."},
		{
			Group: snapshots, Resources: "volumesnapshots", Verbs: "get, list, watch, update",
			Why: "What a claim is restored from: a finalizer keeps the snapshot until its volume exists.",
		},
		{
			Group: snapshots, Resources: "volumesnapshotcontents", Verbs: "get, list", Why: "The snapshot at DigitalOcean.",
		},
		{Group: storage, Resources: "csinodes", Verbs: "get, list, watch", Why: "In which region a pod can run."},
		{Resources: "nodes", Verbs: "get, list, watch", Why: "In which region a pod can run."},
		{
			Group: storage, Resources: "volumeattachments", Verbs: "get, list, watch",
			Why: "A volume that is attached is not deleted.",
		},
	}
}

func attacher() []Rule {
	return []Rule{
		{
			Resources: "persistentvolumes", Verbs: "get, list, watch, patch",
			Why: "A patch sets the finalizer that keeps a PersistentVolume until its volume is detached.",
		},
		{Group: storage, Resources: "csinodes", Verbs: "get, list, watch", Why: "The driver's name for each machine."},
		{
			Group: storage, Resources: "volumeattachments", Verbs: "get, list, watch, patch",
			Why: "What to attach and detach; a patch sets the finalizer.",
		},
		{
			Group: storage, Resources: "volumeattachments/status", Verbs: "patch", Why: "Whether a volume is attached.",
		},
	}
}

func snapshotter() []Rule {
	return []Rule{
		{Resources: "events", Verbs: "create, patch", Why: "Events about snapshots."},
		{Group: snapshots, Resources: "volumesnapshotclasses", Verbs: "get, list, watch", Why: "The classes of snapshots."},
		{
			Group: snapshots, Resources: "volumesnapshotcontents", Verbs: "get, list, watch, update, patch",
			Why: "Which snapshots to make and to delete; writes set annotations and the finalizer.",
		},
		{
			Group: snapshots, Resources: "volumesnapshotcontents/status", Verbs: "update, patch",
			Why: "The snapshot's ID at DigitalOcean, and whether it is ready.",
		},
	}
}

func resizer() []Rule {
	return []Rule{
		{
			Resources: "persistentvolumes", Verbs: "get, list, watch, patch", Why: "The capacity after a volume was grown (patch).",
		},
		{Resources: "persistentvolumeclaims", Verbs: "get, list, watch", Why: "Which claims were grown."},
		{Resources: "persistentvolumeclaims/status", Verbs: "patch", Why: "The progress and the new capacity."},
		{
			Group: storage, Resources: "volumeattributesclasses", Verbs: "get, list, watch",
			Why: "The classes of attributes that claims name.",
		},
		{Resources: "events", Verbs: "create, patch", Why: "Events about claims."},
	}
}
