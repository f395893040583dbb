// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"slices"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// onHostNetwork are the Deployments whose pods may be on the machine's network, each with the reason. In all else they meet the standard.
func onHostNetwork() map[string]string {
	return map[string]string{
		"calico-route-reflector-operator":       "it restores routes between pods, so it must not need them",
		"digitalocean-cloud-controller-manager": "pod networks may wait for the addresses that it gives to Nodes",
	}
}

// exceptions are what a role may be complained of and grants all the same, by the role's name, each with the reason.
func exceptions() map[string]map[string]string {
	return map[string]map[string]string{
		"system:cloud-controller-manager": {
			"writes nodes":        "a Node gets its provider ID, and goes when its droplet is gone",
			"writes nodes/status": "a Node gets its addresses",
		},
		// Of the kubernetes datastore alone.
		"mooring-calico-route-reflector-operator-datastore": {
			"writes nodes": "a reflector is one by a label and an annotation on its Node",
		},
		// A Role, in a namespace that has nothing else in it.
		"etcd-storage-operator": {
			"reads Secrets": "it keeps the tenants' CAs and certificates there, and reads the core's credentials",
		},
	}
}

// CheckPods asks the code that the API server itself runs whether the pods of every Deployment meet the newest version of the restricted
// Pod Security Standard, and wants read-only root file systems in addition, which the standard does not. It returns how many it judged.
func CheckPods(tb testing.TB, source string, all []*unstructured.Unstructured) int {
	tb.Helper()
	deployments := OfKind[appsv1.Deployment](tb, all, "Deployment")
	for _, d := range deployments {
		pod := d.Spec.Template.DeepCopy()
		if _, ok := onHostNetwork()[d.Name]; pod.Spec.HostNetwork && !ok {
			tb.Errorf("%s: Deployment %s is on the host's network", source, d.Name)
		}
		pod.Spec.HostNetwork = false
		if complaint := Unrestricted(tb, &pod.ObjectMeta, &pod.Spec); complaint != "" {
			tb.Errorf("%s: Deployment %s: %s", source, d.Name, complaint)
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if c.SecurityContext == nil || c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
				tb.Errorf("%s: container %s may write its root file system", source, c.Name)
			}
		}
	}
	return len(deployments)
}

// Unrestricted says what the restricted Pod Security Standard has against the pod; "" means nothing.
func Unrestricted(tb testing.TB, meta *metav1.ObjectMeta, spec *corev1.PodSpec) string {
	tb.Helper()
	evaluator := must.Get(policy.NewEvaluator(policy.DefaultChecks(), nil)).Or(tb)
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	if result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, meta, spec)); !result.Allowed {
		return result.ForbiddenDetail()
	}
	return ""
}

// Standard is the strictest Pod Security Standard of the newest version that the pod meets; the privileged one is met by all.
func Standard(tb testing.TB, meta *metav1.ObjectMeta, spec *corev1.PodSpec) api.Level {
	tb.Helper()
	evaluator := must.Get(policy.NewEvaluator(policy.DefaultChecks(), nil)).Or(tb)
	for _, level := range []api.Level{api.LevelRestricted, api.LevelBaseline} {
		version := api.LevelVersion{Level: level, Version: api.LatestVersion()}
		if policy.AggregateCheckResults(evaluator.EvaluatePod(version, meta, spec)).Allowed {
			return level
		}
	}
	return api.LevelPrivileged
}

// CheckRoles states what no role of ours may ever grant (Excessive), but for the exceptions above, and that Roles stay in the namespace.
func CheckRoles(tb testing.TB, source, namespace string, all []*unstructured.Unstructured) {
	tb.Helper()
	check := func(kind, name string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for _, complaint := range Excessive(rule) {
				if exceptions()[name][complaint] != "" {
					continue
				}
				tb.Errorf("%s: %s %s %s: %v", source, kind, name, complaint, rule)
			}
		}
	}
	for _, r := range OfKind[rbacv1.ClusterRole](tb, all, "ClusterRole") {
		check("ClusterRole", r.Name, r.Rules)
	}
	for _, r := range OfKind[rbacv1.Role](tb, all, "Role") {
		if r.Namespace != namespace && r.Namespace != corev1.NamespaceNodeLease { // kubelets' Leases are in a namespace of their own
			tb.Errorf("%s: Role %s is in %q", source, r.Name, r.Namespace)
		}
		check("Role", r.Name, r.Rules)
	}
}

// Excessive says what is wrong with a rule; nothing for a modest one.
func Excessive(rule rbacv1.PolicyRule) []string {
	var complaints []string
	for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
		if slices.Contains(list, "*") {
			complaints = append(complaints, "grants a wildcard")
		}
	}
	writes := slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
	for _, resource := range rule.Resources {
		base, _, _ := strings.Cut(resource, "/")
		switch base {
		case "secrets":
			complaints = append(complaints, "reads Secrets")
		case "nodes", "pods", "namespaces":
			if writes {
				complaints = append(complaints, "writes "+resource)
			}
		}
	}
	for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
		if slices.Contains(rule.Verbs, verb) {
			complaints = append(complaints, "grants "+verb)
		}
	}
	return complaints
}
