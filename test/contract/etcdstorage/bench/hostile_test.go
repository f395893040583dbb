// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// asHostile makes the test binary a hostile tenant: the attack and the addresses in it, with commas between them. It is a process of its own, and a nice one, as in makeNoise.
const asHostile = "MOORING_BENCH_AS_HOSTILE"

// control is not an attack: as many goroutines that keep the processors busy and call nobody. What it does to the neighbor is the machine's share.
const control = "control, busy processors"

func keepBusy(ctx context.Context, _ []*grpc.ClientConn) int64 {
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for ctx.Err() == nil {
			}
		})
	}
	all.Wait()
	return 0
}

// hostileLoads are all loads and the control.
func hostileLoads() map[string]attacks.Load {
	out := attacks.Loads()
	out[control] = keepBusy
	return out
}

// beHostile is the process of asHostile. It ends with SIGTERM, and prints how many calls and messages it made.
func beHostile(what string) error {
	name, list, _ := strings.Cut(what, "@")
	addresses := strings.Split(list, ",")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var conns []*grpc.ClientConn
	for i := range connections {
		conn, err := grpc.NewClient("passthrough:///"+addresses[i%len(addresses)], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
	}
	fmt.Println(hostileLoads()[name](ctx, conns))
	return nil
}

// replicas are those of the hostile tenant's proxy.
const replicas = 2

// The quiet tenant's operations.
func quietOperations() []string { return []string{"put", "get", "list", "watch"} }

// quietTenant measures.
type quietTenant struct {
	client *clientv3.Client
	events clientv3.WatchChan
}

// measure makes operations for a while.
func (q *quietTenant) measure(b *testing.B, noticed *attacks.Neighbor, length time.Duration) {
	b.Helper()
	for began := time.Now(); time.Since(began) < length; <-time.After(quietPause) {
		noticed.Do(b.Context(), time.Minute, "put", func(ctx context.Context) error { _, err := q.client.Put(ctx, "put", "value"); return err })
		noticed.Do(b.Context(), time.Minute, "get", func(ctx context.Context) error { _, err := q.client.Get(ctx, "put"); return err })
		noticed.Do(b.Context(), time.Minute, "list", func(ctx context.Context) error {
			_, err := q.client.Get(ctx, "list/", clientv3.WithPrefix(), clientv3.WithLimit(100))
			return err
		})
		noticed.Do(b.Context(), time.Minute, "watch", func(ctx context.Context) error {
			if _, err := q.client.Put(ctx, "watched", "value"); err != nil {
				return err
			}
			select {
			case answer := <-q.events:
				return answer.Err()
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
}

// BenchmarkHostile prints a quiet tenant's p50 and p99 of put, get, list and watch (a put until its event) alone and alongside a tenant that
// attacks with one RPC at full speed through two proxies, and alongside processors that are busy with nothing, all with the shipped budgets. They
// take turns in rounds of a second. What is judged is generous, since the machine is shared: that the quiet tenant is served at all.
func BenchmarkHostile(b *testing.B) {
	endpoint, _ := tenantproxy.StartEtcd(b, true)
	shipped := []string{
		fmt.Sprintf("--max-in-flight=%d", operator.Seats(50)), "--max-units-per-second=4000", "--max-keep-alives-per-second=100",
		"--max-watch-messages-per-second=500",
	}
	quiet := &quietTenant{client: tenantproxy.Dial(b, waiting(b, tenantproxy.NewBinary(b, endpoint, "/quiet/", "quiet", shipped...)))}
	for i := range 100 {
		must.Get(quiet.client.Put(b.Context(), fmt.Sprintf("list/%04d", i), strings.Repeat("v", 1024))).Or(b)
	}
	var hostile []string
	for range replicas {
		proxy := tenantproxy.NewBinary(b, endpoint, "/hostile/", "hostile", append(slices.Clone(shipped), "--quota-history-bytes=268435456", "--quota-leases=1000")...)
		hostile = append(hostile, waiting(b, proxy))
	}
	attacks.PutData(b, tenantproxy.Dial(b, hostile[0]), "")
	address := strings.Join(hostile, ",")
	quiet.events = quiet.client.Watch(b.Context(), "watched", clientv3.WithCreatedNotify())
	<-quiet.events
	rounds := number(b, "MOORING_BENCH_SECONDS", 2)
	var t table
	for _, name := range slices.Sorted(maps.Keys(hostileLoads())) {
		b.Run(strings.NewReplacer(" ", "-", ",", "").Replace(name), func(b *testing.B) {
			b.ReportMetric(0, "ns/op")
			quiet.beside(b, &t, name, address, rounds)
		})
	}
	fmt.Fprint(os.Stdout, "\n"+t.String())
}

// alongside measures alone and alongside one attack by turns.
func (q *quietTenant) beside(b *testing.B, t *table, name, address string, rounds int) {
	b.Helper()
	self := must.Get(os.Executable()).Or(b)
	var alone, together attacks.Neighbor
	noise := testkit.Start(b, filepath.Join(b.TempDir(), "hostile.log"), []string{asHostile + "=" + name + "@" + address}, "nice", "-n", "19", self)
	defer noise.Kill()
	for range rounds {
		noise.Signal(syscall.SIGSTOP)
		q.measure(b, &alone, time.Second)
		noise.Signal(syscall.SIGCONT)
		q.measure(b, &together, time.Second)
	}
	noise.Signal(syscall.SIGTERM)
	<-noise.Done()
	if noise.ExitCode() != 0 {
		b.Fatalf("the hostile tenant: %s", noise.Output())
	}
	for _, wrong := range slices.Concat(alone.Wrong(quietOperations()...), together.Wrong(quietOperations()...)) {
		b.Errorf("alongside %s: %s", name, wrong)
	}
	for _, operation := range quietOperations() {
		before, p99 := alone.Percentile(operation, 99), together.Percentile(operation, 99)
		ratio := float64(p99) / float64(before)
		b.ReportMetric(ratio, operation+"-p99-ratio")
		t.add("neighbor's "+name, operation, fmt.Sprintf("p99 %v", p99.Round(time.Microsecond)), fmt.Sprintf("%.2f", ratio), "≤ 2.00",
			fmt.Sprintf("alone %v; p50 %v, alone %v", before.Round(time.Microsecond),
				together.Percentile(operation, 50).Round(time.Microsecond), alone.Percentile(operation, 50).Round(time.Microsecond)))
	}
}
