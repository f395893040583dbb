// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrCut is what the program sees of a request that was cut.
var ErrCut = errors.New("the connection was cut")

// Wire is the connections of the program to one server, which a test can cut before or after a request is served.
type Wire struct {
	mu  sync.Mutex
	cut func(r *http.Request, served bool) error
}

// namer gives Events names of their own. client-go names an Event by its object and the time, which stands still in a
// bubble: the second one of an instant would be refused.
type namer struct {
	base   http.RoundTripper
	events atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (n *namer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/events") {
		return n.base.RoundTrip(r)
	}
	event := map[string]any{}
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		return nil, err
	}
	if metadata, ok := event["metadata"].(map[string]any); ok {
		metadata["name"] = fmt.Sprintf("%v-%d", metadata["name"], n.events.Add(1))
	}
	body, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return n.base.RoundTrip(r)
}

// over returns a transport over base that the Wire cuts. A program has several of one Wire: each client of it wraps its
// own.
func (w *Wire) over(base http.RoundTripper) http.RoundTripper { return &strand{wire: w, base: base} }

// strand is one transport of a Wire.
type strand struct {
	wire *Wire
	base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s *strand) RoundTrip(r *http.Request) (*http.Response, error) {
	s.wire.mu.Lock()
	cut := s.wire.cut
	s.wire.mu.Unlock()
	if cut == nil {
		return s.base.RoundTrip(r)
	}
	if err := cut(r, false); err != nil {
		if status, ok := errors.AsType[StatusError](err); ok {
			return &http.Response{StatusCode: int(status), Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		}
		return nil, err
	}
	response, err := s.base.RoundTrip(r)
	if cutOff := cut(r, true); cutOff != nil {
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, cutOff
	}
	return response, err
}

// Set has a function decide about each request, before and after it is served, whether the program gets an error
// instead. nil removes it.
func (w *Wire) Set(cut func(r *http.Request, served bool) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

// CrashAt cuts the connection for good at the n-th write, before or after it is served. The channel is closed when that
// has happened. Events are not counted: nothing depends on them.
func (w *Wire) CrashAt(n int, after bool) <-chan struct{} {
	crashed, writes := make(chan struct{}), 0
	var mu sync.Mutex
	w.Set(func(r *http.Request, served bool) error {
		mu.Lock()
		defer mu.Unlock()
		select {
		case <-crashed:
			return ErrCut
		default:
		}
		event := strings.HasSuffix(r.URL.Path, "/events") || strings.Contains(r.URL.Path, "/events/")
		if r.Method == http.MethodGet || served != after || event {
			return nil
		}
		if writes++; writes == n {
			close(crashed)
			return ErrCut
		}
		return nil
	})
	return crashed
}

// Token is a token that may change while the program runs.
type Token struct {
	mu    sync.Mutex
	value string
}

// Token implements doapi.TokenSource.
func (t *Token) Token() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value, nil
}

// Set replaces the token.
func (t *Token) Set(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.value = value
}

// StatusError is what a test has the program get instead of an error: the request is not served, and the response has
// this status.
type StatusError int

// Error implements error.
func (s StatusError) Error() string { return http.StatusText(int(s)) }
