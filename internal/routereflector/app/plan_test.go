// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/platform/command"
)

var update = flag.Bool("update", false, "write the golden files again")

const topology = "apiVersion: bgp.mooring.dev/v1alpha1\nkind: RouteReflectorTopology\nmetadata: {name: main}\n"

// nodes is a List of count nodes in three zones, of which the first reflectors are reflectors.
func nodes(count, reflectors int) string {
	var items []string
	for i := range count {
		labels, annotations := "", ""
		if i < reflectors {
			labels, annotations = `"bgp.mooring.dev/reflector":"main",`, `"projectcalico.org/RouteReflectorClusterID":"244.0.0.1",`
		}
		items = append(items, fmt.Sprintf(`{"kind":"Node","metadata":{"name":"n%d","labels":{%s"topology.kubernetes.io/zone":"%c"},"annotations":{%s"projectcalico.org/IPv4Address":"10.0.0.%d/24"}},
			"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, i, labels, 'a'+i%3, annotations, i+1))
	}
	return `{"kind":"List","items":[` + strings.Join(items, ",") + `]}`
}

const peersYAML = `kind: BGPPeerList
items:
- metadata: {name: main-clients, labels: {bgp.mooring.dev/topology: main}}
  spec: {nodeSelector: "!has(bgp.mooring.dev/reflector)", peerSelector: "bgp.mooring.dev/reflector == 'main'"}
- kind: BGPPeer
  metadata: {name: main-reflectors, labels: {bgp.mooring.dev/topology: main}}
  spec: {nodeSelector: "bgp.mooring.dev/reflector == 'main'", peerSelector: "bgp.mooring.dev/reflector == 'main'"}
- metadata: {name: rack}
  spec: {nodeSelector: rack == 'a', peerIP: "192.0.2.1:1790", asNumber: 65001}
`

// folder writes files and returns their folder.
func folder(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run runs the plan command in a folder and returns what it prints and its exit code.
func run(t *testing.T, dir, stdin string, args ...string) (out, notes string, err error) {
	t.Helper()
	cmd := newPlanCommand(clocktesting.NewFakePassiveClock(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var o, n bytes.Buffer
	cmd.SetOut(&o)
	cmd.SetErr(&n)
	cmd.SetIn(strings.NewReader(stdin))
	for i, a := range args {
		if strings.HasSuffix(a, ".yaml") || strings.HasSuffix(a, ".json") {
			args[i] = filepath.Join(dir, a)
		}
	}
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return o.String(), n.String(), err
}

// What is printed is a contract: text with people, JSON with programs, drawings with documents.
func TestPlanGolden(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{
		"t.yaml": topology, "nodes.json": nodes(7, 0), "many.json": nodes(12, 0), "after.json": nodes(7, 3), "peers.yaml": peersYAML,
		"off.yaml":    "kind: BGPConfiguration\nmetadata: {name: default}\nspec: {nodeToNodeMeshEnabled: false}\n",
		"refuse.yaml": topology + "spec: {mode: Hierarchical, sizing: {perZone: {}}}\n", "deep.yaml": topology + "spec: {mode: Hierarchical}\n",
	})
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"enable.txt":     {[]string{"-f", "t.yaml", "--nodes", "nodes.json", "--simulate"}, command.ExitAttention},
		"enable.json":    {[]string{"-f", "t.yaml", "--nodes", "nodes.json", "--simulate", "-o", "json"}, command.ExitAttention},
		"enable.dot":     {[]string{"-f", "t.yaml", "--nodes", "nodes.json", "-o", "dot"}, command.ExitAttention},
		"enable.mermaid": {[]string{"-f", "t.yaml", "--nodes", "nodes.json", "-o", "mermaid"}, command.ExitAttention},
		"steady.txt":     {[]string{"-f", "t.yaml", "--nodes", "after.json", "--bgppeers", "peers.yaml", "--bgpconfiguration", "off.yaml"}, 0},
		"meshon.txt":     {[]string{"-f", "t.yaml", "--nodes", "after.json", "--bgppeers", "peers.yaml"}, command.ExitAttention},
		"deep.txt":       {[]string{"-f", "deep.yaml", "--nodes", "many.json"}, command.ExitAttention},
		"deep.json":      {[]string{"-f", "deep.yaml", "--nodes", "many.json", "-o", "json"}, command.ExitAttention},
		"deep.dot":       {[]string{"-f", "deep.yaml", "--nodes", "many.json", "-o", "dot"}, command.ExitAttention},
		"deep.mermaid":   {[]string{"-f", "deep.yaml", "--nodes", "many.json", "-o", "mermaid"}, command.ExitAttention},
		"refused.txt":    {[]string{"-f", "refuse.yaml", "--nodes", "nodes.json"}, command.ExitAttention},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, notes, err := run(t, dir, "", c.args...)
			if command.Code(err) != c.code {
				t.Errorf("exit code %d, want %d: %v", command.Code(err), c.code, err)
			}
			if want := "note: which pods run on the nodes is not read, so all count as free of workloads\n"; notes != want {
				t.Errorf("notes %q", notes)
			}
			golden := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil { //nolint:gosec // a golden file is public
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The keys that programs rely on.
func TestPlanJSONFields(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"t.yaml": topology, "nodes.json": nodes(3, 0)})
	out, _, _ := run(t, dir, "", "-f", "t.yaml", "--nodes", "nodes.json", "-o", "json")
	var list map[string]json.RawMessage
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	var topologies []map[string]json.RawMessage
	if err := json.Unmarshal(list["topologies"], &topologies); err != nil || len(topologies) != 1 {
		t.Fatalf("%v: %s", err, out)
	}
	got := topologies[0]
	for _, key := range []string{"mode", "groups", "reflectors", "bgpPeers", "mesh", "steps", "checks"} {
		if got[key] == nil {
			t.Errorf("no %s", key)
		}
	}
}

// Plain nodes, as another cluster has them, on standard input.
func TestPlanAssumes(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"t.yaml": topology})
	plain := `{"kind":"NodeList","items":[{"metadata":{"name":"a"},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"InternalIP","address":"fd00::1"}]}},
		{"metadata":{"name":"b"},"status":{"addresses":[{"type":"Hostname","address":"b"},{"type":"InternalIP","address":"10.0.0.2"}]}}]}`
	out, notes, err := run(t, dir, plain, "-f", "t.yaml", "--nodes", "-")
	want := "note: which pods run on the nodes is not read, so all count as free of workloads\n" +
		"note: no Node has an address by Calico (annotation projectcalico.org/IPv4Address); their InternalIP is taken instead\n" +
		"note: no Node has conditions; all are taken as Ready\n"
	if notes != want || command.Code(err) != command.ExitAttention || !strings.Contains(out, "Note: only 2 of 3 reflectors: ") {
		t.Errorf("%d, %s\n%s", command.Code(err), notes, out)
	}
}

func TestPlanBadInput(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{
		"t.yaml": topology, "nodes.json": nodes(3, 0), "empty.json": `{"kind":"List","items":[]}`, "pod.yaml": "kind: Pod\n", "typo.yaml": topology + "spec: {redundanci: 3}\n",
		"nameless.yaml": "kind: RouteReflectorTopology\n", "broken.yaml": "a: b: c\n", "text.yaml": "hello\n",
		"peer.yaml":     "kind: BGPPeer\nmetadata: {name: p}\nspec: {nodeSelector: \"has(\"}\n",
		"address.yaml":  "kind: BGPPeer\nmetadata: {name: p}\nspec: {peerIP: nowhere}\n",
		"wrong.json":    `{"kind":"Node","metadata":{"name":"n"},"spec":{"unschedulable":"yes"}}`,
		"wrongrrt.yaml": topology + "spec: {redundancy: many}\n",
	})
	for _, c := range []struct{ args, want string }{
		{"", "--filename and --nodes: both are needed; see 'plan --help'"},
		{"-f t.yaml", "--filename and --nodes: both are needed; see 'plan --help'"},
		{"-f t.yaml --nodes nodes.json -o xml", `invalid argument "xml" for "-o, --output" flag: use one of text, json, yaml, dot, mermaid`},
		{"-f - --nodes -", `standard input ("-") can be read for only one of the flags`},
		{"-f t.yaml --nodes none.json", "--nodes: open DIR/none.json: no such file or directory"},
		{"-f t.yaml --nodes empty.json", "--nodes DIR/empty.json: there is no Node in it"},
		{"-f pod.yaml --nodes nodes.json", "--filename DIR/pod.yaml: there is no RouteReflectorTopology in it"},
		{"-f typo.yaml --nodes nodes.json", `--filename DIR/typo.yaml: RouteReflectorTopology main: json: unknown field "redundanci"`},
		{"-f nameless.yaml --nodes nodes.json", "--filename DIR/nameless.yaml: the RouteReflectorTopology has no metadata.name"},
		{"-f broken.yaml --nodes nodes.json", "--filename DIR/broken.yaml: it is neither YAML nor JSON: "},
		{"-f text.yaml --nodes nodes.json", "--filename DIR/text.yaml: it holds no Kubernetes object: "},
		{"-f wrongrrt.yaml --nodes nodes.json", "--filename DIR/wrongrrt.yaml: RouteReflectorTopology main: json: "},
		{"-f t.yaml --nodes wrong.json", "--nodes DIR/wrong.json: Node n: json: "},
		{"-f t.yaml --nodes nodes.json --bgppeers peer.yaml", `--bgppeers DIR/peer.yaml: BGPPeer p: spec.nodeSelector "has(": `},
		{"-f t.yaml --nodes nodes.json --bgppeers address.yaml", `--bgppeers DIR/address.yaml: BGPPeer p: spec.peerIP "nowhere" is not an address`},
	} {
		_, _, err := run(t, dir, "", strings.Fields(c.args)...)
		if err == nil || command.Code(err) != command.ExitError || !strings.HasPrefix(strings.ReplaceAll(err.Error(), dir, "DIR"), c.want) {
			t.Errorf("%s: %v, want\n%s", c.args, err, c.want)
		}
	}
}

// FuzzRead: whatever the files hold, there is an answer or one error.
func FuzzRead(f *testing.F) {
	f.Add([]byte(topology), []byte(nodes(3, 1)), []byte(peersYAML))
	f.Add([]byte("kind: RouteReflectorTopology\nmetadata: {name: x}\nspec: {sizing: {perZone: {}}, topologyKeys: []}"), []byte(nodes(2, 0)), []byte("---\n---\n"))
	f.Fuzz(func(t *testing.T, topologies, nodes, peers []byte) {
		dir := folder(t, map[string]string{"t": string(topologies), "n": string(nodes), "p": string(peers)})
		_, _, _ = run(t, dir, "", "-f", filepath.Join(dir, "t"), "--nodes", filepath.Join(dir, "n"), "--bgppeers", filepath.Join(dir, "p"), "-o", "json", "--simulate")
	})
}
