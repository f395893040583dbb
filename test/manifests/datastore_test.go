// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// TestShippedRightsSufficeForTheKubernetesDatastore removes, as the account and with the rights of dist/, what a machine has left of every
// kind, and finds that nothing is left and that a write of any other kind is refused.
func TestShippedRightsSufficeForTheKubernetesDatastore(t *testing.T) { //nolint:paralleltest // libcalico-go adds its types to the scheme that all clients share
	const host = "leaves-everything"
	server, api := objects.Connect(t), controlplane.Shared(t)
	for _, u := range files(t)["dist/calico-node-sync-kubernetes.yaml"] {
		switch u.GetKind() {
		case "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding":
			if err := server.Apply(t.Context(), u); err != nil {
				t.Fatalf("applying %s %s: %v", u.GetKind(), u.GetName(), err)
			}
		}
	}
	api.InstallCalicoCRDs(t)
	orphan := leaveEverything(t, api, host)
	config := rest.CopyConfig(api.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":calico-node-sync",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	store := must.Get(calico.OpenKubernetes(config)).Or(t)
	testkit.Eventually(t, "the roles to be in force", func() string {
		if err := store.Ping(t.Context()); err != nil {
			return err.Error()
		}
		return ""
	})

	must.Do(t, sweep(t.Context(), store, host, orphan))
	snapshot := must.Get(store.Snapshot(t.Context())).Or(t)
	implied := slices.ContainsFunc(snapshot.Nodes, func(n calico.Node) bool { return n.Name == host })
	if implied || slices.Contains(snapshot.ResourceHosts, host) {
		t.Errorf("something of the machine is left: %+v", snapshot)
	}
	object := calico.Object{
		Key:   "/apis/crd.projectcalico.org/v1/bgppeers/made",
		Value: `{"kind":"BGPPeer","metadata":{"name":"made"},"spec":{"node":"x","peerIP":"192.0.2.1"}}`,
	}
	if err := store.Restore(t.Context(), object); !apierrors.IsForbidden(err) {
		t.Errorf("creating a resource as the controller: %v, want it to be forbidden", err)
	}
}

// sweep removes all that a host has left, and one handle.
func sweep(ctx context.Context, store *calico.KubernetesAPI, name, orphan string) error {
	hosts, err := store.Hosts(ctx, 0, []string{name})
	if err != nil {
		return err
	}
	host, guard := hosts[0], calico.Guard{Host: name}
	if len(host.Blocks) != 1 || len(host.Affinities) != 1 || len(host.Resources) != 5 {
		return fmt.Errorf("the machine has left %+v, want a block, an affinity and five resources", host)
	}
	for _, r := range host.Resources {
		if err := store.DeleteResource(ctx, guard, string(r.Kind), r.Name, r.Revision); err != nil {
			return err
		}
	}
	block := host.Blocks[0]
	for _, a := range block.Allocations {
		one := []calico.Assignment{{Address: a.Address, Handle: a.Handle, Sequence: a.Sequence}}
		if err := store.ReleaseAddresses(ctx, guard, block.CIDR, one); err != nil {
			return err
		}
	}
	if err := store.DeleteAffinity(ctx, guard, block.CIDR, host.Affinities[0].Revision, true); err != nil {
		return err
	}
	swept, err := store.Sweep(ctx, 0)
	if err != nil {
		return err
	}
	swept.OrphanedHandles = slices.DeleteFunc(swept.OrphanedHandles, func(h calico.Handle) bool { return h.ID != orphan })
	if len(swept.OrphanedHandles) != 1 {
		return fmt.Errorf("handle %s is not found to be an orphan", orphan)
	}
	return store.DeleteHandles(ctx, swept.OrphanedHandles)
}

// leaveEverything has a machine join, take addresses and leave, with resources of every kind and a handle of no address, which it returns.
func leaveEverything(t *testing.T, api *controlplane.Cluster, host string) (orphan string) {
	t.Helper()
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.Kubeconfig, config.Spec.K8sClientQPS = apiconfig.Kubernetes, api.Kubeconfig, 1000
	datastore, err := caliconode.Connect(*config)
	must.Do(t, err)
	t.Cleanup(func() { _ = datastore.Close() })
	must.Do(t, datastore.Initialize(t.Context(), "10.244.0.0/16"))
	_, err = api.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host}}, metav1.CreateOptions{})
	must.Do(t, err)
	agent, err := datastore.Start(t.Context(), caliconode.Host{Name: host, KubernetesNode: host, Address: netip.MustParseAddr("172.30.0.1"), IPIP: true})
	must.Do(t, err)
	orphan = must.Get(agent.LeaveOrphanedHandle(t.Context())).Or(t)

	client, period := datastore.Client(), uint32(10)
	endpoint, peer, status := apiv3.NewHostEndpoint(), apiv3.NewBGPPeer(), apiv3.NewCalicoNodeStatus()
	endpoint.Name, endpoint.Spec = "of-it", apiv3.HostEndpointSpec{Node: host, InterfaceName: "*"}
	peer.Name, peer.Spec = "of-it", apiv3.BGPPeerSpec{Node: host, PeerIP: "192.0.2.1", ASNumber: 64512}
	status.Name = "of-it"
	status.Spec = apiv3.CalicoNodeStatusSpec{Node: host, Classes: []apiv3.NodeStatusClassType{apiv3.NodeStatusClassTypeBGP}, UpdatePeriodSeconds: &period}
	felix, bgp := apiv3.NewFelixConfiguration(), apiv3.NewBGPConfiguration()
	felix.Name, felix.Spec.LogSeverityScreen = "node."+host, "Debug"
	bgp.Name, bgp.Spec.LogSeverityScreen = "node."+host, "Debug"
	must.Get(client.HostEndpoints().Create(t.Context(), endpoint, options.SetOptions{})).Or(t)
	must.Get(client.BGPPeers().Create(t.Context(), peer, options.SetOptions{})).Or(t)
	must.Get(client.CalicoNodeStatus().Create(t.Context(), status, options.SetOptions{})).Or(t)
	must.Get(client.FelixConfigurations().Create(t.Context(), felix, options.SetOptions{})).Or(t)
	must.Get(client.BGPConfigurations().Create(t.Context(), bgp, options.SetOptions{})).Or(t)
	must.Do(t, api.Client.CoreV1().Nodes().Delete(t.Context(), host, metav1.DeleteOptions{}))
	return orphan
}
