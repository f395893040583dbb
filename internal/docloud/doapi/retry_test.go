// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// answers is a transport that always gives the same answer.
type answers struct {
	status int
	header http.Header
	body   string
	calls  int
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	a.calls++
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

// What an answer asks to wait for is part of the error: in seconds, as a date, and for 429 also by the reset of the limit per hour. It is bounded,
// and compared with the answer's own date.
func TestNotBefore(t *testing.T) {
	t.Parallel()
	const busy = `{"id":"forbidden","message":"Load Balancer can't be updated while it processes previous actions"}`
	const none = -1
	for name, tt := range map[string]struct {
		status int
		body   string
		header func(now time.Time) map[string]string
		want   time.Duration
	}{
		"429 in seconds":    {429, `{"id":"too_many_requests"}`, func(time.Time) map[string]string { return map[string]string{"Retry-After": "31"} }, 31 * time.Second},
		"503 in seconds":    {503, ``, func(time.Time) map[string]string { return map[string]string{"Retry-After": "31"} }, 31 * time.Second},
		"403 busy":          {403, busy, func(time.Time) map[string]string { return map[string]string{"Retry-After": "31"} }, 31 * time.Second},
		"403 busy, no word": {403, busy, func(time.Time) map[string]string { return nil }, none},
		"429, no word":      {429, ``, func(time.Time) map[string]string { return nil }, none},
		"429, reset":        {429, ``, func(now time.Time) map[string]string { return reset(now, 90*time.Second) }, time.Minute},
		"429, calls left": {429, ``, func(now time.Time) map[string]string {
			header := reset(now, time.Minute)
			header["Ratelimit-Remaining"] = "17"
			return header
		}, none},
		"429, reset in 9 h":  {429, ``, func(now time.Time) map[string]string { return reset(now, 9*time.Hour) }, time.Minute},
		"429, reset is over": {429, ``, func(now time.Time) map[string]string { return reset(now, -time.Hour) }, none},
		"503, reset":         {503, ``, func(now time.Time) map[string]string { return reset(now, 90*time.Second) }, none},
		"a day":              {503, ``, func(time.Time) map[string]string { return map[string]string{"Retry-After": "86400"} }, 15 * time.Minute},
		"longer than time":   {503, ``, func(time.Time) map[string]string { return map[string]string{"Retry-After": "99999999999999999999"} }, none},
		"negative":           {503, ``, func(time.Time) map[string]string { return map[string]string{"Retry-After": "-5"} }, none},
		"no number": {429, ``, func(time.Time) map[string]string {
			return map[string]string{"Retry-After": "soon", "Ratelimit-Reset": "later"}
		}, none},
		"as a date": {429, ``, func(now time.Time) map[string]string {
			return map[string]string{"Retry-After": date(now.Add(time.Minute))}
		}, time.Minute},
		"a clock that is late": {429, ``, func(now time.Time) map[string]string { return skewed(now, time.Hour) }, time.Minute},
		"a clock that is fast": {429, ``, func(now time.Time) map[string]string { return skewed(now, -time.Hour) }, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				a := &answers{status: tt.status, body: tt.body, header: http.Header{}}
				for name, value := range tt.header(now) {
					a.header.Set(name, value)
				}
				c, err := doapi.New(doapi.Options{Token: doapi.StaticToken("t"), Transport: a, Clock: clock.RealClock{}})
				must.Do(t, err)
				_, err = c.CreateLoadBalancer(t.Context(), request("x"), loadbalancer.CreateOnly{})
				err = fmt.Errorf("wrapped: %w", err)
				got := doapi.NotBefore(err)
				if tt.want == none {
					if !got.IsZero() {
						t.Errorf("not before %s, want no word", got)
					}
					return
				}
				if wait := got.Sub(now); wait != tt.want {
					t.Errorf("wait %s, want %s (%v)", wait, tt.want, err)
				}
				if a.calls != 1 || time.Since(now) != 0 {
					t.Errorf("%d calls within %s, want one: the wait is the caller's", a.calls, time.Since(now))
				}
			})
		})
	}
	if !doapi.NotBefore(errors.New("other")).IsZero() {
		t.Error("another error asks to wait")
	}
}

func date(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

func reset(now time.Time, in time.Duration) map[string]string {
	return map[string]string{"Ratelimit-Remaining": "0", "Ratelimit-Reset": strconv.FormatInt(now.Add(in).Unix(), 10)}
}

// skewed is an answer of a server whose clock is ahead of ours, that asks for a minute.
func skewed(now time.Time, ahead time.Duration) map[string]string {
	header := reset(now.Add(ahead), time.Minute)
	header["Date"] = date(now.Add(ahead))
	return header
}

// A short wait is waited for by the client itself, and no call is made before it is over.
func TestShortWaitsAreTheClientsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a := &answers{status: 429, header: http.Header{"Retry-After": {"4"}}}
		c := must.Get(doapi.New(doapi.Options{Token: doapi.StaticToken("t"), Transport: a, Clock: clock.RealClock{}})).Or(t)
		if _, err := c.Account(t.Context()); !errors.Is(err, doapi.ErrRateLimited) {
			t.Error(err)
		}
		if took := time.Since(began); a.calls != 3 || took < 8*time.Second {
			t.Errorf("%d calls within %s, want 3 with 4 s between them", a.calls, took)
		}
	})
}

// A server that repeats the request's header in its answer does not get the token into an error.
func TestTokenIsHiddenInAnswers(t *testing.T) {
	t.Parallel()
	a := &answers{status: 400, header: http.Header{}, body: `{"id":"bad","message":"header Authorization: Bearer dop_v1_secret is wrong"}`}
	c, err := doapi.New(doapi.Options{Token: doapi.StaticToken("dop_v1_secret"), Transport: a})
	must.Do(t, err)
	_, err = c.Account(t.Context())
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "Bearer (the token) is wrong") {
		t.Errorf("%v", err)
	}
}

// A limit of the account is told as what it is, whatever the status.
func TestLimitOfTheAccountIsNoMissingScope(t *testing.T) {
	t.Parallel()
	a := &answers{status: 403, header: http.Header{}, body: `{"id":"forbidden","message":"creating this load balancer will exceed your account's limit"}`}
	c, err := doapi.New(doapi.Options{Token: doapi.StaticToken("t"), Transport: a})
	must.Do(t, err)
	_, err = c.CreateLoadBalancer(t.Context(), request("x"), loadbalancer.CreateOnly{})
	if !errors.Is(err, doapi.ErrRefused) || errors.Is(err, doapi.ErrForbidden) || strings.Contains(err.Error(), "scope") {
		t.Errorf("%v", err)
	}
}

// An annotation may hold anything: what would lead to another address of the API is not asked for.
func TestIDsThatAreNone(t *testing.T) {
	t.Parallel()
	a := &answers{status: 200, header: http.Header{}, body: `{}`}
	c := must.Get(doapi.New(doapi.Options{Token: doapi.StaticToken("t"), Transport: a})).Or(t)
	for _, id := range []string{"", ".", ".."} {
		_, read := c.LoadBalancer(t.Context(), id)
		_, written := c.UpdateLoadBalancer(t.Context(), id, request("x"))
		for _, err := range []error{read, written} {
			if err == nil || !strings.Contains(err.Error(), "cannot be read by the ID") || errors.Is(err, doapi.ErrNotFound) {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
	if a.calls != 0 {
		t.Errorf("%d calls", a.calls)
	}
}
