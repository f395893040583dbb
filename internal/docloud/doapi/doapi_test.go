// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// client returns a client of a simulator, whose clock is that of the bubble it runs in.
func client(t *testing.T, cloud *sim.Simulator, change ...func(*doapi.Options)) *doapi.Client {
	t.Helper()
	o := doapi.Options{Token: doapi.StaticToken(sim.DefaultToken), UserAgent: "a-test/1", Transport: cloud.Transport(), Clock: clock.RealClock{}}
	for _, c := range change {
		c(&o)
	}
	made := must.Get(doapi.New(o)).Or(t)
	return made
}

func inject(t *testing.T, cloud *sim.Simulator, rules ...fault.Rule) {
	t.Helper()
	must.Do(t, cloud.Inject(rules...))
}

func droplets(t *testing.T, cloud *sim.Simulator, n int, spec sim.DropletSpec) {
	t.Helper()
	for i := range n {
		spec.Name = fmt.Sprintf("node-%s-%d", spec.Size, i)
		must.Get(cloud.Account("").CreateDroplet(spec)).Or(t)
	}
}

// All pages of both lists, each droplet once.
func TestDroplets(t *testing.T) {
	t.Parallel()
	cloud := sim.New(sim.Options{Seed: 1})
	droplets(t, cloud, 401, sim.DropletSpec{Size: "s-1vcpu-1gb", Tags: []string{"k8s"}})
	droplets(t, cloud, 2, sim.DropletSpec{Size: "gpu-h100x1-80gb", IPv6: true})
	got, err := client(t, cloud).Droplets(t.Context())
	if err != nil || len(got) != 403 {
		t.Fatalf("%d droplets and %v, want 403", len(got), err)
	}
	want := must.Get(cloud.Account("").Droplet(fmt.Sprint(got[402].ID))).Or(t)
	d := got[402]
	if d.Name != want.Name || d.Size != "gpu-h100x1-80gb" || d.Region != "nyc1" || d.Status != instance.StatusActive || d.VPC != want.VPCUUID || d.Created.IsZero() {
		t.Errorf("got %+v of %+v", d, want)
	}
	var kinds []string
	for _, n := range d.Networks {
		kinds = append(kinds, fmt.Sprintf("public:%v v4:%v", n.Public, n.Address.Is4()))
	}
	slices.Sort(kinds)
	if fmt.Sprint(kinds) != "[public:false v4:true public:true v4:false public:true v4:true]" {
		t.Errorf("networks %v", kinds)
	}
	if n := cloud.Stats().Total; n != 4 {
		t.Errorf("%d calls for three pages and one, want 4", n)
	}
	for _, e := range cloud.Requests(journal.Filter{}) {
		if !strings.Contains(e.URL, "per_page=200") {
			t.Errorf("%s does not ask for the largest page", e.URL)
		}
	}
}

// A list that is not whole is an error, whatever is wrong with it; what a client can get over by itself is not.
func TestListsAreWholeOrAnError(t *testing.T) {
	t.Parallel()
	const route = "GET /v2/droplets"
	always := func(r fault.Rule) []fault.Rule { r.Route, r.Nth, r.Times = route, 1, -1; return []fault.Rule{r} }
	once := func(r fault.Rule) []fault.Rule { r.Route, r.Nth = route, 2; return []fault.Rule{r} }
	for name, tt := range map[string]struct {
		rules []fault.Rule
		whole bool
	}{
		"items are left out":             {always(fault.Rule{Kind: fault.OmitItems, Fraction: 0.1}), false},
		"items are left out once":        {once(fault.Rule{Kind: fault.OmitItems, Fraction: 0.1}), true},
		"every answer is cut in half":    {always(fault.Rule{Kind: fault.TruncatedJSON}), false},
		"one answer is cut in half":      {once(fault.Rule{Kind: fault.TruncatedJSON}), true},
		"every body ends early":          {always(fault.Rule{Kind: fault.ShortBody}), false},
		"one body ends early":            {once(fault.Rule{Kind: fault.ShortBody}), true},
		"the second page fails":          {[]fault.Rule{{Route: route, Kind: fault.Error, Nth: 2, Times: 3}}, false},
		"the second page fails once":     {once(fault.Rule{Kind: fault.Error, Status: 503}), true},
		"the connection is cut for good": {always(fault.Rule{Kind: fault.Reset}), false},
		"the connection is cut once":     {once(fault.Rule{Kind: fault.Reset}), true},
		"a proxy answers":                {always(fault.Rule{Kind: fault.ProxyError}), false},
		"the list is said not to exist":  {always(fault.Rule{Kind: fault.Error, Status: 404}), false},
		"the limit is reached once":      {once(fault.Rule{Kind: fault.TooManyRequests, Delay: 3 * time.Second}), true},
		"the limit is reached for long":  {once(fault.Rule{Kind: fault.TooManyRequests, Delay: 30 * time.Second}), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cloud := sim.New(sim.Options{Seed: 1})
				droplets(t, cloud, 401, sim.DropletSpec{})
				inject(t, cloud, tt.rules...)
				got, err := client(t, cloud).Droplets(t.Context())
				if tt.whole != (err == nil) || tt.whole && len(got) != 401 {
					t.Errorf("%d droplets of 401 and %v", len(got), err)
				}
				if n := cloud.Stats().Total; n > 12 {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

// "Not found" is said by the API itself and nobody else.
func TestNotFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1})
		c := client(t, cloud)
		if _, err := c.Droplet(t.Context(), 12345); !errors.Is(err, doapi.ErrNotFound) {
			t.Errorf("an unknown droplet: %v", err)
		}
		droplets(t, cloud, 1, sim.DropletSpec{})
		id := cloud.Account("").Droplets()[0].ID
		if d, err := c.Droplet(t.Context(), id); err != nil || d.ID != id {
			t.Errorf("a droplet that is there: %+v, %v", d, err)
		}
		for name, body := range map[string]string{
			"a proxy":                 "<html>404 Not Found</html>",
			"JSON of somebody else":   `{"error":"not found"}`,
			"an empty answer":         "",
			"another droplet's":       `{"droplet":{"id":7}}`,
			"no droplet in an answer": `{}`,
		} {
			status := 404
			if strings.Contains(name, "droplet") {
				status = 200
			}
			foreign := sim.InProcess(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
			}))
			_, err := client(t, cloud, func(o *doapi.Options) { o.Transport = foreign }).Droplet(t.Context(), id)
			if err == nil || errors.Is(err, doapi.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A write of which no response arrived is not made again, and the error says that it may have been made.
func TestAmbiguousWrites(t *testing.T) {
	t.Parallel()
	for _, kind := range []fault.Kind{fault.CutAfterApply, fault.ErrorAfterApply, fault.TruncatedJSON, fault.ShortBody, fault.Reset} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cloud := sim.New(sim.Options{Seed: 1})
				inject(t, cloud, fault.Rule{Route: "POST /v2/load_balancers", Kind: kind, Nth: 1})
				_, err := client(t, cloud).CreateLoadBalancer(t.Context(), request("a"), loadbalancer.CreateOnly{})
				if !errors.Is(err, doapi.ErrAmbiguous) {
					t.Errorf("%v", err)
				}
				if n := cloud.Stats().Count("POST"); n != 1 {
					t.Errorf("%d POSTs", n)
				}
			})
		})
	}
	cloud := sim.New(sim.Options{Seed: 1})
	refusing := roundTripper(func(*http.Request) (*http.Response, error) { return nil, dialError() })
	_, err := client(t, cloud, func(o *doapi.Options) { o.Transport = refusing }).CreateLoadBalancer(t.Context(), request("a"), loadbalancer.CreateOnly{})
	if err == nil || errors.Is(err, doapi.ErrAmbiguous) {
		t.Errorf("a request that never left: %v", err)
	}
}

func request(name string) loadbalancer.Request {
	return loadbalancer.Request{
		Name: name, Region: "nyc1", Type: "REGIONAL",
		ForwardingRules: []loadbalancer.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 30080}},
	}
}

// A load balancer's life, and the kinds of its errors.
func TestLoadBalancers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1, LoadBalancers: sim.LoadBalancerOptions{BusyAfterUpdate: time.Minute}})
		c, ctx := client(t, cloud), t.Context()
		made, err := c.CreateLoadBalancer(ctx, request("a"), loadbalancer.CreateOnly{})
		if err != nil || made.ID == "" || made.Name != "a" {
			t.Fatalf("%+v, %v", made, err)
		}
		if _, err := c.CreateLoadBalancer(ctx, request("a"), loadbalancer.CreateOnly{}); !errors.Is(err, doapi.ErrRefused) {
			t.Errorf("a second one of that name: %v", err)
		}
		time.Sleep(2 * time.Minute) // of the bubble
		if got, err := c.LoadBalancer(ctx, made.ID); err != nil || got.Status != "active" || got.IP == "" {
			t.Errorf("%+v, %v", got, err)
		}
		changed := request("a")
		changed.ForwardingRules[0].EntryPort = 81
		if got, err := c.UpdateLoadBalancer(ctx, made.ID, changed); err != nil || got.ForwardingRules[0].EntryPort != 81 {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := c.UpdateLoadBalancer(ctx, made.ID, request("a")); !errors.Is(err, doapi.ErrBusy) {
			t.Errorf("a change right after a change: %v", err)
		}
		if all, err := c.LoadBalancers(ctx); err != nil || len(all) != 1 || all[0].ID != made.ID {
			t.Errorf("%+v, %v", all, err)
		}
		time.Sleep(2 * time.Minute)
		if err := c.DeleteLoadBalancer(ctx, made.ID); err != nil {
			t.Error(err)
		}
		if err := c.DeleteLoadBalancer(ctx, made.ID); err != nil {
			t.Errorf("one that is gone already: %v", err)
		}
		if _, err := c.LoadBalancer(ctx, made.ID); !errors.Is(err, doapi.ErrNotFound) {
			t.Errorf("%v", err)
		}
		before := cloud.Stats().Total
		_, err = c.LoadBalancer(ctx, "")
		if err := errors.Join(err, c.DeleteLoadBalancer(ctx, "")); err == nil || cloud.Stats().Total != before {
			t.Errorf("a call without an ID was made, which would be about all of them: %v", err)
		}
	})
}

// Kinds of errors, and what their sentences say. None of them shows the token.
func TestErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1, Accounts: []sim.AccountOptions{{Name: "a", Tokens: []sim.Token{
			{Value: sim.DefaultToken}, {Value: "narrow-token", Scopes: []string{"droplet:read"}},
		}}}})
		for token, want := range map[string]struct {
			kind error
			says string
		}{
			"unknown-token": {doapi.ErrUnauthorized, "GET v2/account: 401 Unable to authenticate you (the token is not accepted), request "},
			"narrow-token":  {doapi.ErrForbidden, "GET v2/account: 403 "},
		} {
			_, err := client(t, cloud, func(o *doapi.Options) { o.Token = doapi.StaticToken(token) }).Account(t.Context())
			if !errors.Is(err, want.kind) || !strings.HasPrefix(fmt.Sprint(err), want.says) || strings.Contains(err.Error(), token) {
				t.Errorf("%s: %v", token, err)
			}
		}
		before := cloud.Stats().Total
		inject(t, cloud, fault.Rule{Kind: fault.TooManyRequests, Nth: 1, Times: -1})
		never := func(o *doapi.Options) { o.Chance = func() float64 { return 0 } }
		if _, err := client(t, cloud, never).Account(t.Context()); !errors.Is(err, doapi.ErrRateLimited) {
			t.Error(err)
		}
		if n := cloud.Stats().Total - before; n != 3 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestAccountAndRegions(t *testing.T) {
	t.Parallel()
	cloud := sim.New(sim.Options{Seed: 1})
	c := client(t, cloud)
	account, err := c.Account(t.Context())
	if err != nil || account.UUID != cloud.Account("").UUID() || account.Team == "" {
		t.Errorf("%+v, %v", account, err)
	}
	regions, err := c.Regions(t.Context())
	if err != nil || !slices.Contains(regions, "nyc1") || len(regions) < 10 {
		t.Errorf("%v, %v", regions, err)
	}
	nobody := sim.InProcess(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"account":{}}`)) }))
	if _, err := client(t, cloud, func(o *doapi.Options) { o.Transport = nobody }).Account(t.Context()); err == nil {
		t.Error("an account without a UUID is taken for one")
	}
}

// The token may be replaced while the program runs. The epoch tells what was read with which.
func TestTokenFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		write := func(text string) {
			must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		}
		write(sim.DefaultToken + "\n")
		token := must.Get(doapi.NewFileToken(path, clock.RealClock{})).Or(t)
		cloud := sim.New(sim.Options{Seed: 1})
		c := client(t, cloud, func(o *doapi.Options) { o.Token = token })
		call := func() error { _, err := c.Account(t.Context()); return err }
		must.Do(t, call())
		first := c.Epoch()
		if err := call(); err != nil || c.Epoch() != first {
			t.Errorf("the epoch went from %d to %d although the token is the same (%v)", first, c.Epoch(), err)
		}
		// The old token ends before ours was read again: the call is made again with the new one, at once.
		cloud.Account("").RevokeToken(sim.DefaultToken)
		cloud.Account("").AddToken(sim.Token{Value: "second"})
		write("second")
		if err := call(); err != nil {
			t.Errorf("a rotation is not survived: %v", err)
		}
		second := c.Epoch()
		if second == first {
			t.Error("another token, and the same epoch")
		}
		// While the file is being replaced it may be empty or missing: the last token stays.
		write("")
		time.Sleep(time.Minute)
		if err := call(); err != nil {
			t.Error(err)
		}
		must.Do(t, os.Remove(path))
		time.Sleep(time.Minute)
		if err := call(); err != nil || c.Epoch() != second {
			t.Errorf("epoch %d, was %d (%v)", c.Epoch(), second, err)
		}
		// A refused token begins an epoch, since nobody knows what will be answered next.
		cloud.Account("").RevokeToken("second")
		if err := call(); !errors.Is(err, doapi.ErrUnauthorized) || c.Epoch() == second {
			t.Errorf("epoch %d, was %d (%v)", c.Epoch(), second, err)
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	for token, fine := range map[string]bool{"dop_v1_0123": true, "": false, "a b": false, "\"a\"": true, "a\n": false, "ä": false} {
		if err := doapi.ValidateToken(token); (err == nil) != fine {
			t.Errorf("%q: %v", token, err)
		}
	}
	if _, err := doapi.NewFileToken(filepath.Join(t.TempDir(), "none"), clock.RealClock{}); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for url, fine := range map[string]bool{"": true, "https://x": true, "http://x/api/": true, "x": false, "ftp://x/": false, "https://": false, ":": false} {
		if _, err := doapi.New(doapi.Options{URL: url, Token: doapi.StaticToken("t")}); (err == nil) != fine {
			t.Errorf("%q: %v", url, err)
		}
	}
	var asked string
	below := sim.InProcess(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path + " " + r.UserAgent() + " " + r.Header.Get("Authorization")
	}))
	c, err := doapi.New(doapi.Options{URL: "http://x/do", Token: doapi.StaticToken("t"), UserAgent: "u", Transport: below})
	must.Do(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = c.Account(ctx)
	if asked != "/do/v2/account u Bearer t" {
		t.Errorf("asked for %q", asked)
	}
}

// The token goes nowhere else, no matter who answers.
func TestNoRedirect(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	hosts := map[string]int{}
	moved := roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		hosts[r.URL.Host]++
		return &http.Response{StatusCode: 302, Header: http.Header{"Location": {"https://elsewhere/"}}, Body: http.NoBody, Request: r}, nil
	})
	_, err := client(t, sim.New(sim.Options{}), func(o *doapi.Options) { o.Transport = moved }).Account(t.Context())
	if err == nil || len(hosts) != 1 || hosts["api.digitalocean.com"] != 1 {
		t.Errorf("%v, %v", hosts, err)
	}
}

func TestMetricsNames(t *testing.T) {
	t.Parallel()
	cloud, registry := sim.New(sim.Options{Seed: 1}), prometheus.NewRegistry()
	c := client(t, cloud, func(o *doapi.Options) { o.Metrics = doapi.NewMetrics(registry) })
	_, _ = c.Droplet(t.Context(), 1)
	want := `
# HELP mooring_digitalocean_api_requests_total Calls to DigitalOcean's API, by method, route and HTTP status (none without a response).
# TYPE mooring_digitalocean_api_requests_total counter
mooring_digitalocean_api_requests_total{code="404",method="GET",route="v2/droplets/{id}"} 1
# HELP mooring_digitalocean_api_rate_limit API calls that the token may make in an hour, as of the last response.
# TYPE mooring_digitalocean_api_rate_limit gauge
mooring_digitalocean_api_rate_limit 5000
# HELP mooring_digitalocean_api_rate_limit_remaining API calls that the token has left in the hour, as of the last response.
# TYPE mooring_digitalocean_api_rate_limit_remaining gauge
mooring_digitalocean_api_rate_limit_remaining 4999
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "mooring_digitalocean_api_requests_total",
		"mooring_digitalocean_api_rate_limit", "mooring_digitalocean_api_rate_limit_remaining"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "mooring_digitalocean_api_request_duration_seconds"); n != 1 || err != nil {
		t.Errorf("%d histograms, %v", n, err)
	}
}

// The client's own limit spaces calls out.
func TestQPS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cloud := sim.New(sim.Options{Seed: 1})
		c := client(t, cloud, func(o *doapi.Options) { o.QPS = 2 })
		began := time.Now()
		for range 5 {
			must.Get(c.Account(t.Context())).Or(t)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("five calls at two a second took %s of the bubble's time, want 2s", took)
		}
	})
}

// What was decided with one token is not written with another: not after the token was replaced, nor when the API
// refuses it in the middle of the write and there is a newer one by then.
func TestAWriteIsMadeWithTheTokenOfItsDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		must.Do(t, os.WriteFile(path, []byte(sim.DefaultToken), 0o600))
		token := must.Get(doapi.NewFileToken(path, clock.RealClock{})).Or(t)
		cloud := sim.New(sim.Options{Seed: 1})
		c := client(t, cloud, func(o *doapi.Options) { o.Token = token })
		ctx := outputs.Decided(t.Context(), c.Epoch())
		must.Do(t, c.CreateTag(ctx, "first"))
		cloud.Account("").RevokeToken(sim.DefaultToken)
		cloud.Account("").AddToken(sim.Token{Value: "second"})
		must.Do(t, os.WriteFile(path, []byte("second"), 0o600))
		for _, when := range []string{"while the old token is refused", "with the new token"} {
			if err := c.CreateTag(ctx, "late"); !errors.Is(err, outputs.ErrMoved) {
				t.Errorf("%s: %v", when, err)
			}
		}
		if _, err := c.Account(ctx); err != nil {
			t.Errorf("it reads with the new token: %v", err)
		}
		now := outputs.Decided(t.Context(), c.Epoch())
		if err := c.TagLoadBalancers(now, "late", []string{"none"}); !errors.Is(err, doapi.ErrNotFound) {
			t.Errorf("the tag was made: %v", err)
		}
		must.Do(t, c.CreateTag(now, "late"))
	})
}
