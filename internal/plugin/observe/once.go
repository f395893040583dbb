// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// memo are the responses of one answer to a person: several parts of it need the same lists, and each is read once. So
// all parts show the same moment, too. What a list of all namespaces has is not read again by itself.
type memo struct {
	mu    sync.Mutex // guards the maps
	seen  map[string]*remembered
	lists map[string]*wide
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
	return context.WithValue(ctx, memoKey{}, &memo{seen: map[string]*remembered{}, lists: map[string]*wide{}})
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

// keyOf is the address of a request and what it wants to be shown of objects. How long a client waits changes nothing
// of the response, and into another form it is converted.
func keyOf(r *http.Request) string {
	query := r.URL.Query()
	query.Del("timeout")
	return r.URL.Path + "?" + query.Encode() + "\n" + shownAs(r)
}

// read sends the request, unless that was done before, and keeps the response. sent reports that it did.
func (e *remembered) read(next http.RoundTripper, r *http.Request) (sent bool) {
	e.once.Do(func() {
		e.by, sent = r, true
		response, err := next.RoundTrip(r)
		if e.response, e.err = response, err; err != nil {
			return
		}
		defer func() { _ = response.Body.Close() }()
		if e.body, e.err = io.ReadAll(e.response.Body); e.err != nil {
			e.err = fmt.Errorf("reading the response to GET %s: %w", r.URL.Path, e.err)
		}
	})
	return sent
}

// passing reports whether a response is that of the moment: client-go sends such a request again, which must reach the API
// server. One does so until its storage of a kind is ready, or while it has too much to do.
func passing(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// remembering answers reads of a context of [Once] from memory, as far as they were made before.
func remembering(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		m, once := r.Context().Value(memoKey{}).(*memo)
		if !once || r.Method != http.MethodGet || r.URL.Query().Has("watch") {
			return next.RoundTrip(r)
		}
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context())
		}
		if narrow := m.narrowed(r); narrow != nil {
			return narrow, nil
		}
		e := m.entry(r)
		sent := e.read(next, r)
		if e.err != nil || passing(e.response.StatusCode) {
			m.forget(r, e)
			if r.Context().Err() == nil && !sent { // another part ran out of its time, or was unlucky
				return next.RoundTrip(r)
			}
		}
		if e.err != nil {
			return nil, e.err
		}
		if sent {
			m.note(r, e)
		}
		return e.again(next, r)
	})
}

// again is the remembered response to another request, in a form that it accepts.
func (e *remembered) again(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	form, accept := e.response.Header.Get("Content-Type"), r.Header.Get("Accept")
	if form != runtime.ContentTypeJSON && !strings.Contains(accept, form) && accept != e.by.Header.Get("Accept") {
		object, kind, err := decode(e.body)
		if err != nil {
			return next.RoundTrip(r)
		}
		object.GetObjectKind().SetGroupVersionKind(*kind)
		return respond(r, e.response.StatusCode, object), nil
	}
	out := *e.response
	out.Request, out.Header = r, e.response.Header.Clone()
	out.Body = io.NopCloser(bytes.NewReader(e.body))
	return &out, nil
}
