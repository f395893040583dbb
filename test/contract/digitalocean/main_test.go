// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/digitalocean/godo"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/openapi"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// description loads the part of the OpenAPI description that is simulated, with these deviations written into it.
func description(t *testing.T, deviations []openapi.Deviation) *openapi.Description {
	t.Helper()
	data, err := os.ReadFile(testkit.Shared(t, "data", "digitalocean", "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, route := range sim.Routes() {
		_, path, _ := strings.Cut(route.Name, " ")
		paths[path] = true
	}
	loaded, err := openapi.Load(data, slices.Sorted(maps.Keys(paths)), deviations)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// A recording is a simulator whose exchanges are kept, with clients that speak to it over real connections.
type recording struct {
	sim *sim.Simulator
	url string

	mu        sync.Mutex
	exchanges []openapi.Exchange
}

func record(t *testing.T, options sim.Options) *recording {
	t.Helper()
	r := &recording{sim: sim.New(options)}
	server := httptest.NewServer(openapi.Record(r.sim.Handler(), func(e openapi.Exchange) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.exchanges = append(r.exchanges, e)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// client returns DigitalOcean's own client.
func (r *recording) client(t *testing.T, token string) *godo.Client {
	t.Helper()
	client, err := godo.New(&http.Client{Transport: bearer{token}}, godo.SetBaseURL(r.url))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// bearer sends a token with every request.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// judge returns everything that the description says is wrong with the exchanges.
func (r *recording) judge(d *openapi.Description) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var wrong []string
	for _, e := range r.exchanges {
		for _, err := range d.Check(e) {
			wrong = append(wrong, err.Error())
		}
	}
	return wrong
}

// done fails the test if a call failed.
func done(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// status fails the test unless a call failed with this status.
func status(t *testing.T, want int, response *godo.Response, err error) {
	t.Helper()
	if err == nil || response == nil || response.StatusCode != want {
		t.Fatalf("the answer is %v (%v), not an error with status %d", err, response, want)
	}
}

func background() context.Context { return context.Background() }
