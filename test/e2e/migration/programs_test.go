// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package migration

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// start starts a program that ends with the test at the latest.
func (s *site) start(name string, env []string, program string, args ...string) *testkit.Process {
	s.t.Helper()
	p := testkit.Start(s.t, filepath.Join(s.t.TempDir(), name+".log"), env, program, args...)
	s.t.Cleanup(func() {
		p.Stop()
		if s.t.Failed() {
			s.t.Logf("the log of %s:\n%s", name, p.Output())
		}
	})
	return p
}

// says waits until a program has said something.
func (s *site) says(p *testkit.Process, text string) {
	s.t.Helper()
	testkit.Eventually(s.t, fmt.Sprintf("a log to say %q", text), func() string {
		select {
		case <-p.Done():
			if !strings.Contains(p.Output(), text) {
				s.t.Fatalf("the program ended without saying %q:\n%s", text, p.Output())
			}
		default:
		}
		if strings.Contains(p.Output(), text) {
			return ""
		}
		return "not yet"
	})
}

// hasty are the flags that make calico-node-sync act within seconds, and leave the machine's ports alone.
func hasty() []string {
	return []string{"--grace-period=1s", "--resync-period=2s", "--round-interval=1s", "--metrics-bind-address=0", "--health-probe-bind-address=0"}
}

// ours starts calico-node-sync as the administrator; what it keeps goes into the site's namespace.
func (s *site) ours(args ...string) *testkit.Process {
	s.t.Helper()
	return s.start("calico-node-sync", s.datastoreEnv(), testkit.Binary(s.t, "calico-node-sync"), append(append(hasty(),
		"--kubeconfig="+s.api.Kubeconfig, "--leader-election-namespace="+s.namespace), args...)...)
}

// plan runs the plan command and returns its exit code and what it said.
func (s *site) plan(args ...string) (int, string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), testkit.Binary(s.t, "calico-node-sync"), append([]string{
		"plan", "--kubeconfig=" + s.api.Kubeconfig, "--leader-election-namespace=" + s.namespace,
	}, args...)...)
	cmd.Env = append(os.Environ(), s.datastoreEnv()...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

func (s *site) datastoreEnv() []string {
	if s.etcd == nil {
		return []string{"DATASTORE_TYPE=kubernetes"}
	}
	return []string{"DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS=" + s.etcd.Endpoint}
}

const (
	// withNode are the controllers that Calico's manifest for etcd enables, withoutNode all but the one that removes Calico Nodes.
	withNode    = withoutNode + ",node"
	withoutNode = "policy,namespace,serviceaccount,workloadendpoint,loadbalancer"
	// theirLabels is the annotation in which kube-controllers keeps which labels of a Calico Node are copies of the Kubernetes Node's.
	theirLabels = "projectcalico.org/kube-labels"
)

// theirs starts Calico's own kube-controllers with the controllers named and with automatic host endpoints.
func (s *site) theirs(controllers string) *testkit.Process {
	s.t.Helper()
	program := filepath.Join(testkit.Root(s.t), "bin", "kube-controllers")
	if _, err := os.Stat(program); err != nil {
		testkit.Skip(s.t, "it needs bin/kube-controllers: run `make bin/kube-controllers`")
	}
	// It makes this object itself, but then serves metrics on all of the machine's addresses.
	config := apiv3.NewKubeControllersConfiguration()
	config.Name = "default"
	config.Spec = apiv3.KubeControllersConfigurationSpec{
		PrometheusMetricsPort: new(0),
		Controllers: apiv3.ControllersConfig{Node: &apiv3.NodeControllerConfig{
			SyncLabels: apiv3.Enabled, LeakGracePeriod: &metav1.Duration{Duration: 15 * time.Minute},
		}},
	}
	_, err := s.calico.Client().KubeControllersConfiguration().Create(s.t.Context(), config, options.SetOptions{})
	if _, exists := err.(cerrors.ErrorResourceAlreadyExists); err != nil && !exists { //nolint:errorlint // libcalico-go wraps none of its errors
		s.t.Fatal(err)
	}
	p := s.start("kube-controllers", append(s.datastoreEnv(),
		"KUBECONFIG="+s.api.Kubeconfig, "ENABLED_CONTROLLERS="+controllers, "HEALTH_ENABLED=false", "AUTO_HOST_ENDPOINTS=enabled",
	), program, "-status-file="+filepath.Join(s.t.TempDir(), "status.json"))
	s.says(p, "Getting initial config snapshot from datastore")
	return p
}

// labeled waits until kube-controllers has done for all machines what it does alongside removing them: copied labels, and made host endpoints that
// have them. It copies when a Kubernetes Node changes; should calico-node write the Calico Node meanwhile, it tries again minutes later, or at
// the next heartbeat.
func (s *site) labeled() {
	s.t.Helper()
	testkit.Eventually(s.t, "kube-controllers to copy labels", func() string {
		content := s.read()
		missing := ""
		for _, u := range s.live {
			if !strings.Contains(content[u.nodeKey()], theirLabels) || !strings.Contains(content[u.autoHostEndpoint()], "kubernetes.io/hostname") {
				missing = u.node + " has none yet"
				s.heartbeat(u.machine)
			}
		}
		return missing
	})
	s.settle()
}

// token makes a service account in the site's namespace and returns a token of it.
func (s *site) token(account string) string {
	s.t.Helper()
	accounts := s.api.Client.CoreV1().ServiceAccounts(s.namespace)
	_, err := accounts.Create(s.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	s.must(err)
	answer, err := accounts.CreateToken(s.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	s.must(err)
	return answer.Status.Token
}

// inPod starts a program as in a Pod of the site's namespace with that token: the service account's files are where a kubelet mounts them,
// in a mount namespace of the program's own, and the environment names the API server.
func (s *site) inPod(token string, env []string, program string, args ...string) *testkit.Process {
	s.t.Helper()
	dir := s.t.TempDir()
	config := rest.CopyConfig(s.api.Config)
	s.must(rest.LoadTLSFiles(config))
	for name, content := range map[string]string{"token": token, "namespace": s.namespace, "ca.crt": string(config.CAData)} {
		s.must(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	server, err := url.Parse(s.api.Config.Host)
	s.must(err)
	script := `mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io && cp -r "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"`
	unshare := []string{"--user", "--map-root-user", "--mount", "sh", "-ec"}
	if err := exec.CommandContext(s.t.Context(), "unshare", append(unshare, "mount -t tmpfs none /run")...).Run(); err != nil {
		testkit.Skip(s.t, "it needs a mount namespace of its own, which this machine refuses: %v", err)
	}
	env = append(env, "KUBERNETES_SERVICE_HOST="+server.Hostname(), "KUBERNETES_SERVICE_PORT="+server.Port())
	return s.start(filepath.Base(program), env, "unshare", append(append(unshare, script, dir, program), args...)...)
}

// names are those of the objects in the site's namespace that a program may have left there, as "kind/name".
func (s *site) left() map[string]bool {
	s.t.Helper()
	out := map[string]bool{}
	ctx, all := s.t.Context(), metav1.ListOptions{}
	maps, err := s.api.Client.CoreV1().ConfigMaps(s.namespace).List(ctx, all)
	s.must(err)
	for _, o := range maps.Items {
		out["ConfigMap/"+o.Name] = true
	}
	leases, err := s.api.Client.CoordinationV1().Leases(s.namespace).List(ctx, all)
	s.must(err)
	for _, o := range leases.Items {
		out["Lease/"+o.Name] = true
	}
	secrets, err := s.api.Client.CoreV1().Secrets(s.namespace).List(ctx, all)
	s.must(err)
	for _, o := range secrets.Items {
		out["Secret/"+o.Name] = true
	}
	return out
}
