// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// leftoverStage is a stage whose machines are Ready, with kubelets that renew their Leases, and of whose pods "a" exists and "b" does not.
type leftoverStage struct {
	*stage
	store   LeftoverStore
	journal *recordingJournal
	ready   map[string]bool // machines whose kubelet is at work
}

// recordingJournal keeps entries in memory, and calls before each.
type recordingJournal struct {
	mu      sync.Mutex
	entries []Entry
	before  func()
}

func (j *recordingJournal) Record(_ context.Context, entry Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.before != nil {
		j.before()
	}
	j.entries = append(j.entries, entry)
	return nil
}

func newLeftoverStage(t *testing.T) *leftoverStage {
	t.Helper()
	s := &leftoverStage{stage: newStage(t, 0), journal: &recordingJournal{}, ready: map[string]bool{}}
	s.stage.api.AllowPods(t, "default", "default")
	s.store = s.stage.store
	for _, machine := range []string{"1", "2"} {
		s.join(machine)
		s.work(machine)
		s.createPod(podOn(s.name(machine), "a"))
	}
	s.config.AlsoRemove = []nodesync.ResourceKind{nodesync.KindPodLeftovers}
	return s
}

// work makes a machine Ready.
func (s *leftoverStage) work(machine string) {
	s.t.Helper()
	s.ready[machine] = true
	nodes := s.api.Client.CoreV1().Nodes()
	node, err := nodes.Get(s.t.Context(), s.name(machine), metav1.GetOptions{})
	if err == nil {
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.clock.Now()),
		}}
		_, err = nodes.UpdateStatus(s.t.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// beat renews the Leases of kubelets that are at work.
func (s *leftoverStage) beat() {
	s.t.Helper()
	leases := s.api.Client.CoordinationV1().Leases(leaseNamespace)
	for machine, ready := range s.ready {
		if !ready {
			continue
		}
		now := metav1.NewMicroTime(s.clock.Now())
		lease, err := leases.Get(s.t.Context(), s.name(machine), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: s.name(machine)}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
			_, err = leases.Create(s.t.Context(), lease, metav1.CreateOptions{})
			s.t.Cleanup(func() { _ = leases.Delete(context.Background(), s.name(machine), metav1.DeleteOptions{}) })
		case err == nil:
			lease.Spec.RenewTime = &now
			_, err = leases.Update(s.t.Context(), lease, metav1.UpdateOptions{})
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *leftoverStage) createPod(pod *corev1.Pod) {
	s.t.Helper()
	pod = pod.DeepCopy()
	pod.UID = ""
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if _, err := s.api.Client.CoreV1().Pods(pod.Namespace).Create(s.t.Context(), pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.deletePod(context.Background(), pod.Namespace, pod.Name) })
}

func (s *leftoverStage) deletePod(ctx context.Context, namespace, name string) {
	now := int64(0)
	err := s.api.Client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
}

func (s *leftoverStage) reconciler() *Reconciler {
	r := s.stage.reconciler()
	r.LeftoverStore, r.LeftoverCluster, r.Journal = s.store, s.cluster, s.journal
	return r
}

// rounds runs rounds for as long, with kubelets that renew their Leases in between.
func (s *leftoverStage) rounds(r *Reconciler, d time.Duration) {
	s.t.Helper()
	for end := s.clock.Now().Add(d); s.clock.Now().Before(end); {
		s.beat()
		next := must.Get(r.pass(s.t.Context())).Or(s.t)
		s.clock.Step(next)
	}
}

// held are what names the pods of a machine: keys of endpoints and handles, and addresses in blocks.
func (s *leftoverStage) held(machine, pod string) (endpoints, handles, addresses int) {
	s.t.Helper()
	p := podOn(s.name(machine), pod)
	for key, value := range s.etcd.Dump(s.t) {
		switch {
		case strings.Contains(key, "/workloadendpoints/") && strings.Contains(value, `"pod":"`+p.Name+`"`):
			endpoints++
		case strings.Contains(key, "/ipam/v2/handle/"+caliconode.HandleID(p)):
			handles++
		case strings.Contains(key, "/assignment/") && strings.Contains(value, caliconode.HandleID(p)):
			addresses++
		}
	}
	return endpoints, handles, addresses
}

func (s *leftoverStage) expectHeld(machine, pod string, want int) {
	s.t.Helper()
	if e, h, a := s.held(machine, pod); e != want || h != want || a != want {
		s.t.Errorf("pod %s of machine %s holds %d endpoints, %d handles and %d addresses, want %d of each", pod, machine, e, h, a, want)
	}
}

// expectReport fails unless the state says why leftovers on the machine wait, and nothing of any other.
func (s *leftoverStage) expectReport(machine, why string) {
	s.t.Helper()
	memory, lately, err := Kept(s.t.Context(), s.state, s.config, s.clock.Now())
	if err != nil || !lately || !slices.Equal(memory.AlsoRemove, s.config.AlsoRemove) {
		s.t.Fatalf("the state: %+v (kept lately: %t), %v", memory, lately, err)
	}
	for _, r := range memory.PodLeftovers {
		if r.Of.Host != s.name(machine) || !strings.Contains(r.Message, why) || !strings.Contains(r.Message, ", found since ") {
			s.t.Errorf("reported is %+v, want why those of %s wait: %s", r, s.name(machine), why)
		}
	}
	if len(memory.PodLeftovers) != 1 {
		s.t.Errorf("reported are %+v", memory.PodLeftovers)
	}
}

func TestLeftoverOfPods(t *testing.T) {
	s := newLeftoverStage(t)
	before := s.etcd.Dump(t)
	reported := s.reconciler()
	reported.Config.AlsoRemove = nil
	s.rounds(reported, 2*time.Hour)
	s.expectUnchanged(withBinding(before, s.etcd.Dump(t)))
	if !slices.ContainsFunc(keysOf(reported.refused), func(r nodesync.Refusal) bool { return r.Gate == nodesync.GatePodLeftovers && r.Of.Host == s.name("1") }) {
		t.Errorf("the leftovers are not reported: %v", reported.refused)
	}

	s.ready["2"] = false // its Node stays Ready, as it does while kube-controller-manager is away
	r := s.reconciler()
	s.rounds(r, 90*time.Minute)
	s.expectReport("2", "its kubelet has not renewed its Lease")
	s.expectHeld("1", "a", 1)
	s.expectHeld("1", "b", 0)
	s.expectHeld("2", "a", 1)
	s.expectHeld("2", "b", 1)
	if n := len(s.journal.entries); n != 1 {
		t.Fatalf("%d entries are journaled, want one for the machine", n)
	}
	entry := s.journal.entries[0]
	if !entry.Leftovers || entry.MachineUID == "" || len(entry.Objects) != 1 || len(entry.Addresses) != 1 || len(entry.Steps) != 2 || entry.Host != s.name("1") {
		t.Errorf("journaled: %+v", entry)
	}

	s.ready["2"] = true
	s.rounds(r, 10*time.Minute)
	s.expectHeld("2", "b", 1) // its kubelet may be taking down what was deleted by force while it was dead
	s.rounds(r, 80*time.Minute)
	s.expectHeld("2", "a", 1)
	s.expectHeld("2", "b", 0)
	s.journal.entries = nil
	s.rounds(r, 90*time.Minute)
	if len(s.journal.entries) > 0 || len(r.memory.Leftovers) > 0 {
		t.Errorf("there is more to do: %+v", r.memory.Leftovers)
	}
}

func keysOf(m map[nodesync.Refusal]bool) (out []nodesync.Refusal) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// withBinding is the first dump with what the first round of a controller writes.
func withBinding(before, after map[string]string) map[string]string {
	const key = "/calico/resources/v3/projectcalico.org/clusterinformations/default"
	before[key] = after[key]
	return before
}

// An endpoint is found by its key alone. One whose value cannot be parsed may be anything: it stays with all that is left on its machine, and the reason is said.
func TestALeftoverThatCannotBeReadStays(t *testing.T) {
	s := newLeftoverStage(t)
	s.ready["2"] = false
	for key, value := range s.etcd.Dump(t) {
		if strings.Contains(key, "/workloadendpoints/") && strings.Contains(value, `"pod":"`+podOn(s.name("1"), "b").Name+`"`) {
			must.Get(s.etcd.Client.Put(t.Context(), key, "newer: "+value)).Or(t)
		}
	}
	r := s.reconciler()
	s.rounds(r, 90*time.Minute)
	s.expectHeld("1", "b", 1)
	if !slices.ContainsFunc(r.memory.Leftovers, func(l nodesync.SeenLeftover) bool { return strings.Contains(l.Held, "cannot be parsed") }) {
		t.Errorf("nothing says why it stays: %+v", r.memory.Leftovers)
	}
}

// dyingStore is a process that is killed before or after its n-th write.
type dyingStore struct {
	LeftoverStore
	writes, dies int
	after        bool
}

var errKilled = errors.New("the process was killed")

func (d *dyingStore) RemoveLeftovers(ctx context.Context, guard calico.Guard, leftovers []calico.Leftover) error {
	d.writes++
	if d.writes > d.dies || d.writes == d.dies && !d.after {
		return errKilled
	}
	if err := d.LeftoverStore.RemoveLeftovers(ctx, guard, leftovers); err != nil || d.writes < d.dies {
		return err
	}
	return errKilled
}

// A process that is killed before or after any write leaves what the next one finds and ends alike.
func TestLeftoverDyingAtAnyWrite(t *testing.T) {
	for _, d := range cases.Sample(t, 1, deathsAt(2)...) {
		t.Run(d.String(), func(t *testing.T) { dieAtLeftover(t, d.write, d.after) })
	}
}

func dieAtLeftover(t *testing.T, n int, after bool) {
	t.Helper()
	s := newLeftoverStage(t)
	s.ready["2"] = false
	store := &dyingStore{LeftoverStore: s.store, dies: n, after: after}
	r := s.reconciler()
	r.LeftoverStore = store
	for range 120 {
		s.beat()
		next := must.Get(r.pass(t.Context())).Or(t)
		if store.writes >= n {
			break
		}
		s.clock.Step(next)
	}
	if store.writes < n {
		t.Fatalf("write %d was never reached", n)
	}
	s.rounds(s.reconciler(), 90*time.Minute)
	s.expectHeld("1", "a", 1)
	s.expectHeld("1", "b", 0)
	s.expectHeld("2", "b", 1)
}

// In the kubernetes datastore an endpoint is its pod, and what is left of one is its address with the handle.
func TestLeftoverInTheKubernetesDatastore(t *testing.T) {
	s := &leftoverStage{stage: newStage(t, 0), journal: &recordingJournal{}, ready: map[string]bool{}}
	s.stage.api.AllowPods(t, "default", "default")
	store := s.openKubernetesDatastore()
	s.store = store
	s.createNode("1")
	s.startCalicoNode("1")
	s.work("1")
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"a", "b"} {
		pod := podOn(s.name("1"), name)
		s.createPod(pod)
		live := must.Get(s.api.Client.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})).Or(t)
		must.Get(s.agents["1"].PodNetwork().Add(t.Context(), live)).Or(t)
		pods[name] = live
	}
	s.deletePod(t.Context(), "default", pods["b"].Name)
	earlier := pods["a"]
	s.deletePod(t.Context(), "default", earlier.Name) // and it comes again, as a pod of a StatefulSet does
	s.createPod(podOn(s.name("1"), "a"))
	var err error
	if pods["a"], err = s.api.Client.CoreV1().Pods("default").Get(t.Context(), earlier.Name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	must.Get(s.agents["1"].PodNetwork().Add(t.Context(), pods["a"])).Or(t)
	r := s.reconciler()
	r.Datastore = store
	r.Config.MinOverlapPercent, r.Config.MaxUnwitnessed, r.Config.MaxLeftovers = 0, 1000, 1000 // what other tests have left is there as well
	handles := func() (a, b bool) {
		for key := range s.custom() {
			a, b = a || key == "ipamhandles "+caliconode.HandleID(pods["a"]), b || key == "ipamhandles "+caliconode.HandleID(pods["b"])
		}
		return a, b
	}
	s.rounds(r, 2*time.Hour)
	if a, b := handles(); !a || !b || slices.ContainsFunc(s.journal.entries, func(e Entry) bool { return e.Leftovers }) {
		t.Errorf("without the flag handles are there: %t of the pod that lives, %t of the one that is gone; journaled: %+v", a, b, s.journal.entries)
	}
	if !slices.ContainsFunc(keysOf(r.refused), func(x nodesync.Refusal) bool { return x.Gate == nodesync.GatePodLeftovers && x.Of.Host == s.name("1") }) {
		t.Errorf("without the flag the leftovers are not reported: %v", r.refused)
	}
	r.Config.AlsoRemove = []nodesync.ResourceKind{nodesync.KindPodLeftovers}
	s.rounds(r, 2*time.Hour)
	if a, b := handles(); !a || b {
		t.Errorf("handles are there: %t of the pod that lives, %t of the one that is gone", a, b)
	}
	if _, there := s.custom()["ipamhandles "+caliconode.HandleID(earlier)]; there {
		t.Error("the handle of an earlier sandbox of the pod that lives is there")
	}
	if n := len(s.journal.entries); n == 0 || len(s.journal.entries[n-1].Addresses) != 2 || s.journal.entries[n-1].MachineUID == "" {
		t.Errorf("journaled: %+v", s.journal.entries)
	}
}
