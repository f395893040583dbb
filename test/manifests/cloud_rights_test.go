// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/upstream"
	"github.com/mooring-dev/mooring/test/objects"
)

const (
	// asCloud makes the test binary run the cloud controller manager itself: what runs is then always what is tested.
	asCloud = "MOORING_TEST_AS_DIGITALOCEAN_CCM"
	// release is the file that takes the place of the upstream project's.
	release = "releases/digitalocean-cloud-controller-manager/latest.yml"
	// simulated is the token of these tests.
	simulated = "dop_v1_of_the_manifests_tests"
)

// TestShippedRightsAreThoseThatAreUsed runs the real program with exactly the rights of the release file through all that it does, at an account
// whose token has exactly the documented scopes: nothing is forbidden on either side, and no right and no documented call is without use.
func TestShippedRightsAreThoseThatAreUsed(t *testing.T) {
	t.Parallel()
	c := controlplane.New(t)
	install := files(t)[release]
	server := objects.ConnectTo(t, c)
	for _, u := range install {
		switch u.GetKind() {
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			must.Do(t, server.Apply(t.Context(), u))
		}
	}
	documented := documentedCalls(t)
	cloud := simulate(t, scopesOf(documented))
	deployment := objects.OfKind[appsv1.Deployment](t, install, "Deployment")[0]
	env := append(ofUsers(), "DO_ACCESS_TOKEN="+simulated, "REGION=nyc1")
	args := append(slices.Clone(deployment.Spec.Template.Spec.Containers[0].Args), "--allow-certificate-domains=own.example")
	r := startCloud(t, c, cloud, env, args)
	r.healthy()
	r.life()
	r.scrape()

	for _, role := range objects.OfKind[rbacv1.ClusterRole](t, install, "ClusterRole") {
		if role.Name == "system:cloud-controller-manager" {
			for _, rule := range role.Rules {
				for _, right := range r.api.unused("", rule) {
					t.Errorf("%s: ClusterRole %s: nothing uses the right to %s", release, role.Name, right)
				}
			}
		}
	}
	for _, role := range objects.OfKind[rbacv1.Role](t, install, "Role") {
		for _, rule := range role.Rules {
			for _, right := range r.api.unused(role.Namespace, rule) {
				t.Errorf("%s: Role %s: nothing uses the right to %s", release, role.Name, right)
			}
		}
	}
	compareCalls(t, cloud, documented)
}

// simulate returns a DigitalOcean with one account, named a, and one token.
func simulate(t *testing.T, scopes []string) *sim.Simulator {
	t.Helper()
	return sim.New(sim.Options{Seed: 1, Accounts: []sim.AccountOptions{{Name: "a", Tokens: []sim.Token{{Value: simulated, Scopes: scopes}}}}})
}

// scrape reads the metrics as Prometheus does: with a service account that is bound to the shipped role, and in vain with another.
func (r *cloudRun) scrape() {
	r.t.Helper()
	ctx, client := r.t.Context(), r.cluster.Client
	const role = "mooring-digitalocean-cloud-controller-manager-metrics-reader"
	for _, name := range []string{"reader", "stranger"} {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must.Do(r.t, err)
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: metav1.NamespaceSystem}},
	}, metav1.CreateOptions{})
	must.Do(r.t, err)
	reader := r.token("reader")
	testkit.Eventually(r.t, "the metrics", func() string {
		code, body := r.get("/metrics", reader)
		for _, want := range []string{`mooring_digitalocean_trust{state="trusted"} 1`, "mooring_build_info{", "service_controller_loadbalancer_sync_total"} {
			if code != http.StatusOK || !strings.Contains(body, want) {
				return fmt.Sprintf("%d, without %s", code, want)
			}
		}
		if strings.Contains(body, simulated) {
			r.t.Error("the token is in the metrics")
		}
		return ""
	})
	if code, _ := r.get("/metrics", r.token("stranger")); code != http.StatusForbidden {
		r.t.Errorf("/metrics to an account without the right: %d", code)
	}
	if code, _ := r.get("/metrics", ""); code == http.StatusOK {
		r.t.Error("/metrics to nobody in particular: 200")
	}
}

// TestPredecessorsManifestRunsWithAnotherImage runs the program with exactly the command, variables and rights of the upstream project's
// release file: an operator changes only the image. The file sets only the token, so that the metadata service gives the region and
// nothing names the cluster; and what its users set in addition are variables.
func TestPredecessorsManifestRunsWithAnotherImage(t *testing.T) {
	t.Parallel()
	for name, variables := range map[string][]string{"as it is": nil, "with variables": ofUsers()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			predecessorsManifest(t, variables)
		})
	}
}

func predecessorsManifest(t *testing.T, variables []string) {
	t.Helper()
	c := controlplane.New(t)
	server := objects.ConnectTo(t, c)
	all := upstream.CloudControllerManager()
	for _, u := range all {
		must.Do(t, server.Apply(t.Context(), u))
	}
	pod := deploymentIn(t, all).Spec.Template.Spec
	container := pod.Containers[0]
	if container.Command[0] != "/bin/"+cloudName || len(container.Args) != 0 || len(container.Env) != 1 || pod.ServiceAccountName != cloudAccount {
		t.Fatalf("the Deployment starts %+v as %s", container, pod.ServiceAccountName)
	}
	cloud := simulate(t, nil)
	machine := must.Get(cloud.Account("a").CreateDroplet(sim.DropletSpec{Name: "control"})).Or(t)
	metadata := httptest.NewServer(cloud.Metadata(func(*http.Request) (string, string, bool) { return "a", strconv.Itoa(machine.ID), true }))
	t.Cleanup(metadata.Close)
	env := append([]string{container.Env[0].Name + "=" + simulated, "DO_METADATA_URL=" + metadata.URL}, variables...)
	r := startCloud(t, c, cloud, env, container.Command[1:])
	r.predecessors, r.unnamed = true, variables == nil
	r.healthy()
	r.life()
}
