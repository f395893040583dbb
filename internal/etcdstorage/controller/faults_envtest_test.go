// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// The operator dies after each of its writes, and each time a new one goes on: with one CA of each purpose, and in the end as if nothing had
// happened. The same when the EtcdStorage is deleted with its data, of which nothing remains, and nothing of others is touched.
func TestDeathAfterEachWrite(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	installKind(t, cluster, nil)
	g := newRig(t, cluster)
	ns := g.tenant()
	name := "mortal"
	g.storage(name, toTenant(ns, ", deletionPolicy: Delete"))
	deaths := 0
	for g.killed(name, 1+deaths%2, deaths%2 == 0) { // after the first write, and before the second, by turns
		if deaths++; deaths > 60 {
			t.Fatal("it does not come to an end")
		}
	}
	if deaths < 10 {
		t.Errorf("only %d deaths", deaths)
	}
	want := []string{"client-1.crt", "client-1.key", "client-1.published", "clients", "serving-1.crt", "serving-1.key", "serving-1.published"}
	if got := slices.Sorted(maps.Keys(g.secret(g.namespace, name+"-signers").Data)); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	before := g.state(name, ns)
	g.sync(name)
	if after := g.state(name, ns); after != before {
		t.Errorf("a look after all deaths writes:\n%s\n%s", before, after)
	}
	g.fill(name)
	others := g.keys("/othe")
	if err := g.admin.Delete(t.Context(), g.get(name)); err != nil {
		t.Fatal(err)
	}
	for deaths = 0; g.killed(name, 1+deaths%2, deaths%2 == 0); deaths++ {
		if deaths > 60 {
			t.Fatal("the deletion does not come to an end")
		}
	}
	g.sync(name)
	g.nothingLeft(name, ns)
	if got := g.keys("/othe"); !slices.Equal(got, others) {
		t.Errorf("keys of others: %v, were %v", got, others)
	}
}

// fill writes keys of the tenant, more than a page, some with a lease of its own, records of its proxies, and keys of others alongside them.
func (g *rig) fill(name string) {
	g.t.Helper()
	prefix := "/" + name + "/"
	for page := range 6 {
		var ops []clientv3.Op
		for i := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%skey-%d-%d", prefix, page, i), "x"))
		}
		if _, err := g.root.Txn(g.t.Context()).Then(ops...).Commit(); err != nil {
			g.t.Fatal(err)
		}
	}
	var owner operator.Owner
	g.record(name, &owner)
	var space int64
	if _, err := fmt.Sscan(owner.LeaseSpace, &space); err != nil {
		g.t.Fatal(err)
	}
	lease, err := clientv3.NewLease(g.root).Grant(g.t.Context(), 600)
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := clientv3.NewKV(g.root).Put(g.t.Context(), "/other/leased", "x", clientv3.WithLease(lease.ID)); err != nil {
		g.t.Fatal(err)
	}
	g.put("/othe", "/other/a", operator.SystemPrefix(name)+"compact-revision", operator.SystemPrefix("other")+"compact-revision")
	g.grantLease(space<<32|7, prefix+"leased")
}

// record reads the tenant's record in the core; it returns false if there is none.
func (g *rig) record(name string, into *operator.Owner) bool {
	g.t.Helper()
	answer, err := g.root.Get(g.t.Context(), operator.OwnersPrefix+name)
	if err != nil {
		g.t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return false
	}
	if err := json.Unmarshal(answer.Kvs[0].Value, into); err != nil {
		g.t.Fatal(err)
	}
	return true
}

func (g *rig) nothingLeft(name, ns string) {
	g.t.Helper()
	if !g.gone(name) {
		g.t.Errorf("it is still there: %s", g.conditions(name))
	}
	var owner operator.Owner
	if g.record(name, &owner) {
		g.t.Errorf("the record is still there: %+v", owner)
	}
	for _, prefix := range []string{"/" + name + "/", operator.SystemPrefix(name)} {
		if left := g.keys(prefix); len(left) > 0 {
			g.t.Errorf("%d keys under %s are left", len(left), prefix)
		}
	}
	if left := g.leases(); len(left) != 1 {
		g.t.Errorf("leases %v are left, want the one of somebody else", left)
	}
	if left := g.keys(operator.SystemPrefix("other")); len(left) != 1 {
		g.t.Errorf("records of others: %v", left)
	}
	list := &metav1.PartialObjectMetadataList{}
	for _, ref := range operator.Refs(name) {
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind+"List"))
		if err := g.admin.List(g.t.Context(), list, client.InNamespace(g.namespace), client.HasLabels{v1alpha1.StorageLabel}); err != nil {
			g.t.Fatal(err)
		}
		if len(list.Items) > 0 {
			g.t.Errorf("%s %s is left", ref.Kind, list.Items[0].Name)
		}
	}
	if data := g.secret(ns, "client").Data; len(data) != 1 || string(data["other"]) != "kept" {
		g.t.Errorf("the tenant's Secret has %v", slices.Sorted(maps.Keys(data)))
	}
	if data := g.configMap(ns, "ca").Data; len(data) != 1 || data["other"] != "kept" {
		g.t.Errorf("the tenant's ConfigMap has %v", data)
	}
}

func (g *rig) leases() []clientv3.LeaseID {
	g.t.Helper()
	answer, err := g.root.Leases(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	var out []clientv3.LeaseID
	for _, l := range answer.Leases {
		out = append(out, l.ID)
	}
	return out
}

// Retain leaves the data byte for byte, and no one gets it by chance: not an EtcdStorage of the same name, and not one whose prefix
// overlaps. Anyone who says so gets it, with the lease space that its leases have.
func TestRetainedDataIsNotTakenOverByChance(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	installKind(t, cluster, nil)
	g := newRig(t, cluster)
	g.storage("kept", "{}")
	g.sync("kept")
	g.put("/kept/a", "/kept/b")
	data := g.keys("/kept/")
	var was operator.Owner
	g.record("kept", &was)
	g.delete("kept")
	var released operator.Owner
	if !g.gone("kept") || !slices.Equal(g.keys("/kept/"), data) || !g.record("kept", &released) || !released.Released || released.UID != was.UID {
		t.Fatalf("%v %+v", g.keys("/kept/"), released)
	}
	g.storage("kept", "{}")
	g.sync("kept")
	g.expect("kept", v1alpha1.ConditionConflict, metav1.ConditionTrue, "ExistingData",
		"the core has 2 keys under /kept/, of an EtcdStorage that was deleted and had spec.deletionPolicy Retain; set spec.adoptExistingData to true")
	if objects := g.state("kept"); strings.Contains(objects, "kept-signers") || strings.Contains(objects, "etcd-kept") {
		t.Errorf("it got something: %s", objects)
	}
	g.storage("kept-below", "{prefix: /kept/below/, adoptExistingData: true}")
	g.sync("kept-below")
	g.expect("kept-below", v1alpha1.ConditionConflict, metav1.ConditionTrue, "PrefixTaken", "spec.prefix /kept/below/ overlaps /kept/ of EtcdStorage kept, which is older")
	// A refused one goes without touching what is not its own, whatever its policy says.
	g.patch("kept", `{"spec":{"deletionPolicy":"Delete"}}`)
	g.delete("kept")
	g.delete("kept-below")
	if !g.gone("kept") || !g.gone("kept-below") || !slices.Equal(g.keys("/kept/"), data) {
		t.Fatalf("%v", g.keys("/kept/"))
	}
	g.storage("heir", "{prefix: /kept/, adoptExistingData: true}")
	g.sync("heir")
	var heir, none operator.Owner
	if !g.record("heir", &heir) || heir.LeaseSpace != was.LeaseSpace || g.record("kept", &none) || !slices.Equal(g.keys("/kept/"), data) {
		t.Errorf("%+v\n%s", heir, g.conditions("heir"))
	}
}

func (g *rig) patch(name, patch string) {
	g.t.Helper()
	o := &v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := g.admin.Patch(g.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		g.t.Fatal(err)
	}
}

// What is of somebody else and in the way is reported and left as it is; the other objects are made, and a tenant alongside it is served.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	installKind(t, cluster, nil)
	g := newRig(t, cluster)
	ns := g.tenant()
	name := "foreign"
	for _, ref := range operator.Refs(name) {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		o.SetNamespace(g.namespace)
		o.SetName(ref.Name)
		switch ref.Kind {
		case operator.KindDeployment:
			o.Object["spec"] = map[string]any{
				"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
				"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{"containers": []any{map[string]any{"name": "x", "image": "x"}}}},
			}
		case operator.KindService:
			o.Object["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(1)}}}
		case operator.KindNetworkPolicy:
			o.Object["spec"] = map[string]any{"podSelector": map[string]any{}}
		}
		g.create(o)
	}
	patch := []byte(`{"data":{"tls.crt":"bWluZQ=="}}`)
	if err := g.admin.Patch(t.Context(), g.secret(ns, "client"), client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	objects := func() string {
		all := strings.Split(g.state(name, ns), "\n")
		return strings.Join(slices.DeleteFunc(all, func(l string) bool { return strings.Contains(l, "ConfigMapList "+ns) || !strings.Contains(l, "List ") }), "\n")
	}
	g.storage(name, toTenant(ns, ""))
	g.storage("neighbor", "{}")
	before := objects()
	g.sync(name)
	g.sync("neighbor")
	if after := strings.Join(slices.DeleteFunc(strings.Split(objects(), "\n"), func(l string) bool { return strings.Contains(l, "neighbor") }), "\n"); after != before {
		t.Errorf("foreign objects were written to:\n%s\n%s", before, after)
	}
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "ForeignObject", "namespace "+g.namespace+" has Secret foreign-signers, ConfigMap foreign-ca-cert, ")
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "ForeignObject", "Secret "+ns+"/client has tls.crt and tls.key, which the operator did not write")
	g.expect(name, "Ready", metav1.ConditionFalse, "ForeignObject", "")
	g.expect("neighbor", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	// When what was in the way is gone, the next look goes on.
	for _, ref := range operator.Refs(name) {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		o.SetNamespace(g.namespace)
		o.SetName(ref.Name)
		if err := g.admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.admin.Patch(t.Context(), g.secret(ns, "client"), client.RawPatch(types.MergePatchType, []byte(`{"data":{"tls.crt":null}}`))); err != nil {
		t.Fatal(err)
	}
	g.sync(name)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionFalse, "NoConflict", "")
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
}

// While the core is away nothing new is begun and nothing that runs is touched, certificates are still renewed, and afterwards all goes on.
func TestTheCoreIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	installKind(t, cluster, nil)
	g := newRig(t, cluster)
	ns := g.tenant()
	g.storage("early", toTenant(ns, ""))
	g.sync("early")
	serving := string(g.secret(g.namespace, "early-server-cert").Data["tls.crt"])
	args := g.args("early")
	g.etcd.Kill()
	g.storage("late", "{}")
	g.sync("late")
	g.expect("late", v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "CoreUnreachable", "the core etcd")
	g.expect("late", "Ready", metav1.ConditionFalse, "CoreUnreachable", "")
	g.clock.Step(61 * 24 * time.Hour) // two thirds of 90 days are over
	g.sync("early")
	g.expect("early", v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "CoreUnreachable", "")
	g.expect("early", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	if renewed := string(g.secret(g.namespace, "early-server-cert").Data["tls.crt"]); renewed == serving {
		t.Error("the certificate was not renewed while the core was away")
	}
	if err := g.admin.Delete(t.Context(), g.get("early")); err != nil {
		t.Fatal(err)
	}
	g.once("early")
	if !slices.Equal(g.keysOf("early"), []string{v1alpha1.Finalizer}) {
		t.Errorf("finalizers: %v", g.keysOf("early"))
	}
	g.expect("early", "Ready", metav1.ConditionFalse, "Deleting", "the core etcd")
	g.etcd.Restart(t)
	testkit.Eventually(t, "the core to answer", func() string {
		g.clock.Step(g.r.Timing.rest()) // it is left alone for so long
		g.once("late")
		if c := g.conditions("late"); !strings.Contains(c, "CoreReachable=True") {
			return c
		}
		return ""
	})
	g.sync("early")
	if !g.gone("early") {
		t.Errorf("%s", g.conditions("early"))
	}
	if got := g.args("late"); len(got) < len(args)-2 {
		t.Errorf("%v", got)
	}
}

func (g *rig) keysOf(name string) []string { return g.get(name).Finalizers }

// One object that cannot be read as its kind, as an API server without our rules would let through, says so itself and harms no other (S15).
func TestAMalformedObjectHarmsNoOther(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	installKind(t, cluster, func(crd *apiextensionsv1.CustomResourceDefinition) {
		anything := true
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}
	})
	g := newRig(t, cluster)
	g.storage("bad", "{signingCertificateValidity: 1hgarbage}")
	g.storage("worse", "{replicas: many, prefix: 7}")
	g.storage("short", "{signingCertificateValidity: 1h, servingCertificateValidity: 2h}")
	g.storage("good", "{}")
	for _, name := range []string{"bad", "worse", "short", "good"} {
		g.sync(name)
	}
	g.expect("good", v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	for name, part := range map[string]string{"bad": "it cannot be read as an EtcdStorage", "worse": "it cannot be read as an EtcdStorage"} {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(StorageKind())
		if err := g.admin.Get(t.Context(), types.NamespacedName{Name: name}, o); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(o.Object["status"]); !strings.Contains(text, part) || !strings.Contains(text, "InvalidSpec") {
			t.Errorf("%s: %s", name, text)
		}
	}
	g.expect("short", "Ready", metav1.ConditionFalse, "InvalidSpec", "spec.servingCertificateValidity 2h0m0s: must be at least 10m, and not longer than spec.signingCertificateValidity")
	// Which core it is bound to outlives a time in which it cannot be read.
	bound := g.get("good").Status.Core
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(StorageKind())
	o.SetName("good")
	if err := g.admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":"many"}}`))); err != nil {
		t.Fatal(err)
	}
	g.sync("good")
	if err := g.admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))); err != nil {
		t.Fatal(err)
	}
	if is := g.get("good").Status.Core; bound == nil || is == nil || *is != *bound {
		t.Errorf("bound to %+v, was %+v", is, bound)
	}
	g.expect("good", "Ready", metav1.ConditionFalse, "InvalidSpec", "it cannot be read as an EtcdStorage")
}

// The operator writes to no ConfigMap and Secret that nobody granted it, least of all to those of other tenants in its own namespace (S17).
func TestNoConfusedDeputy(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	installKind(t, cluster, nil)
	g := newRig(t, cluster)
	ns := g.tenant()
	g.storage("victim", toTenant(ns, ""))
	g.sync("victim")
	before := g.state("victim", ns)
	other := g.newNamespace("tenant-")
	g.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "precious", Namespace: other}})
	const thief = "y-thief" // behind the victim in the alphabet, too, which decides if both were made in the same second
	g.storage(thief, fmt.Sprintf("{clientCertSecret: [{name: victim-server-cert, namespace: %s}, {name: precious, namespace: %s}, {name: client, namespace: %s}]}", g.namespace, other, ns))
	g.sync(thief)
	for _, part := range []string{
		"Secret " + g.namespace + "/victim-server-cert: this is the operator's own namespace",
		"Secret " + other + "/precious: the operator may not get it; run: kubectl -n " + other,
		"Secret " + ns + "/client: EtcdStorage victim is older and names it as well",
	} {
		if !strings.Contains(g.conditions(thief), part) {
			t.Errorf("%q is not in\n%s", part, g.conditions(thief))
		}
	}
	if data := g.secret(other, "precious").Data; len(data) > 0 {
		t.Errorf("%v", data)
	}
	after := slices.DeleteFunc(strings.Split(g.state("victim", ns), "\n"), func(l string) bool { return strings.Contains(l, thief) })
	was := strings.Split(before, "\n")
	if !slices.Equal(after[:len(after)-1], was[:len(was)-1]) { // the last line is the core's revision
		t.Errorf("%v\n%v", was, after)
	}
}

// However many tenants there are and however much is to be done for them, a core that does not respond is asked once in a while and not by
// each, so that certificates are renewed in time. Other credentials are tried at once.
func TestACoreThatIsAwayIsAskedOnce(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Shared(t)
	installKind(t, cluster, nil)
	g := newRig(t, cluster)
	ns, names := g.tenant(), []string{"tired-a", "tired-b", "tired-c"}
	g.storage(names[0], toTenant(ns, ""))
	for _, name := range names[1:] {
		g.storage(name, "{}")
	}
	for _, name := range names {
		g.sync(name)
	}
	g.etcd.Kill()
	g.clock.Step(61 * 24 * time.Hour) // certificates are due
	before := g.r.Core.asked
	for _, name := range names {
		g.sync(name)
		g.expect(name, v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "CoreUnreachable", "does not respond within")
		g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	}
	if n := g.r.Core.asked - before; n != 1 {
		t.Errorf("the core was asked %d times for %d tenants", n, len(names))
	}
	pair := g.authority.Issue(t, testkit.Leaf{CommonName: "storage-proxies"})
	g.setSecret("etcd-coreserving-cert", map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key})
	g.once(names[0])
	if n := g.r.Core.asked - before; n != 2 {
		t.Errorf("with other credentials it was asked %d times", n)
	}
	g.etcd.Restart(t)
	g.once(names[0])
	g.expect(names[0], v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "CoreUnreachable", "")
	testkit.Eventually(t, "the core to answer", func() string {
		g.clock.Step(g.r.Timing.rest())
		g.once(names[0])
		if c := g.conditions(names[0]); !strings.Contains(c, "CoreReachable=True") {
			return c
		}
		return ""
	})
	before = g.r.Core.asked
	for _, name := range names {
		g.sync(name)
		g.expect(name, v1alpha1.ConditionCoreReachable, metav1.ConditionTrue, "Reachable", "")
	}
	if n := g.r.Core.asked - before; n < len(names) {
		t.Errorf("the core that answers was asked %d times", n)
	}
}
