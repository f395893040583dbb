// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/upstream"
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

// theirFile is the upstream project's release file, with its user's variables in it.
func theirFile(t *testing.T, variables map[string]string) []byte {
	t.Helper()
	all := upstream.CloudControllerManager()
	for _, u := range all {
		if u.GetKind() != "Deployment" {
			continue
		}
		path := []string{"spec", "template", "spec", "containers"}
		containers, _, err := unstructured.NestedSlice(u.Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		container := containers[0].(object)
		env := container["env"].([]any)
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			env = append(env, object{"name": name, "value": variables[name]})
		}
		container["env"] = env
		if err := unstructured.SetNestedSlice(u.Object, containers, path...); err != nil {
			t.Fatal(err)
		}
	}
	out, err := upstream.File(all)
	if err != nil {
		t.Fatal(err)
	}
	return out
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
