// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// flat is a cluster with machines and pods, and what Calico's datastore holds under the names of pods.
type flat struct {
	now      time.Time
	machines map[string]*flatMachine
	pods     map[string]string      // "namespace/name" of pods that are alive, and their machine
	held     map[Leftover]time.Time // and since when its pod is gone, the zero time if it is not
	memory   Memory
	swept    time.Time
	config   Config
	confirm  string
	sequence uint64
	lookups  int // of pods
}

type flatMachine struct {
	ready, keep, working bool
	renewed              time.Time
	stopped, back        time.Time // when the kubelet stopped, and came back
	readySince           time.Time
}

func newFlat(machines ...string) *flat {
	c := DefaultConfig()
	c.AlsoRemove = []ResourceKind{KindPodLeftovers}
	f := &flat{now: start, machines: map[string]*flatMachine{}, pods: map[string]string{"kube-system/dns": "other"}, held: map[Leftover]time.Time{}, config: c}
	for _, name := range machines {
		f.machines[name] = &flatMachine{ready: true, working: true, renewed: start, readySince: start.Add(-time.Hour)}
	}
	return f
}

// run starts a pod with an address and an endpoint.
func (f *flat) run(machine, name string) {
	f.sequence++
	f.pods["default/"+name] = machine
	block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(f.sequence >> 6), 0}), 26)
	address := netip.AddrFrom4([4]byte{10, 0, byte(f.sequence >> 6), byte(f.sequence & 63)})
	f.held[Leftover{
		Host: machine, Namespace: "default", Pod: name, Block: block,
		Reservation: Reservation{Address: address, Handle: fmt.Sprintf("net.%d", f.sequence), Sequence: f.sequence},
	}] = time.Time{}
	f.held[Leftover{
		Host: machine, Namespace: "default", Pod: name, Endpoint: EndpointRef{Namespace: "default", Name: machine + "-k8s-" + name, Revision: int64(f.sequence)},
	}] = time.Time{}
}

// vanish deletes a pod, and leaves what it held.
func (f *flat) vanish(name string) {
	delete(f.pods, "default/"+name)
	for l := range f.held {
		if l.Pod == name {
			f.held[l] = f.now
		}
	}
}

func (f *flat) pass(d time.Duration) {
	f.now = f.now.Add(d)
	for _, m := range f.machines {
		if m.working {
			m.renewed = f.now
		}
	}
}

// world is what a round observes, with a sweep when it is time.
func (f *flat) world() World {
	w := World{
		Now: f.now, Memory: f.memory, Confirmation: f.confirm, Kubernetes: Kubernetes{Synced: true, ClusterUID: "u"},
		Calico: Calico{Ready: true, Binding: Binding{ClusterUID: "u"}},
	}
	for _, name := range slices.Sorted(maps.Keys(f.machines)) {
		w.Calico.Nodes = append(w.Calico.Nodes, CalicoNode{Name: name, Revision: 7, OrchRefs: []OrchRef{{OrchestratorKubernetes, name}}, Keep: f.machines[name].keep})
		w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: name, UID: "uid-" + name})
	}
	if f.swept.IsZero() || f.now.Sub(f.swept) >= f.config.SweepPeriod {
		f.swept, w.Calico.PodsSwept, w.Calico.AlivePods, w.Calico.Holdings = f.now, true, len(f.pods), len(f.held)
		for l := range f.held {
			if _, alive := f.pods[l.Namespace+"/"+l.Pod]; !alive {
				w.Calico.Leftovers = append(w.Calico.Leftovers, l)
			}
		}
	}
	for _, node := range MakePlan(w, f.config).Needs.Heartbeats {
		m := f.machines[node]
		w.Kubernetes.Heartbeats = append(w.Kubernetes.Heartbeats, Heartbeat{
			Node: node, UID: "uid-" + node, Ready: m.ready, ReadySince: m.readySince, Renewed: m.renewed,
		})
	}
	for _, pod := range MakePlan(w, f.config).Needs.Pods {
		f.lookups++
		verdict := VerdictGone
		if _, alive := f.pods[pod[0]+"/"+pod[1]]; alive {
			verdict = VerdictAlive
		}
		w.Kubernetes.Pods = append(w.Kubernetes.Pods, PodLookup{Namespace: pod[0], Name: pod[1], Verdict: verdict})
	}
	return w
}

// round plans, applies what holds, and returns the plan.
func (f *flat) round() Plan {
	p := MakePlan(f.world(), f.config)
	f.memory = p.Memory
	for _, s := range p.Steps {
		step, ok := s.(RemoveLeftovers)
		if !ok {
			continue
		}
		failed := ""
		for _, l := range step.Leftovers {
			if _, there := f.held[l]; !there {
				failed = "changed meanwhile"
			}
		}
		if failed == "" {
			for _, l := range step.Leftovers {
				delete(f.held, l)
			}
		}
		f.memory, _ = f.memory.LeftoversTried(step, failed, f.now, f.now, f.config)
	}
	return p
}

// settle runs rounds for as long, with the time that they ask for in between.
func (f *flat) settle(d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); {
		f.pass(f.round().Next)
	}
}

// untilSteps runs rounds until one has steps, which must take as long at least, and not much longer.
func (f *flat) untilSteps(t *testing.T, atLeast time.Duration) Plan {
	t.Helper()
	for begin := f.now; ; {
		p := f.round()
		switch took := f.now.Sub(begin); {
		case len(p.Steps) > 0 && took < atLeast:
			t.Fatalf("after %s, want %s at least:\n%s", took, atLeast, p)
		case len(p.Steps) > 0:
			return p
		case took > atLeast+10*time.Minute:
			t.Fatalf("nothing after %s:\n%s", took, p)
		}
		f.pass(p.Next)
	}
}

func TestANodeThatDoesNotSaySinceWhenItIsReady(t *testing.T) {
	t.Parallel()
	f := newFlat("a")
	f.machines["a"].readySince = time.Time{}
	f.run("a", "gone")
	f.vanish("gone")
	if f.settle(3 * time.Hour); len(f.held) != 2 {
		t.Errorf("removed: %v", f.held)
	}
}

func stepped(p Plan) (out []Leftover) {
	for _, s := range p.Steps {
		if step, ok := s.(RemoveLeftovers); ok {
			out = append(out, step.Leftovers...)
		}
	}
	return out
}

func TestLeftoversGoAfterTwoSweeps(t *testing.T) {
	t.Parallel()
	f := newFlat("a", "b")
	f.run("a", "lives")
	f.run("a", "gone")
	f.vanish("gone")
	if p := f.round(); len(p.Steps) > 0 || p.Leftovers != 2 || !strings.Contains(p.String(), "1 address and 1 endpoint of pods that are gone, such as") {
		t.Fatalf("after one sweep:\n%s", p)
	}
	f.pass(f.config.SweepPeriod)
	if p := f.round(); len(p.Steps) > 0 || !strings.Contains(p.String(), "the next check shows whether its kubelet renews its Lease") {
		t.Fatalf("after two sweeps and one look at the kubelet:\n%s", p)
	}
	f.pass(firstHold)
	if p := f.round(); len(p.Steps) > 0 || !strings.Contains(p.String(), "its kubelet has not been seen to renew its Lease for 15m0s") {
		t.Fatalf("after two looks at the kubelet:\n%s", p)
	}
	p := f.untilSteps(t, 15*time.Minute)
	if want := "a: two sweeps found them, a live read finds none of the pods there, and Kubernetes Node a has been Ready for long and its kubelet renews its Lease\n" +
		"  1. remove 1 workload endpoint of pods that are gone on a: default/a-k8s-gone\n" +
		"  2. release 1 address of pods that are gone on a: 10.0.0.2 (default/gone)\n"; p.String() != want {
		t.Fatalf("after two looks: got\n%swant\n%s", p, want)
	}
	if f.settle(3 * time.Hour); len(f.held) != 2 || len(f.memory.Leftovers) != 0 {
		t.Errorf("held are %v", f.held)
	}
}

func TestLeftoversAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(f *flat)
		want   string
	}{
		{"by default", func(f *flat) { f.config.AlsoRemove = nil }, "a controller with --also-remove=PodLeftovers removes them"},
		{"once", func(f *flat) { f.config.OneShot = true }, "the controller removes them when two sweeps, at least 15m0s apart, have found them; a command makes only one"},
		{"kept", func(f *flat) { f.machines["a"].keep = true }, "annotation nodes.mooring.dev/keep forbids removing it"},
		{"not Ready", func(f *flat) { f.machines["a"].ready = false }, "its Kubernetes Node is not Ready"},
		{"the kubelet is dead and the Node Ready", func(f *flat) { f.machines["a"].working = false }, "its kubelet has not renewed its Lease between two checks"},
		{"no pod at all", func(f *flat) { clear(f.pods) }, "Kubernetes lists no pod at all"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFlat("a", "b")
			f.run("a", "gone")
			f.vanish("gone")
			test.change(f)
			seen := ""
			for range 200 {
				p := f.round()
				if seen += p.String(); len(stepped(p)) > 0 {
					t.Fatalf("removed:\n%s", p)
				}
				f.pass(p.Next)
			}
			if !strings.Contains(seen, test.want) {
				t.Errorf("got\n%s\nwant in it %s", f.round(), test.want)
			}
		})
	}
}

// Why a leftover waits now, and since when it is known, is in the memory for anyone who looks, together with what the
// controller removes of its own accord.
func TestWhyALeftoverWaitsIsReported(t *testing.T) {
	t.Parallel()
	f := newFlat("a", "b")
	f.run("a", "gone")
	f.vanish("gone")
	since := ", found since " + start.Format(time.RFC3339)
	expect := func(p Plan, want string) {
		t.Helper()
		text := must.Get(json.Marshal(p.Memory)).Or(t)
		var kept Memory
		must.Do(t, json.Unmarshal(text, &kept))
		if !slices.Equal(kept.AlsoRemove, f.config.AlsoRemove) || len(kept.PodLeftovers) != 1 || !strings.HasSuffix(kept.PodLeftovers[0].Message, want) {
			t.Fatalf("reported %v %+v, want %s", kept.AlsoRemove, kept.PodLeftovers, want)
		}
		if strings.Contains(kept.PodLeftovers[0].Message, "--also-remove") {
			t.Errorf("it advises to set a flag that is set: %s", kept.PodLeftovers[0].Message)
		}
	}
	expect(f.round(), ": they are removed if another sweep, at least 15m0s later, finds them unchanged")
	f.machines["a"].ready = false
	f.pass(f.config.SweepPeriod)
	expect(f.round(), since+": its Kubernetes Node is not Ready")
	f.machines["a"].ready, f.machines["a"].readySince = true, f.now
	f.pass(time.Minute)
	p := f.round()
	expect(p, since+": its Kubernetes Node has not been Ready for 15m0s: its kubelet may still take pods down")
	if f.settle(3 * time.Hour); len(f.held) != 0 || len(f.memory.PodLeftovers) != 0 {
		t.Errorf("held are %v, reported %v", f.held, f.memory.PodLeftovers)
	}

	// A command that looks once says what the controller says, of what it finds itself or cannot look for.
	of := func(host, message string) Refusal {
		return Refusal{Of: Subject{Host: host, Leftovers: true}, Gate: GatePodLeftovers, Message: message}
	}
	other := Refusal{Of: Subject{Host: "z"}, Gate: GateGrace, Message: "absent"}
	for name, test := range map[string]struct{ own, reported, want []Refusal }{
		"the same machine":     {[]Refusal{of("a", "one sweep"), other}, []Refusal{of("a", "not Ready"), of("a", "no Lease")}, []Refusal{other, of("a", "not Ready"), of("a", "no Lease")}},
		"found just now":       {[]Refusal{of("a", "one sweep")}, []Refusal{of("b", "not Ready")}, []Refusal{of("a", "one sweep")}},
		"removed since":        {[]Refusal{other}, []Refusal{of("a", "not Ready")}, []Refusal{other}},
		"it may not list pods": {[]Refusal{of("pod leftovers", LeftoversNotSought+": forbidden")}, []Refusal{of("a", "not Ready")}, []Refusal{of("pod leftovers", LeftoversNotSought+": forbidden"), of("a", "not Ready")}},
	} {
		if got := (Plan{Refusals: test.own}).WithReport(test.reported).Refusals; !slices.Equal(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

// What may be a static pod's stays: the API server does not know one whose mirror it refuses.
func TestLeftoversOfStaticPodsStay(t *testing.T) {
	t.Parallel()
	f := newFlat("a")
	f.run("a", "proxy-a")
	f.vanish("proxy-a")
	if f.settle(3 * time.Hour); len(f.held) != 2 {
		t.Errorf("held are %v", f.held)
	}
}

// More than the guard lets pass wait for a person, under a hash that stays while others come and go, and that is good for those alone.
func TestManyLeftoversWaitForAPerson(t *testing.T) {
	t.Parallel()
	f := newFlat("a", "b")
	for i := range 40 {
		f.run("a", fmt.Sprintf("gone-%d", i))
	}
	for i := range 40 {
		f.vanish(fmt.Sprintf("gone-%d", i))
	}
	f.settle(2 * time.Hour)
	waits := f.memory.AwaitingLeftovers
	if len(f.held) != 80 || waits.Count != 80 || waits.Gate != GateLeftoverGuard || len(waits.Items) != mostAwaiting || len(waits.Hash) != 12 {
		t.Fatalf("held are %d, waiting %+v", len(f.held), waits)
	}
	f.run("b", "late")
	f.vanish("late")
	f.settle(2 * time.Hour)
	if f.memory.AwaitingLeftovers.Hash != waits.Hash || f.memory.Awaiting.Hash != "" {
		t.Fatalf("another hash waits: %+v", f.memory.AwaitingLeftovers)
	}
	f.confirm = waits.Confirmation(f.now.Add(time.Hour))
	f.settle(30 * time.Minute)
	// The two that came later are few enough for the guard by themselves.
	if f.settle(2 * time.Hour); len(f.held) != 0 || f.memory.AwaitingLeftovers.Hash != "" {
		t.Errorf("after the confirmation: held are %d, waiting %+v", len(f.held), f.memory.AwaitingLeftovers)
	}
}

// What was planned and failed does not use up what the guard lets pass.
func TestFailedAttemptsDoNotCount(t *testing.T) {
	t.Parallel()
	f := newFlat("a")
	f.run("a", "gone")
	f.vanish("gone")
	f.round()
	f.pass(f.config.SweepPeriod)
	f.round()
	for range 14 {
		f.pass(beatAgain)
		f.round()
	}
	f.pass(beatAgain)
	f.round()
	f.pass(beatAgain)
	p := MakePlan(f.world(), f.config)
	if len(p.Steps) != 2 || len(p.Memory.LeftoverRemovals) != 1 || p.Memory.LeftoverRemovals[0].Count != 2 {
		t.Fatalf("got\n%s%+v", p, p.Memory.LeftoverRemovals)
	}
	m := p.Memory
	for _, s := range p.Steps {
		m, _ = m.LeftoversTried(s.(RemoveLeftovers), "the datastore is locked", f.now, f.now, f.config)
	}
	if m.LeftoverRemovals[0].Count != 0 || len(m.Leftovers) != 2 || m.Leftovers[0].Held != "the datastore is locked" {
		t.Errorf("got %+v", m)
	}
}

// drawFlat is a story of sweeps, pods and machines, at the moment of a plan.
func drawFlat(t *rapid.T, check func(f *flat, p Plan)) *flat {
	f := newFlat("a", "b", "c")
	f.config.MaxLeftovers = rapid.SampledFrom([]int{2, 50}).Draw(t, "limit")
	f.config.MaxLeftoversPercent = 0
	for i := range rapid.IntRange(1, 40).Draw(t, "turns") {
		machine := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "machine")
		pod := fmt.Sprintf("p%d", rapid.IntRange(0, 5).Draw(t, "pod"))
		switch rapid.IntRange(0, 8).Draw(t, "what") {
		case 0, 1:
			f.run(machine, pod)
		case 2, 3:
			f.vanish(pod)
		case 4:
			f.machines[machine].ready, f.machines[machine].readySince = !f.machines[machine].ready, f.now
		case 5:
			if m := f.machines[machine]; m.working {
				m.working, m.stopped = false, f.now
			} else {
				m.working, m.back = true, f.now
			}
		case 6:
			f.machines[machine].keep = rapid.Bool().Draw(t, "keep")
		case 7:
			f.confirm = f.memory.AwaitingLeftovers.Confirmation(f.now.Add(time.Hour))
		default:
			f.pods["default/"+pod] = machine // it is back, under the same name
			for l := range f.held {
				if l.Pod == pod {
					f.held[l] = time.Time{}
				}
			}
		}
		_ = i
		p := f.round()
		check(f, p)
		f.pass(rapid.SampledFrom([]time.Duration{p.Next, p.Next, f.config.SweepPeriod, time.Second}).Draw(t, "time"))
	}
	return f
}

// Whatever happens: what goes is gone for as long as two sweeps are apart, on a machine that is Ready, not to be kept and whose kubelet was
// at work lately; never more than the guard lets pass without a confirmation, and never more in a round than its bound.
func TestLeftoversLaws(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		var unconfirmed []LeftoverRemoval
		drawFlat(t, func(f *flat, p Plan) {
			going := stepped(p)
			if len(going) > leftoversPerRound {
				t.Fatalf("%d in one round", len(going))
			}
			removed := 0
			for _, s := range p.Steps {
				step := s.(RemoveLeftovers)
				m := f.machines[step.Of.Host]
				if !m.ready || m.keep || step.NodeUID != "uid-"+step.Of.Host || step.Revision != 7 || len(step.Leftovers) > leftoversPerStep {
					t.Fatalf("%s: machine %+v", step, m)
				}
				if !m.working && f.now.Sub(m.stopped) > beatWindow+provenLife {
					t.Fatalf("%s: its kubelet stopped at %s, it is %s", step, m.stopped, f.now)
				}
				if f.now.Sub(m.readySince) < f.config.LeftoverAge {
					t.Fatalf("%s: it is Ready since %s, it is %s", step, m.readySince, f.now)
				}
				if m.back.Sub(m.stopped) > 2*beatWindow && f.now.Sub(m.back) < f.config.LeftoverAge {
					t.Fatalf("%s: its kubelet was away from %s to %s, it is %s", step, m.stopped, m.back, f.now)
				}
				for _, l := range step.Leftovers {
					if _, alive := f.pods[l.Namespace+"/"+l.Pod]; alive || l.Host != step.Of.Host {
						t.Fatalf("%s lives, or is of another machine than %s", l, step.Of.Host)
					}
				}
			}
			for _, l := range f.memory.LeftoverRemovals {
				if l.At.Equal(f.now) {
					removed = l.Count
				}
			}
			unconfirmed = append(unconfirmed, LeftoverRemoval{f.now, removed})
			sum := 0
			for _, r := range unconfirmed {
				if f.now.Sub(r.At) < f.config.MassWindow {
					sum += r.Count
				}
			}
			if sum > f.config.MaxLeftovers {
				t.Fatalf("%d went within the window, the guard lets %d pass", sum, f.config.MaxLeftovers)
			}
		})
	})
}

// When nothing happens any more and the limits allow it, all that can go is gone soon, and then there is nothing more to do.
func TestLeftoversConverge(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		f := drawFlat(t, func(*flat, Plan) {})
		f.config.MaxLeftovers = 1000
		for _, m := range f.machines {
			m.ready, m.working, m.keep = true, true, false
		}
		f.settle(6 * time.Hour)
		for l := range f.held {
			if _, alive := f.pods[l.Namespace+"/"+l.Pod]; !alive {
				t.Fatalf("%s is still there; the plan is\n%s", l, f.round())
			}
		}
		f.pass(f.config.SweepPeriod)
		if p := f.round(); len(p.Steps) > 0 || p.Leftovers > 0 {
			t.Fatalf("there is more to do:\n%s", p)
		}
	})
}

// A plan does not depend on the order of what was read, changes nothing of it, and names nothing that no sweep has found.
func TestLeftoversPlanIsAFunction(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		f := drawFlat(t, func(*flat, Plan) {})
		w := f.world()
		before := slices.Clone(w.Memory.Leftovers)
		p := MakePlan(w, f.config)
		known := map[Leftover]bool{}
		for _, l := range p.Memory.Leftovers {
			known[l.Leftover] = true
		}
		for _, l := range stepped(p) {
			if !known[l] {
				t.Fatalf("%s was found by no sweep", l)
			}
		}
		if diff := cmp.Diff(before, w.Memory.Leftovers, exact); diff != "" {
			t.Fatalf("the plan has changed the memory (-before +after):\n%s", diff)
		}
		other := w
		other.Calico.Leftovers, other.Kubernetes.Pods = slices.Clone(w.Calico.Leftovers), slices.Clone(w.Kubernetes.Pods)
		other.Kubernetes.Heartbeats, other.Calico.Nodes = slices.Clone(w.Kubernetes.Heartbeats), slices.Clone(w.Calico.Nodes)
		slices.Reverse(other.Calico.Leftovers)
		slices.Reverse(other.Kubernetes.Pods)
		slices.Reverse(other.Kubernetes.Heartbeats)
		slices.Reverse(other.Calico.Nodes)
		if diff := cmp.Diff(p, MakePlan(other, f.config), exact); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
	})
}
