// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outofservice_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/laws"
)

var start = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// drawMachine draws any machine, most of them near to being set or removed.
func drawMachine(t *rapid.T, id int) outofservice.Machine {
	switch rapid.IntRange(0, 8).Draw(t, "kind") {
	case 0:
		return off(id)
	case 1, 2, 3, 4:
		return ready(id)
	}
	ago := func(label string) time.Time {
		return start.Add(-rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 25 * time.Second, 25 * time.Second, time.Minute, time.Hour}).Draw(t, label))
	}
	states := []outofservice.State{
		outofservice.StateOff, outofservice.StateOff, outofservice.StateGone, outofservice.StateActive, outofservice.StateUnknown, outofservice.StateOther,
	}
	m := outofservice.Machine{
		Node: fmt.Sprintf("n%02d", id), UID: fmt.Sprintf("uid-%d", id), Droplet: id,
		Ready: rapid.IntRange(0, 3).Draw(t, "ready") == 0, State: rapid.SampledFrom(states).Draw(t, "state"), StateAt: ago("said"),
		Ours: rapid.IntRange(0, 4).Draw(t, "ours") == 0, Foreign: rapid.IntRange(0, 6).Draw(t, "foreign") == 0,
	}
	if !m.Ready {
		m.NotReadySince = ago("not ready")
	}
	if rapid.IntRange(0, 5).Draw(t, "lease") > 0 {
		m.Lease = outofservice.Lease{ReadAt: ago("read"), SilentSince: ago("silent")}
		if rapid.Bool().Draw(t, "renewed") {
			m.Lease.RenewedSince = ago("renewed since")
		}
	}
	m.Reports, m.Volumes = !m.Ready && rapid.Bool().Draw(t, "reports"), rapid.Bool().Draw(t, "volumes")
	if rapid.IntRange(0, 3).Draw(t, "proof") > 0 {
		m.Proof = outofservice.Proof{State: rapid.SampledFrom(states).Draw(t, "answer")}
		first, last := ago("first"), ago("last")
		if last.Before(first) {
			first, last = last, first
		}
		m.Proof.First, m.Proof.Last = first, last
	}
	return m
}

func drawWorld(t *rapid.T) outofservice.World {
	w := outofservice.World{Now: start, Enabled: rapid.IntRange(0, 5).Draw(t, "enabled") > 0}
	if rapid.IntRange(0, 8).Draw(t, "distrust") == 0 {
		w.Distrust = "the token is one of another account"
	}
	ids := rapid.SliceOfNDistinct(rapid.IntRange(1, 40), 0, 24, rapid.ID[int]).Draw(t, "machines")
	for _, id := range ids {
		w.Machines = append(w.Machines, drawMachine(t, id))
	}
	for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(1, 40), 0, 3, rapid.ID[int]).Draw(t, "intents") {
		w.Memory.Intents = append(w.Memory.Intents, outofservice.Intent{
			Node: fmt.Sprintf("n%02d", id), UID: fmt.Sprintf("uid-%d", id),
			At: start.Add(-rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "intent")),
		})
	}
	return w
}

// apply is the world after a step.
func apply(w outofservice.World, step outofservice.Step) outofservice.World {
	w.Machines = slices.Clone(w.Machines)
	_, uid := step.On()
	for i := range w.Machines {
		if m := &w.Machines[i]; m.UID == uid {
			_, m.Ours = step.(outofservice.SetTaint)
		}
	}
	return w
}

// round is the world a while later, when all that was to be read has been and nothing else has changed.
func round(w outofservice.World, p outofservice.Plan, pass time.Duration) outofservice.World {
	w.Memory = p.Memory
	for _, step := range p.Steps {
		w = apply(w, step)
	}
	w.Machines = slices.Clone(w.Machines)
	w.Now = w.Now.Add(pass)
	for i := range w.Machines {
		m := &w.Machines[i]
		if !m.Lease.SilentSince.IsZero() {
			m.Lease.ReadAt = w.Now
		}
		if slices.Contains(slices.Concat(p.Ask, p.AskLater), m.Droplet) && m.State != outofservice.StateUnknown {
			m.Proof, m.StateAt = m.Proof.Add(m.State, w.Now), w.Now
		}
	}
	return w
}

const pass = 5 * time.Second

// settle plans and applies until nothing has changed for longer than any proof is young.
func settle(t *rapid.T, w outofservice.World, c outofservice.Config) outofservice.World {
	quiet := 0
	for range 200 {
		p := outofservice.MakePlan(w, c)
		if quiet++; len(p.Steps) > 0 {
			quiet = 0
		}
		if quiet > 40 {
			return w
		}
		w = round(w, p, pass)
	}
	t.Fatalf("there is a step after 200 rounds: %v", outofservice.MakePlan(w, c).Steps)
	return w
}

// withoutReturns is a world without our taint on active droplets: when such a taint is removed, the machine is back, and the set is another one.
func withoutReturns(w outofservice.World) outofservice.World {
	for i := range w.Machines {
		m := &w.Machines[i]
		m.Ours = m.Ours && m.State != outofservice.StateActive
	}
	return w
}

// Safe: a taint is set only with all the proof there must be, and within the guard's bound.
func TestSafe(t *testing.T) {
	t.Parallel()
	seen := 0
	cases.Check(t, func(t *rapid.T) {
		w, c := drawWorld(t), outofservice.DefaultConfig()
		w.Machines = append(w.Machines, off(50))
		confirmed := confirm(t, &w, c)
		p := outofservice.MakePlan(w, c)
		out := 0
		for _, m := range w.Machines {
			if m.Ours {
				out++
			}
		}
		for _, step := range p.Steps {
			i := slices.IndexFunc(w.Machines, func(m outofservice.Machine) bool { _, uid := step.On(); return m.UID == uid })
			m := w.Machines[i]
			if _, remove := step.(outofservice.RemoveTaint); remove {
				alive := m.Reports && !m.Volumes && w.Now.Sub(m.Lease.RenewedSince) >= c.Grace && w.Now.Sub(m.Lease.SilentSince) < c.Grace && w.Now.Sub(m.StateAt) < c.ProofAge
				if !m.Ours || !m.Ready && !alive || m.State != outofservice.StateActive || w.Distrust != "" {
					t.Errorf("%s, of %+v", step, m)
				}
				continue
			}
			seen, out = seen+1, out+1
			if !w.Enabled || w.Distrust != "" || m.Ready || m.Ours || m.Foreign || !m.State.Out() || m.Proof.State != m.State ||
				m.Proof.Last.Sub(m.Proof.First) < c.ProofGap || w.Now.Sub(m.Proof.Last) > c.ProofAge || m.Proof.Last.Before(m.NotReadySince) ||
				w.Now.Sub(m.Lease.SilentSince) < c.Grace || w.Now.Sub(m.Lease.ReadAt) > c.LeaseAge || m.Lease.SilentSince.IsZero() {
				t.Errorf("%s, of %+v", step, m)
			}
			if !slices.ContainsFunc(p.Memory.Intents, func(i outofservice.Intent) bool { return i.UID == m.UID && i.At.Equal(w.Now) }) {
				t.Errorf("%s, and the memory has %+v", step, p.Memory)
			}
			if allowed := c.Allowance(len(w.Machines)); out > allowed && !confirmed {
				t.Errorf("%d of %d machines are out of service", out, len(w.Machines))
			}
		}
		if p.Awaiting.Hash == "" && p.Awaiting.Count > 0 || p.Awaiting.Count == 0 && p.Awaiting.Hash != "" {
			t.Errorf("%+v", p.Awaiting)
		}
	})
	if seen == 0 {
		t.Error("no world had a machine out of service: the property was not tested")
	}
}

// confirm draws a confirmation, and reports whether it lets pass what waits: one of just these machines that has not expired.
func confirm(t *rapid.T, w *outofservice.World, c outofservice.Config) bool {
	waits := outofservice.MakePlan(*w, c).Awaiting
	other := "000000000000/" + start.Add(time.Hour).Format(time.RFC3339)
	all := map[string]bool{
		"": false, "yes": false, other: false, waits.Confirmation(start.Add(-time.Second)): false, waits.Confirmation(start.Add(48 * time.Hour)): false,
		waits.Confirmation(start.Add(time.Hour)): waits.Hash != "",
	}
	w.Confirmation = waits.Confirmation(start.Add(time.Hour))
	if rapid.Bool().Draw(t, "another confirmation") {
		w.Confirmation = rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(t, "confirmation")
	}
	return all[w.Confirmation]
}

// A confirmation holds while Nodes of the machines in it are deleted, in whichever order, and no longer when one comes back or one more goes.
func TestAConfirmationHolds(t *testing.T) {
	t.Parallel()
	seen := 0
	cases.Check(t, func(t *rapid.T) {
		c := outofservice.DefaultConfig()
		w := withoutReturns(drawWorld(t))
		for id := 50; id < 50+rapid.IntRange(12, 16).Draw(t, "off"); id++ {
			w.Machines = append(w.Machines, off(id))
		}
		w.Enabled, w.Distrust, w.Memory = true, "", outofservice.Memory{}
		p := outofservice.MakePlan(w, c)
		if p.Awaiting.Hash == "" {
			return
		}
		w.Memory, w.Confirmation = p.Memory, p.Awaiting.Confirmation(start.Add(time.Hour))
		counts := func(m outofservice.Machine) bool { return m.Ours || !m.Foreign && !m.Ready && m.State.Out() }
		for range 6 {
			i := slices.IndexFunc(w.Machines, counts)
			w.Machines = slices.Delete(slices.Clone(w.Machines), i, i+1)
			p = outofservice.MakePlan(w, c)
			if p.Awaiting.Hash != "" || slices.ContainsFunc(p.Verdicts, func(v outofservice.Verdict) bool { return v.Reason == outofservice.ReasonMassGuard }) {
				t.Fatalf("a Node has gone, and %+v waits", p.Awaiting)
			}
			w = round(w, p, time.Second)
			if !slices.ContainsFunc(w.Machines, counts) || p.Memory.Offered.Hash == "" {
				return // few are left
			}
		}
		seen++
		more := w
		more.Machines = append(slices.Clone(w.Machines), off(99))
		if p := outofservice.MakePlan(more, c); p.Memory.Offered.Hash == w.Memory.Offered.Hash {
			t.Fatal("one more has gone, and the confirmation holds")
		}
		back := w
		back.Machines = slices.Clone(w.Machines)
		at := slices.IndexFunc(back.Machines, func(m outofservice.Machine) bool { return counts(m) && !m.Ours })
		if at < 0 {
			return
		}
		back.Machines[at].Ready, back.Machines[at].State, back.Memory.Intents = true, outofservice.StateActive, nil
		if p := outofservice.MakePlan(back, c); p.Memory.Offered.Hash == w.Memory.Offered.Hash {
			t.Fatal("one has come back, and the confirmation holds")
		}
	})
	if seen == 0 {
		t.Error("no confirmation was left: the property was not tested")
	}
}

// Converges and idempotent: in a world that stays the same the plan comes to nothing, and stays there.
func TestConverges(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := outofservice.DefaultConfig()
		w := settle(t, drawWorld(t), c)
		if p := outofservice.MakePlan(w, c); len(p.Steps) > 0 || len(p.Memory.Intents) > 0 {
			t.Errorf("steps %v, memory %+v", p.Steps, p.Memory)
		}
		again := settle(t, w, c)
		again.Now = w.Now
		for i := range again.Machines { // only what was read again differs
			again.Machines[i].Lease, again.Machines[i].Proof, again.Machines[i].StateAt = w.Machines[i].Lease, w.Machines[i].Proof, w.Machines[i].StateAt
		}
		if diff := cmp.Diff(w, again); diff != "" {
			t.Error(diff)
		}
	})
}

// At the end just those machines have the taint that are off for certain, if they are not too many.
func TestComplete(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := outofservice.DefaultConfig()
		w := drawWorld(t)
		w.Enabled, w.Distrust = true, ""
		w = settle(t, w, c)
		p := outofservice.MakePlan(w, c)
		for i, m := range w.Machines {
			v := p.Verdicts[slices.IndexFunc(p.Verdicts, func(v outofservice.Verdict) bool { return v.Node == m.Node })]
			must := !m.Ready && m.State.Out() && !m.Foreign && !m.Lease.SilentSince.IsZero()
			if must && !m.Ours && v.Reason != outofservice.ReasonMassGuard {
				t.Errorf("machine %d: %+v stays in service: %+v", i, m, v)
			}
			if m.Ours && m.Ready && m.State == outofservice.StateActive {
				t.Errorf("machine %d: %+v is out of service: %+v", i, m, v)
			}
		}
	})
}

// Order-blind: the order of what was read is nothing to the plan.
func TestOrderBlind(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w, c := drawWorld(t), outofservice.DefaultConfig()
		other := w
		other.Machines = rapid.Permutation(w.Machines).Draw(t, "machines")
		other.Memory.Intents = rapid.Permutation(w.Memory.Intents).Draw(t, "intents")
		if diff := cmp.Diff(outofservice.MakePlan(w, c), outofservice.MakePlan(other, c)); diff != "" {
			t.Error(diff)
		}
	})
}

// Modest: there is a step only for what has our taint or is about to get it, one at most for each machine, and nothing is read of machines that are ready and whose
// kubelets renew their Leases.
func TestModest(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w, c := drawWorld(t), outofservice.DefaultConfig()
		p := outofservice.MakePlan(w, c)
		of := map[string]int{}
		for _, step := range p.Steps {
			_, uid := step.On()
			of[uid]++
		}
		for _, m := range w.Machines {
			_, remove := of[m.UID]
			if of[m.UID] > 1 || remove && m.Foreign && !m.Ours {
				t.Errorf("%d steps of %+v", of[m.UID], m)
			}
			if m.Ready && !m.Ours && !m.MissedRenewal(w.Now, c) && slices.Contains(slices.Concat(p.Ask, p.AskLater), m.Droplet) {
				t.Errorf("droplet %d is read, and its Node is ready and its kubelet works", m.Droplet)
			}
		}
	})
}

// Safe at every prefix: a process that ends after any step leaves a world that the next one brings to the same end, and never more machines out of service
// than the guard allows.
func TestPrefix(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w, c := drawWorld(t), outofservice.DefaultConfig()
		p := outofservice.MakePlan(w, c)
		want := taintsOf(settle(t, round(w, p, pass), c))
		for n := range len(p.Steps) + 1 {
			after := w
			for _, step := range p.Steps[:n] {
				after = apply(after, step)
			}
			after.Memory = p.Memory // it is recorded before the first step
			next := outofservice.MakePlan(after, c)
			for _, step := range next.Steps {
				after = apply(after, step)
			}
			if now := tainted(after); now > max(tainted(w), c.Allowance(len(w.Machines))) {
				t.Errorf("after %d of %v, and then %v: %d machines are out of service", n, p.Steps, next.Steps, now)
			}
			if diff := cmp.Diff(want, taintsOf(settle(t, after, c))); diff != "" {
				t.Errorf("after %d of %v:\n%s", n, p.Steps, diff)
			}
		}
	})
}

func taintsOf(w outofservice.World) map[string]bool {
	out := map[string]bool{}
	for _, m := range w.Machines {
		out[m.Node] = m.Ours
	}
	return out
}

func tainted(w outofservice.World) (n int) {
	for _, m := range w.Machines {
		if m.Ours {
			n++
		}
	}
	return n
}

// TestLaws: a death before any write, a conflict at any and an answer that is lost change nothing of where the machines end, and no step can be left out.
func TestLaws(t *testing.T) {
	t.Parallel()
	c := outofservice.DefaultConfig()
	laws.Planner[outofservice.World, outofservice.Step]{
		Draw: drawWorld,
		Plan: func(w outofservice.World) laws.Plan[outofservice.World, outofservice.Step] {
			p, remembered := outofservice.MakePlan(w, c), w
			if remembered.Memory = p.Memory; cmp.Equal(p.Memory, w.Memory) {
				return laws.Plan[outofservice.World, outofservice.Step]{Steps: p.Steps}
			}
			return laws.Plan[outofservice.World, outofservice.Step]{Steps: p.Steps, Memory: &remembered}
		},
		Apply: apply,
		Later: func(w outofservice.World, _ laws.Plan[outofservice.World, outofservice.Step]) outofservice.World {
			p := outofservice.MakePlan(w, c)
			p.Steps, p.Memory = nil, w.Memory
			out := round(w, p, pass)
			out.Machines = slices.Clone(out.Machines)
			for i := range out.Machines { // a kubelet that renews its Lease goes on: where it falls silent, the end is another
				if l := &out.Machines[i].Lease; !l.RenewedSince.IsZero() && w.Now.Sub(l.SilentSince) < c.Grace {
					l.SilentSince, l.ReadAt = out.Now, out.Now
				}
			}
			return out
		},
		Shuffle: func(t *rapid.T, w outofservice.World) outofservice.World {
			w.Machines = rapid.Permutation(w.Machines).Draw(t, "machines")
			return w
		},
		// A machine that comes back makes room for another below the mass guard's limit, once its taint is removed.
		Held: func(w outofservice.World, s outofservice.Step) bool {
			name, _ := s.On()
			return slices.ContainsFunc(outofservice.MakePlan(w, c).Verdicts, func(v outofservice.Verdict) bool {
				return v.Node == name && v.Reason == outofservice.ReasonMassGuard
			})
		},
		Same:   func(a, b outofservice.World) string { return cmp.Diff(taintsOf(a), taintsOf(b)) },
		Rounds: 250, Quiet: 40,
	}.Check(t)
}

// The hash of what waits stays the same while no machine goes or comes back, whatever was proven meanwhile.
func TestHashStays(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		c := outofservice.DefaultConfig()
		w := withoutReturns(drawWorld(t))
		for id := 50; id < 62; id++ {
			w.Machines = append(w.Machines, off(id))
		}
		w.Enabled, w.Distrust, w.Memory = true, "", outofservice.Memory{}
		first := outofservice.MakePlan(w, c)
		if first.Awaiting.Hash == "" || len(first.Steps) > 0 {
			t.Fatalf("nothing waits: %+v", first)
		}
		for range 30 {
			w = round(w, outofservice.MakePlan(w, c), pass)
			if now := outofservice.MakePlan(w, c).Awaiting; now.Hash != first.Awaiting.Hash {
				t.Fatalf("%+v, and before that %+v", now, first.Awaiting)
			}
		}
	})
}
