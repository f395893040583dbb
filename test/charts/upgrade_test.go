// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// previousChart is the version of the chart before this one, as users had it: testdata/previous/README.md.
const previousChart = "testdata/previous/mooring"

// thisChart is the version of the chart that is upgraded to: the folder, or a release's package that the variable names (make release-check).
func thisChart() string { return cmp.Or(os.Getenv("MOORING_CHART"), chart) }

// A release is one of the three that have all four components between them.
type release struct {
	name, namespace string
	// values are the user's, which both versions of the chart take; set is what is set in addition with the upgrade, which the previous version lacks.
	values string
	set    []string
	// kept is a value that brings an object which Helm keeps, and without the one that takes it away.
	kept, without string
	// data is what is not Helm's: what the programs write, and what users make for them.
	data string
}

func releases() []release {
	const monitored = "metrics: {serviceMonitor: {enabled: true}, prometheusRule: {enabled: true}}"
	return []release{{
		name: "mooring", namespace: namespace,
		values: `
calicoNodeSync: {enabled: true, datastore: kubernetes, networkPolicy: {enabled: true}, journal: {mode: folder}, ` + monitored + `}
calicoRouteReflectorOperator: {enabled: true, networkPolicy: {enabled: true}, ` + monitored + `}`,
		set: []string{
			"--set", "dashboards.enabled=true", "--set", "calicoRouteReflectorOperator.datastore=etcdv3", "--set", "calicoRouteReflectorOperator.etcd.configMap=calico-config",
		},
		kept: "calicoNodeSync.journal.mode=folder", without: "calicoNodeSync.journal.mode=none",
		data: `
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: calico-node-sync.nodes.mooring.dev, namespace: mooring-system}, spec: {holderIdentity: a}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: calico-route-reflector-operator.bgp.mooring.dev, namespace: mooring-system}, spec: {holderIdentity: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: calico-node-sync-state, namespace: mooring-system}, data: {state: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: calico-node-sync-journal-1, namespace: mooring-system, labels: {nodes.mooring.dev/journal: "1"}}, data: {entry: "1"}}
---
{apiVersion: bgp.mooring.dev/v1alpha1, kind: RouteReflectorTopology, metadata: {name: main}, spec: {}}`,
	}, {
		name: "mooring-cloud", namespace: cloudNamespace,
		values: "digitaloceanCloudControllerManager: {enabled: true, clusterID: production, admission: {policies: {enabled: true}, " +
			"server: {enabled: true, certificates: {certManager: true}}}, " + monitored + "}",
		set: []string{"--set", "digitaloceanCloudControllerManager.admission.server.enabled=false", "--set", "dashboards.enabled=true"},
		data: `
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: cloud-controller-manager, namespace: kube-system}, spec: {holderIdentity: a}}
---
{apiVersion: v1, kind: Secret, metadata: {name: digitalocean, namespace: kube-system}, stringData: {access-token: secret}}`,
	}, {
		name: "mooring-etcd", namespace: etcdNamespace,
		values: `
imagePullSecrets: [{name: registry}]
etcdStorageOperator: {enabled: true, core: {urls: ["https://etcd.etcd-core.svc:2379"]}, ` + monitored + `}`,
		set: []string{"--set", "dashboards.enabled=true", "--set", "etcdStorageOperator.networkPolicy.enabled=true"},
		data: `
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: etcd-storage-operator.etcd.mooring.dev, namespace: kube-apiserver-storage}, spec: {holderIdentity: a}}
---
{apiVersion: v1, kind: Secret, metadata: {name: team-a-signers, namespace: kube-apiserver-storage}, stringData: {client-1.key: secret}}
---
{apiVersion: etcd.mooring.dev/v1alpha1, kind: EtcdStorage, metadata: {name: team-a}, spec: {}}`,
	}}
}

// TestUpgradeAndGoBack has Helm take the releases of all four components from the previous version of the chart to this one, back, and here
// again, against a real API server: there are the objects of the one version or of the other and nothing of both, what is in both is never
// made again, what programs and users have written is not touched, and what was upgraded is what a new installation makes. Then the releases
// go, and the kinds stay with what is in them.
func TestUpgradeAndGoBack(t *testing.T) {
	t.Parallel()
	tool(t, "helm")
	cluster := controlplane.New(t)
	server := objects.ConnectTo(t, cluster)
	serveForeignKinds(t, server)
	for _, r := range releases() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			switch r.namespace {
			case namespace:
				makePrivileged(t, server, r.namespace)
			case etcdNamespace:
				makeNamespace(t, server, r.namespace)
			}
			u := &upgrade{T: t, release: r, server: server, kubeconfig: cluster.Kubeconfig}
			u.run()
		})
	}
}

// serveForeignKinds makes the kinds of the Prometheus Operator and of cert-manager, with the fields that we may use.
func serveForeignKinds(t *testing.T, server *objects.Server) {
	t.Helper()
	for _, path := range []string{"testdata/monitoring-crds.yaml", "../objects/testdata/cert-manager-crds.yaml", "../objects/testdata/volume-snapshot-crds.yaml"} {
		content := must.Get(os.ReadFile(path)).Or(t)
		for _, u := range objects.Parse(t, path, content) {
			must.Do(t, server.Apply(t.Context(), u))
			awaitKind(t, server, u.GetName())
		}
	}
}

// upgrade is the way of one release.
type upgrade struct {
	*testing.T
	release
	server     *objects.Server
	kubeconfig string
	kinds      map[string]*unstructured.Unstructured // an object of each kind of both versions
}

func (u *upgrade) run() {
	u.Helper()
	u.kinds = map[string]*unstructured.Unstructured{}
	old, now := u.rendered(previousChart), u.rendered(thisChart(), u.set...)
	u.helm(u.values, "install", u.name, previousChart)
	first := u.expect("the previous version", old, nil)
	data := u.write()
	u.refusesOldDefaults(first)

	step := append([]string{"upgrade", u.name, thisChart(), "--reset-then-reuse-values"}, u.set...)
	u.helm("", step...)
	second := u.expect("this version", now, first)
	u.untouched("the upgrade", data)

	u.helm("", "rollback", u.name, "1")
	back := u.expect("the previous version again", old, second)
	if diff := gocmp.Diff(plain(first), plain(back)); diff != "" {
		u.Errorf("after the rollback (- before the upgrade, + after the rollback):\n%s", diff)
	}
	u.untouched("the rollback", data)

	u.helm("", step...)
	again := u.expect("this version again", now, back)
	if diff := gocmp.Diff(plain(second), plain(again)); diff != "" {
		u.Errorf("the second upgrade (- first, + second):\n%s", diff)
	}

	u.helm("", "uninstall", u.name, "--wait=hookOnly", "--cascade=background")
	left := u.live()
	for key, had := range again {
		kept := had.GetKind() == "CustomResourceDefinition" || had.GetKind() == "PersistentVolumeClaim"
		if now := left[key]; kept && (now == nil || now.GetUID() != had.GetUID() || now.GetDeletionTimestamp() != nil) {
			u.Errorf("helm uninstall takes %s away", key)
		} else if !kept && now != nil {
			u.Errorf("helm uninstall leaves %s", key)
		}
	}
	u.untouched("the uninstallation", data)
	u.helm(u.values, append([]string{"install", u.name, thisChart()}, u.set...)...)
	fresh := u.expect("a new installation", now, left)
	if diff := gocmp.Diff(plain(fresh), plain(again)); diff != "" {
		u.Errorf("an upgraded release is not what a new one is (- new, + upgraded):\n%s", diff)
	}
	u.untouched("a new installation", data)
	if u.kept != "" {
		u.backTo(u.kept, now, fresh)
	}
}

// refusesOldDefaults sees that Helm's --reuse-values, which takes the previous version's defaults for this one's, is refused in one sentence
// where some are missing, before anything is changed.
func (u *upgrade) refusesOldDefaults(first map[string]*unstructured.Unstructured) {
	u.Helper()
	if !strings.Contains(u.values, "calicoRouteReflectorOperator") || !previousLacksValues(u.T) {
		return
	}
	const want = "these are the values of an earlier version of the chart: use --reset-then-reuse-values instead of --reuse-values"
	if out, err := u.try("", "upgrade", u.name, thisChart(), "--reuse-values"); err == nil || !strings.Contains(out, want) {
		u.Errorf("helm upgrade --reuse-values: %v\n%s", err, out)
	}
	if diff := gocmp.Diff(plain(first), plain(u.live())); diff != "" {
		u.Errorf("a refused upgrade has changed (- before, + after):\n%s", diff)
	}
}

// previousLacksValues reports whether the previous version has no defaults for some values that this one cannot do without.
// TestReflectorsRefusals has each.
func previousLacksValues(t *testing.T) bool {
	t.Helper()
	content := must.Get(os.ReadFile(previousChart + "/values.yaml")).Or(t)
	var values struct {
		Operator map[string]any `json:"calicoRouteReflectorOperator"`
	}
	must.Do(t, yaml.Unmarshal(content, &values))
	return slices.ContainsFunc([]string{"etcd", "ports", "podDisruptionBudget"}, func(key string) bool { return values.Operator[key] == nil })
}

// backTo goes both ways back after an upgrade that left something behind that Helm keeps, by a value: helm rollback, which
// Helm 4.1 refuses (helm's issues 8228 and 32244), and an upgrade. Each takes it in again.
func (u *upgrade) backTo(value string, rendered, before map[string]*unstructured.Unstructured) {
	u.Helper()
	for what, way := range map[string][]string{
		"the rollback to what was before": {"rollback", u.name},
		"the upgrade to what was before":  {"upgrade", u.name, thisChart(), "--reset-then-reuse-values", "--set", value},
	} {
		u.helm("", "upgrade", u.name, thisChart(), "--reset-then-reuse-values", "--set", u.without)
		u.helm("", way...)
		if diff := gocmp.Diff(plain(before), plain(u.expect(what, rendered, before))); diff != "" {
			u.Errorf("%s (- before, + after):\n%s", what, diff)
		}
	}
}

// rendered is what a version makes of the values.
func (u *upgrade) rendered(path string, set ...string) map[string]*unstructured.Unstructured {
	u.Helper()
	out, complaint, err := helm(u.T, u.values, append([]string{"template", u.name, path, "--namespace", u.namespace}, set...)...)
	if err != nil {
		u.Fatalf("helm template %s: %v\n%s", path, err, complaint)
	}
	all := byName(objects.Parse(u.T, path, []byte(out)))
	for _, one := range all {
		u.kinds[one.GroupVersionKind().String()] = one
	}
	return all
}

// helm runs Helm against the cluster, with values if there are some.
func (u *upgrade) helm(values string, args ...string) {
	u.Helper()
	if out, err := u.try(values, args...); err != nil {
		u.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (u *upgrade) try(values string, args ...string) (string, error) {
	u.Helper()
	if values != "" {
		args = append(args, "--values", "-")
	}
	out, complaint, err := runWith(u.T, values, "helm", append(args, "--namespace", u.namespace, "--kubeconfig", u.kubeconfig)...)
	return out + complaint, err
}

// live are the objects of the release that are there, found by their label, not by what should be there.
func (u *upgrade) live() map[string]*unstructured.Unstructured {
	u.Helper()
	out := map[string]*unstructured.Unstructured{}
	for _, example := range u.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(example.GroupVersionKind())
		must.Do(u, u.server.Client.List(u.Context(), list, client.MatchingLabels{"app.kubernetes.io/instance": u.name}))
		for i := range list.Items {
			maps.Copy(out, byName([]*unstructured.Unstructured{&list.Items[i]}))
		}
	}
	return out
}

// expect sees that the release's objects are those that a version renders, with all that it renders, and that those which were there before
// are the same ones. It returns them.
func (u *upgrade) expect(what string, want, before map[string]*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	u.Helper()
	have := u.live()
	if diff := gocmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have))); diff != "" {
		u.Errorf("%s (- rendered, + there):\n%s", what, diff)
	}
	for key, one := range have {
		if want[key] != nil {
			if missing := lacks("", want[key].Object, one.Object); missing != "" {
				u.Errorf("%s: %s%s", what, key, missing)
			}
		}
		if was := before[key]; was != nil && was.GetUID() != one.GetUID() {
			u.Errorf("%s: %s was made again", what, key)
		}
	}
	return have
}

// lacks says where an object has not what was rendered; the API server's defaults are more.
func lacks(path string, want, have any) string {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		for key, inner := range want {
			if empty(inner) {
				continue // null and {} say nothing
			}
			if !ok || have[key] == nil {
				return fmt.Sprintf("%s.%s is missing", path, key)
			}
			if missing := lacks(path+"."+key, inner, have[key]); missing != "" {
				return missing
			}
		}
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return fmt.Sprintf("%s is %v and not %v", path, have, want)
		}
		for i, inner := range want {
			if missing := lacks(fmt.Sprintf("%s[%d]", path, i), inner, have[i]); missing != "" {
				return missing
			}
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(have) {
			return fmt.Sprintf("%s is %v and not %v", path, have, want)
		}
	}
	return ""
}

func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}

// plain is what users see of objects: without what each object has of its own, and what no controller writes here.
func plain(all map[string]*unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for key, one := range all {
		one = one.DeepCopy()
		for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(one.Object, "metadata", field)
		}
		unstructured.RemoveNestedField(one.Object, "status")
		unstructured.RemoveNestedField(one.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(one.Object, "spec", "clusterIPs")
		out[key] = one.Object
	}
	return out
}

// write makes the data and returns it as the API server has it.
func (u *upgrade) write() []*unstructured.Unstructured {
	u.Helper()
	all := objects.Parse(u.T, u.name, []byte(strings.TrimSpace(u.data)))
	for _, one := range all {
		testkit.Eventually(u, "writing "+one.GetKind()+" "+one.GetName(), func() string {
			if err := u.server.Client.Create(u.Context(), one); err != nil {
				return err.Error() // a kind that is new is not served at once
			}
			return ""
		})
	}
	return all
}

// untouched sees that nobody has written the data.
func (u *upgrade) untouched(by string, data []*unstructured.Unstructured) {
	u.Helper()
	for _, one := range data {
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(one.GroupVersionKind())
		if err := u.server.Client.Get(u.Context(), client.ObjectKeyFromObject(one), now); err != nil {
			u.Errorf("after %s: %s %s: %v", by, one.GetKind(), one.GetName(), err)
		} else if now.GetUID() != one.GetUID() || now.GetResourceVersion() != one.GetResourceVersion() {
			u.Errorf("%s has changed %s %s", by, one.GetKind(), one.GetName())
		}
	}
}
