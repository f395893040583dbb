// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/archtest"
)

// ownPath tells this repository's paths in made-up graphs: they have no dot in their first element and are not the standard library's.
func ownPath(path string) bool {
	for _, prefix := range []string{"api/", "cmd/", "internal/", "lab/", "test/", "hack/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// TestCheckFindsForbiddenEdges breaks the real rules on purpose, one edge at a time: a checker that cannot fail proves nothing.
func TestCheckFindsForbiddenEdges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, imports, testImports string
		bad                        bool
	}{
		"a planner may use values":                 {from: "internal/nodesync", imports: "strings"},
		"a planner may use Kubernetes' types":      {from: "internal/nodesync", imports: "k8s.io/api/core/v1"},
		"a planner may use our API":                {from: "internal/routereflector", imports: "api/bgp/v1alpha1"},
		"a planner has no context":                 {from: "internal/nodesync", imports: "context", bad: true},
		"a planner has no HTTP":                    {from: "internal/docloud/loadbalancer", imports: "net/http", bad: true},
		"a planner has no files":                   {from: "internal/etcdstorage/pki", imports: "os", bad: true},
		"a planner has no chance":                  {from: "internal/nodesync", imports: "math/rand/v2", bad: true},
		"a planner has no logger":                  {from: "internal/nodesync", imports: "log/slog", bad: true},
		"a planner has no client":                  {from: "internal/nodesync", imports: "k8s.io/client-go/kubernetes", bad: true},
		"a planner does not know its adapter":      {from: "internal/nodesync", imports: "internal/calico", bad: true},
		"a planner does not know its controller":   {from: "internal/nodesync", imports: "internal/nodesync/controller", bad: true},
		"a planner's tests may use anything":       {from: "internal/nodesync", testImports: "os"},
		"a planner's tests may use the kit":        {from: "internal/nodesync", testImports: "internal/testkit/gen"},
		"the API has apimachinery only":            {from: "api/bgp/v1alpha1", imports: "sigs.k8s.io/controller-runtime/pkg/scheme", bad: true},
		"an adapter may know the domain":           {from: "internal/calico", imports: "internal/nodesync"},
		"an adapter does not know the controller":  {from: "internal/calico", imports: "internal/nodesync/controller", bad: true},
		"a controller may use its adapter":         {from: "internal/nodesync/controller", imports: "internal/calico"},
		"a controller does not know its app":       {from: "internal/nodesync/controller", imports: "internal/nodesync/app", bad: true},
		"components do not know each other":        {from: "internal/nodesync/controller", imports: "internal/routereflector", bad: true},
		"nor do their tests":                       {from: "internal/nodesync", testImports: "internal/routereflector", bad: true},
		"an app does not use another's adapter":    {from: "internal/docloud/app", imports: "internal/calico", bad: true},
		"platform knows no component":              {from: "internal/platform/manager", imports: "internal/nodesync", bad: true},
		"main may use its app":                     {from: "cmd/calico-node-sync", imports: "internal/nodesync/app"},
		"main does not wire controllers":           {from: "cmd/calico-node-sync", imports: "internal/nodesync/controller", bad: true},
		"a simulator does not use the adapter":     {from: "internal/sim/caliconode", imports: "internal/calico", bad: true},
		"a product does not use a simulator":       {from: "internal/nodesync/app", imports: "internal/sim/kubelet", bad: true},
		"a product's tests may use a simulator":    {from: "internal/nodesync/app", testImports: "internal/sim/kubelet"},
		"a product does not use the kit":           {from: "internal/calico", imports: "internal/testkit", bad: true},
		"the lab may use simulators":               {from: "lab/internal/machines", imports: "internal/sim/kubelet"},
		"the lab does not use the plugin":          {from: "lab/internal/cli", imports: "internal/plugin", bad: true},
		"nothing imports the lab":                  {from: "internal/testkit", imports: "lab/internal/ports", bad: true},
		"nothing imports the lab, tests included":  {from: "test/e2e", testImports: "lab/internal/ports", bad: true},
		"nothing but main imports the plugin":      {from: "internal/nodesync/app", imports: "internal/plugin", bad: true},
		"a command does not import another":        {from: "internal/plugin/status", imports: "internal/plugin/ui", bad: true},
		"a command reads by observe":               {from: "internal/plugin/status", imports: "internal/plugin/observe/overview"},
		"what reads does not know its commands":    {from: "internal/plugin/observe/evidence", imports: "internal/plugin/explain", bad: true},
		"what judges does not read":                {from: "internal/explain", imports: "internal/plugin/observe", bad: true},
		"what prints does not judge":               {from: "internal/platform/screen", imports: "internal/agreement", bad: true},
		"a new command needs a room":               {from: "internal/plugin/news", imports: "strings", bad: true},
		"a package in a new folder needs a room":   {from: "internal/utils", imports: "strings", bad: true},
		"a path that only begins alike is another": {from: "internal/nodesyncer", imports: "strings", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := archtest.Package{Path: tc.from}
			if tc.imports != "" {
				p.Imports = []string{tc.imports}
			}
			if tc.testImports != "" {
				p.TestImports = []string{tc.testImports}
			}
			violations := archtest.Check(archtest.Rooms(), []archtest.Package{p}, ownPath)
			if got := len(violations) > 0; got != tc.bad {
				t.Errorf("violations: %q; want some: %v", violations, tc.bad)
			}
			for _, v := range violations {
				if !strings.Contains(v, tc.from) {
					t.Errorf("%q does not name the package %s", v, tc.from)
				}
			}
		})
	}
}

// TestCheckBansFindsTransitiveLinks shows that a banned package is found however a binary reaches it.
func TestCheckBansFindsTransitiveLinks(t *testing.T) {
	t.Parallel()
	violations := archtest.CheckBans(archtest.Bans(), map[string][]string{
		"cmd/calico-node-sync":   {"internal/calico", "go.etcd.io/etcd/server/v3/embed", "k8s.io/client-go/rest"},
		"cmd/etcd-storage-proxy": {"k8s.io/client-go/rest", "go.etcd.io/etcd/clients"},
		"cmd/kubectl-mooring":    {"internal/sim/kubelet", "internal/plugin"},
	})
	want := []string{
		"cmd/calico-node-sync links go.etcd.io/etcd/server/v3/embed",
		"cmd/etcd-storage-proxy links k8s.io/client-go/rest",
		"cmd/kubectl-mooring links internal/sim/kubelet",
	}
	if len(violations) != len(want) {
		t.Fatalf("violations: %q; want %d", violations, len(want))
	}
	for i, w := range want {
		if !strings.HasPrefix(violations[i], w) {
			t.Errorf("violation %d is %q; want it to begin with %q", i, violations[i], w)
		}
	}
}

// TestCheckVersionsComparesSharedModulesOnly shows that a module of one side only is not a difference.
func TestCheckVersionsComparesSharedModulesOnly(t *testing.T) {
	t.Parallel()
	got := archtest.CheckVersions(
		map[string]string{"a": "v1.0.0", "b": "v1.0.0", "c": "v1.0.0"},
		map[string]string{"a": "v1.0.0", "b": "v1.1.0", "d": "v1.0.0"},
	)
	if len(got) != 1 || !strings.HasPrefix(got[0], "b is v1.0.0 in go.mod and v1.1.0") {
		t.Errorf("violations: %q; want one, about b", got)
	}
}
