// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestTokensAndAccounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{Accounts: []AccountOptions{
		{Name: "one", UUID: "first", Tokens: []Token{{Value: "t1"}}}, {Name: "two", Tokens: []Token{{Value: "t2"}}},
	}})
	account := func() AccountInfo {
		var info AccountInfo
		a.want(200, "GET", "/v2/account", nil, "account", &info)
		return info
	}
	a.token = "wrong"
	a.refused(401, "GET", "/v2/account", nil, "Unable to authenticate you.")
	a.token = "t1"
	if got := account(); got.UUID != "first" || got.Status != "active" || *got.DropletLimit != 100_000 {
		t.Errorf("account: %+v", got)
	}
	d := a.droplet(DropletSpec{Name: "node"})
	lb := a.create("web", nil)
	a.token = "t2"
	if got := account(); got.UUID == "first" || got.UUID != a.sim.Account("two").UUID() {
		t.Errorf("the other account: %+v", got)
	}
	a.refused(404, "GET", fmt.Sprintf("/v2/droplets/%d", d.ID), nil, "not_found")
	a.refused(404, "GET", "/v2/load_balancers/"+lb.ID, nil, "not_found")
	a.create("web", nil) // names are unique within an account only
	a.sim.Account("two").SetStatus("locked", "unpaid")
	if got := account(); got.Status != "locked" || got.StatusMessage != "unpaid" {
		t.Errorf("a locked account: %+v", got)
	}
	a.sim.Account("two").RevokeToken("t2")
	a.refused(401, "GET", "/v2/account", nil, "unauthorized")
	a.sim.Account("one").AddToken(Token{Value: "t2"})
	if got := account(); got.UUID != "first" {
		t.Errorf("a token that moved: %+v", got)
	}
	entries := a.sim.Requests(journal.Filter{Account: "two"})
	if len(entries) == 0 || entries[0].Account != "two" {
		t.Errorf("journal: %+v", entries)
	}
}

// TestScopes: every route refuses a token that lacks one of its scopes, and lets one pass that has them.
func TestScopes(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{RateLimits: unlimited()})
	account := a.sim.Account("")
	for _, r := range routes() {
		path := r.pattern
		for _, param := range []string{"{droplet_id}", "{lb_id}", "{certificate_id}", "{firewall_id}", "{tag_id}", "{vpc_id}", "{action_id}"} {
			path = strings.ReplaceAll(path, param, "1")
		}
		account.AddToken(Token{Value: "all", Scopes: r.scopes})
		a.token = "all"
		if got := a.send(r.method, path, "{}"); got.status == 403 {
			t.Errorf("%s is forbidden to a token with %v", r.name(), r.scopes)
		}
		for i := range r.scopes {
			less := append([]string{"unrelated:read"}, append(r.scopes[:i:i], r.scopes[i+1:]...)...)
			account.AddToken(Token{Value: "less", Scopes: less})
			a.token = "less"
			if got := a.send(r.method, path, "{}"); got.status != 403 {
				t.Errorf("%s answers %d to a token with %v only", r.name(), got.status, less)
			}
		}
	}
	account.AddToken(Token{Value: "reader", Scopes: []string{"read"}})
	a.token = "reader"
	a.want(200, "GET", "/v2/droplets", nil, "", nil)
	a.refused(403, "POST", "/v2/load_balancers", balancer("web", nil), "not authorized")
}

func TestScopesOfFields(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	d := a.droplet(DropletSpec{Name: "node", Tags: []string{"worker"}})
	must.Get(a.sim.Account("").CreateFirewall(Firewall{Name: "fw", InboundRules: []InboundRule{{Protocol: "icmp"}}})).Or(t)
	path := fmt.Sprintf("/v2/droplets/%d", d.ID)
	for scope, field := range map[string]string{
		"tag:read": `"tags"`, "image:read": `"image"`, "vpc:read": `"vpc_uuid"`, "block_storage:read": `"volume_ids"`,
	} {
		a.sim.Account("").AddToken(Token{Value: "some", Scopes: []string{"droplet:read", "firewall:read", "tag:read", scope}})
		if scope != "tag:read" {
			a.sim.Account("").AddToken(Token{Value: "none", Scopes: []string{"droplet:read", "tag:read"}})
		} else {
			a.sim.Account("").AddToken(Token{Value: "none", Scopes: []string{"droplet:read"}})
		}
		a.token = "some"
		if got := a.send("GET", path, nil); !strings.Contains(got.body, field+":") {
			t.Errorf("with %s there is no %s in %s", scope, field, got.body)
		}
		a.token = "none"
		if got := a.send("GET", path, nil); strings.Contains(topLevel(got.body), field+":") {
			t.Errorf("without %s there is %s in %s", scope, field, got.body)
		}
	}
	for scopes, want := range map[string]bool{"firewall:read": false, "firewall:read droplet:read tag:read": true} {
		a.sim.Account("").AddToken(Token{Value: "firewalls", Scopes: strings.Fields(scopes)})
		a.token = "firewalls"
		got := a.send("GET", "/v2/firewalls", nil)
		if strings.Contains(got.body, `"droplet_ids"`) != want || strings.Contains(got.body, `"tags"`) != want {
			t.Errorf("with %s: %s", scopes, got.body)
		}
	}
	a.sim.Account("").AddToken(Token{Value: "writer", Scopes: []string{"firewall:create", "load_balancer:create", "droplet:create"}})
	a.token = "writer"
	a.refused(403, "POST", "/v2/firewalls", firewallBody("tags", []string{"worker"}), "forbidden")
	a.refused(403, "POST", "/v2/load_balancers", balancer("web", map[string]any{"tags": []string{"worker"}}), "forbidden")
	a.refused(403, "POST", "/v2/droplets", map[string]any{"name": "n", "size": "s", "image": 1, "vpc_uuid": "v"}, "forbidden")
}

// topLevel is a droplet without its image, which has tags of its own.
func topLevel(body string) string {
	before, rest, found := strings.Cut(body, `"image":{`)
	if !found {
		return body
	}
	_, after, _ := strings.Cut(rest, "}")
	return before + after
}

func TestLimitsInHeaders(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{
		RateLimits: ratelimit.Limits{Hour: 5, Minute: 3},
		Accounts:   []AccountOptions{{Name: "one", Tokens: []Token{{Value: DefaultToken}, {Value: "second"}}}},
	})
	expect := func(status int, remaining, retry string, reset time.Time) {
		t.Helper()
		got := a.send("GET", "/v2/account", nil)
		if got.status != status || got.header.Get("ratelimit-limit") != "5" || got.header.Get("ratelimit-remaining") != remaining ||
			got.header.Get("retry-after") != retry || got.header.Get("ratelimit-reset") != strconv.FormatInt(reset.Unix(), 10) {
			t.Errorf("%d %v, not %d with %s remaining, retry-after %q and reset %d", got.status, got.header, status, remaining, retry, reset.Unix())
		}
		if status == 429 && !strings.Contains(got.body, `"id":"too_many_requests"`) {
			t.Errorf("body: %s", got.body)
		}
	}
	first := start()
	expect(200, "4", "", first.Add(time.Hour))
	a.clock.Step(10 * time.Second)
	expect(200, "3", "", first.Add(time.Hour))
	expect(200, "2", "", first.Add(time.Hour))
	a.clock.Step(time.Second)
	expect(429, "2", "49", first.Add(time.Hour)) // burst: the first of three expires in 49 s
	a.token = "second"
	expect(200, "4", "", first.Add(time.Hour+11*time.Second)) // each token has its own
	a.token = DefaultToken
	a.clock.Step(10 * time.Minute)
	expect(200, "1", "", first.Add(time.Hour))
	expect(200, "0", "", first.Add(time.Hour))
	expect(429, "0", "", first.Add(time.Hour)) // the hour: no retry-after
	a.clock.SetTime(first.Add(time.Hour))
	expect(200, "0", "", first.Add(time.Hour+10*time.Second)) // the oldest expired, and this one took its place
}

// TestLimitsAreNeverExceeded: whatever a client does, no token gets more answers than its limits.
func TestLimitsAreNeverExceeded(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		limits := ratelimit.Limits{Hour: rapid.IntRange(1, 30).Draw(t, "hour"), Minute: rapid.IntRange(1, 10).Draw(t, "minute")}
		a := newAPI(t, Options{RateLimits: limits})
		var answered []time.Time
		for range rapid.IntRange(1, 120).Draw(t, "requests") {
			a.clock.Step(time.Duration(rapid.IntRange(0, 240).Draw(t, "seconds")) * time.Second)
			if a.send("GET", "/v2/account", nil).status == 200 {
				answered = append(answered, a.clock.Now())
			}
		}
		for i, from := range answered {
			hour, minute := 0, 0
			for _, at := range answered[i:] {
				if at.Before(from.Add(time.Hour)) {
					hour++
				}
				if at.Before(from.Add(time.Minute)) {
					minute++
				}
			}
			if hour > limits.Hour || minute > limits.Minute {
				t.Fatalf("%d in an hour and %d in a minute, limits %+v", hour, minute, limits)
			}
		}
	})
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	for _, path := range []string{"/", "/v2", "/v2/domains", "/v2/droplets/", "/v2/droplets/1/2/3", "//v2/droplets"} {
		a.refused(404, "GET", path, nil, "not_found")
	}
	a.refused(404, "PATCH", "/v2/droplets", nil, "not_found")
	if got := a.sim.Stats().Count("PATCH unknown"); got != 1 {
		t.Errorf("the journal counted %d", got)
	}
	got := a.send("GET", "/v2/droplets/7", nil)
	if id := got.header.Get("x-request-id"); len(id) != 36 || !strings.Contains(got.body, `"request_id":"`+id) {
		t.Errorf("request ID %q, body %s", id, got.body)
	}
}
