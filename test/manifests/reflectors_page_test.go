// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// reflectorsPage is the page of the route reflectors' operator.
const reflectorsPage = "../../docs/components/calico-route-reflector-operator.md"

// commandsOf returns the blocks of commands of a page below each heading, in order.
func commandsOf(t *testing.T, page string) map[string][]string {
	t.Helper()
	content := must.Get(os.ReadFile(page)).Or(t)
	blocks := map[string][]string{}
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split(string(content), -1)[1:] {
		heading, body, _ := strings.Cut(section, "\n")
		for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(body, -1) {
			blocks[heading] = append(blocks[heading], m[1])
		}
	}
	return blocks
}

// shell runs commands as a user does: kubectl and the program are on the path, and the cluster is that of KUBECONFIG.
type shell struct {
	t    *testing.T
	dir  string
	env  []string
	root string
}

func newShell(t *testing.T, c *controlplane.Cluster) *shell {
	t.Helper()
	s := &shell{t: t, dir: t.TempDir(), root: testkit.Root(t)}
	path := filepath.Join(s.dir, "path")
	must.Do(t, os.Mkdir(path, 0o755)) //nolint:gosec // programs are found in it
	for _, name := range []string{"kubectl", reflectorsName} {
		must.Do(t, os.Symlink(testkit.Binary(t, name), filepath.Join(path, name)))
	}
	s.env = []string{"PATH=" + path + ":" + os.Getenv("PATH"), "KUBECONFIG=" + c.Kubeconfig, "HOME=" + s.dir}
	return s
}

// run runs commands in the repository's root, or elsewhere, with further variables, and returns what they print and the exit code.
func (s *shell) run(dir, commands string, env ...string) (string, int) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = dir, append(s.env, env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatalf("%s: %v", commands, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// must runs commands that work.
func (s *shell) must(commands string, env ...string) string {
	s.t.Helper()
	out, code := s.run(s.root, commands, env...)
	if code != 0 {
		s.t.Fatalf("%s\nexit code %d:\n%s", commands, code, out)
	}
	return out
}

// bgpState is what a rollback undoes.
type bgpState struct {
	MeshOn     bool
	Reflectors []string
	ClusterIDs []string
	Peers      int
	Statuses   int
	Topology   bool
}

func bgpStateOf(t *testing.T, admin client.Client) bgpState {
	t.Helper()
	is := bgpState{MeshOn: true, Reflectors: reflectorsOf(t, admin)}
	list := func(kind string) []unstructured.Unstructured {
		all := &unstructured.UnstructuredList{}
		all.SetGroupVersionKind(calicoCRDs().WithKind(kind + "List"))
		must.Do(t, admin.List(t.Context(), all))
		return all.Items
	}
	for _, c := range list(apiv3.KindBGPConfiguration) {
		if on, found, _ := unstructured.NestedBool(c.Object, "spec", "nodeToNodeMeshEnabled"); found && c.GetName() == "default" {
			is.MeshOn = on
		}
	}
	is.Peers, is.Statuses = len(list(apiv3.KindBGPPeer)), len(list(apiv3.KindCalicoNodeStatus))
	nodes := &unstructured.UnstructuredList{}
	nodes.SetAPIVersion("v1")
	nodes.SetKind("NodeList")
	must.Do(t, admin.List(t.Context(), nodes))
	for _, n := range nodes.Items {
		if n.GetAnnotations()[routereflector.ClusterIDAnnotation] != "" {
			is.ClusterIDs = append(is.ClusterIDs, n.GetName())
		}
	}
	_, err := topologyMain(t, admin)
	is.Topology = !apierrors.IsNotFound(err)
	return is
}

// TestReflectorsPagesCommandsWork runs the commands of the page, with kubectl, against a real API server: what is shown before anything is
// installed, how it is enabled, stopped, taken back, and taken back by hand without the program. And make deploy's script, which refuses
// what would leave nobody to undo it.
func TestReflectorsPagesCommandsWork(t *testing.T) {
	t.Parallel()
	blocks := commandsOf(t, reflectorsPage)
	c := controlplane.New(t)
	s := newShell(t, c)
	admin := installReflectors(t, c)
	makeReflectorNodes(t, admin, 5)
	c.InstallCalicoCRDs(t)
	openDatastore(t, admin, calicoCRDs())
	before := bgpStateOf(t, admin)

	s.lookFirst(blocks["Preview"])
	s.must("KUBECTL=kubectl COMPONENT=" + reflectorsName + " IMG=registry.example/x:1 hack/deploy.sh deploy")
	r := startReflectors(t, c, admin, calicoCRDs())
	out := s.must(blocks["Installing"][0])
	for _, want := range []string{"condition met", "MODE", "PHASE", "Ready", "MeshDisabled", "Promoted"} {
		if !strings.Contains(out, want) {
			t.Errorf("after installing, %q is not in:\n%s", want, out)
		}
	}
	for deed, want := range map[string]string{"undeploy": "/main: delete it first, so that the mesh is back", "uninstall": "/main: delete it first, with calico-route-reflector-operator running"} {
		out, code := s.run(s.root, "KUBECTL=kubectl COMPONENT="+reflectorsName+" hack/deploy.sh "+deed)
		if code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s while there is a topology: exit code %d\n%s", deed, code, out)
		}
	}
	s.must(blocks["Rolling back"][1])
	if topology, err := topologyMain(t, admin); err != nil || topology.Spec.Paused {
		t.Errorf("after a pause: %v, paused: %v", err, topology.Spec.Paused)
	}
	s.must(blocks["Rolling back"][0])
	if diff := cmp.Diff(before, bgpStateOf(t, admin)); diff != "" {
		t.Errorf("taken back (- before, + after):\n%s", diff)
	}
	s.byHand(admin, r, blocks["By hand"])
	if diff := cmp.Diff(before, bgpStateOf(t, admin)); diff != "" {
		t.Errorf("taken back by hand (- before, + after):\n%s", diff)
	}
	s.must("KUBECTL=kubectl COMPONENT=" + reflectorsName + " hack/deploy.sh undeploy; kubectl get crd routereflectortopologies." + v1alpha1.GroupVersion.Group)
	s.must("KUBECTL=kubectl hack/deploy.sh uninstall; kubectl get crd -o name | { ! grep routereflectortopologies; }")
}

// lookFirst runs the offline preview, which needs the cluster for nothing but its objects.
func (s *shell) lookFirst(blocks []string) {
	s.t.Helper()
	sample := must.Get(os.ReadFile(filepath.Join(s.root, "config", reflectorsName, "samples", "default.yaml"))).Or(s.t)
	must.Do(s.t, os.WriteFile(filepath.Join(s.dir, "topology.yaml"), sample, 0o600))
	out, code := s.run(s.dir, blocks[0])
	if code != 2 || !strings.Contains(out, "Topology main: Flat, 2 clients of 3 reflectors, mesh off in the end.") || strings.Count(out, "Promote Node/") != 3 {
		s.t.Errorf("looking first: exit code %d\n%s", code, out)
	}
	if strings.Contains(out, "InternalIP") {
		s.t.Errorf("the addresses are not Calico's:\n%s", out)
	}
}

// byHand enables the topology again, ends the program, and does what the page says.
func (s *shell) byHand(admin client.Client, r *reflectorsRun, blocks []string) {
	s.t.Helper()
	s.must("kubectl apply -f config/" + reflectorsName + "/samples/manual.yaml")
	look := commandsOf(s.t, reflectorsPage)["Preview"][1]
	s.must(`kubectl patch rrt main --type merge -p '{"spec":{"reflectors":{"required":{"matchLabels":null},"dedicated":false},"topologyKeys":["topology.kubernetes.io/zone"]}}'`)
	var hash string
	testkit.Eventually(s.t, "the plan to be shown", func() string {
		topology := must.Get(topologyMain(s.t, admin)).Or(s.t)
		if topology.Status.Plan == nil || topology.Status.ObservedGeneration != topology.Generation || topology.Status.Phase != v1alpha1.PhasePending {
			return fmt.Sprintf("%+v", topology.Status)
		}
		if c := meta.FindStatusCondition(topology.Status.Conditions, "Ready"); c == nil || c.Status != metav1.ConditionFalse || c.Reason != "AwaitingApproval" {
			return fmt.Sprintf("a plan that waits for a person: %+v", c)
		}
		hash = topology.Status.Plan.Hash
		return ""
	})
	if out := s.must(strings.ReplaceAll(look, "HASH", hash)); !strings.Contains(out, "hash: "+hash) {
		s.t.Errorf("the hash is not shown:\n%s", out)
	}
	names := awaitReady(s.t, admin, func(names []string) bool { return len(names) == 3 })
	r.Stop()
	s.must(blocks[0])
	if is := bgpStateOf(s.t, admin); !is.MeshOn {
		s.t.Error("the mesh is not on")
	}
	for _, name := range names {
		s.must(blocks[1], "NODE="+name)
	}
	s.must(blocks[2])
}

// TestReflectorsPageHasEveryField: the page names each field of the spec, and its default where the API server fills one in.
func TestReflectorsPageHasEveryField(t *testing.T) {
	t.Parallel()
	content := must.Get(os.ReadFile(reflectorsPage)).Or(t)
	_, section, _ := strings.Cut(string(content), "\n## The object\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(section, -1) {
		rows[m[1]] = m[2]
	}
	var crd *apiextensionsv1.CustomResourceDefinition
	for _, u := range files(t)[reflectorsFile] {
		if u.GetKind() == "CustomResourceDefinition" {
			crd = objects.As[apiextensionsv1.CustomResourceDefinition](t, u)
		}
	}
	seen := 0
	var walk func(path string, properties map[string]apiextensionsv1.JSONSchemaProps)
	walk = func(path string, properties map[string]apiextensionsv1.JSONSchemaProps) {
		for name, field := range properties {
			full := strings.TrimPrefix(path+"."+name, ".")
			if slices.Contains([]string{"reflectors", "sizing", "failure", "rollout"}, full) {
				walk(full, field.Properties)
				continue
			}
			seen++
			stated, known := rows[full]
			if !known && !strings.Contains(section, "`"+full+"`") {
				t.Errorf("the page does not name spec.%s", full)
			}
			for inner := range field.Properties {
				if (full == "session" || full == "sizing.perZone") && !strings.Contains(section, "`"+inner+"`") {
					t.Errorf("the page does not name spec.%s.%s", full, inner)
				}
			}
			if d := field.Default; d != nil && !strings.ContainsAny(string(d.Raw), "{[") && !strings.Contains(stated, strings.Trim(string(d.Raw), `"`)) {
				t.Errorf("spec.%s is %s by default, the page says %s", full, d.Raw, stated)
			}
			delete(rows, full)
		}
	}
	walk("", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties)
	for row := range rows {
		t.Errorf("the page has a row for spec.%s, which does not exist", row)
	}
	if seen < 20 {
		t.Errorf("only %d fields were looked for", seen)
	}
}
