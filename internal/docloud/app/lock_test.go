// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// contender is a replica that wants the Lease, with the program's defaults.
type contender struct {
	elector *leaderelection.LeaderElector
	leads   chan time.Time
	stop    context.CancelFunc
	dead    atomic.Bool
	calls   atomic.Int64
	refused atomic.Int64 // watches
	ended   chan struct{}
	mu      sync.Mutex
	begun   []time.Time // the slow calls
}

// since returns how long after a time each slow call of after it began.
func (c *contender) since(begin time.Time) (out []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range c.begun {
		if at.After(begin) {
			out = append(out, at.Sub(begin))
		}
	}
	return out
}

// contend starts a replica on a Lease that all share. One that is dead makes no call any more, as after kill -9.
func contend(t *testing.T, shared *fake.Clientset, name string, prompt, watches bool) *contender {
	t.Helper()
	c := &contender{leads: make(chan time.Time, 1), ended: make(chan struct{})}
	client := &fake.Clientset{}
	client.AddReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.calls.Add(1)
		if c.dead.Load() {
			return true, nil, errors.New("the process is dead")
		}
		object, err := shared.Invokes(action, nil)
		return true, object, err
	})
	client.WatchReactionChain = shared.WatchReactionChain
	if !watches {
		client.WatchReactionChain = nil
		client.AddWatchReactor("leases", func(clienttesting.Action) (bool, watch.Interface, error) {
			c.refused.Add(1)
			return true, nil, errors.New("forbidden")
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	var lock resourcelock.Interface = &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "l"}, Client: client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}
	tick := 2 * time.Second
	if prompt {
		p := &promptLock{Interface: slowLock{lock, c}, every: tick, clock: clock.RealClock{}}
		go p.follow(ctx, client.CoordinationV1(), "kube-system", "l")
		lock, tick = p, electionTick
	}
	var err error
	c.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, ReleaseOnCancel: true, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: tick,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { c.leads <- time.Now() }, OnStoppedLeading: func() {}},
	})
	must.Do(t, err)
	go func() {
		defer close(c.ended)
		c.elector.Run(ctx)
	}()
	return c
}

// callTime is how long a call to the API server takes.
const callTime = 20 * time.Millisecond

// slowLock makes calls that take callTime, and end with their context.
type slowLock struct {
	resourcelock.Interface
	of *contender
}

func (l slowLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.pass(ctx); err != nil {
		return nil, nil, err
	}
	return l.Interface.Get(ctx)
}

// Update is made, and then its caller learns of it or not.
func (l slowLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return errors.Join(l.Interface.Update(ctx, record), l.pass(ctx))
}

func (l slowLock) pass(ctx context.Context) error {
	l.of.mu.Lock()
	l.of.begun = append(l.of.begun, time.Now())
	l.of.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(callTime):
		return nil
	}
}

// Whenever a leader is told to stop, before, during or after each of its calls, nobody holds the Lease when it has
// ended.
func TestALeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	// stop tells a leader to stop so long after its start, and returns when it has made the calls before that it made
	// as the leader.
	stop := func(after time.Duration) (calls []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			shared, began := fake.NewClientset(), time.Now()
			leader := contend(t, shared, "one", true, true)
			leads := (<-leader.leads).Sub(began)
			<-time.After(after - leads)
			calls = leader.since(began.Add(leads))
			leader.stop()
			<-leader.ended
			lease := must.Get(shared.CoordinationV1().Leases("kube-system").Get(t.Context(), "l", metav1.GetOptions{})).Or(t)
			if holder := lease.Spec.HolderIdentity; holder != nil && *holder != "" {
				t.Errorf("stopped %s after its start: %s has the Lease still", after, *holder)
			}
			synctest.Wait()
			for n := range calls {
				calls[n] += leads
			}
		})
		return calls
	}
	calls := stop(7 * time.Second)
	if len(calls) < 3 {
		t.Fatalf("calls after %v", calls)
	}
	for _, at := range calls {
		for after := at - callTime/2; after <= at+3*callTime/2; after += callTime / 4 {
			stop(after)
		}
	}
}

// A Lease that was given back is another replica's within a quarter of a second, and that of a process that died as
// soon as it has run out; neither replica makes more calls than client-go's elector by itself.
func TestALeaseIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	const counted = 400 * time.Second
	for _, kill := range []bool{false, true} {
		var calls [2]int64
		for i, prompt := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				shared := fake.NewClientset()
				leader := contend(t, shared, "one", prompt, true)
				<-leader.leads
				standby := contend(t, shared, "two", prompt, true)
				<-time.After(counted)
				calls[i] = leader.calls.Load() + standby.calls.Load()
				at := time.Now()
				leader.dead.Store(kill)
				leader.stop()
				took := (<-standby.leads).Sub(at)
				t.Logf("kill -9 %t, prompt %t: it took %s, %d calls in %s before", kill, prompt, took, calls[i], counted)
				if most := map[bool]time.Duration{false: 250 * time.Millisecond, true: 15*time.Second + 5*electionTick}[kill]; prompt && took > most {
					t.Errorf("kill -9 %t: the Lease was taken after %s, want %s at most", kill, took, most)
				}
				standby.stop()
				<-leader.ended
				<-standby.ended
				synctest.Wait()
			})
		}
		if calls[1] > calls[0]*21/20 { // when each comes is drawn by lot
			t.Errorf("%d calls in %s, client-go's elector makes %d", calls[1], counted, calls[0])
		}
	}
}

// Where the Lease may not be watched, the standby finds out by reading within a retry period, and asks rarely for the
// watch.
func TestALeaseThatMayNotBeWatchedIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := fake.NewClientset()
		leader := contend(t, shared, "one", true, false)
		<-leader.leads
		standby := contend(t, shared, "two", true, false)
		<-time.After(5 * time.Minute)
		if n := standby.refused.Load(); n > 11 {
			t.Errorf("%d watches were refused in five minutes", n)
		}
		at := time.Now()
		leader.stop()
		if took := (<-standby.leads).Sub(at); took > 2*time.Second+5*electionTick {
			t.Errorf("the Lease was taken after %s", took)
		}
		standby.stop()
		<-leader.ended
		<-standby.ended
		synctest.Wait()
	})
}
