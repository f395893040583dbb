// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// ready is the condition that sums up the others.
const ready = "Ready"

// meaning is what a condition says.
type meaning struct {
	kind string
	// yes, no and unknown are what it means when it is True, when it is False, and before it is known.
	yes, no, unknown string
	// bad are the states that need attention, and are as bad as that. What is not known yet of quota and rotation does
	// not: Ready tells when something is in the way of knowing.
	bad   []metav1.ConditionStatus
	state finding.State
	// why it matters; part and core are those of a [Verdict].
	why        string
	part, core bool
}

// meanings are the conditions in the order in which they explain each other: the summary, then what must be before the
// next can be.
func meanings() []meaning {
	isTrue, isFalse := []metav1.ConditionStatus{metav1.ConditionTrue}, []metav1.ConditionStatus{metav1.ConditionFalse}
	notTrue := append(isFalse, metav1.ConditionUnknown)
	const unserved, shared = "its API server may not be able to read or write", "all tenants of the core depend on it"
	down, warns := finding.Down, finding.Disagree
	return []meaning{
		{ready, "it is ready", "it is not ready", "whether it is ready is not known", notTrue, down, unserved, false, false},
		{v1alpha1.ConditionConflict, "an object or data of another owner prevents the work",
			"no object or data of another owner prevents the work", "whether there is a conflict is unknown",
			isTrue, down, "nothing is changed or deleted for it until a person has decided", false, false},
		{v1alpha1.ConditionCoreReachable, "the core etcd responds",
			"the core etcd cannot be used", "whether the core etcd responds is not known", notTrue, down, unserved, true, false},
		{v1alpha1.ConditionCertificatesReady, "every certificate is in place",
			"a certificate or bundle is missing", "whether certificates are in place is unknown", notTrue, down, unserved, true, false},
		{v1alpha1.ConditionProxyReady, "a proxy serves",
			"no proxy of the current template serves", "whether a proxy serves is not known", notTrue, down, unserved, true, false},
		{v1alpha1.ConditionDeployed, "it is deployed",
			"it is not deployed", "whether it is deployed is not known", notTrue, down, unserved, true, false},
		{v1alpha1.ConditionCoreHealthy, "the members of the core etcd are healthy",
			"the core etcd is not healthy: its operator has to act", "the health of the core etcd's members is unknown", isFalse, warns, shared, false, true},
		{v1alpha1.ConditionCoreWentBack, "the core etcd went back to an earlier revision",
			"the core etcd did not go back to an earlier revision", "whether the core etcd went back is not known",
			isTrue, down, "its API servers may show objects that are lost, and wait for revisions that come late", false, false},
		{v1alpha1.ConditionCoreOvercommitted, "the core etcd has promised its tenants more than it has",
			"what the core etcd has promised its tenants fits", "what the core etcd may promise its tenants is unknown", isTrue, warns, shared, false, true},
		{v1alpha1.ConditionQuotaExceeded, "it is at a limit of its quota",
			"it is within its quota", "what it stores has not been counted yet", isTrue, warns, "its API server cannot write data that needs space", false, false},
		{kind: v1alpha1.ConditionRotationInProgress, yes: "two generations of a CA are trusted", no: "no CA is being replaced", unknown: "there is no CA yet"},
		{yes: "it holds", no: "it does not hold", unknown: "it is not known"}, // any other
	}
}

// verdict is what a condition says. That the health of the core is unknown needs attention when it has been for longer
// than its operator takes to find out.
func (m meaning) verdict(c metav1.Condition, now time.Time) Verdict {
	v := Verdict{Part: m.part, Core: m.core, Verdict: finding.Verdict{State: finding.Agree, Source: c.Type, Why: m.why}}
	v.What = map[metav1.ConditionStatus]string{metav1.ConditionTrue: m.yes, metav1.ConditionFalse: m.no, metav1.ConditionUnknown: m.unknown}[c.Status]
	if c.Reason != "" {
		v.What += " (" + c.Reason + ")"
	}
	if c.Message != "" {
		v.What += ": " + c.Message
	}
	if !c.LastTransitionTime.IsZero() {
		v.Since = &c.LastTransitionTime.Time
	}
	switch unwritable := slices.Contains([]string{"NoSpace", "NoLeader", "Corrupt"}, c.Reason); {
	case m.kind == v1alpha1.ConditionCoreHealthy && c.Status == metav1.ConditionUnknown && now.Sub(c.LastTransitionTime.Time) >= takesLong:
		v.State = finding.Unknown
	case !slices.Contains(m.bad, c.Status):
	case m.kind == v1alpha1.ConditionCoreHealthy && unwritable:
		v.State, v.Why = finding.Down, "writes of all tenants of the core may fail"
	default:
		v.State = m.state
	}
	return v
}
