// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package migration

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// With the kubernetes datastore kube-controllers removes no Nodes, and collects addresses as calico-node-sync does: both at once end as either alone.
func TestBesideKubeControllersWithTheKubernetesDatastore(t *testing.T) {
	t.Parallel()
	s := newKubernetesSite(t)
	m := workers("k", 6)
	s.join(m[:3]...)

	t.Log("kube-controllers alone")
	theirs := s.theirs("node")
	s.settle()
	s.replace(m[3], m[0])

	t.Log("both")
	ours := s.ours()
	s.replace(m[4], m[1])

	t.Log("calico-node-sync alone")
	theirs.Stop()
	s.replace(m[5], m[2])
	s.says(ours, "of k-2")
}

// newKubernetesSite is a site whose datastore is the API server. A package has one API server, so only one test has such a site.
func newKubernetesSite(t *testing.T) *site {
	t.Helper()
	api := controlplane.Shared(t)
	api.InstallCalicoCRDs(t)
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.Kubeconfig = apiconfig.Kubernetes, api.Kubeconfig
	config.Spec.K8sClientQPS = 500
	s := connect(t, *config)
	t.Cleanup(func() {
		for _, resource := range addressKinds() {
			_ = s.dynamic().Resource(resource).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
		}
	})
	s.read = s.customResources
	s.must(s.calico.Initialize(t.Context(), "10.245.0.0/16"))
	return s
}

// addressKinds are the kinds that say where addresses are.
func addressKinds() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, resource := range []string{"ipamblocks", "blockaffinities", "ipamhandles"} {
		out = append(out, schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: resource})
	}
	return out
}

// customResources are all objects that say where addresses are, by kind and name, without what the API server adds.
func (s *site) customResources() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	for _, resource := range addressKinds() {
		list, err := s.dynamic().Resource(resource).List(s.t.Context(), metav1.ListOptions{})
		s.must(err)
		for _, item := range list.Items {
			text, err := json.Marshal(item.Object["spec"])
			s.must(err)
			out[resource.Resource+"/"+item.GetName()] = string(text)
		}
	}
	return out
}

func (s *site) dynamic() dynamic.Interface {
	s.t.Helper()
	client, err := dynamic.NewForConfig(s.api.Config)
	s.must(err)
	return client
}
