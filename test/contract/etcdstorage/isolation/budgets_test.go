// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// Budgets of the hostile tenant.
const (
	rate       = 100 // units, of which a call takes one or more
	keepAlives = 50
	historyMiB = 32
)

// seconds is how long each attack lasts.
func seconds(tb testing.TB) time.Duration {
	tb.Helper()
	return time.Duration(cases.Number(tb, 1, 2, 60)) * time.Second
}

// scrape sums a metric of an address over the series that contain a text.
func scrape(tb testing.TB, address, name, contains string) (sum float64) {
	tb.Helper()
	for series, value := range testkit.Scrape(tb, address, nil) {
		if is, labels, _ := strings.Cut(series, "{"); is == name && strings.Contains(labels, contains) {
			sum += value
		}
	}
	return sum
}

// A tenant that attacks with each RPC there is, as fast as it can, costs the core no more calls and messages than its budgets; its neighbor
// is served all the while; the core does not run out of memory or space, and the proxy not out of its pod's memory. Afterwards nothing is in flight.
func TestNoAttackExceedsTheBudgets(t *testing.T) {
	t.Parallel()
	core, process := tenantproxy.StartEtcd(t, false)
	metrics := testkit.FreeAddress(t)
	hostile := tenantproxy.NewBinary(t, core, "/a/", "a", "--metrics-address="+metrics,
		fmt.Sprintf("--max-units-per-second=%d", rate), "--max-in-flight=4", fmt.Sprintf("--max-keep-alives-per-second=%d", keepAlives),
		"--max-watch-messages-per-second=50",
		fmt.Sprintf("--quota-history-bytes=%d", historyMiB<<20), "--quota-leases=100", "--quota-watches=100", "--quota-bytes=16777216",
		fmt.Sprintf("--max-answer-bytes=%d", answerBytes))
	hostile.WaitReady(t)
	neighbor := tenantproxy.NewBinary(t, core, "/b/", "b")
	neighbor.WaitReady(t)
	quiet := tenantproxy.Dial(t, neighbor.Address)
	attacks.PutData(t, tenantproxy.Dial(t, core), "/a/")
	conns := tenantproxy.Connections(t, hostile.Address, 4)
	loads := attacks.Loads()
	for _, name := range cases.Sample(t, 8, slices.Sorted(maps.Keys(loads))...) {
		alongside(t, name, func(ctx context.Context) int64 { return loads[name](ctx, conns) }, core, quiet)
	}
	testkit.Eventually(t, "nothing to be in flight", func() string {
		if n := scrape(t, "http://"+metrics, "mooring_etcdstorage_proxy_requests_in_flight", ""); n != 0 {
			return fmt.Sprint(n)
		}
		return ""
	})
	proxyPeak, corePeak := hostile.PeakMemory(t), process.PeakMemory(t)
	size := scrape(t, core, "etcd_mvcc_db_total_size_in_bytes", "")
	t.Logf("the proxy's peak is %d MiB, the core's %d MiB, its database %.0f MiB", proxyPeak>>20, corePeak>>20, size/(1<<20))
	if proxyPeak > podMemory || corePeak > 1<<30 || size > 4*historyMiB<<20 {
		t.Error("that is too much")
	}
}

// alongside makes an attack while the neighbor works, and holds the core's calls to the budgets.
func alongside(t *testing.T, name string, attack func(context.Context) int64, core string, quiet *clientv3.Client) {
	t.Helper()
	var neighbor attacks.Neighbor
	count := func() (calls, messages float64) {
		// The proxies' own watches and counts, and the neighbor's calls, are few. The core counts the end of a stream as a message, too
		// (go-grpc-middleware v2, providers/prometheus: PostMsgReceive).
		ended := scrape(t, core, "grpc_server_handled_total", `LeaseKeepAlive`)
		return scrape(t, core, "grpc_server_started_total", "etcdserverpb"), scrape(t, core, "grpc_server_msg_received_total", `LeaseKeepAlive`) - ended
	}
	callsBefore, messagesBefore := count()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), seconds(t))
	defer cancel()
	made := make(chan int64, 1)
	go func() { made <- attack(ctx) }()
	for ctx.Err() == nil {
		neighbor.Do(t.Context(), 20*time.Second, "put", func(ctx context.Context) error { _, err := quiet.Put(ctx, "key", "value"); return err })
		neighbor.Do(t.Context(), 20*time.Second, "get", func(ctx context.Context) error { _, err := quiet.Get(ctx, "key"); return err })
	}
	for _, wrong := range neighbor.Wrong("put", "get") {
		t.Errorf("%s: the neighbor: %s", name, wrong)
	}
	attempts := <-made
	calls, messages := count()
	elapsed := time.Since(begun).Seconds()
	// Each call of a tenant's is at most three of the core's: a compaction reads, writes, and may lose against another.
	if most := 3*(rate+rate*elapsed) + float64(neighbor.Count("put")+neighbor.Count("get")) + 100; calls-callsBefore > most {
		t.Errorf("%s: %.0f calls of the core in %.1f s, want at most %.0f", name, calls-callsBefore, elapsed, most)
	}
	if most := 2*keepAlives + keepAlives*elapsed + 50; messages-messagesBefore > most {
		t.Errorf("%s: %.0f keep-alives of the core in %.1f s, want at most %.0f", name, messages-messagesBefore, elapsed, most)
	}
	t.Logf("%-18s %8d attempts, %6.0f calls of the core; the neighbor: %s", name, attempts, calls-callsBefore, &neighbor)
}
