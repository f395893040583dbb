// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package birdtemplates

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
)

// settle is how long each node's calico-node has to be ready before the next is replaced, in seconds: reflectors have
// their sessions again by then.
const settle = 30

// object is a JSON object.
type object = map[string]any

// instructions are comments for YAML: how to roll the ConfigMap out, node by node, and how to undo it.
func instructions(at place) string {
	if at.operator {
		return fmt.Sprintf(`# Calico's BIRD templates, patched by Mooring. To roll them out, node by node:
# 1. kubectl patch installation default --type merge -p '%s'
# 2. kubectl apply --server-side -f THIS_FILE     Calico's operator mounts the templates and replaces the calico-node pods, one after the other.
# 3. kubectl -n %s rollout status daemonset/calico-node && kubectl mooring bird-templates --check
# To undo: kubectl -n %s delete configmap bird-templates
# Print this again, from the new image, before Calico is upgraded: these templates replace those of the image.
`, compact(object{"spec": object{
			"nodeUpdateStrategy":  object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": 1}},
			"calicoNodeDaemonSet": object{"spec": object{"minReadySeconds": settle}},
		}}), at.daemonSet, at.configMap)
	}
	return fmt.Sprintf(`# Calico's BIRD templates, patched by Mooring. To roll them out, node by node:
# 1. kubectl apply --server-side -f THIS_FILE
# 2. kubectl -n %[1]s patch daemonset calico-node -p '%[2]s'
#    This mounts the templates and replaces the calico-node pods, one after the other. Where they are mounted already:
#    kubectl -n %[1]s rollout restart daemonset/calico-node
# 3. kubectl -n %[1]s rollout status daemonset/calico-node && kubectl mooring bird-templates --check
# To undo: kubectl -n %[1]s patch daemonset calico-node -p '%[3]s'
# Print this again, from the new image, before Calico is upgraded: these templates replace those of the image.
`, at.daemonSet, compact(mounting()), compact(unmounting()))
}

// mounting is the patch of the DaemonSet that mounts the files of the ConfigMap.
func mounting() object {
	mounts := []object{}
	for _, file := range birdtemplates.Files() {
		mounts = append(mounts, object{"name": birdtemplates.ConfigMap, "mountPath": path.Join(birdtemplates.Folder, file), "subPath": file, "readOnly": true})
	}
	return object{"spec": object{
		"minReadySeconds": settle,
		"updateStrategy":  object{"type": "RollingUpdate", "rollingUpdate": object{"maxUnavailable": 1}},
		"template": object{"spec": object{
			"containers": []object{{"name": "calico-node", "volumeMounts": mounts}},
			"volumes":    []object{{"name": birdtemplates.ConfigMap, "configMap": object{"name": birdtemplates.ConfigMap}}},
		}},
	}}
}

// unmounting takes them away.
func unmounting() object {
	mounts := []object{}
	for _, file := range birdtemplates.Files() {
		mounts = append(mounts, object{"mountPath": path.Join(birdtemplates.Folder, file), "$patch": "delete"})
	}
	return object{"spec": object{"template": object{"spec": object{
		"containers": []object{{"name": "calico-node", "volumeMounts": mounts}},
		"volumes":    []object{{"name": birdtemplates.ConfigMap, "$patch": "delete"}},
	}}}}
}

// compact is a value as JSON in one line. There is none that JSON does not have.
func compact(v object) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
