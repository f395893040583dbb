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
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// description loads the part of the OpenAPI description that is simulated, with these deviations written into it.
func description(t *testing.T, deviations []openapi.Deviation) *openapi.Description {
	t.Helper()
	data := must.Get(os.ReadFile(testkit.Shared(t, "data", "digitalocean", "openapi.json"))).Or(t)
	paths := map[string]bool{}
	for _, route := range sim.Routes() {
		_, path, _ := strings.Cut(route.Name, " ")
		paths[path] = true
	}
	loaded := must.Get(openapi.Load(data, slices.Sorted(maps.Keys(paths)), deviations)).Or(t)
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
	client := must.Get(godo.New(&http.Client{Transport: bearer{token}}, godo.SetBaseURL(r.url))).Or(t)
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

// status fails the test unless a call failed with this status.
func status(t *testing.T, want int, response *godo.Response, err error) {
	t.Helper()
	if err == nil || response == nil || response.StatusCode != want {
		t.Fatalf("the answer is %v (%v), not an error with status %d", err, response, want)
	}
}

func background() context.Context { return context.Background() }
