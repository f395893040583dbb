// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// podsPerNode is how many pods each machine of a big datastore has.
const podsPerNode = 30

// fill writes a datastore of so many machines, in the form that calico-node and the CNI plugin write, as far as it is read.
func fill(tb testing.TB, client *clientv3.Client, nodes int) {
	tb.Helper()
	var ops []clientv3.Op
	flush := func(least int) {
		for len(ops) > 0 && len(ops) >= least {
			n := min(len(ops), 100)
			if _, err := client.Txn(context.Background()).Then(ops[:n]...).Commit(); err != nil {
				tb.Fatal(err)
			}
			ops = ops[n:]
		}
	}
	ops = append(ops, clientv3.OpPut(clusterInformationKey, `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"datastoreReady":true}}`))
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i)
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 10), byte(i >> 2), byte(i%4) * 64}), 26)
		ops = append(ops, clientv3.OpPut(nodeKey(name), fmt.Sprintf(`{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"uid":"11111111-2222-3333-4444-555555555555",`+
			`"creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"projectcalico.org/kube-labels":"{\"kubernetes.io/arch\":\"amd64\",\"kubernetes.io/os\":\"linux\"}"}},`+
			`"spec":{"bgp":{"ipv4Address":"172.30.0.1/24","ipv4IPIPTunnelAddr":"10.0.0.1"},"orchRefs":[{"nodeName":%q,"orchestrator":"k8s"}]},"status":{}}`, name, name)))
		affinity, err := affinityKey(name, cidr)
		if err != nil {
			tb.Fatal(err)
		}
		block, err := blockKey(cidr)
		if err != nil {
			tb.Fatal(err)
		}
		ops = append(ops, clientv3.OpPut(affinity, `{"state":"confirmed","deleted":false}`), clientv3.OpPut(block, blockOf30(name, cidr)))
		for p := range podsPerNode {
			endpoint := strings.ReplaceAll(name, "-", "--") + fmt.Sprintf("-k8s-pod--%d-eth0", p)
			ops = append(ops, clientv3.OpPut(endpointKey("default", endpoint), fmt.Sprintf(`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3",`+
				`"metadata":{"name":%q,"namespace":"default"},"spec":{"orchestrator":"k8s","node":%q,"pod":"pod-%d","endpoint":"eth0"}}`, endpoint, name, p)))
		}
		flush(100)
	}
	flush(1)
}

func blockOf30(host string, cidr netip.Prefix) string {
	var allocations, free, attributes, sequences []string
	for i := range 64 {
		if i >= podsPerNode {
			allocations, free = append(allocations, "null"), append(free, strconv.Itoa(i))
			continue
		}
		allocations = append(allocations, strconv.Itoa(i))
		sequences = append(sequences, fmt.Sprintf(`"%d":1`, i))
		attributes = append(attributes, fmt.Sprintf(`{"handle_id":"k8s-pod-network.%064d","secondary":{"namespace":"default","node":%q,"pod":"pod-%d","timestamp":"2026-01-01 00:00:00 UTC"}}`, i, host, i))
	}
	return fmt.Sprintf(`{"cidr":%q,"affinity":"host:%s","allocations":[%s],"unallocated":[%s],"attributes":[%s],"sequenceNumber":2,"sequenceNumberForAllocation":{%s},"deleted":false}`,
		cidr.String(), host, strings.Join(allocations, ","), strings.Join(free, ","), strings.Join(attributes, ","), strings.Join(sequences, ","))
}

// cpu is what this process has used, user and system.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkResync reads a big datastore from a real etcd: a snapshot, which every round takes, and the leftovers of five machines, which a
// round takes that cleans. MOORING_BENCH_NODES sets its size (1,000 without it), with 30 pods each.
func BenchmarkResync(b *testing.B) {
	nodes := 1000
	if n, err := strconv.Atoi(os.Getenv("MOORING_BENCH_NODES")); err == nil {
		nodes = n
	}
	etcd := testkit.NewEtcd(b)
	fill(b, etcd.Client, nodes)
	store, err := OpenEtcd(EtcdConfig{Endpoints: []string{etcd.Endpoint}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	measure := func(name string, work func() error) {
		b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) {
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				if err := work(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpu(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
	var revision int64
	measure("snapshot", func() error {
		s, err := store.Snapshot(b.Context())
		revision = s.Revision
		return err
	})
	measure("leftovers", func() error {
		hosts, err := store.Hosts(b.Context(), revision, []string{"node-00001", "node-00002", "node-00003", "node-00004", "node-00005"})
		if err == nil && (len(hosts) != 5 || len(hosts[4].Endpoints) != podsPerNode || len(hosts[4].Blocks) != 1) {
			return fmt.Errorf("read %d hosts, the last with %d endpoints", len(hosts), len(hosts[4].Endpoints))
		}
		return err
	})
}

// Twice the datastore may cost about twice as much to read, and no more.
func TestReadingGrowsWithTheDatastore(t *testing.T) {
	allocated := func(nodes int) int64 {
		etcd := testkit.NewEtcd(t)
		fill(t, etcd.Client, nodes)
		store, err := OpenEtcd(EtcdConfig{Endpoints: []string{etcd.Endpoint}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		return testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := store.Snapshot(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := store.Hosts(t.Context(), s.Revision, []string{"node-00001"}); err != nil {
					t.Fatal(err)
				}
			}
		}).AllocedBytesPerOp()
	}
	small, large := allocated(100), allocated(200)
	if float64(large) > 2.5*float64(small) {
		t.Errorf("reading 200 machines allocates %d bytes, 100 machines %d: more than twice and a half as much", large, small)
	}
}
