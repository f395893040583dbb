// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	calicocrds "github.com/projectcalico/calico/libcalico-go/config"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// OwnKind returns the CRD of one of our own kinds in config/crd/bases, by its plural name.
func OwnKind(tb testing.TB, plural string) *apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(testkit.Root(tb), "config", "crd", "bases", "*_"+plural+".yaml"))
	if err != nil || len(files) != 1 {
		tb.Fatalf("the files of %s are %q: %v", plural, files, err)
	}
	return KindIn(tb, files[0])
}

// KindIn returns the CRD of a file.
func KindIn(tb testing.TB, path string) *apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	text := must.Get(os.ReadFile(path)).Or(tb)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must.Do(tb, yaml.UnmarshalStrict(text, crd))
	return crd
}

// CalicoKindsV3 returns Calico's CRDs of these plural names as kinds of projectcalico.org/v3, in which Calico 3.33 can serve them without its own API
// server.
func CalicoKindsV3(tb testing.TB, plurals ...string) []*apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, crd := range CalicoCRDs(tb) {
		if plural := crd.Spec.Names.Plural; slices.Contains(plurals, plural) {
			// Annotations stay behind: the group is approved by the Kubernetes project only under its other name.
			native := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + ".projectcalico.org"}, Spec: *crd.Spec.DeepCopy()}
			native.Spec.Group, native.Spec.Versions[0].Name = "projectcalico.org", "v3"
			out = append(out, native)
		}
	}
	return out
}

// InstallCalicoCRDs serves the kinds of the pinned Calico.
func (c *Cluster) InstallCalicoCRDs(tb testing.TB) {
	tb.Helper()
	c.InstallCRDs(tb, CalicoCRDs(tb)...)
}

// CalicoCRDs returns the CRDs of the pinned Calico. They are shared: do not change them.
func CalicoCRDs(tb testing.TB) []*apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	all := must.Get(readCalicoCRDs()).Or(tb)
	return all
}

var readCalicoCRDs = sync.OnceValues(calicocrds.AllCRDs) //nolint:gochecknoglobals // they are large, and every test wants them

// InstallCRDs creates the CRDs that the cluster does not have yet, and returns when each of their kinds is served and can be discovered: until then a client
// that maps kinds to resources fails with "no matches for kind". It may be called more than once.
func (c *Cluster) InstallCRDs(tb testing.TB, crds ...*apiextensionsv1.CustomResourceDefinition) {
	tb.Helper()
	c.served.Lock()
	defer c.served.Unlock()
	client := apiextensions.NewForConfigOrDie(c.Config).ApiextensionsV1().CustomResourceDefinitions()
	missing, kinds := map[schema.GroupVersionResource]bool{}, []schema.GroupVersionResource{}
	for _, crd := range crds {
		if c.served.names[crd.Name] {
			continue
		}
		if _, err := client.Create(tb.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			tb.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			if version.Served {
				kind := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version.Name, Resource: crd.Spec.Names.Plural}
				kinds = append(kinds, kind)
				missing[kind] = true
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	testkit.Eventually(tb, "the kinds to be served", func() string {
		_, lists, err := c.Client.Discovery().ServerGroupsAndResources()
		if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
			return err.Error()
		}
		for _, list := range lists {
			for _, resource := range list.APIResources {
				group, version, _ := strings.Cut(list.GroupVersion, "/")
				delete(missing, schema.GroupVersionResource{Group: group, Version: version, Resource: resource.Name})
			}
		}
		if len(missing) > 0 {
			return fmt.Sprint(missing, " are not")
		}
		return ""
	})
	c.ready(tb, kinds)
	if c.served.names == nil {
		c.served.names = map[string]bool{}
	}
	for _, crd := range crds {
		c.served.names[crd.Name] = true
	}
}

// ready waits until the API server lists each of some kinds: it makes a kind's storage at the first request, and answers 429
// until that has read etcd, which would be counted where a test counts requests.
func (c *Cluster) ready(tb testing.TB, kinds []schema.GroupVersionResource) {
	tb.Helper()
	client := dynamic.NewForConfigOrDie(c.Config)
	for _, kind := range kinds {
		testkit.Eventually(tb, "a list of "+kind.String(), func() string {
			if _, err := client.Resource(kind).List(tb.Context(), metav1.ListOptions{Limit: 1}); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

// AllowPods makes the service account that pods of a namespace run as, which is kube-controller-manager's work where there is one.
func (c *Cluster) AllowPods(tb testing.TB, namespace, account string) {
	tb.Helper()
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	_, err := c.Client.CoreV1().ServiceAccounts(namespace).Create(tb.Context(), object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		tb.Fatal(err)
	}
}
