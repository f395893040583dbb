// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/digitalocean/godo"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/openapi"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const scopedToken = "dop_v1_scoped"

// everything makes godo do everything that the simulator offers, refusals included.
func everything(t *testing.T) *recording {
	t.Helper()
	r := record(t, sim.Options{
		Seed: 1, RateLimits: ratelimit.Limits{Minute: -1},
		Accounts: []sim.AccountOptions{{Name: "one", Tokens: []sim.Token{
			{Value: sim.DefaultToken}, {Value: scopedToken, Scopes: []string{"account:read", "droplet:read", "firewall:read"}},
			{Value: "dop_v1_account", Scopes: []string{"account:read"}},
		}}},
		LoadBalancers: sim.LoadBalancerOptions{ResizeCooldown: -1},
	})
	client := r.client(t, sim.DefaultToken)
	driveAccount(t, client)
	driveDroplets(t, client)
	driveCertificates(t, client)
	driveLoadBalancers(t, r, client)
	driveTags(t, client)
	driveFirewalls(t, client)
	driveVolumes(t, client)
	driveRefusals(t, r)
	return r
}

func TestEverythingAgreesWithTheDescription(t *testing.T) {
	t.Parallel()
	d := description(t, openapi.Deviations())
	r := everything(t)
	for _, wrong := range r.judge(d) {
		t.Error(wrong)
	}
	seen := map[string]bool{}
	for route := range r.sim.Stats().Routes {
		seen[route] = true
	}
	for _, route := range sim.Routes() {
		if !seen[route.Name] {
			t.Errorf("%s was not tried", route.Name)
		}
	}
}

// TestScopesAreThoseOfTheDescription compares what routes ask of a token.
func TestScopesAreThoseOfTheDescription(t *testing.T) {
	t.Parallel()
	var file struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	load(t, "openapi.json", &file)
	textOnly := map[string]string{"DELETE /v2/droplets": "tag:read"} // the text asks for it, the list of scopes does not
	for _, route := range sim.Routes() {
		method, path, _ := strings.Cut(route.Name, " ")
		var operation struct {
			Security []struct {
				Scopes []string `json:"bearer_auth"`
			} `json:"security"`
		}
		must.Do(t, json.Unmarshal(file.Paths[path][strings.ToLower(method)], &operation))
		want := operation.Security[0].Scopes
		if more, found := textOnly[route.Name]; found {
			want = append(want, more)
		}
		if !slices.Equal(route.Scopes, want) {
			t.Errorf("%s asks for %v, the description for %v", route.Name, route.Scopes, want)
		}
	}
}

// TestEveryDeviationIsNeeded takes one deviation away at a time: the description must then complain about something.
func TestEveryDeviationIsNeeded(t *testing.T) {
	t.Parallel()
	description(t, nil) // skips without the description
	r := everything(t)
	names := map[string]bool{}
	for _, deviation := range openapi.Deviations() {
		if names[deviation.Name] || deviation.Reason == "" {
			t.Errorf("deviation %q is there twice or has no reason", deviation.Name)
		}
		names[deviation.Name] = true
		others := slices.DeleteFunc(openapi.Deviations(), func(d openapi.Deviation) bool { return d.Name == deviation.Name })
		if len(r.judge(description(t, others))) == 0 {
			t.Errorf("deviation %q is not needed any more: remove it", deviation.Name)
		}
	}
}

// TestTheJudgeIsStrict breaks exchanges by hand: each must be found.
func TestTheJudgeIsStrict(t *testing.T) {
	t.Parallel()
	d := description(t, openapi.Deviations())
	r := everything(t)
	find := func(method, path string, code int) openapi.Exchange {
		for _, e := range r.exchanges {
			if e.Method == method && e.URL.Path == path && e.Status == code {
				return e
			}
		}
		t.Fatalf("no exchange %s %s with status %d", method, path, code)
		return openapi.Exchange{}
	}
	replace := func(body []byte, old, with string) []byte {
		if !strings.Contains(string(body), old) {
			t.Fatalf("%s is not in %s", old, body)
		}
		return []byte(strings.ReplaceAll(string(body), old, with))
	}
	for name, broken := range map[string]func() openapi.Exchange{
		"an unknown field of a request": func() openapi.Exchange {
			e := find(http.MethodPost, "/v2/load_balancers", http.StatusAccepted)
			e.RequestBody = replace(e.RequestBody, `"network_stack"`, `"networkstack"`)
			return e
		},
		"an unknown field of a response": func() openapi.Exchange {
			e := find(http.MethodGet, "/v2/droplets", http.StatusOK)
			e.ResponseBody = replace(e.ResponseBody, `"size_slug"`, `"slug_size"`)
			return e
		},
		"a word that is not allowed": func() openapi.Exchange {
			e := find(http.MethodPost, "/v2/load_balancers", http.StatusAccepted)
			e.RequestBody = replace(e.RequestBody, `"EXTERNAL"`, `"OUTSIDE"`)
			return e
		},
		"a status that is not a droplet's": func() openapi.Exchange {
			e := find(http.MethodGet, "/v2/droplets", http.StatusOK)
			e.ResponseBody = replace(e.ResponseBody, `"active"`, `"sleeping"`)
			return e
		},
		"a list without a total": func() openapi.Exchange {
			e := find(http.MethodGet, "/v2/droplets", http.StatusOK)
			e.ResponseBody = replace(e.ResponseBody, `"total"`, `"sum"`)
			return e
		},
		"an unknown query parameter": func() openapi.Exchange {
			e := find(http.MethodGet, "/v2/droplets", http.StatusOK)
			location := *e.URL
			location.RawQuery = "pageSize=200"
			e.URL = &location
			return e
		},
		"a page that is too large": func() openapi.Exchange {
			e := find(http.MethodGet, "/v2/droplets", http.StatusOK)
			location := *e.URL
			location.RawQuery = "per_page=201"
			e.URL = &location
			return e
		},
		"a status that the description has not": func() openapi.Exchange {
			e := find(http.MethodGet, "/v2/droplets", http.StatusOK)
			e.Status = http.StatusCreated
			return e
		},
		"a path that does not exist": func() openapi.Exchange {
			e := find(http.MethodGet, "/v2/droplets", http.StatusOK)
			location := *e.URL
			location.Path = "/v2/drops"
			e.URL = &location
			return e
		},
	} {
		if len(d.Check(broken())) == 0 {
			t.Errorf("%s was not found", name)
		}
	}
}

func driveAccount(t *testing.T, client *godo.Client) {
	t.Helper()
	account, _, err := client.Account.Get(background())
	must.Do(t, err)
	if account.UUID == "" || account.Status != "active" || account.DropletLimit == 0 {
		t.Errorf("account: %+v", account)
	}
	regions, _, err := client.Regions.List(background(), &godo.ListOptions{PerPage: 50})
	must.Do(t, err)
	if !slices.ContainsFunc(regions, func(r godo.Region) bool { return r.Slug == "nyc1" && r.Available }) {
		t.Error("region nyc1 is missing")
	}
	_, _, err = client.Sizes.List(background(), &godo.ListOptions{Page: 2, PerPage: 3})
	must.Do(t, err)
}

func driveDroplets(t *testing.T, client *godo.Client) {
	t.Helper()
	request := &godo.DropletCreateRequest{
		Name: "node-0", Region: "nyc1", Size: "s-2vcpu-4gb", Image: godo.DropletCreateImage{Slug: "ubuntu-24-04-x64"},
		IPv6: true, Tags: []string{"k8s:worker"}, SSHKeys: []godo.DropletCreateSSHKey{},
	}
	droplet, _, err := client.Droplets.Create(background(), request)
	must.Do(t, err)
	_, _, err = client.Droplets.CreateMultiple(background(), &godo.DropletMultiCreateRequest{
		Names: []string{"node-1", "node-2", "node-3"}, Region: "nyc1", Size: "gpu-h100x1-80gb",
		Image: godo.DropletCreateImage{ID: 1}, PublicNetworking: new(false), SSHKeys: []godo.DropletCreateSSHKey{},
	})
	must.Do(t, err)
	for range 5 {
		request.Name += "x"
		_, _, err = client.Droplets.Create(background(), request)
		must.Do(t, err)
	}
	got, _, err := client.Droplets.Get(background(), droplet.ID)
	must.Do(t, err)
	if got.Status != "active" || len(got.Networks.V4) != 2 || len(got.Networks.V6) != 1 || got.Tags[0] != "k8s:worker" {
		t.Errorf("droplet: %+v", got)
	}
	pages(t, client)
	gpus, _, err := client.Droplets.ListWithGPUs(background(), nil)
	must.Do(t, err)
	named, _, err := client.Droplets.ListByName(background(), "NODE-0", nil)
	must.Do(t, err)
	tagged, _, err := client.Droplets.ListByTag(background(), "k8s:worker", nil)
	must.Do(t, err)
	if len(gpus) != 3 || len(named) != 1 || len(tagged) != 6 {
		t.Errorf("%d droplets with GPUs, %d named, %d tagged; 3, 1 and 6 are expected", len(gpus), len(named), len(tagged))
	}
	action, _, err := client.DropletActions.PowerOff(background(), droplet.ID)
	must.Do(t, err)
	_, _, err = client.DropletActions.Get(background(), droplet.ID, action.ID)
	must.Do(t, err)
	got, _, err = client.Droplets.Get(background(), droplet.ID)
	must.Do(t, err)
	if got.Status != "off" {
		t.Errorf("a droplet without power is %s", got.Status)
	}
	_, _, err = client.DropletActions.PowerOn(background(), droplet.ID)
	must.Do(t, err)
	must.Get(client.Droplets.Delete(background(), gpus[0].ID)).Or(t)
	_, response, err := client.Droplets.Get(background(), gpus[0].ID)
	status(t, http.StatusNotFound, response, err)
	_, response, err = client.Droplets.List(background(), &godo.ListOptions{PerPage: 201})
	status(t, http.StatusUnprocessableEntity, response, err)
}

// pages walks through droplets as clients do, by links.
func pages(t *testing.T, client *godo.Client) {
	t.Helper()
	seen := map[int]bool{}
	options := &godo.ListOptions{PerPage: 2}
	for {
		droplets, response, err := client.Droplets.List(background(), options)
		must.Do(t, err)
		for _, d := range droplets {
			if seen[d.ID] {
				t.Errorf("droplet %d is on two pages", d.ID)
			}
			seen[d.ID] = true
		}
		if response.Meta.Total != 6 {
			t.Errorf("the total is %d, not 6", response.Meta.Total)
		}
		if response.Links.IsLastPage() {
			break
		}
		page := must.Get(response.Links.CurrentPage()).Or(t)
		options.Page = page + 1
	}
	if len(seen) != 6 {
		t.Errorf("%d droplets were seen, not 6", len(seen))
	}
}

func driveCertificates(t *testing.T, client *godo.Client) {
	t.Helper()
	encrypt, _, err := client.Certificates.Create(background(), &godo.CertificateRequest{
		Name: "web", Type: "lets_encrypt", DNSNames: []string{"example.com"},
	})
	must.Do(t, err)
	_, _, err = client.Certificates.Create(background(), &godo.CertificateRequest{
		Name: "own", Type: "custom", PrivateKey: "key", LeafCertificate: "leaf",
	})
	must.Do(t, err)
	byName, _, err := client.Certificates.ListByName(background(), "web", &godo.ListOptions{Page: 1, PerPage: 1})
	must.Do(t, err)
	if len(byName) != 1 || byName[0].ID != encrypt.ID || byName[0].State != "verified" {
		t.Errorf("certificates by name: %+v", byName)
	}
	_, _, err = client.Certificates.Get(background(), encrypt.ID)
	must.Do(t, err)
	own, _, err := client.Certificates.ListByName(background(), "own", nil)
	must.Do(t, err)
	must.Get(client.Certificates.Delete(background(), own[0].ID)).Or(t)
}
