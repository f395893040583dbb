// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// admin sends a request to the admin API and decodes the answer.
func (a *api) admin(status int, method, path string, body, into any) string {
	a.t.Helper()
	request, err := http.NewRequest(method, "http://admin"+path, strings.NewReader(a.encode(body)))
	if err != nil {
		a.t.Fatalf("%v", err)
	}
	response, err := InProcess(a.sim.AdminHandler()).RoundTrip(request)
	if err != nil {
		a.t.Fatalf("%v", err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != status {
		a.t.Fatalf("%s %s: %d %s, not %d", method, path, response.StatusCode, text, status)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			a.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return string(text)
}

func TestAdminOfDroplets(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	const droplets = "/v1/accounts/-/droplets"
	var d Droplet
	a.admin(200, "POST", droplets, map[string]any{"name": "node", "ipv6": true}, &d)
	if d.Name != "node" || len(d.Networks.V6) != 1 {
		t.Errorf("created: %+v", d)
	}
	a.admin(204, "PUT", droplets+"/node/status", map[string]any{"status": "off"}, nil)
	a.admin(204, "PUT", "/v1/accounts/default/droplets/node/networks", Networks{}, nil)
	a.admin(200, "GET", droplets+"/node", nil, &d)
	if d.Status != "off" || len(d.Networks.V4) != 0 {
		t.Errorf("changed: %+v", d)
	}
	a.admin(204, "DELETE", droplets+"/node", nil, nil)
	var list []Droplet
	a.admin(200, "GET", droplets, nil, &list)
	if list == nil || len(list) != 0 {
		t.Errorf("list: %+v", list)
	}
	for want, path := range map[string]string{
		`droplet "node" does not exist`: droplets + "/node", `account "nobody" does not exist`: "/v1/accounts/nobody/droplets",
	} {
		var refusal struct{ Error string }
		a.admin(422, "GET", path, nil, &refusal)
		if refusal.Error != want {
			t.Errorf("%q, not %q", refusal.Error, want)
		}
	}
	if got := a.admin(422, "POST", droplets, map[string]any{"nam": "node"}, nil); !strings.Contains(got, "unknown field") {
		t.Errorf("a misspelled field: %s", got)
	}
}

func TestAdminOfLoadBalancers(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	const balancers = "/v1/accounts/-/load_balancers"
	var lb LoadBalancer
	a.admin(200, "POST", balancers, map[string]any{
		"name": "foreign", "tags": []string{"k8s:other"}, "forwarding_rules": []any{rule("tcp", 80, "tcp", nil)},
	}, &lb)
	if lb.Status != "active" || lb.IP == "" || lb.HTTPIdleTimeoutSeconds != 60 {
		t.Errorf("another cluster's: %+v", lb)
	}
	before := a.get(lb.ID)
	a.admin(204, "PATCH", balancers+"/foreign", map[string]any{"redirect_http_to_https": true, "tags": nil}, nil)
	want := before
	want.RedirectHTTPToHTTPS, want.Tags = true, nil
	if diff := cmp.Diff(want, a.get(lb.ID)); diff != "" {
		t.Errorf("after an edit of one field:\n%s", diff)
	}
	a.admin(422, "PATCH", balancers+"/foreign", map[string]any{"redirect": true}, nil)
	a.admin(204, "PUT", balancers+"/foreign/status", map[string]any{"status": "errored"}, nil)
	if got := a.get(lb.ID); got.Status != "errored" || got.IP != "" {
		t.Errorf("errored: %+v", got)
	}
	a.admin(204, "PUT", balancers+"/foreign/status", map[string]any{"status": "active"}, nil)
	a.admin(204, "POST", balancers+"/foreign/busy", time.Minute, nil)
	a.refused(403, "PUT", "/v2/load_balancers/"+lb.ID, balancer("foreign", nil), "previous actions")
	a.admin(422, "PUT", balancers+"/foreign/status", map[string]any{"status": "tired"}, nil)
	a.admin(204, "DELETE", balancers+"/foreign", nil, nil)
	a.admin(422, "GET", balancers+"/foreign", nil, nil)
	a.admin(200, "GET", balancers, nil, nil)
}

func TestAdminOfTheRest(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	var crt, renewed Certificate
	a.admin(200, "POST", "/v1/accounts/-/certificates", CertificateSpec{Name: "web"}, &crt)
	a.admin(200, "POST", "/v1/accounts/-/certificates/"+crt.ID+"/rotate", nil, &renewed)
	a.admin(204, "DELETE", "/v1/accounts/-/certificates/"+renewed.ID, nil, nil)
	a.admin(200, "GET", "/v1/accounts/-/certificates", nil, nil)
	var f Firewall
	a.admin(200, "POST", "/v1/accounts/-/firewalls", firewallBody(), &f)
	a.admin(204, "PATCH", "/v1/accounts/-/firewalls/fw", map[string]any{"name": "edited"}, nil)
	a.admin(422, "PATCH", "/v1/accounts/-/firewalls/edited", map[string]any{"inbound_rules": []any{}}, nil)
	var firewalls []Firewall
	a.admin(200, "GET", "/v1/accounts/-/firewalls", nil, &firewalls)
	if len(firewalls) != 1 || firewalls[0].Name != "edited" || len(firewalls[0].InboundRules) != 1 || firewalls[0].ID != f.ID {
		t.Errorf("firewalls: %+v", firewalls)
	}
	a.admin(204, "DELETE", "/v1/accounts/-/firewalls/edited", nil, nil)
	a.admin(204, "POST", "/v1/accounts/-/tokens", Token{Value: "extra"}, nil)
	a.token = "extra"
	a.want(200, "GET", "/v2/account", nil, "", nil)
	a.admin(204, "DELETE", "/v1/accounts/-/tokens/extra", nil, nil)
	a.refused(401, "GET", "/v2/account", nil, "unauthorized")
	a.token = DefaultToken
	a.admin(204, "PUT", "/v1/accounts/-/status", map[string]any{"status": "locked"}, nil)
	a.admin(204, "PUT", "/v1/consistency", map[string]any{"list": time.Second}, nil)
	a.admin(204, "POST", "/v1/faults", `[{"kind":"error","nth":1,"status":503}]`, nil)
	a.refused(503, "GET", "/v2/account", nil, "service_unavailable")
	a.admin(422, "POST", "/v1/faults", `[{"kind":"error"}]`, nil)
	a.admin(200, "GET", "/v1/faults", nil, nil)
	a.admin(204, "DELETE", "/v1/faults", nil, nil)
	if got := a.send("GET", "/v2/account", nil); !strings.Contains(got.body, `"status":"locked"`) {
		t.Errorf("account: %s", got.body)
	}
	if got := a.admin(200, "GET", "/v1/stats", nil, nil); !strings.Contains(got, `"GET /v2/account":{"count":4`) {
		t.Errorf("stats: %s", got)
	}
	if got := a.admin(200, "GET", "/v1/requests?fault=error", nil, nil); strings.Count(got, `"number"`) != 1 {
		t.Errorf("requests: %s", got)
	}
	a.admin(422, "GET", "/v1/requests?after=x", nil, nil)
	a.admin(204, "DELETE", "/v1/requests", nil, nil)
	if got := a.admin(200, "GET", "/v1/requests", nil, nil); strings.TrimSpace(got) != "[]" {
		t.Errorf("requests after a reset: %s", got)
	}
	var state State
	a.admin(200, "GET", "/v1/state", nil, &state)
	if len(state.Accounts) != 1 || state.Accounts[0].Name != DefaultAccount {
		t.Errorf("state: %+v", state)
	}
}

// TestWhatWasReadMayBeChanged: values that the Go API returns are copies.
func TestWhatWasReadMayBeChanged(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	d := a.droplet(DropletSpec{Name: "node"})
	lb := a.create("web", map[string]any{"droplet_ids": []int{d.ID}})
	before := a.get(lb.ID)
	read := a.sim.Account("").LoadBalancers()[0]
	read.ForwardingRules[0].EntryPort, read.DropletIDs[0] = 1, 1
	if diff := cmp.Diff(before, a.get(lb.ID)); diff != "" {
		t.Errorf("a change of a copy:\n%s", diff)
	}
	old := a.sim.State()
	must.Do(t, a.sim.Account("").EditLoadBalancer("web", func(lb *LoadBalancer) { lb.ForwardingRules[0].EntryPort = 81 }))
	if old.Accounts[0].LoadBalancers[0].ForwardingRules[0].EntryPort != 80 || a.get(lb.ID).ForwardingRules[0].EntryPort != 81 {
		t.Error("an edit reached a state that was read before, or nothing")
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Options{})
	d := a.droplet(DropletSpec{Name: "node", IPv6: true, Tags: []string{"a", "b"}, UserData: "#!/bin/sh"})
	handler := a.sim.Metadata(func(r *http.Request) (string, string, bool) {
		return "", r.Header.Get("From"), r.Header.Get("From") != ""
	})
	ask := func(from, path string) (int, string) {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://169.254.169.254"+path, nil)).Or(t)
		request.Header.Set("From", from)
		response, err := InProcess(handler).RoundTrip(request)
		must.Do(t, err)
		defer response.Body.Close()
		text := must.Get(io.ReadAll(response.Body)).Or(t)
		return response.StatusCode, string(text)
	}
	for path, want := range map[string]string{
		"id": "400000001", "hostname": "node", "region": "nyc1", "tags": "a\nb", "tags/": "a\nb", "user-data": "#!/bin/sh",
		"interfaces/": "private/\npublic/", "interfaces/public/": "0/", "interfaces/public/0/ipv4/address": d.Networks.V4[1].IPAddress,
		"interfaces/private/0/ipv4/address": d.Networks.V4[0].IPAddress, "interfaces/private/0/type": "private",
		"interfaces/public/0/ipv6/address": d.Networks.V6[0].IPAddress, "interfaces/public/0/ipv6/cidr": "64",
		"": "dns/\nhostname\nid\ninterfaces/\npublic-keys/\nregion\ntags/\nuser-data\nvendor-data\nvpc-uuid",
	} {
		if status, got := ask("node", "/metadata/v1/"+path); status != 200 || got != want {
			t.Errorf("%s: %d %q, not %q", path, status, got, want)
		}
	}
	var document struct {
		ID   int      `json:"droplet_id"`
		Tags []string `json:"tags"`
	}
	_, text := ask("400000001", "/metadata/v1.json")
	must.Do(t, json.Unmarshal([]byte(text), &document))
	if document.ID != d.ID || !slices.Equal(document.Tags, []string{"a", "b"}) {
		t.Errorf("v1.json: %s", text)
	}
	for _, wrong := range [][2]string{
		{"", "/metadata/v1/id"}, {"other", "/metadata/v1/id"}, {"node", "/metadata/v2/id"}, {"node", "/metadata/v1/nothing"},
		{"node", "/metadata/v1/interfaces/public/1"}, {"node", "/metadata/v1/id/x"}, {"node", "/v2/account"},
	} {
		if status, got := ask(wrong[0], wrong[1]); status != 404 {
			t.Errorf("%v: %d %s", wrong, status, got)
		}
	}
	if got := a.admin(200, "GET", "/v1/accounts/-/droplets/node/metadata/v1/region", nil, nil); got != "nyc1" {
		t.Errorf("over the admin API: %q", got)
	}
}
