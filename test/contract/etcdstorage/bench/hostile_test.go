// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// asHostile makes the test binary a hostile tenant: the attack and the addresses in it, with commas between them. It is a process of its own, and a nice one, as in makeNoise.
const asHostile = "MOORING_BENCH_AS_HOSTILE"

// control is not an attack: a loop on each of the two processors. What that costs the neighbor is due to the machine.
const control = "control, busy processors"

func keepBusy(ctx context.Context, _ []*grpc.ClientConn) int64 {
	var all sync.WaitGroup
	for _, processor := range []int{coreProcessor, otherProcessor} {
		all.Go(func() {
			runtime.LockOSThread()
			if err := pin(0, processor); err != nil {
				panic(err)
			}
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
	for i := range hostileConnections {
		conn, err := grpc.NewClient("passthrough:///"+addresses[i%len(addresses)], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		conns = append(conns, conn)
	}
	debug.SetMemoryLimit(mostOfAttacker)
	fmt.Println(hostileLoads()[name](ctx, conns))
	return nil
}

// startHostile starts a process of asHostile, which attacks at once.
func startHostile(tb testing.TB, name, address, niceness string) *testkit.Process {
	tb.Helper()
	self := must.Get(os.Executable()).Or(tb)
	process := testkit.Start(tb, filepath.Join(tb.TempDir(), "hostile.log"), []string{asHostile + "=" + name + "@" + address}, "nice", "-n", niceness, self)
	tb.Cleanup(process.Kill)
	return process
}

// endHostile ends one and returns what it printed.
func endHostile(tb testing.TB, process *testkit.Process) string {
	tb.Helper()
	process.Signal(syscall.SIGTERM)
	<-process.Done()
	if process.ExitCode() != 0 {
		tb.Fatalf("the hostile tenant: %s", process.Output())
	}
	return strings.TrimSpace(process.Output())
}

const (
	// replicas are those of the hostile tenant's proxy, and hostileConnections those of its clients.
	replicas, hostileConnections = 2, 4
	// modest is the niceness of a hostile tenant's clients: elsewhere they have machines of their own, and do not take its proxy's processor.
	modest = "19"
	// quietPause is between two requests of the quiet tenant.
	quietPause = 5 * time.Millisecond
	// mostMedian and mostSlow are how many times as long as alongside the control the quiet tenant's p50 and p99 may be.
	mostMedian, mostSlow = 1.3, 2.0
)

// mostOfAttacker bounds the memory of an attacker, of which all attack at one time: 31 of them would have all of the machine's.
const mostOfAttacker = 1 << 29

// The quiet tenant's operations.
func quietOperations() []string { return []string{"put", "get", "list", "watch"} }

// quietTenant measures.
type quietTenant struct {
	client  *clientv3.Client
	events  clientv3.WatchChan
	control *noticed // alongside the control, which is first
}

// noticed is what the quiet tenant noticed alone and alongside an attack.
type noticed struct{ alone, together attacks.Neighbor }

// times is how many times as long as alongside the control an operation took, with a machine as fast as it is alone now: that
// changes from one minute to the next.
func (n *noticed) times(control *noticed, operation string, percentile int) float64 {
	faster := float64(control.alone.Percentile(operation, 50)) / float64(n.alone.Percentile(operation, 50))
	return faster * float64(n.together.Percentile(operation, percentile)) / float64(control.together.Percentile(operation, percentile))
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

// BenchmarkHostile prints a quiet tenant's p50 and p99 of put, get, list and watch (a put until its event) alongside a tenant that attacks with
// one RPC at full speed through two proxies, and alongside processors that are busy with nothing, all with the budgets that are shipped. The core has
// a processor of its own. It takes turns with rests of a second. What fails is only that the quiet tenant is not served; the ratios are printed,
// since they mean something on a machine that does nothing else.
func BenchmarkHostile(b *testing.B) {
	var endpoint string
	apart(b, func() { endpoint, _ = tenantproxy.StartEtcd(b, true) })
	quiet := &quietTenant{client: tenantproxy.Dial(b, ready(b, tenantproxy.NewShipped(b, endpoint, "/quiet/", "quiet")))}
	for i := range 100 {
		must.Get(quiet.client.Put(b.Context(), fmt.Sprintf("list/%04d", i), strings.Repeat("v", 1024))).Or(b)
	}
	flags := append(strings.Fields(os.Getenv(flagsVariable)), "--quota-leases=1000")
	var hostile []string
	for range replicas {
		hostile = append(hostile, ready(b, tenantproxy.NewShipped(b, endpoint, "/hostile/", "hostile", flags...)))
	}
	attacks.PutData(b, tenantproxy.Dial(b, hostile[0]), "")
	address := strings.Join(hostile, ",")
	quiet.events = quiet.client.Watch(b.Context(), "watched", clientv3.WithCreatedNotify())
	<-quiet.events
	t := table{columns: "attack\toperation\tp50\tratio to control\tp99\tratio to control\tp50 alone"}
	quiet.alongside(b, &t, control, address)
	for _, name := range slices.Sorted(maps.Keys(attacks.Loads())) {
		b.Run(strings.NewReplacer(" ", "-", ",", "").Replace(name), func(b *testing.B) {
			b.ReportMetric(0, "ns/op")
			quiet.alongside(b, &t, name, address)
		})
	}
	fmt.Fprint(os.Stdout, "\n"+t.String())
}

func ready(b *testing.B, proxy *tenantproxy.Binary) string {
	b.Helper()
	proxy.WaitReady(b)
	return proxy.Address
}

// alongside measures alone and alongside one attack by turns.
func (q *quietTenant) alongside(b *testing.B, t *table, name, address string) {
	b.Helper()
	niceness := modest
	if name == control {
		niceness = "0"
	}
	got := &noticed{}
	noise := startHostile(b, name, address, niceness)
	for range number(b, "MOORING_BENCH_SECONDS", 2) {
		noise.Signal(syscall.SIGSTOP)
		q.measure(b, &got.alone, time.Second)
		noise.Signal(syscall.SIGCONT)
		q.measure(b, &got.together, time.Second)
	}
	endHostile(b, noise)
	for _, wrong := range slices.Concat(got.alone.Wrong(quietOperations()...), got.together.Wrong(quietOperations()...)) {
		b.Errorf("alongside %s: %s", name, wrong)
	}
	q.control = cmp.Or(q.control, got)
	for _, operation := range quietOperations() {
		cells := []any{name, operation}
		for _, bound := range []struct {
			percentile int
			most       float64
		}{{50, mostMedian}, {99, mostSlow}} {
			times := got.times(q.control, operation, bound.percentile)
			b.ReportMetric(times, fmt.Sprintf("%s-p%d-ratio", operation, bound.percentile))
			text := fmt.Sprintf("%.2f", times)
			if times > bound.most {
				text += fmt.Sprintf(", above %.1f", bound.most)
			}
			cells = append(cells, got.together.Percentile(operation, bound.percentile).Round(time.Microsecond), text)
		}
		t.add(append(cells, got.alone.Percentile(operation, 50).Round(time.Microsecond))...)
	}
}
