// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/rights"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// stage is a namespace for an operator on the package's API server, a core etcd with TLS, and an operator with its rights
// and no others.
type stage struct {
	t         *testing.T
	cluster   *cluster.Cluster
	admin     client.Client // of the cluster
	operator  client.Client
	namespace string
	authority *testkit.Authority
	etcd      *testkit.Etcd
	root      *clientv3.Client // of the core
	clock     *clocktesting.FakeClock
	r         *Reconciler
}

// definition is that of EtcdStorage.
func definition(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return controlplane.OwnKind(t, "etcdstorages")
}

// server is a simulated API server, and in CI and at night the package's real one.
func server(t *testing.T) *cluster.Cluster {
	t.Helper()
	if cases.Number(t, 0, 1, 1) == 1 {
		return realServer(t)
	}
	return cluster.New(t, definition(t))
}

// realServer is the package's real API server.
func realServer(t *testing.T) *cluster.Cluster {
	t.Helper()
	return cluster.On(t, controlplane.Shared(t), definition(t))
}

func newStage(t *testing.T, cluster *cluster.Cluster) *stage {
	t.Helper()
	g := &stage{t: t, cluster: cluster, clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second))} // real peers check the certificates
	scheme, err := NewScheme()
	must.Do(t, err)
	must.Do(t, rbacv1.AddToScheme(scheme))
	if g.admin, err = client.New(cluster.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	g.namespace = g.newNamespace("storage-")
	user := "system:serviceaccount:" + g.namespace + ":etcd-storage-operator"
	g.grant(user)
	config := actingAs(cluster, user)
	if g.operator, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	g.startCore()
	g.r = g.newOperator()
	return g
}

// actingAs is how a program with the rights of a user reaches the cluster, and sends only what a round declares. A simulated one allows everybody everything.
func actingAs(cluster *cluster.Cluster, user string) *rest.Config {
	config := rest.CopyConfig(cluster.Config)
	config.Wrap(outputs.Guard)
	if !cluster.Simulated() {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	}
	return config
}

// grant gives the operator the rights that it says it needs, and no others.
func (g *stage) grant(user string) {
	g.t.Helper()
	subject := []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}}
	roles := rights.EtcdStorage().Roles()
	everywhere, own := rights.Rounds(roles, rights.Everywhere), rights.Rounds(roles, rights.Own)
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: g.namespace}, Rules: everywhere},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: g.namespace}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.namespace}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: g.namespace}, Rules: own},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: g.namespace}, Subjects: subject,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "operator"}},
	} {
		g.create(o)
	}
}

func (g *stage) create(o client.Object) {
	g.t.Helper()
	must.Do(g.t, g.admin.Create(g.t.Context(), o))
}

func (g *stage) newNamespace(stem string) string {
	g.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: stem}}
	g.create(ns)
	return ns.Name
}

// startCore puts the credentials of a core that wants client certificates where the operator looks for them.
func (g *stage) startCore() {
	g.t.Helper()
	g.etcd, g.authority = testkit.LendTLSEtcd(g.t, "storage-proxies")
	pair := g.authority.Issue(g.t, testkit.Leaf{CommonName: "storage-proxies"})
	g.root = g.etcd.Client
	g.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "etcd-coreserving-ca", Namespace: g.namespace}, Data: map[string]string{"ca.pem": string(g.authority.PEM)}})
	g.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "etcd-coreserving-cert", Namespace: g.namespace},
		Data: map[string][]byte{"client.pem": pair.Cert, "client-key.pem": pair.Key}})
}

// newOperator is the operator of a process that has just started.
func (g *stage) newOperator() *Reconciler {
	g.t.Helper()
	cluster, user, err := Identity(g.t.Context(), g.operator)
	must.Do(g.t, err)
	connection := &Core{}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = connection.Start(ctx) }()
	g.t.Cleanup(func() { stop(); <-done })
	timing := DefaultTiming()
	timing.Settle = 0 // tests change what is not watched
	return New(Options{
		Reader: g.operator, Client: g.operator, Core: connection, Clock: g.clock, Random: rand.Reader, Timing: timing,
		Settings: operator.Settings{
			Namespace: g.namespace, ClusterDomain: "cluster.local", ProxyImage: "proxy:test", CoreURLs: []string{g.etcd.Endpoint}, CAConfigMap: "etcd-coreserving-ca",
			CertsSecret: "etcd-coreserving-cert", TenantUsers: true, UserRotation: 720 * time.Hour, Cluster: cluster, User: user,
		},
	})
}

// names are whose EtcdStorages are called what: tests that share an API server share it at any time.
var names sync.Map

// storage creates an EtcdStorage.
func (g *stage) storage(name, spec string) {
	g.t.Helper()
	test, _, _ := strings.Cut(g.t.Name(), "/")
	if other, taken := names.LoadOrStore(g.cluster.Config.Host+"/"+name, test); taken && other != test {
		g.t.Fatalf("%v has an EtcdStorage of this name, too: %s", other, name)
	}
	o := &unstructured.Unstructured{}
	text := fmt.Sprintf("apiVersion: %s\nkind: EtcdStorage\nmetadata: {name: %s}\nspec: %s\n", v1alpha1.GroupVersion, name, spec)
	must.Do(g.t, yaml.Unmarshal([]byte(text), &o.Object))
	g.create(o)
	g.t.Cleanup(func() { g.discard(o) })
}

// discard removes an EtcdStorage without any operator: each operator reads those of all tests.
func (g *stage) discard(o *unstructured.Unstructured) {
	ctx := context.WithoutCancel(g.t.Context())
	err := g.admin.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	if err == nil {
		err = g.admin.Delete(ctx, o)
	}
	if client.IgnoreNotFound(err) != nil {
		g.t.Error(err)
	}
}

// pass makes rounds, as the queue does, until one makes no step.
func (g *stage) pass(name string) (last reconcile.Result) {
	g.t.Helper()
	for range 60 {
		if last = g.r.rounds.Once(g.t.Context(), name); last.Next != again {
			return last
		}
	}
	g.t.Fatalf("EtcdStorage %s is written again and again: %s", name, g.conditions(name))
	return last
}

// once is one pass that does not fail.
func (g *stage) once(name string) (result reconcile.Result) {
	g.t.Helper()
	if result = g.pass(name); result.Failed {
		g.t.Fatalf("a round of EtcdStorage %s failed: %s", name, g.conditions(name))
	}
	return result
}

// sync reconciles until nothing is under way.
func (g *stage) sync(name string) {
	g.t.Helper()
	for range 10 {
		if next := g.once(name).Next; next == 0 || next > g.r.Timing.Poll { // a conflict is looked at sooner than that
			return
		}
	}
	g.t.Fatalf("EtcdStorage %s does not settle: %s", name, g.conditions(name))
}

func (g *stage) get(name string) *v1alpha1.EtcdStorage {
	g.t.Helper()
	out := &v1alpha1.EtcdStorage{}
	must.Do(g.t, g.admin.Get(g.t.Context(), types.NamespacedName{Name: name}, out))
	return out
}

// conditions are for people.
func (g *stage) conditions(name string) string {
	var out []string
	for _, c := range g.get(name).Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(out, "\n")
}

// expect checks a condition; the message must contain part.
func (g *stage) expect(name, kind string, status metav1.ConditionStatus, reason, part string) {
	g.t.Helper()
	c := meta.FindStatusCondition(g.get(name).Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, part) {
		g.t.Errorf("want %s=%s %s: …%s…\n%s", kind, status, reason, part, g.conditions(name))
	}
}

func (g *stage) secret(namespace, name string) *corev1.Secret {
	g.t.Helper()
	out := &corev1.Secret{}
	must.Do(g.t, g.admin.Get(g.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, out))
	return out
}

func (g *stage) configMap(namespace, name string) *corev1.ConfigMap {
	g.t.Helper()
	out := &corev1.ConfigMap{}
	must.Do(g.t, g.admin.Get(g.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, out))
	return out
}

// tenant is a namespace with an empty ConfigMap and Secret on which the operator has rights.
func (g *stage) tenant() string {
	g.t.Helper()
	ns := g.newNamespace("tenant-")
	g.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ca", Namespace: ns}, Data: map[string]string{"other": "kept"}})
	g.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "client", Namespace: ns}, Data: map[string][]byte{"other": []byte("kept")}})
	get := []string{"get", "patch"}
	g.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "etcd-storage", Namespace: ns}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"ca"}, Verbs: get},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"client"}, Verbs: get},
	}})
	g.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "etcd-storage", Namespace: ns},
		Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: g.r.Settings.User}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "etcd-storage"}})
	return ns
}

// toTenant is a spec that delivers to a tenant's namespace, with more fields behind.
func toTenant(ns, more string) string {
	return fmt.Sprintf("{caCertConfigMap: [{name: ca, namespace: %s}], clientCertSecret: [{name: client, namespace: %s}]%s}", ns, ns, more)
}

// state is every object of the operator's namespace and of the others, the EtcdStorage and the core, so that a write shows.
func (g *stage) state(name string, namespaces ...string) string {
	g.t.Helper()
	var out []string
	kinds := []schema.GroupVersionKind{}
	for _, ref := range operator.Refs("x") {
		kinds = append(kinds, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
	}
	for _, ns := range append(namespaces, g.namespace) {
		for _, kind := range kinds {
			list := &metav1.PartialObjectMetadataList{}
			kind.Kind = strings.TrimSuffix(kind.Kind, "List") + "List"
			list.SetGroupVersionKind(kind)
			must.Do(g.t, g.admin.List(g.t.Context(), list, client.InNamespace(ns)))
			for _, o := range list.Items {
				if o.Name != "kube-root-ca.crt" {
					out = append(out, fmt.Sprintf("%s %s/%s %s", kind.Kind, ns, o.Name, o.ResourceVersion))
				}
			}
		}
	}
	slices.Sort(out)
	revision := must.Get(g.root.Get(g.t.Context(), "any", clientv3.WithCountOnly())).Or(g.t)
	return fmt.Sprintf("%s\n%s %d", strings.Join(slices.Compact(out), "\n"), g.get(name).ResourceVersion, revision.Header.Revision)
}

// deployed lets the Deployment have its proxies, as kube-controller-manager would.
func (g *stage) deployed(name string) {
	g.t.Helper()
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	d.SetNamespace(g.namespace)
	d.SetName("etcd-" + name)
	must.Do(g.t, g.admin.Get(g.t.Context(), client.ObjectKeyFromObject(d), d))
	replicas, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"observedGeneration": d.GetGeneration(), "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
	}})
	must.Do(g.t, err)
	must.Do(g.t, g.admin.Status().Patch(g.t.Context(), d, client.RawPatch(types.MergePatchType, patch)))
}

// args are the flags of the Deployment's proxy.
func (g *stage) args(name string) []string {
	g.t.Helper()
	d := &unstructured.Unstructured{}
	d.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	must.Do(g.t, g.admin.Get(g.t.Context(), types.NamespacedName{Namespace: g.namespace, Name: "etcd-" + name}, d))
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	return args
}

// delete deletes an EtcdStorage and lets the operator finish.
func (g *stage) delete(name string) {
	g.t.Helper()
	must.Do(g.t, g.admin.Delete(g.t.Context(), &v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	g.sync(name)
}

func (g *stage) gone(name string) bool {
	err := g.admin.Get(g.t.Context(), types.NamespacedName{Name: name}, &v1alpha1.EtcdStorage{})
	return apierrors.IsNotFound(err)
}

// put writes keys into the core.
func (g *stage) put(keys ...string) {
	g.t.Helper()
	for _, key := range keys {
		must.Get(g.root.Put(g.t.Context(), key, "value of "+key)).Or(g.t)
	}
}

// keys are those under a prefix in the core.
func (g *stage) keys(prefix string) []string {
	g.t.Helper()
	answer := must.Get(g.root.Get(g.t.Context(), prefix, clientv3.WithPrefix())).Or(g.t)
	var out []string
	for _, kv := range answer.Kvs {
		out = append(out, fmt.Sprintf("%s=%s@%d/%d", kv.Key, kv.Value, kv.ModRevision, kv.Lease))
	}
	return out
}
