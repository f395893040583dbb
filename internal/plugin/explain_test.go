// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/routereflector"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// readOnly is a kubeconfig through which nothing but reads pass; what else was tried fails the test at its end.
func readOnly(t *testing.T, cluster *controlplane.Cluster) string {
	t.Helper()
	transport, err := rest.TransportFor(cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cluster.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	var mu sync.Mutex
	var writes []string
	reads := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if reads++; r.Method != http.MethodGet {
			writes = append(writes, r.Method+" "+r.URL.Path)
		}
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.Close()
		if len(writes) > 0 || reads == 0 {
			t.Errorf("explain only reads; of %d requests it sent %q", reads, writes)
		}
	})
	return write(t, "kubeconfig", `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]
users: [{name: u, user: {}}]
`)
}

// explains runs the command in JSON and returns its lines as "!topic: text".
func explains(t *testing.T, kubeconfig string, code int, args ...string) []string {
	t.Helper()
	got, out, errs := run(t, append([]string{"explain", "--kubeconfig", kubeconfig, "-o", "json"}, args...))
	var e explain.Explanation
	if err := json.Unmarshal([]byte(out), &e); err != nil || got != code || errs != "" || e.Attention != (code == 2) {
		t.Fatalf("%q: exit code %d, want %d; %v: %s%s", args, got, code, err, out, errs)
	}
	var lines []string
	for _, s := range e.Sections {
		for _, l := range s.Lines {
			mark := ""
			if l.Attention {
				mark = "!"
			}
			lines = append(lines, mark+l.Topic+": "+l.Text)
		}
	}
	return lines
}

// has demands lines, word for word up to where they end.
func has(t *testing.T, lines []string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, w) }) {
			t.Errorf("%q is not in\n%s", w, strings.Join(lines, "\n"))
		}
	}
}

// explainNothing is the command in a cluster that has none of the kinds, and each bad input, told in one sentence.
func explainNothing(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	clearEnvironment(t)
	const kinds = "use node (no), service (svc), pvc or etcdstorage (ets)"
	const form = "use explain KIND NAME or explain KIND/NAME, such as explain node worker-1"
	ask := func(args ...string) []string {
		return append([]string{"explain", "--kubeconfig", cluster.Kubeconfig}, args...)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{ask(), "error: no object is named: " + form + "; for KIND " + kinds},
		{ask("pod", "x"), `error: unsupported kind "pod": ` + kinds},
		{ask("node"), "error: explain node needs a name: " + form},
		{ask("svc/"), "error: explain service needs a name: " + form},
		{ask("node", "a", "b"), `error: "b" is an extra argument: ` + form},
		{ask("node/a", "b"), `error: "b" is an extra argument: ` + form},
		{ask("svc/shop/web"), `error: "shop/web" is not a name: the namespace of a Service is given with -n`},
		{ask("node/x/y"), `error: "x/y" is not a name: ` + form},
		{ask("node", "x", "--defaults=f"), "error: --defaults is about load balancers: use it with a service only"},
		{ask("ets", "x", "--default-type=REGIONAL"), "error: --default-type is about load balancers: use it with a service only"},
		{ask("svc", "x", "--timeline"), "error: --timeline is about machines: use it with a node only"},
		{ask("node", "x", "--timeline"), `error: there is no Node "x", and nothing shows any more that there was one`},
		{ask("svc", "x", "--default-type=GLOBAL"), `error: --default-type is "GLOBAL", it must be REGIONAL or REGIONAL_NETWORK`},
		{ask("svc", "x", "--defaults=/no/such/file"), "error: reading defaults for annotations: open /no/such/file: no such file or directory"},
		{ask("node", "x", "-o", "table"), "use one of text, json, yaml"},
		{[]string{"explain", "node", "x", "--kubeconfig", "/no/such/file"}, "error: reading the kubeconfig, pass --kubeconfig or --context to choose another"},
		{ask("NODE", "x"), `error: no side knows a machine "x"`},
		{ask("svc", "x"), `error: there is no Service "x" in namespace default; -n names another namespace`},
		{ask("ets/x"), "error: the cluster has no kind EtcdStorage: install etcd-storage-operator first"},
	} {
		if out := expect(t, 1, "", tt.args, tt.want); out != "" {
			t.Errorf("%q prints %s", tt.args, out)
		}
	}
	// A cluster without the kind of topologies has no reflectors: nothing is missing, and nothing is said.
	if _, out, errs := run(t, []string{"agreement", "--kubeconfig", cluster.Kubeconfig}); strings.Contains(out+errs, "RouteReflectorTopology") || !strings.Contains(errs, "note: Calico not queried") {
		t.Errorf("agreement prints %s%s", out, errs)
	}
	t.Setenv("DO_ACCESS_TOKEN", "a b")
	expect(t, 1, "", ask("svc", "x"), "error: the DigitalOcean token in DO_ACCESS_TOKEN: it has blanks")
	t.Setenv("DO_ACCESS_TOKEN", "")
	t.Setenv("DATASTORE_TYPE", "etcdv3")
	expect(t, 1, "", ask("node", "x"), "error: the datastore is etcdv3 but no endpoint is named: set ETCD_ENDPOINTS")
	clearEnvironment(t)
}

// testExplain explains what the tests of topology and agreement have left: reflector r1, clients, and the kinds of Calico.
func testExplain(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	clearEnvironment(t)
	kubeconfig := readOnly(t, cluster)
	explainNodes(t, cluster, kubeconfig)
	explainTimeline(t, cluster, kubeconfig)
	explainInEtcd(t, kubeconfig)
	service(t, cluster, kubeconfig)
	explainTenant(t, cluster, kubeconfig)
	explainCompletes(t, kubeconfig)
	mustKubectl(t, cluster, "", "delete", "-n", "shop", "service/web")
	mustKubectl(t, cluster, "", "delete", "ets", "team-a")
}

// events are made as a component makes them.
func tell(t *testing.T, cluster *controlplane.Cluster, namespace, name, source, regarding, related, text string) {
	t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	mustKubectl(t, cluster, fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"%s","namespace":"%s"},"involvedObject":%s,"related":%s,"reportingComponent":"%s","source":{"component":"%s"},
		"type":"Normal","reason":"Told","message":"%s","firstTimestamp":"%s","lastTimestamp":"%s","count":1}`, name, namespace, regarding, related, source, source, text, now, now), "create", "-f", "-")
}

func explainNodes(t *testing.T, cluster *controlplane.Cluster, kubeconfig string) {
	t.Helper()
	const none = "null"
	tell(t, cluster, "kube-system", "cleaned", "calico-node-sync", `{"kind":"Namespace","name":"kube-system","namespace":"kube-system"}`, `{"kind":"Node","name":"c1"}`, "about c1")
	tell(t, cluster, "default", "promoted", "calico-route-reflector-operator", `{"kind":"RouteReflectorTopology","name":"main"}`, none, "Node/c1: because")
	tell(t, cluster, "default", "longer", "calico-route-reflector-operator", `{"kind":"RouteReflectorTopology","name":"main"}`, none, "Node/c1-2: another's")
	// Anybody who may write Events in a namespace of his own can name our components.
	tell(t, cluster, "kube-public", "forged", "calico-node-sync", `{"kind":"Namespace","name":"kube-public","namespace":"kube-public"}`, `{"kind":"Node","name":"c1"}`, "forged, about c1")
	tell(t, cluster, "default", "foreign", "kubelet", `{"kind":"Node","name":"c1"}`, none, "not ours")
	tell(t, cluster, "default", "cloud", "digitalocean-cloud-controller-manager", `{"kind":"Node","name":"c1"}`, none, "of the cloud")

	lines := explains(t, kubeconfig, 2, "node", "c1") // nobody has made a ClusterInformation, and no operator runs
	has(t, lines, "Node: Ready", "Calico: 10.0.0.2", "not queried: DigitalOcean: there is no token in DO_ACCESS_TOKEN",
		"!held back: nothing at all is removed: Calico's ClusterInformation does not report datastoreReady", "role: not a reflector",
		"!held back: Calico's ClusterInformation says datastoreReady=false")
	told := 0
	for _, line := range lines {
		if strings.Contains(line, "Told: ") {
			told++
		}
		if strings.Contains(line, "another's") || strings.Contains(line, "not ours") {
			t.Errorf("an Event of others: %s", line)
		}
	}
	if told != 3 {
		t.Errorf("%d Events are told, want three, in\n%s", told, strings.Join(lines, "\n"))
	}

	mustKubectl(t, cluster, `{"apiVersion":"crd.projectcalico.org/v1","kind":"ClusterInformation","metadata":{"name":"default"},"spec":{"datastoreReady":true}}`, "create", "-f", "-")
	has(t, explains(t, kubeconfig, 2, "node/c1"), "plan: nothing: its Kubernetes Node is there, so nothing of it is removed",
		"client: of the only group, cluster ID 244.0.0.1, whose desired reflectors are", "!found: its operator has not reported on it")
	const unkept = "!reported: not kept up to date: calico-route-reflector-operator: there is RouteReflectorTopology main, and nothing that runs it"
	has(t, explains(t, kubeconfig, 2, "no", "r1"), "reflector: main", "role: reflector of the only group, in zone a, cluster ID 244.0.0.1", unkept)

	// A machine without a Node; the controller's memory makes its absence older than now.
	for i, host := range []string{"old", "c1", "c2"} { // alone it would look like another cluster's
		mustKubectl(t, cluster, fmt.Sprintf(`{"apiVersion":"crd.projectcalico.org/v1","kind":"BlockAffinity","metadata":{"name":"%s-10-1-%d-0-26"},
			"spec":{"cidr":"10.1.%d.0/26","node":"%s","state":"confirmed","deleted":"false"}}`, host, i, i, host), "create", "-f", "-")
	}
	has(t, explains(t, kubeconfig, 2, "node", "old"), "!disagree: Calico holds addresses for a host that is not a Kubernetes Node", "!waits: absent since ",
		"memory: no state of a running controller was found (none, or an old one), so that an absence starts now")
	now := time.Now().UTC()
	memory := fmt.Sprintf(`{"savedAt":"%s","absences":[{"calicoNode":"old","kubernetesNode":"old","since":"%s","witnessed":true}]}`,
		now.Format(time.RFC3339), now.Add(-time.Hour).Format(time.RFC3339))
	state, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"name": "calico-node-sync-state", "namespace": "kube-system"},
		"data": map[string]string{"memory.json": memory}})
	if err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, cluster, string(state), "create", "-f", "-")
	has(t, explains(t, kubeconfig, 2, "node", "old"), "!plan: Kubernetes Node old is gone: deletion watched, absent for 1h0m", "!step: ", "memory: that of calico-node-sync")
	// While somebody holds the Lease of calico-node-sync, what it is about to remove settles; what a memory alone would remove does not.
	leftover := "Calico holds addresses for a host that is not a Kubernetes Node"
	has(t, explains(t, kubeconfig, 2, "node", "old"), "!disagree: "+leftover)
	mustKubectl(t, cluster, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"calico-node-sync.nodes.mooring.dev","namespace":"kube-system"},
		"spec":{"holderIdentity":"a","renewTime":"`+now.Format("2006-01-02T15:04:05.000000Z07:00")+`"}}`, "create", "-f", "-")
	has(t, explains(t, kubeconfig, 0, "node", "old"), "settling: "+leftover, "next: calico-node-sync removes it: at its next reconcile")
	mustKubectl(t, cluster, "", "delete", "-n", "kube-system", "lease", "calico-node-sync.nodes.mooring.dev")

	// Pods count where they run.
	mustKubectl(t, cluster, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"default"}}`, "apply", "-f", "-")
	mustKubectl(t, cluster, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default"},"spec":{"nodeName":"c1","containers":[{"name":"c","image":"i"}]}}`, "create", "-f", "-")
	has(t, explains(t, kubeconfig, 2, "node", "c1"), "workloads: pods on it that no DaemonSet made: 1")
}

// The timeline of a machine that failed has what its Node, its Lease and the components' Events show, and not what others
// have written under the components' names; without the Node it says what is not known any more.
func explainTimeline(t *testing.T, cluster *controlplane.Cluster, kubeconfig string) {
	t.Helper()
	failed := time.Now().UTC().Add(-2 * time.Minute).Truncate(time.Second)
	at := func(seconds int) string { return failed.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339) }
	record := func(namespace, name, source, regarding, reason, text string, seconds int) {
		mustKubectl(t, cluster, fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"%s","namespace":"%s"},"involvedObject":%s,
			"reportingComponent":"%s","source":{"component":"%s"},"type":"Normal","reason":"%s","message":"%s","firstTimestamp":"%s","lastTimestamp":"%s","count":1}`,
			name, namespace, regarding, source, source, reason, text, at(seconds), at(seconds+1)), "create", "-f", "-")
	}
	mustKubectl(t, cluster, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"dead"}}`, "create", "-f", "-")
	mustKubectl(t, cluster, "", "patch", "node", "dead", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[
		{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":"`+at(40)+`","lastHeartbeatTime":"`+at(0)+`"}]}}`)
	mustKubectl(t, cluster, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-node-lease"}}`, "apply", "-f", "-")
	mustKubectl(t, cluster, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"dead","namespace":"kube-node-lease"},
		"spec":{"holderIdentity":"dead","renewTime":"`+failed.Format("2006-01-02T15:04:05.000000Z07:00")+`"}}`, "create", "-f", "-")
	const balancer = "gets no traffic from the load balancer: node dead is not ready"
	record("default", "dead-deleting", "cloud-node-lifecycle-controller", `{"kind":"Node","name":"dead"}`, "DeletingNode", "Deleting node dead", 60)
	record("kube-system", "dead-cleaned", "calico-node-sync", `{"kind":"Namespace","name":"kube-system","namespace":"kube-system"}`, "MachineCleaned", "Cleaned up node dead", 100)
	record("kube-public", "dead-forged", "digitalocean-cloud-controller-manager", `{"kind":"Service","name":"web","namespace":"kube-public"}`, "LoadBalancerNodesLeftOut", balancer, 50)

	var is explain.Timeline
	show := func() (sides []string) {
		is = explain.Timeline{}
		code, out, errs := run(t, []string{"explain", "node", "dead", "--timeline", "-o", "json", "--kubeconfig", kubeconfig})
		if err := json.Unmarshal([]byte(out), &is); err != nil || code != 0 || errs != "" {
			t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
		}
		for _, m := range is.Moments {
			sides = append(sides, fmt.Sprintf("%s +%.0f", m.Side, m.Seconds))
		}
		return sides
	}
	if got, want := show(), []string{"Node +0", "Node +40", "Node +60", "Calico +100"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v: %+v", got, want, is)
	}
	if !slices.ContainsFunc(is.Unknown, func(g explain.Gap) bool { return g.Side == "load balancer" }) {
		t.Errorf("a forged Event counts: %+v", is)
	}
	mustKubectl(t, cluster, "", "delete", "node", "dead")
	mustKubectl(t, cluster, "", "delete", "-n", "kube-node-lease", "lease", "dead")
	if got, want := show(), []string{"Node +0", "Calico +40"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v: %+v", got, want, is)
	}
	if _, out, _ := run(t, []string{"explain", "no/dead", "--timeline", "--kubeconfig", kubeconfig}); !strings.Contains(out, "when it became NotReady: only a Node shows that, and there is none") {
		t.Errorf("it prints\n%s", out)
	}
}

// In Calico's etcdv3 datastore a machine may have another name; nothing is written there either.
func explainInEtcd(t *testing.T, kubeconfig string) {
	t.Helper()
	etcd := testkit.NewEtcd(t)
	const prefix = "/calico/resources/v3/projectcalico.org/"
	for key, value := range map[string]string{
		"nodes/c1.example":            `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"c1.example"},"spec":{"bgp":{"ipv4Address":"10.0.0.2/24"},"orchRefs":[{"nodeName":"c1","orchestrator":"k8s"}]}}`,
		"nodes/r1":                    `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"r1"},"spec":{"orchRefs":[{"nodeName":"r1","orchestrator":"k8s"}]}}`,
		"clusterinformations/default": `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"datastoreReady":true}}`,
	} {
		if _, err := etcd.Client.Put(t.Context(), prefix+key, value); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ETCD_ENDPOINTS", etcd.Endpoint)
	before := etcd.Revision(t)
	has(t, explains(t, kubeconfig, 2, "node", "c1"), "Calico: c1.example", "plan: nothing: its Kubernetes Node is there", "client: of the only group")
	if after := etcd.Revision(t); after != before {
		t.Errorf("the store moved from revision %d to %d", before, after)
	}
	foreign := `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","annotations":{"` + routereflector.BindingAnnotation + `":"another"}},"spec":{}}`
	if _, err := etcd.Client.Put(t.Context(), prefix+"clusterinformations/default", foreign); err != nil {
		t.Fatal(err)
	}
	has(t, explains(t, kubeconfig, 2, "node", "c1"), "!unknown: Calico's datastore could not be read: this etcd belongs to the cluster",
		"!plan: not known: this etcd belongs to the cluster whose namespace kube-system has UID another")
	clearEnvironment(t)
}

func service(t *testing.T, cluster *controlplane.Cluster, kubeconfig string) {
	t.Helper()
	mustKubectl(t, cluster, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`, "create", "-f", "-")
	mustKubectl(t, cluster, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop","annotations":{"service.beta.kubernetes.io/do-loadbalancer-protocol":"http"}},
		"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}`, "create", "-f", "-")
	mustKubectl(t, cluster, "", "patch", "node", "c1", "--subresource=status", "--type=merge", "-p", `{"status":{"addresses":[{"type":"ExternalIP","address":"198.51.100.7"}]}}`)
	about := `{"kind":"Service","name":"web","namespace":"shop"}`
	tell(t, cluster, "shop", "made", "digitalocean-cloud-controller-manager", about, "null", "is being made")
	lines := explains(t, kubeconfig, 2, "svc", "web", "-n", "shop", "--default-type=REGIONAL")
	has(t, lines, "answers at: nothing yet: the Service is ", "DigitalOcean: not queried: there is no token in DO_ACCESS_TOKEN", "forwards: http:80 → http:3",
		`protocol: "http": forwards http:80 → http:3`, "targets: 1: c1 (no provider ID yet)", "!left out: node no-calico has no IPv4 address")
	if !slices.ContainsFunc(lines, func(l string) bool {
		return strings.HasSuffix(l, "Told: is being made (unverified, source digitalocean-cloud-controller-manager)")
	}) {
		t.Errorf("the Event is not in\n%s", strings.Join(lines, "\n"))
	}
	file := write(t, "defaults.yaml", "service.beta.kubernetes.io/do-loadbalancer-size-unit: \"3\"\n")
	has(t, explains(t, kubeconfig, 2, "service/web", "-n", "shop", "--defaults", file), `size-unit: "3", a default of the cluster: option size 3`)

	// With a token DigitalOcean is asked, here for a load balancer that it does not know, and droplets count by name.
	cloud := sim.New(sim.Options{Seed: 1})
	if _, err := cloud.Account("").CreateDroplet(sim.DropletSpec{Name: "c1", Size: "s-1vcpu-1gb"}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(cloud.Handler())
	defer server.Close()
	t.Setenv("DO_OVERRIDE_URL", server.URL)
	t.Setenv("DO_ACCESS_TOKEN", sim.DefaultToken)
	const id = "11111111-2222-3333-4444-555555555555"
	mustKubectl(t, cluster, "", "annotate", "-n", "shop", "service/web", "kubernetes.digitalocean.com/load-balancer-id="+id)
	// What a token of another account does not see is not gone.
	has(t, explains(t, kubeconfig, 2, "svc", "web", "-n", "shop"), "!DigitalOcean: not known: the token is one of account ")
	mustKubectl(t, cluster, "", "delete", "-n", "kube-system", "lease/digitalocean-cloud-controller-manager-account")
	has(t, explains(t, kubeconfig, 2, "svc", "web", "-n", "shop"), "!trouble: DigitalOcean has no load balancer "+id+" that this token may see", "targets: 1: c1 (droplet ")
	t.Setenv("DO_ACCESS_TOKEN", "wrong")
	has(t, explains(t, kubeconfig, 2, "svc", "web", "-n", "shop"), "!DigitalOcean: not known: asking for the account: ", "assumed: ")
	clearEnvironment(t)
	if code, out, _ := run(t, []string{"explain", "svc", "kubernetes", "--kubeconfig", kubeconfig}); code != 0 || !strings.HasPrefix(out, "Service default/kubernetes: nothing needs attention\n\nService\n    asks for  no load balancer of DigitalOcean: ") || strings.Contains(out, "\x1b") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

func explainTenant(t *testing.T, cluster *controlplane.Cluster, kubeconfig string) {
	t.Helper()
	mustKubectl(t, cluster, "", "apply", "--server-side", "-f", filepath.Join(testkit.Root(t), "config", "crd", "bases", etcdv1alpha1.GroupVersion.Group+"_etcdstorages.yaml"))
	served(t, cluster, "etcdstorages."+etcdv1alpha1.GroupVersion.Group)
	mustKubectl(t, cluster, `{"apiVersion":"`+etcdv1alpha1.GroupVersion.String()+`","kind":"EtcdStorage","metadata":{"name":"team-a"},"spec":{"quota":{"keys":200}}}`, "create", "-f", "-")
	has(t, explains(t, kubeconfig, 2, "ets", "team-a"), "!pending: the operator has not reported on it yet")
	mustKubectl(t, cluster, "", "patch", "ets", "team-a", "--type=merge", "--subresource=status", "-p", `{"status":{"observedGeneration":1,"proxies":"3/3","readyReplicas":3,
		"usage":{"keys":50,"bytes":"1Mi","leases":2,"observedAt":"2026-11-22T10:00:00Z"},
		"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"","observedGeneration":1,"lastTransitionTime":"2026-11-22T10:00:00Z"}]}}`)
	tell(t, cluster, "default", "claimed", "etcd-storage-operator", `{"kind":"EtcdStorage","name":"team-a","apiVersion":"`+etcdv1alpha1.GroupVersion.String()+`"}`, "null", "owners/team-a: the prefix has no owner yet")
	lines := explains(t, kubeconfig, 2, "etcdstorage.etcd.mooring.dev/team-a")
	has(t, lines, "!reported: not kept up to date: etcd-storage-operator: there is EtcdStorage team-a, and nothing that runs it", "Ready: it is ready (", "keys: 50 of 200 (25 %)", "bytes: 1.0 MiB, unbounded", "issued: none yet")
	if !slices.ContainsFunc(lines, func(l string) bool {
		return strings.Contains(l, "Told: owners/team-a: the prefix has no owner yet (etcd-storage-operator)")
	}) {
		t.Errorf("the Event is not in\n%s", strings.Join(lines, "\n"))
	}
	if code, out, _ := run(t, []string{"explain", "ets", "team-a", "--kubeconfig", kubeconfig, "-o", "yaml"}); code != 2 || !strings.HasPrefix(out, "attention: true\nkind: EtcdStorage\nname: team-a\nsections:\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
	expect(t, 1, "", []string{"explain", "ets", "nope", "--kubeconfig", kubeconfig}, `error: there is no EtcdStorage "nope"`)
}

// Kinds complete, then names, in both ways to write them.
func explainCompletes(t *testing.T, kubeconfig string) {
	t.Helper()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{""}, "node\nservice\npvc\netcdstorage\n:4\n"},
		{[]string{"no", ""}, "c1\nc2\nd1\nd2\nno-calico\nr1\n:4\n"},
		{[]string{"ets/"}, "ets/team-a\n:4\n"},
		{[]string{"-n", "shop", "svc", ""}, "web\n:4\n"},
		{[]string{"svc", ""}, ":4\n"}, // of type LoadBalancer alone
		{[]string{"pod", ""}, ":4\n"},
		{[]string{"node", "c1", ""}, ":4\n"},
		{[]string{"node", "c1", "-o", ""}, "text\njson\nyaml\n:4\n"},
	} {
		_, out, _ := run(t, append([]string{"__complete", "explain", "--kubeconfig", kubeconfig}, tt.args...))
		if out != tt.want {
			t.Errorf("%q completes %q, want %q", tt.args, out, tt.want)
		}
	}
	if _, out, _ := run(t, []string{"__complete", "explain", "--kubeconfig", "/no/such/file", "node", ""}); out != ":4\n" {
		t.Errorf("without a cluster: %q", out)
	}
}
