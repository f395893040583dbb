// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// elected are the flags of a replica that gives up a lease, or takes one over, within seconds.
func elected(more ...string) []string {
	return append([]string{
		"--leader-elect", "--leader-election-lease-duration=4s", "--leader-election-renew-deadline=3s", "--leader-election-retry-period=500ms",
	}, more...)
}

// pair is a leader whose clean-up is held at a write, and a second replica that waits.
type pair struct {
	leader, second *testkit.Process
	trap           *trap
	// behind is the second one's way to the servers; the leader's is the scene's.
	behind      *interposer
	startSecond func()
}

// revive starts the second replica again, as Kubernetes would, if it has ended: on a very busy machine it may lose its lease.
func (p *pair) revive() {
	select {
	case <-p.second.Done():
		p.startSecond()
	default:
	}
}

// newPair holds the leader at its n-th write to etcd. It returns nil when the clean-up ends before.
func (s *scene) newPair(n int, after bool, flags ...string) *pair {
	s.t.Helper()
	s.restore(s.dirty)
	flags = elected(append([]string{"--resync-period=2s"}, flags...)...)
	p := &pair{trap: s.through.Lay(etcdWrites, n, after), behind: s.interpose()}
	p.startSecond = func() { p.second = s.start(p.behind, flags...) }
	seen := s.through.Rounds()
	p.leader = s.start(s.through, flags...)
	testkit.Eventually(s.t, "the first replica to lead", func() string {
		if s.through.Rounds() > seen {
			return ""
		}
		return "its log:\n" + tail(p.leader)
	})
	p.startSecond()
	testkit.Eventually(s.t, "the second replica to wait", func() string {
		if strings.Contains(strings.ToLower(p.second.Output()), "attempting to acquire leader lease") {
			return ""
		}
		return "its log:\n" + tail(p.second)
	})
	if !s.await(p.trap) {
		p.stop()
		return nil
	}
	return p
}

func (p *pair) stop() {
	p.leader.Stop()
	p.second.Stop()
}

// quiet fails unless a replica's log is without errors. That another replica has written the state is none: the next round reads it again.
func (s *scene) quiet(who string, process *testkit.Process) {
	s.t.Helper()
	for line := range strings.Lines(process.Output()) {
		if strings.Contains(line, `configmaps \"calico-node-sync-state\": the object has been modified`) {
			continue
		}
		if strings.Contains(line, `"level":"ERROR"`) || strings.HasPrefix(line, "error: ") {
			s.t.Errorf("the %s logs an error: %s", who, line)
		}
	}
}

func (s *scene) finish(p *pair) {
	s.t.Helper()
	testkit.Eventually(s.t, p.trap.String()+" ("+p.trap.Write+"): the end of the clean-up", func() string {
		p.revive()
		if left := s.unfinished(); left != "" {
			return left + "\nthe log of the first replica:\n" + tail(p.leader) + "\nand of the second:\n" + tail(p.second)
		}
		return ""
	})
}

// Of two replicas one writes, and the other nothing but its attempts at the lease.
func TestOneOfTwoReplicasWrites(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlplane.Shared(t), "replicas")
	p := s.newPair(1, false, "--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s")
	if p == nil {
		t.Fatal("there was nothing to write")
	}
	p.trap.Release(true)
	s.finish(p)
	s.quiet("first replica", p.leader)
	s.quiet("second replica", p.second)
	p.second.Stop() // first, or it would take over
	p.leader.Stop()
	for kind, n := range p.behind.Writes() {
		if kind != "leases" {
			t.Errorf("the second replica made %d writes of kind %s", n, kind)
		}
	}
}

// The leader is killed with signal 9 in the middle of a clean-up; the other replica finishes it.
func TestTheSecondReplicaFinishesWhatADeadLeaderBegan(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlplane.Shared(t), "dead-leader")
	points := 0
	for n := 2; ; n += 3*stride() + 1 {
		p := s.newPair(n, n%2 == 0)
		if p == nil {
			break
		}
		points++
		p.leader.Kill()
		p.trap.Release(false)
		s.finish(p)
		s.quiet("second replica", p.second)
		p.stop()
	}
	t.Logf("%d dead leaders", points)
}

// The leader is suspended in the middle of a clean-up, with a write under way. The other one takes over; in the middle of its clean-up the
// first one wakes, still believing that it leads, and its write arrives.
func TestALeaderThatSleptDoesNoHarm(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlplane.Shared(t), "slept")
	points := 0
	for n := 1; ; n += 3*stride() + 1 {
		p := s.newPair(n, false)
		if p == nil {
			break
		}
		points++
		p.leader.Signal(syscall.SIGSTOP)
		next := p.behind.Lay(etcdWrites, 1+points%2, false)
		if s.awaitIn(p.behind, next) {
			s.wake(p)
			next.Release(true)
		} else {
			s.wake(p)
		}
		s.finish(p)
		s.quiet("second replica", p.second)
		p.stop()
	}
	t.Logf("%d leaders that slept", points)
}

// wake lets the write arrive that was under way, and then its leader go on, and waits until that has noticed that it leads no more.
func (s *scene) wake(p *pair) {
	s.t.Helper()
	p.trap.Release(true)
	<-p.trap.Arrived
	p.leader.Signal(syscall.SIGCONT)
	testkit.Eventually(s.t, "the leader that slept to notice", func() string {
		select {
		case <-p.leader.Done():
			return ""
		default:
			return "its log:\n" + tail(p.leader)
		}
	})
}

// The leader is suspended with a write under way, the machine joins again, and the other replica takes over and withdraws the fence. Then
// the first one wakes, and its write arrives. Not a byte of the machine changes.
func TestALeaderThatSleptDoesNotTouchAMachineThatIsBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlplane.Shared(t), "back")
	points := 0
	for n := 4; ; n += 3*stride() + 1 { // at 4 it removes endpoints, which a start of calico-node does not write: nothing but the fence saves them
		p := s.newPair(n, false)
		if p == nil {
			break
		}
		points++
		p.leader.Signal(syscall.SIGSTOP)
		s.addNode(goes)
		_, err := s.calico.Start(t.Context(), s.host(goes, goesByte))
		s.must(err)
		want := s.withoutLost(s.etcd.Dump(t))
		unchanged := func() string {
			if fenced(s.etcd.Dump(t)[nodePrefix+s.name(goes)]) {
				return "the machine is fenced; the log of the second replica:\n" + tail(p.second)
			}
			return cmp.Diff(want, s.withoutLost(s.etcd.Dump(t)))
		}
		testkit.Eventually(t, "the second replica to take over and leave the machine alone", func() string {
			p.revive()
			if p.behind.Rounds() < 2 {
				return "its log:\n" + tail(p.second)
			}
			return unchanged()
		})
		s.wake(p)
		if diff := unchanged(); diff != "" {
			t.Errorf("%s (%s): the leader that slept did harm:\n%s", p.trap, p.trap.Write, diff)
		}
		s.quiet("second replica", p.second)
		p.stop()
		s.dropNode(goes)
	}
	t.Logf("%d leaders that slept", points)
}

// The product is killed before and after writes of the lease.
func TestKillingItAtWritesOfTheLeaseEndsAlike(t *testing.T) {
	t.Parallel()
	s := newScene(t, controlplane.Shared(t), "lease")
	points := 0
	for n := 1; s.killAt("leases", n, n%2 == 0, elected()...); n += stride() {
		points++
	}
	t.Logf("%d kill points", points)
}
