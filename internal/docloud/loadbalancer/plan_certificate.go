// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// certificatePatience is how long a certificate that is pending is looked at often. Then nothing but somebody's work on the DNS will help, and the
// resync will see it.
const certificatePatience = 30 * time.Minute

// certificateHurry is how long a certificate that is waited for is looked at as often as a load balancer that is busy: most take less.
const certificateHurry = 2 * time.Minute

// certificateDoubt is how old the list may be where something does not fit.
func (p *planning) certificateDoubt() time.Duration {
	if since := p.plan.Memory.Certifying; !since.IsZero() && p.Now.Sub(since) < certificateHurry {
		return min(p.Pace.CertificateDoubt, p.Pace.Pending)
	}
	return p.Pace.CertificateDoubt
}

// certificates returns the account's certificates. They change rarely, so that a list that is not new does as long as all fits together: a name
// that it lacks may be one that was added, and another ID than the Service's one of a certificate that was renewed. Without ok the plan is made.
func (p *planning) certificates(observed *Observed) (all []Certificate, partial, ok bool) {
	p.strange = ""
	asked := p.Cluster.Effective(p.Service)
	byID := asked.Annotations[annotation.CertificateID] != ""
	demand := Demand{Age: p.Pace.CertificateAge}
	doubt := byID || p.Again != nil || p.Certificates.Met != nil && p.Certificates.Trouble == nil && !fitsTogether(p.Certificates.Items, certificateName(asked), observed)
	if doubt {
		demand.Age = p.certificateDoubt()
	}
	if !p.Certificates.meets(demand) {
		p.need(Needs{Certificates: &demand})
		return nil, false, false
	}
	if t := p.Certificates.Trouble; t != nil {
		if observed == nil || p.Service.Annotations[annotation.CertificateID] == "" {
			p.trouble(t, "listing certificates")
			return nil, false, false
		}
		return nil, true, true
	}
	if doubt {
		p.strange = unlisted(p.Certificates.Items, observed)
	}
	return p.Certificates.Items, false, true
}

// certificateName is the name of the certificate that a Service, with the cluster's defaults, asks for by name or by domains.
func certificateName(effective *corev1.Service) string {
	if managed, ok := AssumedCertificate(effective); ok {
		return managed.Name
	}
	return effective.Annotations[annotation.CertificateName]
}

// fitsTogether reports whether a list has a certificate of the name that can be used, and that of the load balancer.
func fitsTogether(list []Certificate, name string, observed *Observed) bool {
	if !slices.ContainsFunc(list, func(c Certificate) bool {
		return c.Name == name && cmp.Or(c.State, CertificateVerified) == CertificateVerified
	}) {
		return false
	}
	return unlisted(list, observed) == ""
}

// unlisted returns a certificate that a load balancer has and a list lacks, empty for none.
func unlisted(list []Certificate, observed *Observed) string {
	if observed == nil {
		return ""
	}
	for _, r := range observed.ForwardingRules {
		if r.CertificateID != "" && !slices.ContainsFunc(list, func(c Certificate) bool { return c.ID == r.CertificateID }) {
			return r.CertificateID
		}
	}
	return ""
}

// outdated reports that a load balancer would be changed that was seen with a certificate which the list of certificates
// lacks. DigitalOcean renews certificates: either may be older than a renewal that the other shows, so that to send what
// they say together would be to fight DigitalOcean. Both are read again, the certificates first, until the load balancer
// has the same certificate twice: then it was gone while the load balancer kept it, and nothing but a change helps.
func (p *planning) outdated(lb Observed, result Result) bool {
	if p.strange == "" || p.Again != nil && p.Again.Certificate == p.strange {
		return false
	}
	return len(Curable(Diff(lb, result.Request), RemedyUpdate)) > 0
}

// awaits notes what is waited for before the certificate of the Service's domains can be used, and reports whether the pass ends with that:
// there is no load balancer that could be kept as it must be meanwhile, or the certificate is to be made first.
func (p *planning) awaits(lb *Observed, wait *CertificateWait) bool {
	m := &p.plan.Memory
	if wait == nil {
		if !m.Certifying.IsZero() {
			p.plan.Said = append(p.plan.Said, normal(ReasonCertReady, "the certificate for the service's domains can be used"))
		}
		m.Certifying = time.Time{}
		return false
	}
	if m.Certifying.IsZero() {
		m.Certifying = p.Now
	}
	if wait.Failed {
		p.warn(ReasonCertFailed, wait.Message+"; "+until(lb))
		return false
	}
	if !wait.Make {
		p.plan.Notes = append(p.plan.Notes, normal(ReasonCertPending, wait.Message+"; "+until(lb)))
	}
	p.again = p.certificateDoubt()
	if p.Now.Sub(m.Certifying) > certificatePatience {
		p.again = p.Pace.Resync
	}
	return lb == nil || wait.Make
}

// until says what holds while a certificate is waited for.
func until(lb *Observed) string {
	if lb != nil {
		return "the load balancer keeps its forwarding rules until then"
	}
	return "no load balancer is made until then"
}

// certify makes the certificate that a Service waits for, if there is none. A load balancer that is there is kept as it must be even if that fails.
func (p *planning) certify(lb *Observed, result Result) {
	wait := result.Certificate
	p.outcome = OutcomePending
	if wait.Make {
		t, ordered := p.order(wait.Request)
		switch {
		case !ordered:
			return
		case t == nil:
			p.again = p.Pace.Poll
		case lb == nil || t.limited():
			p.trouble(t, "a certificate is needed")
			return
		default:
			p.outcome = OutcomeUnchanged
			p.warn(ReasonCertFailed, t.Err.Error()+"; "+until(lb))
			p.update(*lb, result)
			return
		}
	}
	if lb == nil {
		p.fail(Wait, OutcomePending, p.again, errors.New(wait.Message))
		return
	}
	p.done(*lb)
}

// order makes a certificate, once it is sure that there is none and that the Service still wants it: another pass, or another process, may
// have made it since. Without an answer, or where its name is taken, it may be there all the same: then it is found in a list that is newer.
// Without ok the plan is made.
func (p *planning) order(request CertificateRequest) (t *Trouble, ok bool) {
	m := &p.plan.Memory
	if answer, step := answer[OrderCertificate](p); answer != nil {
		return p.ordered(answer, step.Certificate)
	}
	if m.Ordered == request.Name && p.Now.Sub(m.OrderedAt) < p.Pace.Unanswered {
		return nil, true // it is not in the list yet
	}
	if !p.assured("certificate", nil, &Demand{Since: len(p.Answers) + 1}) {
		return nil, false
	}
	if p.Certificates.Met.Since == 0 {
		p.need(Needs{Certificates: &Demand{Since: len(p.Answers) + 1}})
		return nil, false
	}
	p.step(OrderCertificate{request})
	return nil, false
}

// ordered remembers what the POST of a certificate came to.
func (p *planning) ordered(answer *Answer, request CertificateRequest) (t *Trouble, ok bool) {
	m, name, t := &p.plan.Memory, request.Name, answer.Trouble
	if t == nil || t.unsure() {
		m.Ordered, m.OrderedAt = name, p.Now
	}
	switch {
	case t == nil:
		return nil, true
	case (t.unsure() || t.Kind == Refused) && p.Certificates.Met.Since < p.since(answer):
		p.need(Needs{Certificates: &Demand{Since: p.since(answer)}})
		return nil, false
	case t.Kind == Refused && t.Said != "":
		err := fmt.Errorf("DigitalOcean refuses certificate %q for %s: %s", name, strings.Join(request.DNSNames, ", "), strings.TrimSuffix(t.Said, "."))
		return &Trouble{Err: err, Kind: t.Kind, Until: t.Until}, true
	}
	wrapped := *t
	wrapped.Err = fmt.Errorf("making certificate %q: %w", name, t.Err)
	return &wrapped, true
}
