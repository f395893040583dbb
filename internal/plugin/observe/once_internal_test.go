// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Within one answer each address is asked for once, by however many and however they hurry; writes, watches, other forms
// and other answers are not remembered.
func TestReadOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %d", r.Header.Get("Accept"), asked.Add(1))
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: remembering(http.DefaultTransport)}
	ask := func(ctx context.Context, method, path, accept string) string {
		request := must.Get(http.NewRequestWithContext(ctx, method, server.URL+path, http.NoBody)).Or(t)
		request.Header.Set("Accept", accept)
		response, err := client.Do(request)
		must.Do(t, err)
		defer func() { _ = response.Body.Close() }()
		return string(must.Get(io.ReadAll(response.Body)).Or(t))
	}
	ctx := Once(t.Context())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			path := []string{"/nodes?limit=5", "/nodes?limit=5&timeout=3s"}[i%2]
			if got := ask(ctx, http.MethodGet, path, "json"); got != "json 1" {
				t.Errorf("it is answered %q", got)
			}
		})
	}
	all.Wait()
	for i, got := range []string{
		ask(ctx, http.MethodGet, "/nodes?limit=5", "protobuf"), ask(ctx, http.MethodGet, "/nodes?limit=6", "json"),
		ask(ctx, http.MethodGet, "/nodes?watch=true", "json"), ask(ctx, http.MethodGet, "/nodes?watch=true", "json"),
		ask(ctx, http.MethodPost, "/nodes?limit=5", "json"), ask(Once(t.Context()), http.MethodGet, "/nodes?limit=5", "json"),
		ask(t.Context(), http.MethodGet, "/nodes?limit=5", "json"),
	} {
		var form string
		var number int
		if _, err := fmt.Sscan(got, &form, &number); err != nil || number != i+2 {
			t.Errorf("%d is answered %q", i, got)
		}
	}
}

// A failure is nobody else's: who asks again is answered by the server.
func TestAFailureIsNotRemembered(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") }))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: remembering(http.DefaultTransport)}
	ctx := Once(t.Context())
	over, cancel := context.WithCancel(ctx)
	cancel()
	for what, c := range map[string]context.Context{"over": over, "whole": ctx} {
		request := must.Get(http.NewRequestWithContext(c, http.MethodGet, server.URL, http.NoBody)).Or(t)
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		if (err == nil) != (what == "whole") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A response that asks to be asked for again is not remembered: the next request is answered by the server.
func TestWhatPassesIsNotRemembered(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusNotFound} {
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) == 1 {
				w.WriteHeader(status)
			}
		}))
		t.Cleanup(server.Close)
		client := &http.Client{Transport: remembering(http.DefaultTransport)}
		ctx := Once(t.Context())
		var last int
		for range 2 {
			request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)).Or(t)
			response, err := client.Do(request)
			must.Do(t, err)
			_ = response.Body.Close()
			last = response.StatusCode
		}
		if remembered := status == http.StatusNotFound; (last == status) != remembered {
			t.Errorf("after %d it is answered %d", status, last)
		}
	}
}
