// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// etcd dies, or is shut down, in the middle of clean-ups: right before a write, and when a write has happened whose answer is lost.
func TestEtcdRestartsInTheMiddleOfCleanUps(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlplane.Shared(t), "etcd-restarts")
	points := 0
	for n := 1; ; n += 2*stride() - 1 {
		orderly, after := n%4 < 2, n%2 == 0
		reached := s.failAt(etcdWrites, n, after, !after, func() {
			if orderly {
				s.etcd.Stop()
			} else {
				s.etcd.Kill()
			}
			s.etcd.Restart(s.t)
		})
		if !reached {
			break
		}
		points++
	}
	t.Logf("%d restarts", points)
}

// The API server dies in the middle of clean-ups, before writes to itself and to etcd, and the answer to the write before is lost.
func TestAPIServerRestartsInTheMiddleOfCleanUps(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlplane.New(t), "api-restarts")
	points := 0
	for _, kind := range s.kinds() {
		for n := 1; s.failAt(kind, n, n%2 == 0, n%2 == 1, func() { s.api.Kill(s.t, "kube-apiserver") }); n += 4*stride() - 1 {
			points++
		}
	}
	t.Logf("%d restarts", points)
}

// The network loses the answer to every write, or the write itself, while both servers and the product live on.
func TestLosingAnyWriteOrAnswerEndsAlike(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"writes": false, "answers": true} {
		if testing.Short() && !after {
			continue // the full run does it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, controlplane.Shared(t), "loses-"+name)
			points := 0
			for _, kind := range s.kinds() {
				for n := 1; s.failAt(kind, n, after, false, func() {}); n += 4*stride() - 3 {
					points++
				}
			}
			t.Logf("%d lost", points)
		})
	}
}

// failAt lets something happen to the servers at one write and then lets the write go on or be lost; the product lives on.
func (s *scene) failAt(kind string, n int, after, goOn bool, happens func()) bool {
	s.t.Helper()
	s.restore(s.dirty)
	trap := s.through.Lay(kind, n, after)
	process := s.start(s.through, "--resync-period=2s")
	defer func() { process.Stop() }()
	if !s.await(trap) {
		return false
	}
	happens()
	trap.Release(goOn)
	testkit.Eventually(s.t, "something failed "+trap.String()+" ("+trap.Write+"): the end of the clean-up", func() string {
		select {
		case <-process.Done():
			s.t.Fatalf("calico-node-sync ended:\n%s", tail(process))
		default:
		}
		if left := s.unfinished(); left != "" {
			return left + "\nits log:\n" + tail(process)
		}
		return ""
	})
	return true
}

// etcd compacts all it can between a round's first read and the next ones, which ask for the revision of the first. The round fails, writes
// nothing, and a later one does the work.
func TestCompactionInTheMiddleOfRounds(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlplane.Shared(t), "compacted")
	s.restore(s.dirty)
	const wanted = 3
	trap := s.through.Lay(rounds, 1, true)
	process := s.start(s.through)
	for i := range wanted {
		if !s.await(trap) {
			t.Fatalf("the clean-up came to an end alongside compactions; the log:\n%s", tail(process))
		}
		s.must(s.compact(t.Context(), "compacted"))
		held := trap
		if i < wanted-1 {
			trap = s.through.Lay(rounds, 1, true)
		}
		held.Release(true)
	}
	testkit.Eventually(t, "the end of the clean-up", func() string {
		if left := s.unfinished(); left != "" {
			return left + "\nits log:\n" + tail(process)
		}
		return ""
	})
	process.Stop()
	// The first round may have nothing more to ask: what is gone has just been noticed.
	if failures := strings.Count(process.Output(), "required revision has been compacted"); failures < wanted-1 {
		t.Errorf("%d rounds failed, want %d; the log:\n%s", failures, wanted-1, tail(process))
	}
}

// compact moves the store on by writing a key of nobody's and deleting it, and compacts everything before, on the disk as well.
func (s *site) compact(ctx context.Context, key string) error {
	if _, err := s.etcd.Client.Put(ctx, "/e2e/"+key, ""); err != nil {
		return err
	}
	gone, err := s.etcd.Client.Delete(ctx, "/e2e/"+key)
	if err != nil {
		return err
	}
	_, err = s.etcd.Client.Compact(ctx, gone.Header.Revision, clientv3.WithCompactPhysical())
	return err
}

// Machines come and go while etcd is compacted all the time.
func TestCompactionWhileMachinesComeAndGo(t *testing.T) {
	t.Parallel()
	s := newSite(t, controlplane.Shared(t), "compacting")
	for i := range 3 {
		s.addNode(fmt.Sprintf("stays-%d", i))
		s.install(fmt.Sprintf("stays-%d", i), byte(i+1), 2)
	}
	want := s.calicoDump()
	through := s.interpose()
	process := s.start(through, "--resync-period=2s")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	compactions := make(chan int, 1)
	go func() {
		n := 0
		defer func() { compactions <- n }()
		for ; ctx.Err() == nil; n++ {
			if err := s.compact(ctx, "all-the-time"); err != nil && ctx.Err() == nil {
				t.Errorf("compacting: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond): // a round of the product takes about as long
			}
		}
	}()
	machines := 9
	if testing.Short() {
		machines = 4
	}
	for i := range machines {
		machine := fmt.Sprintf("goes-%d", i)
		s.addNode(machine)
		s.install(machine, byte(goesByte+i), 4)
		s.dropNode(machine)
		seen := through.Rounds()
		testkit.Eventually(t, "the next round", func() string {
			if through.Rounds() > seen {
				return ""
			}
			return "not yet"
		})
	}
	stop()
	t.Logf("%d compactions while %d machines came and went; %d rounds met one", <-compactions, machines,
		strings.Count(process.Output(), "required revision has been compacted"))
	testkit.Eventually(t, "everything of all machines to go", func() string {
		if diff := cmp.Diff(want, s.calicoDump()); diff != "" {
			return diff + "\nits log:\n" + tail(process)
		}
		return ""
	})
	process.Stop()
}

// calicoDump is the datastore without ClusterInformation, on which the product records the cluster, and without what tests write.
func (s *site) calicoDump() map[string]string {
	s.t.Helper()
	dump := s.etcd.Dump(s.t)
	delete(dump, clusterInformationKey)
	delete(dump, "/e2e/all-the-time")
	return dump
}

// Readiness follows both servers, down and up.
func TestReadinessFollowsTheServers(t *testing.T) {
	t.Parallel()
	s := newSite(t, controlplane.Shared(t), "readiness")
	s.addNode("stays")
	s.install("stays", 1, 1)
	through := s.interpose()
	address := freeAddress(t)
	process := s.start(through, "--health-probe-bind-address", address)
	expect := func(when string, want int) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("readiness %d %s", want, when), func() string {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err.Error() + "; the log:\n" + tail(process)
			}
			defer response.Body.Close()
			if response.StatusCode != want {
				return fmt.Sprintf("it is %d; the log:\n%s", response.StatusCode, tail(process))
			}
			return ""
		})
	}
	expect("at first", http.StatusOK)
	for _, end := range map[string]func(){"killed": s.etcd.Kill, "shut down": s.etcd.Stop} {
		end()
		expect("without etcd", http.StatusInternalServerError)
		s.etcd.Restart(t)
		expect("with etcd again", http.StatusOK)
	}
	through.KubernetesAway.Store(true)
	expect("without the API server", http.StatusInternalServerError)
	through.KubernetesAway.Store(false)
	expect("with the API server again", http.StatusOK)
	process.Stop()
}
