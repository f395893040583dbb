// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package footprint

import (
	"bytes"
	"crypto/tls"
	"debug/elf"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// most is how much memory a program may have when it is ready, in MiB. In the manifests the smallest limit is 128 MiB.
const most = 96

// program is one of the product's, and how it is started where nothing is to be done. Where health is empty, it
// prints its help.
type program struct {
	name, title string
	env, args   []string
	// health is the URL that responds with 200 when it is ready.
	health string
}

// TestFootprint starts the programs of bin/, or of the folders that MOORING_FOOTPRINT lists, beside a real API server
// and a simulated DigitalOcean, and prints sizes and memory. It fails if a program does not become ready or needs
// more memory than its pod may have.
func TestFootprint(t *testing.T) {
	folders := filepath.SplitList(os.Getenv("MOORING_FOOTPRINT"))
	if len(folders) == 0 {
		testkit.Binary(t, "kubectl-mooring")
		folders = []string{filepath.Join(testkit.Root(t), "bin")}
	}
	starts := 3 // the middle one of the figures counts
	if testing.Short() {
		starts = 1
	}
	place := newPlace(t)
	var table strings.Builder
	for _, p := range place.programs() {
		sizes, memory := []string{p.title}, []string{}
		for _, folder := range folders {
			path := filepath.Join(folder, p.name)
			size, err := loaded(path)
			if err != nil {
				t.Fatal(err)
			}
			var figures []int64
			for range starts {
				figures = append(figures, place.measure(p, path))
			}
			slices.Sort(figures)
			middle := figures[starts/2]
			if middle > most<<20 {
				t.Errorf("%s has %s MiB when it is ready, more than %d", path, mebibytes(middle), most)
			}
			sizes, memory = append(sizes, mebibytes(size)), append(memory, mebibytes(middle))
		}
		fmt.Fprintf(&table, "| %s |\n", strings.Join(append(sizes, memory...), " | "))
	}
	t.Logf("program | MiB of code and data | MiB of memory when ready\n%s", table.String())
}

// loaded is how much of a program the kernel maps: code and data, without symbols for debuggers, so that flags of the
// linker do not count.
func loaded(path string) (int64, error) {
	file, err := elf.Open(path)
	if err != nil {
		return 0, fmt.Errorf("reading the program %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	var sum uint64
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_LOAD {
			sum += segment.Filesz
		}
	}
	return int64(sum), nil //nolint:gosec // programs are smaller than 8 EiB
}

func mebibytes(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) }

// place is what the programs talk to.
type place struct {
	*testing.T

	plane    *controlplane.Cluster
	etcd     *testkit.Etcd
	cloud    *httptest.Server
	metadata *httptest.Server
	droplet  int
	certs    testkit.TLSFolder
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{T: t, plane: controlplane.New(t), etcd: testkit.NewEtcd(t)}
	p.plane.InstallCalicoCRDs(t)
	p.plane.InstallCRDs(t, controlplane.OwnKind(t, "routereflectortopologies"), controlplane.OwnKind(t, "etcdstorages"))
	simulator := digitalocean.New(digitalocean.Options{})
	droplet, err := simulator.Account("").CreateDroplet(digitalocean.DropletSpec{Name: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	p.droplet = droplet.ID
	p.cloud = httptest.NewServer(simulator.Handler())
	t.Cleanup(p.cloud.Close)
	p.metadata = httptest.NewServer(simulator.Metadata(func(*http.Request) (string, string, bool) { return "", strconv.Itoa(p.droplet), true }))
	t.Cleanup(p.metadata.Close)
	ca := testkit.NewAuthority(t, "footprint")
	p.certs = testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{}), ca.PEM)
	return p
}

// programs are all of the product's, each with ports of its own.
func (p *place) programs() []program {
	p.Helper()
	health := func() (address, url string) {
		address = testkit.FreeAddress(p.T)
		return address, "http://" + address + "/readyz"
	}
	manager := func(name string, env []string, more ...string) program {
		address, url := health()
		args := append([]string{
			"--kubeconfig=" + p.plane.Kubeconfig, "--leader-elect=false", "--leader-election-namespace=default", "--metrics-bind-address=0",
			"--health-probe-bind-address=" + address,
		}, more...)
		return program{name: name, title: "`" + name + "`", env: env, args: args, health: url}
	}
	volumes := func(title string, more ...string) program {
		address, url := health()
		socket := filepath.Join(p.TempDir(), "csi.sock")
		return program{
			name: "digitalocean-csi-driver", title: title, health: url,
			args: append([]string{"--debug-addr=" + address, "--endpoint=unix://" + socket, "--metadata-url=" + p.metadata.URL}, more...),
		}
	}
	proxyAddress, proxyURL := health()
	admissionAddress, admissionURL := health()
	return []program{
		p.cloudManager(),
		{
			name: "digitalocean-cloud-controller-manager-admission-server", title: "`digitalocean-cloud-controller-manager-admission-server`",
			health: admissionURL, env: []string{"DO_ACCESS_TOKEN=" + digitalocean.DefaultToken, "DO_OVERRIDE_URL=" + p.cloud.URL, "REGION=nyc1"},
			args: []string{
				"--cert-dir=" + string(p.certs), "--webhook-bind-address=" + testkit.FreeAddress(p.T), "--metrics-bind-address=" + admissionAddress,
				"--health-probe-bind-address=" + admissionAddress,
			},
		},
		volumes("`digitalocean-csi-driver`, controller", "--url="+p.cloud.URL, "--token="+digitalocean.DefaultToken),
		volumes("`digitalocean-csi-driver`, node plugin"),
		manager("calico-node-sync", []string{"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + p.etcd.Endpoint}),
		manager("calico-route-reflector-operator", []string{"DATASTORE_TYPE=kubernetes"}),
		manager("etcd-storage-operator", nil, "--etcd-core-url="+strings.Replace(p.etcd.Endpoint, "http:", "https:", 1)),
		{
			name: "etcd-storage-proxy", title: "`etcd-storage-proxy`", health: proxyURL,
			args: []string{
				"--insecure-plaintext", "--core-endpoints=" + p.etcd.Endpoint, "--tenant=a", "--listen-address=127.0.0.1:0",
				"--health-address=" + proxyAddress, "--metrics-address=" + proxyAddress,
			},
		},
		{name: "kubectl-mooring", title: "`kubectl-mooring`, help", args: []string{"--help"}},
	}
}

func (p *place) cloudManager() program {
	p.Helper()
	const name = "digitalocean-cloud-controller-manager"
	address := testkit.FreeAddress(p.T)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		p.Fatal(err)
	}
	config := p.plane.Kubeconfig
	return program{
		name: name, title: "`" + name + "`", health: "https://" + address + "/healthz",
		env: []string{
			"DO_ACCESS_TOKEN=" + digitalocean.DefaultToken, "DO_OVERRIDE_URL=" + p.cloud.URL, "REGION=nyc1", "HOME=" + p.TempDir(),
		},
		args: []string{
			"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config, "--leader-elect=false",
			"--bind-address=127.0.0.1", "--secure-port=" + port,
		},
	}
}

// measure starts a program, waits until it is ready and returns its resident memory; of one that prints its help, the
// most it had.
func (p *place) measure(of program, path string) int64 {
	p.Helper()
	if of.health == "" {
		command := exec.CommandContext(p.Context(), path, of.args...)
		if err := command.Run(); err != nil {
			p.Fatalf("%s: %v", path, err)
		}
		return command.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10 //nolint:forcetypeassert // the tests run on Linux
	}
	process := testkit.Start(p.T, filepath.Join(p.TempDir(), "log"), of.env, path, of.args...)
	defer process.Stop()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the program signs its certificate itself
	}}
	defer client.CloseIdleConnections()
	testkit.Eventually(p.T, of.title+" to be ready", func() string {
		select {
		case <-process.Done():
			p.Fatalf("%s ended: %s", path, process.Output())
		default:
		}
		request, err := http.NewRequestWithContext(p.Context(), http.MethodGet, of.health, nil)
		if err != nil {
			return err.Error()
		}
		response, err := client.Do(request)
		if err != nil {
			return err.Error()
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return response.Status
		}
		return ""
	})
	return p.resident(process.PID())
}

// resident is the memory of a process that is resident (proc(5), VmRSS).
func (p *place) resident(pid int) int64 {
	p.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		p.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		if value, found := bytes.CutPrefix(line, []byte("VmRSS:")); found {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(value)), " kB"), 10, 64)
			if err != nil {
				p.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	p.Fatalf("no VmRSS in %s", status)
	return 0
}
