// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outofservice_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
)

// off is a machine that was proven to be off.
func off(id int) outofservice.Machine {
	return outofservice.Machine{
		Node: fmt.Sprintf("n%02d", id), UID: fmt.Sprintf("uid-%d", id), Droplet: id, NotReadySince: start.Add(-time.Minute),
		Lease: outofservice.Lease{ReadAt: start, SilentSince: start.Add(-time.Minute)}, State: outofservice.StateOff, StateAt: start,
		Proof: outofservice.Proof{State: outofservice.StateOff, First: start.Add(-10 * time.Second), Last: start},
	}
}

func ready(id int) outofservice.Machine {
	return outofservice.Machine{Node: fmt.Sprintf("n%02d", id), UID: fmt.Sprintf("uid-%d", id), Droplet: id, Ready: true, State: outofservice.StateActive, StateAt: start}
}

// ten is a cluster of ten machines, of which the first are as given.
func ten(machines ...outofservice.Machine) outofservice.World {
	w := outofservice.World{Now: start, Enabled: true, Machines: machines}
	for id := len(machines) + 1; id <= 10; id++ {
		w.Machines = append(w.Machines, ready(id))
	}
	return w
}

// Each rule alone holds a machine in service that is off for certain by all others.
func TestEachRuleHolds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(w *outofservice.World, m *outofservice.Machine)
		want   outofservice.Reason
		says   string
	}{
		"nothing is missing": {func(*outofservice.World, *outofservice.Machine) {}, outofservice.ReasonSet, "droplet 1 is off, the Node is not ready and its kubelet does not renew its Lease"},
		"gone by 404": {func(_ *outofservice.World, m *outofservice.Machine) {
			m.State, m.Proof.State = outofservice.StateGone, outofservice.StateGone
		}, outofservice.ReasonSet, "droplet 1 is gone"},
		"the flag is not set":          {func(w *outofservice.World, _ *outofservice.Machine) { w.Enabled = false }, outofservice.ReasonDisabled, "--out-of-service-taint"},
		"another account":              {func(w *outofservice.World, _ *outofservice.Machine) { w.Distrust = "another account" }, outofservice.ReasonAccount, "another account"},
		"active after two answers off": {func(_ *outofservice.World, m *outofservice.Machine) { m.State = outofservice.StateActive }, outofservice.ReasonInService, "may run"},
		"a list that lacks it":         {func(_ *outofservice.World, m *outofservice.Machine) { m.State = outofservice.StateUnknown }, outofservice.ReasonState, "is unknown"},
		"archived":                     {func(_ *outofservice.World, m *outofservice.Machine) { m.State = outofservice.StateOther }, outofservice.ReasonState, "neither active nor off"},
		"not ready since a moment":     {func(_ *outofservice.World, m *outofservice.Machine) { m.NotReadySince = start.Add(-time.Second) }, outofservice.ReasonSet, "droplet 1 is off"},
		"the kubelet renews its Lease": {func(_ *outofservice.World, m *outofservice.Machine) { m.Lease.SilentSince = start.Add(-time.Second) }, outofservice.ReasonKubelet, "must not renew its Lease for 20s"},
		"there is no Lease": {func(_ *outofservice.World, m *outofservice.Machine) {
			m.Lease = outofservice.Lease{Problem: "forbidden"}
		}, outofservice.ReasonKubelet, "forbidden"},
		"the Lease was read long ago": {func(_ *outofservice.World, m *outofservice.Machine) {
			m.Lease.ReadAt, m.Lease.Problem = start.Add(-time.Minute), "timeout"
		}, outofservice.ReasonKubelet, "timeout"},
		"one answer alone": {func(_ *outofservice.World, m *outofservice.Machine) { m.Proof.First = start }, outofservice.ReasonProof, "again by ID"},
		"an answer of before": {func(_ *outofservice.World, m *outofservice.Machine) {
			m.NotReadySince, m.Proof.First, m.Proof.Last = start.Add(-25*time.Second), start.Add(-40*time.Second), start.Add(-28*time.Second)
		}, outofservice.ReasonProof, "again by ID"},
		"the last answer is old": {func(_ *outofservice.World, m *outofservice.Machine) {
			m.Proof.First, m.Proof.Last = start.Add(-50*time.Second), start.Add(-40*time.Second)
		}, outofservice.ReasonProof, "again by ID"},
		"answers off, and the list has none": {func(_ *outofservice.World, m *outofservice.Machine) { m.State = outofservice.StateGone }, outofservice.ReasonProof, "again by ID"},
		"somebody else's taint":              {func(_ *outofservice.World, m *outofservice.Machine) { m.Foreign = true }, outofservice.ReasonForeign, "is not changed"},
		"the Node is ready":                  {func(_ *outofservice.World, m *outofservice.Machine) { m.Ready, m.NotReadySince = true, time.Time{} }, outofservice.ReasonGrace, "not ready yet"},
		"the Node is ready, and its kubelet renews its Lease": {func(_ *outofservice.World, m *outofservice.Machine) {
			m.Ready, m.NotReadySince, m.Lease.SilentSince = true, time.Time{}, start.Add(-14*time.Second)
		}, outofservice.ReasonInService, "ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ten(off(1))
			test.change(&w, &w.Machines[0])
			p := outofservice.MakePlan(w, outofservice.DefaultConfig())
			if v := p.Verdicts[0]; v.Reason != test.want || !strings.Contains(v.Message, test.says) || (len(p.Steps) == 1) != (test.want == outofservice.ReasonSet) {
				t.Errorf("%+v, steps %v", v, p.Steps)
			}
		})
	}
}

// Our taint goes when the machine is back, whether or not the flag is still set and whatever somebody else has set.
func TestBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(w *outofservice.World, m *outofservice.Machine)
		want   outofservice.Reason
	}{
		"it is back":                {func(*outofservice.World, *outofservice.Machine) {}, outofservice.ReasonRemoved},
		"without the flag":          {func(w *outofservice.World, _ *outofservice.Machine) { w.Enabled = false }, outofservice.ReasonRemoved},
		"with a foreign one":        {func(_ *outofservice.World, m *outofservice.Machine) { m.Foreign = true }, outofservice.ReasonRemoved},
		"not ready yet":             {func(_ *outofservice.World, m *outofservice.Machine) { m.Ready = false }, outofservice.ReasonReturning},
		"ready, and off by the API": {func(_ *outofservice.World, m *outofservice.Machine) { m.State = outofservice.StateOff }, outofservice.ReasonReturning},
		"another account":           {func(w *outofservice.World, _ *outofservice.Machine) { w.Distrust = "another" }, outofservice.ReasonReturning},
		"still off":                 {func(_ *outofservice.World, m *outofservice.Machine) { m.Ready, m.State = false, outofservice.StateOff }, outofservice.ReasonOutOfService},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ten(ready(1))
			w.Machines[0].Ours = true
			test.change(&w, &w.Machines[0])
			p := outofservice.MakePlan(w, outofservice.DefaultConfig())
			if p.Verdicts[0].Reason != test.want || (len(p.Steps) == 1) != (test.want == outofservice.ReasonRemoved) {
				t.Errorf("%+v, steps %v", p.Verdicts[0], p.Steps)
			}
		})
	}
}

// More machines than the guard allows wait for a person, whose confirmation lets just these pass; those that have the taint count.
func TestMassGuard(t *testing.T) {
	t.Parallel()
	c := outofservice.DefaultConfig()
	if p := outofservice.MakePlan(ten(off(1), off(2)), c); len(p.Steps) != 2 || p.Awaiting.Hash != "" {
		t.Fatalf("%v, %+v", p.Steps, p.Awaiting)
	}
	tainted := off(1)
	tainted.Ours = true
	w := ten(tainted, off(2), off(3))
	p := outofservice.MakePlan(w, c)
	if len(p.Steps) != 0 || p.Awaiting.Count != 2 || strings.Join(p.Awaiting.Machines, " ") != "n02 n03" || len(p.Ask) != 0 {
		t.Fatalf("%v, %+v, asks %v", p.Steps, p.Awaiting, p.Ask)
	}
	w.Confirmation = p.Awaiting.Confirmation(start.Add(time.Hour))
	if p := outofservice.MakePlan(w, c); len(p.Steps) != 2 || p.Awaiting.Hash != "" {
		t.Errorf("confirmed: %v, %+v", p.Steps, p.Awaiting)
	}
	w.Machines[1].Ours = true // one of them is set, and the confirmation holds for the other
	if p := outofservice.MakePlan(w, c); len(p.Steps) != 1 {
		t.Errorf("after one step: %v, %+v", p.Steps, p.Awaiting)
	}
	more := w
	more.Machines = append(more.Machines[:3:3], off(4))
	if p := outofservice.MakePlan(more, c); len(p.Steps) != 0 || p.Awaiting.Count != 2 {
		t.Errorf("one more: %v, %+v", p.Steps, p.Awaiting)
	}
	for name, confirmation := range map[string]string{
		"expired": p.Awaiting.Confirmation(start.Add(-time.Second)), "too long": p.Awaiting.Confirmation(start.Add(25 * time.Hour)), "not a confirmation": "yes",
	} {
		w := ten(tainted, off(2), off(3))
		w.Confirmation = confirmation
		if p := outofservice.MakePlan(w, c); len(p.Steps) != 0 {
			t.Errorf("%s: %v", name, p.Steps)
		}
	}
}

// A leader whose cache is behind counts what another has recorded.
func TestIntentsCount(t *testing.T) {
	t.Parallel()
	w := ten(off(1), ready(2), ready(3))
	for id := 2; id <= 3; id++ {
		w.Memory.Intents = append(w.Memory.Intents, outofservice.Intent{Node: fmt.Sprintf("n%02d", id), UID: fmt.Sprintf("uid-%d", id), At: start.Add(-time.Minute)})
	}
	c := outofservice.DefaultConfig()
	if p := outofservice.MakePlan(w, c); len(p.Steps) != 0 || p.Awaiting.Count != 1 {
		t.Errorf("%v, %+v", p.Steps, p.Awaiting)
	}
	w.Now = w.Now.Add(c.IntentAge)
	for i := range w.Machines {
		w.Machines[i].Lease.ReadAt, w.Machines[i].Proof.Last = w.Now, w.Now
	}
	w.Machines[0].NotReadySince = w.Machines[0].Proof.First
	if p := outofservice.MakePlan(w, c); len(p.Steps) != 1 || len(p.Memory.Intents) != 1 {
		t.Errorf("%v, %+v, %+v", p.Steps, p.Memory, p.Verdicts[0])
	}
}

// A machine that is back is not off: the next one gets its taint at once, however lately the first one had it.
func TestOneAfterTheOther(t *testing.T) {
	t.Parallel()
	c := outofservice.DefaultConfig()
	w := ten(off(1), ready(2))
	w.Machines = w.Machines[:2]
	w.Machines[1].Ours = true
	w.Memory.Intents = []outofservice.Intent{
		{Node: w.Machines[1].Node, UID: w.Machines[1].UID, At: start.Add(-time.Minute)},
	}
	p := outofservice.MakePlan(w, c)
	if len(p.Steps) != 1 || len(p.Memory.Intents) != 0 || p.Awaiting.Count != 1 {
		t.Errorf("while it has the taint: %v, %+v, %+v", p.Steps, p.Memory, p.Awaiting)
	}
	w.Memory, w.Machines[1].Ours = p.Memory, false
	if p := outofservice.MakePlan(w, c); len(p.Steps) != 1 || p.Awaiting.Count != 0 {
		t.Errorf("afterwards: %v, %+v", p.Steps, p.Awaiting)
	}
}

func TestAllowance(t *testing.T) {
	t.Parallel()
	for machines, want := range map[int]int{0: 1, 1: 1, 2: 1, 3: 1, 4: 2, 10: 2, 20: 2, 21: 3, 100: 10, 1000: 100} {
		if got := outofservice.DefaultConfig().Allowance(machines); got != want {
			t.Errorf("%d of %d machines, want %d", got, machines, want)
		}
	}
}

// The API server allows one taint of a key and effect, so that ours can stand together with a foreign one of another effect only.
func TestTaints(t *testing.T) {
	t.Parallel()
	foreign := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoSchedule}
	same := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
	other := corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoExecute}
	for name, test := range map[string]struct {
		taints        []corev1.Taint
		ours, foreign bool
	}{
		"none": {[]corev1.Taint{other}, false, false}, "ours": {[]corev1.Taint{other, outofservice.Taint()}, true, false},
		"theirs": {[]corev1.Taint{same}, false, true}, "both": {[]corev1.Taint{foreign, outofservice.Taint()}, true, true},
	} {
		if ours, foreign := outofservice.Taints(test.taints); ours != test.ours || foreign != test.foreign {
			t.Errorf("%s: %t, %t", name, ours, foreign)
		}
	}
}

// However many Nodes of active droplets are not ready, they take no call from a droplet that is off.
func TestActiveOnesAreAskedLater(t *testing.T) {
	t.Parallel()
	w := ten()
	for id := 100; id < 700; id++ {
		m := off(id)
		m.State, m.StateAt, m.Proof = outofservice.StateActive, start.Add(-time.Hour), outofservice.Proof{}
		w.Machines = append(w.Machines, m)
	}
	unproven := off(99)
	unproven.Proof = outofservice.Proof{}
	w.Machines = append(w.Machines, unproven)
	if p := outofservice.MakePlan(w, outofservice.DefaultConfig()); len(p.Ask) != 1 || p.Ask[0] != 99 || len(p.AskLater) != 600 {
		t.Errorf("%v first, %d later", p.Ask, len(p.AskLater))
	}
}

// A machine that was rebuilt may never be ready with the taint: it goes when the machine runs, is heard, and has no volume that could be elsewhere. Each rule
// alone keeps it.
func TestRebuilt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(w *outofservice.World, m *outofservice.Machine)
		want   outofservice.Reason
	}{
		"nothing is missing":            {func(*outofservice.World, *outofservice.Machine) {}, outofservice.ReasonRemoved},
		"the kubelet does not report":   {func(_ *outofservice.World, m *outofservice.Machine) { m.Reports = false }, outofservice.ReasonReturning},
		"a volume is attached":          {func(_ *outofservice.World, m *outofservice.Machine) { m.Volumes = true }, outofservice.ReasonReturning},
		"heard for a moment":            {func(_ *outofservice.World, m *outofservice.Machine) { m.Lease.RenewedSince = start.Add(-time.Second) }, outofservice.ReasonReturning},
		"not heard any more":            {func(_ *outofservice.World, m *outofservice.Machine) { m.Lease.SilentSince = start.Add(-time.Minute) }, outofservice.ReasonReturning},
		"never heard":                   {func(_ *outofservice.World, m *outofservice.Machine) { m.Lease.RenewedSince = time.Time{} }, outofservice.ReasonReturning},
		"the Lease was read long ago":   {func(_ *outofservice.World, m *outofservice.Machine) { m.Lease.ReadAt = start.Add(-time.Minute) }, outofservice.ReasonReturning},
		"active an hour ago":            {func(_ *outofservice.World, m *outofservice.Machine) { m.StateAt = start.Add(-time.Hour) }, outofservice.ReasonReturning},
		"still off":                     {func(_ *outofservice.World, m *outofservice.Machine) { m.State = outofservice.StateOff }, outofservice.ReasonOutOfService},
		"another account":               {func(w *outofservice.World, _ *outofservice.Machine) { w.Distrust = "another" }, outofservice.ReasonReturning},
		"without the flag nobody reads": {func(w *outofservice.World, _ *outofservice.Machine) { w.Enabled = false }, outofservice.ReasonReturning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := ready(1)
			m.Ready, m.Ours, m.Reports, m.NotReadySince = false, true, true, start.Add(-time.Hour)
			m.Lease = outofservice.Lease{ReadAt: start, SilentSince: start.Add(-5 * time.Second), RenewedSince: start.Add(-time.Minute)}
			w := ten(m)
			test.change(&w, &w.Machines[0])
			p := outofservice.MakePlan(w, outofservice.DefaultConfig())
			if p.Verdicts[0].Reason != test.want || (len(p.Steps) == 1) != (test.want == outofservice.ReasonRemoved) {
				t.Errorf("%+v, steps %v", p.Verdicts[0], p.Steps)
			}
			if stale := name == "active an hour ago"; (len(p.Ask) == 1) != stale {
				t.Errorf("asks %v", p.Ask)
			}
		})
	}
}

// A new process knows of no droplet yet whether it is gone: the confirmation of the one before holds until it does, but not when a machine has come back.
func TestAConfirmationOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := outofservice.DefaultConfig()
	gone := func(id int) outofservice.Machine {
		m := off(id)
		m.State, m.Proof.State = outofservice.StateGone, outofservice.StateGone
		return m
	}
	w := ten(gone(1), gone(2), gone(3), gone(4), gone(5))
	p := outofservice.MakePlan(w, c)
	hash := p.Awaiting.Hash
	w.Memory, w.Confirmation = p.Memory, p.Awaiting.Confirmation(start.Add(time.Hour))
	for _, known := range []int{0, 1, 2, 3, 4} { // of none to all but one of the five
		led := w
		led.Machines = slices.Clone(w.Machines)
		for i := known; i < 5; i++ {
			led.Machines[i].State, led.Machines[i].StateAt, led.Machines[i].Proof = outofservice.StateUnknown, time.Time{}, outofservice.Proof{}
		}
		p := outofservice.MakePlan(led, c)
		if p.Memory.Offered.Hash != hash || p.Awaiting.Hash != "" || len(p.Steps) != known {
			t.Fatalf("%d of five are known: %v, %+v, waits %+v", known, p.Steps, p.Memory, p.Awaiting)
		}
		led.Memory, led.Machines = p.Memory, slices.Clone(w.Machines[1:]) // all are known, and the Node of one is deleted
		led.Memory.Intents = nil
		if p := outofservice.MakePlan(led, c); p.Memory.Offered.Hash != hash || len(p.Steps) != 4 {
			t.Errorf("after %d of five were known: %v, %+v, waits %+v", known, p.Steps, p.Memory, p.Awaiting)
		}
		led.Memory, led.Machines = w.Memory, slices.Clone(w.Machines)
		led.Machines[0] = ready(1)
		for i := 1 + known; i < 5; i++ {
			led.Machines[i].State = outofservice.StateUnknown
		}
		if p := outofservice.MakePlan(led, c); p.Memory.Offered.Hash == hash {
			t.Errorf("one has come back while %d of the others are known, and the confirmation holds", known)
		}
	}
}
