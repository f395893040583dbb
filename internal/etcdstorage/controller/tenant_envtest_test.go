// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// startProxy starts bin/etcd-storage-proxy with the flags of the Deployment and the contents of what it mounts, and returns a client of it that has
// what was delivered to the tenant, and nothing else.
func (g *stage) startProxy(name, tenantNamespace string) *clientv3.Client {
	g.t.Helper()
	process, address, _ := g.proxyProcess(name)
	out := must.Get(clientv3.New(clientv3.Config{Endpoints: []string{"https://" + address}, TLS: g.delivered(name, tenantNamespace, "ca", "client")})).Or(g.t)
	g.t.Cleanup(func() { _ = out.Close() })
	testkit.Eventually(g.t, "the proxy to serve the tenant", func() string {
		if _, err := out.Get(g.t.Context(), "any"); err != nil {
			return err.Error() + process.Output()
		}
		return ""
	})
	return out
}

// A tenant with the longest name that the kind allows, from its first object to its first key: what is missing is said with the command that cures it, the
// command cures it, the proxy serves with what was mounted and delivered, columns show it, and a second look writes nothing.
func TestATenantIsServed(t *testing.T) {
	t.Parallel()
	g := newStage(t, realServer(t))
	g.enableAuth()
	ns := g.newNamespace("tenant-")
	g.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "client", Namespace: ns}, Data: map[string][]byte{"other": []byte("kept")}})
	name := strings.Repeat("long-name-", 5) + "12345678"
	g.storage(name, toTenant(ns, ", quota: {bytes: 1Mi, keys: 1}"))
	g.sync(name)
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, "MissingPermission", "the operator may not get it; run: kubectl -n "+ns+" create")
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionFalse, "NoConflict", "")
	g.expect(name, v1alpha1.ConditionCoreReachable, metav1.ConditionTrue, "Reachable", "")
	for range 2 { // one command for the ConfigMap, one for the Secret
		g.cure(name)
		g.sync(name)
	}
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	g.expect(name, v1alpha1.ConditionProxyReady, metav1.ConditionFalse, "NoProxyReady", "0 of 3 proxies are ready")
	if kept := g.secret(ns, "client").Data["other"]; string(kept) != "kept" {
		t.Errorf("another key of the Secret is %q", kept)
	}
	g.deployed(name)
	g.sync(name)
	for _, kind := range []string{"Ready", v1alpha1.ConditionProxyReady, v1alpha1.ConditionDeployed} {
		if s := g.get(name).Status; !slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
			return c.Type == kind && c.Status == metav1.ConditionTrue && !c.LastTransitionTime.IsZero()
		}) {
			t.Errorf("%s: %s", kind, g.conditions(name))
		}
	}
	before := g.state(name, ns)
	g.sync(name)
	g.newAuthOperator()
	g.sync(name)
	if after := g.state(name, ns); after != before {
		t.Errorf("a second look writes:\n%s\n%s", before, after)
	}
	proxied := g.startProxy(name, ns)
	must.Get(proxied.Put(t.Context(), "hello", "world")).Or(t)
	if got := g.keys("/" + name + "/"); len(got) != 1 || !strings.HasPrefix(got[0], "/"+name+"/hello=world@") {
		t.Errorf("%v", got)
	}
	g.measured(name)
	g.sync(name)
	columns := strings.Split(g.kubectl("kubectl get ets -o wide "+name), "\n")
	for i, want := range [][]string{
		{"NAME", "READY", "REASON", "PROXIES", "KEYS", "BYTES", "QUOTA", "LEASES", "EXCEEDED", "POLICY", "ENDPOINT", "AGE"},
		{name, "True", "Ready", "3/3", "1", strconv.Itoa(len("/" + name + "/helloworld")), "1Mi", "0", "True", "Retain", "https://etcd-" + name + "." + g.namespace + ".svc:2379"},
	} {
		if got := strings.Fields(columns[i]); !slices.Equal(got[:min(len(got), len(want))], want) {
			t.Errorf("columns %v, want %v", got, want)
		}
	}
}

// kubectl runs a command line with kubectl as the cluster's administrator.
func (g *stage) kubectl(command string) string {
	g.t.Helper()
	shell := fmt.Sprintf("kubectl() { %q --kubeconfig %q \"$@\"; }; %s", testkit.Binary(g.t, "kubectl"), g.cluster.Kubeconfig(g.t), command)
	out, err := exec.CommandContext(g.t.Context(), "sh", "-c", shell).CombinedOutput()
	if err != nil {
		g.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// cure runs the first command of the condition as the tenant's administrator would.
func (g *stage) cure(name string) {
	g.t.Helper()
	for _, c := range g.get(name).Status.Conditions {
		if c.Type != v1alpha1.ConditionCertificatesReady {
			continue
		}
		_, command, found := strings.Cut(c.Message, "run: ")
		if !found {
			g.t.Fatalf("no command in %q", c.Message)
		}
		command, _, _ = strings.Cut(command, "\n")
		g.kubectl(command)
	}
}

// What others change in the operator's objects is put right, what they add is left, what they delete comes back, and another image is rolled out (S6).
func TestDriftIsPutRight(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	ns := g.tenant()
	name := "drift"
	g.storage(name, toTenant(ns, ""))
	g.sync(name)
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	deployment := func() *unstructured.Unstructured {
		d, err := g.r.get(t.Context(), kind, g.namespace, "etcd-"+name)
		if err != nil || d == nil {
			t.Fatal(err)
		}
		return d
	}
	image := func() string {
		containers, _, _ := unstructured.NestedSlice(deployment().Object, "spec", "template", "spec", "containers")
		text, _ := containers[0].(map[string]any)["image"].(string)
		return fmt.Sprint(len(containers), " ", text)
	}
	strategic := func(patch string) {
		t.Helper()
		d := deployment()
		typed := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: d.GetName()}}
		if _, err := g.cluster.Client.AppsV1().Deployments(g.namespace).Patch(t.Context(), typed.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	strategic(`{"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"etcdproxy","image":"evil"},{"name":"sidecar","image":"mesh"}]}}}}`)
	g.sync(name)
	if replicas, _, _ := unstructured.NestedInt64(deployment().Object, "spec", "replicas"); image() != "2 proxy:test" || replicas != 3 {
		t.Errorf("%s, %d replicas", image(), replicas)
	}
	before := g.state(name, ns)
	g.sync(name)
	if after := g.state(name, ns); after != before {
		t.Errorf("a sidecar of somebody else is fought over:\n%s\n%s", before, after)
	}
	g.r.Settings.ProxyImage = "proxy:next"
	for _, ref := range operator.Refs(name)[1:3] { // a bundle and a certificate
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		o.SetNamespace(g.namespace)
		o.SetName(ref.Name)
		must.Do(t, g.admin.Delete(t.Context(), o))
	}
	g.sync(name)
	if image() != "2 proxy:next" {
		t.Errorf("%s", image())
	}
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	if len(g.secret(g.namespace, name+"-server-cert").Data["tls.crt"]) == 0 || !strings.Contains(g.configMap(g.namespace, name+"-ca-cert").Data["client-ca.crt"], "BEGIN") {
		t.Error("what was deleted did not come back")
	}
	g.patch(name, `{"spec":{"networkPolicy":{"enabled":false}}}`)
	g.sync(name)
	if strings.Contains(g.state(name), "NetworkPolicyList "+g.namespace+"/etcd-"+name) {
		t.Error("the NetworkPolicy is still there")
	}
}
