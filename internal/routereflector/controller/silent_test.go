// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/next"
)

// What was seen on BIRD: a client's port is closed and its BIRD starts again, so that its reflectors keep its session until BIRD's hold time is over, each for
// itself; one of them is cordoned meanwhile, and its successor never has a session with the client. The demotion waits for as long as a reflector carries the
// client, the one that is to go included, and is carried out once none does; the client is named, although nothing else is waited for then; and once its
// sessions are back it is forgotten, and nobody is asked any more.
func TestASilentClientWhileAReflectorIsReplaced(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]time.Duration{"the others hold it longest": 200 * time.Second, "the leaving one does": 240 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newSlow(t, 9, 3, func(string) time.Duration { return 4 * time.Second })
			c.settle(time.Hour)
			for range 5 {
				c.round()
			}
			dark, leaver, reflectors := "", "", map[string]bool{}
			for i := range c.s.world.Nodes {
				switch n := &c.s.world.Nodes[i]; {
				case n.ClusterID == "":
					dark = n.Name
				case leaver == "":
					leaver, n.Unschedulable = n.Name, true
					fallthrough
				default:
					reflectors[n.Name] = true
				}
			}
			at := func(name string) int {
				return slices.IndexFunc(c.s.world.Nodes, func(n routereflector.Node) bool { return n.Name == name })
			}
			c.s.world.Nodes[at(dark)].Unschedulable = true // or it might be the successor
			closed, open, before := c.s.world.Now, false, len(c.done)
			held := func(reflector string) time.Duration {
				if reflector == leaver {
					return last
				}
				return 220 * time.Second
			}
			c.apart = func(reflector, client string) bool {
				return client == dark && !open && (!reflectors[reflector] || c.s.world.Now.Sub(closed) >= held(reflector))
			}
			until := func(what string, reached func(plan routereflector.Plan) bool) time.Duration {
				for limit := c.s.world.Now.Add(15 * time.Minute); ; {
					plan := c.round()
					if reached(plan) {
						return c.s.world.Now.Sub(closed)
					}
					if c.s.world.Now.After(limit) {
						t.Fatalf("it is never %s: %v wait for %q, named are %v", what, plan.Steps, plan.Waiting, c.s.topology.Status.SilentClients)
					}
				}
			}
			replaced := until("replaced", func(routereflector.Plan) bool { return len(c.done) == before+2 })
			if demotion := c.done[before+1]; !routereflector.Is[routereflector.Demote](demotion) || demotion.Node() != leaver || replaced < max(last, 220*time.Second) {
				t.Errorf("after %s: %v", replaced, c.done[before:])
			}
			named := until("named", func(routereflector.Plan) bool { return len(c.s.topology.Status.SilentClients) == 1 })
			if c.s.topology.Status.SilentClients[0].Node != dark || named > replaced+time.Minute {
				t.Errorf("after %s: %+v", named, c.s.topology.Status.SilentClients)
			}
			open = true
			until("forgotten", func(routereflector.Plan) bool { return len(c.s.topology.Status.SilentClients) == 0 })
			asked := c.asked
			for range 5 {
				c.round()
			}
			if c.asked-asked > len(c.plan.Standing) || c.open() > 0 {
				t.Errorf("afterwards %d were asked", c.asked-asked)
			}
		})
	}
}

// newDark is a settled cluster in which some clients have just been found to be without a session.
func newDark(t *testing.T, nodes, count int) (*slow, []string) {
	t.Helper()
	c := newSlow(t, nodes, 3, func(string) time.Duration { return 4 * time.Second })
	c.settle(time.Hour)
	for settled := c.s.world.Now; c.s.world.Now.Sub(settled) < 2*routereflector.Freshness; {
		c.round()
	}
	var dark []string
	for _, n := range c.s.world.Nodes {
		if n.ClusterID == "" && len(dark) < count {
			dark = append(dark, n.Name)
			c.m.dark[n.Name] = c.s.world.Now
		}
	}
	if len(dark) < count || c.open() > 0 {
		t.Fatalf("dark are %v, and %d questions are open", dark, c.open())
	}
	c.apart, c.idle = func(_, client string) bool { return slices.Contains(dark, client) }, false
	return c, dark
}

// A client that goes NotReady while it is dark is never named, and asked about no more.
func TestADarkClientThatGoesNotReady(t *testing.T) {
	t.Parallel()
	c, dark := newDark(t, 9, 1)
	for range 5 {
		if plan := c.round(); len(plan.Witnesses) != 3 {
			t.Fatalf("these are asked about it: %v", plan.Witnesses)
		}
	}
	at := slices.IndexFunc(c.s.world.Nodes, func(n routereflector.Node) bool { return n.Name == dark[0] })
	c.s.world.Nodes[at].Ready, c.s.world.Nodes[at].ReadySince = corev1.ConditionFalse, c.s.world.Now
	for i := range 50 {
		if plan := c.round(); len(plan.Witnesses) > 0 {
			t.Fatalf("%d rounds after it went NotReady these are asked: %v", i, plan.Witnesses)
		}
	}
	if len(c.m.dark) > 0 || c.open() > 0 || len(c.s.topology.Status.SilentClients) > 0 {
		t.Errorf("dark are %v, %d questions are open, named are %v", c.m.dark, c.open(), c.s.topology.Status.SilentClients)
	}
}

// Of more silent clients than the status has room for all are asked about once a minute, and forgotten once they have sessions.
func TestMoreSilentClientsThanTheStatusNames(t *testing.T) {
	t.Parallel()
	c, dark := newDark(t, 24, maxSilent+1)
	until := func(what string, reached func() bool) {
		for range 200 {
			if c.round(); reached() {
				return
			}
		}
		t.Fatalf("they are never %s: named are %d, dark %d", what, len(c.m.named), len(c.m.dark))
	}
	until("named", func() bool { return len(c.m.named) == len(dark) })
	if got := len(c.s.topology.Status.SilentClients); got != maxSilent {
		t.Errorf("the status names %d", got)
	}
	until("left in peace", func() bool { return c.idle })
	begun, asked := c.s.world.Now, c.asked
	for c.s.world.Now.Sub(begun) < 20*time.Minute {
		if c.round(); len(c.m.named) != len(dark) {
			t.Fatalf("after %s named are %d", c.s.world.Now.Sub(begun), len(c.m.named))
		}
	}
	if each := (c.asked - asked) / 3; each < 5 || each > 20 {
		t.Errorf("in 20 minutes each reflector was asked %d times", each)
	}
	c.apart = nil
	until("forgotten", func() bool { return len(c.m.named)+len(c.m.dark)+len(c.s.topology.Status.SilentClients) == 0 })
}

// promotion makes the node a reflector whose name is its UID.
func promotion(uid, version string) routereflector.Step {
	n := routereflector.Node{Name: uid, UID: uid, ResourceVersion: version}
	return routereflector.Promote{RoleChange: routereflector.RoleChange{NodeChange: next.NodeStep(&n, "why", nil)}}
}

// A role that somebody takes away again and again is given back every few seconds, not at each event, whichever others are given back in between.
func TestARoleIsNotGivenBackAtEachEvent(t *testing.T) {
	t.Parallel()
	m := &memory{}
	m.carriedOut(promotion("a", "7"), then())
	m.carriedOut(promotion("b", "7"), then().Add(time.Second))
	if !m.repeats(promotion("a", "8"), then().Add(lag-time.Second)) || !m.repeats(promotion("b", "8"), then().Add(lag)) {
		t.Error("it is given back at once")
	}
	if m.repeats(promotion("a", "8"), then().Add(lag)) || m.repeats(promotion("b", "8"), then().Add(lag+time.Second)) {
		t.Error("it is never given back")
	}
	if m.repeats(promotion("c", "7"), then()) {
		t.Error("another Node has to wait")
	}
	m.carriedOut(promotion("c", "7"), then().Add(lag))
	s := &scene{world: routereflector.World{Now: then().Add(lag)}}
	s.world.Nodes = []routereflector.Node{{Name: "x", UID: "a"}, {Name: "y", UID: "b"}, {Name: "z", UID: "c"}}
	if got := m.justPromoted(s); !slices.Equal(got, []string{"y", "z"}) || len(m.promoted) != 2 {
		t.Errorf("just promoted are %v, remembered %v", got, m.promoted)
	}
}
