// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// Granted are the writes that rules of RBAC grant, in the form in which controllers declare them. None deletes an object
// without naming its UID or resourceVersion.
func Granted(rules []rbacv1.PolicyRule) (all []outputs.Write) {
	reads := []string{"get", "list", "watch"}
	for _, rule := range rules {
		verbs := slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return slices.Contains(reads, verb) })
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				name, part, _ := strings.Cut(resource, "/")
				kind := strings.TrimRight(strings.TrimRight(name+"."+group, ".")+"/"+part, "/")
				for _, verb := range verbs {
					all = append(all, outputs.Write{
						System: outputs.Kubernetes, Kind: kind, Verbs: []string{verb}, Bound: verb == "delete",
					})
				}
			}
		}
	}
	return all
}
