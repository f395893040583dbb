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

	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
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
	config := must.Get(o.Cluster()).Or(t)
	config.Insecure = true // nothing is sent but the question
	transport := must.Get(rest.HTTPClientFor(config)).Or(t)
	response, err := transport.Get(server.URL)
	must.Do(t, err)
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
	must.Do(t, os.WriteFile(kubeconfig, []byte("not: [a kubeconfig"), 0o600))
	file := filepath.Join(dir, "entry.json")
	must.Do(t, os.WriteFile(file, []byte(`{"host":"n1"}`), 0o600))
	etcd, journal := "ETCD_ENDPOINTS=http://127.0.0.1:1", "--journal-dir="+dir
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

		"an unknown journal":             {[]string{etcd}, []string{"--journal=disk"}, `--journal "disk" is unknown: it must be configmaps, folder or none`},
		"a folder that is not named":     {[]string{etcd}, []string{"--journal=folder"}, "--journal=folder needs --journal-dir"},
		"ConfigMaps and a folder":        {[]string{etcd}, []string{"--journal=configmaps", journal, "--leader-election-namespace=a"}, "contradict each other: drop one of them"},
		"none and a folder":              {[]string{etcd}, []string{"--journal=none", journal}, "contradict each other: drop one of them"},
		"ConfigMaps, nobody knows where": {[]string{etcd}, []string{"--journal=configmaps"}, "--journal=configmaps needs --leader-election-namespace outside of a Pod"},
		"a journal that is not there":    {[]string{etcd}, []string{"--journal-dir=/nowhere"}, `--journal-dir "/nowhere" cannot be written`},
		"no retention at all":            {[]string{etcd}, []string{"--journal-retention=0s"}, "--journal-retention is 0s: it must be at least 1h"},
		"no entry at all":                {[]string{etcd}, []string{"--journal-max-entries=0"}, "--journal-max-entries is 0: it must be at least 1"},

		"restore: nothing named":        {[]string{etcd}, []string{"restore"}, "name a machine or an entry of the journal; 'calico-node-sync restore --list' shows"},
		"restore: no namespace":         {[]string{etcd}, []string{"restore", "n1"}, "name with --namespace the one in which the controller runs"},
		"restore: two namespaces":       {[]string{etcd}, []string{"restore", "n1", "--namespace=a", "--leader-election-namespace=b"}, "contradict each other: drop one of them"},
		"restore: no cluster":           {[]string{etcd}, []string{"restore", "n1", "--namespace=a"}, "no API server is configured: pass --kubeconfig"},
		"restore: nothing to list":      {nil, []string{"restore", "--list"}, "no namespace is known"},
		"restore: a file that is none":  {[]string{etcd}, []string{"restore", "/nowhere/entry.json"}, "no such file"},
		"restore: not a journal's file": {[]string{etcd}, []string{"restore", file}, "is not an entry of the journal"},
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
