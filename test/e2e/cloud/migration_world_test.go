// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// What the upstream project's Deployment says of the cluster.
const (
	movedToken    = "dop_v1_of_the_migration"
	movedCluster  = "c63024c5-adf7-4459-8547-9c0501ad5a51"
	movedVPC      = "5a4981aa-9653-4bd1-bef5-d6bff52042e0"
	movedFirewall = "k8s-public"
	workerTag     = "k8s:worker"
	account       = "cloud-controller-manager"
)

// moved is a cluster that moves from the upstream project to us and back: a real API server, on which nothing else runs, and a simulated
// DigitalOcean.
type moved struct {
	t       *testing.T
	cluster *controlplane.Cluster
	cloud   *digitalocean.Simulator
	outside *digitalocean.Account
	url     string
	// dir is where the commands of the page run: it has the repository's releases and the upstream project's file.
	dir      string
	droplets []int
	// balanced are the Services that have a load balancer, with what the upstream project asks DigitalOcean for.
	balanced map[string]balanced
}

// newMoved starts the cluster. The numbers of its droplets are those of the recorded requests.
func newMoved(t *testing.T) *moved {
	t.Helper()
	testkit.Binary(t, manager)
	w := &moved{t: t, cluster: controlplane.New(t), dir: t.TempDir(), balanced: map[string]balanced{}}
	w.cloud = digitalocean.New(digitalocean.Options{
		Seed: 7, Droplets: digitalocean.DropletOptions{FirstID: 101}, Firewalls: digitalocean.FirewallOptions{KnownBalancers: true},
		Accounts: []digitalocean.AccountOptions{{
			Name: "a", Tokens: []digitalocean.Token{{Value: movedToken}}, VPCs: []digitalocean.VPC{{ID: movedVPC, Region: "nyc1"}},
		}},
	})
	w.outside = w.cloud.Account("a")
	server := httptest.NewServer(w.cloud.Handler())
	t.Cleanup(server.Close)
	w.url = server.URL
	w.must(os.Symlink(filepath.Join(testkit.Root(t), "releases"), filepath.Join(w.dir, "releases")))
	return w
}

func (w *moved) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// call asks DigitalOcean as the upstream project does, and returns the status and the answer.
func (w *moved) call(method, path string, body any) (int, []byte) {
	w.t.Helper()
	content, err := json.Marshal(body)
	w.must(err)
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, bytes.NewReader(content))
	w.must(err)
	request.Header.Set("Authorization", "Bearer "+movedToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	w.must(err)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	w.must(err)
	return response.StatusCode, answer
}

// writesSince are the requests since a mark that could have changed anything.
func (w *moved) writesSince(mark uint64) []journal.Entry {
	return slices.DeleteFunc(w.cloud.Requests(journal.Filter{After: mark}), func(e journal.Entry) bool { return e.Method == http.MethodGet })
}

// nothingSent fails for each request since a mark that could have changed anything.
func (w *moved) nothingSent(mark uint64, when string) {
	w.t.Helper()
	for _, e := range w.writesSince(mark) {
		w.t.Errorf("%s: %s %s was sent: %s", when, e.Method, e.URL, e.Body)
	}
}

// blocks are the shell blocks of the migration page.
var blocks = regexp.MustCompile("(?s)```sh\n(.*?)```")

// migrationPage is the text of the page.
func migrationPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(t), "docs", "migration", manager+".md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runFromPage runs the one shell block behind a heading of the page, as it stands there, and returns what it printed.
func (w *moved) runFromPage(heading, image string) string {
	w.t.Helper()
	_, text, found := strings.Cut(migrationPage(w.t), "\n"+heading+"\n")
	text, _, _ = strings.Cut(text, "\n#")
	all := blocks.FindAllStringSubmatch(text, -1)
	if !found || len(all) != 1 {
		w.t.Fatalf("the page has %d shell blocks behind %q, want one", len(all), heading)
	}
	command := exec.CommandContext(w.t.Context(), "bash", "-euo", "pipefail", "-c", all[0][1])
	command.Dir = w.dir
	bin := filepath.Dir(testkit.Binary(w.t, "kubectl"))
	testkit.Binary(w.t, "kubectl-mooring")
	command.Env = append(os.Environ(), "KUBECONFIG="+w.cluster.Kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"), "IMAGE="+image, "REGION=nyc1",
		"DO_CLUSTER_ID="+movedCluster, "DO_CLUSTER_VPC_ID="+movedVPC, "PUBLIC_ACCESS_FIREWALL_NAME="+movedFirewall, "PUBLIC_ACCESS_FIREWALL_TAGS="+workerTag)
	out, err := command.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s\n%v\n%s", all[0][1], err, out)
	}
	return string(out)
}

// deployment is what runs now.
func (w *moved) deployment() *appsv1.Deployment {
	w.t.Helper()
	d, err := w.cluster.Client.AppsV1().Deployments(metav1.NamespaceSystem).Get(w.t.Context(), manager, metav1.GetOptions{})
	w.must(err)
	return d
}

// pod is one Pod of the Deployment: our program as a process.
type pod struct {
	*testkit.Process
	metrics string // where it serves them
}

// startPod starts our program as a kubelet starts the Deployment's container: its command and arguments, and its variables with their Secrets.
// What is added stands for the machine: who it is for the API server, and a port of its own; and what makes waiting short.
func (w *moved) startPod() *pod {
	w.t.Helper()
	spec := w.deployment().Spec.Template.Spec
	container := spec.Containers[0]
	args := container.Args
	if len(container.Command) > 0 {
		if container.Command[0] != "/bin/"+manager {
			w.t.Fatalf("the container's command is %q", container.Command)
		}
		args = append(slices.Clone(container.Command[1:]), args...)
	}
	p := &pod{metrics: testkit.FreeAddress(w.t)}
	env := []string{"HOME=" + w.t.TempDir()}
	for _, e := range container.Env {
		value := e.Value
		if e.ValueFrom != nil {
			secret, err := w.cluster.Client.CoreV1().Secrets(metav1.NamespaceSystem).Get(w.t.Context(), e.ValueFrom.SecretKeyRef.Name, metav1.GetOptions{})
			w.must(err)
			value = string(secret.Data[e.ValueFrom.SecretKeyRef.Key])
		}
		if e.Name == "METRICS_ADDR" {
			value = p.metrics
		}
		env = append(env, e.Name+"="+value)
	}
	kubeconfig := w.kubeconfig(spec.ServiceAccountName)
	args = append(slices.Clone(args), "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--secure-port=0", "--controller-start-interval=0s", "--node-monitor-period=500ms", "--node-status-update-frequency=1s")
	p.Process = testkit.Start(w.t, filepath.Join(w.t.TempDir(), "log"), env, testkit.Binary(w.t, manager), args...)
	w.t.Cleanup(func() {
		p.Stop()
		if strings.Contains(p.Output(), movedToken) {
			w.t.Error("the token is in the log")
		}
		if w.t.Failed() {
			w.t.Log(p.Output())
		}
	})
	return p
}

// kubeconfig makes one for a service account of kube-system.
func (w *moved) kubeconfig(name string) string {
	w.t.Helper()
	answer, err := w.cluster.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(w.t.Context(), name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	w.must(err)
	config, from := clientcmdapi.NewConfig(), w.cluster.Config
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: from.Host, CertificateAuthorityData: from.CAData, CertificateAuthority: from.CAFile, TLSServerName: from.ServerName,
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: answer.Status.Token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(w.t.TempDir(), "kubeconfig")
	w.must(clientcmd.WriteToFile(*config, path))
	return path
}

// counted reads a metric of a Pod, the sum of all series that begin with the text, -1 while there are no metrics.
func (p *pod) counted(t *testing.T, series string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return -1
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return -1
	}
	sum := 0.0
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, series) {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += value
		}
	}
	return int(sum)
}

// looked waits until a Pod has looked at every load balancer, and at the firewall if there is one, and nothing happens any more.
func (w *moved) looked(p *pod) {
	w.t.Helper()
	testkit.Eventually(w.t, "all to be looked at", func() string {
		select {
		case <-p.Done():
			w.t.Fatalf("it has ended:\n%s", p.Output())
		default:
		}
		balancers := p.counted(w.t, `mooring_digitalocean_loadbalancer_syncs_total{`)
		firewalls := p.counted(w.t, `mooring_digitalocean_firewall_syncs_total{`)
		if want := len(w.balanced); balancers < want || firewalls < len(w.outside.Firewalls()) {
			return fmt.Sprintf("%d load balancers of %d were looked at, the firewall %d times", balancers, want, firewalls)
		}
		return ""
	})
	w.settle()
}

// settle waits until nobody has written to the cluster for a while.
func (w *moved) settle() {
	w.t.Helper()
	const quiet = 30 // looks
	last, same := "", 0
	testkit.Eventually(w.t, "the cluster to come to rest", func() string {
		now := fmt.Sprint(w.objects())
		if same++; now != last {
			last, same = now, 0
		}
		if same < quiet {
			return "it was written to lately"
		}
		return ""
	})
}

// objects are the Nodes and the Services with all that is in them, their resourceVersions included: nobody writes without a trace.
func (w *moved) objects() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	nodes, err := w.cluster.Client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	for _, o := range nodes.Items {
		out["Node/"+o.Name] = text(w.t, o)
	}
	services, err := w.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	for _, o := range services.Items {
		out["Service/"+o.Name] = text(w.t, o)
	}
	return out
}

func text(t *testing.T, o any) string {
	t.Helper()
	content, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// balancer is the load balancer that a Service's annotation names.
func (w *moved) balancer(s *corev1.Service) digitalocean.LoadBalancer {
	w.t.Helper()
	lb, err := w.outside.LoadBalancer(s.Annotations[annotation.LoadBalancerID])
	if err != nil {
		w.t.Fatalf("Service %s: %v", s.Name, err)
	}
	return lb
}
