// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenants

import (
	"slices"
	"time"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// Evidence is what was read of the tenants of etcd storage.
type Evidence struct {
	Now      time.Time
	Storages []v1alpha1.EtcdStorage
	// Unread are the sides that could not be read.
	Unread []finding.Side
	// Unkept is why what their status has may be old, "" while etcd-storage-operator works.
	Unkept string
}

// Findings judges EtcdStorages by their conditions, and the core that they share. The name of the check stands in JSON
// and MUST NOT change.
func Findings(e Evidence) []finding.Finding {
	return finding.Make([]finding.Check[Evidence]{{Name: "etcdstorages", Find: find}}, e)
}

// find is a finding for each trouble, however many EtcdStorages have it. Certificates have a check of their own.
func find(e Evidence) []finding.Finding {
	out := finding.NotRead(e.Unread)
	by := map[string][]string{}
	var troubles []Verdict
	var reported []string
	for _, s := range e.Storages {
		report := Judge(s, e.Now)
		report.Certificates = nil
		for _, v := range report.Troubles() {
			if !v.State.NeedsAttention() {
				continue
			}
			switch at := slices.IndexFunc(troubles, func(t Verdict) bool { return t.What == v.What }); {
			case at < 0:
				troubles = append(troubles, v)
			case v.Since != nil && (troubles[at].Since == nil || v.Since.Before(*troubles[at].Since)):
				troubles[at].Since = v.Since
			}
			by[v.What] = append(by[v.What], s.Name)
		}
		if len(s.Status.Conditions) > 0 {
			reported = append(reported, s.Name)
		}
	}
	for _, v := range troubles {
		out = append(out, v.finding(by[v.What], e.Now))
	}
	if e.Unkept != "" && len(reported) > 0 {
		out = append(out,
			finding.Warning.Say("the status of %s is %s", some(reported), e.Unkept).At(some(reported)).AsUnread().
				Because("what happened since is in no status").
				Advise("kubectl mooring doctor controllers"))
	}
	if len(out) == 0 && len(e.Storages) > 0 {
		out = append(out, finding.OK.Say("EtcdStorages that are ready, on a healthy core etcd: %d", len(e.Storages)))
	}
	return out
}

// finding is the verdict on EtcdStorages of these names as a finding, with since when it is so of the first.
func (v Verdict) finding(names []string, now time.Time) finding.Finding {
	f := finding.Warning.Say("%s: %s", some(names), v.Text(now)).At(some(names)).Because(v.Why).
		Advise("kubectl mooring explain etcdstorage " + slices.Min(names))
	if v.Core {
		f = f.At("the core etcd of " + f.Where).Advise(`docs/components/etcd-storage-operator.md, "Runbook"`)
	}
	if v.State == finding.Down {
		f.Severity = finding.Problem
	}
	return f
}

// some are EtcdStorages by name.
func some(names []string) string { return "EtcdStorage " + finding.Some(names, 3) }
