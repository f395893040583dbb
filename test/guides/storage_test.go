// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package guides

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/pages"
	"github.com/mooring-dev/mooring/test/objects"
)

const examples = "../../config/etcd-storage-operator/example"

// The guide, by its commands: its certificates carry a real core, the operator makes the tenant's proxies and delivers to its namespace, the tenant is
// saved and loaded as another, and its data stays when it goes.
func TestGuideToEtcdStorage(t *testing.T) {
	t.Parallel()
	s := newCluster(t)
	r := newReader(t, "guides/etcd-storage.md", s.cluster.Kubeconfig)
	core := r.Blocks("## The core")
	s.guideCore(r, core[0])
	r.Run(core[1])
	r.Run(r.Blocks("## The operator")[0])
	s.startOperator()
	stop := s.deployments()
	if out := r.Run(r.Blocks("## A tenant")[0]); !strings.Contains(out, "condition met") {
		t.Errorf("%s", out)
	}
	stop()
	if got := s.secret("team-a", "etcd-client-cert"); !strings.Contains(got["tls.crt"], "BEGIN CERTIFICATE") {
		t.Errorf("nothing was delivered: %v", got)
	}
	s.cluster.AllowPods(t, "team-a", "apiserver")
	s.judgeExamples()
	r.Run(r.Blocks("## An API server")[0])

	s.put("/team-a/registry/flunders/default/first", "one")
	s.put("/team-b/registry/secret", "of another tenant")
	out := r.Run(r.Blocks("## Save and load a tenant")[0])
	for _, want := range []string{"Exported 1 key (", "Tenant team-c has 0 keys; nothing was written (dry run).", "Imported 1 key into tenant team-c."} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if got := s.data(); got["/team-c/registry/flunders/default/first"] != "one" || len(got) != 3 {
		t.Errorf("the core holds %v", got)
	}
	s.restoredCore(r)
	r.Run(r.Blocks("## Remove a tenant")[0])
	if got := s.data(); got["/team-a/registry/flunders/default/first"] != "one" {
		t.Errorf("the core holds %v", got)
	}
}

// restoredCore backs the core up and restores it as the guide does, and starts an etcd on what was restored: it has all keys, at revisions that no API server
// has seen, and answers all before them as compacted.
func (s *site) restoredCore(r *pages.Reader) {
	s.t.Helper()
	blocks := r.Blocks("## Back up and restore the core")
	r.Run(blocks[0])
	before := s.etcd.Revision(s.t)
	r.Run(blocks[1])
	lines := strings.Split(strings.TrimSpace(r.Run("echo $CERTS")), "\n")
	restored := testkit.NewEtcdWith(s.t, "--data-dir="+filepath.Join(lines[len(lines)-1], "restored"))
	if got := restored.Dump(s.t); !maps.Equal(got, s.etcd.Dump(s.t)) {
		s.t.Errorf("the restored core has %d keys", len(got))
	}
	if got := restored.Revision(s.t); got < before+1_000_000_000 {
		s.t.Errorf("the restored core is at revision %d, and API servers know %d", got, before)
	}
	if _, err := restored.Client.Get(s.t.Context(), "any", clientv3.WithRev(before)); !errors.Is(err, rpctypes.ErrCompacted) {
		s.t.Error("a read at a revision from before:", err)
	}
}

// guideCore makes the guide's certificates, and a core with them. Without openssl the test makes certificates of the same names.
func (s *site) guideCore(r *pages.Reader, block string) {
	s.t.Helper()
	dir := ""
	if _, err := exec.LookPath("openssl"); err == nil {
		lines := strings.Split(strings.TrimSpace(r.Run(block+"\necho $CERTS")), "\n")
		dir = lines[len(lines)-1]
		s.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	} else {
		s.t.Log("there is no openssl: the guide's certificates are replaced by the test's")
		dir = s.t.TempDir()
		authority := testkit.NewAuthority(s.t, "core-etcd")
		server, client := authority.Issue(s.t, testkit.Leaf{}), authority.Issue(s.t, testkit.Leaf{CommonName: "storage-proxies"})
		for name, data := range map[string][]byte{
			"ca.crt": authority.PEM, "server.crt": server.Cert, "server.key": server.Key, "client.crt": client.Cert, "client.key": client.Key,
		} {
			must.Do(s.t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
		r.Run("export CERTS=" + dir)
	}
	file := func(name string) []byte {
		data := must.Get(os.ReadFile(filepath.Join(dir, name))).Or(s.t)
		return data
	}
	ca := file("ca.crt")
	client := testkit.Pair{Cert: file("client.crt"), Key: file("client.key")}
	s.etcd = testkit.NewTLSEtcd(s.t, testkit.NewTLSFolder(s.t, testkit.Pair{Cert: file("server.crt"), Key: file("server.key")}, ca), clientConfig(s.t, client, ca))
	r.Run("export CORE=" + s.etcd.Endpoint)
}

// judgeExamples: the examples meet the restricted standard, and a real API server takes every object, a pod of each workload, and warns of none.
func (s *site) judgeExamples() {
	s.t.Helper()
	t, judged := s.t, 0
	for _, name := range []string{"core-etcd.yaml", "team-a.yaml", "tenants.yaml", "apiserver.yaml"} {
		text := must.Get(os.ReadFile(filepath.Join(examples, name))).Or(t)
		all := objects.Parse(t, name, text)
		s.server.DryRun(t, name, all)
		judged += objects.CheckPods(t, name, all)
		for _, set := range objects.OfKind[appsv1.StatefulSet](t, all, "StatefulSet") {
			pod := set.Spec.Template
			if complaint := objects.Unrestricted(t, &pod.ObjectMeta, &pod.Spec); complaint != "" || !*pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem {
				t.Errorf("%s: StatefulSet %s: %s", name, set.Name, complaint)
			}
			judged++
		}
		if n := len(objects.OfKind[corev1.Secret](t, all, "Secret")); n > 0 && bytes.Contains(text, []byte("tls.crt")) {
			t.Errorf("%s: applying it again would overwrite certificates", name)
		}
	}
	if judged != 2 {
		t.Errorf("%d workloads were judged", judged)
	}
	if heard := s.server.Warnings(); len(heard) > 0 {
		t.Errorf("the API server warns: %q", heard)
	}
}

// The example's flags, volumes and names are those of the tenant's EtcdStorage.
func TestTheExamplesFitEachOther(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text := must.Get(os.ReadFile(filepath.Join(examples, name))).Or(t)
		return string(text)
	}
	api := objects.OfKind[appsv1.Deployment](t, objects.Parse(t, "apiserver.yaml", []byte(read("apiserver.yaml"))), "Deployment")[0].Spec.Template.Spec
	if v := api.Volumes; v[1].ConfigMap.Name != "etcd-serving-ca" || v[2].Secret.SecretName != "etcd-client-cert" {
		t.Errorf("the volumes are %v", v)
	}
	for _, want := range []string{"https://etcd-team-a." + operatorNamespace + ".svc:2379", "/etc/etcd/ca/serving-ca.crt", "/etc/etcd/client/tls.crt", "/etc/etcd/client/tls.key"} {
		if !strings.Contains(strings.Join(api.Containers[0].Args, "\n"), "="+want) {
			t.Errorf("no flag is %s: %q", want, api.Containers[0].Args)
		}
	}
	deployment := must.Get(os.ReadFile("../../config/etcd-storage-operator/base/deployment.yaml")).Or(t)
	const url = "https://etcd.etcd-core.svc:2379"
	if !strings.Contains(string(deployment), "--etcd-core-url="+url) || !strings.Contains(read("core-etcd.yaml"), "--advertise-client-urls="+url) {
		t.Error("the operator's core is not the example's")
	}
}
