// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// plannedTopologies are the keys that programs rely on.
type plannedTopologies struct {
	Topologies []plannedTopology `json:"topologies"`
}

type plannedTopology struct {
	Topology string                   `json:"topology"`
	Steps    []v1alpha1.PlanStep      `json:"steps"`
	Waiting  string                   `json:"waiting"`
	Held     string                   `json:"held"`
	Refusals []routereflector.Refusal `json:"refusals"`
	NotRead  []string                 `json:"notRead"`
}

const topologyFile = "apiVersion: bgp.mooring.dev/v1alpha1\nkind: RouteReflectorTopology\nmetadata: {name: main}\n"

// nodesFile are Ready Nodes, of which the first are reflectors of the topology main.
func nodesFile(count, reflectors int) string {
	var items []string
	for i := range count {
		labels, annotations := "", ""
		if i < reflectors {
			labels, annotations = `"bgp.mooring.dev/reflector":"main",`, `"`+routereflector.ClusterIDAnnotation+`":"244.0.0.1",`
		}
		items = append(items, fmt.Sprintf(`{"kind":"Node","metadata":{"name":"n%d","labels":{%s"topology.kubernetes.io/zone":"%c"},"annotations":{%s"%s":"10.0.0.%d/24"}},
			"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, i, labels, 'a'+i%3, annotations, routereflector.IPv4Annotation, i+1))
	}
	return `{"kind":"List","items":[` + strings.Join(items, ",") + `]}`
}

// From files, word for word, and without a cluster.
func TestPlanRouteReflectorsFromFiles(t *testing.T) {
	t.Parallel()
	nodes := write(t, "nodes.json", nodesFile(7, 0))
	ask := func(args ...string) []string {
		return append([]string{"plan", "routereflectors", "--kubeconfig", "/no/such/file"}, args...)
	}
	const assumed = "note: which pods run on the nodes is not read, so all count as free of workloads\n"
	topology := write(t, "t.yaml", topologyFile)
	code, out, notes := run(t, ask("-f", topology, "--nodes", nodes, "--simulate"))
	if code != 2 || notes != assumed {
		t.Errorf("exit code %d, %q", code, notes)
	}
	golden(t, "plan-routereflectors", out)

	manual := write(t, "manual.yaml", topologyFile+"spec: {rollout: {mode: Manual}}\n")
	code, out, _ = run(t, ask("-f", manual, "--nodes", nodes))
	if code != 2 || !strings.Contains(out, "\nHeld back: set spec.rollout.approvedPlan to ") || !strings.HasSuffix(out, " to have the plan carried out.\n") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for _, format := range []string{"json", "yaml"} {
		code, out, _ = run(t, ask("-f", manual, "--nodes", nodes, "-o", format))
		var got plannedTopologies
		if err := yaml.Unmarshal([]byte(out), &got); err != nil || code != 2 || len(got.Topologies) != 1 {
			t.Fatalf("%s: exit code %d, %v: %s", format, code, err, out)
		}
		one := got.Topologies[0]
		if one.Topology != "main" || len(one.Steps) != 6 || one.Steps[2].Object != "Node/n1" || !strings.HasPrefix(one.Held, "set spec.rollout.approvedPlan to ") {
			t.Errorf("%s: %+v", format, one)
		}
	}

	peers := write(t, "peers.yaml", `kind: BGPPeerList
items:
- metadata: {name: main-clients, labels: {bgp.mooring.dev/topology: main}}
  spec: {nodeSelector: "!has(bgp.mooring.dev/reflector)", peerSelector: "bgp.mooring.dev/reflector == 'main'"}
- metadata: {name: main-reflectors, labels: {bgp.mooring.dev/topology: main}}
  spec: {nodeSelector: "bgp.mooring.dev/reflector == 'main'", peerSelector: "bgp.mooring.dev/reflector == 'main'"}
`)
	off := write(t, "off.yaml", "kind: BGPConfiguration\nmetadata: {name: default}\nspec: {nodeToNodeMeshEnabled: false}\n")
	code, out, _ = run(t, ask("-f", topology, "--nodes", write(t, "after.json", nodesFile(7, 3)), "--bgppeers", peers, "--bgpconfiguration", off))
	if code != 0 || !strings.Contains(out, "\nNothing to do.\n") {
		t.Errorf("as it shall be: exit code %d, %s", code, out)
	}
	refused := write(t, "refused.yaml", topologyFile+"spec: {mode: Hierarchical, sizing: {perZone: {}}}\n")
	if code, out, _ = run(t, ask("-f", refused, "--nodes", nodes)); code != 2 || !strings.Contains(out, "\nRefused (") {
		t.Errorf("refused: exit code %d, %s", code, out)
	}
	paused := write(t, "paused.yaml", topologyFile+"spec: {paused: true}\n")
	if code, out, _ = run(t, ask("-f", paused, "--nodes", nodes)); code != 0 || !strings.Contains(out, "\nRefused (Paused)") {
		t.Errorf("paused: exit code %d, %s", code, out)
	}
}

func TestPlanRouteReflectorsRefusals(t *testing.T) {
	t.Parallel()
	nodes, topology := write(t, "nodes.json", nodesFile(3, 0)), write(t, "t.yaml", topologyFile)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a topology alone":  {[]string{"-f", topology}, "--filename and --nodes: both are needed to plan from files; without any file the cluster is read"},
		"nodes alone":       {[]string{"--nodes", nodes}, "--filename and --nodes: both are needed to plan from files; without any file the cluster is read"},
		"a name besides":    {[]string{"-f", topology, "--nodes", nodes, "main"}, `"main" is too much: files are planned for the first topology of --filename`},
		"standard input":    {[]string{"-f", "-", "--nodes", "-"}, `standard input ("-") can be read for only one of the flags`},
		"no such file":      {[]string{"-f", topology, "--nodes", "/no/such/file"}, "--nodes: open /no/such/file: no such file or directory"},
		"another kind":      {[]string{"-f", nodes, "--nodes", nodes}, "there is no RouteReflectorTopology in it"},
		"no kubeconfig":     {[]string{"--kubeconfig", "/no/such/file"}, "reading the kubeconfig, pass --kubeconfig or --context to choose another"},
		"an unknown format": {[]string{"-o", "svg"}, "use one of text, json, yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := run(t, append([]string{"plan", "rr"}, test.args...))
			if code != 1 || out != "" || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, %q, %q; want %q", code, out, errs, test.want)
			}
		})
	}
}

// planReflectors plans for the topologies main and other of a cluster, in both of Calico's datastores.
func planReflectors(t *testing.T, cluster *controlplane.Cluster, kubeconfig string) {
	t.Helper()
	ask := func(args ...string) []string {
		return append([]string{"plan", "rr", "--kubeconfig", kubeconfig}, args...)
	}
	planned := func(code int, args ...string) []plannedTopology {
		t.Helper()
		var got plannedTopologies
		if out := expect(t, code, "", ask(append(args, "-o", "json")...)); json.Unmarshal([]byte(out), &got) != nil {
			t.Fatalf("no JSON: %s", out)
		}
		return got.Topologies
	}
	steps := []string{"EnsurePeer BGPPeer/main-clients: there is no such BGPPeer", "EnsurePeer BGPPeer/main-reflectors: there is no such BGPPeer"}
	expect(t, 2, "", ask(), "Topology main: Flat, ", "\n1. "+steps[0]+"\n2. "+steps[1]+"\n3. Promote Node/", "\nTopology other: Flat, ", "\nRefused (OverlappingTopology): RouteReflectorTopology main is older ")
	all := planned(2)
	if len(all) != 2 || all[0].Topology != "main" || all[1].Topology != "other" || len(all[1].Steps) > 0 || len(all[1].Refusals) == 0 {
		t.Fatalf("all: %+v", all)
	}
	main := all[0]
	line := func(s v1alpha1.PlanStep) string { return s.Kind + " " + s.Object + ": " + s.Reason }
	if len(main.Steps) < 3 || line(main.Steps[0]) != steps[0] || line(main.Steps[1]) != steps[1] || main.Held != "" || main.Waiting != "" || len(main.NotRead) > 0 {
		t.Fatalf("main: %+v", main)
	}
	if one := planned(2, "main"); len(one) != 1 || one[0].Topology != "main" {
		t.Errorf("one of two: %+v", one)
	}

	// What the first step waits for is the operator's to say, if it says it of that step.
	patch := func(subresource, text string) {
		t.Helper()
		mustKubectl(t, cluster, "", append([]string{"patch", "rrt", "main", "--type=merge", "-p", text}, subresource)...)
	}
	patch("--subresource=", `{"spec":{"rollout":{"mode":"Manual"}}}`)
	held := planned(2, "main")[0].Held
	hash, _, _ := strings.Cut(strings.TrimPrefix(held, "set spec.rollout.approvedPlan to "), " ")
	said := func(object string) string {
		return fmt.Sprintf(`{"status":{"plan":{"hash":"%s","waitingFor":"somebody","steps":[{"kind":"EnsurePeer","object":"%s","reason":"x"}]}}}`, hash, object)
	}
	patch("--subresource=status", said("BGPPeer/main-clients"))
	expect(t, 2, "", ask("main"), "\nThe first step waits: somebody.\n", "\nHeld back: set spec.rollout.approvedPlan to "+hash+" to have the plan carried out.\n")
	patch("--subresource=status", said("BGPPeer/main-reflectors"))
	if waits := planned(2, "main")[0].Waiting; waits != "" {
		t.Errorf("of another step: it waits for %q", waits)
	}
	patch("--subresource=status", `{"status":{"plan":null}}`)
	patch("--subresource=", `{"spec":{"rollout":{"mode":"Auto"},"paused":true}}`)
	expect(t, 0, "", ask("main"), "\nRefused (Paused): ")
	mustKubectl(t, cluster, `{"apiVersion":"crd.projectcalico.org/v1","kind":"BGPPeer","metadata":{"name":"broken"},"spec":{"nodeSelector":"has("}}`, "create", "-f", "-")
	expect(t, 2, "", ask("main"), "\nNot read: BGPPeer broken: spec.nodeSelector ")
	if unread := planned(2, "main")[0].NotRead; len(unread) != 1 {
		t.Errorf("not read: %q", unread)
	}
	mustKubectl(t, cluster, "", "delete", "bgppeers.crd.projectcalico.org", "broken")
	patch("--subresource=", `{"spec":{"paused":null}}`)

	mustKubectl(t, cluster, `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPPool","metadata":{"name":"pods"},"spec":{"cidr":"10.244.0.0/16","vxlanMode":"Always"}}`, "create", "-f", "-")
	expect(t, 2, "", ask("main"), "note: route reflectors are not needed: BGP carries no route between nodes, since", "Felix programs those of IP pools pods (VXLAN); keep them only for")
	mustKubectl(t, cluster, "", "delete", "ippools.crd.projectcalico.org", "pods")

	_, completed, _ := run(t, []string{"__complete", "plan", "rr", "--kubeconfig", kubeconfig, "main", ""})
	if completed != "other\n:4\n" {
		t.Errorf("completes %q", completed)
	}
	expect(t, 1, "", ask("nope"), `error: there is no RouteReflectorTopology "nope"`)
	patch("--subresource=", `{"spec":{"failure":{"stabilization":"0s"}}}`)
	planReflectorsInEtcd(t, planned)
	patch("--subresource=", `{"spec":{"failure":null}}`)
}

// planReflectorsInEtcd: Calico's Nodes count, whatever stands on Kubernetes' own, and another cluster's are refused.
func planReflectorsInEtcd(t *testing.T, planned func(code int, args ...string) []plannedTopology) {
	t.Helper()
	etcd := testkit.NewEtcd(t)
	put := func(key, value string) {
		t.Helper()
		if _, err := etcd.Client.Put(t.Context(), "/calico/resources/v3/projectcalico.org/"+key, value); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"r1", "c1", "c2", "d1"} {
		put("nodes/"+name, fmt.Sprintf(`{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"%s"},"spec":{"bgp":{"ipv4Address":"10.0.0.%d/24"},"orchRefs":[{"nodeName":"%s","orchestrator":"k8s"}]}}`, name, i+1, name))
	}
	info := func(annotation string) {
		put("clusterinformations/default", `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","annotations":{`+annotation+`}},"spec":{"datastoreReady":true}}`)
	}
	info("")
	t.Setenv("ETCD_ENDPOINTS", etcd.Endpoint)
	before := etcd.Revision(t)
	main := planned(2, "main")[0]
	promotes := slices.DeleteFunc(main.Steps, func(s v1alpha1.PlanStep) bool { return s.Kind != "Promote" })
	if len(promotes) != 3 || len(main.Refusals) > 0 {
		t.Errorf("nobody is a reflector in etcd: %+v", main)
	}
	if after := etcd.Revision(t); after != before {
		t.Errorf("the store moved from revision %d to %d", before, after)
	}
	info(`"` + routereflector.BindingAnnotation + `":"another"`)
	if main := planned(2, "main")[0]; len(main.Steps) > 0 || len(main.Refusals) != 1 || main.Refusals[0].Reason != routereflector.ReasonForeignDatastore {
		t.Errorf("another cluster's etcd: %+v", main)
	}
	clearEnvironment(t)
}
