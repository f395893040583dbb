// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Verdict is what is known of a tenant. Its Source is the condition, the use or the certificate that shows it, its Why
// what follows.
type Verdict struct {
	finding.Verdict
	// Part reports that the condition Ready says it too, Core that it is about the core etcd, which tenants share.
	Part, Core bool
	// Percent is what is used of a limit, 0 to 100; -1 without one.
	Percent int
	// Expires is when a certificate does; zero without one.
	Expires time.Time
}

// Report is all that is known of a tenant.
type Report struct {
	// Tenant is about its deletion, its spec and its proxies; Conditions stand in the order in which they explain each
	// other.
	Tenant, Conditions []Verdict
	// Usage and Certificates are empty before the operator has written them.
	Usage, Certificates []Verdict
}

// takesLong is how long the operator's work may take: a deletion, a replacement of proxies, or to find out about the
// core's health. It is its resync, and the progress deadline of a Deployment.
const takesLong = 10 * time.Minute

// checkOperator is what to do about what the operator alone does.
const checkOperator = "check that etcd-storage-operator runs: kubectl mooring doctor controllers"

// nearFull is from which percentage a limit needs attention.
const nearFull = 90

// mostNamed is how many finalizers are named.
const mostNamed = 5

// Certificates judges when the certificates of EtcdStorages end. The name of the check stands in JSON and MUST NOT
// change.
func Certificates(e Evidence) []finding.Finding {
	return finding.Make([]finding.Check[Evidence]{{Name: "certificates", Find: expiring}}, e)
}

func expiring(e Evidence) (out []finding.Finding) {
	well, first, firstOf := 0, Verdict{}, ""
	for _, s := range e.Storages {
		for _, v := range certificates(s, e.Now) {
			switch {
			case v.State != finding.Agree:
				out = append(out, v.named().finding([]string{s.Name}, e.Now))
			case !v.Expires.IsZero():
				if well++; well == 1 || v.Expires.Before(first.Expires) {
					first, firstOf = v, s.Name
				}
			}
		}
	}
	if well > 0 {
		out = append(out,
			finding.OK.Say("certificates of EtcdStorages that are not about to expire: %d; the first, %s of %s: %s",
				well, first.Source, firstOf, first.What).At(some([]string{firstOf})))
	}
	return out
}

// named is the verdict on a certificate with the name of that.
func (v Verdict) named() Verdict {
	v.What = "certificate " + v.Source + ": " + v.What
	return v
}

// Judge is the report on a tenant at a moment of the API server's clock.
func Judge(s v1alpha1.EtcdStorage, now time.Time) Report {
	return Report{
		Tenant: tenant(s, now), Conditions: conditions(s, now), Usage: usage(s), Certificates: certificates(s, now),
	}
}

// Troubles are the verdicts that are not well, or not yet, worst first, without those that another one says. What a
// conflict, or else the condition Ready, brings about is said once.
func (r Report) Troubles() []Verdict {
	is := func(kind string) bool {
		return slices.ContainsFunc(r.Conditions, func(v Verdict) bool {
			return v.Source == kind && v.State == finding.Down
		})
	}
	conflict, unready := is(v1alpha1.ConditionConflict), is(ready)
	counted := slices.Clone(r.Usage)
	for i, v := range counted {
		counted[i].What = v.Source + ": " + v.What
	}
	for _, v := range r.Certificates {
		counted = append(counted, v.named())
	}
	out := slices.DeleteFunc(slices.Concat(r.Tenant, r.Conditions, counted), func(v Verdict) bool {
		return v.State == finding.Agree || conflict && v.Source == ready || (conflict || unready) && v.Part
	})
	slices.SortStableFunc(out, func(a, b Verdict) int { return a.State.Rank() - b.State.Rank() })
	return out
}

// tenant is what is pending, and whether a proxy serves. One that is being deleted is not expected to be ready.
func tenant(s v1alpha1.EtcdStorage, now time.Time) (out []Verdict) {
	status := s.Status
	// What is a part of Ready is about the proxies.
	say := func(state finding.State, part bool, why, next, format string, args ...any) {
		v := Verdict{Part: part, Verdict: finding.Verdict{
			State: state, Source: "pending", Why: why, Next: next, What: fmt.Sprintf(format, args...),
		}}
		if part {
			v.Source = "proxies"
		}
		if s.DeletionTimestamp != nil && len(out) > 0 {
			v.State = finding.Settling
		}
		out = append(out, v)
	}
	if at := s.DeletionTimestamp; at != nil {
		state := finding.Settling
		if now.Sub(at.Time) >= takesLong {
			state = finding.Disagree
		}
		say(state, false, "its finalizers hold it", "kubectl describe etcdstorage "+s.Name,
			"it is being deleted; finalizers that hold it: %s", cmp.Or(finding.First(s.Finalizers, mostNamed), "none"))
		out[0].Since = &at.Time
	}
	pods := fmt.Sprintf("kubectl get pods -A -l %s=%s", v1alpha1.StorageLabel, s.Name)
	switch missing := s.Spec.Replicas - status.ReadyReplicas; {
	case len(status.Conditions) == 0:
		say(finding.Disagree, false, "no etcd-storage-operator has reconciled it",
			checkOperator, "the operator has not reported on it yet")
		return out
	case missing <= 0:
	case status.ReadyReplicas == 0:
		say(finding.Down, true, "its API server can neither read nor write",
			pods, "no proxy of %d is ready, so that its API server reaches no data", s.Spec.Replicas)
	default:
		say(finding.Settling, true, "", "", "%d of %d proxies are not ready", missing, s.Spec.Replicas)
		out[len(out)-1].partly(s, now, pods)
	}
	if status.ObservedGeneration < s.Generation {
		say(finding.Settling, false, "", "",
			"a change of the spec: what is reported is about generation %d, and the current generation is %d",
			status.ObservedGeneration, s.Generation)
	}
	return out
}

// partly adds since when proxies are replaced that are not all ready, by the operator's condition Reconciling. What
// takes long does not end by itself: pods is the command that shows them.
func (v *Verdict) partly(s v1alpha1.EtcdStorage, now time.Time, pods string) {
	busy := meta.FindStatusCondition(s.Status.Conditions, "Reconciling")
	if busy == nil || busy.Status != metav1.ConditionTrue || busy.LastTransitionTime.IsZero() {
		return
	}
	v.Since = &busy.LastTransitionTime.Time
	if s.DeletionTimestamp == nil && now.Sub(*v.Since) >= takesLong {
		v.State, v.Why, v.Next = finding.Disagree, "it works, with fewer proxies left if a machine fails", pods
	}
}

// conditions are the conditions as sentences. Reconciling and Stalled are left out: they repeat Ready or ProxyReady.
func conditions(s v1alpha1.EtcdStorage, now time.Time) (out []Verdict) {
	known := meanings()
	rank := func(kind string) int {
		at := slices.IndexFunc(known, func(m meaning) bool { return m.kind == kind })
		if at < 0 {
			at = len(known) - 1
		}
		return at
	}
	for _, c := range s.Status.Conditions {
		if c.Type == "Reconciling" || c.Type == "Stalled" {
			continue
		}
		v := known[rank(c.Type)].verdict(c, now)
		if s.DeletionTimestamp != nil && (v.Part || c.Type == ready) && v.State == finding.Down {
			v.State = finding.Settling
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b Verdict) int {
		return cmp.Or(rank(a.Source)-rank(b.Source), cmp.Compare(a.Source, b.Source))
	})
	return out
}

// usage is what the tenant stores of what it may.
func usage(s v1alpha1.EtcdStorage) (out []Verdict) {
	u, quota := s.Status.Usage, s.Spec.Quota
	if u == nil {
		return nil
	}
	var bytes *int64
	if bound := s.BytesBound(); bound != nil {
		bytes = new(bound.Value())
	}
	full := meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionQuotaExceeded)
	count := func(n int64) string { return fmt.Sprint(n) }
	for _, x := range []struct {
		what  string
		used  int64
		limit *int64
		text  func(int64) string
	}{
		{"keys", u.Keys, quota.Keys, count},
		{"bytes", u.Bytes.Value(), bytes, prose.Bytes},
		{"leases", u.Leases, quota.Leases, count},
	} {
		v := Verdict{Percent: -1, Verdict: finding.Verdict{
			State: finding.Agree, Source: x.what, What: x.text(x.used) + ", unbounded",
		}}
		if x.limit != nil && *x.limit > 0 {
			part := float64(x.used) / float64(*x.limit) * 100
			v.Percent = int(min(100, max(0, part)))
			v.What = fmt.Sprintf("%s of %s (%d %%)", x.text(x.used), x.text(*x.limit), int(part))
		}
		if v.Percent >= nearFull && !full { // else its condition says so
			v.State, v.Why = finding.Disagree, "at the limit its API server cannot write data that needs space"
		}
		out = append(out, v)
	}
	return out
}

// late is the part of its validity in which a certificate should have been renewed: less is left than a CA has when its
// successor signs.
const late = 10

// certificates says when they end.
func certificates(s v1alpha1.EtcdStorage, now time.Time) (out []Verdict) {
	times := s.Status.Certificates
	if times == nil {
		return nil
	}
	s = *s.DeepCopy()
	v1alpha1.SetDefaults(&s)
	for _, c := range []struct {
		name     string
		ends     *metav1.Time
		validity time.Duration
		// after says when the operator puts the next one in its place.
		after string
	}{
		{"serving CA", times.ServingCA, s.Spec.SigningCertificateValidity.Duration, "the next one signs after five sixths"},
		{"serving", times.Serving, s.Spec.ServingCertificateValidity.Duration, "it is renewed after two thirds"},
		{"client CA", times.ClientCA, s.Spec.SigningCertificateValidity.Duration, "the next one signs after five sixths"},
		{"client", times.Client, s.Spec.ClientCertificateValidity.Duration, "it is renewed after two thirds"},
	} {
		v := Verdict{Verdict: finding.Verdict{State: finding.Agree, Source: c.name, What: "none yet"}}
		if c.ends != nil {
			at, left := c.ends.UTC().Format(time.RFC3339), c.ends.Sub(now)
			v.Expires = c.ends.Time
			if left < c.validity/late {
				v.State, v.Why = finding.Disagree, "from then on every client that verifies it refuses the connection"
				v.Next = checkOperator
			}
			switch {
			case left <= 0:
				v.State, v.What = finding.Down, fmt.Sprintf("it expired at %s, %s ago", at, prose.Span(-left))
				v.Why = "every client that verifies it refuses the connection"
			case left < c.validity/late:
				v.What = fmt.Sprintf("it expires at %s, in %s, which is late for a validity of %s: %s of that",
					at, prose.Span(left), prose.Span(c.validity), c.after)
			default:
				v.What = fmt.Sprintf("it expires at %s, in %s; %s of %s",
					at, prose.Span(left), c.after, prose.Span(c.validity))
			}
		}
		out = append(out, v)
	}
	return out
}
