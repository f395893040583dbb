// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/topology"
)

// installTopologies serves the kind RouteReflectorTopology.
func installTopologies(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	mustKubectl(t, cluster, "", "apply", "--server-side", "-f", filepath.Join(testkit.Root(t), "config", "crd", "bases", v1alpha1.GroupVersion.Group+"_routereflectortopologies.yaml"))
	served(t, cluster, "routereflectortopologies."+v1alpha1.GroupVersion.Group)
}

// served waits until a kind is: kubectl wait ends at once where it has no conditions yet.
func served(t *testing.T, cluster *controlplane.Cluster, kind string) {
	t.Helper()
	testkit.Eventually(t, "the kind to be served", func() string {
		if out, err := kubectl(t, cluster, "", "get", kind); err != nil {
			return out
		}
		return ""
	})
}

// makeTopology makes a topology with a status.
func makeTopology(t *testing.T, cluster *controlplane.Cluster, name string, status map[string]any) {
	t.Helper()
	mustKubectl(t, cluster, `{"apiVersion":"`+v1alpha1.GroupVersion.String()+`","kind":"RouteReflectorTopology","metadata":{"name":"`+name+`"}}`, "create", "-f", "-")
	text, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, cluster, "", "patch", "rrt", name, "--type=merge", "--subresource=status", "-p", string(text))
}

// makeNode makes a Node that is Ready, with labels and the address that calico-node writes.
func makeNode(t *testing.T, cluster *controlplane.Cluster, name, providerID, address string, labels map[string]string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	if address != "" {
		n.Annotations = map[string]string{routereflector.IPv4Annotation: address}
	}
	made, err := cluster.Client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := cluster.Client.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The commands look at one cluster, which each finds as the one before has left it.
func TestCommandsThatShowACluster(t *testing.T) { //nolint:paralleltest // the kinds are cluster-scoped
	cluster := controlplane.New(t)
	testDoctor(t, cluster)
	explainNothing(t, cluster)
	planNothing(t, cluster)
	testTopology(t, cluster)
	confirmTopologies(t, cluster)
	testAgreement(t, cluster)
	testExplain(t, cluster)
	testPlans(t, cluster)
	testUI(t, cluster)
	testDoctorCertificates(t, cluster)
	testDoctorStorages(t, cluster)
}

// A cluster's topologies, in each format; bad input is told in one sentence.
func testTopology(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	base := []string{"topology", "--kubeconfig", cluster.Kubeconfig}
	ask := func(args ...string) []string { return append(slices.Clone(base), args...) }
	expect(t, 1, "", ask(), "error: the cluster has no kind RouteReflectorTopology: install calico-route-reflector-operator first")
	installTopologies(t, cluster)
	expect(t, 0, "", ask(), "note: there is no RouteReflectorTopology; for reflectors that others made see\nkubectl mooring doctor routereflectors\n")
	expect(t, 0, "", []string{"plan", "rr", "--kubeconfig", cluster.Kubeconfig}, "note: there is no RouteReflectorTopology; --filename and --nodes plan for files\n")
	const zone = "topology.kubernetes.io/zone"
	makeNode(t, cluster, "r1", "", "10.0.0.1/24", map[string]string{zone: "a", v1alpha1.ReflectorLabel: "main"})
	makeNode(t, cluster, "c1", "", "10.0.0.2/24", map[string]string{zone: "a"})
	makeNode(t, cluster, "c2", "", "10.0.0.3/24", map[string]string{zone: "b", "bgp.mooring.dev/client": "2"})
	makeNode(t, cluster, "no-calico", "", "", nil)
	makeTopology(t, cluster, "main", map[string]any{
		"phase": "Ready", "mode": "Flat", "mesh": "Off", "sessions": map[string]any{"established": 2, "expected": 2, "summary": "2/2"},
		"reflectors": []any{map[string]any{"node": "r1", "zone": "a", "clusterID": "244.0.0.1", "role": "Reflector", "clients": 2, "established": 2}},
	})
	const tree = `Topology main: Ready, Flat, 2 clients of 1 reflector, sessions 2/2, mesh Off
└─ one group (cluster ID 244.0.0.1): 1 reflector, 2 clients
   ├─ * r1   zone a   2/2 sessions
   ├─ zone a: 1 client   c1
   └─ zone b: 1 client   c2
`
	if code, out, errs := run(t, ask()); code != 0 || out != tree || errs != "" {
		t.Errorf("exit code %d, %s, %s", code, out, errs)
	}
	makeTopology(t, cluster, "other", map[string]any{})
	if code, out, _ := run(t, ask("main")); code != 0 || out != tree {
		t.Errorf("one of two: %s", out)
	}
	for format, want := range map[string]string{
		"svg": "<svg xmlns=", "dot": "graph topologies {", "mermaid": "graph TD\n", "name": "routereflectortopology.bgp.mooring.dev/main\nroutereflectortopology.bgp.mooring.dev/other\n",
		"yaml": "topologies:\n- ",
	} {
		if code, out, errs := run(t, ask("-o", format)); code != 0 || !strings.HasPrefix(out, want) || errs != "" {
			t.Errorf("%s: exit code %d, %s, %s", format, code, out, errs)
		}
	}
	var list struct {
		Topologies []topology.Map `json:"topologies"`
	}
	if _, out, _ := run(t, ask("-o", "json")); json.Unmarshal([]byte(out), &list) != nil || len(list.Topologies) != 2 || list.Topologies[0].Groups[0].Reflectors[0].Node != "r1" {
		t.Errorf("JSON: %s", out)
	}
	_, completed, _ := run(t, []string{"__complete", "topology", "--kubeconfig", cluster.Kubeconfig, ""})
	if !strings.HasPrefix(completed, "main\nother\n") {
		t.Errorf("completes %s", completed)
	}
	expect(t, 1, "", ask("nope"), `error: there is no RouteReflectorTopology "nope"`)
	expect(t, 1, "", ask("-o", "png"), "use one of tree, svg, dot, mermaid, json, yaml, name")
	expect(t, 1, "", ask("a", "b"), "error: ")
	expect(t, 1, "", []string{"topology", "--kubeconfig", "/no/such/file"}, "error: reading the kubeconfig, pass --kubeconfig or --context to choose another")
}
