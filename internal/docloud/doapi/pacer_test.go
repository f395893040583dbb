// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// An answer of 429 on any route holds back all routes, and not one call is made before the time is over.
func TestOneLimitHoldsBackAllRoutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1})
		registry := prometheus.NewRegistry()
		c := client(t, cloud, func(o *doapi.Options) { o.Metrics = doapi.NewMetrics(registry) })
		inject(t, cloud, fault.Rule{Kind: fault.TooManyRequests, Nth: 1, Delay: time.Minute})
		began := time.Now()
		if _, err := c.Account(t.Context()); !errors.Is(err, doapi.ErrRateLimited) || errors.Is(err, doapi.ErrHeld) {
			t.Fatal(err)
		}
		ctx := t.Context()
		for _, route := range []func() error{
			func() error { _, err := c.Droplets(ctx); return err },
			func() error { _, err := c.Droplet(ctx, 7); return err },
			func() error { _, err := c.LoadBalancers(ctx); return err },
			func() error { _, err := c.Certificates(ctx); return err },
			func() error { return c.DeleteLoadBalancer(ctx, "lb") },
			func() error { return c.AddDroplets(ctx, "lb", []int{7}) },
			func() error {
				_, err := c.CreateLoadBalancer(ctx, request("x"), loadbalancer.CreateOnly{})
				return err
			},
		} {
			err := route()
			until := doapi.NotBefore(err)
			if !errors.Is(err, doapi.ErrHeld) || !errors.Is(err, doapi.ErrRateLimited) || errors.Is(err, doapi.ErrAmbiguous) ||
				until.Before(began.Add(time.Minute)) || until.After(began.Add(time.Minute+10*time.Second)) {
				t.Errorf("%v, not before %s", err, until)
			}
			if !strings.Contains(fmt.Sprint(err), "DigitalOcean's rate limit requires a wait; it can be made after ") {
				t.Errorf("%v", err)
			}
		}
		if n := cloud.Stats().Total; n != 1 || time.Since(began) != 0 {
			t.Errorf("%d calls in %s", n, time.Since(began))
		}
		if n := testutil.CollectAndCount(registry, "mooring_digitalocean_api_requests_held_total"); n != 4 {
			t.Errorf("%d series of held calls, want one for each priority", n)
		}
		time.Sleep(70 * time.Second)
		if _, err := c.Droplets(ctx); err != nil {
			t.Errorf("when it is over: %v", err)
		}
	})
}

// Many callers at once stay below DigitalOcean's limits: not one call is turned away, and what is vital comes first.
func TestManyCallersStayBelowTheLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1})
		c := client(t, cloud)
		began := time.Now()
		var all sync.WaitGroup
		for range 600 { // refresh
			all.Go(func() {
				for {
					if _, err := c.Certificates(t.Context()); err == nil {
						return
					} else if !errors.Is(err, doapi.ErrHeld) {
						t.Error(err)
						return
					} else {
						time.Sleep(time.Until(doapi.NotBefore(err)))
					}
				}
			})
		}
		time.Sleep(time.Second)
		for i := range 40 { // vital
			if err := c.DeleteLoadBalancer(t.Context(), fmt.Sprint("lb-", i)); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("what is vital waited until %s behind what is not", took)
		}
		all.Wait()
		stats := cloud.Stats()
		if stats.Total != 640 || stats.PeakPerMinute > 250 || refused(stats) > 0 {
			t.Errorf("%d calls, %d in one minute, %d turned away", stats.Total, stats.PeakPerMinute, refused(stats))
		}
	})
}

// refused counts answers of 429.
func refused(stats journal.Stats) (n int) {
	for _, route := range stats.Routes {
		n += route.Statuses[429]
	}
	return n
}

// A context makes its calls more urgent and never less, and another token is not held back by what was said to the first.
func TestUrgency(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if doapi.Urgency(ctx) != budget.Refresh {
		t.Error("a context is urgent by itself")
	}
	vital := doapi.Urgent(ctx, budget.Vital)
	if doapi.Urgency(doapi.Urgent(vital, budget.Join)) != budget.Vital {
		t.Error("a context became less urgent")
	}
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1, Accounts: []sim.AccountOptions{{Name: "a", Tokens: []sim.Token{{Value: "one-token"}, {Value: "another-token"}}}}})
		token := &changing{token: "one-token"}
		c := client(t, cloud, func(o *doapi.Options) { o.Token = token })
		inject(t, cloud, fault.Rule{Kind: fault.TooManyRequests, Nth: 1, Delay: time.Hour})
		if _, err := c.Account(t.Context()); err == nil {
			t.Fatal("no limit")
		}
		if _, err := c.Account(t.Context()); !errors.Is(err, doapi.ErrHeld) {
			t.Errorf("%v", err)
		}
		token.token = "another-token"
		_ = c.Epoch()
		if _, err := c.Account(t.Context()); err != nil {
			t.Errorf("another token: %v", err)
		}
	})
}

// changing is a token that a test changes.
type changing struct{ token string }

func (c *changing) Token() (string, error) { return c.token, nil }

// What the headers say is shown as metrics.
func TestHeadRoomIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		cloud := sim.New(sim.Options{Seed: 1})
		c := client(t, cloud, func(o *doapi.Options) { o.Metrics = doapi.NewMetrics(registry) })
		must.Get(c.Account(t.Context())).Or(t)
		want := fmt.Sprintf(`
# HELP mooring_digitalocean_api_rate_limit API calls that the token may make in an hour, as of the last response.
# TYPE mooring_digitalocean_api_rate_limit gauge
mooring_digitalocean_api_rate_limit 5000
# HELP mooring_digitalocean_api_rate_limit_remaining API calls that the token has left in the hour, as of the last response.
# TYPE mooring_digitalocean_api_rate_limit_remaining gauge
mooring_digitalocean_api_rate_limit_remaining 4999
# HELP mooring_digitalocean_api_rate_limit_reset_timestamp_seconds When the oldest call of the hour no longer counts, in seconds since the epoch, as of the last response.
# TYPE mooring_digitalocean_api_rate_limit_reset_timestamp_seconds gauge
mooring_digitalocean_api_rate_limit_reset_timestamp_seconds %d
`, time.Now().Add(time.Hour).Unix())
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "mooring_digitalocean_api_rate_limit",
			"mooring_digitalocean_api_rate_limit_remaining", "mooring_digitalocean_api_rate_limit_reset_timestamp_seconds"); err != nil {
			t.Error(err)
		}
	})
}
