// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

func TestMain(m *testing.M) {
	logrus.SetLevel(logrus.PanicLevel) // libcalico-go's log belongs to the process, and this process to the tests
	testkit.Main(m)
}

// connect returns an initialized datastore in an etcd of its own.
func connect(t *testing.T, more ...caliconode.Pool) (*caliconode.Datastore, *testkit.Etcd) {
	t.Helper()
	etcd := testkit.NewEtcd(t)
	cfg := apiconfig.NewCalicoAPIConfig()
	cfg.Spec.DatastoreType = apiconfig.EtcdV3
	cfg.Spec.EtcdEndpoints = etcd.Endpoint
	datastore, err := caliconode.Connect(*cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := datastore.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := datastore.Initialize(t.Context(), "10.20.0.0/16", more...); err != nil {
		t.Fatal(err)
	}
	return datastore, etcd
}

// host is a worker of a cluster whose Kubernetes Node has the same name.
func host(name, address string) caliconode.Host {
	return caliconode.Host{Name: name, KubernetesNode: name, Address: netip.MustParseAddr(address), IPIP: true}
}

func start(t *testing.T, datastore *caliconode.Datastore, h caliconode.Host) *caliconode.Agent {
	t.Helper()
	agent, err := datastore.Start(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return agent
}

// pod is a pod as the API server would have it.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, GenerateName: "cart-", UID: types.UID("uid of " + name),
			Labels: map[string]string{"app": "cart"},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName: "till",
			Containers: []corev1.Container{{
				Name: "app", Image: "cart:1",
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			}},
		},
	}
}

func add(t *testing.T, agent *caliconode.Agent, p *corev1.Pod) netip.Addr {
	t.Helper()
	address, err := agent.PodNetwork().Add(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// inconsistencies lists, in words, everything that does not fit together in the datastore, as libcalico-go's own clients
// read it: the second judge beside the golden file.
func inconsistencies(ctx context.Context, d *caliconode.Datastore) ([]string, error) {
	var found []string
	blocks, err := d.Backend().List(ctx, model.BlockListOptions{}, "")
	if err != nil {
		return nil, err
	}
	allocated := map[string]string{}        // address -> handle
	perBlock := map[string]map[string]int{} // handle -> block -> addresses
	owners := map[string]string{}           // block -> affinity
	for _, kv := range blocks.KVPairs {
		block := kv.Value.(*model.AllocationBlock)
		owners[block.CIDR.String()] = block.Host()
		for ordinal, attribute := range block.Allocations {
			if attribute == nil {
				continue
			}
			address, handle := block.OrdinalToIP(ordinal).String(), *block.Attributes[*attribute].AttrPrimary
			allocated[address] = handle
			if perBlock[handle] == nil {
				perBlock[handle] = map[string]int{}
			}
			perBlock[handle][block.CIDR.String()]++
			if node := block.Attributes[*attribute].AttrSecondary["node"]; node != block.Host() {
				found = append(found, fmt.Sprintf("address of node %s in a block of %s", node, block.Host()))
			}
		}
	}
	handles, err := d.Backend().List(ctx, model.IPAMHandleListOptions{}, "")
	if err != nil {
		return nil, err
	}
	for _, kv := range handles.KVPairs {
		id := kv.Key.(model.IPAMHandleKey).HandleID
		if got, want := fmt.Sprint(perBlock[id]), fmt.Sprint(kv.Value.(*model.IPAMHandle).Block); got != want {
			found = append(found, "handle without its addresses")
		}
		ips, err := d.Client().IPAM().IPsByHandle(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, ip := range ips {
			if allocated[ip.String()] != id {
				found = append(found, "handle with an address of another")
			}
		}
		delete(perBlock, id)
	}
	for range perBlock {
		found = append(found, "addresses without their handle")
	}
	affinities, err := d.Backend().List(ctx, model.BlockAffinityListOptions{}, "")
	if err != nil {
		return nil, err
	}
	for _, kv := range affinities.KVPairs {
		key, affinity := kv.Key.(model.BlockAffinityKey), kv.Value.(*model.BlockAffinity)
		if owners[key.CIDR.String()] != key.Host {
			found = append(found, fmt.Sprintf("%s affinity of %s without its block", affinity.State, key.Host))
		} else if affinity.State != model.StateConfirmed {
			found = append(found, fmt.Sprintf("block with %s affinity", affinity.State))
		}
	}
	endpoints, err := d.Client().WorkloadEndpoints().List(ctx, options.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, wep := range endpoints.Items {
		for _, network := range wep.Spec.IPNetworks {
			prefix := netip.MustParsePrefix(network)
			if allocated[prefix.Addr().String()] != "k8s-pod-network."+wep.Spec.ContainerID {
				found = append(found, "endpoint with an address that is not its own")
			}
		}
	}
	return found, nil
}

func wantInconsistencies(t *testing.T, d *caliconode.Datastore, want ...string) {
	t.Helper()
	got, err := inconsistencies(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("inconsistencies in the datastore: %q, want %q", got, want)
	}
}
