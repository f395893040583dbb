// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/rights"
	"github.com/mooring-dev/mooring/internal/routereflector/app"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// metricsReader is the role that is bound to nobody.
const metricsReader = "mooring-calico-route-reflector-operator-metrics-reader"

// flat lists the rights of rules, one for each verb, sorted.
func flat(namespace string, rules []rbacv1.PolicyRule) []string {
	var out []string
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						out = append(out, rightTo{group, resource, verb, name, namespace}.String())
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestReflectorsShippedRightsAreThoseThatAreUsed runs the real program with exactly the shipped rights through the whole life of a topology,
// once in each group in which Calico's kinds may be served: nothing is forbidden, and no right is without use.
func TestReflectorsShippedRightsAreThoseThatAreUsed(t *testing.T) {
	t.Parallel()
	if rights.CalicoGroups != calicoNative().Group+", "+calicoCRDs().Group {
		t.Errorf("the groups are %s, which this test does not run it in", rights.CalicoGroups)
	}
	c := controlplane.New(t)
	admin := installReflectors(t, c)
	makeReflectorNodes(t, admin, 5)
	c.InstallCalicoCRDs(t)
	openDatastore(t, admin, calicoCRDs())
	r := startReflectors(t, c, admin, calicoCRDs())
	r.wholeLife()
	r.scrapeReflectors()
	r.Stop()
	r.compare()
	if code := r.ExitCode(); code != 0 {
		t.Errorf("it ended with exit code %d", code)
	}
	installNative(t, c)
	openDatastore(t, admin, calicoNative())
	native := startReflectors(t, c, admin, calicoNative())
	native.wholeLife()
	native.Stop()
	native.compareCalico()
}

// installNative serves Calico's kinds as CRDs of projectcalico.org/v3 as well.
func installNative(t *testing.T, c *controlplane.Cluster) {
	t.Helper()
	c.InstallCRDs(t, controlplane.CalicoKindsV3(t, "bgppeers", "bgpconfigurations", "bgpfilters", "caliconodestatuses", "clusterinformations", "felixconfigurations", "ippools")...)
}

// wholeLife is all that a topology goes through: it is enabled, one of its BGPPeers is changed by somebody and put right, a reflector is
// replaced, and the topology is deleted, which brings the mesh back.
func (r *reflectorsRun) wholeLife() {
	r.t.Helper()
	ctx := r.t.Context()
	topology := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	v1alpha1.SetDefaults(topology)
	must.Do(r.t, r.admin.Create(ctx, topology))
	first := awaitReady(r.t, r.admin, func(names []string) bool { return len(names) == 3 })

	peer := &unstructured.Unstructured{}
	peer.SetGroupVersionKind(r.group.WithKind(apiv3.KindBGPPeer))
	peer.SetName("main-clients")
	// By Calico's own API server, behind which the shipped policy does not see who it is.
	somebody := acting(r.t, r.cluster, calicoAPIServer)
	must.Do(r.t, somebody.Patch(ctx, peer, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodeSelector":"somebody == 'else'"}}`))))
	testkit.Eventually(r.t, "the BGPPeer to be put right", func() string {
		must.Do(r.t, r.admin.Get(ctx, client.ObjectKeyFromObject(peer), peer))
		if is, _, _ := unstructured.NestedString(peer.Object, "spec", "nodeSelector"); is != "!has("+v1alpha1.ReflectorLabel+")" {
			return "the selector is " + is
		}
		return ""
	})
	r.patch(`{"spec":{"reflectors":{"excluded":{"matchLabels":{"` + corev1.LabelHostname + `":"` + first[0] + `"}}}}}`)
	awaitReady(r.t, r.admin, func(names []string) bool { return len(names) == 3 && !slices.Contains(names, first[0]) })

	must.Do(r.t, r.admin.Delete(ctx, topology))
	testkit.Eventually(r.t, "the topology to be gone", func() string {
		if is, err := topologyMain(r.t, r.admin); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("%v, status %+v", err, is.Status)
		}
		return ""
	})
	if left := reflectorsOf(r.t, r.admin); len(left) > 0 {
		r.t.Errorf("these are reflectors still: %v", left)
	}
}

// scrapeReflectors reads the metrics as Prometheus does: with a service account that is bound to the shipped role, and in vain with another.
// Those that alerts name alongside the component's own are there.
func (r *reflectorsRun) scrapeReflectors() {
	r.t.Helper()
	ctx, client := r.t.Context(), r.cluster.Client
	for _, name := range []string{"reader", "stranger"} {
		_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must.Do(r.t, err)
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: metricsReader}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: metricsReader},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: namespace}},
	}, metav1.CreateOptions{})
	must.Do(r.t, err)
	reader := r.token("reader")
	lease := app.NewCommand().Flags().Lookup("leader-election-id").DefValue
	testkit.Eventually(r.t, "the metrics", func() string {
		code, body := r.metrics(reader)
		for _, want := range []string{
			`leader_election_master_status{name="` + lease + `"} 1`, `mooring_build_info{commit=`, `component="` + reflectorsName + `"`,
			`mooring_routereflector_writes_total{kind="Promote",outcome="done"} 4`, `mooring_routereflector_step_duration_seconds_count{kind="Demote"} 4`,
		} {
			if code != http.StatusOK || !strings.Contains(body, want) {
				return fmt.Sprintf("%d, without %s", code, want)
			}
		}
		// Nothing is told of a topology that is gone.
		if strings.Contains(body, `topology="main"`) {
			return "there still are metrics of the topology"
		}
		testkit.CheckMetrics(r.t, reflectorsName, body)
		return ""
	})
	if code, _ := r.metrics(r.token("stranger")); code != http.StatusForbidden {
		r.t.Errorf("/metrics to an account without the right: %d", code)
	}
	if code, _ := r.metrics(""); code == http.StatusOK {
		r.t.Error("/metrics to nobody in particular: 200")
	}
}

// compare finds no request that was forbidden and no right without use, but for the group of Calico's that is not served.
func (r *reflectorsRun) compare() {
	r.t.Helper()
	r.compareCalico()
	for _, role := range objects.OfKind[rbacv1.ClusterRole](r.t, files(r.t)[reflectorsFile], "ClusterRole") {
		for _, rule := range role.Rules {
			if role.Name != metricsReader && !slices.Contains(rule.APIGroups, r.group.Group) {
				r.expectUsed("", rule)
			}
		}
	}
	for _, role := range objects.OfKind[rbacv1.Role](r.t, files(r.t)[reflectorsFile], "Role") {
		for _, rule := range role.Rules {
			r.expectUsed(role.Namespace, rule)
		}
	}
}

// compareCalico is compare for Calico's kinds alone, in the group that is served.
func (r *reflectorsRun) compareCalico() {
	r.t.Helper()
	if refused := r.api.refusals(); len(refused) > 0 {
		r.t.Errorf("the API server has forbidden %q", refused)
	}
	for _, role := range objects.OfKind[rbacv1.ClusterRole](r.t, files(r.t)[reflectorsFile], "ClusterRole") {
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, r.group.Group) {
				rule.APIGroups = []string{r.group.Group}
				r.expectUsed("", rule)
			}
		}
	}
}

func (r *reflectorsRun) expectUsed(ns string, rule rbacv1.PolicyRule) {
	r.t.Helper()
	for _, right := range r.api.unused(ns, rule) {
		r.t.Errorf("%s: nothing uses the right to %s", reflectorsFile, right)
	}
}
