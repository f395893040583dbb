// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package controlplane gives tests a real etcd and kube-apiserver with a client. It is apart from testkit since it links Kubernetes' client, which
// tests that need an etcd alone are spared.
package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/lending"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Cluster is a real etcd and kube-apiserver, with RBAC, and nothing else: no controllers, no nodes.
type Cluster struct {
	// Dir is the lab's folder.
	Dir string
	// Kubeconfig is the administrator's.
	Kubeconfig string
	// Config is the same as client-go reads it; copy it before changing it.
	Config *rest.Config
	// Client is the administrator's client.
	Client kubernetes.Interface

	binary string
	// served has the names of the CRDs whose kinds are served: Calico's are large, and each test of a package asks for them.
	served struct {
		sync.Mutex
		names map[string]bool
	}
}

// shared is the cluster of the tests of one package.
var shared struct { //nolint:gochecknoglobals // there is one test process per package, which starts it once
	once    sync.Once
	cluster *Cluster
}

// Shared returns the package's cluster and starts it on the first call. Tests that share it use names of their own.
func Shared(tb testing.TB) *Cluster {
	tb.Helper()
	binary := testkit.Binary(tb, "lab")
	shared.once.Do(func() { shared.cluster = get(tb, binary) })
	if shared.cluster == nil {
		tb.Fatal("the control plane did not start; the first test that asked for it logs why")
	}
	LogVersion(tb, shared.cluster.Client)
	return shared.cluster
}

// idle are clusters that Lend has taken back.
var idle struct { //nolint:gochecknoglobals // as above
	mu       sync.Mutex
	clusters []*Cluster
}

// Lend returns a cluster that no other test uses meanwhile, for tests of kinds that are of the whole cluster: they can run in parallel. When the
// test is over it is lent to another: a test clears the cluster that it borrows.
func Lend(tb testing.TB) *Cluster {
	tb.Helper()
	c := takeIdle()
	if c == nil {
		c = get(tb, testkit.Binary(tb, "lab"))
	}
	tb.Cleanup(func() {
		idle.mu.Lock()
		defer idle.mu.Unlock()
		idle.clusters = append(idle.clusters, c)
	})
	LogVersion(tb, c.Client)
	return c
}

// takeIdle returns nil when no cluster is idle.
func takeIdle() *Cluster {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	last := len(idle.clusters) - 1
	if last < 0 {
		return nil
	}
	c := idle.clusters[last]
	idle.clusters = idle.clusters[:last]
	return c
}

// New starts a cluster for one test alone, which may kill its processes without disturbing others.
func New(tb testing.TB) *Cluster {
	tb.Helper()
	c := get(tb, testkit.Binary(tb, "lab"))
	LogVersion(tb, c.Client)
	return c
}

// get borrows a cluster until the process ends, when whatever uses it has ended as well, or starts one where nobody lends.
func get(tb testing.TB, binary string) *Cluster {
	tb.Helper()
	var dir string
	if socket := os.Getenv(lending.Variable); socket != "" {
		loan := must.Get(lending.Borrow(tb.Context(), socket)).Or(tb)
		testkit.AtEnd(loan.Return)
		dir = loan.Dir
	} else {
		dir = start(tb, binary)
	}
	c := &Cluster{Dir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig"), binary: binary}
	config := must.Get(clientcmd.BuildConfigFromFlags("", c.Kubeconfig)).Or(tb)
	config.QPS, config.Burst = -1, -1
	c.Config = config
	c.Client = kubernetes.NewForConfigOrDie(Protobuf(config))
	return c
}

// Protobuf returns a copy of a configuration for typed clients: they speak protobuf, which costs either side a fraction of JSON. Clients of custom resources
// cannot.
func Protobuf(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return c
}

// start runs a cluster until the process ends, and returns the folder of its lab.
func start(tb testing.TB, binary string) string {
	tb.Helper()
	folder := testkit.Folder(tb, "lab-")
	dir := filepath.Join(folder, "lab")
	process := testkit.Start(tb, filepath.Join(folder, "log"), nil, binary, lending.Arguments(dir, os.Getenv(testkit.APIServerVariable))...)
	testkit.AtEnd(process.Stop)
	testkit.Eventually(tb, "the control plane", func() string {
		select {
		case <-process.Done():
			tb.Fatalf("the lab ended:\n%s", process.Output())
		default:
		}
		if strings.Contains(process.Output(), lending.Ready) {
			return ""
		}
		return "it is not ready yet; its log: " + process.Output()
	})
	return dir
}

// OnAPIServer begins the line that a test logs if it runs on a kube-apiserver that testkit.APIServerVariable names. After it stands the version.
const OnAPIServer = "on the kube-apiserver that was named: "

// LogVersion logs which kube-apiserver the test runs on, if testkit.APIServerVariable names one, and fails it if another version answers:
// what is tested on a server that nobody meant says nothing of the one that was meant.
func LogVersion(tb testing.TB, c kubernetes.Interface) {
	tb.Helper()
	path := os.Getenv(testkit.APIServerVariable)
	if path == "" {
		return
	}
	out, err := exec.CommandContext(tb.Context(), path, "--version").Output()
	if err != nil {
		tb.Fatalf("%s --version: %v", path, err)
	}
	is := must.Get(c.Discovery().ServerVersion()).Or(tb)
	if want := strings.TrimSpace(string(out)); want != "Kubernetes "+is.GitVersion {
		tb.Fatalf("the API server is Kubernetes %s, and %s is %s", is.GitVersion, path, want)
	}
	tb.Log(OnAPIServer + is.GitVersion)
}

// Etcd returns the client URL of the cluster's own etcd, which wants client certificates, and the file of the CA that signed its certificate.
func (c *Cluster) Etcd(tb testing.TB) (endpoint, caFile string) {
	tb.Helper()
	data := must.Get(os.ReadFile(filepath.Join(c.Dir, "lab.json"))).Or(tb)
	var lab struct {
		Etcd struct {
			Endpoints []string `json:"endpoints"`
			CAFile    string   `json:"caFile"`
		} `json:"etcd"`
	}
	must.Do(tb, json.Unmarshal(data, &lab))
	return lab.Etcd.Endpoints[0], lab.Etcd.CAFile
}

// OwnEtcd connects to the cluster's own etcd as the API server does. It is only to be read and watched.
func (c *Cluster) OwnEtcd(tb testing.TB) *testkit.Etcd {
	tb.Helper()
	endpoint, caFile := c.Etcd(tb)
	pki := filepath.Dir(caFile)
	pair := must.Get(tls.LoadX509KeyPair(filepath.Join(pki, "kube-apiserver-etcd-client.crt"), filepath.Join(pki, "kube-apiserver-etcd-client.key"))).Or(tb)
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(must.Get(os.ReadFile(caFile)).Or(tb))
	e := &testkit.Etcd{Endpoint: endpoint}
	e.Client = e.Connect(tb, clientv3.Config{TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: authorities}})
	return e
}

// Kill ends one of its processes as kill -9 does; the lab's supervisor starts it again.
func (c *Cluster) Kill(tb testing.TB, process string) {
	tb.Helper()
	if out, err := exec.CommandContext(tb.Context(), c.binary, "kill", process, "--dir", c.Dir).CombinedOutput(); err != nil {
		tb.Fatalf("killing %s: %v: %s", process, err, out)
	}
}

// Pause stops one of its processes as SIGSTOP does, and returns what ends that.
func (c *Cluster) Pause(tb testing.TB, process string) (resume func()) {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), c.binary, "status", "--dir", c.Dir).CombinedOutput()
	if err != nil {
		tb.Fatalf("looking for %s: %v: %s", process, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == process {
			pid, err := strconv.Atoi(fields[1])
			if err != nil {
				tb.Fatalf("%s has no process: %s", process, line)
			}
			testkit.PauseProcess(tb, pid)
			return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
		}
	}
	tb.Fatalf("there is no process %s:\n%s", process, out)
	return nil
}
