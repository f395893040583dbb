// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

const (
	// askEvery and askBurst bound the questions: DigitalOcean's limits are the token's, and the cloud controller manager has the same token. They
	// allow for 20 Services at once and about 740 in an hour, a seventh of what there is; a question takes one to three calls.
	askEvery = 5 * time.Second
	askBurst = 20
	// restLimited and restFailed are how long nothing is asked after DigitalOcean has turned a question away for its limits, if it does not say
	// itself, and after it has not answered: people would wait for --ask-timeout each time, in vain.
	restLimited = time.Minute
	restFailed  = 15 * time.Second
)

// cloud is what is asked.
type cloud interface {
	// LoadBalancer reads one load balancer.
	LoadBalancer(ctx context.Context, id string) (loadbalancer.Observed, error)
	// Certificates lists those of the account.
	Certificates(ctx context.Context) ([]loadbalancer.Certificate, error)
	// ValidateLoadBalancer asks without making or changing anything.
	ValidateLoadBalancer(ctx context.Context, id string, r loadbalancer.Request, only loadbalancer.CreateOnly) error
}

// asker asks DigitalOcean, where that is worth the call.
type asker struct {
	api     cloud
	region  func() string
	timeout time.Duration
	clock   clock.PassiveClock
	limiter *rate.Limiter

	mu    sync.Mutex // guards all below
	until time.Time  // nothing is asked before
	why   string     // completes "DigitalOcean has not been asked …: "
}

func newAsker(api cloud, region func() string, timeout time.Duration, clock clock.PassiveClock) *asker {
	return &asker{api: api, region: region, timeout: timeout, clock: clock, limiter: rate.NewLimiter(rate.Every(askEvery), askBurst)}
}

// answer asks, within the time that who waits has left. It always has an answer.
func (a *asker) answer(ctx context.Context, q admission.Question) admission.Answer {
	q.Cluster.Region = a.region()
	switch {
	case q.Cluster.Region == "" && q.ID == "":
		return admission.Unknown("the region is not known, set " + envRegion)
	case a.resting() != "":
		return admission.Unknown(a.resting())
	case !a.limiter.AllowN(a.clock.Now(), 1):
		return admission.Unknown("too many Services have changed within a short time")
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	answer, err := a.ask(ctx, q)
	if err != nil {
		return a.judge(ctx, q, answer, err)
	}
	return answer
}

// ask puts the request together from what DigitalOcean has and sends it. With an error the answer holds no more than warnings.
func (a *asker) ask(ctx context.Context, q admission.Question) (admission.Answer, error) {
	in := loadbalancer.Input{Service: q.Service, Cluster: q.Cluster}
	if q.ID != "" {
		observed, err := a.api.LoadBalancer(ctx, q.ID)
		if err != nil {
			return admission.Answer{}, err
		}
		in.Observed = &observed
	}
	if loadbalancer.NeedsOf(in).Certificates {
		certificates, err := a.api.Certificates(ctx)
		if err != nil {
			return admission.Answer{}, err
		}
		in.Certificates = certificates
	}
	result, err := admission.Draft(in)
	if err != nil {
		return admission.Wrong(result, err), nil
	}
	answer := admission.Taken(result)
	return answer, a.api.ValidateLoadBalancer(ctx, q.ID, result.Request, result.CreateOnly)
}

// judge sorts the failures: only an answer that says that the load balancer itself is wrong is a refusal. What has to do with limits, tokens,
// other load balancers or the moment is none.
func (a *asker) judge(ctx context.Context, q admission.Question, answer admission.Answer, err error) admission.Answer {
	failure, _ := errors.AsType[*doapi.Error](err)
	unknown := admission.Unknown
	// An answer of the draft's means that the error is that of the last call, in which a certificate is the one thing that may not be found.
	certificate := answer.Verdict == admission.VerdictTaken && q.Service.Annotations[annotation.CertificateID] != ""
	switch {
	case errors.Is(err, doapi.ErrRateLimited), errors.Is(err, doapi.ErrHeld):
		return unknown(a.rest(later(doapi.NotBefore(err), a.clock.Now().Add(restLimited)), "its limit of calls is used up"))
	case errors.Is(err, doapi.ErrUnauthorized):
		return unknown(a.rest(a.clock.Now().Add(restLimited), "it does not accept the token"))
	case errors.Is(err, doapi.ErrForbidden):
		return unknown("the token lacks a scope")
	case errors.Is(err, doapi.ErrBusy):
		return unknown("it is busy with an earlier change")
	case errors.Is(err, doapi.ErrNotFound) && certificate, errors.Is(err, doapi.ErrRefused) && wrongItself(failure):
		refused := admission.Refused(failure.Message)
		refused.Warnings = answer.Warnings
		return refused
	case errors.Is(err, doapi.ErrNotFound) && q.ID != "":
		return unknown(fmt.Sprintf("load balancer %s does not exist any more", q.ID))
	case errors.Is(err, doapi.ErrRefused):
		return unknown("it would not accept it now: " + strings.TrimSuffix(failure.Message, "."))
	case ctx.Err() != nil:
		return unknown(a.rest(a.clock.Now().Add(restFailed), "it does not respond in time"))
	case failure != nil && failure.Status != 0:
		return unknown(a.rest(a.clock.Now().Add(restFailed), fmt.Sprintf("it responds with %d", failure.Status)))
	}
	return unknown(a.rest(a.clock.Now().Add(restFailed), "it cannot be reached"))
}

// wrongItself reports whether a refusal is about the load balancer that was asked for. A name that is taken may be one that the controller is about
// to take over, or has just made; a conflict and a limit of the account pass.
func wrongItself(e *doapi.Error) bool {
	return e != nil && (e.Status == http.StatusBadRequest || e.Status == http.StatusUnprocessableEntity) && !strings.Contains(e.Message, "unique")
}

// later returns the first of two times that is set.
func later(asked, otherwise time.Time) time.Time {
	if asked.IsZero() {
		return otherwise
	}
	return asked
}

// rest asks nothing until then, and returns why.
func (a *asker) rest(until time.Time, why string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if until.After(a.until) {
		a.until, a.why = until, why
	}
	return why
}

// resting says why nothing is asked now, empty if something can be.
func (a *asker) resting() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.clock.Now().Before(a.until) {
		return a.why
	}
	return ""
}
