// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// manager is the real program, as a process, between a real API server and a simulated DigitalOcean.
type manager struct {
	*testkit.Process
	t       *testing.T
	cluster *controlplane.Cluster
	log     string
	env     []string
	args    []string
}

// startManager starts the program. All tests of this package that do so share one cluster, all of whose Nodes every manager sees, so that they
// must not run side by side.
func startManager(t *testing.T, cloud *sim.Simulator, kubeconfig string, env []string, args ...string) *manager {
	t.Helper()
	server := httptest.NewServer(cloud.Handler())
	t.Cleanup(server.Close)
	m := &manager{t: t, cluster: controlplane.Shared(t), log: filepath.Join(t.TempDir(), "log")}
	m.env = append([]string{asProgram + "=" + quickly, "DO_OVERRIDE_URL=" + server.URL, "REGION=nyc1", "DO_ACCESS_TOKEN=" + sim.DefaultToken}, env...)
	m.args = append([]string{
		"--kubeconfig", kubeconfig, "--secure-port=0", "--leader-elect=false", "--controller-start-interval=0s",
		"--node-monitor-period=500ms", "--node-status-update-frequency=1s",
	}, args...)
	m.start()
	t.Cleanup(func() {
		m.Stop()
		if strings.Contains(m.Output(), sim.DefaultToken) {
			t.Error("the token is in the log")
		}
		if t.Failed() {
			t.Log(m.Output())
		}
	})
	return m
}

func (m *manager) start() {
	m.t.Helper()
	m.Process = testkit.Start(m.t, m.log, m.env, os.Args[0], m.args...)
}

// node registers a Node as a kubelet does that was started with --cloud-provider=external.
func node(t *testing.T, c *controlplane.Cluster, name string) {
	t.Helper()
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
	}
	must.Get(c.Client.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})).Or(t)
	t.Cleanup(func() { _ = c.Client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	// A patch, since the manager may have described the Node already.
	ready := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
	must.Get(c.Client.CoreV1().Nodes().PatchStatus(t.Context(), name, []byte(ready))).Or(t)
}

// notReady is what kube-controller-manager says of a Node whose kubelet is silent.
func notReady(t *testing.T, c *controlplane.Cluster, name string) {
	t.Helper()
	patch := `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`
	must.Get(c.Client.CoreV1().Nodes().PatchStatus(t.Context(), name, []byte(patch))).Or(t)
}

// initialized says what a Node still lacks, nothing if it is all there.
func initialized(t *testing.T, c *controlplane.Cluster, name string, d sim.Droplet) string {
	t.Helper()
	n, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if want := fmt.Sprintf("digitalocean://%d", d.ID); n.Spec.ProviderID != want {
		return fmt.Sprintf("provider ID %q, want %q", n.Spec.ProviderID, want)
	}
	for _, taint := range n.Spec.Taints {
		if taint.Key == cloudproviderapi.TaintExternalCloudProvider {
			return "it has the taint"
		}
	}
	if n.Labels[corev1.LabelInstanceTypeStable] != d.SizeSlug || n.Labels[corev1.LabelTopologyRegion] != d.Region.Slug {
		return fmt.Sprintf("labels %v", n.Labels)
	}
	if len(n.Status.Addresses) == 0 {
		return "it has no addresses"
	}
	return ""
}

func absent(t *testing.T, c *controlplane.Cluster, name string) string {
	t.Helper()
	if _, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Sprintf("it is still there (%v)", err)
	}
	return ""
}

func droplet(t *testing.T, cloud *sim.Simulator, spec sim.DropletSpec) sim.Droplet {
	t.Helper()
	d := must.Get(cloud.Account("").CreateDroplet(spec)).Or(t)
	return d
}

// forgetRecord removes what binds the shared cluster to the account of another test.
func forgetRecord(t *testing.T, c *controlplane.Cluster) {
	t.Helper()
	err := c.Client.CoordinationV1().Leases("kube-system").Delete(t.Context(), "digitalocean-cloud-controller-manager-account", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// The real program makes a Node of a droplet, and gives it up when the droplet is gone.
func TestANodeComesAndGoes(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	cloud := sim.New(sim.Options{Seed: 1})
	one, two := droplet(t, cloud, sim.DropletSpec{Name: "one"}), droplet(t, cloud, sim.DropletSpec{Name: "two"})
	node(t, c, "one")
	node(t, c, "two")
	startManager(t, cloud, c.Kubeconfig, nil)
	began := time.Now()
	testkit.Eventually(t, "the Nodes to be initialized", func() string { return initialized(t, c, "one", one) + initialized(t, c, "two", two) })
	t.Logf("initialized after %s", time.Since(began))
	must.Do(t, cloud.Account("").DeleteDroplet("two"))
	notReady(t, c, "two")
	testkit.Eventually(t, "the Node to vanish", func() string { return absent(t, c, "two") })
	t.Logf("gone after %s", time.Since(began))
	if n := cloud.Stats().Count("GET /v2/droplets/{droplet_id}"); n < 3 {
		t.Errorf("%d GETs by ID, want one for each new Node and one for the loss", n)
	}
}

// readyFleet makes droplets and their Nodes, and waits until a manager has initialized them.
func readyFleet(t *testing.T, c *controlplane.Cluster, cloud *sim.Simulator, names ...string) {
	t.Helper()
	for _, name := range names {
		d := droplet(t, cloud, sim.DropletSpec{Name: name})
		node(t, c, name)
		testkit.Eventually(t, "the Node to be initialized", func() string { return initialized(t, c, name, d) })
	}
}

// The process is killed in the middle of a loss and starts again: what was begun goes on.
func TestRestartInTheMiddle(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	cloud := sim.New(sim.Options{Seed: 2})
	m := startManager(t, cloud, c.Kubeconfig, nil)
	readyFleet(t, c, cloud, "keeps-1", "keeps-2", "lost-1", "lost-2")
	for _, name := range []string{"lost-1", "lost-2"} {
		must.Do(t, cloud.Account("").DeleteDroplet(name))
	}
	mark := cloud.Mark()
	notReady(t, c, "lost-1")
	testkit.Eventually(t, "the manager to look", func() string {
		if cloud.Mark() == mark {
			return "it has not"
		}
		return ""
	})
	m.Kill()
	notReady(t, c, "lost-2")
	notReady(t, c, "keeps-2")
	m.start()
	for _, name := range []string{"lost-1", "lost-2"} {
		testkit.Eventually(t, "the lost Nodes to go", func() string { return absent(t, c, name) })
	}
	for _, name := range []string{"keeps-1", "keeps-2"} {
		if absent(t, c, name) == "" {
			t.Errorf("Node %s was deleted, and its droplet is there", name)
		}
	}
}

// The old manifest's ClusterRole is enough: an operator changes only the image. The ports that were asked for serve; nothing shows the token.
func TestPredecessorsRoleIsEnough(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	cloud := sim.New(sim.Options{Seed: 3})
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte(sim.DefaultToken), 0o600))
	m := startManager(t, cloud, predecessorsAccount(t, c),
		[]string{"DO_ACCESS_TOKEN=", "DO_ACCESS_TOKEN_FILE=" + token, "DEBUG_ADDR=127.0.0.1:0", "METRICS_ADDR=127.0.0.1:0",
			"PUBLIC_ACCESS_FIREWALL_NAME=fw", "PUBLIC_ACCESS_FIREWALL_TAGS=k8s"}, "--v=6", "--leader-elect=true")
	readyFleet(t, c, cloud, "role-1", "role-2")
	twin := droplet(t, cloud, sim.DropletSpec{Name: "twin"})
	droplet(t, cloud, sim.DropletSpec{Name: "twin", Tags: []string{"k8s"}})
	node(t, c, "twin")
	testkit.Eventually(t, "an event", func() string {
		list, err := c.Client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=twin"})
		if err != nil {
			return err.Error()
		}
		for _, e := range list.Items {
			if e.Reason == "AmbiguousDroplet" && strings.Contains(e.Message, fmt.Sprint(twin.ID)) {
				return ""
			}
		}
		return fmt.Sprintf("%d others", len(list.Items))
	})
	must.Do(t, cloud.Account("").DeleteDroplet("role-2"))
	notReady(t, c, "role-2")
	testkit.Eventually(t, "the Node to go", func() string { return absent(t, c, "role-2") })
	if out := m.Output(); strings.Contains(out, "forbidden") {
		t.Error("something is forbidden")
	}
	testkit.Eventually(t, "the firewall", func() string {
		if all := cloud.Account("").Firewalls(); len(all) != 1 || all[0].Name != "fw" || len(all[0].OutboundRules) != 3 {
			return fmt.Sprintf("%+v", all)
		}
		return ""
	})
	if code, body := fetch(t, addressIn(t, m, "DEBUG_ADDR")+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	body := ""
	wanted := []string{
		`mooring_digitalocean_trust{state="trusted"} 1`, `mooring_digitalocean_nodes_gone_total 1`,
		`mooring_digitalocean_nodes_existence_unknown{reason="pace"} 0`, `mooring_digitalocean_droplets_age_seconds `,
		`mooring_digitalocean_api_requests_total{code="404",method="GET",route="v2/droplets/{id}"} 1`, `mooring_build_info{`,
		`node_controller_cloud_provider_taint_removal_delay_seconds_count`, `workqueue_depth`,
		`firewall_reconciles_total{error_type="",result="reconciled"} 1`, `firewall_api_operations_total{http_response_code="202",operation="create",result="succeeded"} 1`,
	}
	// The firewall is there before it is counted.
	testkit.Eventually(t, "the metrics", func() string {
		code, text := fetch(t, addressIn(t, m, "METRICS_ADDR")+"/metrics")
		body = text
		for _, want := range wanted {
			if code != 200 || !strings.Contains(body, want) {
				return fmt.Sprintf("/metrics (%d) lacks %s", code, want)
			}
		}
		return ""
	})
	testkit.CheckMetrics(t, Component, body)
	if strings.Contains(body, sim.DefaultToken) {
		t.Error("the token is in the metrics")
	}
	cloud.Account("").RevokeToken(sim.DefaultToken)
	if code, body := fetch(t, addressIn(t, m, "DEBUG_ADDR")+"/healthz"); code != 500 || !strings.Contains(body, "401") {
		t.Errorf("/healthz with a token that is refused: %d %q", code, body)
	}
	m.Stop()
	if code := m.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

// Nothing listens unless it is asked for: the upstream project binds port 80 then.
func TestNothingListensUnasked(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	cloud := sim.New(sim.Options{Seed: 4})
	m := startManager(t, cloud, c.Kubeconfig, []string{"DO_METADATA_URL=http://127.0.0.1:1"})
	readyFleet(t, c, cloud, "quiet")
	if out := m.Output(); strings.Contains(out, `"Serving"`) {
		t.Error("something is served")
	}
	if n := listening(t, m); n != 0 {
		t.Errorf("%d sockets listen", n)
	}
}
