// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// endpoint makes a host endpoint of a host, automatic or a user's, in Calico's own way.
func (s *stage) endpoint(host, name string, automatic bool) {
	s.t.Helper()
	endpoint := apiv3.NewHostEndpoint()
	endpoint.Name, endpoint.Spec = name, apiv3.HostEndpointSpec{Node: host, InterfaceName: "*"}
	if automatic {
		endpoint.Labels = map[string]string{"projectcalico.org/created-by": "calico-kube-controllers"}
	}
	if _, err := s.calico.Client().HostEndpoints().Create(s.t.Context(), endpoint, options.SetOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { // it may be gone by then
		_, _ = s.calico.Client().HostEndpoints().Delete(context.WithoutCancel(s.t.Context()), name, options.DeleteOptions{})
	})
}

// endpoints are the names of all host endpoints, sorted.
func (s *stage) endpoints() []string {
	s.t.Helper()
	list, err := s.calico.Client().HostEndpoints().List(s.t.Context(), options.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	slices.Sort(names)
	return names
}

// In the kubernetes datastore automatic resources go with their machine, users' when they are asked for, and those of a host of which nothing
// else is known only if the deletion of its Node was watched.
func TestSweepsResourcesOfTheKubernetesDatastore(t *testing.T) {
	s := newStage(t, 0)
	store := s.openKubernetesDatastore()
	for _, machine := range []string{"1", "2", "3"} {
		s.createNode(machine)
		s.startCalicoNode(machine)
	}
	s.endpoint(s.name("1"), "a-alive", true)
	s.endpoint("metal", "b-bare-metal", false)
	s.endpoint("metal", "c-bare-metal-of-a-cluster-before", true)
	for _, machine := range []string{"8", "9"} {
		s.createNode(machine)
	}
	s.startCalicoNode("9")
	s.endpoint(s.name("8"), "d-of-nothing-else", true)
	s.endpoint(s.name("9"), "e-automatic", true)
	s.endpoint(s.name("9"), "f-users", false)
	r := s.reconciler()
	r.Datastore = store
	s.settle(r)
	all := s.endpoints()
	if len(all) != 6 {
		t.Fatalf("while all Nodes are there, the host endpoints are %q, want all six", all)
	}

	s.leave("8")
	s.leave("9")
	s.settle(r)
	if got, want := s.endpoints(), []string{"a-alive", "b-bare-metal", "c-bare-metal-of-a-cluster-before", "f-users"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	r.Config.AlsoRemove = []nodesync.ResourceKind{nodesync.KindHostEndpoint}
	s.settle(r)
	if got, want := s.endpoints(), []string{"a-alive", "b-bare-metal", "c-bare-metal-of-a-cluster-before"}; !slices.Equal(got, want) {
		t.Errorf("with users' resources asked for, left are %q, want %q", got, want)
	}
}
