// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// kubectl runs a command in the folder of the page's commands, and returns what it printed.
func (w *moved) kubectl(args ...string) string {
	w.t.Helper()
	command := exec.CommandContext(w.t.Context(), testkit.Binary(w.t, "kubectl"), args...)
	command.Dir, command.Env = w.dir, append(os.Environ(), "KUBECONFIG="+w.cluster.Kubeconfig)
	out, err := command.CombinedOutput()
	if err != nil {
		w.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// theirFile is the upstream project's release file of v0.1.68 (the facts, section 1.10), with its user's variables in it.
func theirFile(t *testing.T, variables map[string]string) []byte {
	t.Helper()
	const role = "system:cloud-controller-manager"
	rule := func(group, resource string, verbs ...any) any {
		return object{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": verbs}
	}
	env := []any{object{"name": "DO_ACCESS_TOKEN", "valueFrom": object{"secretKeyRef": object{"name": "digitalocean", "key": "access-token"}}}}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		env = append(env, object{"name": name, "value": variables[name]})
	}
	labels := object{"app": manager}
	tolerates := func(key, operator, value, effect string) any {
		out := object{"key": key}
		for field, text := range map[string]string{"operator": operator, "value": value, "effect": effect} {
			if text != "" {
				out[field] = text
			}
		}
		return out
	}
	all := []object{
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": account, "namespace": metav1.NamespaceSystem}},
		{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": object{"name": role}, "rules": []any{
			rule("coordination.k8s.io", "leases", "get", "watch", "list", "create", "update", "delete"),
			rule("", "events", "create", "patch", "update"),
			rule("", "nodes", "*"),
			rule("", "nodes/status", "patch"),
			rule("", "services", "list", "patch", "update", "watch"),
			rule("", "services/status", "list", "patch", "update", "watch"),
			rule("", "serviceaccounts", "create"),
			rule("", "persistentvolumes", "get", "list", "update", "watch"),
			rule("", "endpoints", "create", "get", "list", "watch", "update"),
		}},
		{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": role},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": []any{object{"kind": "ServiceAccount", "name": account, "namespace": metav1.NamespaceSystem}},
		},
		{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": manager, "namespace": metav1.NamespaceSystem},
			"spec": object{
				"replicas": 1, "revisionHistoryLimit": 2, "selector": object{"matchLabels": labels},
				"template": object{"metadata": object{"labels": labels}, "spec": object{
					"dnsPolicy": "Default", "hostNetwork": true, "serviceAccountName": account, "priorityClassName": "system-cluster-critical",
					"tolerations": []any{
						tolerates("node.cloudprovider.kubernetes.io/uninitialized", "", "true", "NoSchedule"), tolerates("CriticalAddonsOnly", "Exists", "", ""),
						tolerates("node-role.kubernetes.io/master", "", "", "NoSchedule"), tolerates("node-role.kubernetes.io/control-plane", "", "", "NoSchedule"),
					},
					"containers": []any{object{
						"name": manager, "image": theirImage, "command": []any{"/bin/" + manager, "--leader-elect=false"}, "env": env,
						"resources": object{"requests": object{"cpu": "100m", "memory": "50Mi"}},
					}},
				}},
			},
		},
	}
	var out bytes.Buffer
	for _, one := range all {
		content, err := yaml.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(content)
	}
	return out.Bytes()
}

// listed are the objects of kinds as kubectl shows them.
func (w *moved) listed(kinds string, args ...string) []unstructured.Unstructured {
	w.t.Helper()
	var answer unstructured.Unstructured
	w.must(json.Unmarshal([]byte(w.kubectl(append([]string{"get", kinds, "-o", "json"}, args...)...)), &answer.Object))
	if !answer.IsList() {
		return []unstructured.Unstructured{answer}
	}
	list, err := answer.ToList()
	w.must(err)
	return list.Items
}

// things are all objects that an installation may leave, as "Kind/name", without those that come with every API server.
func (w *moved) things() map[string]bool {
	w.t.Helper()
	out := map[string]bool{}
	for _, o := range slices.Concat(
		w.listed("leases,configmaps,secrets,serviceaccounts,services,roles,rolebindings,deployments,poddisruptionbudgets", "-n", metav1.NamespaceSystem),
		w.listed("clusterroles,clusterrolebindings,validatingwebhookconfigurations,validatingadmissionpolicies"),
	) {
		if name := o.GetName(); !strings.HasPrefix(name, "apiserver-") && !strings.HasPrefix(name, "kube-apiserver-") {
			out[o.GetKind()+"/"+name] = true
		}
	}
	return out
}

// installed are the objects of the upstream project's file as they are, without what changes with each write.
func (w *moved) installed() map[string]object {
	w.t.Helper()
	out := map[string]object{}
	for _, o := range slices.Concat(
		w.listed("serviceaccount/"+account, "-n", metav1.NamespaceSystem), w.listed("deployment/"+manager, "-n", metav1.NamespaceSystem),
		w.listed("clusterrole/system:"+account), w.listed("clusterrolebinding/system:"+account),
	) {
		for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		out[o.GetKind()] = o.Object
	}
	return out
}
