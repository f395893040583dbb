// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// kubectl runs kubectl as the cluster's administrator.
func kubectl(t *testing.T, cluster *controlplane.Cluster, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.Binary(t, "kubectl"), append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustKubectl(t *testing.T, cluster *controlplane.Cluster, stdin string, args ...string) {
	t.Helper()
	if out, err := kubectl(t, cluster, stdin, args...); err != nil {
		t.Fatalf("kubectl %q: %v\n%s", args, err, out)
	}
}

// With nothing but a name: endpoint, bundle and certificate come from the cluster, and a real proxy with TLS serves the tenant. What is missing is said.
func TestEtcdByName(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	mustKubectl(t, cluster, "", "apply", "--server-side", "-f", filepath.Join(testkit.Root(t), "config", "crd", "bases", v1alpha1.GroupVersion.Group+"_etcdstorages.yaml"))
	resource := "etcdstorages." + v1alpha1.GroupVersion.Group
	if out, err := kubectl(t, cluster, "", "delete", "configmap/ca", "secret/client", resource+"/by-name", "--ignore-not-found"); err != nil && !strings.Contains(out, "doesn't have a resource type") {
		t.Fatal(out) // what an earlier run of this test has left
	}
	const objects = `apiVersion: %s
kind: EtcdStorage
metadata: {name: by-name}
spec:
  caCertConfigMap: [{name: ca, namespace: default}]
  clientCertSecret: [{name: client, namespace: default}]
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: ca, namespace: default}}
---
{apiVersion: v1, kind: Secret, metadata: {name: client, namespace: default}}
`
	testkit.Eventually(t, "the objects to be applied", func() string {
		if out, err := kubectl(t, cluster, fmt.Sprintf(objects, v1alpha1.GroupVersion), "apply", "-f", "-"); err != nil {
			return err.Error() + ": " + out
		}
		return ""
	})
	etcd := testkit.NewEtcd(t)
	put(t, etcd.Client, "/by-name/x", "/by-name/y", "/other/secret")
	authority := testkit.NewAuthority(t, "tenant")
	pair := authority.Issue(t, testkit.Leaf{CommonName: "by-name"})
	files := testkit.NewTLSFolder(t, authority.Issue(t, testkit.Leaf{}), authority.PEM)
	proxy := tenantproxy.NewBinary(t, etcd.Endpoint, "/by-name/", "by-name",
		"--tls-cert-file="+files.Cert(), "--tls-private-key-file="+files.Key(), "--client-ca-file="+files.CA())
	args := func(more ...string) []string {
		return append([]string{"--kubeconfig", cluster.Kubeconfig, "etcd", "export", "by-name", "-f", filepath.Join(t.TempDir(), "x")}, more...)
	}
	expect(t, command.ExitError, "", args(), "error: EtcdStorage by-name has no endpoint yet: see `kubectl describe "+resource+" by-name`")
	patch := func(kind, name string, object map[string]any, more ...string) {
		t.Helper()
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		mustKubectl(t, cluster, "", append([]string{"patch", kind, name, "--type=merge", "-p", string(text)}, more...)...)
	}
	patch(resource, "by-name", map[string]any{"status": map[string]any{"endpoint": "https://" + proxy.Address}}, "--subresource=status")
	expect(t, command.ExitError, "", args(), "error: configmaps default/ca has no serving-ca.crt yet: see")
	patch("configmap", "ca", map[string]any{"data": map[string]string{v1alpha1.ServingCAKey: string(authority.PEM)}})
	expect(t, command.ExitError, "", args(), "error: secrets default/client has no tls.crt yet: see")
	patch("secret", "client", map[string]any{"stringData": map[string]string{"tls.crt": string(pair.Cert), "tls.key": string(pair.Key)}})
	testkit.Eventually(t, "the proxy to listen", func() string {
		code, _, stderr := run(t, args())
		if code != command.ExitOK {
			return stderr
		}
		return ""
	})
	expect(t, command.ExitOK, "", args(), "Exported 2 keys")
	expect(t, command.ExitError, "", args("--endpoint", "https://127.0.0.1:1"), "connecting to https://127.0.0.1:1: ")
	missing := args()
	missing[4] = "another"
	expect(t, command.ExitError, "", missing, `error: the cluster has no EtcdStorage "another"; give --endpoint, --cacert, --cert and --key, or --core-endpoint`)

	// Somebody else's certificate of the same authority is told that it is not the tenant's.
	other := testkit.NewTLSFolder(t, authority.Issue(t, testkit.Leaf{CommonName: "other"}), authority.PEM)
	expect(t, command.ExitError, "", args("--cert", other.Cert(), "--key", other.Key()), "the client certificate does not belong to this tenant")
}
