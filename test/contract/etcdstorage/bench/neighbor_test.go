// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

const (
	// noisyClients is how many the noisy tenant has, all at full speed.
	noisyClients = 64
	// quietPause is between two requests of the quiet tenant.
	quietPause = 5 * time.Millisecond
)

// BenchmarkNeighbor prints the latency of a quiet tenant alongside a noisy one at full speed, without a bound on what the noisy one has in
// flight at the core, with the one that the operator sets by default, and with smaller ones. The core writes to the disk. The quiet tenant
// is alone and not alone by turns, in rounds of a second, since whatever else the machine does changes from one minute to the next: the
// ratio is that of both within one row.
func BenchmarkNeighbor(b *testing.B) {
	endpoint, _ := tenantproxy.StartEtcd(b, true)
	quiet := tenantproxy.Dial(b, waiting(b, tenantproxy.NewBinary(b, endpoint, "/quiet/", "quiet")))
	rounds := number(b, "MOORING_BENCH_SECONDS", 2) * 3
	var t table
	for _, load := range []string{"put", "list"} {
		for _, row := range []struct {
			name  string
			seats int32
		}{{"unbounded", 0}, {"default", operator.Seats(50)}, {"4", 4}, {"2", 2}, {"1", 1}} {
			b.Run(load+"/"+row.name, func(b *testing.B) {
				noticed := map[bool]*attacks.Neighbor{false: {}, true: {}}
				noise := beside(b, endpoint, row.seats, load, rounds, func(noisy bool) { use(b, quiet, noticed[noisy], time.Second) })
				alone, together := noticed[false], noticed[true]
				for _, wrong := range slices.Concat(alone.Wrong(anyOperation), together.Wrong(anyOperation)) {
					b.Error(wrong)
				}
				before, p99 := alone.Percentile(anyOperation, 99), together.Percentile(anyOperation, 99)
				ratio := float64(p99) / float64(before)
				b.ReportMetric(float64(p99.Microseconds()), "p99-µs")
				b.ReportMetric(ratio, "p99-ratio")
				b.ReportMetric(0, "ns/op")
				t.add("neighbor's "+load, row.name, fmt.Sprintf("p99 %v", p99.Round(time.Microsecond)), fmt.Sprintf("%.2f", ratio), "≤ 2.00",
					fmt.Sprintf("alone %v; p50 %v, alone %v; the noisy one %.0f/s", before.Round(time.Microsecond), together.Percentile(anyOperation, 50).Round(time.Microsecond),
						alone.Percentile(anyOperation, 50).Round(time.Microsecond), float64(noise)/float64(rounds)))
			})
		}
	}
	fmt.Fprint(os.Stdout, "\n"+t.String())
}

func waiting(b *testing.B, proxy *tenantproxy.Binary) string {
	b.Helper()
	proxy.WaitReady(b)
	return proxy.Address
}

// anyOperation is what puts and gets of the quiet tenant are counted as.
const anyOperation = "put or get"

// use puts and gets by turns for a while.
func use(b *testing.B, client *clientv3.Client, noticed *attacks.Neighbor, length time.Duration) {
	b.Helper()
	chance := rand.New(rand.NewPCG(1, 1))
	for began := time.Now(); time.Since(began) < length; <-time.After(quietPause) {
		once := put
		if noticed.Count(anyOperation)%2 == 0 {
			once = get
		}
		noticed.Do(b.Context(), time.Minute, anyOperation, func(ctx context.Context) error { return once(ctx, client, "", chance) })
	}
}

// asNoise makes the test binary the clients of a noisy tenant: the load and the address in it. They are a process of their own, and a nice one, since
// elsewhere they are on another machine: what they need of this one is not what the tenant next door costs.
const asNoise = "MOORING_BENCH_AS_NOISE"

// loads are what a noisy tenant does.
func loads() map[string]func(context.Context, *clientv3.Client, string, *rand.Rand) error {
	return map[string]func(context.Context, *clientv3.Client, string, *rand.Rand) error{"put": put, "list": list}
}

// makeNoise is the process of asNoise. It ends with SIGTERM, and prints how many requests it made.
func makeNoise(what string) error {
	name, address, _ := strings.Cut(what, ",")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: 10 * time.Second, MaxCallRecvMsgSize: 64 << 20, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var work errgroup.Group
	var made atomic.Int64
	for n := range noisyClients {
		work.Go(func() error {
			chance := rand.New(rand.NewPCG(2, uint64(n)))
			for ctx.Err() == nil {
				if err := loads()[name](ctx, client, "", chance); err != nil && ctx.Err() == nil {
					return err
				}
				made.Add(1)
			}
			return nil
		})
	}
	err = work.Wait()
	fmt.Println(made.Load())
	return err
}

// alongside calls f by turns with a noisy tenant that is stopped, and with one at full speed, and returns how many requests that made.
func beside(b *testing.B, core string, seats int32, load string, rounds int, f func(noisy bool)) (requests int) {
	b.Helper()
	proxy := tenantproxy.NewBinary(b, core, "/noisy/", "noisy", fmt.Sprintf("--max-in-flight=%d", seats))
	defer proxy.Kill()
	address := waiting(b, proxy)
	client := tenantproxy.Dial(b, address)
	for i := range listed {
		must.Get(client.Put(b.Context(), fmt.Sprintf("list/%06d", i), strings.Repeat("v", fullLen))).Or(b)
	}
	self := must.Get(os.Executable()).Or(b)
	noise := testkit.Start(b, filepath.Join(b.TempDir(), "noise.log"), []string{asNoise + "=" + load + "," + address}, "nice", "-n", "19", self)
	defer noise.Kill()
	for range rounds {
		noise.Signal(syscall.SIGSTOP)
		f(false)
		noise.Signal(syscall.SIGCONT)
		f(true)
	}
	noise.Signal(syscall.SIGTERM)
	<-noise.Done()
	if _, err := fmt.Sscan(noise.Output(), &requests); err != nil || noise.ExitCode() != 0 {
		b.Fatalf("the noisy clients: %v, %s", err, noise.Output())
	}
	return requests
}
