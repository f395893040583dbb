// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// certificatePatience is how long a certificate that is pending is looked at often. Then nothing but somebody's work on the DNS will help, and the
// resync will see it.
const certificatePatience = 30 * time.Minute

// certificates returns the account's certificates. They change rarely, so that a list that is not new does as long as all fits together: a name
// that it lacks may be one that was added, and another ID than the Service's one of a certificate that was renewed.
func (p *pass) certificates(ctx context.Context, observed *loadbalancer.Observed) ([]loadbalancer.Certificate, error) {
	list, timing := p.b.certificates, p.b.timing
	p.strange = false
	asked := p.b.cluster.Effective(p.service)
	if asked.Annotations[annotation.CertificateID] == "" && p.certificatesAfter == 0 {
		name := asked.Annotations[annotation.CertificateName]
		if managed, ok := loadbalancer.AssumedCertificate(asked); ok {
			name = managed.Name
		}
		r, err := list.get(ctx, 0, timing.CertificateAge)
		if err != nil || fits(r.value, name, observed) {
			return r.or(), err
		}
	}
	r, err := list.get(ctx, p.certificatesAfter, timing.CertificateDoubt)
	p.strange = err == nil && unlisted(r.value, observed)
	return r.or(), err
}

// fits says whether a list has a certificate of the name that can be used, and that of the load balancer.
func fits(list []loadbalancer.Certificate, name string, observed *loadbalancer.Observed) bool {
	if !slices.ContainsFunc(list, func(c loadbalancer.Certificate) bool {
		return c.Name == name && cmp.Or(c.State, loadbalancer.CertificateVerified) == loadbalancer.CertificateVerified
	}) {
		return false
	}
	return !unlisted(list, observed)
}

// unlisted says whether a load balancer has a certificate that a list lacks.
func unlisted(list []loadbalancer.Certificate, observed *loadbalancer.Observed) bool {
	return observed != nil && slices.ContainsFunc(observed.ForwardingRules, func(r loadbalancer.ForwardingRule) bool {
		return r.CertificateID != "" && !slices.ContainsFunc(list, func(c loadbalancer.Certificate) bool { return c.ID == r.CertificateID })
	})
}

// awaits notes what is waited for before the certificate of the Service's domains can be used, and says whether the pass ends with that: there is no
// load balancer that could be kept as it must be meanwhile, or the certificate is to be made first.
func (p *pass) awaits(lb *loadbalancer.Observed, wait *loadbalancer.CertificateWait) bool {
	if wait == nil {
		p.memory.certifying = time.Time{}
		return false
	}
	if p.memory.certifying.IsZero() {
		p.memory.certifying = p.b.clock.Now()
	}
	until := "no load balancer is made until then"
	if lb != nil {
		until = "the load balancer keeps its forwarding rules until then"
	}
	if wait.Failed {
		p.warn(reasonCertFailed, wait.Message+"; "+until)
		return false
	}
	if !wait.Make {
		p.notes = append(p.notes, note{corev1.EventTypeNormal, reasonCertPending, wait.Message + "; " + until})
	}
	p.again = p.b.timing.CertificateDoubt
	if p.b.clock.Since(p.memory.certifying) > certificatePatience {
		p.again = p.b.timing.Resync
	}
	return lb == nil || wait.Make
}

// certify makes the certificate that a Service waits for, if there is none. A load balancer that is there is kept as it must be even if that fails.
func (p *pass) certify(ctx context.Context, lb *loadbalancer.Observed, result loadbalancer.Result) error {
	wait := result.Certificate
	p.outcome = outcomePending
	if wait.Make {
		switch err := p.order(ctx, lb, wait.Request.Name); {
		case err == nil:
			p.again = p.b.timing.Poll
		case lb == nil || errors.Is(err, doapi.ErrRateLimited):
			return err
		default:
			p.outcome = outcomeUnchanged
			p.warn(reasonCertFailed, err.Error()+"; the load balancer keeps its forwarding rules until then")
			return p.update(ctx, *lb, result)
		}
	}
	if lb == nil {
		soon := p.again
		p.again = 0
		return waitError{wait.Message, soon}
	}
	p.lb = lb
	return nil
}

// order makes a certificate, once it is sure that there is none and that the Service still wants it: another pass, or another process, may have made it
// since. Without an answer, or where its name is taken, it may be there all the same: then it is found.
func (p *pass) order(ctx context.Context, lb *loadbalancer.Observed, name string) error {
	unlock := p.b.certifying.lock(name)
	defer unlock()
	if p.memory.ordered == name && p.b.clock.Since(p.memory.orderedAt) < p.b.timing.Unanswered {
		return nil // it is not in the list yet
	}
	if err := p.mayCreate(ctx); err != nil {
		return err
	}
	wait, err := p.newest(ctx, lb)
	switch {
	case err != nil:
		return err
	case wait == nil || !wait.Make || wait.Request.Name != name:
		return nil
	case p.b.api.Epoch() != p.epoch:
		return errListMoved
	}
	return p.post(ctx, lb, wait.Request)
}

// post makes a certificate that is not there.
func (p *pass) post(ctx context.Context, lb *loadbalancer.Observed, request loadbalancer.CertificateRequest) error {
	name := request.Name
	_, err := p.b.api.CreateCertificate(ctx, request)
	if err == nil || errors.Is(err, doapi.ErrAmbiguous) {
		p.memory.ordered, p.memory.orderedAt = name, p.b.clock.Now()
	}
	if err == nil {
		p.b.log.Info("Asked for a certificate", "service", keyOf(p.service), "name", name, "domains", request.DNSNames)
		return nil
	}
	if errors.Is(err, doapi.ErrAmbiguous) || errors.Is(err, doapi.ErrRefused) {
		if now, failed := p.newest(ctx, lb); failed == nil && (now == nil || !now.Make) {
			return nil
		}
	}
	if answered, ok := errors.AsType[*doapi.Error](err); ok && errors.Is(err, doapi.ErrRefused) {
		return fmt.Errorf("DigitalOcean refuses certificate %q for %s: %s", name, strings.Join(request.DNSNames, ", "), strings.TrimSuffix(answered.Message, "."))
	}
	return fmt.Errorf("making certificate %q: %w", name, err)
}

// newest is what is waited for according to a list of certificates that begins now.
func (p *pass) newest(ctx context.Context, lb *loadbalancer.Observed) (*loadbalancer.CertificateWait, error) {
	p.certificatesAfter = p.b.certificates.stamp()
	result, err := p.desired(ctx, lb)
	if _, wrong := errors.AsType[loadbalancer.Problems](err); err != nil && !wrong {
		return nil, err
	}
	return result.Certificate, nil
}
