// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// clusterID is the ID of an etcd's cluster in hexadecimal.
func (g *stage) clusterID(c *clientv3.Client) string {
	g.t.Helper()
	answer := must.Get(c.Get(g.t.Context(), "any", clientv3.WithCountOnly())).Or(g.t)
	return strconv.FormatUint(answer.Header.ClusterId, 16)
}

// stranger starts another core that admits the operator's certificate, with keys.
func (g *stage) stranger(keys ...string) *testkit.Etcd {
	g.t.Helper()
	pair := g.authority.Issue(g.t, testkit.Leaf{CommonName: "storage-proxies"})
	// The ID of a cluster is made of its peers' URLs: each test's stranger has a loopback address of its own, since tests share EtcdStorages.
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(g.t.Name()))
	n := hash.Sum32()
	peer := fmt.Sprintf("http://127.%d.%d.%d:0", 1+n%250, n>>8&0xff, 1+n>>16%250)
	etcd := testkit.NewTLSEtcd(g.t, testkit.NewTLSFolder(g.t, g.authority.Issue(g.t, testkit.Leaf{}), g.authority.PEM), pair.Client(g.t, g.authority), "--listen-peer", peer)
	if g.clusterID(etcd.Client) == g.clusterID(g.root) {
		g.t.Fatal("both cores have the same cluster ID")
	}
	for _, key := range keys {
		must.Get(etcd.Client.Put(g.t.Context(), key, "of the stranger")).Or(g.t)
	}
	return etcd
}

// at starts an operator that was given the URL of this core.
func (g *stage) at(etcd *testkit.Etcd) {
	g.t.Helper()
	g.r = g.newOperator()
	g.r.Settings.CoreURLs = []string{etcd.Endpoint}
}

// The operator is given the URL of a stranger's etcd, which has keys under the same prefix: it writes nothing there, proxies keep their
// core, and nothing is deleted at either, not even by policy Delete, until the right URL is back.
func TestAStrangersCoreIsNotTouched(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	ns, name := g.tenant(), "bound"
	g.storage(name, toTenant(ns, ", deletionPolicy: Delete"))
	g.sync(name)
	g.put("/" + name + "/x")
	mine := g.clusterID(g.root)
	if core := g.get(name).Status.Core; core == nil || core.ClusterID != mine {
		t.Fatalf("bound to %+v, want %s", core, mine)
	}
	stranger := g.stranger("/"+name+"/x", "/"+name+"/y")
	before, revision, args := stranger.Dump(t), stranger.Revision(t), g.args(name)
	untouched := func(when string) {
		t.Helper()
		if after := stranger.Dump(t); !maps.Equal(before, after) || stranger.Revision(t) != revision {
			t.Errorf("%s: the stranger's core has %v, was %v", when, after, before)
		}
		if keys := g.keys("/" + name + "/"); len(keys) != 1 || g.gone(name) || !slices.Equal(g.args(name), args) {
			t.Errorf("%s: keys %v, gone %v, flags %v", when, keys, g.gone(name), g.args(name))
		}
	}
	g.at(stranger)
	g.sync(name)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "ForeignCore", "bound to the one with cluster ID "+mine)
	g.expect(name, "Ready", metav1.ConditionFalse, "ForeignCore", v1alpha1.AcceptCoreAnnotation+"="+g.clusterID(stranger.Client))
	untouched("given the wrong URL")
	must.Do(t, g.admin.Delete(t.Context(), g.get(name)))
	for range 3 {
		g.once(name)
	}
	g.expect(name, "Ready", metav1.ConditionFalse, "Deleting", "nothing is created or deleted there")
	untouched("deleted")
	g.at(g.etcd)
	g.sync(name)
	if left := g.keys("/"); !g.gone(name) || len(left) > 0 {
		t.Errorf("gone %v, left %v", g.gone(name), left)
	}
	if after := stranger.Dump(t); !maps.Equal(before, after) {
		t.Errorf("the stranger's core has %v, was %v", after, before)
	}
}

// A person moves a tenant to another core with the annotation, and only to that one: a wrong ID accepts nothing. Keys that are there already need
// spec.adoptExistingData as ever.
func TestAnotherCoreIsAccepted(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	name := "moved"
	g.storage(name, "{}")
	g.sync(name)
	next := g.stranger("/" + name + "/x")
	here := g.clusterID(next.Client)
	g.at(next)
	annotate := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata":{"annotations":{"` + v1alpha1.AcceptCoreAnnotation + `":"` + value + `"}}}`)
		must.Do(t, g.admin.Patch(t.Context(), g.get(name), client.RawPatch(types.MergePatchType, patch)))
		g.sync(name)
	}
	for _, wrong := range []string{"", "true", g.clusterID(g.root)} {
		annotate(wrong)
		g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "ForeignCore", here)
	}
	annotate(here)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "ExistingData", "1 keys under /moved/")
	if err := g.admin.Patch(t.Context(), g.get(name), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"adoptExistingData":true}}`))); err != nil {
		t.Fatal(err)
	}
	g.sync(name)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionFalse, "NoConflict", "")
	if core := g.get(name).Status.Core; core == nil || core.ClusterID != here || !slices.ContainsFunc(g.args(name), func(a string) bool { return strings.Contains(a, next.Endpoint) }) {
		t.Errorf("bound to %+v, flags %v", core, g.args(name))
	}
	g.at(g.etcd)
	g.sync(name)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "ForeignCore", g.clusterID(g.root))
}

// Anyone who changes the image alone, or upgrades by Helm, has the kind of an earlier version, which drops status.core: tenants are served
// all the same, and the record in the core alone binds them. When the kind is updated, the status has it a resync later.
func TestAKindOfAnEarlierVersionIsServed(t *testing.T) {
	t.Parallel()
	older := definition(t)
	delete(older.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties, "core")
	g := newStage(t, cluster.Own(t, older))
	name := "older"
	g.storage(name, "{}")
	g.sync(name)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionFalse, "NoConflict", "")
	if core := g.get(name).Status.Core; core != nil || len(g.args(name)) == 0 || len(g.keys(operator.OwnersPrefix+name)) != 1 {
		t.Errorf("bound to %+v by the status, flags %v", core, g.args(name))
	}
	stranger := g.stranger("/" + name + "/x")
	g.at(stranger)
	g.sync(name)
	g.expect(name, v1alpha1.ConditionConflict, metav1.ConditionTrue, "ForeignCore", "has no record of the EtcdStorage")
	g.at(g.etcd)
	g.cluster.Redefine(t, definition(t))
	testkit.Eventually(t, "the binding in the status", func() string {
		g.clock.Step(g.r.Timing.Resync)
		g.sync(name)
		if core := g.get(name).Status.Core; core == nil || core.ClusterID != g.clusterID(g.root) {
			return fmt.Sprintf("%+v", core)
		}
		return ""
	})
}
