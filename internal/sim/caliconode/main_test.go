// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
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
	datastore := must.Get(caliconode.Connect(*cfg)).Or(t)
	t.Cleanup(func() {
		if err := datastore.Close(); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, datastore.Initialize(t.Context(), "10.20.0.0/16", more...))
	return datastore, etcd
}

// host is a worker of a cluster whose Kubernetes Node has the same name.
func host(name, address string) caliconode.Host {
	return caliconode.Host{Name: name, KubernetesNode: name, Address: netip.MustParseAddr(address), IPIP: true}
}

func start(t *testing.T, datastore *caliconode.Datastore, h caliconode.Host) *caliconode.Agent {
	t.Helper()
	agent := must.Get(datastore.Start(t.Context(), h)).Or(t)
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
	addresses, err := agent.PodNetwork().Add(t.Context(), p)
	if err != nil || len(addresses) != 1 {
		t.Fatal(addresses, err)
	}
	return addresses[0]
}

// judge finds, as libcalico-go's own clients read the datastore, what does not fit together in it: the second judge alongside
// the golden file.
type judge struct {
	*caliconode.Datastore
	t         *testing.T
	found     []string                  // in words
	owners    map[string]string         // block -> host of its affinity
	allocated map[string]string         // address -> handle
	held      map[string]map[string]int // handle -> block -> number of addresses
}

func (j *judge) list(options model.ListInterface) []*model.KVPair {
	j.t.Helper()
	list := must.Get(j.Backend().List(j.t.Context(), options, "")).Or(j.t)
	return list.KVPairs
}

func (j *judge) readBlocks() {
	j.owners, j.allocated, j.held = map[string]string{}, map[string]string{}, map[string]map[string]int{}
	for _, kv := range j.list(model.BlockListOptions{}) {
		block := kv.Value.(*model.AllocationBlock)
		j.owners[block.CIDR.String()] = block.Host()
		for ordinal, attribute := range block.Allocations {
			if attribute == nil {
				continue
			}
			handle := *block.Attributes[*attribute].AttrPrimary
			j.allocated[block.OrdinalToIP(ordinal).String()] = handle
			if j.held[handle] == nil {
				j.held[handle] = map[string]int{}
			}
			j.held[handle][block.CIDR.String()]++
			if node := block.Attributes[*attribute].AttrSecondary["node"]; node != block.Host() {
				j.found = append(j.found, fmt.Sprintf("address of node %s in a block of %s", node, block.Host()))
			}
		}
	}
}

func (j *judge) judgeHandles() {
	for _, kv := range j.list(model.IPAMHandleListOptions{}) {
		id := kv.Key.(model.IPAMHandleKey).HandleID
		if !maps.Equal(j.held[id], kv.Value.(*model.IPAMHandle).Block) {
			j.found = append(j.found, "handle without its addresses")
		}
		ips := must.Get(j.Client().IPAM().IPsByHandle(j.t.Context(), id)).Or(j.t)
		for _, ip := range ips {
			if j.allocated[ip.String()] != id {
				j.found = append(j.found, "handle with an address of another")
			}
		}
		delete(j.held, id)
	}
	for range j.held {
		j.found = append(j.found, "addresses without their handle")
	}
}

func (j *judge) judgeAffinities() {
	for _, kv := range j.list(model.BlockAffinityListOptions{}) {
		key, affinity := kv.Key.(model.BlockAffinityKey), kv.Value.(*model.BlockAffinity)
		if j.owners[key.CIDR.String()] != key.Host {
			j.found = append(j.found, fmt.Sprintf("%s affinity of %s without its block", affinity.State, key.Host))
		} else if affinity.State != model.StateConfirmed {
			j.found = append(j.found, fmt.Sprintf("block with %s affinity", affinity.State))
		}
	}
}

func (j *judge) judgeEndpoints() {
	for _, wep := range endpoints(j.t, j.Datastore) {
		for _, network := range wep.Spec.IPNetworks {
			address := netip.MustParsePrefix(network).Addr().String()
			if j.allocated[address] != "k8s-pod-network."+wep.Spec.ContainerID {
				j.found = append(j.found, "endpoint with an address that is not its own")
			}
		}
	}
}

// wantInconsistencies fails the test unless the judge finds exactly these, in any order: the kubernetes datastore lists affinities by random names.
func wantInconsistencies(t *testing.T, d *caliconode.Datastore, want ...string) {
	t.Helper()
	j := &judge{Datastore: d, t: t}
	j.readBlocks()
	j.judgeHandles()
	j.judgeAffinities()
	j.judgeEndpoints()
	slices.Sort(j.found)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(j.found, want) {
		t.Errorf("inconsistencies in the datastore: %q, want %q", j.found, want)
	}
}
