// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/digitalocean/godo"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// recorded answers each request as it was answered the first time, so that the benchmark measures clients alone.
type recorded struct {
	from    http.RoundTripper
	answers map[string][]byte
}

func (r *recorded) RoundTrip(request *http.Request) (*http.Response, error) {
	key := request.URL.RawQuery
	if _, known := r.answers[key]; !known {
		response, err := r.from.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		defer func() { _ = response.Body.Close() }()
		if r.answers[key], err = io.ReadAll(response.Body); err != nil {
			return nil, err
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(r.answers[key])), Request: request}, nil
}

// BenchmarkListDroplets reads 1,000 droplets, as it is done every few minutes, with our client and with DigitalOcean's (ADR 15).
func BenchmarkListDroplets(b *testing.B) {
	cloud := sim.New(sim.Options{Seed: 1})
	for i := range 1000 {
		if _, err := cloud.Account("").CreateDroplet(sim.DropletSpec{Name: fmt.Sprintf("node-%d", i), Tags: []string{"k8s", "k8s:worker"}}); err != nil {
			b.Fatal(err)
		}
	}
	transport := &recorded{from: cloud.Transport(), answers: map[string][]byte{}}
	ours, err := doapi.New(doapi.Options{URL: "https://api.digitalocean.com", Token: doapi.StaticToken(sim.DefaultToken), Transport: transport, Clock: idle{clock.RealClock{}}})
	must.Do(b, err)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if all, err := ours.OrdinaryDroplets(b.Context()); err != nil || len(all) != 1000 {
				b.Fatal(len(all), err)
			}
		}
	})
	theirs := godo.NewFromToken(sim.DefaultToken)
	theirs.HTTPClient.Transport = bearer{transport}
	b.Run("godo", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			for page := 1; page <= 5; page++ {
				some, _, err := theirs.Droplets.List(b.Context(), &godo.ListOptions{Page: page, PerPage: 200})
				must.Do(b, err)
				n += len(some)
			}
			if n != 1000 {
				b.Fatal(n)
			}
		}
	})
}

// idle is a clock that jumps an hour with each look, so that no budget of calls is ever used up.
type idle struct{ clock.Clock }

var looks time.Duration

func (i idle) Now() time.Time {
	looks += time.Hour
	return i.Clock.Now().Add(looks)
}

// bearer adds the token.
type bearer struct{ base http.RoundTripper }

func (t bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+sim.DefaultToken)
	return t.base.RoundTrip(r)
}
