// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/controller"
	"github.com/mooring-dev/mooring/internal/routereflector/predecessor"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	migrationPage    = "../../docs/migration/calico-route-reflector-operator.md"
	environmentFile  = "dist/calico-route-reflector-operator-environment.yaml"
	kubeconfigFile   = "dist/calico-route-reflector-operator-kdd.yaml"
	oldReflectorKey  = "calico-route-reflector"
	handReflectorKey = "route-reflector"
)

// migration is a cluster with somebody's reflectors, and a reader of the page.
type migration struct {
	*shell
	admin   client.Client
	cluster *controlplane.Cluster
	blocks  map[string][]string
}

func newMigration(t *testing.T) *migration {
	t.Helper()
	c := controlplane.New(t)
	m := &migration{shell: newShell(t, c), admin: installReflectors(t, c), cluster: c, blocks: commandsOf(t, migrationPage)}
	makeReflectorNodes(t, m.admin, 6)
	c.InstallCalicoCRDs(t)
	openDatastore(t, m.admin, calicoCRDs())
	m.must(`kubectl apply -f - <<'END'
apiVersion: crd.projectcalico.org/v1
kind: BGPConfiguration
metadata:
  name: default
spec:
  nodeToNodeMeshEnabled: false
END`)
	return m
}

// reflect makes nodes reflectors as somebody does: each with a label and a cluster ID.
func (m *migration) reflect(key string, of map[string][2]string) {
	m.t.Helper()
	for node, is := range of {
		m.must(fmt.Sprintf("kubectl label node %s %s=%s && kubectl annotate node %s projectcalico.org/RouteReflectorClusterID=%s", node, key, is[0], node, is[1]))
	}
}

// peer creates a BGPPeer as somebody does.
func (m *migration) peer(name, from, to string) {
	m.t.Helper()
	m.must(fmt.Sprintf("kubectl apply -f - <<'END'\napiVersion: crd.projectcalico.org/v1\nkind: BGPPeer\nmetadata: {name: %s}\nspec: {nodeSelector: %q, peerSelector: %q}\nEND",
		name, from, to))
}

// ids are the reflectors with their IDs, and peers the names of all BGPPeers.
func (m *migration) ids() map[string]string {
	m.t.Helper()
	var nodes corev1.NodeList
	must.Do(m.t, m.admin.List(m.t.Context(), &nodes))
	out := map[string]string{}
	for _, n := range nodes.Items {
		if id := n.Annotations[routereflector.ClusterIDAnnotation]; id != "" {
			out[n.Name] = id
		}
	}
	return out
}

func (m *migration) peers() []string {
	m.t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(calicoCRDs().WithKind(apiv3.KindBGPPeer + "List"))
	must.Do(m.t, m.admin.List(m.t.Context(), list))
	var out []string
	for _, p := range list.Items {
		out = append(out, p.GetName())
	}
	slices.Sort(out)
	return out
}

// expect compares reflectors and BGPPeers, and who has our label.
func (m *migration) expect(when string, ids map[string]string, peers []string, ours bool) {
	m.t.Helper()
	if diff := cmp.Diff(ids, m.ids()); diff != "" {
		m.t.Errorf("%s: reflectors (-want +got):\n%s", when, diff)
	}
	if diff := cmp.Diff(peers, m.peers()); diff != "" {
		m.t.Errorf("%s: BGPPeers (-want +got):\n%s", when, diff)
	}
	want := []string(nil)
	if ours {
		want = slices.Sorted(maps.Keys(ids))
	}
	if got := reflectorsOf(m.t, m.admin); !slices.Equal(got, want) {
		m.t.Errorf("%s: labeled are %v, want %v", when, got, want)
	}
}

// approve runs the page's commands that show the plan, approve it and clear up after it, and returns the plan.
func (m *migration) approve() string {
	m.t.Helper()
	by := m.blocks["From reflectors made by hand"]
	plan := m.must(by[1])
	m.must(by[2])
	m.must(by[3])
	topology := must.Get(topologyMain(m.t, m.admin)).Or(m.t)
	if topology.Spec.Adopt != nil || topology.Spec.Rollout.Mode != v1alpha1.RolloutAuto || topology.Spec.Mesh != v1alpha1.MeshManage {
		m.t.Errorf("afterwards the spec is %+v", topology.Spec)
	}
	return plan
}

// back takes the way back, with the block that puts the old BGPPeers back first.
func (m *migration) back(r *reflectorsRun, first string) {
	m.t.Helper()
	blocks := m.blocks["Rollback"]
	m.must(blocks[0])
	r.Stop()
	m.must(first)
	_, rest, _ := strings.Cut(blocks[1], "\nEND\n")
	m.must(rest)
	if _, err := topologyMain(m.t, m.admin); client.IgnoreNotFound(err) != nil || err == nil {
		m.t.Errorf("the topology is there: %v", err)
	}
}

// TestReflectorsMigrationByHand goes the page's way from reflectors by hand and back, by its commands.
func TestReflectorsMigrationByHand(t *testing.T) {
	t.Parallel()
	m := newMigration(t)
	m.reflect(handReflectorKey, map[string][2]string{"node-0": {"true", "244.0.0.1"}, "node-1": {"true", "244.0.0.1"}})
	m.peer("peer-with-route-reflectors", "all()", handReflectorKey+" == 'true'")
	m.peer("rack", "all()", "rack == 'none'")
	ids := map[string]string{"node-0": "244.0.0.1", "node-1": "244.0.0.1"}
	old := []string{"peer-with-route-reflectors", "rack"}

	r := startReflectors(t, m.cluster, m.admin, calicoCRDs())
	m.must(m.blocks["From reflectors made by hand"][0])
	want := `EnsurePeer BGPPeer/main-clients: there is no such BGPPeer
EnsurePeer BGPPeer/main-reflectors: there is no such BGPPeer
Adopt Node/node-0: spec.adopt names it; it keeps its cluster ID and its sessions
Adopt Node/node-1: spec.adopt names it; it keeps its cluster ID and its sessions
RetirePeer BGPPeer/peer-with-route-reflectors: spec.adopt names it, and the topology's own BGPPeers give the same sessions
`
	m.expect("before the approval", ids, old, false)
	if plan := m.approve(); plan[strings.Index(plan, "EnsurePeer"):] != want {
		t.Errorf("the plan is\n%s", plan)
	}
	m.expect("adopted", ids, []string{"main-clients", "main-reflectors", "rack"}, true)
	first, _, _ := strings.Cut(m.blocks["Rollback"][1], "\nEND\n")
	m.back(r, first+"\nEND")
	m.expect("back", ids, old, false)
}

// TestReflectorsMigrationFromTheOldOperator has the old operator's variables make the topologies, for what its simple and its multi leave,
// by the page's commands; and goes back to simple.
func TestReflectorsMigrationFromTheOldOperator(t *testing.T) {
	t.Parallel()
	m := newMigration(t)
	server := objects.ConnectTo(t, m.cluster)
	for _, u := range files(t)[environmentFile] {
		if u.GetKind() != "Deployment" {
			must.Do(t, server.Apply(t.Context(), u))
		}
	}
	m.must("KUBECTL=kubectl COMPONENT=" + reflectorsName + " IMG=registry.example/x:1 hack/deploy.sh deploy") // what is scaled down later
	simple := []string{"peer-to-rrs-1", "rrs-to-rrs"}
	m.reflect(oldReflectorKey, map[string][2]string{"node-0": {"", "224.0.0.0"}, "node-1": {"", "224.0.0.0"}})
	m.peer(simple[0], "!has("+oldReflectorKey+")", "has("+oldReflectorKey+")")
	m.peer(simple[1], "has("+oldReflectorKey+")", "has("+oldReflectorKey+")")
	ids := map[string]string{"node-0": "224.0.0.0", "node-1": "224.0.0.0"}

	r := startReflectors(t, m.cluster, m.admin, calicoCRDs(), shippedEnvironment(t)...)
	m.awaitTopology(r)
	if out := m.must(m.blocks["From the old operator"][0]); !strings.Contains(out, "hash: ") {
		t.Errorf("%s", out)
	}
	m.expect("before the approval", ids, simple, false)
	m.approve()
	m.expect("simple", ids, []string{"main-clients", "main-reflectors"}, true)
	m.back(r, m.blocks["Rollback"][2])
	m.expect("back to simple", ids, simple, false)

	m.must("kubectl -n mooring-system delete lease " + controller.SeedLease)
	m.must("kubectl label node node-0 node-1 --overwrite " + oldReflectorKey + "=1; kubectl label node node-1 --overwrite " + oldReflectorKey + "=2")
	m.must("kubectl annotate node node-1 --overwrite projectcalico.org/RouteReflectorClusterID=224.7.7.7; kubectl delete bgppeer peer-to-rrs-1")
	for i := 2; i < 6; i++ {
		for k := 1; k < 3; k++ {
			m.peer(fmt.Sprintf("peer-to-rrs-%d-uid-%d", k, i), fmt.Sprintf("kubernetes.io/hostname == 'node-%d'", i), fmt.Sprintf("%s == '%d'", oldReflectorKey, k))
		}
	}
	r = startReflectors(t, m.cluster, m.admin, calicoCRDs(), predecessor.TopologyName+"=multi", predecessor.ClusterID+"=224.%d.%d.%d")
	m.awaitTopology(r)
	m.approve()
	m.expect("multi", map[string]string{"node-0": "224.0.0.0", "node-1": "224.0.0.0"}, []string{"main-clients", "main-reflectors"}, true)
	r.Stop()
	// A right that is missing is an answer of 403.
	if refused := r.api.refusals(); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

// awaitTopology waits until the program has made the topology of its variables.
func (m *migration) awaitTopology(r *reflectorsRun) {
	m.t.Helper()
	testkit.Eventually(m.t, "the topology main", func() string {
		_, err := topologyMain(m.t, m.admin)
		if err != nil {
			return err.Error() + "\n" + r.Output()
		}
		return ""
	})
}

// shippedEnvironment is the environment of the overlay, without where things are in a Pod.
func shippedEnvironment(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, e := range objects.OfKind[appsv1.Deployment](t, files(t)[environmentFile], "Deployment")[0].Spec.Template.Spec.Containers[0].Env {
		out = append(out, e.Name+"="+e.Value)
	}
	return out
}

// TestReflectorsOldShape: the overlays have all variables with the old defaults and the Secret of the old name, default is what is in dist/,
// and they need no rights but those to make a topology.
func TestReflectorsOldShape(t *testing.T) {
	t.Parallel()
	var want []string
	for _, v := range predecessor.Variables() {
		want = append(want, v.Name+"="+v.Default)
	}
	want = append(want, "DATASTORE_TYPE=incluster", "K8S_API_ENDPOINT=https://kubernetes.default")
	got := shippedEnvironment(t)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	rights := func(file string) []string {
		var rules []rbacv1.PolicyRule
		for _, role := range objects.OfKind[rbacv1.ClusterRole](t, files(t)[file], "ClusterRole") {
			rules = append(rules, role.Rules...)
		}
		for _, role := range objects.OfKind[rbacv1.Role](t, files(t)[file], "Role") {
			rules = append(rules, role.Rules...)
		}
		return flat("", rules)
	}
	base := rights(reflectorsFile)
	for _, file := range []string{environmentFile, kubeconfigFile} {
		more := slices.DeleteFunc(rights(file), func(r string) bool { return slices.Contains(base, r) })
		create := rightTo{group: v1alpha1.GroupVersion.Group, resource: "routereflectortopologies", verb: "create"}
		get := rightTo{group: "coordination.k8s.io", resource: "leases", verb: "get", name: controller.SeedLease}
		if diff := cmp.Diff([]string{create.String(), get.String()}, more); diff != "" {
			t.Errorf("%s: rights alongside those without variables (-want +got):\n%s", file, diff)
		}
	}
	pod := objects.OfKind[appsv1.Deployment](t, files(t)[kubeconfigFile], "Deployment")[0].Spec.Template.Spec
	if !slices.Contains(pod.Containers[0].Args, "--kubeconfig=/etc/kdd/KUBECONFIG") || len(pod.Volumes) != 1 || pod.Volumes[0].Secret.SecretName != "kdd-config" {
		t.Errorf("%v, %+v", pod.Containers[0].Args, pod.Volumes)
	}

	kustomize := filepath.Join(testkit.Root(t), "bin", "kustomize")
	if _, err := os.Stat(kustomize); err != nil {
		testkit.Skip(t, "it needs bin/kustomize: run `make bin/kustomize`")
	}
	out, err := exec.CommandContext(t.Context(), kustomize, "build", "../../config/"+reflectorsName+"/default").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sorted := func(all []*unstructured.Unstructured) []*unstructured.Unstructured {
		return slices.SortedFunc(slices.Values(all), func(a, b *unstructured.Unstructured) int {
			return strings.Compare(a.GetKind()+a.GetName(), b.GetKind()+b.GetName())
		})
	}
	if diff := cmp.Diff(sorted(files(t)[environmentFile]), sorted(objects.Parse(t, "default", out))); diff != "" {
		t.Errorf("dist and default (-dist +default):\n%s", diff)
	}
}

// TestReflectorsMigrationPageHasAll: the table of variables names each with its default, and the page every reason for which adopting is refused.
func TestReflectorsMigrationPageHasAll(t *testing.T) {
	t.Parallel()
	content := must.Get(os.ReadFile(migrationPage)).Or(t)
	_, section, _ := strings.Cut(string(content), "\n### The variables\n")
	section, _, _ = strings.Cut(section, "\n### ")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\|([^|]*)\|`).FindAllStringSubmatch(section, -1) {
		for _, m := range regexp.MustCompile("`([A-Z_0-9]+)` (?:`([^`]*)`|none)").FindAllStringSubmatch(row[1], -1) {
			rows[m[1]] = m[2]
		}
	}
	for _, v := range predecessor.Variables() {
		if is, there := rows[v.Name]; !there || is != v.Default {
			t.Errorf("the page has %s with the default %q; want %q", v.Name, is, v.Default)
		}
	}
	for _, name := range []string{"DATASTORE_TYPE", "K8S_API_ENDPOINT"} {
		if _, there := rows[name]; !there {
			t.Errorf("the page has no row for %s", name)
		}
	}
	for _, needed := range []string{string(routereflector.ReasonCannotAdopt), controller.SeedLease, "`adopt`"} {
		if !strings.Contains(string(content), needed) {
			t.Errorf("the page does not name %s", needed)
		}
	}
}
