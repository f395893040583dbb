// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector/planner"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// slow is a cluster in which time passes by itself, and each node takes its time to answer. It has no API server: rounds are made of what the
// reconciler makes them of, and writes succeed at once.
type slow struct {
	t      *testing.T
	s      *scene
	m      *memory
	delay  func(node string) time.Duration
	asked  int
	serial int
	// promoted is when the last promotion was carried out.
	promoted time.Time
	done     []routereflector.Step
	// idle reports that the last round left nothing to do or to ask. apart says that a reflector has no session with a client, nil for none without one.
	idle bool
	// plan is that of the last round.
	plan  routereflector.Plan
	apart func(reflector, client string) bool
}

func newSlow(t *testing.T, nodes int, redundancy int32, delay func(string) time.Duration) *slow {
	t.Helper()
	topology := v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "main", UID: "t"}}
	topology.Spec.Redundancy = &redundancy
	v1alpha1.SetDefaults(&topology)
	c := &slow{t: t, m: &memory{}, delay: delay, s: &scene{topology: topology.DeepCopy()}}
	c.s.world = routereflector.World{Now: then(), Topology: topology, DatastoreReady: true, Mesh: routereflector.Mesh{On: true}}
	for i := range nodes {
		c.s.world.Nodes = append(c.s.world.Nodes, routereflector.Node{
			Name: nodeName(i), UID: nodeName(i), Ready: corev1.ConditionTrue, ReadySince: then().Add(-time.Hour),
			IPv4: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Labels: map[string]string{corev1.LabelOSStable: "linux"},
		})
	}
	return c
}

// round is one of the reconciler's, every two seconds, or every minute while nothing is to be done.
func (c *slow) round() routereflector.Plan {
	timing := DefaultTiming()
	if c.s.world.Now = c.s.world.Now.Add(timing.Poll); c.idle {
		c.s.world.Now = c.s.world.Now.Add(timing.Resync - timing.Poll)
	}
	c.answers()
	c.s.moment = c.s.world.Present()
	c.m.enter(c.s)
	c.s.world.Suspects = c.m.suspects(c.s, timing.Resync)
	plan := planner.MakePlan(c.s.world)
	c.m.prove(c.s, plan)
	c.s.topology.Status.SilentClients, _ = c.m.silent(c.s, timing.Settle)
	c.plan = plan
	c.m.talk(c.s.world.Now, plan.Witnesses, plan.Standing...)
	drop, ask := questions(c.s, c.m, plan, timing.Settle, c.s.world.Topology.Spec.Rollout.SessionTimeout.Duration)
	for _, d := range drop {
		if d.Status.LastUpdated.IsZero() {
			c.m.said.Tries[d.Spec.Node]++
		}
		c.s.statuses = slices.DeleteFunc(c.s.statuses, func(o calicov3.CalicoNodeStatus) bool { return o.UID == d.UID })
	}
	for _, node := range ask {
		c.serial, c.asked = c.serial+1, c.asked+1
		q := answerOf(node, c.s.moment, c.s.world.Now)
		q.UID, q.Status.LastUpdated = types.UID(fmt.Sprint(c.serial)), metav1.Time{}
		if slices.Contains(plan.Samples, node) {
			q.Spec.Classes = append(q.Spec.Classes, calicov3.NodeStatusClassTypeRoutes)
		}
		c.s.statuses = append(c.s.statuses, q)
	}
	c.idle = !busy(plan) && c.open() == 0 && len(drop)+len(ask) == 0 && !c.s.observing(plan)
	if len(c.s.statuses) > maxStatuses {
		c.t.Fatalf("%d questions are open", len(c.s.statuses))
	}
	if len(plan.Steps) > 0 && plan.Waiting == "" {
		c.carryOut(plan.Steps[0])
	}
	return plan
}

// open counts the status requests that do not stand for good, or are not answered.
func (c *slow) open() int {
	count := 0
	for _, q := range c.s.statuses {
		if !slices.Contains(c.plan.Standing, q.Spec.Node) || q.Status.LastUpdated.IsZero() {
			count++
		}
	}
	return count
}

// renewals is how many standing requests are renewed in a time, at most.
func (c *slow) renewals(in time.Duration) int {
	return len(c.plan.Standing) * int(1+in/standingRenewal)
}

// carryOut checks that all reflectors that there are have spoken since the last change, and changes the world.
func (c *slow) carryOut(step routereflector.Step) {
	if routereflector.Is[routereflector.Promote](step) || routereflector.Is[routereflector.MeshOff](step) {
		for _, n := range c.s.world.Nodes {
			said := c.m.said.Seen[n.Name]
			if n.ClusterID != "" && len(said.Established) != len(c.s.world.Nodes)-1 {
				c.t.Errorf("%s: reflector %s was seen with %d sessions", step, n.Name, len(said.Established))
			}
			if n.Name == c.last() && said.At.Before(c.promoted) {
				c.t.Errorf("%s: what reflector %s said is from before its promotion", step, n.Name)
			}
		}
	}
	if c.done = append(c.done, step); routereflector.Is[routereflector.Promote](step) {
		c.promoted = c.s.world.Now
	}
	c.s.world = planner.After(c.s.world, step)
}

// last is the node that was promoted last.
func (c *slow) last() string {
	for _, s := range slices.Backward(c.done) {
		if routereflector.Is[routereflector.Promote](s) {
			return s.Node()
		}
	}
	return ""
}

// answers fills in what is due with what is true by then, and keeps up what has been filled in.
func (c *slow) answers() {
	now := c.s.world.Now
	for i := range c.s.statuses {
		q := &c.s.statuses[i]
		if now.Sub(q.CreationTimestamp.Time) < c.delay(q.Spec.Node) {
			continue
		}
		before := len(q.Status.BGP.PeersV4)
		c.fill(q)
		if q.Status.LastUpdated.IsZero() || before != len(q.Status.BGP.PeersV4) {
			q.Status.LastUpdated = metav1.NewTime(now)
		}
	}
}

// fill writes the sessions of a node, and its routes if these are asked for. They are up at once.
func (c *slow) fill(q *calicov3.CalicoNodeStatus) {
	q.Status.BGP.PeersV4, q.Status.Routes.RoutesV4 = nil, nil
	nodes := c.s.world.Nodes
	at := slices.IndexFunc(nodes, func(n routereflector.Node) bool { return n.Name == q.Spec.Node })
	for i, n := range nodes {
		if i == at {
			continue
		}
		kind := calicov3.BGPPeerTypeNodeMesh
		switch {
		case n.ClusterID != "" || nodes[at].ClusterID != "":
			kind = calicov3.BGPPeerTypeNodePeer
		case !c.s.world.Mesh.On:
			continue
		}
		state := calicov3.BGPSessionStateEstablished
		if c.apart != nil && c.apart(q.Spec.Node, n.Name) {
			state = calicov3.BGPSessionStateConnect
		}
		q.Status.BGP.PeersV4 = append(q.Status.BGP.PeersV4, calicov3.CalicoNodePeer{PeerIP: n.IPv4.String(), Type: kind, State: state})
	}
}

func (c *slow) settle(most time.Duration) {
	c.t.Helper()
	limit := c.s.world.Now.Add(most)
	for plan := c.round(); len(plan.Steps) > 0 || plan.Waiting != ""; plan = c.round() {
		if c.s.world.Now.After(limit) {
			c.t.Fatalf("after %s and %d questions, steps %v: %s", most, c.asked, c.done, plan.Waiting)
		}
	}
}

// byName spreads delays over the nodes so that they answer out of order.
func byName(most time.Duration) func(string) time.Duration {
	return func(node string) time.Duration {
		return most - time.Duration(7*(int(node[len(node)-1])%5))*time.Second
	}
}

// However slowly nodes answer, and in whatever order, the steps are carried out, and none of them on the word of before a change. With six reflectors and
// three clients more nodes are asked than questions may be open.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	for _, redundancy := range []int32{2, 3, 6} {
		for _, delay := range []time.Duration{30 * time.Second, 40 * time.Second, 70 * time.Second, 110 * time.Second} {
			t.Run(fmt.Sprintf("%d reflectors, %s", redundancy, delay), func(t *testing.T) {
				t.Parallel()
				c := newSlow(t, 12, redundancy, byName(delay))
				c.settle(time.Duration(redundancy+4) * 10 * delay)
				if got := len(c.done); got != int(redundancy)+3 {
					t.Errorf("these steps were carried out: %v", c.done)
				}
				t.Logf("%s, %d questions", c.s.world.Now.Sub(then()), c.asked)
			})
		}
	}
}

// How long a step has waited counts from when witnesses are asked for it: a reflector that is cordoned an hour after the last change is replaced at once.
func TestAQuestionLongAfterTheLastChange(t *testing.T) {
	t.Parallel()
	timeout := 3 * time.Minute
	for _, after := range []time.Duration{time.Hour, time.Hour + timeout, time.Hour + timeout + 2*askWindow} {
		c := newSlow(t, 8, 2, byName(40*time.Second))
		c.settle(time.Hour)
		for c.s.world.Now.Sub(c.m.since) < after {
			c.round()
		}
		for c.open() > 0 { // a standing request is being renewed
			c.round()
		}
		if got := c.s.world.Topology.Spec.Rollout.SessionTimeout.Duration; got != timeout {
			t.Fatalf("sessionTimeout is %s", got)
		}
		done, cordoned := len(c.done), c.s.world.Now
		c.idle = false // the event of the Node wakes the controller
		for i := range c.s.world.Nodes {
			if n := &c.s.world.Nodes[i]; n.Name == c.last() {
				n.Unschedulable = true
			}
		}
		for len(c.done) == done && c.s.world.Now.Sub(cordoned) < time.Hour {
			c.round()
		}
		if took := c.s.world.Now.Sub(cordoned); took > time.Minute {
			t.Errorf("%s after the last change it takes %s: %v", after, took, c.done[done:])
		}
	}
}

// Ready waits for the word of each reflector after the last change, asks nobody once it has it, and believes the status after a start.
func TestReadyWaitsForTheLastReflector(t *testing.T) {
	t.Parallel()
	c := newSlow(t, 8, 2, byName(40*time.Second))
	c.settle(time.Hour)
	three := int32(3)
	c.s.world.Topology.Spec.Redundancy = &three
	promotion := len(c.done)
	plan := c.round()
	for len(c.done) == promotion {
		plan = c.round()
	}
	asked := c.asked
	for range 5 {
		if plan = c.round(); plan.Waiting == "" || len(plan.Steps) > 0 {
			t.Fatalf("just after a promotion: %v, waiting %q", plan.Steps, plan.Waiting)
		}
	}
	c.settle(time.Hour)
	if !slices.Contains(plan.Witnesses, c.last()) || c.asked == asked {
		t.Errorf("these were asked: %v", plan.Witnesses)
	}
	asked = c.asked
	begun := c.s.world.Now
	for c.s.world.Now.Sub(begun) < time.Hour {
		plan = c.round()
	}
	took := c.s.world.Now.Sub(begun)
	if most := c.renewals(took); len(plan.Witnesses) > 0 || plan.Waiting != "" || c.asked-asked > most {
		t.Errorf("in a steady state of %s %d were asked, and %d may be", took, c.asked-asked, most)
	}
	t.Logf("in a steady state %d standing requests are renewed in %s", c.asked-asked, took)
	asked = c.asked
	status := statusOf(c.s, outcome{plan: plan, act: true})
	c.s.topology.Status, c.m = status, &memory{}
	if plan = c.round(); plan.Waiting != "" || c.asked-asked > len(plan.Standing) {
		t.Errorf("after a start it waits: %s", plan.Waiting)
	}
	c.s.topology.Status.Reflectors, c.m = status.Reflectors[1:], &memory{}
	if plan = c.round(); plan.Waiting == "" {
		t.Error("the status knows one reflector less, and is believed")
	}
}

// What counts of an old answer: nothing once nobody is asked, nothing from before the Node was NotReady, nothing once the node owes another one for long.
func TestWhatEndsAnAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*slow)
		want   bool
	}{
		"nothing":                  {func(*slow) {}, true},
		"a pause":                  {func(c *slow) { c.m.talk(c.s.world.Now, nil); c.m.talk(c.s.world.Now, []string{nodeName(0)}) }, false},
		"others asked":             {func(c *slow) { c.m.talk(c.s.world.Now, []string{nodeName(1)}) }, false},
		"another condition":        {func(c *slow) { c.s.world.Nodes[0].ReadySince = c.s.world.Now }, false},
		"another machine":          {func(c *slow) { c.s.world.Nodes = c.s.world.Nodes[1:] }, false},
		"a question open":          {func(c *slow) { c.m.said.Open[nodeName(0)] = c.s.world.Now }, true},
		"a question open for long": {func(c *slow) { c.m.said.Open[nodeName(0)] = c.s.world.Now.Add(-3 * time.Minute) }, false},
		"a demotion": {func(c *slow) {
			c.s.world.Nodes[1].ClusterID, c.s.world.Nodes[1].Labels = "", map[string]string{}
		}, false},
		"a promotion": {func(c *slow) {
			c.s.world.Nodes[2].ClusterID, c.s.world.Nodes[2].Labels = "244.0.0.1", map[string]string{v1alpha1.ReflectorLabel: "main"}
		}, true},
		"a BGPPeer": {func(c *slow) {
			c.s.world.Peers = []routereflector.Peer{{Name: "main-clients", Topology: "main"}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSlow(t, 4, 2, byName(0))
			for i := range 2 {
				w.s.world.Nodes[i].ClusterID, w.s.world.Nodes[i].Labels = "244.0.0.1", map[string]string{v1alpha1.ReflectorLabel: "main"}
			}
			w.s.moment = w.s.world.Present()
			w.m.enter(w.s)
			w.m.talk(w.s.world.Now, []string{nodeName(0)})
			w.s.statuses = []calicov3.CalicoNodeStatus{answerOf(nodeName(0), w.s.moment, w.s.world.Now)}
			w.m.enter(w.s)
			w.s.statuses = nil
			w.s.world.Now = w.s.world.Now.Add(10 * time.Minute)
			c.change(w)
			w.s.moment = w.s.world.Present()
			w.m.enter(w.s)
			got := len(w.s.world.Sightings) == 1 && w.s.world.Sightings[0].Current
			if got != c.want {
				t.Errorf("it counts: %t, want %t", got, c.want)
			}
		})
	}
}
