// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// StorageEvidence is what was read of the tenants of etcd storage.
type StorageEvidence struct {
	Now      time.Time
	Storages []v1alpha1.EtcdStorage
	// Unread are the sides that could not be read.
	Unread []finding.Side
	// Unkept is why what their status has may be old, "" while etcd-storage-operator works.
	Unkept string
}

// Storages judges EtcdStorages by their conditions, and the core that they share. The name of the check stands in JSON and
// MUST NOT change.
func Storages(e StorageEvidence) []finding.Finding {
	return finding.Make([]finding.Check[StorageEvidence]{{Name: "etcdstorages", Find: storages}}, e)
}

func storages(e StorageEvidence) []finding.Finding {
	out := notRead(e.Unread)
	for _, s := range e.Storages {
		out = append(out, e.tenant(s)...)
	}
	out = append(out, e.cores()...)
	if names := e.reported(); e.Unkept != "" && len(names) > 0 {
		out = append(out, finding.Warning.Say("the status of EtcdStorage %s is %s", finding.Some(names, 3), e.Unkept).At("EtcdStorage "+finding.Some(names, 3)).AsUnread().
			Because("what happened since is in no status").
			Advise("kubectl mooring doctor controllers"))
	}
	if len(out) == 0 && len(e.Storages) > 0 {
		what := fmt.Sprintf("EtcdStorages that are ready, on a healthy core etcd: %d", len(e.Storages))
		out = append(out, finding.OK.Say("%s", what))
	}
	return out
}

// tenant is what concerns one EtcdStorage alone. One that is being deleted is not expected to be ready.
func (e StorageEvidence) tenant(s v1alpha1.EtcdStorage) []finding.Finding {
	var out []finding.Finding
	add := func(severity finding.Severity, c *metav1.Condition, what, why string) {
		out = append(out, severity.Say("%s", sentence("EtcdStorage "+s.Name+" "+what, c)).At("EtcdStorage "+s.Name).
			Because(why).
			Advise("kubectl mooring explain etcdstorage "+s.Name))
	}
	is := func(kind string) *metav1.Condition { return meta.FindStatusCondition(s.Status.Conditions, kind) }
	ready := is("Ready")
	switch conflict := is(v1alpha1.ConditionConflict); {
	case conflict != nil && conflict.Status == metav1.ConditionTrue:
		add(finding.Problem, conflict, "is in conflict", "nothing is changed or deleted for it until a person has decided")
	case s.DeletionTimestamp != nil && e.Now.Sub(s.DeletionTimestamp.Time) >= takesLong:
		what := "has been deleted for " + prose.Span(e.Now.Sub(s.DeletionTimestamp.Time)) + ", and is still there"
		add(finding.Warning, nil, what, "its finalizers hold it: "+strings.Join(s.Finalizers, ", "))
	case s.DeletionTimestamp != nil:
	case ready == nil:
		add(finding.Warning, nil, "has no conditions", "no etcd-storage-operator has reconciled it")
	case ready.Status != metav1.ConditionTrue:
		add(finding.Problem, ready, "is not ready", "its API server may not be able to read or write")
	case s.Status.ReadyReplicas == 0 && s.Spec.Replicas > 0:
		add(finding.Problem, nil, "has no ready proxy", "its API server can neither read nor write")
	}
	if full := is(v1alpha1.ConditionQuotaExceeded); full != nil && full.Status == metav1.ConditionTrue {
		add(finding.Warning, full, "is at a limit of its quota", "its API server cannot write data that needs space")
	}
	if back := is(v1alpha1.ConditionCoreWentBack); back != nil && back.Status == metav1.ConditionTrue {
		add(finding.Problem, back, "is on a core etcd that went back", "its API servers may show objects that are lost, and wait for revisions that come late")
	}
	return out
}

// reported are the EtcdStorages that have a status, which may be old.
func (e StorageEvidence) reported() (names []string) {
	for _, s := range e.Storages {
		if len(s.Status.Conditions) > 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

// takesLong is how long a deletion, or not to know of the core's health, may take its operator.
const takesLong = 10 * time.Minute

// cores are findings about the core: one for each condition CoreHealthy or CoreOvercommitted, however many EtcdStorages
// have it.
func (e StorageEvidence) cores() []finding.Finding {
	type said struct{ reason, message string }
	by := map[said][]string{}
	var order []said
	for _, s := range e.Storages {
		for _, c := range s.Status.Conditions {
			unknown := c.Status == metav1.ConditionUnknown && e.Now.Sub(c.LastTransitionTime.Time) >= takesLong
			unhealthy := c.Type == v1alpha1.ConditionCoreHealthy && (c.Status == metav1.ConditionFalse || unknown)
			if !unhealthy && (c.Type != v1alpha1.ConditionCoreOvercommitted || c.Status != metav1.ConditionTrue) {
				continue
			}
			key := said{c.Reason, c.Message}
			if by[key] == nil {
				order = append(order, key)
			}
			by[key] = append(by[key], s.Name)
		}
	}
	var out []finding.Finding
	for _, key := range order {
		f := finding.Warning.Say("%s", key.message).At("the core etcd of EtcdStorage " + finding.Some(by[key], 3)).
			Because("all tenants of the core depend on it").
			Advise(`docs/components/etcd-storage-operator.md, "Runbook"`)
		if slices.Contains([]string{"NoSpace", "NoLeader", "Corrupt"}, key.reason) {
			f.Severity, f.Why = finding.Problem, "writes of all tenants of the core may fail"
		}
		out = append(out, f)
	}
	return out
}

// sentence adds the message of a condition.
func sentence(what string, c *metav1.Condition) string {
	if c == nil || c.Message == "" {
		return what
	}
	return what + ": " + c.Message
}
