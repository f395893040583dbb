// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
	"github.com/mooring-dev/mooring/internal/testkit/gitops"
)

// What Flux and Argo CD make of a tenant, in each state: it is current only when all is done, and failed only where a person
// has to act.
func TestGitOpsOfATenant(t *testing.T) {
	t.Parallel()
	const current, busy, failed = "Current Healthy", "InProgress Progressing", "Failed Degraded"
	for name, c := range map[string]struct {
		set  func(g *sight)
		want string
	}{
		"in order":                  {func(*sight) {}, current},
		"at its quota":              {func(g *sight) { g.bounded(); g.stores("99Mi", 1, 1) }, current},
		"proxies are replaced":      {func(g *sight) { g.proxies(3, 1) }, busy},
		"no proxy yet":              {func(g *sight) { g.s.world.Objects = nil }, busy},
		"no certificates yet":       {func(g *sight) { g.plan.Certificates = nil }, busy},
		"the core does not respond": {func(g *sight) { g.s.world.Core.Problem = "no"; g.refused(operator.ReasonCoreUnreachable, "no") }, busy},
		"the issuer is not ready":   {func(g *sight) { g.refused(operator.ReasonIssuerNotReady, "wait") }, busy},
		"a write failed":            {func(g *sight) { g.failed = trouble{message: "refused"} }, busy},
		"a right is missing":        {func(g *sight) { g.refused(operator.ReasonMissingPermission, "grant it") }, failed},
		"the data is another's":     {func(g *sight) { g.refused(operator.ReasonPrefixTaken, "choose another") }, failed},
		"a newer spec": {func(g *sight) {
			setConditions(&g.is, g.s, g.plan, trouble{})
			g.s.object.SetGeneration(4)
		}, busy},
		"deleted, and it is waiting": {(*sight).deleted, "Terminating Progressing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := serving(t)
			c.set(g)
			observed := g.s.object.GetGeneration()
			if len(g.is.Conditions) == 0 {
				setConditions(&g.is, g.s, g.plan, g.failed)
			} else {
				observed--
			}
			is := g.s.world.Storage.DeepCopy()
			is.Generation, is.Status = g.s.object.GetGeneration(), g.is
			is.Status.ObservedGeneration = observed
			if got := gitops.Health(t, "EtcdStorage", is); got != c.want {
				t.Errorf("%s, want %s: %+v", got, c.want, is.Status.Conditions)
			}
			for _, condition := range is.Status.Conditions {
				if condition.ObservedGeneration != observed {
					t.Errorf("%s is of generation %d, want %d", condition.Type, condition.ObservedGeneration, observed)
				}
			}
		})
	}
}

// The page of conditions names the reasons of Stalled that there are.
func TestStalledAsDocumented(t *testing.T) {
	t.Parallel()
	want := slices.Sorted(slices.Values(stalls()))
	if diff := cmp.Diff(want, gitops.Stalls(t, "EtcdStorage")); diff != "" {
		t.Error(diff)
	}
}

// A certificate that expires before its turn comes is work in progress from then on, which kstatus must not call current.
func TestAnExpiredCertificateIsNotCurrent(t *testing.T) {
	t.Parallel()
	g := serving(t)
	setConditions(&g.is, g.s, g.plan, trouble{})
	at := g.s.world.Now.Add(time.Hour)
	conditions.Set(&g.is.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionCertificatesReady, Status: metav1.ConditionFalse, Reason: reasonExpired, Message: "it expired", ObservedGeneration: 3,
	}, at)
	setReady(&g.is.Conditions, summarize(g.is.Conditions, 3), at)
	c := meta.FindStatusCondition(g.is.Conditions, conditions.Reconciling)
	if c == nil || c.Reason != reasonExpired || !c.LastTransitionTime.Time.Equal(at) {
		t.Errorf("%+v", g.is.Conditions)
	}
}
