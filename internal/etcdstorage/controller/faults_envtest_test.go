// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
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
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// record reads the tenant's record in the core; it returns false if there is none.
func (g *stage) record(name string, into *operator.Owner) bool {
	g.t.Helper()
	answer := must.Get(g.root.Get(g.t.Context(), operator.OwnersPrefix+name)).Or(g.t)
	if len(answer.Kvs) == 0 {
		return false
	}
	must.Do(g.t, json.Unmarshal(answer.Kvs[0].Value, into))
	return true
}

func (g *stage) leases() []clientv3.LeaseID {
	g.t.Helper()
	answer := must.Get(g.root.Leases(g.t.Context())).Or(g.t)
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
	g := newStage(t, server(t))
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

func (g *stage) patch(name, patch string) {
	g.t.Helper()
	o := &v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must.Do(g.t, g.admin.Patch(g.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// What is of somebody else and in the way is reported and left as it is; the other objects are made, and a tenant alongside it is served.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
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
	must.Do(t, g.admin.Patch(t.Context(), g.secret(ns, "client"), client.RawPatch(types.MergePatchType, patch)))
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
		must.Do(t, g.admin.Delete(t.Context(), o))
	}
	if err := g.admin.Patch(t.Context(), g.secret(ns, "client"), client.RawPatch(types.MergePatchType, []byte(`{"data":{"tls.crt":null}}`))); err != nil {
		t.Fatal(err)
	}
	g.sync(name)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionFalse, "NoConflict", "")
	g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
}

// One object that cannot be read as its kind, as an API server without our rules would let through, says so itself and harms no other (S15).
func TestAMalformedObjectHarmsNoOther(t *testing.T) {
	t.Parallel()
	crd, anything := definition(t), true
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything}
	g := newStage(t, cluster.Own(t, crd))
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
		must.Do(t, g.admin.Get(t.Context(), types.NamespacedName{Name: name}, o))
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
	must.Do(t, g.admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":3}}`))))
	if is := g.get("good").Status.Core; bound == nil || is == nil || *is != *bound {
		t.Errorf("bound to %+v, was %+v", is, bound)
	}
	g.expect("good", "Ready", metav1.ConditionFalse, "InvalidSpec", "it cannot be read as an EtcdStorage")
}

// The operator writes to no ConfigMap and Secret that nobody granted it, least of all to those of other tenants in its own namespace (S17).
func TestNoConfusedDeputy(t *testing.T) {
	t.Parallel()
	g := newStage(t, realServer(t))
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

// inVain is how long calls wait that nobody answers.
const inVain = time.Second

// patience makes the operator connect to the core again, for calls that may take so long.
func (g *stage) patience(d time.Duration) {
	c := g.r.Core
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		_ = c.client.Close()
		c.client = nil
	}
	c.Patience = d
}

// While the core is away nothing new is begun and nothing that runs is touched, and certificates are renewed in time: however many tenants there
// are, it is asked once in a while and not for each; with other credentials at once. Afterwards all goes on.
func TestTheCoreIsAwayAndComesBack(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	ns, names := g.tenant(), []string{"tired-a", "tired-b", "tired-c"}
	g.storage(names[0], toTenant(ns, ""))
	for _, name := range names[1:] {
		g.storage(name, "{}")
	}
	for _, name := range names {
		g.sync(name)
	}
	serving := func() string { return string(g.secret(g.namespace, operator.ServingName(names[0])).Data["tls.crt"]) }
	was, args := serving(), g.args(names[0])
	g.etcd.Kill()
	g.patience(inVain)
	g.clock.Step(61 * 24 * time.Hour) // two thirds of 90 days are over
	before := g.r.Core.asked
	g.storage("late", "{}")
	g.sync("late")
	g.expect("late", "Ready", metav1.ConditionFalse, "CoreUnreachable", "the core etcd")
	for _, name := range names {
		g.sync(name)
		g.expect(name, v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "CoreUnreachable", "does not respond within 1s")
		g.expect(name, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, "Issued", "")
	}
	if serving() == was || !slices.Equal(g.args(names[0]), args) {
		t.Errorf("the certificate was not renewed, or the flags are not %v but %v", args, g.args(names[0]))
	}
	must.Do(t, g.admin.Delete(t.Context(), g.get(names[0])))
	g.once(names[0])
	g.expect(names[0], "Ready", metav1.ConditionFalse, "Deleting", "the core etcd")
	if held := g.get(names[0]).Finalizers; !slices.Equal(held, []string{v1alpha1.Finalizer}) {
		t.Errorf("finalizers: %v", held)
	}
	if n := g.r.Core.asked - before; n != 1 {
		t.Errorf("the core was asked %d times for %d tenants", n, len(names)+1)
	}
	pair := g.authority.Issue(t, testkit.Leaf{CommonName: "storage-proxies"})
	g.setSecret("etcd-coreserving-cert", map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key})
	g.once(names[1])
	if n := g.r.Core.asked - before; n != 2 {
		t.Errorf("with other credentials it was asked %d times", n)
	}
	g.etcd.Restart(t)
	g.patience(0)
	g.once(names[1])
	g.expect(names[1], v1alpha1.ConditionCoreReachable, metav1.ConditionFalse, "CoreUnreachable", "")
	testkit.Eventually(t, "the core to answer", func() string {
		g.clock.Step(g.r.Timing.rest()) // it is left alone for so long
		g.once(names[1])
		if c := g.conditions(names[1]); !strings.Contains(c, "CoreReachable=True") {
			return c
		}
		return ""
	})
	before = g.r.Core.asked
	for _, name := range []string{"late", names[1], names[2]} {
		g.sync(name)
		g.expect(name, v1alpha1.ConditionCoreReachable, metav1.ConditionTrue, "Reachable", "")
	}
	if n := g.r.Core.asked - before; n < len(names) {
		t.Errorf("the core that answers was asked %d times", n)
	}
	if g.sync(names[0]); !g.gone(names[0]) || len(g.args("late")) < len(args)-2 {
		t.Errorf("%s\n%v", g.conditions(names[0]), g.args("late"))
	}
}
