// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
)

// Reasons of conditions, alongside those of [operator.Reason]. They are a contract with users' alerts: MUST NOT change.
const (
	// reasonIssued of CertificatesReady=True: all certificates and bundles are in place.
	reasonIssued = "Issued"
	// reasonPending of CertificatesReady=False, RotationInProgress=Unknown, CoreWentBack=Unknown: certificates are not issued or delivered yet, or
	// the record of the core's revision was not read yet; the message says what comes first.
	reasonPending = "Pending"
	// reasonExpired of CertificatesReady=False: a certificate has expired before it was renewed.
	reasonExpired = "Expired"
	// reasonDeleting of Ready=False, CertificatesReady=False, ProxyReady=False, Deployed=False, RotationInProgress=False: the EtcdStorage is being
	// deleted; the message says what it waits for.
	reasonDeleting = "Deleting"
	// reasonAvailable of ProxyReady=True: proxies of the newest template are ready.
	reasonAvailable = "Available"
	// reasonRolling of ProxyReady=True, Reconciling=True: proxies are ready, and not all are of the newest template.
	reasonRolling = "RollingOut"
	// reasonUnavailable of ProxyReady=False: no proxy is ready; the message has the command that shows why.
	reasonUnavailable = "NoProxyReady"
	// reasonReachable of CoreReachable=True: the core etcd responds.
	reasonReachable = "Reachable"
	// reasonWithin of QuotaExceeded=False: the tenant is within spec.quota, or spec.quota does not limit storage.
	reasonWithin = "WithinQuota"
	// reasonExceeded of QuotaExceeded=True: proxies refuse writes that need space, or are about to; reads and deletes work.
	reasonExceeded = "Exceeded"
	// reasonUnmeasured of QuotaExceeded=Unknown: the tenant's storage has not been counted yet.
	reasonUnmeasured = "NotMeasured"
	// reasonSteady of RotationInProgress=False: the newest CA signs, and no certificate of an older one is in use; the older one is trusted
	// until it expires.
	reasonSteady = "Steady"
	// reasonOverlap of RotationInProgress=True: two generations of a CA are trusted; the message says which signs and what must be restarted.
	reasonOverlap = "Overlap"
	// reasonNoConflict of Conflict=False: no object or data of another owner prevents the work.
	reasonNoConflict = "NoConflict"
	// reasonDeployed of Deployed=True: a proxy is ready. The reason is etcdproxy-controller's.
	reasonDeployed = "Deployed"
	// reasonFailedDeploy of Deployed=False: no proxy is ready. The reason is etcdproxy-controller's.
	reasonFailedDeploy = "FailedDeploying"
	// reasonWentBack of CoreWentBack=True: the core responded with a revision below one that was seen before; the message has the next step.
	reasonWentBack = "WentBack"
	// reasonForward of CoreWentBack=False: since the EtcdStorage was created the core did not go back, or a person has confirmed the restart.
	reasonForward = "NotSeen"
	// reasonFits of CoreOvercommitted=False: what the tenants of the core may store and write fits its smallest member; those without a bound of bytes are not
	// counted, and the message has their number.
	reasonFits = "Fits"
	// reasonWriteFailed of Ready=False, CertificatesReady=False, CoreReachable=False, Deployed=False: a write that belongs to the condition failed; the
	// message has the error.
	reasonWriteFailed = "WriteFailed"
)

// verdict is a condition in the making.
type verdict struct {
	status          metav1.ConditionStatus
	reason, message string
}

func yes(reason, message string) verdict { return verdict{metav1.ConditionTrue, reason, message} }
func no(reason, message string) verdict  { return verdict{metav1.ConditionFalse, reason, message} }

// unknown is the verdict while something else must be known first; the message says what.
func unknown(reason, message string) verdict {
	return verdict{metav1.ConditionUnknown, reason, message}
}

// conditionKinds are the types of all conditions alongside Ready.
func conditionKinds() []string {
	return []string{
		v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionProxyReady, v1alpha1.ConditionCoreReachable, v1alpha1.ConditionQuotaExceeded,
		v1alpha1.ConditionRotationInProgress, v1alpha1.ConditionConflict, v1alpha1.ConditionDeployed, v1alpha1.ConditionCoreHealthy, v1alpha1.ConditionCoreWentBack,
		v1alpha1.ConditionCoreOvercommitted,
	}
}

// trouble is a write that failed. The zero value is none.
type trouble struct {
	step    operator.Step
	message string
}

// on is the condition to which the failed write belongs, alongside Ready; "" for those of the finalizer and of a deletion.
func (t trouble) on() string {
	switch step := t.step.(type) {
	case operator.MakeCA, operator.TakeCA, operator.Recover, operator.Revoke, operator.IssueServing, operator.DeliverBundle, operator.DeliverClient:
		return v1alpha1.ConditionCertificatesReady
	case operator.Claim, operator.Bind, operator.EnsureUser, operator.RetireUsers, operator.Release, operator.Forget, operator.DeleteKeys, operator.DeleteRecords, operator.RevokeLeases:
		return v1alpha1.ConditionCoreReachable
	case operator.MakePassword:
		return v1alpha1.ConditionDeployed
	case operator.Apply:
		return onObject(step.Ref)
	case operator.Remove:
		return onObject(step.Ref)
	case operator.Hold, operator.Unhold, operator.Withdraw:
	}
	return ""
}

// onObject is the condition to which a write of an object belongs.
func onObject(ref operator.Ref) string {
	switch ref.Kind {
	case operator.KindSecret, operator.KindConfigMap, operator.KindCertificate:
		return v1alpha1.ConditionCertificatesReady
	}
	return v1alpha1.ConditionDeployed
}

// instead is the verdict of a condition, unless the failed write belongs to it.
func (t trouble) instead(kind string, v verdict) verdict {
	if t.message != "" && t.on() == kind && v.reason != reasonDeleting {
		return no(reasonWriteFailed, t.message)
	}
	return v
}

// setConditions sets all conditions of a status.
func setConditions(is *v1alpha1.EtcdStorageStatus, s *scene, plan operator.Plan, failed trouble) {
	deployed, ready := proxies(s)
	for _, c := range []struct {
		kind string
		v    verdict
	}{
		{v1alpha1.ConditionConflict, conflict(s, plan)},
		{v1alpha1.ConditionCoreReachable, failed.instead(v1alpha1.ConditionCoreReachable, reachable(s, plan))},
		{v1alpha1.ConditionCertificatesReady, certificates(s, plan, failed)},
		{v1alpha1.ConditionProxyReady, ready},
		{v1alpha1.ConditionDeployed, failed.instead(v1alpha1.ConditionDeployed, deployed)},
		{v1alpha1.ConditionRotationInProgress, rotation(s, plan)},
		{v1alpha1.ConditionCoreHealthy, healthy(s)},
		{v1alpha1.ConditionCoreWentBack, wentBack(s)},
		{v1alpha1.ConditionCoreOvercommitted, overcommitted(s)},
		{v1alpha1.ConditionQuotaExceeded, quota(s.world.Storage.Spec.Quota, is.Usage)},
	} {
		if c.v.reason == reasonPending && c.kind == v1alpha1.ConditionCoreWentBack && meta.FindStatusCondition(is.Conditions, c.kind) != nil {
			continue // what an operator before this one knew still holds
		}
		conditions.Set(&is.Conditions, metav1.Condition{
			Type: c.kind, Status: c.v.status, Reason: c.v.reason, Message: c.v.message, ObservedGeneration: s.object.GetGeneration(),
		}, s.world.Now)
	}
	setReady(&is.Conditions, summary(is.Conditions, s, plan, failed.message), s.world.Now)
}

// stalls are the reasons of Ready=False that only a person can bring to an end.
func stalls() []string {
	var out []string
	for _, r := range []operator.Reason{
		operator.ReasonInvalidSpec, operator.ReasonPrefixTaken, operator.ReasonExistingData, operator.ReasonCoreOvercommitted, operator.ReasonForeignObject,
		operator.ReasonForeignCore, operator.ReasonCoreCredentials, operator.ReasonSharedUser, operator.ReasonMissingPermission, operator.ReasonMissingObject,
		operator.ReasonDestination, operator.ReasonDestinationTaken, operator.ReasonNoCertManager, operator.ReasonUnusableCA,
	} {
		out = append(out, string(r))
	}
	return out
}

// setReady sets Ready and what follows from it. Proxies that are replaced are work in progress even while others serve.
func setReady(list *[]metav1.Condition, ready metav1.Condition, now time.Time) (changed bool) {
	rolling := meta.FindStatusCondition(*list, v1alpha1.ConditionProxyReady)
	if rolling != nil && rolling.Reason != reasonRolling {
		rolling = nil
	}
	return conditions.SetReady(list, ready, rolling, stalls(), now)
}

// summary is Ready. A conflict stands in its way; a quota that is exceeded does not, since the operator has nothing to do about it.
func summary(list []metav1.Condition, s *scene, plan operator.Plan, trouble string) metav1.Condition {
	generation := s.object.GetGeneration()
	out := summarize(list, generation)
	set := func(reason, message string) metav1.Condition {
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, reason, message
		return out
	}
	if s.object.GetDeletionTimestamp() != nil {
		return set(reasonDeleting, cmp.Or(trouble, plan.Waiting, "it is being deleted"))
	}
	if len(plan.Refusals) > 0 {
		return set(string(plan.Refusals[0].Reason), join(plan.Refusals))
	}
	if trouble != "" {
		return set(reasonWriteFailed, trouble)
	}
	return out
}

// summarize is Ready by the conditions that it is made of.
func summarize(list []metav1.Condition, generation int64) metav1.Condition {
	return conditions.Summarize(list, generation, v1alpha1.ConditionCoreReachable, v1alpha1.ConditionCertificatesReady, v1alpha1.ConditionProxyReady)
}

// roomForMessages is how many bytes of refusals a condition shows, a little less than package conditions lets pass: a command must not be cut in two.
const roomForMessages = 1000

// join writes refusals one after the other, each in full, as many as there is room for.
func join(refusals []operator.Refusal) string {
	out := ""
	for i, r := range refusals {
		if i > 0 && len(out)+len(r.Message) > roomForMessages {
			return fmt.Sprintf("%s\nand %d more", out, len(refusals)-i)
		}
		if i > 0 {
			out += "\n"
		}
		out += r.Message
	}
	return out
}

// some are the refusals of these reasons.
func some(plan operator.Plan, reasons ...operator.Reason) []operator.Refusal {
	return slices.DeleteFunc(slices.Clone(plan.Refusals), func(r operator.Refusal) bool { return !slices.Contains(reasons, r.Reason) })
}

func conflict(s *scene, plan operator.Plan) verdict {
	found := some(plan, operator.ReasonForeignCore, operator.ReasonForeignObject, operator.ReasonPrefixTaken, operator.ReasonExistingData, operator.ReasonDestinationTaken)
	switch {
	case len(found) > 0:
		return yes(string(found[0].Reason), join(found))
	case s.world.Core.Problem != "" && len(plan.Certificates) == 0:
		return unknown(string(operator.ReasonCoreUnreachable), "the owner of the prefix is unknown until the core etcd responds, see CoreReachable")
	}
	return no(reasonNoConflict, "")
}

func reachable(s *scene, plan operator.Plan) verdict {
	if found := some(plan, operator.ReasonSharedUser, operator.ReasonCoreCredentials); len(found) > 0 {
		return no(string(found[0].Reason), join(found))
	}
	if s.world.Core.Problem != "" {
		return no(string(operator.ReasonCoreUnreachable), s.world.Core.Problem)
	}
	return yes(reasonReachable, "")
}

func certificates(s *scene, plan operator.Plan, failed trouble) verdict {
	if found := some(plan, operator.ReasonMissingPermission, operator.ReasonMissingObject, operator.ReasonDestination, operator.ReasonDestinationTaken,
		operator.ReasonForeignCore, operator.ReasonForeignObject, operator.ReasonInvalidSpec, operator.ReasonPrefixTaken, operator.ReasonExistingData, operator.ReasonCoreOvercommitted, operator.ReasonNoCertManager,
		operator.ReasonIssuerNotReady, operator.ReasonUnusableCA); len(found) > 0 {
		return no(string(found[0].Reason), join(found))
	}
	switch {
	case s.object.GetDeletionTimestamp() != nil:
		return no(reasonDeleting, "")
	case failed.message != "" && failed.on() == v1alpha1.ConditionCertificatesReady:
		return no(reasonWriteFailed, failed.message)
	case len(plan.Certificates) == 0:
		return no(reasonPending, "no CA has been created yet: the core etcd must respond first, see CoreReachable")
	}
	if message := expired(times(plan), s.world.Now); message != "" {
		return no(reasonExpired, message)
	}
	for _, c := range plan.Certificates {
		if len(c.Plan.Steps) > 0 {
			return no(reasonPending, c.Plan.Steps[0].Because())
		}
	}
	return yes(reasonIssued, "")
}

func rotation(s *scene, plan operator.Plan) verdict {
	switch {
	case s.object.GetDeletionTimestamp() != nil:
		return no(reasonDeleting, "")
	case len(plan.Certificates) == 0:
		return unknown(reasonPending, "the CAs are checked when the problem in the condition Ready is solved")
	}
	for _, c := range plan.Certificates {
		if c.Plan.Rotating {
			message := fmt.Sprintf("two generations of the %s CA are trusted; generation %d signs", c.Purpose, c.Plan.Issuer)
			if c.Purpose == "serving" {
				message += "; API servers that read the bundle at their start only must be restarted before the next one signs"
				if at := c.Plan.Takeover; !at.IsZero() {
					message += ", at " + at.UTC().Format(time.RFC3339)
				}
			}
			return yes(reasonOverlap, strings.TrimSpace(message+"; "+c.Plan.Waiting))
		}
	}
	return no(reasonSteady, "")
}

// proxies are the conditions Deployed and ProxyReady.
func proxies(s *scene) (deployed, ready verdict) {
	count, rolled := s.world.Deployed()
	wanted := s.world.Storage.Spec.Replicas
	message := fmt.Sprintf("%d of %d proxies are ready", count, wanted)
	look := fmt.Sprintf("kubectl -n %s get pods -l %s=%s", s.world.Settings.Namespace, v1alpha1.StorageLabel, s.world.Storage.Name)
	switch {
	case s.object.GetDeletionTimestamp() != nil && count == 0:
		return no(reasonDeleting, message), no(reasonDeleting, message)
	case !s.world.HasProxies():
		message += ": there is no Deployment yet; the condition Ready says what it waits for"
		return no(reasonFailedDeploy, message), no(reasonUnavailable, message)
	case count == 0:
		message += "; find the cause with: " + look
		return no(reasonFailedDeploy, message), no(reasonUnavailable, message)
	case !rolled:
		message += "; not all are of the newest template; if this persists, find the cause with: " + look
		return yes(reasonDeployed, message), yes(reasonRolling, message)
	}
	return yes(reasonDeployed, message), yes(reasonAvailable, message)
}

// healthy is the condition CoreHealthy. It does not stand in the way of Ready: what there is to do is not the tenant's to do.
func healthy(s *scene) verdict {
	switch reason, message := s.health.Judge(); {
	case s.world.Core.Problem != "" || reason == operator.ReasonNotObserved:
		return unknown(string(operator.ReasonNotObserved), "the members of the core etcd have not reported their health, see CoreReachable")
	case reason == operator.ReasonHealthy:
		return yes(string(reason), message)
	default:
		return no(string(reason), message)
	}
}

// wentBack is the condition CoreWentBack. It does not stand in the way of Ready: what there is to do is not the operator's to do.
func wentBack(s *scene) verdict {
	switch {
	case s.record == nil:
		return unknown(reasonPending, "the record of the core's revision has not been read yet")
	case s.record.WentBack.Concerns(&s.world.Storage):
		return yes(reasonWentBack, s.record.WentBack.Message(s.world.Storage.Name))
	}
	return no(reasonForward, "")
}

// overcommitted is the condition CoreOvercommitted. It does not stand in the way of Ready: the tenants may need less than they may have.
func overcommitted(s *scene) verdict {
	p := s.world.Promises()
	switch {
	case s.world.Core.Problem != "" || p.Quota == 0:
		return unknown(string(operator.ReasonNotObserved), "the quota of the core etcd's members is unknown: none has responded, or they are older than etcd 3.6")
	case p.Exceed(wholeQuota):
		return yes(string(operator.ReasonCoreOvercommitted), p.Message())
	case p.Unbounded > 0:
		return no(reasonFits, fmt.Sprintf("tenants without spec.quota.bytes, which are not counted: %d", p.Unbounded))
	}
	return no(reasonFits, "")
}

// wholeQuota is all of a member's quota, in percent.
const wholeQuota = 100

// fullPercent is the part of spec.quota.bytes from which on a tenant counts as being at its limit: what is refused depends on the size of what it
// would write next, which the operator does not see.
const fullPercent = 95

// quota is the condition QuotaExceeded: the proxies refuse writes that need space, or are about to. Nothing is ever above the quota for
// long, since they do.
func quota(q v1alpha1.Quota, u *v1alpha1.Usage) verdict {
	if q.Bytes == nil && q.Keys == nil && q.Leases == nil {
		return no(reasonWithin, "spec.quota does not limit storage")
	}
	if u == nil {
		return unknown(reasonUnmeasured, "the tenant's storage has not been counted yet; the operator counts it every --measure-period")
	}
	var over, fields []string
	add := func(over1, field string) { over, fields = append(over, over1), append(fields, "spec.quota."+field) }
	if q.Bytes != nil && u.Bytes.Value() >= q.Bytes.Value()/100*fullPercent {
		add(fmt.Sprintf("%s bytes of %s", u.Bytes.String(), q.Bytes.String()), "bytes")
	}
	if q.Keys != nil && u.Keys >= *q.Keys {
		add(fmt.Sprintf("%d keys of %d", u.Keys, *q.Keys), "keys")
	}
	if q.Leases != nil && u.Leases >= *q.Leases {
		add(fmt.Sprintf("%d leases of %d", u.Leases, *q.Leases), "leases")
	}
	if len(over) > 0 {
		return yes(reasonExceeded, "the tenant stores "+strings.Join(over, ", ")+"; proxies refuse writes that need space, reads and deletes work: delete what is not needed, or raise "+
			strings.Join(fields, " and "))
	}
	return no(reasonWithin, "")
}
