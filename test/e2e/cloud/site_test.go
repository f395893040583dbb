// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
)

const manager = "digitalocean-cloud-controller-manager"

// described is what is needed of lab.json.
type described struct {
	Processes []struct {
		Name     string
		PID      int
		Restarts int
		State    string
	}
	DigitalOcean struct{ AdminURL, CAFile, CertFile, KeyFile string }
}

// droplet is one of `lab droplet list -o json`.
type droplet struct {
	ID                                      int
	Name, Status, PrivateIP, PublicIP, Zone string
	Node                                    bool
}

// site is a lab with a cloud.
type site struct {
	t      *testing.T
	dir    string
	env    []string // of the commands; the test's own if nil
	client kubernetes.Interface
	http   *http.Client
}

// newSite starts a lab that finds silent machines soon, and stops it when the test ends.
func newSite(t *testing.T, args ...string) *site {
	t.Helper()
	testkit.Binary(t, manager)
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "lab")}
	t.Cleanup(func() {
		if t.Failed() {
			for _, name := range []string{manager, "digitalocean"} {
				out, _ := s.try("logs", name)
				t.Logf("log of %s:\n%s", name, out)
			}
		}
		_, _ = s.try("down")
	})
	s.up(args...)
	return s
}

func (s *site) up(args ...string) {
	s.t.Helper()
	s.run(append([]string{"up", "--cloud=digitalocean", "--node-monitor-grace-period=8s"}, args...)...)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig"))
	s.must(err)
	config.QPS = -1
	s.client, err = kubernetes.NewForConfig(config)
	s.must(err)
	access := s.described().DigitalOcean
	authority, err := os.ReadFile(access.CAFile)
	s.must(err)
	pair, err := tls.LoadX509KeyPair(access.CertFile, access.KeyFile)
	s.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	s.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// try runs a command of the lab and returns what it printed.
func (s *site) try(args ...string) (string, error) {
	command := exec.Command(testkit.Binary(s.t, "lab"), append(args, "--dir", s.dir)...)
	command.Env = s.env
	out, err := command.CombinedOutput()
	return string(out), err
}

func (s *site) run(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatalf("lab %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (s *site) described() described {
	s.t.Helper()
	var d described
	content, err := os.ReadFile(filepath.Join(s.dir, "lab.json"))
	s.must(err)
	s.must(json.Unmarshal(content, &d))
	return d
}

// process returns the process ID of a process of the lab and how often it was started again.
func (s *site) process(name string) (pid, restarts int) {
	s.t.Helper()
	for _, p := range s.described().Processes {
		if p.Name == name && p.State == "ready" {
			return p.PID, p.Restarts
		}
	}
	return 0, 0
}

// kill kills processes with SIGKILL and waits until they are back.
func (s *site) kill(names ...string) {
	s.t.Helper()
	before := map[string]int{}
	for _, name := range names {
		_, before[name] = s.process(name)
		s.run("kill", name)
	}
	for _, name := range names {
		testkit.Eventually(s.t, name+" to come back", func() string {
			if pid, restarts := s.process(name); pid == 0 || restarts <= before[name] {
				return "it does not run"
			}
			return ""
		})
	}
}

// droplets lists them as users do.
func (s *site) droplets() []droplet {
	s.t.Helper()
	var list []droplet
	s.must(json.Unmarshal([]byte(s.run("droplet", "list", "-o", "json")), &list))
	return list
}

func (s *site) droplet(name string) droplet {
	s.t.Helper()
	list := s.droplets()
	i := slices.IndexFunc(list, func(d droplet) bool { return d.Name == name })
	if i < 0 {
		s.t.Fatalf("there is no droplet %s", name)
	}
	return list[i]
}

// balancers asks the cloud itself; while it does not respond there is an error.
func (s *site) balancers() ([]digitalocean.LoadBalancer, error) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.described().DigitalOcean.AdminURL+"/v1/accounts/-/load_balancers", nil)
	if err != nil {
		return nil, err
	}
	response, err := s.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var list []digitalocean.LoadBalancer
	return list, json.NewDecoder(response.Body).Decode(&list)
}

// initialized says what a Node lacks, nothing if the component has done its work on it.
func (s *site) initialized(d droplet) string {
	node, err := s.client.CoreV1().Nodes().Get(s.t.Context(), d.Name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	want := fmt.Sprintf("digitalocean://%d [{ExternalIP %s} {Hostname %s} {InternalIP %s}] s-2vcpu-4gb nyc1 %s", d.ID, d.PublicIP, d.Name, d.PrivateIP, d.Zone)
	addresses := slices.Clone(node.Status.Addresses)
	slices.SortFunc(addresses, func(a, b corev1.NodeAddress) int { return strings.Compare(string(a.Type), string(b.Type)) })
	got := fmt.Sprintf("%s %v %s %s %s", node.Spec.ProviderID, addresses, node.Labels[corev1.LabelInstanceTypeStable],
		node.Labels[corev1.LabelTopologyRegion], node.Labels[corev1.LabelTopologyZone])
	if got != want || slices.Contains(taints(node), "node.cloudprovider.kubernetes.io/uninitialized") {
		return fmt.Sprintf("it is %s with taints %v, want %s", got, taints(node), want)
	}
	return ""
}

func taints(node *corev1.Node) []string {
	var keys []string
	for _, taint := range node.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return "missing"
}

// service creates a Service that wants a load balancer.
func (s *site) service(name string) {
	s.t.Helper()
	_, err := s.client.CoreV1().Services("default").Create(s.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
}

// served says what the Services lack: each has the address of a load balancer of its own, whose targets are the machines, and there are no others.
func (s *site) served(names ...string) string {
	all, err := s.balancers()
	if err != nil {
		return err.Error()
	}
	if len(all) != len(names) {
		return fmt.Sprintf("%d load balancers for %d Services", len(all), len(names))
	}
	var machines []int
	for _, d := range s.droplets() {
		if d.Node {
			machines = append(machines, d.ID)
		}
	}
	byIP := map[string]digitalocean.LoadBalancer{}
	for _, lb := range all {
		byIP[lb.IP] = lb
	}
	for _, name := range names {
		service, err := s.client.CoreV1().Services("default").Get(s.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if len(service.Status.LoadBalancer.Ingress) != 1 {
			return fmt.Sprintf("Service %s has the addresses %v", name, service.Status.LoadBalancer.Ingress)
		}
		lb, ok := byIP[service.Status.LoadBalancer.Ingress[0].IP]
		if !ok || lb.ID != service.Annotations["kubernetes.digitalocean.com/load-balancer-id"] {
			return fmt.Sprintf("Service %s has the address %s, which is not its load balancer's", name, service.Status.LoadBalancer.Ingress[0].IP)
		}
		if !slices.Equal(lb.DropletIDs, machines) {
			return fmt.Sprintf("load balancer of %s has the targets %v, not %v", name, lb.DropletIDs, machines)
		}
		delete(byIP, lb.IP)
	}
	return ""
}

// since is how long something took, for a person.
func since(begin time.Time) string { return time.Since(begin).Round(100 * time.Millisecond).String() }
