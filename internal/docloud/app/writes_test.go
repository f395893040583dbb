// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/rights"
)

// TestDeclaredWritesAreTheRights compares what controllers and Kubernetes' framework declare to write with the rights, both ways. Reviews of who reads
// /metrics are written by neither.
func TestDeclaredWritesAreTheRights(t *testing.T) {
	t.Parallel()
	var rules []rbacv1.PolicyRule
	for _, role := range rights.Cloud().Roles("out-of-service", "startup-taint") {
		for _, rule := range role.Rules {
			rules = append(rules, rule.Policy())
		}
	}
	flat := func(writes []outputs.Write) (out []string) {
		for _, w := range writes {
			for _, verb := range w.Verbs {
				if w.System == outputs.Kubernetes && !strings.Contains(w.Kind, "reviews.") {
					out = append(out, verb+" "+w.Kind)
				}
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	if diff := cmp.Diff(flat(Writes()), flat(reconcile.Granted(rules))); diff != "" {
		t.Errorf("- declared, + in package rights:\n%s", diff)
	}
}
