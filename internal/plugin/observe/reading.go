// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// How long a person waits for an API server: for one response, and for all of a reading whose responses take longer than
// tooSlow on average. --request-timeout sets another time for one response, and none for all of them.
const (
	responseTime = 5 * time.Second
	allResponses = 8 * time.Second
	tooSlow      = time.Second
)

// UnresponsiveError is that the API server cannot be read, in one sentence.
type UnresponsiveError struct{ Reason string }

// Error implements error.
func (e *UnresponsiveError) Error() string { return e.Reason }

// Unresponsive returns why the API server cannot be read, nil if it can as far as was seen: what was read before that is
// not shown, since the rest is missing.
func Unresponsive(ctx context.Context) error {
	if e, ok := errors.AsType[*UnresponsiveError](context.Cause(ctx)); ok {
		return e
	}
	return nil
}

// reading is what one answer to a person is read with, no longer than a person waits.
type reading struct {
	cancel context.CancelCauseFunc

	mu     sync.Mutex // guards all below
	waited time.Duration
	count  int
}

type readingKey struct{}

// Reading bounds how long the cluster is read for one answer. It ends with an [UnresponsiveError] as its cause when the API server cannot be reached or is too slow.
func Reading(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithTimeout(ctx, ReadTime)
	if ctx.Value(readingKey{}) != nil { // this is a part of one
		return ctx, end
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &reading{cancel: cancel}
	return context.WithValue(ctx, readingKey{}, r), func() {
		cancel(nil)
		end()
	}
}

// Read is what read gives of the cluster for one answer, and an error if the API server cannot be read to its end: what was
// read before is not shown then.
func Read[T any](ctx context.Context, env *Env, read func(context.Context, *Cluster) (T, error)) (is T, err error) {
	ctx, cancel := Reading(ctx)
	defer cancel()
	c, err := env.Cluster()
	if err == nil {
		is, err = read(ctx, c)
	}
	return is, cmp.Or(Unresponsive(ctx), err)
}

// Bounded bounds how long a command reads the cluster, as [Reading] does.
func Bounded(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := Reading(cmd.Context())
		defer cancel()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		return cmp.Or(Unresponsive(ctx), err)
	}
	return cmd
}

// patient sends requests of a reading, none for longer than a person waits. Those that write have their own time.
func (c *Cluster) patient(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		r, _ := request.Context().Value(readingKey{}).(*reading)
		switch {
		case r == nil || request.Header.Get("Upgrade") != "" || request.URL.Query().Has("watch"):
			return next.RoundTrip(request)
		case request.Method == http.MethodGet, request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "reviews"):
			return c.bounded(r, next, request)
		}
		return next.RoundTrip(request)
	})
}

// bounded sends a request, and ends the reading if the API server cannot be reached or a person would wait too long for it.
func (c *Cluster) bounded(r *reading, next http.RoundTripper, request *http.Request) (*http.Response, error) {
	limit := r.limit(c.responseTime)
	ctx, cancel := context.WithCancelCause(request.Context())
	late := &UnresponsiveError{fmt.Sprintf(
		"the API server of %s is too slow: %s of %s had no response after %s; try again, or wait longer with --request-timeout", c.Name,
		request.Method, request.URL.Path, limit.Round(time.Second/10),
	)}
	began := c.clock.Now()
	timer := time.AfterFunc(limit, func() { cancel(late) })
	answer, err := next.RoundTrip(request.WithContext(ctx))
	timer.Stop()
	r.took(c.clock.Now().Sub(began))
	if err == nil {
		answer.Body = &closing{answer.Body, cancel}
		return answer, nil
	}
	if errors.Is(context.Cause(ctx), late) {
		err = late
		r.cancel(late)
	}
	cancel(nil)
	if op, is := errors.AsType[*net.OpError](err); is && op.Op == "dial" && request.Context().Err() == nil {
		gone := &UnresponsiveError{fmt.Sprintf("the API server of %s cannot be reached: %v", c.Name, op)}
		r.cancel(gone)
		err = gone
	}
	return nil, err
}

// closing is a body whose request ends when it is closed.
type closing struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close implements io.Closer.
func (b *closing) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}

// took counts a response.
func (r *reading) took(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waited += d
	r.count++
}

// limit is how long the next response may take. asked is what --request-timeout says, 0 for nothing.
func (r *reading) limit(asked time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := cmp.Or(asked, responseTime)
	if slow := r.count > 0 && r.waited/time.Duration(r.count) > tooSlow; slow && asked == 0 {
		limit = min(limit, max(0, allResponses-r.waited))
	}
	return limit
}
