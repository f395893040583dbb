// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	docloud "github.com/mooring-dev/mooring/internal/docloud/app"
	"github.com/mooring-dev/mooring/internal/nodesync/app"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

func TestMain(m *testing.M) {
	if os.Getenv(asCloud) != "" {
		root, err := docloud.NewCommand()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(command.Main(root))
	}
	testkit.Main(m)
}

// TestServerAcceptsEveryObject applies every file to a real kube-apiserver in dry run, the namespace, accounts and kinds first and for real since
// the rest needs them, and creates, in dry run too, a pod from each template, which the namespace's own admission judges.
func TestServerAcceptsEveryObject(t *testing.T) {
	t.Parallel()
	server := objects.Connect(t)
	for _, crds := range []string{"../objects/testdata/cert-manager-crds.yaml", snapshotKinds} {
		content := must.Get(os.ReadFile(crds)).Or(t)
		for _, u := range objects.Parse(t, crds, content) {
			must.Do(t, server.Apply(t.Context(), u))
		}
	}
	server.DefaultAccount(t, metav1.NamespaceSystem)
	all := files(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, u := range all[name] {
			if kind := u.GetKind(); kind == "Namespace" || kind == "ServiceAccount" || kind == "CustomResourceDefinition" {
				if err := server.Apply(t.Context(), u); err != nil {
					t.Fatalf("%s: applying %s %s: %v", name, kind, u.GetName(), err)
				}
			}
		}
	}
	served(t, server, v1alpha1.GroupVersion.WithKind("RouteReflectorTopologyList"))
	served(t, server, snapshotClass)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		server.DryRun(t, name, all[name])
	}
	if heard := server.Warnings(); len(heard) > 0 {
		t.Errorf("the API server warns: %q", heard)
	}
}

// served waits until the API server has a kind of a custom resource, by its list.
func served(t *testing.T, server *objects.Server, kind schema.GroupVersionKind) {
	t.Helper()
	testkit.Eventually(t, kind.Kind+" to be served", func() string {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := server.Client.List(t.Context(), list); err != nil {
			return err.Error()
		}
		return ""
	})
}

// TestAccountMayDoItsWorkAndNoMore asks the API server's own authorizer, with the roles applied.
func TestAccountMayDoItsWorkAndNoMore(t *testing.T) {
	t.Parallel()
	server := objects.Connect(t)
	for _, file := range []string{"dist/calico-node-sync-etcdv3.yaml", "dist/calico-node-sync-kubernetes.yaml"} {
		for _, u := range files(t)[file] {
			switch u.GetKind() {
			case "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
				if err := server.Apply(t.Context(), u); err != nil {
					t.Fatalf("%s: applying %s %s: %v", file, u.GetKind(), u.GetName(), err)
				}
			}
		}
	}
	lease := app.NewCommand().Flags().Lookup("leader-election-id").DefValue
	const calico = "crd.projectcalico.org"
	may := func(allowed bool, group, resource, ns, name string, verbs ...string) {
		for _, verb := range verbs {
			attributes := authorizationv1.ResourceAttributes{Group: group, Resource: resource, Namespace: ns, Name: name, Verb: verb}
			judge(t, server.Client, attributes, allowed)
		}
	}
	read := []string{"get", "list", "watch"}
	write := []string{"create", "update", "patch", "delete", "deletecollection"}
	may(true, "", "nodes", "", "", read...)
	may(true, "", "pods", "", "", "get", "list")
	may(true, "coordination.k8s.io", "leases", "kube-node-lease", "node-1", "get")
	may(true, "", "namespaces", "", "kube-system", "get")
	may(true, "coordination.k8s.io", "leases", namespace, "", "create")
	may(true, "", "configmaps", namespace, "", "create", "list", "delete")
	may(true, "events.k8s.io", "events", namespace, "", "create", "patch")
	may(true, "", "events", namespace, "", "create", "patch")
	may(true, "apps", "deployments", namespace, "calico-node-sync", "get")
	may(true, "", "configmaps", namespace, controller.StateName, "get", "update")
	may(true, "coordination.k8s.io", "leases", namespace, lease, "get", "update")
	may(true, calico, "clusterinformations", "", "default", "get")
	may(true, calico, "blockaffinities", "", "", "get", "list", "update", "delete")
	may(true, calico, "ipamblocks", "", "", "get", "list", "update", "delete")
	may(true, calico, "ipamhandles", "", "", "get", "list", "update", "delete")
	resources := []string{"hostendpoints", "bgppeers", "caliconodestatuses", "bgpconfigurations", "felixconfigurations"}
	for _, resource := range resources {
		may(true, calico, resource, "", "", "get", "list", "delete")
	}
	may(true, "authentication.k8s.io", "tokenreviews", "", "", "create")
	// From here on the roles are known to be in force, so a no is a no and not a cache that lags.
	may(false, "", "nodes", "", "", write...)
	may(false, "", "pods", "", "", append([]string{"watch"}, write...)...)
	may(false, "", "secrets", namespace, "calico-etcd-secrets", append(read, write...)...)
	may(false, "", "secrets", "kube-system", "", read...)
	may(false, "", "configmaps", namespace, "", "get", "watch", "update", "patch", "deletecollection")
	may(false, "", "configmaps", "kube-system", "", append(read, write...)...)
	may(false, "", "configmaps", namespace, controller.StateName, "patch")
	for _, group := range []string{"", "events.k8s.io"} {
		may(false, group, "events", "default", "", write...)
		may(false, group, "events", namespace, "", append(read, "update", "delete", "deletecollection")...)
	}
	may(false, "apps", "deployments", namespace, "calico-node-sync", append([]string{"list", "watch"}, write...)...)
	may(false, "apps", "deployments", namespace, "another", "get")
	may(false, "", "namespaces", "", "default", "get")
	may(false, "coordination.k8s.io", "leases", namespace, "another", "get", "update", "patch", "delete")
	may(false, "coordination.k8s.io", "leases", "kube-node-lease", "", "create", "update")
	may(false, "coordination.k8s.io", "leases", "default", "", "get")
	may(false, "rbac.authorization.k8s.io", "clusterroles", "", "", append(read, write...)...)
	may(false, calico, "clusterinformations", "", "default", write...)
	may(false, calico, "ippools", "", "", write...)
	may(false, calico, "ipamblocks", "", "", "create", "deletecollection")
	for _, resource := range resources {
		may(false, calico, resource, "", "", "watch", "create", "update", "patch", "deletecollection")
	}
}

// judge waits until the answer is the expected one when that is a yes, and asks once when it is a no.
func judge(t *testing.T, c client.Client, attributes authorizationv1.ResourceAttributes, allowed bool) {
	t.Helper()
	ask := func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + namespace + ":calico-node-sync",
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &attributes,
		}}
		err := c.Create(t.Context(), review)
		return review.Status.Allowed, err
	}
	if allowed {
		testkit.Eventually(t, "the right to "+attributes.Verb+" "+attributes.Resource, func() string {
			if yes, err := ask(); err != nil {
				return err.Error()
			} else if !yes {
				return "refused: " + attributes.String()
			}
			return ""
		})
		return
	}
	if yes, err := ask(); err != nil || yes {
		t.Errorf("calico-node-sync may %s %s %s in %q (%v)", attributes.Verb, attributes.Resource, attributes.Name, attributes.Namespace, err)
	}
}
