// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"time"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/tenants"
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

// EtcdStorage explains a tenant: its conditions as sentences, what it stores of what it may, when certificates end, and
// what is pending.
func EtcdStorage(e EtcdStorageEvidence) Explanation {
	report, status := tenants.Judge(e.Storage, e.Now), e.Storage.Status
	conditions, certificates := Section{Title: "Conditions"}, Section{Title: "Certificates"}
	conditions.sourced(report.Conditions, e.Now)
	if certificates.sourced(report.Certificates, e.Now); status.Certificates == nil {
		certificates.say("issued", "none yet")
	}
	return explanation("EtcdStorage", "", e.Storage.Name, e.tenant(report), conditions, e.usage(report), certificates,
		events(e.Events, e.EventsRead, true, e.Now))
}

// sourced says what is known by what shows it.
func (s *Section) sourced(all []tenants.Verdict, now time.Time) {
	for _, v := range all {
		s.verdict(v.Source, v.Verdict, now)
	}
}

// tenant says what it is and what is pending.
func (e EtcdStorageEvidence) tenant(report tenants.Report) Section {
	s, spec, status := Section{Title: "Tenant (etcd-storage-operator)"}, e.Storage.Spec, e.Storage.Status
	s.say("keys", "under %s of the core; they are %s", cmp.Or(status.Prefix, spec.Prefix, "/"+e.Storage.Name+"/"),
		map[bool]string{
			true: "deleted with it (spec.deletionPolicy Delete)", false: "kept when it is deleted (spec.deletionPolicy Retain)",
		}[spec.DeletionPolicy == v1alpha1.DeletionDelete])
	if status.Endpoint != "" {
		s.say("served at", "%s", status.Endpoint)
	}
	if status.Proxies != "" {
		s.say("proxies", "%s ready", status.Proxies)
	}
	s.unkept(e.Unkept)
	s.sourced(report.Tenant, e.Now)
	return s
}

// usage is what the tenant stores of what it may.
func (e EtcdStorageEvidence) usage(report tenants.Report) Section {
	s, quota, u := Section{Title: "Usage"}, e.Storage.Spec.Quota, e.Storage.Status.Usage
	if u == nil {
		s.say("counted", "not yet")
		return s
	}
	s.sourced(report.Usage, e.Now)
	s.say("counted", "%s ago", ago(e.Now, u.ObservedAt.Time))
	if rate := quota.UnitsPerSecond; rate != nil {
		s.say("work", "the proxies together let through at most %d units per second; "+
			"kubectl mooring etcd capacity %s measures how many requests that is", *rate, e.Storage.Name)
	}
	if watches := quota.Watches; watches != nil {
		s.say("watches", "each proxy has at most %d open", *watches)
	}
	return s
}
