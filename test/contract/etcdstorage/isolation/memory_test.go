// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// A pod of the shipped size.
const (
	podMemory   = 256 << 20
	answerBytes = podMemory / 2
)

// fill stores mebibytes of the tenant a.
func fill(tb testing.TB, core string, mebibytes int) {
	tb.Helper()
	direct := tenantproxy.Dial(tb, core)
	for n := range mebibytes {
		must.Get(direct.Put(tb.Context(), fmt.Sprintf("/a/fill/%05d", n), strings.Repeat("v", 1<<20))).Or(tb)
	}
}

// A client that reads a list of 100 MiB gets it; so do four at one time; and answers that nobody reads take neither the core nor the proxy more than
// the budget: the proxy stays within the memory of its pod.
func TestLargeListsFitIntoThePod(t *testing.T) {
	t.Parallel()
	core, process := tenantproxy.StartEtcd(t, false)
	fill(t, core, 100)
	proxy := tenantproxy.NewBinary(t, core, "/a/", "a", "--max-in-flight=8", fmt.Sprintf("--max-answer-bytes=%d", answerBytes))
	proxy.WaitReady(t)
	client := tenantproxy.Dial(t, proxy.Address)
	list := func() {
		for _, part := range []string{"fill/0000", "fill/0001", "fill/0009"} { // different sizes of buffers
			if got, err := client.Get(t.Context(), part, clientv3.WithPrefix()); err != nil || len(got.Kvs) != 10 {
				t.Errorf("a list of 10 MiB: %v", err)
			}
		}
		if got, err := client.Get(t.Context(), "fill/", clientv3.WithPrefix()); err != nil || len(got.Kvs) != 100 {
			t.Errorf("a list of 100 MiB: %v", err)
		}
	}
	list()
	one := proxy.PeakMemory(t)
	if one > podMemory {
		t.Errorf("one list takes %d MiB", one>>20)
	}
	var work sync.WaitGroup
	for range 4 {
		work.Go(list)
	}
	work.Wait()
	four := proxy.PeakMemory(t)
	if four > podMemory {
		t.Errorf("four lists take %d MiB", four>>20)
	}
	before := process.PeakMemory(t)
	unread(t, proxy.Address, 1000)
	if _, err := client.Put(t.Context(), "small", "request"); err != nil {
		t.Errorf("a small request alongside unread lists: %v", err)
	}
	all, grown := proxy.PeakMemory(t), process.PeakMemory(t)-before
	if all > podMemory || grown > 1<<30 {
		t.Errorf("1000 unread lists of 100 MiB take %d MiB of the proxy and %d of the core", all>>20, grown>>20)
	}
	t.Logf("the proxy's peak: one list %d MiB, four %d, a thousand that are not read %d; the core's grew by %d MiB", one>>20, four>>20, all>>20, grown>>20)
}

// unread begins lists and RangeStreams that nobody reads.
func unread(t *testing.T, address string, count int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	conns := tenantproxy.Connections(t, address, 4)
	for n := range count {
		method := []string{etcdserverpb.KV_RangeStream_FullMethodName, etcdserverpb.KV_Range_FullMethodName}[n%2]
		stream, err := conns[n%len(conns)].NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
		if err == nil {
			err = stream.SendMsg(&etcdserverpb.RangeRequest{Key: []byte("fill/"), RangeEnd: []byte("fill0")})
		}
		if err == nil {
			err = stream.CloseSend()
		}
		must.Do(t, err)
	}
}
