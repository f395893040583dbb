// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// handMade are four nodes whose two reflectors have IDs of their own, and the BGPPeers of Calico's documentation, with a label that Kubernetes dropped.
func handMade() (nodes []*corev1.Node, peers, meshOff string) {
	for i := range 4 {
		n := &corev1.Node{
			TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("n%d", i), Labels: map[string]string{}, Annotations: map[string]string{routereflector.IPv4Annotation: fmt.Sprintf("10.0.0.%d/24", i+1)},
			},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		if i == 0 {
			n.Labels["node-role.kubernetes.io/master"] = ""
			n.Annotations[routereflector.ClusterIDAnnotation] = "244.0.0.1"
		}
		nodes = append(nodes, n)
	}
	const role = "has(node-role.kubernetes.io/master)"
	peers = `{"kind":"List","items":[{"apiVersion":"crd.projectcalico.org/v1","kind":"BGPPeer","metadata":{"name":"clients"},"spec":{"nodeSelector":"!` + role + `","peerSelector":"` + role + `"}}]}`
	return nodes, peers, `{"apiVersion":"crd.projectcalico.org/v1","kind":"BGPConfiguration","metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false}}`
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func list(t *testing.T, nodes []*corev1.Node) string {
	t.Helper()
	content, err := json.Marshal(map[string]any{"kind": "List", "items": nodes})
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// From files, word for word.
func TestDoctorRouteReflectors(t *testing.T) {
	t.Parallel()
	nodes, peers, meshOff := handMade()
	args := []string{
		"doctor", "routereflectors", "--nodes", write(t, "nodes.json", list(t, nodes)), "--bgppeers", write(t, "peers.json", peers),
		"--bgpconfiguration", write(t, "configuration.json", meshOff),
	}
	code, out, notes := run(t, args)
	if code != 2 {
		t.Errorf("exit code %d: %s", code, notes)
	}
	golden(t, "doctor-routereflectors", out)
	code, out, _ = run(t, append(args, "-o", "json"))
	var got struct {
		Findings []finding.Finding `json:"findings"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 2 || len(got.Findings) < 4 || got.Findings[0].Check != "redundancy" {
		t.Errorf("%d, %v: %s", code, err, out)
	}
}

func TestDoctorRouteReflectorsRefusals(t *testing.T) {
	t.Parallel()
	nodes, _, _ := handMade()
	good := write(t, "nodes.json", list(t, nodes))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"peers alone":       {[]string{"--bgppeers", good}, "--bgppeers and --bgpconfiguration need --nodes: give all as files, or none, to read the cluster"},
		"standard input":    {[]string{"--nodes", "-", "--bgppeers", "-"}, `standard input ("-") can be read for only one of the flags`},
		"no such file":      {[]string{"--nodes", "/no/such/file"}, "--nodes: open /no/such/file: no such file or directory"},
		"no Node in it":     {[]string{"--nodes", write(t, "a", "kind: List\nitems: []\n")}, "there is no Node in it"},
		"no selector":       {[]string{"--nodes", good, "--bgppeers", write(t, "b", "kind: BGPPeer\nmetadata: {name: x}\nspec: {nodeSelector: '(('}\n")}, `BGPPeer x: spec.nodeSelector "(("`},
		"no kubeconfig":     {[]string{"--kubeconfig", "/no/such/file"}, "reading the kubeconfig, pass --kubeconfig or --context to choose another"},
		"an argument":       {[]string{"main"}, "unknown command"},
		"an unknown format": {[]string{"-o", "svg"}, "use one of text, json, yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := run(t, append([]string{"doctor", "routereflectors"}, test.args...))
			if code != 1 || out != "" || !strings.Contains(errs, test.want) {
				t.Errorf("exit code %d, %q, %q; want %q", code, out, errs, test.want)
			}
		})
	}
}

// Read from a cluster, the findings are those that the same objects have as files, and that about the port, for which
// no file is read.
func TestDoctorRouteReflectorsOfACluster(t *testing.T) { //nolint:paralleltest // the kinds are cluster-scoped
	cluster := controlplane.New(t)
	code, _, errs := run(t, []string{"doctor", "rr", "--kubeconfig", cluster.Kubeconfig})
	if code != 1 || !strings.Contains(errs, "install Calico with the kubernetes datastore first") {
		t.Errorf("exit code %d without Calico: %s", code, errs)
	}
	cluster.InstallCalicoCRDs(t)
	nodes, peers, meshOff := handMade()
	for _, n := range nodes {
		made, err := cluster.Client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Status = n.Status
		if _, err := cluster.Client.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var items struct {
		Items []map[string]any `json:"items"`
	}
	if err := json.Unmarshal([]byte(peers), &items); err != nil {
		t.Fatal(err)
	}
	var configuration map[string]any
	if err := json.Unmarshal([]byte(meshOff), &configuration); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	for resource, object := range map[string]map[string]any{"bgppeers": items.Items[0], "bgpconfigurations": configuration} {
		to := client.Resource(schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: resource})
		if _, err := to.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := run(t, []string{"doctor", "rr", "--kubeconfig", cluster.Kubeconfig})
	if code != 2 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	golden(t, "doctor-routereflectors-cluster", out)
	inBothDatastores(t, cluster)
}
