// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// cloudPage is the page of the cloud component.
const cloudPage = "../../docs/components/digitalocean-cloud-controller-manager.md"

// documentedCalls reads the table of calls and scopes: "| `GET /v2/account` | `account:read` | what for |". The keys are without the names of the
// variable parts, which differ.
func documentedCalls(t *testing.T) map[string][]string {
	t.Helper()
	content := must.Get(os.ReadFile(cloudPage)).Or(t)
	calls := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| `((?:GET|POST|PUT|DELETE) /v2/[^`]+)` \\| ((?:`[a-z_]+:[a-z]+`(?:, )?)+)[^|]* \\| .+ \\|$")
	for _, m := range row.FindAllStringSubmatch(string(content), -1) {
		for _, scope := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[2], -1) {
			calls[nameless(m[1])] = append(calls[nameless(m[1])], scope[1])
		}
	}
	if len(calls) == 0 {
		t.Fatalf("%s has no table of calls", cloudPage)
	}
	return calls
}

func nameless(route string) string {
	return regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(route, "{}")
}

// scopesOf returns the scopes of all calls, each once.
func scopesOf(calls map[string][]string) []string {
	all := map[string]bool{}
	for _, scopes := range calls {
		for _, scope := range scopes {
			all[scope] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// unhurried are the calls of what waits for minutes before it looks for the first time; package clustertag's own tests see them made.
func unhurried() []string { return []string{"POST /v2/tags", "POST /v2/tags/{}/resources"} }

// compareCalls compares the documented calls with those that were made.
func compareCalls(t *testing.T, cloud *sim.Simulator, documented map[string][]string) {
	t.Helper()
	made := map[string]bool{}
	for route := range cloud.Stats().Routes {
		made[nameless(route)] = true
		if documented[nameless(route)] == nil {
			t.Errorf("%s does not list the call %s", cloudPage, route)
		}
	}
	for route := range documented {
		if !made[route] && !slices.Contains(unhurried(), route) {
			t.Errorf("%s lists the call %s, which is not made", cloudPage, route)
		}
	}
}

// TestDocumentedScopesAreDigitalOceans compares the scopes of each call with DigitalOcean's OpenAPI description, and with the simulator.
func TestDocumentedScopesAreDigitalOceans(t *testing.T) {
	t.Parallel()
	documented := documentedCalls(t)
	check := func(source, route string, scopes []string) {
		for _, scope := range scopes {
			if have := documented[nameless(route)]; have != nil && !slices.Contains(have, scope) {
				t.Errorf("%s: %s needs %s, %s says %v", source, route, scope, cloudPage, have)
			}
		}
	}
	for _, route := range sim.Routes() {
		check("the simulator", route.Name, route.Scopes)
	}
	content := must.Get(os.ReadFile(testkit.Shared(t, "data", "digitalocean", "openapi.json"))).Or(t)
	var api struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	must.Do(t, json.Unmarshal(content, &api))
	described := map[string]bool{}
	for path, operations := range api.Paths {
		for method, raw := range operations {
			var operation struct {
				Security []map[string][]string `json:"security"`
			}
			if json.Unmarshal(raw, &operation) != nil || len(operation.Security) == 0 {
				continue // not an operation
			}
			route := strings.ToUpper(method) + " " + path
			described[nameless(route)] = true
			check("the OpenAPI description", route, operation.Security[0]["bearer_auth"])
		}
	}
	for route := range documented {
		if !described[route] {
			t.Errorf("the OpenAPI description does not have %s", route)
		}
	}
}
