// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package predecessor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// firewallVectors is firewall-vectors.json.
type firewallVectors struct {
	Meta struct {
		Name string   `json:"firewall_name"`
		Tags []string `json:"firewall_tags"`
	} `json:"meta"`
	Vectors []firewallVector `json:"vectors"`
}

type firewallVector struct {
	Name        string            `json:"name"`
	DefaultType string            `json:"default_lb_type"`
	Services    []json.RawMessage `json:"services"`
	Request     json.RawMessage   `json:"request"`
	Error       string            `json:"error"`
}

func (v firewallVector) title(i int) string {
	return fmt.Sprintf("firewall: %d (%s, default %s)", i, v.Name, v.DefaultType)
}

func loadFirewallVectors(t *testing.T) firewallVectors {
	t.Helper()
	var v firewallVectors
	load(t, "firewall-vectors.json", &v)
	if len(v.Vectors) == 0 || v.Meta.Name == "" || len(v.Meta.Tags) == 0 {
		t.Fatal("firewall-vectors.json is empty")
	}
	return v
}

// input is a vector as the pure function takes it.
func (all firewallVectors) input(t *testing.T, v firewallVector) firewall.Input {
	t.Helper()
	in := firewall.Input{Config: firewall.Config{Name: all.Meta.Name, Tags: all.Meta.Tags, DefaultType: v.DefaultType}}
	for _, raw := range v.Services {
		in.Services = append(in.Services, decode[corev1.Service](t, raw))
	}
	return in
}

// Every vector through the pure function: the same request, rules as sets, and a problem where the upstream project has an error.
func TestFirewallRequests(t *testing.T) {
	t.Parallel()
	all := loadFirewallVectors(t)
	j := &judge{t: t}
	for i, v := range all.Vectors {
		result := firewall.Desired(all.input(t, v))
		j.say(v.title(i), waivedFirewall(t, v), compareFirewall(t, v, result.Request, len(result.Problems) > 0))
	}
	j.end("pure function")
}

// Every vector through the plan command's machine form.
func TestPlanFirewallCommand(t *testing.T) {
	t.Parallel()
	all := loadFirewallVectors(t)
	j := &judge{t: t}
	for i, v := range all.Vectors {
		input := must.Get(json.Marshal(map[string]any{
			"name": all.Meta.Name, "tags": all.Meta.Tags, "defaultType": v.DefaultType, "services": v.Services,
		})).Or(t)
		root := plugin.NewCommand(plugin.Builtin()...)
		root.SetIn(bytes.NewReader(input))
		var stdout, stderr bytes.Buffer
		if code := command.Run(t.Context(), root, []string{"plan", "firewall"}, &stdout, &stderr); code != 0 || stderr.Len() != 0 {
			t.Fatalf("%s: exit code %d: %s", v.title(i), code, &stderr)
		}
		var answer struct {
			Request json.RawMessage `json:"request"`
			Error   string          `json:"error"`
		}
		must.Do(t, json.Unmarshal(stdout.Bytes(), &answer))
		j.say(v.title(i), waivedFirewall(t, v), compareFirewall(t, v, answer.Request, answer.Error != ""))
	}
	j.end("plan command")
}

// compareFirewall returns what is wrong with an answer, empty for nothing. Where the upstream project has an error, which stops it
// altogether, Mooring leaves the Service out and says so.
func compareFirewall(t *testing.T, v firewallVector, request any, problem bool) string {
	t.Helper()
	switch {
	case v.Error != "" && !problem:
		return "nothing is wrong with it, the upstream project says " + v.Error
	case v.Error == "" && problem:
		return "a Service is left out, the upstream project leaves none out"
	case v.Error != "":
		return ""
	}
	got := must.Get(json.Marshal(request)).Or(t)
	want, is := canonicalFirewall(t, v.Request), canonicalFirewall(t, got)
	if !bytes.Equal(want, is) {
		return fmt.Sprintf("\nsends %s\nwant  %s", is, want)
	}
	return ""
}
