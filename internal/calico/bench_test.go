// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// podsPerNode is how many pods each machine of a big datastore has.
const podsPerNode = 30

// fill writes a datastore of so many machines.
func fill(tb testing.TB, client *clientv3.Client, nodes int) {
	tb.Helper()
	must.Do(tb, (caliconode.Crowd{Machines: nodes, PodsEach: podsPerNode}).Fill(context.Background(), client))
}

// cpu is what this process has used, user and system.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var usage syscall.Rusage
	must.Do(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkResync reads a big datastore from a real etcd: a snapshot, which every round takes, the leftovers of five machines and of fifty, which
// a round takes that cleans, and a sweep, which a round takes now and then. MOORING_BENCH_NODES sets its size (1,000 without it), with 30 pods each.
func BenchmarkResync(b *testing.B) {
	nodes := 1000
	if n, err := strconv.Atoi(os.Getenv("MOORING_BENCH_NODES")); err == nil {
		nodes = n
	}
	etcd := testkit.NewEtcd(b)
	fill(b, etcd.Client, nodes)
	store := must.Get(OpenEtcd(EtcdConfig{Endpoints: []string{etcd.Endpoint}})).Or(b)
	defer func() { _ = store.Close() }()
	measure := func(name string, work func() error) {
		b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) {
			b.ReportAllocs()
			before := cpu(b)
			for b.Loop() {
				must.Do(b, work())
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
	backlog := make([]string, 50)
	for i := range backlog {
		backlog[i] = fmt.Sprintf("node-%05d", i+1)
	}
	measure("leftovers-of-50", func() error {
		hosts, err := store.Hosts(b.Context(), revision, backlog)
		if err == nil && len(hosts) != len(backlog) {
			return fmt.Errorf("read %d hosts", len(hosts))
		}
		return err
	})
	measure("sweep", func() error {
		sweep, err := store.Sweep(b.Context(), revision)
		if err == nil && (len(sweep.Hosts) != nodes || len(sweep.OrphanedHandles) != 0) {
			return fmt.Errorf("swept %d hosts and %d orphaned handles", len(sweep.Hosts), len(sweep.OrphanedHandles))
		}
		return err
	})
	measure("pod-holdings", func() error {
		found, err := store.PodHoldings(b.Context(), revision, func(string, string) bool { return true })
		if err == nil && found.Count != 2*podsPerNode*nodes {
			return fmt.Errorf("%d addresses and endpoints name a pod", found.Count)
		}
		return err
	})
	measure("ipam", func() error {
		data, err := store.IPAM(b.Context())
		if err == nil && len(data.Endpoints) != podsPerNode*nodes {
			return fmt.Errorf("read %d endpoints", len(data.Endpoints))
		}
		return err
	})
}

// Twice the datastore may cost about twice as much to read, and no more.
func TestReadingGrowsWithTheDatastore(t *testing.T) {
	allocated := func(nodes int) uint64 {
		etcd := testkit.NewEtcd(t)
		fill(t, etcd.Client, nodes)
		store := must.Get(OpenEtcd(EtcdConfig{Endpoints: []string{etcd.Endpoint}})).Or(t)
		defer func() { _ = store.Close() }()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 10 {
			s := must.Get(store.Snapshot(t.Context())).Or(t)
			must.Get(store.Hosts(t.Context(), s.Revision, []string{"node-00001"})).Or(t)
			must.Get(store.Sweep(t.Context(), s.Revision)).Or(t)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / 10
	}
	small, large := allocated(100), allocated(200)
	if float64(large) > 2.5*float64(small) {
		t.Errorf("reading 200 machines allocates %d bytes, 100 machines %d: more than twice and a half as much", large, small)
	}
}
