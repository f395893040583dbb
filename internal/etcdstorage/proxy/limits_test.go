// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// stored is what the core holds of the tenant, asked past the proxy.
func stored(tb testing.TB, core *clientv3.Client) (size quota.Size) {
	tb.Helper()
	all := must.Get(core.Get(tb.Context(), "/a/", clientv3.WithPrefix())).Or(tb)
	for _, kv := range all.Kvs {
		size.Bytes += int64(len(kv.Key) + len(kv.Value))
		size.Keys++
	}
	return size
}

// A tenant with two replicas and sixteen clients at full speed, which also overwrite, delete and give up, grows to its quota and no further.
func TestGrowthStopsAtTheQuota(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	cfg := configure(t, core.Endpoint)
	cfg.Quota = quota.Limits{Bytes: limit}
	replicas := []*served{start(t, cfg), start(t, cfg)}
	var refused atomic.Int64
	var work sync.WaitGroup
	seed := cases.Seed(t)
	for n := range 16 {
		work.Go(func() {
			c := replicas[n%2].Client
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			for i := 0; refused.Load() < 200; i++ {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				if random.IntN(20) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
				}
				key, value := fmt.Sprintf("%d/%d", n, random.IntN(i+10)), strings.Repeat("v", random.IntN(16<<10))
				err := write(ctx, c, random.IntN(10), key, value)
				cancel()
				if errors.Is(err, rpctypes.ErrNoSpace) {
					refused.Add(1)
				} else if err != nil && ctx.Err() == nil {
					t.Errorf("writing: %v", err)
					return
				}
			}
		})
	}
	work.Wait()
	if got := stored(t, direct); got.Bytes < limit*95/100 || got.Bytes > limit*105/100 {
		t.Errorf("%d bytes are stored, want the limit of %d, 5 %% more or less", got.Bytes, limit)
	}
}

// write makes one of the writes that there are.
func write(ctx context.Context, c *clientv3.Client, kind int, key, value string) error {
	var err error
	switch kind {
	case 0:
		_, err = c.Delete(ctx, key)
	case 1, 2, 3:
		_, err = c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
	default:
		_, err = c.Put(ctx, key, value)
	}
	return err
}

// At the limit one can read, delete, and overwrite with what is no longer; after a deletion there is room at once. A new replica knows as much.
func TestAtTheQuota(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	must.Get(client(t, core.Endpoint).Put(t.Context(), "/b/somebody else's", strings.Repeat("v", 5000))).Or(t)
	cfg := configure(t, core.Endpoint)
	cfg.Quota = quota.Limits{Bytes: 1000, Keys: 3}
	for _, replica := range []*served{start(t, cfg), start(t, cfg)} {
		c := replica.Client
		good := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		full := func(_ any, err error) {
			t.Helper()
			if !errors.Is(err, rpctypes.ErrNoSpace) {
				t.Errorf("got %v, want %v", err, rpctypes.ErrNoSpace)
			}
		}
		value := strings.Repeat("v", 900)
		good(c.Put(t.Context(), "key", value))
		full(c.Put(t.Context(), "new", value))
		alarms(t, c, 1)
		full(c.Put(t.Context(), "key", value+value))
		full(c.Txn(t.Context()).Then(clientv3.OpPut("new", value)).Commit())
		good(c.Txn(t.Context()).If(clientv3.Compare(clientv3.Version("key"), "=", 0)).Else(clientv3.OpPut("key", value[1:])).Commit())
		good(c.Put(t.Context(), "key", value))
		good(c.Put(t.Context(), "key", "", clientv3.WithIgnoreValue()))
		good(c.Get(t.Context(), "key"))
		good(c.Put(t.Context(), "2", ""))
		good(c.Put(t.Context(), "3", ""))
		full(c.Put(t.Context(), "4", ""))
		good(c.Delete(t.Context(), "", clientv3.WithPrefix()))
		good(c.Put(t.Context(), "new", value))
		alarms(t, c, 0)
		status, err := c.Status(t.Context(), replica.Endpoint)
		good(status, err)
		if want := int64(len("/a/new") + len(value)); err == nil && status.DbSize > want {
			t.Errorf("the size is said to be %d, want at most %d", status.DbSize, want)
		}
		good(c.Delete(t.Context(), "", clientv3.WithPrefix()))
		testkit.Eventually(t, "the deletion to be known", func() string {
			if status, err := c.Status(t.Context(), replica.Endpoint); err != nil || status.DbSize > 0 {
				return fmt.Sprint(status, err)
			}
			return ""
		})
	}
}

// What a client has the answer to counts in its next write: what it has just put is not new, and where it has just deleted there is room.
func TestOwnWritesCountAtOnce(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	cfg := configure(t, core.Endpoint)
	cfg.Quota = quota.Limits{Bytes: 1000}
	c := start(t, cfg).Client
	value := strings.Repeat("v", 900)
	good := func(_ any, err error) {
		t.Helper()
		must.Do(t, err)
	}
	for n := range 200 {
		key := fmt.Sprint("key ", n)
		good(c.Put(t.Context(), key, value))
		good(c.Put(t.Context(), key, value))
		good(c.Txn(t.Context()).Then(clientv3.OpPut(key, value[1:])).Commit())
		if _, err := c.Put(t.Context(), key+"'", value); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatalf("got %v, want %v", err, rpctypes.ErrNoSpace)
		}
		if n%2 == 0 {
			good(c.Delete(t.Context(), key))
		} else {
			good(c.Txn(t.Context()).Then(clientv3.OpDelete(key)).Commit())
		}
	}
}

// Puts that are given up take room for as long as the core may still do them: one replica never lets in more keys than there may be.
func TestPutsThatWereGivenUpDoNotOvershoot(t *testing.T) {
	t.Parallel()
	const most = 60
	core := testkit.NewEtcd(t)
	cfg := configure(t, core.Endpoint)
	cfg.Quota = quota.Limits{Keys: most}
	p := start(t, cfg)
	var work sync.WaitGroup
	seed := cases.Seed(t)
	for n := range 8 {
		work.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			for i := range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(1500))*time.Microsecond)
				_, _ = p.Client.Put(ctx, fmt.Sprintf("%d/%d", n, i), "")
				cancel()
			}
		})
	}
	work.Wait()
	noneInFlight(t, p)
	direct := client(t, core.Endpoint)
	more := 0
	testkit.Eventually(t, "the quota to be reached", func() string {
		more++
		if _, err := p.Client.Put(t.Context(), fmt.Sprint("more/", more), ""); !errors.Is(err, rpctypes.ErrNoSpace) {
			return fmt.Sprint(err)
		}
		return ""
	})
	if got := stored(t, direct); got.Keys > most {
		t.Errorf("%d keys are stored, want at most %d", got.Keys, most)
	}
}

func alarms(t *testing.T, c *clientv3.Client, want int) {
	t.Helper()
	list, err := c.AlarmList(t.Context())
	if err != nil {
		t.Error(err)
	} else if len(list.Alarms) != want {
		t.Errorf("alarms %v, want %d", list.Alarms, want)
	}
}

// The count goes on after the core has been away, and after its history was compacted meanwhile.
func TestQuotaAfterTheCoreCompacted(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	cfg := configure(t, core.Endpoint)
	cfg.Quota = quota.Limits{Keys: 10}
	replica := start(t, cfg)
	must.Get(replica.Client.Put(t.Context(), "1", "")).Or(t)
	core.Stop()
	core.Restart(t)
	var last int64
	for n := range 9 {
		// The client may still have its connection to the etcd that was: what goes there fails, and is not made again by itself.
		testkit.Eventually(t, "the core to be back", func() string {
			put, err := direct.Put(t.Context(), fmt.Sprintf("/a/past the proxy %d", n), "")
			if err != nil {
				return err.Error()
			}
			last = put.Header.Revision
			return ""
		})
	}
	must.Get(direct.Compact(t.Context(), last, clientv3.WithCompactPhysical())).Or(t)
	testkit.Eventually(t, "the quota to be reached", func() string {
		put, err := replica.Client.Put(t.Context(), "one too many", "")
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return ""
		}
		_, _ = direct.Delete(t.Context(), "/a/one too many")
		return fmt.Sprint(put, err)
	})
}

func TestLeasesAndWatchesAreBounded(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	direct := client(t, core.Endpoint)
	left := must.Get(direct.Leases(t.Context())).Or(t)
	for _, lease := range left.Leases { // of tests that had this etcd before
		must.Get(direct.Revoke(t.Context(), lease.ID)).Or(t)
	}
	if _, err := direct.Grant(t.Context(), 60); err != nil {
		t.Fatal(err) // somebody else's
	}
	cfg := configure(t, core.Endpoint)
	cfg.Leases, cfg.Watches = 2, 2
	c := start(t, cfg).Client
	var leases []clientv3.LeaseID
	for range 2 {
		lease := must.Get(c.Grant(t.Context(), 60)).Or(t)
		leases = append(leases, lease.ID)
	}
	if _, err := c.Grant(t.Context(), 60); !refusedBy(err, "leases") {
		t.Errorf("a third lease: %v", err)
	}
	if _, err := c.Revoke(t.Context(), leases[0]); err != nil {
		t.Error(err)
	}
	if _, err := c.Grant(t.Context(), 60); err != nil {
		t.Errorf("after one was revoked: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := c.Watch(ctx, "1", clientv3.WithCreatedNotify())
	second := c.Watch(t.Context(), "2", clientv3.WithCreatedNotify())
	<-first
	<-second
	if answer := <-c.Watch(t.Context(), "3"); !refusedBy(answer.Err(), "watches") {
		t.Errorf("a third watch: %+v, %v", answer, answer.Err())
	}
	cancel()
	testkit.Eventually(t, "room for a watch", func() string {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if answer := <-c.Watch(ctx, "4", clientv3.WithCreatedNotify()); answer.Err() != nil {
			return answer.Err().Error()
		}
		return ""
	})
}

// Requests beyond the rate are held back; those that would be held back too long are refused.
func TestRate(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	cfg := configure(t, core.Endpoint)
	cfg.UnitsPerSecond = 100
	c := start(t, cfg).Client
	const clients = 16
	begun := time.Now()
	var served, refused atomic.Int64
	var work sync.WaitGroup
	for range clients {
		work.Go(func() {
			for range 10 {
				if _, err := c.Get(t.Context(), "key"); err == nil {
					served.Add(1)
				} else if refusedBy(err, "rate") {
					refused.Add(1)
				} else {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	// 160 requests, of which a second's worth is free: there is no way to have the others served sooner than at the rate.
	if most := 100 + 100*time.Since(begun).Seconds() + 1; float64(served.Load()) > most {
		t.Errorf("%d were served, want at most %.0f", served.Load(), most)
	}
	if served.Load() == 0 || refused.Load() > 0 {
		t.Errorf("%d served, %d refused: 16 at a time wait less than a second", served.Load(), refused.Load())
	}
	for range 300 {
		work.Go(func() {
			if _, err := c.Get(t.Context(), "key"); refusedBy(err, "rate") {
				refused.Add(1)
			}
		})
	}
	work.Wait()
	if refused.Load() == 0 {
		t.Error("300 at once, and none was refused at 100 a second")
	}
}
