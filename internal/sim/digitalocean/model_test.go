// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const balancerLimit = 4

// world drives a simulator by random requests.
type world struct {
	*api
	t *rapid.T
}

func (w *world) drawName() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(w.t, "name")
}

// drawBalancer returns a random request; some of them are refused.
func (w *world) drawBalancer(name string) map[string]any {
	changes := map[string]any{}
	draw := func(field string, values ...any) {
		if value := rapid.SampledFrom(values).Draw(w.t, field); value != nil {
			changes[field] = value
		}
	}
	draw("type", nil, "REGIONAL", "REGIONAL_NETWORK")
	draw("network", nil, "EXTERNAL", "INTERNAL")
	draw("network_stack", nil, "IPV4", "DUALSTACK")
	draw("size_unit", nil, 1, 2)
	draw("enable_proxy_protocol", nil, true, false)
	draw("http_idle_timeout_seconds", nil, 30, 600, 601)
	draw("tags", nil, []string{"k8s:one"}, []string{"k8s:two", "k8s:one"}, []string{})
	draw("health_check", nil, map[string]any{"protocol": "tcp", "port": 22}, map[string]any{"path": "/x", "proxy_protocol": true})
	draw("sticky_sessions", nil, map[string]any{"type": "none"}, map[string]any{"type": "cookies", "cookie_name": "c", "cookie_ttl_seconds": 3})
	draw("firewall", nil, map[string]any{}, map[string]any{"allow": []string{"cidr:192.0.2.0/24", "ip:192.0.2.1"}})
	var ids []int
	for _, d := range w.sim.Account("").Droplets() {
		if rapid.Bool().Draw(w.t, "droplet") {
			ids = append(ids, d.ID)
		}
	}
	if len(ids) > 0 {
		changes["droplet_ids"] = ids
	}
	return balancer(name, changes)
}

func (w *world) some() (LoadBalancer, bool) {
	all := w.sim.Account("").LoadBalancers()
	if len(all) == 0 {
		return LoadBalancer{}, false
	}
	return rapid.SampledFrom(all).Draw(w.t, "load balancer"), true
}

func (w *world) actions() map[string]func(*rapid.T) {
	onSome := func(do func(lb LoadBalancer)) func(*rapid.T) {
		return func(*rapid.T) {
			if lb, found := w.some(); found {
				do(lb)
			}
		}
	}
	return map[string]func(*rapid.T){
		"create": func(*rapid.T) { w.send("POST", "/v2/load_balancers", w.drawBalancer(w.drawName())) },
		"update": onSome(func(lb LoadBalancer) { w.send("PUT", "/v2/load_balancers/"+lb.ID, w.drawBalancer(w.drawName())) }),
		"delete": onSome(func(lb LoadBalancer) { w.send("DELETE", "/v2/load_balancers/"+lb.ID, nil) }),
		"list":   func(*rapid.T) { w.send("GET", "/v2/load_balancers", nil) },
		"put what is there": onSome(func(lb LoadBalancer) {
			if w.get(lb.ID).Status == statusActive {
				w.putWhatIsThere(lb.ID)
			}
		}),
		"create droplet": func(*rapid.T) {
			w.send("POST", "/v2/droplets", map[string]any{"name": w.drawName(), "region": "nyc1", "size": "s-1vcpu-1gb", "image": 1})
		},
		"delete droplet": func(*rapid.T) {
			if all := w.sim.Account("").Droplets(); len(all) > 0 {
				w.send("DELETE", fmt.Sprintf("/v2/droplets/%d", rapid.SampledFrom(all).Draw(w.t, "droplet").ID), nil)
			}
		},
		"step": func(t *rapid.T) { w.clock.Step(time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second) },
	}
}

// putWhatIsThere: PUT(GET(x)) changes nothing.
func (w *world) putWhatIsThere(id string) {
	before := w.get(id)
	encoded := map[string]any{}
	must.Do(w.t, json.Unmarshal([]byte(w.encode(before)), &encoded))
	encoded["region"] = before.Region.Slug
	if got := w.send("PUT", "/v2/load_balancers/"+id, encoded); got.status == 403 {
		return // busy
	} else if got.status != 200 {
		w.t.Fatalf("a PUT of what is there: %d %s", got.status, got.body)
	}
	if diff := cmp.Diff(before, w.get(id)); diff != "" {
		w.t.Fatalf("a PUT of what is there changed it:\n%s", diff)
	}
}

// invariants hold after every request.
func (w *world) invariants(*rapid.T) {
	state := w.sim.State().Accounts[0]
	if len(state.LoadBalancers) > balancerLimit {
		w.t.Fatalf("%d load balancers, the limit is %d", len(state.LoadBalancers), balancerLimit)
	}
	seen, addresses := map[string]bool{}, map[string]bool{}
	own := func(address string) {
		if address != "" && addresses[address] {
			w.t.Fatalf("address %s has two owners", address)
		}
		addresses[address] = true
	}
	alive := map[int]bool{}
	for _, d := range state.Droplets {
		alive[d.ID] = true
		for _, n := range d.Networks.V4 {
			own(n.IPAddress)
		}
	}
	for _, lb := range state.LoadBalancers {
		if seen[lb.Name] || seen[lb.ID] {
			w.t.Fatalf("name or ID is not unique: %s %s", lb.Name, lb.ID)
		}
		seen[lb.Name], seen[lb.ID] = true, true
		own(lb.IP)
		own(lb.IPv6)
		if !slices.IsSorted(lb.DropletIDs) || slices.ContainsFunc(lb.DropletIDs, func(id int) bool { return !alive[id] }) {
			w.t.Fatalf("droplets %v of a load balancer, alive are %v", lb.DropletIDs, alive)
		}
		if (lb.IP != "") != (lb.Status == statusActive) || lb.IPv6 != "" && lb.NetworkStack != stackDual {
			w.t.Fatalf("status %s, stack %s and addresses %q, %q", lb.Status, lb.NetworkStack, lb.IP, lb.IPv6)
		}
	}
}

func TestStateMachine(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := &world{t: t, api: newAPI(t, Options{
			Seed: rapid.Uint64().Draw(t, "seed"), RateLimits: unlimited(),
			LoadBalancers: LoadBalancerOptions{
				ActiveAfter: 30 * time.Second, BusyAfterUpdate: 10 * time.Second, Limit: balancerLimit, ErrorProbability: 0.2,
				IgnoreImmutable: rapid.Bool().Draw(t, "ignore"),
			},
		})}
		actions := w.actions()
		actions[""] = w.invariants
		t.Repeat(actions)
	})
}

// TestAnyRequestReplays: the same requests at the same times, with the same seed, give the same journal and the same state, failures and
// identifiers included.
func TestAnyRequestReplays(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		type request struct {
			method, path string
			body         any
			after        time.Duration
		}
		requests := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) request {
			r := rapid.SampledFrom([]request{
				{method: "POST", path: "/v2/load_balancers"}, {method: "GET", path: "/v2/load_balancers"}, {method: "GET", path: "/v2/droplets"},
				{method: "POST", path: "/v2/droplets", body: `{"name":"n","region":"nyc1","size":"c-2","image":1}`},
				{method: "POST", path: "/v2/tags", body: `{"name":"a"}`}, {method: "DELETE", path: "/v2/droplets/400000002"},
			}).Draw(t, "request")
			if strings.HasSuffix(r.path, "load_balancers") && r.method == "POST" {
				r.body = balancer(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), nil)
			}
			r.after = time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second
			return r
		}), 1, 40).Draw(t, "requests")
		seed := rapid.Uint64().Draw(t, "seed")
		run := func() ([]journal.Entry, State, []answer) {
			a := newAPI(t, Options{Seed: seed, Faults: fault.Storm(0.1), LoadBalancers: LoadBalancerOptions{ErrorProbability: 0.3}})
			var answers []answer
			for _, r := range requests {
				a.clock.Step(r.after)
				got := a.send(r.method, r.path, r.body)
				if got.err != nil {
					got = answer{body: got.body + got.err.Error()}
				}
				answers = append(answers, got)
			}
			return a.sim.Requests(journal.Filter{}), a.sim.State(), answers
		}
		entries, state, answers := run()
		entriesAgain, stateAgain, answersAgain := run()
		if diff := cmp.Diff(entries, entriesAgain); diff != "" {
			t.Fatalf("another journal:\n%s", diff)
		}
		if diff := cmp.Diff(state, stateAgain); diff != "" {
			t.Fatalf("another state:\n%s", diff)
		}
		if diff := cmp.Diff(answers, answersAgain, cmp.AllowUnexported(answer{})); diff != "" {
			t.Fatalf("other answers:\n%s", diff)
		}
	})
}

// TestAnotherSeedIsAnotherRun: without this a constant would pass the test above.
func TestAnotherSeedIsAnotherRun(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (string, []journal.Entry) {
		a := newAPI(t, Options{Seed: seed, Faults: fault.Storm(0.2)})
		for range 50 {
			a.send("GET", "/v2/account", nil)
		}
		return a.sim.Account("").UUID(), a.sim.Requests(journal.Filter{})
	}
	one, first := run(1)
	two, second := run(2)
	if one == two || cmp.Equal(first, second) {
		t.Error("two seeds give the same run")
	}
}

// TestEveryPageSize: while nothing changes, the pages of a list have each item once.
func TestEveryPageSize(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		a := newAPI(t, Options{RateLimits: unlimited(), NewestFirst: rapid.Bool().Draw(t, "newest")})
		count := rapid.IntRange(0, 60).Draw(t, "droplets")
		for i := range count {
			a.droplet(DropletSpec{Name: fmt.Sprintf("n%d", i)})
		}
		size := rapid.IntRange(1, 70).Draw(t, "size")
		seen := map[string]int{}
		for page := 1; page <= count/size+2; page++ {
			for _, d := range a.listDroplets(fmt.Sprintf("?page=%d&per_page=%d", page, size)) {
				seen[d.Name]++
			}
		}
		for name, times := range seen {
			if times != 1 {
				t.Fatalf("%s was seen %d times", name, times)
			}
		}
		if len(seen) != count {
			t.Fatalf("%d of %d were seen", len(seen), count)
		}
	})
}
