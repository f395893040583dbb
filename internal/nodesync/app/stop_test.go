// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A process that is told to end has nothing to complain of: it ends with exit code 0 and without a line of level ERROR, in either datastore, as the leader and
// without leader election, right after the start and after rounds.
func TestACleanStopIsNoError(t *testing.T) { //nolint:paralleltest // ClusterInformation is the cluster's only one
	s := newScene(t, "stopped", 2)
	kubernetesDatastore(t, s.cluster)
	namespace := must.Get(s.cluster.Client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stopped-"}}, metav1.CreateOptions{})).Or(t)
	for name, env := range map[string][]string{"etcdv3": s.env(), "kubernetes": {"DATASTORE_TYPE=kubernetes"}} {
		for _, election := range []bool{false, true} {
			for _, early := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, election %v, early %v", name, election, early), func(t *testing.T) {
					metrics := testkit.FreeAddress(t)
					p := testkit.Start(t, filepath.Join(t.TempDir(), "log"), append(env, asProgram+"=1"), os.Args[0],
						"--kubeconfig", s.cluster.Kubeconfig, fmt.Sprintf("--leader-elect=%v", election), "--leader-election-namespace", namespace.Name,
						"--metrics-bind-address", metrics, fmt.Sprintf("--metrics-secure=%v", early), "--health-probe-bind-address", testkit.FreeAddress(t),
						"--resync-period=1s")
					t.Cleanup(p.Stop)
					testkit.Eventually(t, "the moment to stop", func() string {
						if early && strings.Contains(p.Output(), `"Starting"`) || !early && hadRounds(t, metrics) {
							return ""
						}
						return "it says " + p.Output()
					})
					expectCleanStop(t, p)
				})
			}
		}
	}
}

// Neither has one that is told to end while it waits for the API server.
func TestAStopBeforeTheServerRespondsIsNoError(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],
"users":[{"name":"a","user":{"token":"a"}}],"clusters":[{"name":"a","cluster":{"server":"https://%s"}}]}`, testkit.FreeAddress(t))
	must.Do(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	p := testkit.Start(t, filepath.Join(t.TempDir(), "log"), []string{"DATASTORE_TYPE=kubernetes", asProgram + "=1"}, os.Args[0], "--kubeconfig", kubeconfig,
		"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	t.Cleanup(p.Stop)
	testkit.Eventually(t, "it to wait for the API server", func() string {
		if strings.Contains(p.Output(), "Waiting for the API server") {
			return ""
		}
		return "it says " + p.Output()
	})
	expectCleanStop(t, p)
}

// expectCleanStop tells a process to end, and fails unless it ends with exit code 0 and without complaint.
func expectCleanStop(t *testing.T, p *testkit.Process) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	testkit.Eventually(t, "its end", func() string {
		select {
		case <-p.Done():
			return ""
		default:
			return "it says " + p.Output()
		}
	})
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.SplitSeq(p.Output(), "\n") {
		if strings.Contains(line, `"level":"ERROR"`) || strings.HasPrefix(line, "error:") {
			t.Errorf("a clean stop is not an error: %s", line)
		}
	}
}

// hadRounds reports whether the process at an address has had a round without an error.
func hadRounds(t *testing.T, address string) bool {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)).Or(t)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return err == nil && strings.Contains(string(text), `mooring_nodesync_rounds_total{outcome="ok"}`) &&
		!strings.Contains(string(text), `mooring_nodesync_rounds_total{outcome="ok"} 0`)
}
