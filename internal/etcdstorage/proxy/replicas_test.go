// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// knows waits until a replica divides the budgets among so many.
func (s *served) knows(tb testing.TB, replicas float64) {
	tb.Helper()
	testkit.Eventually(tb, fmt.Sprint("a replica to know of ", replicas), func() string {
		if got := metric(tb, s.Registry, "mooring_etcdstorage_proxy_replicas"); got != replicas {
			return fmt.Sprint("it knows of ", got)
		}
		return ""
	})
}

// load makes gets through proxies as fast as they let them, until end is called.
func load(t *testing.T, proxies ...*served) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for _, p := range proxies {
		for range 16 {
			work.Go(func() {
				kv := etcdserverpb.NewKVClient(raw(t, p.Endpoint))
				for ctx.Err() == nil {
					_, _ = kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("k")})
				}
			})
		}
	}
	return sync.OnceFunc(func() {
		cancel()
		work.Wait()
	})
}

// rateOf is how many gets a second the core has in that time.
func rateOf(t *testing.T, core string, measured time.Duration) float64 {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), measured)
	defer end()
	before, begun := handled(t, core)["Range"], time.Now()
	<-ctx.Done()
	return (handled(t, core)["Range"] - before) / time.Since(begun).Seconds()
}

// gets is the rate of gets through proxies without that of the first second: what they may have at once is used up in
// it, without a pause in which it comes back.
func gets(t *testing.T, core string, proxies ...*served) float64 {
	t.Helper()
	defer load(t, proxies...)()
	rateOf(t, core, time.Second)
	return rateOf(t, core, 2*time.Second)
}

// reach measures units a second until they are no fewer than least and no more than most. A busy machine makes fewer than
// budgets allow, and uses what was saved up meanwhile when it is not busy any more; a budget that is not kept is never kept.
func reach(t *testing.T, what string, least, most float64, measure func() float64) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("%s to give the core %.0f to %.0f units a second", what, least, most), func() string {
		got := measure()
		t.Logf("%s: %.0f units a second", what, got)
		if got < least || got > most {
			return fmt.Sprintf("it has given %.0f", got)
		}
		return ""
	})
}

// Two replicas together let the tenant use no more of the core than one: within a tenth. When one leaves the other has the
// whole at once, and when one dies as soon as its record has expired.
func TestReplicasShareOneBudget(t *testing.T) {
	t.Parallel()
	const rate, expiry = 120, 3 * time.Second
	core := testkit.NewEtcd(t)
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond, cfg.ReplicaExpiry = rate, expiry
	judge := func(what string, proxies ...*served) {
		t.Helper()
		reach(t, what, 0.8*rate, 1.1*rate, func() float64 { return gets(t, core.Endpoint, proxies...) })
	}
	first := start(t, cfg)
	first.knows(t, 1)
	judge("one", first)
	second := start(t, cfg)
	first.knows(t, 2)
	second.knows(t, 2)
	judge("two", first, second)
	second.stop()
	first.knows(t, 1)

	mortal, die := context.WithCancel(t.Context())
	third := &served{Registry: prometheus.NewRegistry()}
	cfg.Registry = third.Registry
	third.Proxy = must.Get(proxy.New(mortal, cfg)).Or(t)
	first.knows(t, 2)
	die() // without a word
	died := time.Now()
	first.knows(t, 1)
	// The core ends leases twice a second.
	if after := time.Since(died); after > expiry+2*time.Second {
		t.Errorf("the record of a replica that died was there for %v, want at most %v and a moment", after, expiry)
	}
	judge("the one that is left", first)
}

// share is the part of the budgets that a replica has.
func (s *served) share(tb testing.TB) float64 {
	tb.Helper()
	return metric(tb, s.Registry, "mooring_etcdstorage_proxy_share")
}

// has waits until a replica has a part of the budgets, but for what demands differ by until they are recorded.
func (s *served) has(tb testing.TB, part float64) {
	tb.Helper()
	testkit.Eventually(tb, fmt.Sprintf("a replica to have %.3f of the budgets", part), func() string {
		if got := s.share(tb); math.Abs(got-part) > 2*quota.LeastPart {
			return fmt.Sprint("it has ", got)
		}
		return ""
	})
}

// recordsOf are the records of the tenant's replicas, in the order in which those began.
func recordsOf(t *testing.T, core *clientv3.Client) []*mvccpb.KeyValue {
	t.Helper()
	return must.Get(core.Get(t.Context(), tenancy.DefaultSystemPrefix+"tenants/a/replicas/", clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))).Or(t).Kvs
}

// recorded waits until the replicas' records have these demands, in the order in which those began; "" is any.
func recorded(t *testing.T, core *clientv3.Client, demands ...string) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("the demands %q to be recorded", demands), func() string {
		records := recordsOf(t, core)
		if len(records) < len(demands) {
			return fmt.Sprint("there are records of ", len(records))
		}
		for i, demand := range demands {
			if value := string(records[i].Value); demand != "" && value != demand {
				return fmt.Sprintf("%d has %q", i, value)
			}
		}
		return ""
	})
}

// The budgets go where the demand is, after one beat of the lease or two, which is as often as a replica writes its
// record while that changes, and not more often. Together the replicas never have more than the tenant's.
func TestReplicasShareByDemand(t *testing.T) {
	t.Parallel()
	const rate, expiry = 120, 3 * time.Second
	etcd := testkit.NewEtcd(t)
	core := client(t, etcd.Endpoint)
	cfg := configure(t, etcd.Endpoint)
	cfg.UnitsPerSecond, cfg.ReplicaExpiry = rate, expiry
	first := start(t, cfg)
	recorded(t, core, "")
	second := start(t, cfg)
	recorded(t, core, "", "")
	third := start(t, cfg)
	for _, each := range []*served{first, second, third} {
		each.knows(t, 3)
	}
	judge := func(what string, least float64) {
		t.Helper()
		reach(t, what, least*rate, 1.1*rate, func() float64 {
			rateOf(t, etcd.Endpoint, time.Second) // what was saved up for is used up in it
			return rateOf(t, etcd.Endpoint, 2*time.Second)
		})
	}
	versions := func() (out []int64) {
		for _, record := range recordsOf(t, core) {
			out = append(out, record.Version)
		}
		return out
	}

	began, before := time.Now(), versions()
	end := load(t, first)
	first.has(t, 1-2*quota.LeastPart)
	after := versions()
	t.Logf("all demand at one: %v and %v records later it has %.3f", time.Since(began), after[0]-before[0], first.share(t))
	if after[0]-before[0] > 2 {
		t.Errorf("it was recorded %d times until it had its share, want 2 at most", after[0]-before[0])
	}
	judge("one of three with all demand", 0.85)

	endSecond := load(t, second)
	second.has(t, (1-quota.LeastPart)/2)
	first.has(t, (1-quota.LeastPart)/2)
	recorded(t, core, "1000", "1000")
	if a, b := first.share(t), second.share(t); math.Abs(a-b) > 1e-9 {
		t.Errorf("with equal demands they have %v and %v", a, b)
	}
	judge("two of three with equal demand", 0.8)
	testkit.Eventually(t, "records that stay as they are without a change of demand", func() string {
		before := versions()
		rateOf(t, etcd.Endpoint, 4*time.Second) // four beats
		if after := versions(); !slices.Equal(after, before) {
			return fmt.Sprintf("their versions were %v and are %v", before, after)
		}
		return ""
	})

	endThird := load(t, third)
	third.has(t, 1./3)
	judge("three", 0.8)
	endSecond()
	endThird()
	first.has(t, 1-2*quota.LeastPart)
	judge("the one that has demand again", 0.85)
	end()
	for _, each := range []*served{first, second, third} {
		each.has(t, 1./3) // no one has any: all can begin
	}
}

// A replica of a version that divides equally, or whose record cannot be read, keeps its equal part, however much others
// demand. When it is gone they have that, too.
func TestReplicasOfOtherVersions(t *testing.T) {
	t.Parallel()
	const rate, expiry = 120, 3 * time.Second
	etcd := testkit.NewEtcd(t)
	core := client(t, etcd.Endpoint)
	cfg := configure(t, etcd.Endpoint)
	cfg.UnitsPerSecond, cfg.ReplicaExpiry = rate, expiry
	first := start(t, cfg)
	recorded(t, core, "")
	defer load(t, first)()
	for _, value := range []string{"", "1.5", "-1", "99999999", "units=3"} {
		lease := must.Get(core.Grant(t.Context(), 600)).Or(t).ID
		other := tenancy.DefaultSystemPrefix + "tenants/a/replicas/0"
		must.Get(core.Put(t.Context(), other, value, clientv3.WithLease(lease))).Or(t)
		first.knows(t, 2)
		recorded(t, core, "1000")
		if got := first.share(t); got != 0.5 {
			t.Errorf("alongside a record of %q it has %v, want half", value, got)
		}
		must.Get(core.Revoke(t.Context(), lease)).Or(t)
		first.has(t, 1)
	}
}

// A replica that is cut off from the core for so long that its record expires does not keep the large share that it had:
// the others have it now. Once it reaches the core again, all know each other.
func TestReplicaThatIsCutOff(t *testing.T) {
	t.Parallel()
	const rate, expiry = 120, 3 * time.Second
	etcd := testkit.NewEtcd(t)
	cfg := configure(t, etcd.Endpoint)
	cfg.UnitsPerSecond, cfg.ReplicaExpiry = rate, expiry
	second := start(t, cfg)
	link := &link{open: true}
	cfg.Upstream.Dialer = link.dial
	first := start(t, cfg)
	first.knows(t, 2)
	end := load(t, first)
	first.has(t, 1-quota.LeastPart)
	second.has(t, quota.LeastPart)
	link.set(false)
	end()
	second.has(t, 1)
	first.has(t, 0.5)
	link.set(true)
	second.knows(t, 2)
	first.knows(t, 2)
	first.has(t, 0.5)
	second.has(t, 0.5)
}

// link is a connection to the core that can be cut.
type link struct {
	mu    sync.Mutex
	open  bool
	conns []net.Conn
}

func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return nil, errors.New("the link is cut")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

func (l *link) set(open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = open
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

// The seats at the core are the tenant's, too: its replicas have them together, and one more when one leaves.
func TestReplicasShareSeats(t *testing.T) {
	t.Parallel()
	const seats = 5
	etcd := testkit.NewEtcd(t)
	core := newHeldCore(t, etcd.Endpoint)
	cfg := configure(t, core.Endpoint)
	cfg.InFlight = seats
	first, second := start(t, cfg), start(t, cfg)
	first.knows(t, 2)
	second.knows(t, 2)
	release := core.hold(etcdserverpb.KV_Put_FullMethodName, false)
	defer release()
	var work sync.WaitGroup
	for _, p := range []*served{first, second} {
		kv := etcdserverpb.NewKVClient(raw(t, p.Endpoint))
		for range 3 * seats {
			work.Go(func() { _, _ = kv.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}) })
		}
	}
	have := func(want int64) {
		t.Helper()
		testkit.Eventually(t, "the seats to be taken", func() string {
			if got := core.working.Load(); got < want {
				return fmt.Sprint(got, " are")
			}
			return ""
		})
	}
	have(seats)
	if most := core.most.Load(); most > seats {
		t.Errorf("%d requests of two replicas were with the core at one time, want %d", most, seats)
	}
	release()
	work.Wait()
	second.stop()
	first.knows(t, 1)
	release = core.hold(etcdserverpb.KV_Put_FullMethodName, false)
	defer release()
	kv := etcdserverpb.NewKVClient(raw(t, first.Endpoint))
	for range 3 * seats {
		work.Go(func() { _, _ = kv.Put(t.Context(), &etcdserverpb.PutRequest{Key: []byte("k")}) })
	}
	have(seats)
	release()
	work.Wait()
	if most := core.most.Load(); most != seats {
		t.Errorf("%d requests of one replica were with the core at one time, want %d", most, seats)
	}
}

// A replica that cannot know of others has the share that the configuration gives it.
func TestReplicasThatAreConfigured(t *testing.T) {
	t.Parallel()
	const rate = 120
	core := testkit.NewEtcd(t)
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond, cfg.Replicas, cfg.SystemPrefix = rate, 2, ""
	p := start(t, cfg)
	p.knows(t, 2)
	reach(t, "one of two", 0.8*rate/2, 1.1*rate/2, func() float64 { return gets(t, core.Endpoint, p) })
}
