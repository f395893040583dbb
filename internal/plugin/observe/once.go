// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// memo are the responses of one answer to a person: several parts of it need the same lists, and each is read once. So all
// parts show the same moment, too.
type memo struct {
	mu   sync.Mutex // guards responses
	seen map[string]*remembered
}

// remembered is a response that was read to its end; once guards it while it is read.
type remembered struct {
	once     sync.Once
	response *http.Response
	body     []byte
	err      error
	// by is the request that was sent.
	by *http.Request
}

type memoKey struct{}

// Once lets everything that is read with the context be read once. It is for an answer that only reads: what changes
// meanwhile is not seen.
func Once(ctx context.Context) context.Context {
	return context.WithValue(ctx, memoKey{}, &memo{seen: map[string]*remembered{}})
}

// entry is what is remembered of a request.
func (m *memo) entry(r *http.Request) *remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, seen := m.seen[keyOf(r)]
	if !seen {
		e = &remembered{}
		m.seen[keyOf(r)] = e
	}
	return e
}

// forget lets a request that failed be sent again.
func (m *memo) forget(r *http.Request, e *remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[keyOf(r)] == e {
		delete(m.seen, keyOf(r))
	}
}

// keyOf is the address of a request and the form of its response. How long a client waits changes nothing in the latter.
func keyOf(r *http.Request) string {
	query := r.URL.Query()
	query.Del("timeout")
	return r.URL.Path + "?" + query.Encode() + "\n" + r.Header.Get("Accept")
}

// read sends the request, unless that was done before, and keeps the response.
func (e *remembered) read(next http.RoundTripper, r *http.Request) {
	e.once.Do(func() {
		e.by = r
		response, err := next.RoundTrip(r)
		if e.response, e.err = response, err; err != nil {
			return
		}
		defer func() { _ = response.Body.Close() }()
		if e.body, e.err = io.ReadAll(e.response.Body); e.err != nil {
			e.err = fmt.Errorf("reading the response to GET %s: %w", r.URL.Path, e.err)
		}
	})
}

// remembering answers reads of a context of [Once] from memory, as far as they were made before.
func remembering(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		m, once := r.Context().Value(memoKey{}).(*memo)
		if !once || r.Method != http.MethodGet || r.URL.Query().Has("watch") {
			return next.RoundTrip(r)
		}
		e := m.entry(r)
		if e.read(next, r); e.err != nil {
			m.forget(r, e)
			if r.Context().Err() == nil && e.by != r { // another part ran out of its time, or was unlucky
				return next.RoundTrip(r)
			}
			return nil, e.err
		}
		out := *e.response
		out.Request, out.Header = r, e.response.Header.Clone()
		out.Body = io.NopCloser(bytes.NewReader(e.body))
		return &out, nil
	})
}
