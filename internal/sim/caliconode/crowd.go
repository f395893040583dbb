// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/assumed"
)

const (
	// opsPerTransaction is below etcd's limit of 128.
	opsPerTransaction = 100
	// firstSequence is the sequence number of a block's first write: libcalico-go takes the time in nanoseconds.
	firstSequence = 1_767_225_600_000_000_000
)

// Crowd is many machines, each with as many pods as fit into half a block, written without calico-node's detours: what stands in etcd in the
// end is of the same form and size.
type Crowd struct {
	// Machines is how many there are, PodsEach how many pods each has (0 to 64).
	Machines, PodsEach int
	// Prefix begins the machines' names, "node" if it is empty.
	Prefix string
}

// Machine is the name of a machine, which is also that of its Kubernetes Node.
func (c Crowd) Machine(i int) string { return fmt.Sprintf("%s-%05d", cmp.Or(c.Prefix, "node"), i) }

// Fill writes the crowd and a ClusterInformation that says ready into an etcd. An error names the first machine that could not be written.
func (c Crowd) Fill(ctx context.Context, client *clientv3.Client) error {
	const resources = assumed.CalicoResources
	ready := `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"datastoreReady":true}}`
	if _, err := client.Put(ctx, resources+"clusterinformations/default", ready); err != nil {
		return fmt.Errorf("writing ClusterInformation: %w", err)
	}
	var pending []clientv3.Op
	for i := range c.Machines {
		ops, err := c.machine(i, resources)
		if err != nil {
			return fmt.Errorf("machine %s: %w", c.Machine(i), err)
		}
		for pending = append(pending, ops...); len(pending) >= opsPerTransaction || i == c.Machines-1 && len(pending) > 0; {
			n := min(len(pending), opsPerTransaction)
			if _, err := client.Txn(ctx).Then(pending[:n]...).Commit(); err != nil {
				return fmt.Errorf("writing machine %s: %w", c.Machine(i), err)
			}
			pending = pending[n:]
		}
	}
	return nil
}

// machine is what stands in etcd of one machine.
func (c Crowd) machine(i int, resources string) ([]clientv3.Op, error) {
	name := c.Machine(i)
	cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 10), byte(i >> 2), byte(i%4) * 64}), 26)
	network := cnet.MustParseCIDR(cidr.String())
	affinity, err := model.KeyToDefaultPath(model.BlockAffinityKey{Host: name, CIDR: network, AffinityType: model.IPAMAffinityTypeHost})
	if err != nil {
		return nil, err
	}
	block, err := model.KeyToDefaultPath(model.BlockKey{CIDR: network})
	if err != nil {
		return nil, err
	}
	ops := []clientv3.Op{
		clientv3.OpPut(resources+"nodes/"+name, fmt.Sprintf(`{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"uid":"11111111-2222-3333-4444-555555555555",`+
			`"creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"projectcalico.org/kube-labels":"{\"kubernetes.io/arch\":\"amd64\",\"kubernetes.io/os\":\"linux\"}"}},`+
			`"spec":{"bgp":{"ipv4Address":"172.30.0.1/24","ipv4IPIPTunnelAddr":"10.0.0.1"},"orchRefs":[{"nodeName":%q,"orchestrator":"k8s"}]},"status":{}}`, name, name)),
		clientv3.OpPut(affinity, `{"state":"confirmed","deleted":false}`),
		clientv3.OpPut(block, c.Block(i, cidr)),
	}
	address := cidr.Addr()
	for p := range c.PodsEach {
		pod := c.Pod(i, p)
		wep := strings.ReplaceAll(name+"/k8s/"+pod.Name+"/eth0", "-", "--")
		wep = strings.ReplaceAll(wep, "/", "-")
		ops = append(ops,
			clientv3.OpPut(assumed.CalicoHandles+HandleID(pod), fmt.Sprintf(`{"block":{%q:1},"deleted":false}`, cidr.String())),
			clientv3.OpPut(resources+"workloadendpoints/default/"+wep, c.endpoint(wep, pod, address)))
		address = address.Next()
	}
	return ops, nil
}

// Pod is a pod of a machine, with what is written of it.
func (c Crowd) Pod(machine, i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-pod-%d", c.Machine(machine), i), UID: types.UID(fmt.Sprintf("%s/%d", c.Machine(machine), i))},
		Spec: corev1.PodSpec{
			NodeName: c.Machine(machine), ServiceAccountName: "default", Containers: []corev1.Container{{Name: "app", Image: "app:1"}},
		},
	}
}

// endpoint is a pod's workload endpoint, in the form in which etcd holds it.
func (c Crowd) endpoint(name string, pod *corev1.Pod, address netip.Addr) string {
	return fmt.Sprintf(`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"namespace":"default",`+
		`"uid":"11111111-2222-3333-4444-555555555555","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"projectcalico.org/namespace":"default",`+
		`"projectcalico.org/orchestrator":"k8s","projectcalico.org/serviceaccount":"default"}},"spec":{"orchestrator":"k8s","node":%q,`+
		`"containerID":%q,"pod":%q,"endpoint":"eth0","serviceAccountName":"default","ipNetworks":["%s/32"],"profiles":["kns.default",`+
		`"ksa.default.default"],"interfaceName":%q,"mac":%q}}`, name, pod.Spec.NodeName, ContainerID(pod), pod.Name, address,
		conversion.NewConverter().VethNameForWorkload(pod.Namespace, pod.Name), macOf(pod))
}

// Block is the IPAM block of a machine, in the form in which etcd holds it.
func (c Crowd) Block(machine int, cidr netip.Prefix) string {
	var allocations, free, attributes, sequences []string
	for i := range 64 {
		if i >= c.PodsEach {
			allocations, free = append(allocations, "null"), append(free, strconv.Itoa(i))
			continue
		}
		pod := c.Pod(machine, i)
		allocations = append(allocations, strconv.Itoa(i))
		sequences = append(sequences, fmt.Sprintf(`"%d":%d`, i, firstSequence+i))
		attributes = append(attributes, fmt.Sprintf(`{"handle_id":%q,"secondary":{"namespace":"default","node":%q,"pod":%q,`+
			`"timestamp":"2026-01-01 00:00:00.123456789 +0000 UTC"}}`, HandleID(pod), pod.Spec.NodeName, pod.Name))
	}
	return fmt.Sprintf(`{"cidr":%q,"affinity":"host:%s","allocations":[%s],"unallocated":[%s],"attributes":[%s],"sequenceNumber":%d,`+
		`"sequenceNumberForAllocation":{%s},"deleted":false}`,
		cidr.String(), c.Machine(machine), strings.Join(allocations, ","), strings.Join(free, ","), strings.Join(attributes, ","), firstSequence+c.PodsEach,
		strings.Join(sequences, ","))
}
