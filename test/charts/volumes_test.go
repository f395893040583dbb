// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"

	"github.com/mooring-dev/mooring/internal/docloud/csiapp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	volumesComponent = "digitalocean-csi-driver"
	volumesPlugin    = "csi-do-plugin"
)

// volumesScenarios are values of the volume driver that must work.
func volumesScenarios() map[string]string {
	return map[string]string{
		"defaults":        `digitaloceanCSIDriver: {enabled: true}`,
		"without classes": `digitaloceanCSIDriver: {enabled: true, storageClasses: {create: false}, snapshotClass: {create: false}}`,
		"everything": `
imagePullSecrets: [{name: registry}]
digitaloceanCSIDriver:
  enabled: true
  region: nyc1
  tag: k8s:production
  volumeLimit: 5
  apiRateLimitQPS: 2.5
  token: {secret: tokens, key: volumes}
  storageClasses: {default: false}
  snapshotClass: {default: false}
  extraArgs: [--action-poll-interval=5s]
  image:
    repository: registry.example:5000/mooring/digitalocean-csi-driver
    digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    pullPolicy: Always
  replicas: 3
  resources: {limits: {memory: 300Mi}}
  priorityClassName: ""
  nodeSelector: {node-role.kubernetes.io/control-plane: ""}
  tolerations: [{key: controllers, operator: Exists}]
  podLabels: {team: storage}
  podAnnotations: {example.com/note: "any text, also: this"}
  podDisruptionBudget: {maxUnavailable: 50%}
  logLevel: 2
  metrics:
    serviceMonitor: {enabled: true, interval: 1m, labels: {release: prometheus}}
    prometheusRule: {enabled: true, labels: {release: prometheus}}
  sidecars:
    provisioner: registry.example:5000/csi-provisioner@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    attacher: registry.example:5000/csi-attacher:v1
    snapshotter: registry.example:5000/csi-snapshotter:v1
    resizer: registry.example:5000/csi-resizer:v1
    resources: {limits: {memory: 200Mi}}
  node:
    kubeletFolder: /var/data/kubelet
    removeAutomountRule: false
    resources: {limits: {memory: 2Gi}}
    priorityClassName: ""
    nodeSelector: {disks: "true"}
    tolerations: [{key: nodes, operator: Exists}]
    podLabels: {team: disks}
    podAnnotations: {example.com/other: more}`,
	}
}

// TestVolumesAreSafeWithAllValues: the controller is restricted, and no value moves an object, grants more, or gives the node plugin a token.
func TestVolumesAreSafeWithAllValues(t *testing.T) {
	t.Parallel()
	for name, values := range volumesScenarios() {
		all := render(t, cloudNamespace, values)
		objects.CheckRoles(t, name, cloudNamespace, all)
		controller := objects.OfKind[appsv1.StatefulSet](t, all, "StatefulSet")[0]
		node := objects.OfKind[appsv1.DaemonSet](t, all, "DaemonSet")[0]
		if level := objects.Standard(t, &controller.Spec.Template.ObjectMeta, &controller.Spec.Template.Spec); level != api.LevelRestricted {
			t.Errorf("%s: the controller is %s", name, level)
		}
		if *node.Spec.Template.Spec.AutomountServiceAccountToken || node.Spec.Template.Spec.HostPID || len(node.Spec.Template.Spec.Containers) != 1 {
			t.Errorf("%s: the node plugin has more than it needs", name)
		}
		if got := controller.Spec.Selector.MatchLabels; len(got) != 1 || got["app"] != "csi-do-controller" {
			t.Errorf("%s: the selector is %v, which could not be applied over the upstream project's", name, got)
		}
		for _, c := range append(controller.Spec.Template.Spec.Containers, node.Spec.Template.Spec.Containers...) {
			if c.Name != volumesPlugin {
				continue
			}
			if err := objects.ParseFlags(t, objects.Sure(csiapp.NewCommand), c.Args); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, s := range objects.OfKind[corev1.Secret](t, all, "Secret") {
			t.Errorf("%s: Secret %s", name, s.Name)
		}
	}
}

// TestVolumesValuesHaveEffects looks for each value of the scenario "everything" in what it renders.
func TestVolumesValuesHaveEffects(t *testing.T) {
	t.Parallel()
	content := rendered(t, render(t, cloudNamespace, volumesScenarios()["everything"]),
		`"imagePullSecrets":[{"name":"registry"}]`, `"--region=nyc1"`, `"--do-tag=k8s:production"`, `"--volume-limit=5"`, `"--do-api-rate-limit=2.5"`,
		`"--token-file=/var/run/secrets/digitalocean/volumes"`, `"secretName":"tokens"`, `"--action-poll-interval=5s"`, `"-v=2"`,
		`"image":"registry.example:5000/mooring/digitalocean-csi-driver@sha256:0123456789abcdef`, `"imagePullPolicy":"Always"`, `"replicas":3`, `"memory":"300Mi"`,
		`"nodeSelector":{"node-role.kubernetes.io/control-plane":""}`, `"key":"controllers"`, `"team":"storage"`, `"example.com/note":"any text, also: this"`,
		`"maxUnavailable":"50%"`, `"image":"registry.example:5000/csi-provisioner@sha256:`, `"image":"registry.example:5000/csi-attacher:v1"`,
		`"image":"registry.example:5000/csi-snapshotter:v1"`, `"image":"registry.example:5000/csi-resizer:v1"`, `"memory":"200Mi"`,
		`"path":"/var/data/kubelet"`, `"mountPath":"/var/data/kubelet"`, `"--kubelet-registration-path=/var/data/kubelet/plugins/dobs.csi.digitalocean.com/csi.sock"`,
		`"memory":"2Gi"`, `"nodeSelector":{"disks":"true"}`, `"key":"nodes"`, `"team":"disks"`, `"example.com/other":"more"`)
	for _, absent := range []string{"priorityClassName", "is-default-class", "automount-rule", "udev"} {
		if strings.Contains(content, absent) {
			t.Errorf("rendered: %s", absent)
		}
	}
	none := must.Get(json.Marshal(byName(render(t, cloudNamespace, volumesScenarios()["without classes"])))).Or(t)
	if strings.Contains(string(none), `"kind":"StorageClass"`) || strings.Contains(string(none), `"kind":"VolumeSnapshotClass"`) {
		t.Error("classes are rendered although none shall be")
	}
}

// TestVolumesRefusals returns which values are refused, and what is said then.
func TestVolumesRefusals(t *testing.T) {
	t.Parallel()
	const on = "digitaloceanCSIDriver: {enabled: true, "
	const at = "at '/digitaloceanCSIDriver/"
	checkRefusals(t, cloudNamespace, map[string]refusal{
		"an unknown value":      {on + "luks: true}", "additional properties 'luks' not allowed"},
		"an unknown node value": {on + "node: {privileged: false}}", at + "node': additional properties 'privileged' not allowed"},
		"a region that is none": {on + "region: New York}", at + "region'"},
		"no volumes":            {on + "volumeLimit: 0}", at + "volumeLimit': minimum"},
		"a relative folder":     {on + "node: {kubeletFolder: kubelet}}", at + "node/kubeletFolder'"},
		"a token in a flag":     {on + "extraArgs: [--token=x]}", "digitaloceanCSIDriver.extraArgs: --token is not for here: set digitaloceanCSIDriver.token"},
		"another socket":        {on + "extraArgs: ['--endpoint=unix:///x']}", "the sidecars expect the socket where it is"},
		"a tag with a blank":    {on + "tag: a b}", at + "tag'"},
		"no replicas":           {on + "replicas: 0}", at + "replicas': minimum"},
	})
	checkRefusals(t, namespace, map[string]refusal{
		"another namespace": {on + "}", "digitaloceanCSIDriver is for the namespace kube-system"},
	})
}

// TestVolumesNotes keeps what Helm prints after an install short and to the point.
func TestVolumesNotes(t *testing.T) {
	t.Parallel()
	for _, want := range []string{volumesComponent, "Secret digitalocean", "app=csi-do-controller"} {
		checkNotes(t, cloudNamespace, volumesScenarios(), map[string]string{"defaults": want})
	}
}
