// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// forbiddenAge is how long a call that lacked a scope is remembered if it is not made again. What still needs it tries again sooner.
const forbiddenAge = time.Hour

// witness remembers what the API's answers say of the token. An answer that is not about it, such as one of 5xx or 429, changes nothing.
type witness struct {
	mu        sync.Mutex // guards all below
	asked     bool       // the API has said something of the token
	refused   bool       // and that was 401 last
	forbidden map[string]time.Time
	failing   bool // the last attempt got no response, one of 5xx, or 401
}

// failed notes whether the last attempt failed in a way that may pass for all calls alike.
func (w *witness) failed(failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing = failed
}

// Failing reports whether the API did not serve the last attempt at a call: it did not respond, was in trouble itself (5xx), or refused the
// token. It makes no call.
func (c *Client) Failing() bool {
	c.witness.mu.Lock()
	defer c.witness.mu.Unlock()
	return c.witness.failing
}

// renew forgets what was said of the scopes of another token. That the last word was a refusal stays until there is another word.
func (w *witness) renew() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.forbidden)
}

// heard notes an answer; kind is that of its error, if it is one.
func (w *witness) heard(now time.Time, call call, status int, kind error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	success := status >= http.StatusOK && status < http.StatusMultipleChoices
	name := call.method + " " + call.route
	switch {
	case errors.Is(kind, ErrUnauthorized):
		w.asked, w.refused = true, true
	case errors.Is(kind, ErrForbidden):
		w.asked, w.refused = true, false
		if w.forbidden == nil {
			w.forbidden = map[string]time.Time{}
		}
		w.forbidden[name] = now
	case success, errors.Is(kind, ErrNotFound), errors.Is(kind, ErrRefused), errors.Is(kind, ErrBusy):
		w.asked, w.refused = true, false
		delete(w.forbidden, name)
	}
}

// TokenAnswers returns what the API's answers say of the token. It makes no call.
func (c *Client) TokenAnswers() instance.TokenAnswers {
	c.witness.mu.Lock()
	defer c.witness.mu.Unlock()
	now := c.clock.Now()
	maps.DeleteFunc(c.witness.forbidden, func(_ string, at time.Time) bool { return now.Sub(at) > forbiddenAge })
	return instance.TokenAnswers{
		Asked: c.witness.asked, Refused: c.witness.refused, Forbidden: slices.Sorted(maps.Keys(c.witness.forbidden)),
	}
}
