// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	driver         = "dobs.csi.digitalocean.com"
	controllerName = "csi-do-controller"
	nodeName       = "csi-do-node"
	socketDir      = "/var/lib/csi/sockets/pluginproxy/"
	// PluginName is the container of the driver in both workloads of VolumeDriver.
	PluginName = "csi-do-plugin"
	// VolumeImage is the image of these containers.
	VolumeImage = "digitalocean/do-csi-plugin:v4.18.0"
)

// VolumeDriver is deploy/kubernetes/releases/csi-digitalocean-v4.18.0/driver.yaml of digitalocean/csi-digitalocean.
// From v4.16.0 on the files differ in the tags of images alone.
func VolumeDriver() []*unstructured.Unstructured {
	return slices.Concat(volumeClasses(), volumeController(), volumeRights(), volumeNode())
}

func volumeClasses() []*unstructured.Unstructured {
	byDefault := func(key, name string) fields { return fields{"name": name, "annotations": fields{key: "true"}} }
	class := func(metadata, more fields) *unstructured.Unstructured {
		more["provisioner"], more["allowVolumeExpansion"] = driver, true
		return objectOf("storage.k8s.io/v1", "StorageClass", metadata, more)
	}
	xfs := fields{"fstype": "xfs"}
	return []*unstructured.Unstructured{
		objectOf("storage.k8s.io/v1", "CSIDriver", named(driver), fields{"spec": fields{"attachRequired": true, "podInfoOnMount": true}}),
		objectOf("snapshot.storage.k8s.io/v1", "VolumeSnapshotClass", byDefault("snapshot.storage.kubernetes.io/is-default-class", "do-block-storage"),
			fields{"driver": driver, "deletionPolicy": "Delete"}),
		class(byDefault("storageclass.kubernetes.io/is-default-class", "do-block-storage"), fields{}),
		class(named("do-block-storage-retain"), fields{"reclaimPolicy": "Retain"}),
		class(named("do-block-storage-xfs"), fields{"parameters": xfs}),
		class(named("do-block-storage-xfs-retain"), fields{"parameters": xfs, "reclaimPolicy": "Retain"}),
	}
}

func volumeController() []*unstructured.Unstructured {
	mounts := []any{fields{"name": "socket-dir", "mountPath": socketDir}}
	sidecar := func(name, version string, args ...string) any {
		return fields{
			"name": name, "image": "registry.k8s.io/sig-storage/" + name + ":" + version, "args": texts(append([]string{"--csi-address=$(ADDRESS)"}, args...)...),
			"env": []any{variable("ADDRESS", socketDir+"csi.sock")}, "imagePullPolicy": "IfNotPresent", "volumeMounts": mounts,
		}
	}
	return []*unstructured.Unstructured{
		objectOf("apps/v1", "StatefulSet", inSystem(controllerName), fields{"spec": fields{
			"serviceName": "csi-do", "replicas": int64(1), "selector": fields{"matchLabels": fields{"app": controllerName}},
			"template": fields{"metadata": podMetadata(controllerName), "spec": fields{
				"priorityClassName": "system-cluster-critical", "serviceAccount": controllerName + "-sa",
				"containers": []any{
					sidecar("csi-provisioner", "v6.2.0", "--default-fstype=ext4", "--v=5"),
					sidecar("csi-attacher", "v4.11.0", "--v=5", "--reconcile-sync=30m", "--timeout=2m"),
					sidecar("csi-snapshotter", "v8.5.0", "--v=5"),
					sidecar("csi-resizer", "v2.1.0", "--timeout=30s", "--v=5", "--handle-volume-inuse-error=false"),
					fields{
						"name": PluginName, "image": VolumeImage, "imagePullPolicy": "Always", "volumeMounts": mounts,
						"args": texts("--endpoint=$(CSI_ENDPOINT)", "--token=$(DIGITALOCEAN_ACCESS_TOKEN)", "--url=$(DIGITALOCEAN_API_URL)",
							"--default-volumes-page-size=200"),
						"env": append(pluginVariables("unix://"+socketDir+"csi.sock"), secretToken("DIGITALOCEAN_ACCESS_TOKEN")),
					},
				},
				"volumes": []any{fields{"name": "socket-dir", "emptyDir": fields{}}},
			}},
		}}),
		account(controllerName + "-sa"),
	}
}

func podMetadata(app string) fields {
	return fields{
		"annotations": fields{"kubectl.kubernetes.io/default-container": PluginName},
		"labels":      fields{"app": app, "role": "csi-do"},
	}
}

func pluginVariables(endpoint string) []any {
	return []any{variable("CSI_ENDPOINT", endpoint), variable("DIGITALOCEAN_API_URL", "https://api.digitalocean.com/")}
}

func volumeRights() []*unstructured.Unstructured {
	const (
		events     = "events list watch create update patch"
		storage    = ".storage.k8s.io get list watch"
		nodes      = "nodes get list watch"
		change     = " get list watch update patch"
		attachment = "volumeattachments"
	)
	var all []*unstructured.Unstructured
	for _, r := range []struct {
		name  string
		rules []string
	}{
		{"provisioner", []string{
			"persistentvolumes get list watch create delete", "persistentvolumeclaims get list watch update", "storageclasses" + storage, events,
			"volumesnapshots.snapshot.storage.k8s.io get list", "volumesnapshotcontents.snapshot.storage.k8s.io get list", "csinodes" + storage,
			nodes, attachment + storage,
		}},
		{"attacher", []string{
			"persistentvolumes" + change, nodes, "csinodes" + storage, attachment + ".storage.k8s.io" + change, attachment + "/status.storage.k8s.io patch",
		}},
		{"snapshotter", []string{
			events, "volumesnapshotclasses.snapshot.storage.k8s.io get list watch", "volumesnapshotcontents.snapshot.storage.k8s.io" + change,
			"volumesnapshotcontents/status.snapshot.storage.k8s.io update patch",
		}},
		{"resizer", []string{
			"persistentvolumes" + change, "persistentvolumeclaims get list watch", "persistentvolumeclaims/status update patch", events,
		}},
	} {
		name := "csi-do-" + r.name
		all = append(all, role(named(name+"-role"), r.rules...), bound(name+"-binding", name+"-role", controllerName+"-sa"))
	}
	const registrar = "csi-do-node-driver-registrar"
	return append(all, role(inSystem(registrar+"-role"), "events get list watch create update patch"),
		bound(registrar+"-binding", registrar+"-role", nodeName+"-sa"))
}

func volumeNode() []*unstructured.Unstructured {
	mount := func(name, path string) fields { return fields{"name": name, "mountPath": path} }
	host := func(name, path, kind string) any {
		at := fields{"path": path}
		if kind != "" {
			at["type"] = kind
		}
		return fields{"name": name, "hostPath": at}
	}
	const plugins, rules = "/var/lib/kubelet/plugins/" + driver, "/etc/udev/rules.d/"
	kubelet := mount("pods-mount-dir", "/var/lib/kubelet")
	kubelet["mountPropagation"] = "Bidirectional"
	return []*unstructured.Unstructured{
		account(nodeName + "-sa"),
		objectOf("apps/v1", "DaemonSet", inSystem(nodeName), fields{"spec": fields{
			"selector": fields{"matchLabels": fields{"app": nodeName}},
			"template": fields{"metadata": podMetadata(nodeName), "spec": fields{
				"priorityClassName": "system-node-critical", "serviceAccount": nodeName + "-sa", "hostNetwork": true,
				"initContainers": []any{fields{
					"name": "automount-udev-deleter", "image": "alpine:3", "args": texts("rm", "-f", rules+"99-digitalocean-automount.rules"),
					"volumeMounts": []any{mount("udev-rules-dir", rules)},
				}},
				"containers": []any{
					fields{
						"name": "csi-node-driver-registrar", "image": "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.16.0",
						"args": texts("--v=5", "--csi-address=$(ADDRESS)", "--kubelet-registration-path=$(DRIVER_REG_SOCK_PATH)"),
						"env": []any{
							variable("ADDRESS", "/csi/csi.sock"), variable("DRIVER_REG_SOCK_PATH", plugins+"/csi.sock"),
							fields{"name": "KUBE_NODE_NAME", "valueFrom": fields{"fieldRef": fields{"fieldPath": "spec.nodeName"}}},
						},
						"volumeMounts": []any{mount("plugin-dir", "/csi/"), mount("registration-dir", "/registration/")},
					},
					fields{
						"name": PluginName, "image": VolumeImage, "imagePullPolicy": "Always",
						"args": texts("--endpoint=$(CSI_ENDPOINT)", "--url=$(DIGITALOCEAN_API_URL)"), "env": pluginVariables("unix:///csi/csi.sock"),
						"securityContext": fields{"privileged": true, "allowPrivilegeEscalation": true, "capabilities": fields{"add": texts("SYS_ADMIN")}},
						"volumeMounts":    []any{mount("plugin-dir", "/csi"), kubelet, mount("device-dir", "/dev")},
					},
				},
				"volumes": []any{
					host("registration-dir", "/var/lib/kubelet/plugins_registry/", "DirectoryOrCreate"), host("plugin-dir", plugins, "DirectoryOrCreate"),
					host("pods-mount-dir", "/var/lib/kubelet", "Directory"), host("device-dir", "/dev", ""), host("udev-rules-dir", rules, ""),
				},
			}},
		}}),
	}
}
