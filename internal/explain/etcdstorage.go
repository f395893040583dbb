// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// EtcdStorageEvidence is what was read of an EtcdStorage.
type EtcdStorageEvidence struct {
	Now        time.Time
	Storage    v1alpha1.EtcdStorage
	Events     []finding.Event
	EventsRead finding.Side
	// Unkept is why what etcd-storage-operator has reported may be old, "" while it works.
	Unkept string
}

// EtcdStorage explains a tenant: its conditions as sentences, what it stores of what it may, when certificates end, and what is pending.
func EtcdStorage(e EtcdStorageEvidence) Explanation {
	return explanation("EtcdStorage", "", e.Storage.Name, e.tenant(), e.conditions(), e.usage(), e.certificates(), told{e.Events, e.EventsRead, true}.section(e.Now))
}

// tenant says what it is and what is pending.
func (e EtcdStorageEvidence) tenant() Section {
	s, storage := Section{Title: "Tenant (etcd-storage-operator)"}, e.Storage
	status := storage.Status
	s.say("keys", "under %s of the core; they are %s", cmp.Or(status.Prefix, storage.Spec.Prefix, "/"+storage.Name+"/"), map[bool]string{
		true: "deleted with it (spec.deletionPolicy Delete)", false: "kept when it is deleted (spec.deletionPolicy Retain)",
	}[storage.Spec.DeletionPolicy == v1alpha1.DeletionDelete])
	if status.Endpoint != "" {
		s.say("served at", "%s", status.Endpoint)
	}
	if status.Proxies != "" {
		s.say("proxies", "%s ready", status.Proxies)
	}
	s.unkept(e.Unkept)
	if at := storage.DeletionTimestamp; at != nil {
		s.heed("pending", "its deletion, requested %s ago; finalizers that hold it: %s", ago(e.Now, at.Time), cmp.Or(finding.First(storage.Finalizers, mostNamed), "none"))
		s.say("next", "kubectl describe etcdstorage %s", storage.Name)
	}
	switch {
	case len(status.Conditions) == 0:
		s.heed("pending", "the operator has not reported on it yet: check that etcd-storage-operator runs")
	case status.ObservedGeneration < storage.Generation:
		s.heed("pending", "a change of the spec: the following is about generation %d, and the current generation is %d", status.ObservedGeneration, storage.Generation)
	}
	switch {
	case len(status.Conditions) == 0 || status.ReadyReplicas >= storage.Spec.Replicas:
	case status.ReadyReplicas == 0:
		s.heed("proxies", "none of %d is ready, so that its API server reaches no data", storage.Spec.Replicas)
		s.say("next", "kubectl get pods -A -l %s=%s", v1alpha1.StorageLabel, storage.Name)
	default:
		s.say("pending", "proxies that are not ready: %d of %d", storage.Spec.Replicas-status.ReadyReplicas, storage.Spec.Replicas)
	}
	return s
}

// meaning is what a condition says.
type meaning struct {
	kind string
	// yes, no and unknown are what it means when it is True, when it is False, and before it is known.
	yes, no, unknown string
	// bad are the states that need attention. What is not known yet of quota and rotation does not: Ready tells when something
	// is in the way of knowing.
	bad []metav1.ConditionStatus
}

// meanings are the conditions in the order in which they explain each other: the summary, then what must be before the next
// can be.
func meanings() []meaning {
	isTrue, isFalse := []metav1.ConditionStatus{metav1.ConditionTrue}, []metav1.ConditionStatus{metav1.ConditionFalse}
	notTrue := append(isFalse, metav1.ConditionUnknown)
	return []meaning{
		{"Ready", "it is ready", "it is not ready", "whether it is ready is not known", notTrue},
		{v1alpha1.ConditionConflict, "an object or data of another owner prevents the work",
			"no object or data of another owner prevents the work", "whether there is a conflict is unknown", isTrue},
		{v1alpha1.ConditionCoreReachable, "the core etcd responds",
			"the core etcd cannot be used", "whether the core etcd responds is not known", notTrue},
		{v1alpha1.ConditionCertificatesReady, "every certificate is in place",
			"a certificate or bundle is missing", "whether certificates are in place is unknown", notTrue},
		{v1alpha1.ConditionProxyReady, "a proxy serves",
			"no proxy of the current template serves", "whether a proxy serves is not known", notTrue},
		{v1alpha1.ConditionDeployed, "it is deployed",
			"it is not deployed", "whether it is deployed is not known", notTrue},
		{v1alpha1.ConditionCoreHealthy, "the members of the core etcd are healthy",
			"the core etcd is not healthy: its operator has to act", "the health of the core etcd's members is unknown", isFalse},
		{v1alpha1.ConditionCoreWentBack, "the core etcd went back to an earlier revision",
			"the core etcd did not go back to an earlier revision", "whether the core etcd went back is not known", isTrue},
		{v1alpha1.ConditionCoreOvercommitted, "the core etcd has promised its tenants more than it has",
			"what the core etcd has promised its tenants fits", "what the core etcd may promise its tenants is unknown", isTrue},
		{v1alpha1.ConditionQuotaExceeded, "it is at a limit of its quota",
			"it is within its quota", "what it stores has not been counted yet", isTrue},
		{v1alpha1.ConditionRotationInProgress, "two generations of a CA are trusted",
			"no CA is being replaced", "there is no CA yet", nil},
		{"", "it holds", "it does not hold", "it is not known", nil}, // any other
	}
}

// conditions are the conditions as sentences. Reconciling and Stalled are left out: they repeat Ready or ProxyReady.
func (e EtcdStorageEvidence) conditions() Section {
	s := Section{Title: "Conditions"}
	list, known := slices.Clone(e.Storage.Status.Conditions), meanings()
	list = slices.DeleteFunc(list, func(c metav1.Condition) bool { return c.Type == "Reconciling" || c.Type == "Stalled" })
	rank := func(c metav1.Condition) int {
		at := slices.IndexFunc(known, func(m meaning) bool { return m.kind == c.Type })
		if at < 0 {
			at = len(known) - 1
		}
		return at
	}
	slices.SortStableFunc(list, func(a, b metav1.Condition) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Type, b.Type))
	})
	for _, c := range list {
		m := known[rank(c)]
		text := map[metav1.ConditionStatus]string{
			metav1.ConditionTrue: m.yes, metav1.ConditionFalse: m.no, metav1.ConditionUnknown: m.unknown,
		}[c.Status]
		if !c.LastTransitionTime.IsZero() {
			text += ", since " + ago(e.Now, c.LastTransitionTime.Time)
		}
		text += " (" + c.Reason + ")"
		if c.Message != "" {
			text += ": " + c.Message
		}
		s.sayIf(slices.Contains(m.bad, c.Status) || e.unknown(c), c.Type, "%s", text)
	}
	return s
}

// unknown reports that the health of the core has been unknown for longer than its operator takes to find out.
func (e EtcdStorageEvidence) unknown(c metav1.Condition) bool {
	return c.Type == v1alpha1.ConditionCoreHealthy && c.Status == metav1.ConditionUnknown && e.Now.Sub(c.LastTransitionTime.Time) > news
}

// usage is what the tenant stores of what it may.
func (e EtcdStorageEvidence) usage() Section {
	s, quota := Section{Title: "Usage"}, e.Storage.Spec.Quota
	u := e.Storage.Status.Usage
	if u == nil {
		s.say("counted", "not yet")
		return s
	}
	s.say("keys", "%s", of(u.Keys, quota.Keys, func(n int64) string { return fmt.Sprint(n) }))
	var most *int64
	if bound := e.Storage.BytesBound(); bound != nil {
		value := bound.Value()
		most = &value
	}
	s.say("bytes", "%s", of(u.Bytes.Value(), most, size))
	s.say("leases", "%s", of(u.Leases, quota.Leases, func(n int64) string { return fmt.Sprint(n) }))
	s.say("counted", "%s ago", ago(e.Now, u.ObservedAt.Time))
	if rate := quota.UnitsPerSecond; rate != nil {
		s.say("work", "the proxies together let through at most %d units per second", *rate)
	}
	if watches := quota.Watches; watches != nil {
		s.say("watches", "each proxy has at most %d open", *watches)
	}
	return s
}

// of is a number with its bound.
func of(n int64, most *int64, text func(int64) string) string {
	if most == nil || *most <= 0 {
		return text(n) + ", unbounded"
	}
	return fmt.Sprintf("%s of %s (%d %%)", text(n), text(*most), int64(float64(n)*100/float64(*most)))
}

// size is a number of bytes, such as 3.2Mi.
func size(n int64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1 << 30, "Gi"}, {1 << 20, "Mi"}, {1 << 10, "Ki"}} {
		if float64(n) >= unit.of {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/unit.of), ".0") + unit.name
		}
	}
	return resource.NewQuantity(n, resource.BinarySI).String()
}

// certificates says when they end.
func (e EtcdStorageEvidence) certificates() Section {
	storage := *e.Storage.DeepCopy()
	v1alpha1.SetDefaults(&storage)
	s, spec := Section{Title: "Certificates"}, storage.Spec
	times := e.Storage.Status.Certificates
	if times == nil {
		s.say("issued", "none yet")
		return s
	}
	for _, c := range []struct {
		name     string
		ends     *metav1.Time
		validity time.Duration
		// after says when the operator puts the next one in its place.
		after string
	}{
		{"serving CA", times.ServingCA, spec.SigningCertificateValidity.Duration, "the next one signs after five sixths"},
		{"serving", times.Serving, spec.ServingCertificateValidity.Duration, "it is renewed after two thirds"},
		{"client CA", times.ClientCA, spec.SigningCertificateValidity.Duration, "the next one signs after five sixths"},
		{"client", times.Client, spec.ClientCertificateValidity.Duration, "it is renewed after two thirds"},
	} {
		if c.ends == nil {
			s.say(c.name, "none yet")
			continue
		}
		at, left := c.ends.UTC().Format(time.RFC3339), c.ends.Sub(e.Now)
		switch {
		case left <= 0:
			s.heed(c.name, "it expired at %s, %s ago", at, prose.Span(-left))
		case left < c.validity/late:
			s.heed(c.name, "it expires at %s, in %s, which is late for a validity of %s: %s of that", at, prose.Span(left), prose.Span(c.validity), c.after)
		default:
			s.say(c.name, "it expires at %s, in %s; %s of %s", at, prose.Span(left), c.after, prose.Span(c.validity))
		}
	}
	return s
}

// late is the part of its validity in which a certificate should have been renewed: less is left than a CA has when its successor signs.
const late = 10
