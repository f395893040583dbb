// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// balancerGrace is how long a Service may be without an address, or may be deleted: DigitalOcean takes some minutes.
const balancerGrace = 5 * time.Minute

// What [ServiceEvidence.Judge] goes by, in its Source.
const (
	byTrouble  = "trouble"
	byDeletion = "deletion"
	byRefusal  = "refused"
	byAddress  = "answers at"
)

// Judge is the verdict on the load balancer of a Service, that of status and the page as well: whether it is what the
// Service asks for, as far as what was read shows. Of one that another controller makes, only that is known which
// stands on the Service.
func (e ServiceEvidence) Judge() finding.Verdict {
	service := e.Input.Service
	ours := loadbalancer.Asks(service) == nil
	who, describe := "its controller", "kubectl -n "+service.Namespace+" describe service "+service.Name
	if ours {
		who = cloudComponent
	}
	v := finding.Verdict{State: finding.Disagree, Next: "see what " + who + " reports: " + describe}
	if ours {
		v.Source, v.What = byTrouble, e.trouble()
	}
	switch at := service.DeletionTimestamp; {
	case service.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return finding.Verdict{State: finding.Agree}
	case e.Lost && ours:
		v.Next = cloudComponent + " makes another within minutes; if not: " + describe
	case v.What != "":
	case at != nil:
		v.Source, v.Since = byDeletion, &at.Time
		v.What = "it is being deleted; finalizers that hold it: " +
			cmp.Or(finding.First(service.Finalizers, mostNamed), "none")
		if e.Now.Sub(at.Time) < balancerGrace {
			v.State, v.Next = finding.Settling, ""
		}
	default:
		return e.wanted(v, ours)
	}
	return v
}

// wanted is the verdict on a load balancer of which no trouble is reported: whether it is refused, has no targets or no
// address. v has what to do where that is for its controller to say.
func (e ServiceEvidence) wanted(v finding.Verdict, ours bool) finding.Verdict {
	service, o := e.Input.Service, e.Input.Observed
	var result loadbalancer.Result
	var err error
	if ours {
		result, err = loadbalancer.Desired(e.granted())
	}
	// A certificate that is waited for is not refused.
	refused := slices.ContainsFunc(each(err), func(problem error) bool {
		wait, waits := errors.AsType[*loadbalancer.CertificateWait](problem)
		return !waits || wait.Failed
	})
	made := service.CreationTimestamp
	targets := len(result.Request.DropletIDs)
	switch age := e.Now.Sub(made.Time); {
	case refused:
		if v.Source, v.What = byRefusal, err.Error(); !errors.Is(err, loadbalancer.ErrNoNodes) {
			v.Next = "change what is refused: kubectl -n " + service.Namespace + " edit service " + service.Name
		}
	case err == nil && !result.Disowned && o != nil && o.DropletTag == "" && len(o.DropletIDs) == 0 && targets > 0:
		v.What = fmt.Sprintf("at DigitalOcean it has no targets, and should have %d", targets)
	case len(service.Status.LoadBalancer.Ingress) > 0:
		return finding.Verdict{State: finding.Agree}
	case age >= 0 && age < balancerGrace:
		v.State, v.Source, v.Next = finding.Settling, byAddress, ""
		v.What = "the Service is " + prose.Span(age) + " old, and DigitalOcean takes some minutes to make a load balancer"
	default:
		v.Source, v.What = byAddress, "status.loadBalancer is empty"
		if !made.IsZero() {
			v.Since = &made.Time
		}
	}
	return v
}

// trouble is why the load balancer of a Service is not what the Service asks for, "" if nothing that was read shows
// that: DigitalOcean does not have it or reports it as failed, a condition of the cloud component is False, or the
// newest Event about an outcome is a failure. Who wrote the Event does not matter: it only stops a promise.
func (e ServiceEvidence) trouble() string {
	service := e.Input.Service
	if e.Lost {
		return "DigitalOcean has no load balancer " + service.Annotations[annotation.LoadBalancerID] +
			" that this token may see"
	}
	if e.Input.Observed != nil {
		if p := loadbalancer.Publish(service, *e.Input.Observed); p.Failed {
			return p.Message
		}
	}
	for _, c := range service.Status.Conditions {
		if strings.HasPrefix(c.Type, conditionPrefix) && c.Status == metav1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	if newest := e.newestOutcome(); newest.Warning {
		return fmt.Sprintf("%s %s ago: %s", newest.Reason, ago(e.Now, newest.At), newest.Text)
	}
	return ""
}

// newestOutcome is the newest Event about what became of the load balancer, a zero one if there is none.
func (e ServiceEvidence) newestOutcome() (newest finding.Event) {
	failures := loadbalancer.Failures()
	outcomes := []string{loadbalancer.ReasonEnsured, loadbalancer.ReasonPending, loadbalancer.ReasonCertReady}
	for _, event := range e.Events { // of failure and success in one second, the failure counts
		failed := event.Warning && slices.Contains(failures, event.Reason)
		later := event.At.After(newest.At) || failed && !newest.Warning && event.At.Equal(newest.At)
		if later && (failed || slices.Contains(outcomes, event.Reason)) {
			newest = event
		}
	}
	return newest
}

// conditionPrefix begins the types of the cloud component's conditions.
const conditionPrefix = "cloud.mooring.dev/"
