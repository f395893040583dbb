// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/routereflector"
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
			if demotion := c.done[before+1]; demotion.Kind != routereflector.Demote || demotion.Node != leaver || replaced < max(last, 220*time.Second) {
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
			if c.asked != asked || len(c.s.statuses) > 0 {
				t.Errorf("afterwards %d were asked", c.asked-asked)
			}
		})
	}
}

// A role that somebody takes away again and again is given back every few seconds, not at each event.
func TestARoleIsNotGivenBackAtEachEvent(t *testing.T) {
	t.Parallel()
	m := &memory{done: then(), last: routereflector.Step{Kind: routereflector.Promote, Object: "Node/a", UID: "1", ResourceVersion: "7"}}
	again := m.last
	again.ResourceVersion = "8"
	if !m.repeats(again, then().Add(lag-time.Second)) || m.repeats(again, then().Add(lag)) {
		t.Error("it is given back at once, or never")
	}
	again.UID = "2"
	if m.repeats(again, then()) {
		t.Error("another Node of that name has to wait")
	}
}
