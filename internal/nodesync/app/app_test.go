// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// asProgram makes the test binary run the command itself, since logging and metrics are set up once per process.
const asProgram = "MOORING_TEST_AS_CALICO_NODE_SYNC"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(command.Main(NewCommand(), command.WithSingleDash()))
	}
	testkit.Main(m)
}

// program runs the program with nothing of our environment but what is given, and returns its exit code and what it said.
func program(t *testing.T, env []string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{asProgram + "=1", "HOME=" + t.TempDir()}, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// The API server is not asked to compress lists of all pods.
func TestResponsesAreNotCompressed(t *testing.T) {
	t.Parallel()
	accepted := "nobody asked"
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { accepted = r.Header.Get("Accept-Encoding") }))
	defer server.Close()
	o := newOptions()
	o.manager.Master = server.URL
	config, err := o.Cluster()
	if err != nil {
		t.Fatal(err)
	}
	config.Insecure = true // nothing is sent but the question
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if accepted != "" {
		t.Errorf("Accept-Encoding is %q", accepted)
	}
}

// Bad input ends the program with one sentence that names the cause and the next step, before anything has started.
func TestBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte("not: [a kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	etcd := "ETCD_ENDPOINTS=http://127.0.0.1:1"
	cases := map[string]struct {
		env  []string
		args []string
		want string
	}{
		"an unknown flag":           {nil, []string{"--grace-perod=1s"}, "did you mean --grace-period?"},
		"an argument":               {[]string{etcd}, []string{"now"}, "now"},
		"no datastore":              {nil, nil, "no datastore is named: set --datastore-type"},
		"contradicting datastores":  {[]string{etcd, "DATASTORE_TYPE=kubernetes"}, nil, "unset one of them"},
		"an unknown mode":           {[]string{etcd}, []string{"--mode=observe"}, `--mode "observe" is unknown: it must be enforce or report`},
		"a negative grace period":   {[]string{etcd}, []string{"--grace-period=-1s"}, "it must not be negative"},
		"a share over 100 percent":  {[]string{etcd}, []string{"--min-overlap-percent=150"}, "must lie between 0 and 100"},
		"no cluster":                {[]string{etcd}, nil, "no API server is configured: pass --kubeconfig"},
		"KUBECONFIG is not used":    {[]string{etcd, "KUBECONFIG=" + kubeconfig}, nil, "KUBECONFIG and ~/.kube/config are not read"},
		"a kubeconfig that is none": {[]string{etcd}, []string{"--kubeconfig", kubeconfig}, "--kubeconfig"},
		"a missing kubeconfig":      {[]string{etcd}, []string{"-kubeconfig", filepath.Join(dir, "none")}, "cannot be read"},
		"an unparsable address":     {[]string{etcd}, []string{"--metrics-bind-address=nonsense"}, "--metrics-bind-address"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := program(t, c.env, c.args...)
			if code != 1 || !strings.HasPrefix(out, "error: ") || !strings.Contains(out, c.want) || strings.Count(out, "\n") != 1 {
				t.Errorf("got exit code %d and %q, want 1 and one line with %q", code, out, c.want)
			}
		})
	}
}

// A CA that did not sign etcd's certificate never will: the program ends and says so.
func TestAnUntrustedEtcdEndsTheProgram(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	endpoint, caFile := cluster.Etcd(t)
	other := filepath.Join(t.TempDir(), "ca.pem")
	testkit.WriteCA(t, other)
	args := []string{"--kubeconfig", cluster.Kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect=false"}
	cases := map[string]struct{ ca, want string }{
		"another CA":            {other, "certificate signed by unknown authority"},
		"no client certificate": {caFile, "etcd refuses our client certificate"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := program(t, []string{"ETCD_ENDPOINTS=" + endpoint, "ETCD_CA_CERT_FILE=" + c.ca}, args...)
			if code != 1 || !strings.Contains(out, "error: ") || !strings.Contains(out, c.want) || !strings.Contains(out, "(check ETCD_C") {
				t.Errorf("got exit code %d and %q, want 1 and %q with what to check", code, out, c.want)
			}
		})
	}
}

// The flags are a contract with manifests: names and defaults.
func TestFlags(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"datastore-type": "", "mode": "enforce", "dry-run": "false", "grace-period": "5m0s", "min-overlap-percent": "50",
		"mass-guard-nodes": "3", "mass-guard-percent": "10", "mass-guard-window": "1h0m0s", "nodes-per-round": "5", "round-interval": "5s",
		"resync-period": "5m0s", "kubeconfig": "", "master": "", "leader-elect": "false", "metrics-bind-address": ":8443",
		"health-probe-bind-address": ":8081", "log-format": "auto", "v": "0",
	}
	got := map[string]string{}
	NewCommand().Flags().VisitAll(func(f *pflag.Flag) { got[f.Name] = f.DefValue })
	for name, value := range want {
		if actual, ok := got[name]; !ok || actual != value {
			t.Errorf("--%s: got default %q (there: %v), want %q", name, actual, ok, value)
		}
	}
	if Component != "calico-node-sync" || controller.LeaseName != "calico-node-sync.nodes.mooring.dev" {
		t.Error("the component's name or its Lease has changed: two versions would lead at once")
	}
}
