// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	seeds "github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

var update = flag.Bool("update", false, "write the golden files")

var now = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func node(name, ref string) nodesync.CalicoNode {
	n := nodesync.CalicoNode{Name: name, Revision: 7}
	if ref != "" {
		n.OrchRefs = []nodesync.OrchRef{{Orchestrator: "k8s", NodeName: ref}}
	}
	return n
}

func calicoNodeSet(env map[string]string) doctor.Workload {
	return doctor.Workload{Kind: "DaemonSet", Namespace: "kube-system", Name: "calico-node", Env: variables(env)}
}

func variables(env map[string]string) map[string]doctor.Variable {
	out := map[string]doctor.Variable{}
	for name, value := range env {
		out[name] = doctor.Variable{Value: value, Elsewhere: value == ""}
	}
	return out
}

func allRights() []RightAnswer {
	var out []RightAnswer
	for _, r := range nodesync.Rights(false) {
		out = append(out, RightAnswer{Right: r, Allowed: true})
	}
	return out
}

// certificate is one of a year at least that ends at that time.
func certificate(where, name string, at time.Time) doctor.Bundle {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.AddDate(-1, 0, 0), NotAfter: at,
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		panic(err) // such a template always can be signed
	}
	return doctor.Bundle{Where: where, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// healthy is the evidence of a cluster in which all is well.
func healthy() Evidence {
	empty := func(namespace string) Listing {
		return Listing{Namespace: namespace, Answer: Answered([]doctor.Workload(nil))}
	}
	return Evidence{
		Now: now, Namespace: "mooring-system", Config: nodesync.DefaultConfig(),
		Settings: Settings{
			Kind: kindEtcd, Endpoints: []string{"https://10.0.0.1:2379"},
			Variables: map[string]string{"DATASTORE_TYPE": kindEtcd, "ETCD_ENDPOINTS": "https://10.0.0.1:2379"},
		},
		KubernetesURL: "https://10.0.0.9:6443", KubernetesVersion: Answered("v1.34.1"), ClusterUID: Answered("uid-1"),
		Datastore: Answered(struct{}{}), Members: []Member{{Endpoint: "https://10.0.0.1:2379", Version: "3.6.8"}},
		Certificates: doctor.CertificateEvidence{Bundles: []doctor.Bundle{
			certificate("ETCD_CERT_FILE (/calico-secrets/etcd-cert)", "calico", now.AddDate(1, 0, 0)),
			certificate("ETCD_CA_CERT_FILE (/calico-secrets/etcd-ca)", "ca", now.AddDate(9, 0, 0)),
		}},
		ClusterInformation: Answered(&apiv3.ClusterInformation{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{nodesync.BindingAnnotation: "uid-1"}},
			Spec:       apiv3.ClusterInformationSpec{DatastoreReady: new(true), CalicoVersion: "v3.31.0"},
		}),
		Deployments: []Listing{empty("kube-system"), empty("calico-system")},
		DaemonSets: []Listing{
			{Namespace: "kube-system", Answer: Answered([]doctor.Workload{calicoNodeSet(map[string]string{"ETCD_ENDPOINTS": "", nodeRef: ""})})},
			empty("calico-system"),
		},
		Leases:          Answered([]doctor.Lease{{Namespace: "mooring-system", Holder: "calico-node-sync-1", Renewed: now.Add(-time.Second), Duration: 15 * time.Second}}),
		Rights:          allRights(),
		RightsOf:        "system:serviceaccount:mooring-system:calico-node-sync",
		CalicoNodes:     Answered([]nodesync.CalicoNode{node("a", "a"), node("b", "b")}),
		KubernetesNodes: Answered([]string{"a", "b"}),
		Plan:            Answered(nodesync.Plan{}),
	}
}

func refusal(host string, gate nodesync.Gate, message string) nodesync.Refusal {
	return nodesync.Refusal{Of: nodesync.Subject{Host: host, KubernetesNode: host}, Gate: gate, Message: message}
}

// sick is one thing that is wrong, or worth knowing.
type sick struct {
	name   string
	change func(*Evidence)
}

func deployments(e *Evidence, w ...doctor.Workload) { e.Deployments[0].Answer = Answered(w) }

func cases() []sick {
	return slices.Concat(settingsCases(), connectionCases(), besideCases(), machineCases(), rightsCases())
}

func settingsCases() []sick {
	return []sick{
		{"settings that cannot be used", func(e *Evidence) { e.Settings = Settings{Failure: "no datastore is named: set --datastore-type"} }},
		{"endpoints alone", func(e *Evidence) { delete(e.Settings.Variables, "DATASTORE_TYPE") }},
		{"endpoints alone, by the other name", func(e *Evidence) {
			e.Settings.Variables = map[string]string{"CALICO_ETCD_ENDPOINTS": "https://10.0.0.1:2379"}
		}},
		{"flag and variable", func(e *Evidence) { e.Settings.Flag = kindEtcd }},
		{"variables of etcd v2", func(e *Evidence) { e.Settings.Variables["ETCD_AUTHORITY"] = "10.0.0.7:2379" }},
		{"KUBECONFIG", func(e *Evidence) { e.Settings.Variables["KUBECONFIG"] = "/root/.kube/config" }},
		{"etcd's variables with the kubernetes datastore", func(e *Evidence) {
			e.Settings = Settings{Kind: kindKubernetes, Variables: map[string]string{"DATASTORE_TYPE": kindKubernetes, "ETCD_CERT_FILE": "/x"}}
			e.DaemonSets[0].Value[0].Env = variables(map[string]string{"DATASTORE_TYPE": kindKubernetes})
		}},
	}
}

func connectionCases() []sick {
	return []sick{
		{"no API server", func(e *Evidence) {
			*e = Evidence{Now: now, Settings: e.Settings, KubernetesURL: e.KubernetesURL, KubernetesVersion: Answer[string]{Asked: true, Failure: "connection refused"}}
		}},
		{"no kubeconfig", func(e *Evidence) {
			*e = Evidence{Now: now, Settings: e.Settings, KubernetesVersion: Answer[string]{Asked: true, Failure: "no API server is configured"}}
		}},
		{"version not to be read", func(e *Evidence) {
			e.KubernetesVersion = Answer[string]{Asked: true, Failure: "forbidden: nonResourceURL", Forbidden: true}
		}},
		{"old and new versions", func(e *Evidence) {
			e.KubernetesVersion, e.Members[0].Version = Answered("v1.28.15-eks-1"), "3.8.0"
			e.ClusterInformation.Value.Spec.CalicoVersion = "master"
		}},
		{"version of Calico unknown", func(e *Evidence) { e.ClusterInformation.Value.Spec.CalicoVersion = "" }},
		{"no etcd", func(e *Evidence) {
			e.Datastore = Answer[struct{}]{Asked: true, Failure: "calico's etcd at https://10.0.0.1:2379 does not respond to a quorum read: connection refused"}
			e.Members[0] = Member{Endpoint: "https://10.0.0.1:2379", Failure: "no response in time"}
			e.ClusterInformation, e.CalicoNodes, e.Plan = Answer[*apiv3.ClusterInformation]{}, Answer[[]nodesync.CalicoNode]{}, Answer[nodesync.Plan]{}
		}},
		{"no quorum", func(e *Evidence) {
			e.Datastore = Answer[struct{}]{Asked: true, Failure: "calico's etcd does not respond to a quorum read: connection refused"}
			e.Members = append(e.Members, Member{Endpoint: "https://10.0.0.2:2379", Failure: "no response in time"})
		}},
		{"no right to the datastore", func(e *Evidence) {
			e.Datastore = Answer[struct{}]{Asked: true, Failure: "clusterinformations is forbidden", Forbidden: true}
		}},
		{"one member down, one full", func(e *Evidence) {
			e.Members = append(e.Members, Member{Endpoint: "https://10.0.0.2:2379", Failure: "no response in time"},
				Member{Endpoint: "https://10.0.0.3:2379", Version: "3.6.8", Alarms: []string{"memberID:1 alarm:NOSPACE"}})
		}},
		{"certificates", func(e *Evidence) {
			e.Certificates = doctor.CertificateEvidence{
				Bundles: []doctor.Bundle{
					{Where: "ETCD_CERT_FILE (/c)", Problem: "no such file"}, {Where: "ETCD_CA_CERT_FILE (/ca)"},
					certificate("ended", "a", now.AddDate(0, 0, -1)), certificate("soon", "b", now.AddDate(0, 0, 13)),
					certificate("good", "c", now.AddDate(0, 1, 0)),
				},
			}
		}},
		{"no ClusterInformation", func(e *Evidence) { e.ClusterInformation = Answered[*apiv3.ClusterInformation](nil) }},
		{"ClusterInformation not to be read", func(e *Evidence) {
			e.ClusterInformation = Answer[*apiv3.ClusterInformation]{Asked: true, Failure: "invalid character"}
		}},
		{"locked", func(e *Evidence) { e.ClusterInformation.Value.Spec.DatastoreReady = nil }},
		{"another cluster's", func(e *Evidence) { e.ClusterInformation.Value.Annotations[nodesync.BindingAnnotation] = "uid-2" }},
		{"nobody's yet", func(e *Evidence) { e.ClusterInformation.Value.Annotations[nodesync.BindingAnnotation] = "" }},
		{"whose is not known", func(e *Evidence) {
			e.ClusterUID = Answer[string]{Asked: true, Failure: `namespaces "kube-system" is forbidden`, Forbidden: true}
		}},
		{"whose was not queried", func(e *Evidence) { e.ClusterUID = Answer[string]{} }},
		{"the kubernetes datastore", func(e *Evidence) {
			e.Settings = Settings{Kind: kindKubernetes, Flag: kindKubernetes, Variables: map[string]string{}}
			e.Members, e.DaemonSets[0].Value[0].Env = nil, variables(map[string]string{"DATASTORE_TYPE": kindKubernetes})
		}},
	}
}

func besideCases() []sick {
	controllers := func(wanted int, env map[string]string) doctor.Workload {
		return doctor.Workload{Kind: "Deployment", Namespace: "kube-system", Name: "calico-kube-controllers", Wanted: wanted, Env: variables(env)}
	}
	return []sick{
		{"kube-controllers with all controllers", func(e *Evidence) { deployments(e, controllers(1, nil)) }},
		{"kube-controllers with the node controller", func(e *Evidence) {
			deployments(e, controllers(1, map[string]string{"ENABLED_CONTROLLERS": "policy,node"}))
		}},
		{"kube-controllers without it", func(e *Evidence) {
			deployments(e, controllers(1, map[string]string{"ENABLED_CONTROLLERS": "policy,namespace"}))
		}},
		{"kube-controllers at rest", func(e *Evidence) { deployments(e, controllers(0, nil)) }},
		{"kube-controllers with the kubernetes datastore", func(e *Evidence) {
			deployments(e, controllers(1, map[string]string{"DATASTORE_TYPE": kindKubernetes}))
		}},
		{"calico-node without reference", func(e *Evidence) {
			e.DaemonSets[0].Answer = Answered([]doctor.Workload{calicoNodeSet(map[string]string{"ETCD_ENDPOINTS": ""})})
			e.CalicoNodes = Answered([]nodesync.CalicoNode{node("a", ""), node("b", "")})
		}},
		{"calico-node with another datastore", func(e *Evidence) { e.DaemonSets[0].Answer = Answered([]doctor.Workload{calicoNodeSet(nil)}) }},
		{"calico-node with the same etcd", func(e *Evidence) {
			e.DaemonSets[0].Answer = Answered([]doctor.Workload{calicoNodeSet(map[string]string{"ETCD_ENDPOINTS": "https://10.0.0.2:2379, https://10.0.0.1:2379/", nodeRef: ""})})
		}},
		{"calico-node with another etcd", func(e *Evidence) {
			e.DaemonSets[0].Answer = Answered([]doctor.Workload{calicoNodeSet(map[string]string{"ETCD_ENDPOINTS": "https://10.9.9.9:2379", nodeRef: ""})})
		}},
		{"no calico-node", func(e *Evidence) { e.DaemonSets[0].Answer = Answered([]doctor.Workload(nil)) }},
		{"nothing to be listed", func(e *Evidence) {
			e.Deployments[0].Answer = Answer[[]doctor.Workload]{Asked: true, Failure: "deployments.apps is forbidden", Forbidden: true}
			e.DaemonSets[1].Answer = Answer[[]doctor.Workload]{Asked: true, Failure: "no response in time"}
		}},
		{"the predecessor", func(e *Evidence) {
			deployments(e, doctor.Workload{Kind: "Deployment", Namespace: "kube-system", Name: "cleaner", Wanted: 1, Images: []string{"quay.io/x/kube-calico-controller:0.0.3"}},
				doctor.Workload{Namespace: "kube-system", Name: "kube-calico-controller"},
				doctor.Workload{Namespace: "moved", Name: "kube-calico-controller", Wanted: 1, Images: []string{"mooring/calico-node-sync:dev"}})
		}},
		{"no controller", func(e *Evidence) { e.Leases.Value[0].Renewed = now.Add(-time.Minute) }},
		{"two installations", func(e *Evidence) {
			e.Leases.Value = append(e.Leases.Value, doctor.Lease{Namespace: "other", Holder: "x", Renewed: now, Duration: time.Minute})
		}},
		{"Leases not to be listed", func(e *Evidence) {
			e.Leases = Answer[[]doctor.Lease]{Asked: true, Failure: "leases is forbidden", Forbidden: true}
		}},
	}
}

func machineCases() []sick {
	gate := func(gate nodesync.Gate, refusals ...nodesync.Refusal) sick {
		return sick{"held back by " + string(gate), func(e *Evidence) {
			e.Plan.Value.Refusals = refusals
			for _, r := range refusals {
				if r.Of.Host == "" {
					continue
				}
				e.Plan.Value.Memory.Absences = append(e.Plan.Value.Memory.Absences, nodesync.Absence{CalicoNode: r.Of.Host, Since: now.Add(-time.Hour)})
			}
		}}
	}
	out := []sick{
		{"two Calico Nodes of one Node", func(e *Evidence) {
			e.CalicoNodes = Answered([]nodesync.CalicoNode{node("a", "a"), node("b", "b"), node("a.old", "a")})
		}},
		{"pods not to be listed", func(e *Evidence) {
			e.Plan.Value.Refusals = []nodesync.Refusal{{
				Of: nodesync.Subject{Host: "pod leftovers", Leftovers: true}, Gate: nodesync.GatePodLeftovers,
				Message: nodesync.LeftoversNotSought + ": listing pods: pods is forbidden",
			}}
		}},
		{"leftovers that the controller removes", func(e *Evidence) {
			e.Plan.Value.Memory.AlsoRemove = []nodesync.ResourceKind{nodesync.KindPodLeftovers, nodesync.KindIPAMHandle}
			e.Plan.Value.Refusals = []nodesync.Refusal{
				{Of: nodesync.Subject{Host: "a", Leftovers: true}, Gate: nodesync.GatePodLeftovers, Message: "its Kubernetes Node is not Ready"},
				{Of: nodesync.Subject{Host: "IPAM handles"}, Gate: nodesync.GateOrphanedHandle, Message: "they are removed after another sweep"},
			}
		}},
		{"names that differ", func(e *Evidence) { e.CalicoNodes.Value[0].Name = "host-a" }},
		{"names that differ by a domain", func(e *Evidence) {
			e.CalicoNodes.Value[0].Name, e.Config.Domains = "a.example.com", []string{"example.com"}
		}},
		{"no Calico Node", func(e *Evidence) { e.KubernetesNodes = Answered([]string{"a", "b", "c"}) }},
		{"no Calico Node, among all doctors", func(e *Evidence) { e.KubernetesNodes, e.Among = Answered([]string{"a", "b", "c"}), true }},
		{"without sweeps", func(e *Evidence) { e.Config.SweepPeriod = 0 }},
		{"a fence on a machine that lives", func(e *Evidence) { e.CalicoNodes.Value[1].FencedFor = "b" }},
		{"a plan that failed", func(e *Evidence) {
			e.Plan = Answer[nodesync.Plan]{Asked: true, Failure: "listing Kubernetes Nodes: timeout"}
		}},
		{"Nodes not to be listed", func(e *Evidence) {
			e.KubernetesNodes = Answer[[]string]{Asked: true, Failure: "nodes is forbidden", Forbidden: true}
			e.Plan = Answer[nodesync.Plan]{}
		}},
		{"Calico Nodes not to be read", func(e *Evidence) {
			e.CalicoNodes = Answer[[]nodesync.CalicoNode]{Asked: true, Failure: "etcdserver: permission denied"}
			e.Plan = Answer[nodesync.Plan]{}
		}},
		{"machines that are due", func(e *Evidence) {
			of := nodesync.Subject{Host: "gone", KubernetesNode: "gone"}
			e.Plan.Value.Steps = []nodesync.Step{nodesync.BindCluster{}, nodesync.Fence{Of: of}, nodesync.RemoveNode{Of: of}}
		}},
	}
	for _, g := range nodesync.Gates() {
		switch g {
		case nodesync.GateKubernetesEmpty, nodesync.GateKubernetesNotSynced, nodesync.GateOverlap, nodesync.GateDatastoreNotReady, nodesync.GateClusterBinding:
			out = append(out, gate(g, nodesync.Refusal{Gate: g, Message: "the message"}))
		case nodesync.GateMass:
			out = append(out, gate(g, refusal("x", g, "the same"), refusal("y", g, "the same")))
		case nodesync.GateKeep:
			out = append(out, gate(g, refusal("w", g, "one"), refusal("x", g, "two"), refusal("y", g, "three"), refusal("z", g, "four")))
		default:
			out = append(out, gate(g, refusal("x", g, "the message")))
		}
	}
	return out
}

func rightsCases() []sick {
	without := func(e *Evidence, resource string) {
		for i := range e.Rights {
			if e.Rights[i].Right.Resource == resource {
				e.Rights[i].Allowed = false
			}
		}
	}
	return []sick{
		{"a right is missing", func(e *Evidence) { without(e, "pods") }},
		{"a person lacks a right", func(e *Evidence) { without(e, "pods"); e.RightsOf = "jane" }},
		{"lesser rights are missing", func(e *Evidence) { without(e, "tokenreviews"); without(e, "configmaps") }},
		{"rights not to be asked for", func(e *Evidence) {
			e.Rights, e.RightsOf = []RightAnswer{{Right: nodesync.Rights(false)[0], Failure: "users is forbidden: cannot impersonate"}}, ""
		}},
		{"no namespace", func(e *Evidence) { e.Namespace = "" }},
	}
}

// Every text that a person can get to read stands in the golden file: of each case what differs from a cluster in which all is well.
func TestFindings(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	well := Findings(healthy())
	if finding.Worst(well) != finding.OK {
		t.Errorf("a healthy cluster: got\n%s", finding.Text(well, 0))
	}
	fmt.Fprintf(&b, "=== all is well\n%s", finding.Text(well, 0))
	for _, c := range cases() {
		e := healthy()
		c.change(&e)
		all := Findings(e)
		found := slices.DeleteFunc(slices.Clone(all), func(f finding.Finding) bool { return slices.Contains(well, f) })
		fmt.Fprintf(&b, "\n=== %s\n%s", c.name, finding.Text(found, 0))
		for _, f := range well {
			if !slices.Contains(all, f) {
				fmt.Fprintf(&b, "not said: %s: %s\n", f.Check, f.What)
			}
		}
	}
	golden := filepath.Join("testdata", "findings.golden")
	if *update {
		must.Do(t, os.WriteFile(golden, []byte(b.String()), 0o600))
	}
	want := must.Get(os.ReadFile(golden)).Or(t)
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("findings have changed (-golden +got; -update accepts it):\n%s", diff)
	}
}

// No evidence at all is not a reason to break, and the order of the evidence does not matter.
func TestFindingsOfAnyEvidence(t *testing.T) {
	t.Parallel()
	Findings(Evidence{})
	shuffle := seeds.Rand(t)
	for _, c := range cases() {
		e := healthy()
		c.change(&e)
		want := Findings(e)
		shuffle.Shuffle(len(e.Members), func(i, j int) { e.Members[i], e.Members[j] = e.Members[j], e.Members[i] })
		bundles := e.Certificates.Bundles
		shuffle.Shuffle(len(bundles), func(i, j int) { bundles[i], bundles[j] = bundles[j], bundles[i] })
		shuffle.Shuffle(len(e.CalicoNodes.Value), func(i, j int) {
			e.CalicoNodes.Value[i], e.CalicoNodes.Value[j] = e.CalicoNodes.Value[j], e.CalicoNodes.Value[i]
		})
		if diff := cmp.Diff(want, Findings(e)); diff != "" {
			t.Errorf("%s: the order of the evidence changes the findings:\n%s", c.name, diff)
		}
	}
}

// Each check and each severity can come up; a finding that asks for something says why.
func TestFindingsAreComplete(t *testing.T) {
	t.Parallel()
	checked, severities := map[string]bool{}, map[finding.Severity]bool{}
	for _, c := range cases() {
		e := healthy()
		c.change(&e)
		for _, f := range Findings(e) {
			severities[f.Severity] = true
			if f.Severity != finding.OK {
				checked[f.Check] = true
			}
			if (f.Severity == finding.Warning || f.Severity == finding.Problem) && (f.Why == "" || f.Do == "") {
				t.Errorf("%s: %q says not why, or not what to do", c.name, f.What)
			}
		}
	}
	for _, c := range checks() {
		if !checked[c.Name] {
			t.Errorf("no case in which check %s finds anything", c.Name)
		}
	}
	if len(severities) != 4 {
		t.Errorf("severities: got %v, want all four", severities)
	}
}

// Lacking what only restoring needs is worth a note at most.
func TestRestoreRightsAreOptional(t *testing.T) {
	t.Parallel()
	e := Evidence{RightsOf: "system:serviceaccount:mooring-system:calico-node-sync", Namespace: "mooring-system"}
	for _, r := range nodesync.Rights(true) {
		e.Rights = append(e.Rights, RightAnswer{Right: r, Allowed: !r.Optional})
	}
	found := rights(e)
	if len(found) != 2 || found[0].Severity != finding.OK || found[1].Severity != finding.Note || !strings.Contains(found[1].Do, "restore-rights.yaml") {
		t.Errorf("got %+v, want that all is well and a note that names the sample", found)
	}
}

// What was not checked counts as unread wherever findings are counted.
func TestNotCheckedIsUnread(t *testing.T) {
	t.Parallel()
	some := 0
	for _, c := range cases() {
		e := healthy()
		c.change(&e)
		for _, f := range Findings(e) {
			if not := strings.HasPrefix(f.What, "not checked: it failed to ") || strings.HasPrefix(f.What, "not checked, because of ") ||
				strings.HasPrefix(f.What, "it is unknown whether "); not != f.Unread {
				t.Errorf("%s: unread is %t of %+v", c.name, f.Unread, f)
			} else if not {
				some++
			}
		}
	}
	if some == 0 {
		t.Error("no case has anything that was not checked")
	}
}

// What other doctors find is found once: among them, only the rest of what this one finds is left, whatever is wrong.
func TestAmongAllDoctorsNothingIsFoundTwice(t *testing.T) {
	t.Parallel()
	elsewhere := []string{"kube-controllers", "installations", "predecessor"}
	left := 0
	for _, c := range cases() {
		e := healthy()
		c.change(&e)
		alone := slices.DeleteFunc(Findings(e), func(f finding.Finding) bool {
			if slices.Contains(elsewhere, f.Check) {
				left++
				return true
			}
			return f.Check == "drift" // of which Nodes without a Calico Node are a part
		})
		e.Among = true
		among := slices.DeleteFunc(Findings(e), func(f finding.Finding) bool { return f.Check == "drift" })
		if diff := cmp.Diff(alone, among); diff != "" {
			t.Errorf("%s (-alone +among):\n%s", c.name, diff)
		}
	}
	if left == 0 {
		t.Error("no case has a finding that is another doctor's")
	}
}
