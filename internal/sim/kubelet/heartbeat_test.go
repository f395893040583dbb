// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The fake clientset is used here only to count calls while time is virtual; behavior towards a real API server is tested
// in fleet_test.go.

// calls counts calls by verb, resource and the name of the machine.
type calls struct {
	mu    sync.Mutex
	count map[string]int
}

func countCalls(client *fake.Clientset) *calls {
	c := &calls{count: map[string]int{}}
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, k8sruntime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.count[action.GetVerb()+" "+action.GetResource().Resource]++
		return false, nil, nil
	})
	return c
}

// take returns the counts since the last take.
func (c *calls) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.count
	c.count = map[string]int{}
	return taken
}

// runFleet runs a fleet of n machines until the test ends.
func runFleet(t *testing.T, n int, cfg Config) *Fleet {
	t.Helper()
	fleet := NewFleet(cfg)
	for i := range n {
		m := Machine{Name: machineName(i), Address: netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i%250 + 1)})}
		must.Do(t, fleet.Add(m))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- fleet.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return fleet
}

func machineName(i int) string { return fmt.Sprintf("worker-%d", i) }

func TestCallsPerInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const machines = 20
		client := fake.NewClientset()
		counts := countCalls(client)
		fleet := runFleet(t, machines, Config{
			Client: client, LeaseInterval: 10 * time.Second, StatusInterval: 5 * time.Minute, Logger: logr.Discard(),
		})
		elapse(15 * time.Second) // by then everybody has registered and seen its Node
		started := counts.take()
		if started["create nodes"] != machines || started["create leases"] != machines {
			t.Errorf("calls at the start of %d machines: %v", machines, started)
		}

		// Two minutes, in which every Lease is renewed every 10 s (up to 4 % later) and no status report is due.
		elapse(2 * time.Minute)
		idle := counts.take()
		if got := idle["update leases"]; got < 11*machines || got > 12*machines {
			t.Errorf("%d renewals by %d machines in twelve intervals", got, machines)
		}
		if len(idle) != 1 {
			t.Errorf("other calls than renewals: %v", idle)
		}

		// By then everybody has reported once since the start, and after that reports once per interval.
		elapse(5*time.Minute + 30*time.Second)
		if got := counts.take()["patch nodes"]; got < machines || got > 2*machines {
			t.Errorf("%d first status reports by %d machines", got, machines)
		}
		elapse(10 * time.Minute)
		if got := counts.take()["patch nodes"]; got != 2*machines {
			t.Errorf("%d status reports by %d machines in two intervals", got, machines)
		}

		for _, name := range fleet.Machines() {
			must.Do(t, fleet.Freeze(name))
		}
		counts.take()
		elapse(time.Hour)
		if got := counts.take(); len(got) != 0 {
			t.Errorf("calls of frozen machines: %v", got)
		}
	})
}

func TestStatusIsRepairedAfterAnotherChangesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		runFleet(t, 1, Config{Client: client, StatusInterval: time.Hour, Logger: logr.Discard()})
		elapse(time.Minute)
		node := must.Get(client.CoreV1().Nodes().Get(t.Context(), machineName(0), metav1.GetOptions{})).Or(t)
		for i := range node.Status.Conditions {
			node.Status.Conditions[i].Status = corev1.ConditionUnknown
		}
		must.Get(client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})).Or(t)
		elapse(11 * time.Second)
		node = must.Get(client.CoreV1().Nodes().Get(t.Context(), machineName(0), metav1.GetOptions{})).Or(t)
		if ready := node.Status.Conditions[conditionIndex(node.Status.Conditions, corev1.NodeReady)]; ready.Status != corev1.ConditionTrue {
			t.Errorf("Ready is %v a lease interval after it was made Unknown", ready.Status)
		}
	})
}

// TestGoroutinesDoNotGrowWithTheFleet is serial because it counts all goroutines of the process.
func TestGoroutinesDoNotGrowWithTheFleet(t *testing.T) { //nolint:paralleltest // see above
	count := func(machines int) int {
		var n int
		synctest.Test(t, func(t *testing.T) {
			runFleet(t, machines, Config{Client: fake.NewClientset(), Logger: logr.Discard()})
			elapse(time.Minute)
			synctest.Wait()
			n = runtime.NumGoroutine()
		})
		return n
	}
	few, many := count(10), count(200)
	t.Logf("goroutines: %d with 10 machines, %d with 200", few, many)
	if many > few+5 {
		t.Errorf("%d goroutines with 10 machines, %d with 200", few, many)
	}
}
