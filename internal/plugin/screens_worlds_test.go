// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bgpv1alpha1 "github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	agreementcmd "github.com/mooring-dev/mooring/internal/plugin/agreement"
	"github.com/mooring-dev/mooring/internal/plugin/etcd"
	explaincmd "github.com/mooring-dev/mooring/internal/plugin/explain"
	"github.com/mooring-dev/mooring/internal/plugin/status"
	topologycmd "github.com/mooring-dev/mooring/internal/plugin/topology"
	"github.com/mooring-dev/mooring/internal/plugin/version"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/topology"
	"github.com/mooring-dev/mooring/internal/ui"
	"github.com/mooring-dev/mooring/internal/waiting"
)

// screenTime is when everything on a screen is read.
func screenTime() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

func earlier(d time.Duration) time.Time { return screenTime().Add(-d) }

// prints fails the test for an error that is not an exit code.
func prints(t *testing.T, err error) {
	t.Helper()
	if err != nil && command.Code(err) != command.ExitAttention {
		t.Error(err)
	}
}

// screenMachines are the sides of five machines; in trouble one of each kind.
func screenMachines(ill bool) agreement.World {
	w := agreement.World{Now: screenTime(), Calico: agreement.Calico{OnNodes: true}, Reflectors: agreement.Reflectors{Topologies: []string{"main"}}}
	for i := range 5 {
		n := agreement.Node{
			Name: fmt.Sprintf("pool-workers-fra1-%d", i+1), ProviderID: fmt.Sprintf("digitalocean://%d", 4000+i), Created: earlier(72 * time.Hour), Ready: "True", ReadySince: earlier(71 * time.Hour),
			Address: fmt.Sprintf("10.0.0.%d", i+1),
		}
		if i == 0 {
			n.Reflector, n.ClusterID = "main", "244.0.0.1"
			w.Reflectors.Reflectors = []agreement.Reflector{{Topology: "main", Node: n.Name, ClusterID: "244.0.0.1", Role: "Reflector"}}
		}
		w.Nodes = append(w.Nodes, n)
		w.Cloud.Droplets = append(w.Cloud.Droplets, agreement.Droplet{Verdict: instance.Verdict{Node: n.Name, Droplet: 4000 + i, Existence: instance.Exists}})
	}
	if ill {
		w.Nodes[1].Ready, w.Nodes[1].ReadySince = "Unknown", earlier(3*time.Minute)
		w.Cloud.Droplets[2].Existence = instance.Gone
		w.Nodes[3].Address = ""
		w.Nodes[4].Created, w.Nodes[4].Ready = earlier(time.Second), "False"
	}
	return w
}

func wellWorld() ui.World {
	now := screenTime()
	return ui.World{
		Cluster: "production at https://203.0.113.1:6443", ReadAt: now, CheckedAt: now, Machines: agreement.Rows(screenMachines(false)), Candidates: 5,
		Topologies: screenMaps(false), Findings: wellFindings(), TenantsAbsent: true,
		Components: []finding.Component{{Name: "calico-node-sync", Namespace: "mooring-system", Workload: "deployment/calico-node-sync", Version: "v0.1.0", Ready: 2, Wanted: 2, Leader: "calico-node-sync-7d9f-x", Renewed: new(now)}},
		Balancers: []ui.Balancer{{Service: corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
			Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.2"}}}},
		}, Verdict: finding.Verdict{State: finding.Agree}}},
	}
}

func illWorld() ui.World {
	w := wellWorld()
	w.Machines, w.Findings, w.Topologies = agreement.Rows(screenMachines(true)), illFindings(), screenMaps(true)
	w.Notes = []string{"DigitalOcean not queried: there is no token in DO_ACCESS_TOKEN or DO_ACCESS_TOKEN_FILE"}
	front := &w.Balancers[0]
	w.Components[0].Problem, front.Status.LoadBalancer.Ingress, front.Spec.Type = "no pod of 2 pods is ready", nil, corev1.ServiceTypeLoadBalancer
	front.Verdict = explain.ServiceEvidence{Now: screenTime(), Input: loadbalancer.Input{Service: &front.Service, Nodes: screenNodes()}}.Judge()
	w.Waits, w.WaitProblem = waitingList().Waits, strings.Join(waitingList().Unread, "; ")
	return w
}

func screenStatus(world func() ui.World) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		output := screen.NewFormat(screen.Text)
		prints(t, status.Print(world(), &output, to))
	}
}

func screenAgreement(ill bool) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		w := screenMachines(ill)
		table, wide := screen.NewFormat(screen.FormatTable), screen.NewFormat(screen.FormatWide)
		prints(t, agreementcmd.Print(agreement.Rows(w), w.Now, &table, to))
		prints(t, agreementcmd.Print(agreement.Rows(w)[:1], w.Now, &wide, to))
	}
}

func screenMaps(ill bool) []topology.Map {
	m := topology.Map{Name: "main", Phase: "Ready", Mode: "Flat", Mesh: "Off", Clients: 4, Sessions: "8/8"}
	g := topology.Group{ClusterID: "244.0.0.1", Clients: 4, Reflectors: []topology.Reflector{
		{Node: "pool-workers-fra1-1", Zone: "fra1-a", Role: "Reflector", Expected: 4, Established: 4}, {Node: "pool-workers-fra1-2", Zone: "fra1-b", Role: "Reflector", Expected: 4, Established: 4},
	}, Zones: []topology.Zone{{Name: "fra1-a", Clients: []string{"pool-workers-fra1-3", "pool-workers-fra1-4"}}, {Name: "fra1-b", Clients: []string{"pool-workers-fra1-5", "pool-workers-fra1-6"}}}}
	if ill {
		m.Phase, m.Sessions, m.WaitingFor = "Progressing", "4/8", "the sessions of pool-workers-fra1-2, of which 0 of 4 are Established, before pool-workers-fra1-7 is demoted"
		g.Reflectors[1].Established, g.Reflectors[1].NotReady = 0, true
		g.Reflectors = append(g.Reflectors, topology.Reflector{Node: "pool-workers-fra1-7", Role: "Leaving", Missing: true})
	}
	m.Groups = []topology.Group{g}
	return []topology.Map{m}
}

func screenTopology(ill bool) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		output := screen.NewFormat("tree")
		prints(t, topologycmd.Print(screenMaps(ill), &output, to))
	}
}

func screenExplain(e explain.Explanation) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		output := screen.NewFormat(screen.Text)
		prints(t, explaincmd.Print(e, &output, to))
	}
}

func explainedNode(ill bool) explain.Explanation {
	rows := agreement.Rows(screenMachines(ill))
	at := slices.IndexFunc(rows, func(r agreement.Row) bool { return r.Machine == "pool-workers-fra1-2" })
	e := explain.NodeEvidence{
		Now: screenTime(), Name: rows[at].Machine, Machine: rows[at], NodeSync: explain.NodeSync{Grace: 5 * time.Minute, Memory: "that of the running controller"},
		Reflectors: explain.Reflectors{Absent: true},
	}
	if ill {
		e.NotAsked = []finding.Side{{Name: "DigitalOcean", NotAsked: "there is no token in DO_ACCESS_TOKEN or DO_ACCESS_TOKEN_FILE"}}
		e.Events = []finding.Event{{At: earlier(2 * time.Minute), Warning: true, Reason: "HeldBack", Source: "calico-node-sync", Text: "12 nodes are gone whose deletion was not watched; the mass guard allows 4 of 40"}}
	}
	return explain.Node(e)
}

// screenNodes is a Node that load balancers can have as a target.
func screenNodes() []*corev1.Node {
	return []*corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: "pool-workers-fra1-1"}, Spec: corev1.NodeSpec{ProviderID: "digitalocean://4000"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "198.51.100.7"}}},
	}}
}

func explainedService(ill bool) explain.Explanation {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "front", Namespace: "shop", UID: "0000-1111", Annotations: map[string]string{annotation.LoadBalancerID: "8b5f8e1e-0000-4000-8000-000000000000"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "https", Port: 443, NodePort: 30443, Protocol: corev1.ProtocolTCP}}},
		Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}},
	}
	e := explain.ServiceEvidence{Now: screenTime(), Input: loadbalancer.Input{Service: service, Nodes: screenNodes(), Cluster: loadbalancer.Cluster{Region: "fra1"}}}
	if ill {
		service.Annotations[annotation.SizeUnit], service.Annotations[annotation.Algorithm] = "-1", "fastest"
		e.Cloud = finding.Side{NotAsked: "there is no token in DO_ACCESS_TOKEN or DO_ACCESS_TOKEN_FILE"}
		e.Events = []finding.Event{{At: earlier(time.Hour), Warning: true, Reason: "SyncLoadBalancerFailed", Source: "service-controller", Text: "the account has no load balancer left: raise its limit", Count: 7}}
	}
	return explain.Service(e)
}

func explainedStorage(ill bool) explain.Explanation {
	bytes := resource.MustParse("8Mi")
	ends := metav1.NewTime(screenTime().Add(60 * 24 * time.Hour))
	late := metav1.NewTime(screenTime().Add(900 * 24 * time.Hour))
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(earlier(3 * time.Hour))}
	}
	s := v1alpha1.EtcdStorage{
		ObjectMeta: metav1.ObjectMeta{Name: "team-a", Generation: 1}, Spec: v1alpha1.EtcdStorageSpec{Replicas: 3, Quota: v1alpha1.Quota{Bytes: &bytes}},
		Status: v1alpha1.EtcdStorageStatus{
			ObservedGeneration: 1, Endpoint: "https://etcd-team-a.mooring-system.svc:2379", Prefix: "/team-a/", Proxies: "3/3", ReadyReplicas: 3,
			Usage:        &v1alpha1.Usage{Keys: 120, Bytes: resource.MustParse("2516582"), Leases: 4, ObservedAt: metav1.NewTime(earlier(time.Minute))},
			Certificates: &v1alpha1.CertificateTimes{ServingCA: &late, ClientCA: &late, Serving: &ends, Client: &ends},
			Conditions:   []metav1.Condition{condition("Ready", metav1.ConditionTrue, "Ready", ""), condition(v1alpha1.ConditionConflict, metav1.ConditionFalse, "NoConflict", "")},
		},
	}
	e := explain.EtcdStorageEvidence{Now: screenTime(), Storage: s}
	if ill {
		e.Storage.Status.Proxies, e.Storage.Status.ReadyReplicas = "1/3", 1
		e.Storage.Status.Conditions = []metav1.Condition{
			condition("Ready", metav1.ConditionFalse, "MissingPermission", "Secret shop/etcd-client-cert: the operator may not get it; run: kubectl create rolebinding etcd-storage-operator -n shop"),
			condition(v1alpha1.ConditionQuotaExceeded, metav1.ConditionTrue, "BytesExceeded", "8.1Mi of 8Mi are stored"),
		}
	}
	return explain.EtcdStorage(e)
}

// screenPlanNodes is a plan of forty machines, of which so many are gone.
func screenPlanNodes(gone int) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		w := nodesync.World{
			Now: screenTime(), Kubernetes: nodesync.Kubernetes{ClusterUID: "u", Synced: true}, Calico: nodesync.Calico{Ready: true, Binding: nodesync.Binding{ClusterUID: "u"}},
		}
		for i := range 40 {
			name := fmt.Sprintf("pool-workers-fra1-%d", i+1)
			w.Calico.Nodes = append(w.Calico.Nodes, nodesync.CalicoNode{Name: name, Revision: 7, OrchRefs: []nodesync.OrchRef{{Orchestrator: "k8s", NodeName: name}}})
			if i >= gone {
				w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, nodesync.KubernetesNode{Name: name, UID: name})
				continue
			}
			w.Kubernetes.Lookups = append(w.Kubernetes.Lookups, nodesync.Lookup{Node: name, Verdict: nodesync.VerdictGone})
			w.Kubernetes.RunningPods = append(w.Kubernetes.RunningPods, nodesync.RunningPods{Node: name})
			w.Calico.Hosts = append(w.Calico.Hosts, nodesync.Host{Name: name, Affinities: []nodesync.Affinity{{CIDR: netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/26", i)), State: "confirmed", Revision: 3}}})
			w.Memory.Absences = append(w.Memory.Absences, nodesync.Absence{CalicoNode: name, KubernetesNode: name, Since: earlier(time.Hour), Revision: 7, Witnessed: i == 0})
		}
		plan := nodesync.MakePlan(w, nodesync.DefaultConfig())
		output := screen.NewFormat(screen.Text)
		prints(t, output.Print(to, plan.String(), nil))
	}
}

// screenPlanReflectors is a plan of seven Nodes, of which three are reflectors, or none is yet.
func screenPlanReflectors(ill bool) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		var nodes []string
		for i := range 7 {
			labels, annotations := "", ""
			if i < 3 && !ill {
				labels, annotations = `"bgp.mooring.dev/reflector":"main",`, `"projectcalico.org/RouteReflectorClusterID":"244.0.0.1",`
			}
			nodes = append(nodes, fmt.Sprintf(`{"kind":"Node","metadata":{"name":"pool-workers-fra1-%d","labels":{%s"topology.kubernetes.io/zone":"%c"},"annotations":{%s"projectcalico.org/IPv4Address":"10.0.0.%d/24"}},
				"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, i+1, labels, 'a'+i%3, annotations, i+1))
		}
		folder := screenFolder(t, map[string]string{
			"nodes.json": `{"kind":"List","items":[` + strings.Join(nodes, ",") + `]}`,
			"main.yaml":  `{"apiVersion":"` + bgpv1alpha1.GroupVersion.String() + `","kind":"RouteReflectorTopology","metadata":{"name":"main"},"spec":{"rollout":{"mode":"Manual"}}}`,
			"off.yaml":   `{"kind":"BGPConfiguration","metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false}}`,
			"peers.yaml": `{"kind":"BGPPeerList","items":[
				{"metadata":{"name":"main-clients","labels":{"bgp.mooring.dev/topology":"main"}},"spec":{"nodeSelector":"!has(bgp.mooring.dev/reflector)","peerSelector":"bgp.mooring.dev/reflector == 'main'"}},
				{"metadata":{"name":"main-reflectors","labels":{"bgp.mooring.dev/topology":"main"}},"spec":{"nodeSelector":"bgp.mooring.dev/reflector == 'main'","peerSelector":"bgp.mooring.dev/reflector == 'main'"}}]}`,
		})
		args := []string{"plan", "rr", "-f", filepath.Join(folder, "main.yaml"), "--nodes", filepath.Join(folder, "nodes.json"), "--simulate"}
		if !ill {
			args = append(args, "--bgppeers", filepath.Join(folder, "peers.yaml"), "--bgpconfiguration", filepath.Join(folder, "off.yaml"))
		}
		command.Run(t.Context(), NewCommand(Builtin()...), args, to, to)
	}
}

func screenFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// screenOffline runs a command that reads files and nothing else.
func screenOffline(args ...string) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		old := func(name, extra string) string {
			return "apiVersion: etcd.xmudrii.com/v1alpha1\nkind: EtcdStorage\nmetadata: {name: " + name + "}\nspec:\n  caCertConfigMap: [{name: etcd-serving-ca, namespace: shop}]\n" +
				"  clientCertSecret: [{name: etcd-client-cert, namespace: shop}]\n  signingCertificateValidity: 26280h\n" + extra
		}
		folder := screenFolder(t, map[string]string{
			"service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop, uid: 0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9}\nspec: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/8], ports: [{port: 443, protocol: TCP, nodePort: 30443}]}\n",
			"bad-service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: shop, annotations: {service.beta.kubernetes.io/do-loadbalancer-type: GLOBAL, " +
				"service.beta.kubernetes.io/do-loadbalancer-size-unit: \"-1\"}}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n",
			"nodes.yaml":       "apiVersion: v1\nkind: Node\nmetadata: {name: pool-workers-fra1-1}\nspec: {providerID: \"digitalocean://101\"}\nstatus: {addresses: [{type: ExternalIP, address: 198.51.100.1}]}\n",
			"old.yaml":         old("team-a", ""),
			"old-strange.yaml": old("team-a", "  servingCertificateValidity: 0h\n  clientCertificateValidity: 1hgarbage\n  replicas: 3\n") + "---\n" + old("Not_A_Name", ""),
		})
		args := slices.Clone(args)
		for i, a := range args {
			if strings.HasSuffix(a, ".yaml") {
				args[i] = filepath.Join(folder, a)
			}
		}
		if code := command.Run(t.Context(), NewCommand(Builtin()...), args, to, to); code == 0 && strings.Contains(t.Name(), "trouble") {
			t.Errorf("exit code %d", code)
		}
	}
}

// waitingList is one thing of each kind that waits for a person.
func waitingList() waiting.List {
	held := nodesync.Awaiting{
		Hash: "3f2a9c01d4be", Gate: nodesync.GateMass, Count: 12, Why: "12 nodes are gone whose deletion was not watched, including removals of the last 1h0m0s; the mass guard allows 4 of 40",
		Machines: []string{"pool-workers-fra1-1", "pool-workers-fra1-2", "pool-workers-fra1-3"},
	}
	old := held
	old.Hash, old.Gate = "5a5a5a5a5a5a", nodesync.GateOverlap
	return waiting.List{
		Waits: []finding.Verdict{
			waiting.Nodes("mooring-system", held, earlier(40*time.Second), "", screenTime()),
			waiting.Nodes("kube-system", old, earlier(3*time.Hour), "0123456789ab/2026-01-31T04:00:00Z", screenTime()),
			waiting.Topology("main", routereflector.Awaiting{Reason: "NodesVanished", Why: "of 20 Nodes there are 8 left", Word: "5d0c77aa"}),
			waiting.Topology("rack", routereflector.Awaiting{Reason: "MeshNotManaged", Why: "the topology is being deleted", Word: "MeshNotManaged", Given: true}),
		},
		Unread: []string{"reading ConfigMap kube-system/calico-node-sync-state: configmaps \"calico-node-sync-state\" is forbidden"},
	}
}

func screenConfirm(is waiting.List) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		columns, _ := screen.Terminal(to)
		_, err := io.WriteString(to, is.Text(screenTime(), columns))
		prints(t, err)
	}
}

func screenWorkload(ready int) doctor.ControllerEvidence {
	const name = "calico-node-sync"
	return doctor.ControllerEvidence{Now: screenTime(), Workloads: []doctor.Workload{{
		Kind: "Deployment", Namespace: "mooring-system", Name: name, Wanted: 2, Ready: ready, Images: []string{"registry.example.com/mooring/" + name + ":v0.1.0"},
		Labels: map[string]string{"app.kubernetes.io/part-of": "mooring", "app.kubernetes.io/name": name}, Args: []string{"--leader-elect"},
	}}, Leases: []doctor.Lease{{Namespace: "mooring-system", Name: name + ".nodes.mooring.dev", Holder: "calico-node-sync-7d9f-x", Renewed: screenTime()}}}
}

func wellFindings() []finding.Finding { return doctor.Controllers(screenWorkload(2)) }

func illFindings() []finding.Finding {
	e := screenWorkload(0)
	e.Unread = append(e.Unread, finding.Side{Name: "DaemonSets", Problem: "daemonsets.apps is forbidden: User \"a-reader\" cannot list resource \"daemonsets\" in API group \"apps\" at the cluster scope"})
	return doctor.Controllers(e)
}

func screenDoctor(findings []finding.Finding) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		format := screen.NewFormat(screen.Text)
		prints(t, screen.Findings(findings, &format, to))
	}
}

func screenRetained(rows ...[]string) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		prints(t, etcd.PrintRetained(rows, to))
	}
}

func screenCapacity(core bool, refused int64) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		prints(t, etcd.PrintCapacity([]etcd.Measured{
			{Request: "get", Clients: 1, PerSecond: 1623.4, Units: 1724.5, P50: 550 * time.Microsecond, P99: 2561 * time.Microsecond},
			{Request: "create", Clients: 64, PerSecond: 2691, Units: 10765, P50: 23124 * time.Microsecond, P99: 47 * time.Millisecond, Refused: refused},
		}, core, to))
	}
}

func screenPurge(keys int64) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		screen.Sentence(to, "would delete "+etcd.Left(operator.Owner{Tenant: "team-a", Prefix: "/team-a-with-a-very-long-name-that-somebody-chose/"}, operator.Core{Keys: keys, Records: 1}))
	}
}

func screenDefragment(full bool) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		h := operator.Health{At: screenTime()}
		for i := range 3 {
			h.Members = append(h.Members, operator.CoreMember{URL: fmt.Sprintf("https://etcd-%d.etcd-core.kube-apiserver-storage.svc.cluster.local:2379", i), Leader: true, IsLeader: i == 0, Size: 2 << 30, InUse: 300 << 20})
		}
		if full {
			h.NoSpace = []string{"8e9e05c52164694d", "91bc3c398fb3c146", "fd422379fda50e48"}
		}
		etcd.Announce(to, h, false)
	}
}

func screenVersion(whole bool) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		v := version.Result{Client: buildinfo.Info{
			Version: "v0.1.0", Commit: "0123456789abcdef0123456789abcdef01234567", Date: "2026-11-22T12:00:00Z", GoVersion: "go1.26.8", Platform: "linux/amd64",
		}, Kubernetes: "v1.37.2"}
		if whole { // versions that differ
			for _, name := range []string{"calico-node-sync", "calico-route-reflector-operator"} {
				v.Components = append(v.Components, finding.Component{Name: name, Namespace: "mooring-system", Version: "v0.0." + fmt.Sprint(len(name))})
			}
		}
		output := screen.NewFormat(screen.FormatTable)
		prints(t, v.Print(&output, to))
	}
}
