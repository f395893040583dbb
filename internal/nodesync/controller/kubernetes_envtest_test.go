// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// openKubernetesDatastore makes Calico's kubernetes datastore, in the stage's own API server, the stage's datastore for machines too.
func (s *stage) openKubernetesDatastore() *calico.KubernetesAPI {
	s.t.Helper()
	s.api.Serve(s.t, controlplane.CalicoCRDs(s.t)...)
	// Machines of other tests, whose Nodes are gone, are cleaned up first, however many there are.
	s.config.MinOverlapPercent, s.config.MaxUnwitnessed = 0, 100
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.Kubeconfig = apiconfig.Kubernetes, s.api.Kubeconfig(s.t)
	var err error
	if s.calico, err = caliconode.Connect(*config); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.calico.Close() })
	must.Do(s.t, s.calico.Initialize(s.t.Context(), "10.244.0.0/16"))
	store, err := calico.OpenKubernetes(s.guarded())
	if err != nil {
		s.t.Fatal(err)
	}
	return store
}

// guarded is how the program connects: a round writes only what is declared.
func (s *stage) guarded() *rest.Config {
	config := rest.CopyConfig(s.api.Config)
	config.Wrap(outputs.Guard)
	return config
}

// custom is every custom resource of IPAM, by kind and name, with its resourceVersion.
func (s *stage) custom() map[string]string {
	s.t.Helper()
	client := must.Get(dynamic.NewForConfig(s.api.Config)).Or(s.t)
	out := map[string]string{}
	for _, resource := range []string{"blockaffinities", "ipamblocks", "ipamhandles"} {
		gvr := schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: resource}
		list := must.Get(client.Resource(gvr).List(s.t.Context(), metav1.ListOptions{})).Or(s.t)
		for _, item := range list.Items {
			out[resource+" "+item.GetName()] = item.GetResourceVersion()
		}
	}
	return out
}
