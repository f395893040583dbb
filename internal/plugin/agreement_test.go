// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/routereflector"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// clearEnvironment takes away what the machine that runs the tests may say of datastores and tokens.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"DATASTORE_TYPE", "CALICO_DATASTORE_TYPE", "ETCD_ENDPOINTS", "CALICO_ETCD_ENDPOINTS", "DO_ACCESS_TOKEN", "DO_ACCESS_TOKEN_FILE", "DO_OVERRIDE_URL",
	} {
		t.Setenv(name, "")
	}
}

// agreements runs the command and returns its rows by machine.
func agreements(t *testing.T, cluster *controlplane.Cluster, code int) map[string]agreement.Row {
	t.Helper()
	got, out, errs := run(t, []string{"agreement", "--kubeconfig", cluster.Kubeconfig, "-o", "json"})
	var list struct {
		Machines []agreement.Row `json:"machines"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil || got != code {
		t.Fatalf("exit code %d, want %d; %v: %s%s", got, code, err, out, errs)
	}
	rows := map[string]agreement.Row{}
	for _, r := range list.Machines {
		rows[r.Machine] = r
	}
	return rows
}

// said is a row's verdict with all that is said for it.
func said(r agreement.Row) string {
	text := string(r.Verdict)
	for _, f := range r.Findings {
		text += "; " + f.What
	}
	return text
}

func testAgreement(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	clearEnvironment(t)
	ask := func(args ...string) []string {
		return append([]string{"agreement", "--kubeconfig", cluster.Kubeconfig}, args...)
	}
	notes := []string{
		"note: DigitalOcean not queried: there is no token in DO_ACCESS_TOKEN\n", "note: Calico not queried: no kinds of Calico; set ETCD_ENDPOINTS for etcdv3\n",
		"  ! topology main lists it with cluster ID 244.0.0.1, and the Node has none\n",
	}
	expect(t, 2, "", ask(), notes...)
	mustKubectl(t, cluster, "", "annotate", "node", "r1", routereflector.ClusterIDAnnotation+"=244.0.0.1")
	code, out, _ := run(t, ask())
	want := []string{
		"MACHINE DROPLET NODE CALICO REFLECTOR VERDICT", "c1 no ID Ready not queried - one side", "c2 no ID Ready not queried - one side", "no-calico no ID Ready not queried - one side",
		"r1 no ID Ready not queried main one side", "4 machines: 4 one side.",
	}
	var lines []string
	for line := range strings.Lines(out) {
		line = strings.ReplaceAll(strings.Join(strings.Fields(line), " "), "Ready, new", "Ready") // new, unless the machine is slow
		lines = append(lines, line)
	}
	if code != 2 || !slices.Equal(lines, want) { // nothing was compared
		t.Errorf("exit code %d, %q", code, lines)
	}
	expect(t, 2, "", ask("-o", "wide"), "VERDICT    VOLUMES   SINCE   WHAT\n")
	if code, out, _ := run(t, ask("node/c1", "r1", "-o", "name")); code != 2 || out != "node/c1\nnode/r1\n" {
		t.Errorf("names: exit code %d, %q", code, out)
	}
	_, completed, _ := run(t, []string{"__complete", "agreement", "--kubeconfig", cluster.Kubeconfig, "c1", ""})
	if !strings.HasPrefix(completed, "c2\nno-calico\nr1\n") {
		t.Errorf("completes %s", completed)
	}
	agreementRefusals(t, ask)
	agreementOfCalico(t, cluster)
	agreementOfDroplets(t, cluster)
}

// Bad input is told in one sentence.
func agreementRefusals(t *testing.T, ask func(...string) []string) {
	t.Helper()
	expect(t, 1, "", ask("nope"), `error: no side knows a machine "nope"`)
	expect(t, 1, "", ask("-o", "tree"), "use one of table, wide, json, yaml, name")
	expect(t, 1, "", []string{"agreement", "--kubeconfig", "/no/such/file"}, "error: reading the kubeconfig, pass --kubeconfig or --context to choose another")
	for _, tt := range []struct{ name, value, want string }{
		{"DATASTORE_TYPE", "etcdv3", "error: the datastore is etcdv3 but no endpoint is named: set ETCD_ENDPOINTS"},
		{"DO_ACCESS_TOKEN", "a b", "error: the DigitalOcean token in DO_ACCESS_TOKEN: it has blanks"},
		{"DO_ACCESS_TOKEN_FILE", "/no/such/file", "error: reading the DigitalOcean token: open /no/such/file: no such file or directory"},
	} {
		t.Setenv(tt.name, tt.value)
		expect(t, 1, "", ask(), tt.want)
		t.Setenv(tt.name, "")
	}
	t.Setenv("DO_ACCESS_TOKEN", "x")
	t.Setenv("DO_ACCESS_TOKEN_FILE", "x")
	expect(t, 1, "", ask(), "error: DO_ACCESS_TOKEN and DO_ACCESS_TOKEN_FILE are both set: unset one of them")
	t.Setenv("DO_ACCESS_TOKEN_FILE", "")
	t.Setenv("DO_OVERRIDE_URL", "nowhere")
	expect(t, 1, "", ask(), `error: DO_OVERRIDE_URL: the API's URL is "nowhere": it must be of the form https://HOST/`)
	clearEnvironment(t)
}

// Both of Calico's datastores, with something left in each of a machine that has no Node; and one that cannot be reached.
func agreementOfCalico(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	cluster.InstallCalicoCRDs(t)
	mustKubectl(t, cluster, `{"apiVersion":"crd.projectcalico.org/v1","kind":"BlockAffinity","metadata":{"name":"old-10-1-0-0-26"},
		"spec":{"cidr":"10.1.0.0/26","node":"old","state":"confirmed","deleted":"false"}}`, "create", "-f", "-")
	rows := agreements(t, cluster, 2)
	if got, want := said(rows["old"]), "disagree; Calico holds addresses for a host that is not a Kubernetes Node"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if rows["c1"].CalicoNode != "10.0.0.2" || rows["c1"].Verdict != finding.Agree {
		t.Errorf("c1: %+v", rows["c1"])
	}
	mustKubectl(t, cluster, "", "delete", "blockaffinities.crd.projectcalico.org", "old-10-1-0-0-26")

	etcd := testkit.NewEtcd(t)
	for name, node := range map[string]string{"c1.example": "c1", "c2": "c2", "old.example": "old", "no-calico": "no-calico", "r1": "r1"} {
		value := `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"` + name + `"},"spec":{"orchRefs":[{"nodeName":"` + node + `","orchestrator":"k8s"}]}}`
		if _, err := etcd.Client.Put(t.Context(), "/calico/resources/v3/projectcalico.org/nodes/"+name, value); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ETCD_ENDPOINTS", etcd.Endpoint)
	rows = agreements(t, cluster, 2)
	if got, want := said(rows["old"]), "disagree; there is a Calico Node and no Kubernetes Node"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if rows["c1"].CalicoNode != "c1.example" || rows["c1"].Verdict != finding.Agree {
		t.Errorf("c1: %+v", rows["c1"])
	}
	info := `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","annotations":{"` + routereflector.BindingAnnotation + `":"another"}},"spec":{}}`
	if _, err := etcd.Client.Put(t.Context(), "/calico/resources/v3/projectcalico.org/clusterinformations/default", info); err != nil {
		t.Fatal(err)
	}
	rows = agreements(t, cluster, 2)
	const foreign = "unknown; Calico's datastore could not be read: this etcd belongs to the cluster whose namespace kube-system has UID another, and this one's has "
	if got := said(rows["c1"]); !strings.HasPrefix(got, foreign) || rows["old"].Machine != "" {
		t.Errorf("another cluster's etcd: %s, %+v", got, rows["old"])
	}
	clearEnvironment(t)
}

// A droplet is gone if list and answer by ID say so, with the token of the account that the cluster is bound to; otherwise nothing is.
func agreementOfDroplets(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	cloud := sim.New(sim.Options{Seed: 1})
	account := cloud.Account("")
	// A cloud controller has described the Nodes, so that their droplets were there.
	described := map[string]string{
		corev1.LabelInstanceTypeStable: "s-1vcpu-1gb", corev1.LabelInstanceType: "s-1vcpu-1gb",
		corev1.LabelTopologyRegion: "nyc1", corev1.LabelFailureDomainBetaRegion: "nyc1",
	}
	for _, name := range []string{"d1", "d2"} {
		d, err := account.CreateDroplet(sim.DropletSpec{Name: name, Size: "s-1vcpu-1gb"})
		if err != nil {
			t.Fatal(err)
		}
		makeNode(t, cluster, name, providerid.Format(d.ID), "10.0.0.9/24", described) // with an address, so that nothing else is missed of it
		if name == "d2" {
			if err := account.DeleteDroplet(strconv.Itoa(d.ID)); err != nil {
				t.Fatal(err)
			}
		}
	}
	server := httptest.NewServer(cloud.Handler())
	t.Cleanup(server.Close)
	t.Setenv("DO_OVERRIDE_URL", server.URL)
	t.Setenv("DO_ACCESS_TOKEN", "wrong")
	noneIsGone := func(why, want string) {
		t.Helper()
		rows := agreements(t, cluster, 2)
		for _, name := range []string{"d1", "d2"} {
			if got := said(rows[name]); !strings.Contains(got, want) || rows[name].Verdict != finding.Unknown {
				t.Errorf("%s: %s is %s", why, name, got)
			}
		}
	}
	noneIsGone("a token that is refused", "the cloud could not be read: asking for the account: ")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(sim.DefaultToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DO_ACCESS_TOKEN", "")
	t.Setenv("DO_ACCESS_TOKEN_FILE", file)
	rows := agreements(t, cluster, 2)
	if r := rows["d1"]; r.Verdict != finding.Agree {
		t.Errorf("d1: %+v", r)
	}
	if got := said(rows["d2"]); !strings.HasPrefix(got, "disagree; droplet ") || !strings.HasSuffix(got, " is gone, and its Node still exists") {
		t.Errorf("d2: %s", got)
	}
	if got := said(rows["c1"]); !strings.HasPrefix(got, "unknown; node c1: ") {
		t.Errorf("a Node without a provider ID: %s", got)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: machines.RecordName, Annotations: map[string]string{
		machines.AccountAnnotation: "another", machines.TeamAnnotation: "theirs",
	}}}
	if _, err := cluster.Client.CoordinationV1().Leases(machines.RecordNamespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	noneIsGone("a token of another account", "but this cluster's droplets are in account another (team theirs): nothing is deleted")
}
