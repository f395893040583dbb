// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/projectcalico/calico/libcalico-go/lib/options"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func TestCleansUpAfterAMachineThatIsGone(t *testing.T) {
	s := newStage(t, 3)
	want := s.etcd.Dump(t)
	s.join("9")
	r := s.reconciler()
	s.settle(r)
	s.leave("9")
	s.settle(r)
	s.expectUnchanged(want)
}

func TestWaitsForTheGracePeriod(t *testing.T) {
	s := newStage(t, 3)
	r := s.reconciler()
	s.leave("0")
	want := s.etcd.Revision(t)
	for range 4 {
		if _, err := r.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(s.config.Grace / 5)
	}
	if got := s.etcd.Revision(t); got != want {
		t.Errorf("the store moved from revision %d to %d within the grace period", want, got)
	}
}

func TestADryRunWritesNothing(t *testing.T) {
	s := newStage(t, 3)
	s.leave("0")
	r := s.reconciler()
	r.DryRun = true
	var said strings.Builder
	r.Log = funcr.New(func(_, line string) { said.WriteString(line) }, funcr.Options{})
	want := s.etcd.Revision(t)
	var next time.Duration
	for range 5 {
		var err error
		if next, err = r.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(s.config.Grace)
	}
	if next < s.config.Resync {
		t.Errorf("with a removal pending the next round is in %s, want no polling faster than the resync of %s", next, s.config.Resync)
	}
	if got := s.etcd.Revision(t); got != want {
		t.Errorf("the store moved from revision %d to %d", want, got)
	}
	if would := "remove Calico Node " + s.name("0"); !strings.Contains(said.String(), would) || !strings.Contains(said.String(), `"because"="Kubernetes Node `) {
		t.Errorf("the dry run said %q, want every step that it would apply, and why", said.String())
	}
}

// liar is the real cluster with one answer changed.
type liar struct {
	Cluster
	nodes func([]nodesync.KubernetesNode) ([]nodesync.KubernetesNode, error)
	look  func(nodesync.Lookup) nodesync.Lookup
}

func (l liar) ListNodes(ctx context.Context) ([]nodesync.KubernetesNode, error) {
	nodes, err := l.Cluster.ListNodes(ctx)
	if err != nil || l.nodes == nil {
		return nodes, err
	}
	return l.nodes(nodes)
}

func (l liar) LookUp(ctx context.Context, name string) nodesync.Lookup {
	lookup := l.Cluster.LookUp(ctx, name)
	if l.look != nil {
		lookup = l.look(lookup)
	}
	return lookup
}

func TestAListThatIsNotTrueLeadsToNoWrite(t *testing.T) {
	only := func(keep func(nodesync.KubernetesNode) bool) func([]nodesync.KubernetesNode) ([]nodesync.KubernetesNode, error) {
		return func(nodes []nodesync.KubernetesNode) ([]nodesync.KubernetesNode, error) {
			var out []nodesync.KubernetesNode
			for _, n := range nodes {
				if keep(n) {
					out = append(out, n)
				}
			}
			return out, nil
		}
	}
	gone := func(l nodesync.Lookup) nodesync.Lookup { l.Verdict = nodesync.VerdictGone; return l }
	cases := map[string]liar{
		"empty":   {nodes: only(func(nodesync.KubernetesNode) bool { return false })},
		"partial": {nodes: only(func(n nodesync.KubernetesNode) bool { return !strings.HasSuffix(n.Name, "-0") })},
		"failed": {nodes: func([]nodesync.KubernetesNode) ([]nodesync.KubernetesNode, error) {
			return nil, errors.New("the API server is down")
		}},
		// A foreign cluster does not know our machines, in the list or when asked.
		"foreign": {nodes: func([]nodesync.KubernetesNode) ([]nodesync.KubernetesNode, error) {
			return []nodesync.KubernetesNode{{Name: "foreign-1"}, {Name: "foreign-2"}}, nil
		}, look: gone},
		// A token of the wrong tenant sees none of the machines, one after another: plausible "not found" answers, many at once.
		"mass": {nodes: only(func(n nodesync.KubernetesNode) bool { return strings.HasSuffix(n.Name, "-0") }), look: gone},
		"unanswered": {nodes: only(func(n nodesync.KubernetesNode) bool { return !strings.HasSuffix(n.Name, "-0") }),
			look: func(l nodesync.Lookup) nodesync.Lookup {
				l.Verdict, l.Detail = nodesync.VerdictUnknown, "timed out"
				return l
			}},
	}
	s := newStage(t, 6)
	for name, lie := range cases {
		t.Run(name, func(t *testing.T) {
			r := s.reconciler()
			lie.Cluster = s.cluster
			r.Cluster = lie
			want := s.etcd.Revision(t)
			for range 4 {
				if _, err := r.pass(t.Context()); err != nil && name != "failed" {
					t.Fatal(err)
				}
				s.clock.Step(s.config.Grace)
			}
			if got := s.etcd.Revision(t); got != want {
				t.Errorf("the store moved from revision %d to %d", want, got)
			}
		})
	}
}

// interrupted is the real datastore with something happening at the n-th write.
type interrupted struct {
	Datastore
	mu     sync.Mutex
	writes int
	before func(n int) error
	after  func(n int) error
}

func (d *interrupted) around(write func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writes++
	n := d.writes
	if d.before != nil {
		if err := d.before(n); err != nil {
			return err
		}
	}
	if err := write(); err != nil {
		return err
	}
	if d.after != nil {
		return d.after(n)
	}
	return nil
}

func (d *interrupted) AnnotateNode(ctx context.Context, name string, revision int64, annotation, value string) (written int64, err error) {
	err = d.around(func() error {
		written, err = d.Datastore.AnnotateNode(ctx, name, revision, annotation, value)
		return err
	})
	return written, err
}

func (d *interrupted) DeleteHandles(ctx context.Context, handles []calico.Handle) error {
	return d.around(func() error { return d.Datastore.DeleteHandles(ctx, handles) })
}

func (d *interrupted) DeleteEndpoints(ctx context.Context, guard calico.Guard, endpoints []calico.EndpointRef) error {
	return d.around(func() error { return d.Datastore.DeleteEndpoints(ctx, guard, endpoints) })
}

func (d *interrupted) ReleaseAddresses(ctx context.Context, guard calico.Guard, block netip.Prefix, assignments []calico.Assignment) error {
	return d.around(func() error { return d.Datastore.ReleaseAddresses(ctx, guard, block, assignments) })
}

func (d *interrupted) DeleteAffinity(ctx context.Context, guard calico.Guard, block netip.Prefix, revision int64, deleteBlock bool) error {
	return d.around(func() error { return d.Datastore.DeleteAffinity(ctx, guard, block, revision, deleteBlock) })
}

func (d *interrupted) DeleteResource(ctx context.Context, guard calico.Guard, kind, name string, revision int64) error {
	return d.around(func() error { return d.Datastore.DeleteResource(ctx, guard, kind, name, revision) })
}

func (d *interrupted) DeleteNode(ctx context.Context, guard calico.Guard) error {
	return d.around(func() error { return d.Datastore.DeleteNode(ctx, guard) })
}

// writesOfOneMachine is how many writes cleaning up one machine of a stage takes: fence, endpoints, addresses, affinity, Felix, Node.
const writesOfOneMachine = 6

func TestDyingBeforeOrAfterAnyWriteEndsAlike(t *testing.T) {
	s := newStage(t, 3)
	want := s.etcd.Dump(t)
	errDied := errors.New("the process was killed")
	for _, d := range cases.Sample(t, 4, deathsAt(writesOfOneMachine)...) {
		t.Run(d.String(), func(t *testing.T) {
			s.join("9")
			first := s.reconciler()
			s.settle(first)
			store := &interrupted{Datastore: s.store}
			// A process that is killed writes nothing more: the rest of the plan is refused as well.
			died := false
			die := func(write int) error {
				if write >= d.write {
					died = true
					return errDied
				}
				return nil
			}
			if d.after {
				store.after = die
			} else {
				store.before = die
			}
			first.Datastore = store
			s.leave("9")
			for range 3 {
				if died {
					break
				}
				if _, err := first.pass(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.clock.Step(s.config.Grace)
			}
			if !died {
				t.Fatalf("write %d was never reached: only %d writes were made", d.write, store.writes)
			}
			s.settle(s.reconciler())
			s.expectUnchanged(want)
		})
	}
}

// death is where a process is killed: before or after one of its writes.
type death struct {
	write int
	after bool
}

// String is such as "before write 1".
func (d death) String() string {
	if d.after {
		return fmt.Sprintf("after write %d", d.write)
	}
	return fmt.Sprintf("before write %d", d.write)
}

// deathsAt are all deaths of a process that makes so many writes.
func deathsAt(writes int) (out []death) {
	for write := range writes {
		out = append(out, death{write + 1, false}, death{write + 1, true})
	}
	return out
}

func TestARejoinBeforeAnyWriteKeepsWhatIsLeft(t *testing.T) {
	var writes []int
	for n := range writesOfOneMachine {
		writes = append(writes, n+1)
	}
	for _, n := range cases.Sample(t, 2, writes...) {
		t.Run(string(rune('0'+n)), func(t *testing.T) {
			s := newStage(t, 3)
			r := s.reconciler()
			s.settle(r)
			s.leave("0")
			var kept map[string]string
			store := &interrupted{Datastore: s.store}
			store.before = func(write int) error {
				if write == n {
					s.rejoin("0")
					kept = s.etcd.Dump(t)
				}
				return nil
			}
			r.Datastore = store
			s.settle(r)
			if kept == nil {
				t.Fatalf("write %d was never reached", n)
			}
			got := s.etcd.Dump(t)
			node := "/calico/resources/v3/projectcalico.org/nodes/" + s.name("0")
			if strings.Contains(got[node], nodesync.FenceAnnotation) {
				t.Errorf("the fence is still there: %s", got[node])
			}
			if got[node] == "" {
				t.Errorf("the Calico Node of the machine that is back was removed")
			}
			delete(got, node)
			delete(kept, node)
			if !maps.Equal(kept, got) {
				t.Errorf("something was removed after the machine was back: had %d keys, has %d", len(kept), len(got))
			}
		})
	}
}

// rejoin is a kubelet that registers again and a calico-node that starts.
func (s *stage) rejoin(machine string) {
	s.t.Helper()
	s.createNode(machine)
	s.startCalicoNode(machine)
}

func TestTwoLeadersEndAlike(t *testing.T) {
	s := newStage(t, 4)
	want := s.etcd.Dump(t)
	for _, machine := range []string{"8", "9"} {
		s.join(machine)
	}
	a, b := s.reconciler(), s.reconciler()
	for _, r := range []*Reconciler{a, b} {
		s.settle(r)
	}
	s.leave("8")
	s.leave("9")
	for range 12 {
		var both sync.WaitGroup
		for _, r := range []*Reconciler{a, b} {
			both.Go(func() {
				if _, err := r.pass(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		s.clock.Step(s.config.Grace)
	}
	s.expectUnchanged(want)
}

func TestADatastoreBelongsToOneCluster(t *testing.T) {
	s := newStage(t, 3)
	info, err := s.calico.Client().ClusterInformation().Get(t.Context(), "default", options.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if uid, err := s.cluster.UID(t.Context()); err != nil || uid == "" || info.Annotations[nodesync.BindingAnnotation] != uid {
		t.Fatalf("the recorded cluster: got %q, want %q (%v)", info.Annotations[nodesync.BindingAnnotation], uid, err)
	}
	info.Annotations[nodesync.BindingAnnotation] = "another cluster's"
	if _, err := s.calico.Client().ClusterInformation().Update(t.Context(), info, options.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	s.leave("0")
	want := s.etcd.Revision(t)
	r := s.reconciler()
	for range 4 {
		if _, err := r.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(s.config.Grace)
	}
	if got := s.etcd.Revision(t); got != want {
		t.Errorf("the store moved from revision %d to %d", want, got)
	}
}

func TestNothingIsWrittenWhenNothingChanges(t *testing.T) {
	s := newStage(t, 3)
	r := s.reconciler()
	s.settle(r)
	want := s.etcd.Revision(t)
	for range 5 {
		if _, err := r.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.clock.Step(s.config.Resync)
	}
	if got := s.etcd.Revision(t); got != want {
		t.Errorf("the store moved from revision %d to %d", want, got)
	}
}
