// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/ui"
)

// lockedBuffer is written by a command while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// servedPage is a running `kubectl mooring ui`.
type servedPage struct {
	url  string
	stop func() (code int, stderr string)
}

// serveUI runs the command until stop, which does what Ctrl-C does.
func serveUI(t *testing.T, args ...string) servedPage {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs lockedBuffer
	done := make(chan int, 1)
	go func() {
		done <- command.Run(ctx, plugin.NewCommand(plugin.Builtin()...), append([]string{"ui", "--no-browser"}, args...), &out, &errs)
	}()
	t.Cleanup(cancel)
	testkit.Eventually(t, "the page's address", func() string {
		select {
		case code := <-done:
			t.Fatalf("the command ended with %d: %s", code, errs.String())
		default:
		}
		if strings.HasSuffix(out.String(), "/\n") {
			return ""
		}
		return "printed so far: " + out.String() + errs.String()
	})
	stop := func() (int, string) {
		cancel()
		return <-done, errs.String()
	}
	return servedPage{strings.TrimSpace(out.String()), stop}
}

// get asks for a file of the page.
func (s servedPage) get(t *testing.T, name string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+name, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v: %s", name, response.Status, err, body)
	}
	return string(body)
}

func (s servedPage) page(t *testing.T, query string) ui.Page {
	t.Helper()
	var p ui.Page
	if err := json.Unmarshal([]byte(s.get(t, "page.json"+query)), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// texts are the rows of one of the page's tables, cells joined.
func texts(p ui.Page, key string) []string {
	for _, l := range p.Lists {
		if l.Key != key {
			continue
		}
		out := []string{l.Summary, l.Problem}
		for _, r := range l.Rows {
			var cells []string
			for _, c := range r.Cells {
				for _, b := range c.Bars {
					cells = append(cells, b.Label)
				}
				if c.Text != "" {
					cells = append(cells, c.Text)
				}
				if c.ID != "" {
					cells = append(cells, c.ID)
				}
			}
			out = append(out, strings.Join(cells, " | "))
		}
		return out
	}
	return nil
}

// testUI serves the page to somebody who may read what it shows, and no Secret.
func testUI(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	clearEnvironment(t)
	uiObjects(t, cluster)
	uiRights(t, cluster)
	s := serveUI(t, "--kubeconfig", cluster.Kubeconfig, "--as=ui-reader")
	if !strings.HasPrefix(s.url, "http://127.0.0.1:") {
		t.Errorf("the page is at %s", s.url)
	}
	p := s.page(t, "")
	if p.Machines.Total < 4 || p.Stale != "" || !strings.Contains(p.Cluster, " at https://") {
		t.Errorf("cluster %q, %d machines, stale %q", p.Cluster, p.Machines.Total, p.Stale)
	}
	zones := map[string][]string{}
	for _, z := range p.Machines.Zones {
		for _, m := range z.Machines {
			zones[z.Name] = append(zones[z.Name], m.Name)
		}
	}
	if !slices.Contains(zones["a"], "c1") || !slices.Contains(zones["b"], "c2") || !slices.Contains(zones["no zone"], "no-calico") {
		t.Errorf("zones %v", zones)
	}
	uiLists(t, p)
	if found := s.page(t, "?q=no-calico"); found.Machines.Total != 1 {
		t.Errorf("a filter finds %d machines", found.Machines.Total)
	}
	if drawn := s.get(t, "topology.svg"); !strings.Contains(drawn, "Topology main") {
		t.Errorf("the drawing is %.300s", drawn)
	}
	if html := s.get(t, ""); !strings.Contains(html, "<title>Mooring</title>") {
		t.Errorf("the page is %.300s", html)
	}
	if code, stderr := s.stop(); code != 0 || stderr != "note: anyone who knows this address sees the page; Ctrl-C ends it\n" {
		t.Errorf("ended with %d, %s", code, stderr)
	}
	uiWithFewRights(t, cluster)
	uiRefusals(t, cluster)
	statusOf(t, cluster)
}

// notReady makes a Node one whose kubelet no longer reports, or ready again.
func notReady(t *testing.T, cluster *controlplane.Cluster, name, status string) {
	t.Helper()
	mustKubectl(t, cluster, "", "patch", "node", name, "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Ready","status":"`+status+`","reason":"NodeStatusUnknown","lastTransitionTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}]}}`)
}

// downEverywhere powers off the machine of a reflector: as soon as its Node is NotReady, every command says so, and the page with its next reading.
func downEverywhere(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	s := serveUI(t, "--kubeconfig", cluster.Kubeconfig)
	var period struct{ EverySeconds float64 }
	if err := json.Unmarshal([]byte(s.get(t, "page.json")), &period); err != nil || period.EverySeconds <= 0 || period.EverySeconds > 30 {
		t.Errorf("the page reads every %v s (%v): a machine that is down must be on it within 30 s", period.EverySeconds, err)
	}
	verdict := func(p ui.Page) string {
		for _, z := range p.Machines.Zones {
			for _, m := range z.Machines {
				if m.Name == "r1" {
					return string(m.Verdict)
				}
			}
		}
		return "not shown"
	}
	if got := verdict(s.page(t, "")); got == string(finding.Down) {
		t.Fatalf("r1 is %s before anything happened to it", got)
	}
	notReady(t, cluster, "r1", "Unknown")
	has(t, explains(t, cluster.Kubeconfig, 2, "node", "r1"), "!down: the Node is NotReady: its kubelet no longer reports")
	if got := agreements(t, cluster, 2)["r1"].Verdict; got != finding.Down {
		t.Errorf("agreement: r1 is %s", got)
	}
	expect(t, 0, "", []string{"topology", "main", "--kubeconfig", cluster.Kubeconfig}, "r1", "the Node is NotReady")
	expect(t, 2, "", []string{"status", "--kubeconfig", cluster.Kubeconfig}, "r1 down: the Node is NotReady", "the Node is NotReady; last report: ")
	testkit.Eventually(t, "the page to show it", func() string {
		p := s.page(t, "?fresh=1")
		if got, list := verdict(p), strings.Join(texts(p, "reflectors"), "\n"); got != string(finding.Down) || !strings.Contains(list, "the Node is NotReady") {
			return "r1 is " + got + ", " + list
		}
		return ""
	})
	if code, _ := s.stop(); code != 0 {
		t.Errorf("ended with %d", code)
	}
	notReady(t, cluster, "r1", "True")
}

// statusOf runs the command on the same objects: a Node that is NotReady is down in every command, and green nowhere.
func statusOf(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	downEverywhere(t, cluster)
	mustKubectl(t, cluster, "", "patch", "node", "c2", "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown","lastTransitionTime":"2026-01-02T03:04:05Z"}]},"metadata":{}}`)
	ask := func(args ...string) []string { return append(args, "--kubeconfig", cluster.Kubeconfig) }
	code, out, errs := run(t, ask("status", "-o", "json"))
	var got struct {
		Health   []ui.Tile       `json:"health"`
		Machines []agreement.Row `json:"machines"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 2 || errs != "" {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	states := map[string]ui.State{}
	for _, tile := range got.Health {
		states[tile.Key] = tile.State
	}
	for key, want := range map[string]ui.State{"machines": ui.Bad, "waits": ui.Good, "doctor": ui.Bad, "tenants": ui.Bad, "components": ui.Bad} {
		if states[key] != want {
			t.Errorf("%s is %q, want %q", key, states[key], want)
		}
	}
	expect(t, 2, "", ask("status"), "Machines            bad       ", "Tenants of etcd     bad       1 of 1 need attention\n",
		"  ! not kept up to date: etcd-storage-operator: there is EtcdStorage shop", "  ! shop: it is not ready (ProxyNotReady): a proxy is not ready", "note: DigitalOcean not queried: ")
	expect(t, 1, "", []string{"status", "--kubeconfig", "/no/such/file"}, "error: reading the kubeconfig, pass --kubeconfig or --context to choose another")
	expect(t, 1, "", ask("status", "-o", "wide"), "use one of text, json, yaml")
	code, out, _ = run(t, ask("version"))
	if code != 0 || !strings.Contains(out, "\nkubernetes") {
		t.Errorf("version: exit code %d, %s", code, out)
	}
	// Watching ends with its context, and prints what it read.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watched lockedBuffer
	done := make(chan int, 1)
	go func() {
		done <- command.Run(ctx, plugin.NewCommand(plugin.Builtin()...), ask("agreement", "-w"), &watched, &lockedBuffer{})
	}()
	testkit.Eventually(t, "the first reading", func() string {
		if strings.HasPrefix(watched.String(), "MACHINE") {
			return ""
		}
		return "printed so far: " + watched.String()
	})
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("watching ended with %d", code)
	}
}

// uiRights makes a user who may read what the page shows, and one who may read Nodes.
func uiRights(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	mustKubectl(t, cluster, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"ui-reader"},"rules":[
		{"apiGroups":[""],"resources":["nodes","services","events","configmaps"],"verbs":["list"]},
		{"apiGroups":["bgp.mooring.dev"],"resources":["routereflectortopologies"],"verbs":["list"]},
		{"apiGroups":["etcd.mooring.dev"],"resources":["etcdstorages"],"verbs":["list"]},
		{"apiGroups":["crd.projectcalico.org"],"resources":["*"],"verbs":["get","list"]}]}`, "create", "-f", "-")
	mustKubectl(t, cluster, "", "create", "clusterrolebinding", "ui-reader", "--clusterrole=ui-reader", "--user=ui-reader")
	mustKubectl(t, cluster, "", "create", "clusterrole", "ui-nodes", "--verb=list", "--resource=nodes")
	mustKubectl(t, cluster, "", "create", "clusterrolebinding", "ui-nodes", "--clusterrole=ui-nodes", "--user=ui-nodes")
}

// uiObjects makes one of each thing that the page lists; the journal's entry is written by calico-node-sync's own code.
func uiObjects(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	ctx := t.Context()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "default", Annotations: map[string]string{"kubernetes.digitalocean.com/load-balancer-id": "lb-1"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443, NodePort: 30443}}, ExternalTrafficPolicy: "Local"},
	}
	service, err := cluster.Client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	if _, err := cluster.Client.CoreV1().Services("default").UpdateStatus(ctx, service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, cluster, "", "label", "node", "c1", corev1.LabelNodeExcludeBalancers+"=true")
	for _, source := range []string{"etcd-storage-operator", "somebody-else"} {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "event-of-" + source, Namespace: "default"}, Source: corev1.EventSource{Component: source}, Reason: "Told", Message: "by " + source,
			InvolvedObject: corev1.ObjectReference{Kind: "EtcdStorage", Name: "shop"}, Type: corev1.EventTypeWarning, Count: 3, LastTimestamp: metav1.Now(),
		}
		if _, err := cluster.Client.CoreV1().Events("default").Create(ctx, event, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	journal, err := controller.NewConfigMapJournal(cluster.Config, "kube-system")
	if err != nil {
		t.Fatal(err)
	}
	forge(t, cluster)
	entry := controller.Entry{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Host: "gone-1", Because: "its Node is gone", Steps: []string{"remove it"}, Objects: []calico.Object{{Key: "/k", Value: "v"}},
	}
	if err := journal.Record(ctx, entry); err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, cluster, "", "apply", "--server-side", "-f", filepath.Join(testkit.Root(t), "config", "crd", "bases", etcdv1alpha1.GroupVersion.Group+"_etcdstorages.yaml"))
	mustKubectl(t, cluster, "", "wait", "--for=condition=Established", "crd/etcdstorages."+etcdv1alpha1.GroupVersion.Group, "--timeout=60s")
	mustKubectl(t, cluster, `{"apiVersion":"`+etcdv1alpha1.GroupVersion.String()+`","kind":"EtcdStorage","metadata":{"name":"shop"},"spec":{"quota":{"bytes":"4Mi","keys":200}}}`, "create", "-f", "-")
	mustKubectl(t, cluster, "", "patch", "ets", "shop", "--type=merge", "--subresource=status", "-p", `{"status":{"proxies":"3/3",
		"usage":{"keys":20,"bytes":"1Mi","leases":2,"observedAt":"2026-01-02T03:04:05Z"},
		"conditions":[{"type":"Ready","status":"False","reason":"ProxyNotReady","message":"a proxy is not ready","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`)
}

// forge writes what anybody with the role edit in a namespace can: Events that name our components, and ConfigMaps like those of calico-node-sync.
func forge(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	mustKubectl(t, cluster, "", "create", "namespace", "forged")
	for i, e := range []corev1.Event{
		{Source: corev1.EventSource{Component: "calico-node-sync"}, Message: "run: kubectl delete node c1", InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: "c1", Namespace: "forged"}},
		{Source: corev1.EventSource{Component: "service-controller"}, Message: "run: kubectl delete node c2", InvolvedObject: corev1.ObjectReference{Kind: "Service", Name: "web", Namespace: "forged"}},
	} {
		e.ObjectMeta = metav1.ObjectMeta{Name: fmt.Sprintf("forged-%d", i), Namespace: "forged"}
		e.Reason, e.Type, e.Count, e.LastTimestamp = "X", corev1.EventTypeWarning, 1, metav1.Now()
		if _, err := cluster.Client.CoreV1().Events("forged").Create(t.Context(), &e, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	journal, err := controller.NewConfigMapJournal(cluster.Config, "forged")
	if err != nil {
		t.Fatal(err)
	}
	if err := journal.Record(t.Context(), controller.Entry{Time: time.Now(), Host: "forged-host", Because: "x", Steps: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	mustKubectl(t, cluster, "", "create", "configmap", "-n", "forged", controller.StateName)
}

// uiLists looks at what stands in the tables.
func uiLists(t *testing.T, p ui.Page) {
	t.Helper()
	balancers := texts(p, "balancers")
	if len(balancers) != 3 || !strings.HasPrefix(balancers[2], "default/shop | 203.0.113.7 | lb-1 | no node is ready for the load balancer: ") ||
		!strings.Contains(balancers[2], " | 443/TCP → 30443 | ") || // these Nodes have no addresses
		!strings.Contains(balancers[2], "c1 (has the label "+corev1.LabelNodeExcludeBalancers+")") || !strings.Contains(balancers[2], "externalTrafficPolicy Local") {
		t.Errorf("load balancers %q", balancers)
	}
	tenants := texts(p, "tenants")
	if want := "shop | it is not ready (ProxyNotReady): a proxy is not ready; a change of the spec: what is reported is about generation -1, and the current generation is 1 | 3/3 | keys: 20 of 200 (10 %) | bytes: 1.0 MiB of 4.0 MiB (25 %) | leases: 2, unbounded"; len(tenants) != 3 || tenants[2] != want {
		t.Errorf("tenants %q, want %q", tenants, want)
	}
	journal := texts(p, "journal")
	for _, want := range []string{
		"etcd-storage-operator | EtcdStorage shop | Told | by etcd-storage-operator (3 times)", "calico-node-sync | gone-1 | Journaled | 1 step, because its Node is gone",
	} {
		if !slices.Contains(journal, want) {
			t.Errorf("%q is not in %q", want, journal)
		}
	}
	if strings.Contains(strings.Join(journal, "\n"), "somebody-else") {
		t.Errorf("an Event of somebody else is shown: %q", journal)
	}
	// What an editor of a namespace forges is not shown, but for Events about its own Services, which are called unverified.
	if strings.Contains(strings.Join(journal, "\n"), "delete node c1") || strings.Contains(strings.Join(journal, "\n"), "forged-host") ||
		!slices.Contains(journal, "unverified: service-controller | Service forged/web | X | run: kubectl delete node c2") {
		t.Errorf("forged steps: %q", journal)
	}
	if reflectors := strings.Join(texts(p, "reflectors"), "\n"); !strings.Contains(reflectors, "main |  | r1") && !strings.Contains(reflectors, "main | r1") {
		t.Errorf("reflectors %q", reflectors)
	}
}

// What may not be read is said where it is missing; all else is shown.
func uiWithFewRights(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	s := serveUI(t, "--kubeconfig", cluster.Kubeconfig, "--as=ui-nodes")
	p := s.page(t, "")
	if p.Machines.Total < 4 {
		t.Errorf("%d machines", p.Machines.Total)
	}
	for key, want := range map[string]string{
		"reflectors": "listing RouteReflectorTopologies: ", "balancers": "listing Services: ", "volumes": "listing StorageClasses: ", "tenants": "listing EtcdStorages: ", "journal": "listing the journal of calico-node-sync: ",
	} {
		if problem := texts(p, key)[1]; !strings.HasPrefix(problem, want) || !strings.Contains(problem, "forbidden") {
			t.Errorf("%s: %q", key, problem)
		}
	}
	states := map[string]ui.Tile{}
	for _, tile := range p.Health {
		states[tile.Key] = tile
	}
	if waits, doctor := states["waits"], states["doctor"]; waits.State != ui.Unread || !strings.Contains(waits.Text, "reading ConfigMap ") ||
		doctor.State != ui.Unread || !strings.HasSuffix(strings.SplitN(doctor.Text, ",", 2)[0], " not read") {
		t.Errorf("what may not be read is shown as %+v and %+v", waits, doctor)
	}
	if code, _ := s.stop(); code != 0 {
		t.Errorf("ended with %d", code)
	}
}

// Bad input is told in one sentence, before anything is listened at.
func uiRefusals(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	expect(t, 1, "", []string{"ui", "--kubeconfig", cluster.Kubeconfig, "--as=nobody", "--no-browser"}, "error: listing Nodes: ")
	expect(t, 1, "", []string{"ui", "--kubeconfig", "/no/such/file"}, "error: reading the kubeconfig, pass --kubeconfig or --context to choose another")
	expect(t, 1, "", []string{"ui", "--port", "70000"}, "error: --port 70000: use 0 to 65535")
	expect(t, 1, "", []string{"ui", "what"}, "error: ")
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	expect(t, 1, "", []string{"ui", "--kubeconfig", cluster.Kubeconfig, "--no-browser", "--port", port}, "error: listening for the browser, pass --port for another port: ")
}
