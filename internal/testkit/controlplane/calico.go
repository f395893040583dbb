// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"slices"
	"sync"
	"testing"

	calicocrds "github.com/projectcalico/calico/libcalico-go/config"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// InstallCalicoCRDs puts the CRDs of the pinned Calico into the cluster and waits until they are served. It may be called more than once.
func (c *Cluster) InstallCalicoCRDs(tb testing.TB) {
	tb.Helper()
	c.InstallCRDs(tb, CalicoCRDs(tb)...)
}

// CalicoCRDs returns the CRDs of the pinned Calico. They are shared: do not change them.
func CalicoCRDs(tb testing.TB) []*apiextensionsv1.CustomResourceDefinition {
	tb.Helper()
	all, err := readCalicoCRDs()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

var readCalicoCRDs = sync.OnceValues(calicocrds.AllCRDs) //nolint:gochecknoglobals // they are large, and every test wants them

// InstallCRDs puts definitions into the cluster and waits until their kinds are served. Those that it has put there before cost nothing.
func (c *Cluster) InstallCRDs(tb testing.TB, all ...*apiextensionsv1.CustomResourceDefinition) {
	tb.Helper()
	c.crds.Lock()
	defer c.crds.Unlock()
	all = slices.DeleteFunc(slices.Clone(all), func(crd *apiextensionsv1.CustomResourceDefinition) bool { return c.crds.served[crd.Name] })
	if len(all) == 0 {
		return
	}
	client, err := apiextensions.NewForConfig(c.Config)
	if err != nil {
		tb.Fatal(err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range all {
		if _, err := crds.Create(tb.Context(), crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			tb.Fatal(err)
		}
	}
	testkit.Eventually(tb, "the kinds to be served", func() string {
		list, err := crds.List(tb.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, crd := range list.Items {
			if !slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}) {
				return crd.Name + " is not established"
			}
		}
		return ""
	})
	if c.crds.served == nil {
		c.crds.served = map[string]bool{}
	}
	for _, crd := range all {
		c.crds.served[crd.Name] = true
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
