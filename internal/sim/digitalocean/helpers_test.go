// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
)

func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// unlimited switches the rate limits off.
func unlimited() ratelimit.Limits { return ratelimit.Limits{Hour: -1, Minute: -1} }

// fatal is what tests and rapid's checks have in common.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// api is a client of a simulator whose clock stands still until it is stepped.
type api struct {
	t     fatal
	sim   *Simulator
	clock *clocktesting.FakeClock
	token string
}

func newAPI(t fatal, options Options) *api {
	clock := clocktesting.NewFakeClock(start())
	options.Clock = clock
	return &api{t: t, sim: New(options), clock: clock, token: DefaultToken}
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// send makes a request; body is JSON text, or a value that becomes JSON.
func (a *api) send(method, path string, body any) answer {
	a.t.Helper()
	request, err := http.NewRequest(method, "https://api.digitalocean.com"+path, strings.NewReader(a.encode(body)))
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	response, err := a.sim.Transport().RoundTrip(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, header: response.Header, body: string(text), err: err}
}

func (a *api) encode(body any) string {
	a.t.Helper()
	switch body := body.(type) {
	case nil:
		return ""
	case string:
		return body
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		a.t.Fatalf("%v", err)
	}
	return string(encoded)
}

// want makes a request that must be answered with this status, and decodes what is below a key.
func (a *api) want(status int, method, path string, body any, key string, into any) {
	a.t.Helper()
	got := a.send(method, path, body)
	if got.err != nil || got.status != status {
		a.t.Fatalf("%s %s: %d %s (%v), not %d", method, path, got.status, got.body, got.err, status)
	}
	if key == "" {
		return
	}
	var below map[string]json.RawMessage
	if err := json.Unmarshal([]byte(got.body), &below); err != nil {
		a.t.Fatalf("%s %s: %v in %s", method, path, err, got.body)
	}
	decoder := json.NewDecoder(bytes.NewReader(below[key]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		a.t.Fatalf("%s %s: %v in %s", method, path, err, got.body)
	}
}

// refused makes a request that must be refused with this status and a message that has these words.
func (a *api) refused(status int, method, path string, body any, words string) {
	a.t.Helper()
	got := a.send(method, path, body)
	if got.status != status || !strings.Contains(got.body, words) {
		a.t.Fatalf("%s %s %s: %d %s, not %d and %q", method, path, a.encode(body), got.status, got.body, status, words)
	}
}

// balancer is a request that is accepted, with some fields changed; a nil value removes a field.
func balancer(name string, changes map[string]any) map[string]any {
	request := map[string]any{
		"name": name, "region": "nyc1",
		"forwarding_rules": []any{map[string]any{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 30080}},
	}
	maps.Copy(request, changes)
	maps.DeleteFunc(request, func(_ string, value any) bool { return value == nil })
	return request
}

// rule is a forwarding rule.
func rule(entry string, port int, target string, changes map[string]any) map[string]any {
	r := map[string]any{"entry_protocol": entry, "entry_port": port, "target_protocol": target, "target_port": 30000}
	maps.Copy(r, changes)
	return r
}

func (a *api) create(name string, changes map[string]any) LoadBalancer {
	a.t.Helper()
	var lb LoadBalancer
	a.want(202, "POST", "/v2/load_balancers", balancer(name, changes), "load_balancer", &lb)
	return lb
}

func (a *api) get(id string) LoadBalancer {
	a.t.Helper()
	var lb LoadBalancer
	a.want(200, "GET", "/v2/load_balancers/"+id, nil, "load_balancer", &lb)
	return lb
}

func (a *api) droplet(spec DropletSpec) Droplet {
	a.t.Helper()
	d, err := a.sim.Account("").CreateDroplet(spec)
	if err != nil {
		a.t.Fatalf("%v", err)
	}
	return d
}
