// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/openapi"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// upstreamWorld is the account that upstream's vectors were made against: three droplets, two certificates, one network.
func upstreamWorld(t *testing.T, vpc string, options sim.LoadBalancerOptions) *recording {
	t.Helper()
	r := record(t, sim.Options{
		Seed: 2, RateLimits: ratelimit.Limits{Hour: -1, Minute: -1}, LoadBalancers: options,
		Accounts: []sim.AccountOptions{{Name: "one", VPCs: []sim.VPC{{ID: vpc, Region: "nyc1", Default: true}}}},
	})
	account := r.sim.Account("")
	for id := 101; id <= 103; id++ {
		_, err := account.CreateDroplet(sim.DropletSpec{ID: id, Name: fmt.Sprintf("node-%d", id-100), Tags: []string{"k8s:worker"}})
		must.Do(t, err)
	}
	for id, name := range map[string]string{
		"cn000000-0000-4000-8000-0000000000cc": "my-cert", "c1f1e1d1-0000-4000-8000-000000000001": "other", "test-certificate": "third",
	} {
		must.Get(account.CreateCertificate(sim.CertificateSpec{ID: id, Name: name, DNSNames: []string{"example.com"}})).Or(t)
	}
	return r
}

// send makes a request by hand and returns its status and body.
func (r *recording) send(t *testing.T, method, path string, body any) (int, []byte) {
	t.Helper()
	var payload io.Reader = http.NoBody
	if body != nil {
		encoded := must.Get(json.Marshal(body)).Or(t)
		payload = bytes.NewReader(encoded)
	}
	request := must.Get(http.NewRequestWithContext(background(), method, r.url+path, payload)).Or(t)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := (&http.Client{Transport: bearer{sim.DefaultToken}}).Do(request)
	must.Do(t, err)
	defer response.Body.Close()
	answer := must.Get(io.ReadAll(response.Body)).Or(t)
	return response.StatusCode, answer
}

func load(t *testing.T, name string, into any) {
	t.Helper()
	data := must.Get(os.ReadFile(testkit.Shared(t, "data", "digitalocean", name))).Or(t)
	must.Do(t, json.Unmarshal(data, into))
}

// scenario is what upstream was seen to send, step by step.
type scenario struct {
	DefaultType string `json:"default_lb_type"`
	NewForGets  int    `json:"lb_new_for_gets"`
	Steps       []struct {
		Op    string `json:"op"`
		Calls []struct {
			Method string         `json:"method"`
			Path   string         `json:"path"`
			Body   map[string]any `json:"body"`
			Status int            `json:"status"`
		} `json:"calls"`
	} `json:"steps"`
}

var balancerID = regexp.MustCompile(`00000000-0000-4000-8000-[0-9]{12}`)

// replay sends the calls of a scenario and returns those that were answered otherwise than upstream's fake did.
func (r *recording) replay(t *testing.T, s scenario) []string {
	t.Helper()
	var differences []string
	id := "00000000-0000-4000-8000-000000000001"
	for _, step := range s.Steps {
		for _, call := range step.Calls {
			path := balancerID.ReplaceAllString(call.Path, id)
			var body any
			if call.Body != nil {
				body = call.Body
			}
			code, answer := r.send(t, call.Method, path, body)
			if call.Method == http.MethodPost && code == http.StatusAccepted {
				var created struct {
					LoadBalancer sim.LoadBalancer `json:"load_balancer"`
				}
				must.Do(t, json.Unmarshal(answer, &created))
				id = created.LoadBalancer.ID
			}
			if code != call.Status {
				differences = append(differences, fmt.Sprintf("%s: %s %d, not %d", step.Op, call.Method, code, call.Status))
			}
		}
	}
	return differences
}

// TestUpstreamScenarios replays what upstream's controller did. An API that is never busy and forgives changes of immutable fields, as
// upstream's fake does, answers all alike; DigitalOcean, as far as is known, refuses the three calls that are upstream's bugs.
func TestUpstreamScenarios(t *testing.T) {
	t.Parallel()
	var file struct {
		Scenarios []scenario `json:"scenarios"`
	}
	load(t, "http-scenarios.json", &file)
	if len(file.Scenarios) == 0 {
		t.Fatal("there are no scenarios")
	}
	d := description(t, openapi.Deviations())
	for _, s := range file.Scenarios {
		t.Run(s.DefaultType, func(t *testing.T) {
			t.Parallel()
			lenient := upstreamWorld(t, "vpc", sim.LoadBalancerOptions{
				ActiveAfterReads: s.NewForGets, AcceptWhileBusy: true, IgnoreImmutable: true,
			})
			if differences := lenient.replay(t, s); len(differences) > 0 {
				t.Errorf("a lenient API answers otherwise:\n%s", strings.Join(differences, "\n"))
			}
			for _, wrong := range lenient.judge(d) {
				t.Error(wrong)
			}
			strict := upstreamWorld(t, "vpc", sim.LoadBalancerOptions{ActiveAfterReads: s.NewForGets})
			want := []string{"ensure: PUT 403, not 200"} // a PUT while it is new
			if s.DefaultType == "REGIONAL_NETWORK" {
				want = append(want, "update:dualx2: PUT 422, not 200") // network_stack follows the nodes
			}
			if differences := strict.replay(t, s); !slices.Equal(differences, want) {
				t.Errorf("the API answers otherwise in\n%s\nnot in\n%s", strings.Join(differences, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// TestUpstreamRequests validates every request of a load balancer that upstream was seen to build. What is refused is refused for one of
// the known reasons: upstream does not check what DigitalOcean does.
func TestUpstreamRequests(t *testing.T) {
	t.Parallel()
	var file struct {
		Vectors []struct {
			ID      int            `json:"id"`
			Request map[string]any `json:"request"`
		} `json:"vectors"`
	}
	load(t, "loadbalancer-vectors.json", &file)
	reasons := refusalReasons()
	r := upstreamWorld(t, "5a4981aa-9653-4bd1-bef5-d6bff52042e0", sim.LoadBalancerOptions{})
	requests := 0
	for _, vector := range file.Vectors {
		if vector.Request == nil {
			continue
		}
		requests++
		vector.Request["validate_only"] = true
		code, answer := r.send(t, http.MethodPost, "/v2/load_balancers", vector.Request)
		if code == http.StatusAccepted {
			continue
		}
		reason := slices.IndexFunc(reasons, func(r *refusalReason) bool { return strings.Contains(string(answer), r.message) })
		if code != http.StatusUnprocessableEntity || reason < 0 {
			t.Errorf("vector %d is refused for no known reason: %d %s", vector.ID, code, answer)
			continue
		}
		reasons[reason].seen++
	}
	for _, reason := range reasons {
		if reason.seen == 0 {
			t.Errorf("no request is refused for %q any more: remove the reason", reason.message)
		}
	}
	if requests == 0 {
		t.Fatal("there are no requests")
	}
	for _, wrong := range r.judge(description(t, openapi.Deviations())) {
		t.Error(wrong)
	}
}

// TestUpstreamFirewalls creates every firewall that upstream was seen to build.
func TestUpstreamFirewalls(t *testing.T) {
	t.Parallel()
	var file struct {
		Vectors []struct {
			Name    string         `json:"name"`
			Request map[string]any `json:"request"`
		} `json:"vectors"`
	}
	load(t, "firewall-vectors.json", &file)
	r := upstreamWorld(t, "vpc", sim.LoadBalancerOptions{})
	requests := 0
	for _, vector := range file.Vectors {
		if vector.Request == nil {
			continue
		}
		requests++
		code, answer := r.send(t, http.MethodPost, "/v2/firewalls", vector.Request)
		if code != http.StatusAccepted {
			t.Errorf("%s: %d %s", vector.Name, code, answer)
			continue
		}
		must.Do(t, r.sim.Account("").DeleteFirewall("k8s-fw"))
	}
	if requests == 0 {
		t.Fatal("there are no requests")
	}
	for _, wrong := range r.judge(description(t, openapi.Deviations())) {
		t.Error(wrong)
	}
}

// refusalReason is why requests are refused that upstream builds.
type refusalReason struct {
	message string
	source  string
	seen    int
}

func refusalReasons() []*refusalReason {
	return []*refusalReason{
		{message: "target_port must be between", source: "a Service without node ports: upstream leaves target_port out, the description demands it"},
		{message: `target_protocol must be one of http, https, http2, tcp, udp, not \"http3\"`, source: "the description: an entry only"},
		{message: "firewall rule \\\"bogus\\\" must begin", source: "the description: ip: or cidr:"},
		{message: "http_idle_timeout_seconds must be between", source: "the description: 30 to 600"},
		{message: "health_check.unhealthy_threshold must be between", source: "DigitalOcean's documentation: 2 to 10"},
		{message: "health_check.healthy_threshold must be between", source: "DigitalOcean's documentation: 2 to 10"},
		{message: "health_check.response_timeout_seconds must be between", source: "DigitalOcean's documentation: 3 to 300"},
		{message: "health_check.check_interval_seconds must be between", source: "DigitalOcean's documentation: 3 to 300"},
	}
}
