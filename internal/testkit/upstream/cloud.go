// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	cloudName    = "digitalocean-cloud-controller-manager"
	cloudAccount = "cloud-controller-manager"
	// CloudImage is the image of CloudControllerManager.
	CloudImage = "digitalocean/" + cloudName + ":v0.1.71"
)

// CloudControllerManager is releases/digitalocean-cloud-controller-manager/v0.1.71.yml of
// digitalocean/digitalocean-cloud-controller-manager. From v0.1.68 on the files differ in the tag of the image alone.
func CloudControllerManager() []*unstructured.Unstructured {
	labels := fields{"app": cloudName}
	const ofRole = "system:" + cloudAccount
	return []*unstructured.Unstructured{
		account(cloudAccount),
		role(fields{"name": ofRole, "annotations": fields{"rbac.authorization.kubernetes.io/autoupdate": "true"}},
			"leases.coordination.k8s.io get watch list create update delete", "events create patch update", "nodes *", "nodes/status patch",
			"services list patch update watch", "services/status list patch update watch", "serviceaccounts create",
			"persistentvolumes get list update watch", "endpoints create get list watch update"),
		bound(ofRole, ofRole, cloudAccount),
		objectOf("apps/v1", "Deployment", inSystem(cloudName), fields{"spec": fields{
			"replicas": int64(1), "revisionHistoryLimit": int64(2), "selector": fields{"matchLabels": labels},
			"template": fields{"metadata": fields{"labels": labels}, "spec": fields{
				"dnsPolicy": "Default", "hostNetwork": true, "serviceAccountName": cloudAccount, "priorityClassName": "system-cluster-critical",
				"tolerations": []any{
					fields{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
					fields{"key": "CriticalAddonsOnly", "operator": "Exists"},
					fields{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"},
					fields{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"},
				},
				"containers": []any{fields{
					"name": cloudName, "image": CloudImage, "command": texts("/bin/"+cloudName, "--leader-elect=false"),
					"resources": fields{"requests": fields{"cpu": "100m", "memory": "50Mi"}}, "env": []any{secretToken("DO_ACCESS_TOKEN")},
				}},
			}},
		}}),
	}
}
