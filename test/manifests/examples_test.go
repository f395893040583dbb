// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	examples = "../../docs/examples/digitalocean"
	// rewrite makes the test write the plans again instead of comparing them.
	rewrite = "MOORING_UPDATE_PLANS"
)

// exampleFiles returns the files with Services.
func exampleFiles(t *testing.T) []string {
	t.Helper()
	all := must.Get(filepath.Glob(examples + "/*.yaml")).Or(t)
	var out []string
	for _, path := range all {
		if filepath.Base(path) != "nodes.yaml" {
			out = append(out, path)
		}
	}
	if len(out) == 0 {
		t.Fatal("there are no examples")
	}
	return out
}

// TestExamplesHaveTheirPlans runs each example through kubectl-mooring as its README says, and compares with the plan alongside it. One
// shows what is refused; the others are planned without a warning.
func TestExamplesHaveTheirPlans(t *testing.T) {
	t.Parallel()
	readme := must.Get(os.ReadFile(examples + "/README.md")).Or(t)
	for _, path := range exampleFiles(t) {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		var out, complaint bytes.Buffer
		code := command.Run(t.Context(), plugin.NewCommand(plugin.Builtin()...), []string{
			"plan", "loadbalancer", "-f", path, "--nodes", examples + "/nodes.yaml", "--region", "nyc1", "--cluster-id", "production",
			"--certificate", "web=892071a0-bb95-49bc-8021-3afd67a210bf",
		}, &out, &complaint)
		if wrong := name == "wrong"; wrong != (code != command.ExitOK) || !wrong && (complaint.Len() > 0 || strings.Contains(out.String(), "  warning ")) {
			t.Errorf("%s: exit code %d\n%s%s", path, code, complaint.String(), out.String())
		}
		golden := filepath.Join(examples, name+".plan.txt")
		if os.Getenv(rewrite) != "" {
			must.Do(t, os.WriteFile(golden, out.Bytes(), 0o644)) //nolint:gosec // it is part of the repository
		}
		want := must.Get(os.ReadFile(golden)).Or(t)
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s is out of date, run this test with %s=1 (-want +have):\n%s", golden, rewrite, diff)
		}
		if !strings.Contains(string(readme), "["+name+".yaml]("+name+".yaml) | [plan]("+name+".plan.txt)") {
			t.Errorf("the README does not list %s", path)
		}
	}
}

// TestServerAcceptsExamples has the API server judge the Services and Nodes, in dry run.
func TestServerAcceptsExamples(t *testing.T) {
	t.Parallel()
	server := objects.Connect(t)
	for _, path := range append(exampleFiles(t), examples+"/nodes.yaml") {
		content := must.Get(os.ReadFile(path)).Or(t)
		all := objects.Parse(t, path, content)
		for _, u := range all {
			if u.GetKind() == "Service" {
				u.SetNamespace("default")
			}
		}
		server.DryRun(t, path, all)
	}
	if heard := server.Warnings(); len(heard) > 0 {
		t.Errorf("the API server warns: %q", heard)
	}
}
