// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package guides

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The page about etcdproxy-controller, by its commands: a tenant with data moves there, back, and there again, and its data is the same all
// the while.
func TestMigrationFromEtcdproxyController(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.apply("testdata/etcdproxy-controller.yaml")
	for i := range 700 { // more than a page of anything
		s.put(fmt.Sprintf("/team-a/registry/%04d", i), strings.Repeat("x", i))
	}
	s.put("/team-b/registry/other", "another tenant's")
	data := s.etcd.Dump(t)
	r := newReader(t, "migration/etcd-storage-operator.md", s.cluster.Kubeconfig)

	before := r.Blocks("## Before")
	if out := r.Run(before[0]); !strings.Contains(out, "adoptExistingData: true") || !strings.Contains(out, "EtcdStorage team-a: carried over\n") {
		t.Errorf("%s", out)
	}
	for _, block := range before[1:] {
		r.Run(block)
	}
	s.startOperator()
	tenant := r.Blocks("## One tenant")
	out := r.Run(tenant[0])
	for _, want := range []string{"/team-a created (server dry run)\n", "/team-a created\n", "condition met\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if got := s.secret("team-a", "etcd-client-cert"); got["tls.crt"] != "old" {
		t.Errorf("the old certificate was replaced while the old proxies serve: %q", got["tls.crt"])
	}
	stop := s.deployments()
	r.Run(tenant[1])
	r.Run(tenant[2])
	stop()
	s.hasMoved(data)
	if out := r.Run("kubectl mooring migrate etcdstorage team-a --apply"); !strings.HasSuffix(out, "/team-a unchanged\n") {
		t.Errorf("a second run: %s", out)
	}

	r.Run(r.Blocks("## Rollback")[0])
	if diff := cmp.Diff(data, s.data()); diff != "" {
		t.Errorf("the way back changed the data:\n%s", diff)
	}
	got := s.secret("team-a", "etcd-client-cert")
	if got["tls.crt"] != "" || got["other"] != "kept" {
		t.Errorf("the tenant's Secret holds %v", got)
	}
	if _, err := s.cluster.Client.AppsV1().Deployments(operatorNamespace).Get(t.Context(), "etcd-team-a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the proxies still exist: %v", err)
	}
	s.admitsOldPods()

	s.apply("testdata/etcdproxy-controller.yaml") // the old controller has made everything again
	stop = s.deployments()
	for _, block := range tenant {
		r.Run(block)
	}
	stop()
	s.hasMoved(data)
	r.Run(r.Blocks("## Afterwards")[0])
	s.hasMoved(data)
}

// The command against a cluster: what is there, what is missing, and what somebody else has changed meanwhile.
func TestMigrateAgainstACluster(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := newReader(t, "migration/etcd-storage-operator.md", s.cluster.Kubeconfig)
	fails := func(args, want string) {
		t.Helper()
		out := r.Run("if kubectl mooring migrate etcdstorage " + args + "; then echo code 0; else echo code $?; fi")
		if !strings.HasSuffix(out, want) && !strings.Contains(out, want) {
			t.Errorf("%s: want %q\n%s", args, want, out)
		}
	}
	const file = " -f test/guides/testdata/etcdproxy-controller.yaml "
	fails("", "error: the cluster serves no etcdstorages.etcd.xmudrii.com: there is nothing of etcdproxy-controller; give -f FILE for objects in a file\ncode 1\n")
	fails(file+"team-a --apply", "the cluster does not serve")
	s.apply("testdata/etcdproxy-controller.yaml")
	r.Run("kubectl apply --server-side -f config/crd/bases/*_etcdstorages.yaml && until kubectl get etcdstorages.etcd.mooring.dev; do sleep 1; done")
	s.served()
	fails("--apply --dry-run", "/team-a created (server dry run)\ncode 2\n")
	if out := r.Run("kubectl get etcdstorages.etcd.mooring.dev 2>&1"); !strings.Contains(out, "No resources found") {
		t.Errorf("a dry run wrote: %s", out)
	}
	fails("--apply", "code 2\n")
	versions := func() string {
		return r.Run("kubectl get etcdstorages.etcd.mooring.dev -o jsonpath='{range .items[*]}{.metadata.name}={.metadata.resourceVersion} {end}'")
	}
	first := versions()
	fails("--apply", "/team-a unchanged\n")
	if again := versions(); again != first || !strings.Contains(first, "half=") {
		t.Errorf("a second run writes: %s, then %s", first, again)
	}
	r.Run(`kubectl patch etcdstorages.etcd.mooring.dev team-a --type=merge -p '{"spec":{"adoptExistingData":false,"quota":{"keys":100}}}'`)
	fails("team-a --apply", "it exists already, and another field manager")
	if out := r.Run("kubectl get etcdstorages.etcd.mooring.dev team-a -o jsonpath='{.spec.adoptExistingData}{.spec.quota.keys}'"); out != "100" && out != "false100" {
		t.Errorf("what somebody else had changed was overwritten: %s", out)
	}
	r.Run("kubectl delete etcdstorages.etcd.xmudrii.com --all")
	fails("", "error: the cluster has no etcdstorages.etcd.xmudrii.com: there is nothing to convert\ncode 1\n")
}
