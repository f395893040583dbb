// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"strings"
)

// scenario is one row of the table.
type scenario struct {
	letter, what string
	domain       string // the old controller's -domain
	dryRun       bool   // of both
	// published is what the old controller is known to remove there; its rule must say the same.
	published tally
	run       func(*comparison)
}

func scenarios() []scenario {
	return []scenario{
		{letter: "0", what: "A machine left before the controller started", published: tally{dead: 1}, run: func(c *comparison) {
			c.lives("a", "b", "c")
			c.expect()
			c.dies("z", "z")
			c.leave("z")
			c.start()
			c.watch()
		}},
		{letter: "A", what: "A machine joins after the controller started, and leaves", run: func(c *comparison) {
			c.lives("a", "b", "c")
			c.expect()
			c.start()
			c.period()
			c.round()
			c.dies("z", "z")
			c.period()
			c.round()
			c.leaves("z")
			c.watch()
		}},
		{letter: "B", what: "etcd fails once, at the first removal of something", run: func(c *comparison) {
			c.lives("a", "b", "c")
			c.expect()
			c.dies("z", "z")
			c.start()
			c.r.Datastore = &interrupted{Datastore: c.store, before: once(2)} // the first write is the fence
			c.leave("z")
			failure := func(string) error { return errors.New("etcd cluster is unavailable") }
			c.old.judge(c.name("z"), c.kubernetesNames(), failure)
			c.old.judge(c.name("z"), c.kubernetesNames(), works) // it queues the name again
			c.watch()
		}},
		{letter: "C", what: "Kubernetes lists no Node: a new or restored API server", published: tally{live: 4}, run: func(c *comparison) {
			c.lives("a", "b", "c", "d")
			c.expect()
			for _, name := range []string{"a", "b", "c", "d"} {
				c.leave(name)
			}
			if names := c.kubernetesNames(); len(names) > 0 {
				c.t.Fatalf("another test left the Nodes %q", names)
			}
			c.start()
			c.watch()
		}},
		{letter: "D", what: "Nodes have full names, Calico Nodes short ones, and `-domain` was forgotten", published: tally{live: 3, dead: 1}, run: fullAndShort},
		{
			letter: "E", what: "The same with a leading dot: `-domain=.ex.com`", domain: ".ex.com", published: tally{live: 3, dead: 1},
			run: fullAndShort,
		},
		{
			letter: "F1", what: "Nodes a.east and a.west, Calico Node a is a.west's, `-domain` is west's; a.east leaves", domain: "west.ex.com",
			published: tally{live: 1}, run: func(c *comparison) { eastLeaves(c, "a.west.ex.com") },
		},
		{
			letter: "F2", what: "The same, but both machines write Calico Node a, a.east last", domain: "west.ex.com",
			published: tally{live: 1}, run: func(c *comparison) { eastLeaves(c, "a.east.ex.com") },
		},
		{letter: "G", what: "A route reflector, a bare-metal host and a machine of OpenStack", published: tally{live: 3, dead: 1}, run: func(c *comparison) {
			c.lives("a", "b")
			for _, name := range []string{"reflector", "metal", "stack"} {
				c.live = append(c.live, c.machine(name, "", ""))
			}
			c.belongsToOrchestrator("stack", "openstack")
			c.expect()
			c.dies("z", "z")
			c.leave("z")
			c.start()
			c.watch()
		}},
		{letter: "H", what: "Nodes have short names, Calico Nodes full ones", published: tally{live: 3, dead: 1}, run: func(c *comparison) {
			c.live = []string{
				c.machine("a.ex.com", "a", "a"), c.machine("b.ex.com", "b", "b.ex.com"), c.machine("c.ex.com", "c", ""),
			}
			c.expect()
			c.dies("z.ex.com", "z")
			c.leave("z")
			c.start()
			c.watch()
		}},
		{letter: "I", what: "A dry run while a machine is dead", dryRun: true, run: func(c *comparison) {
			c.lives("a", "b", "c")
			c.belongsTo(c.uid())
			c.expect()
			c.dies("z", "z")
			c.leave("z")
			c.start()
			c.r.DryRun = true
			c.watch()
		}},
		{letter: "J", what: "etcd does not respond, then the API server does not; a machine leaves meanwhile", published: tally{dead: 1}, run: serversFail},
		{letter: "K1", what: "The kubeconfig is another cluster's; ours has worked in the right one before", published: tally{live: 4}, run: func(c *comparison) {
			foreign(c, "the UID of the right cluster's kube-system")
		}},
		{letter: "K2", what: "The same at the very first start", published: tally{live: 4}, run: func(c *comparison) { foreign(c, "") }},
		{letter: "L", what: "A machine leaves, and joins again between the decision and the removal", published: tally{live: 1}, run: rejoins},
		{letter: "M1", what: "Kubernetes was restored to a time before 5 of 12 machines joined", published: tally{live: 5}, run: func(c *comparison) {
			c.lives(strings.Split("abcdefghijkl", "")...)
			c.expect()
			for _, name := range []string{"h", "i", "j", "k", "l"} {
				c.leave(name)
			}
			c.start()
			c.watch()
		}},
		{letter: "M2", what: "7 of 11 machines leave at once while the controller watches", published: tally{dead: 7}, run: func(c *comparison) {
			c.lives("a", "b", "c", "d")
			c.expect()
			late := strings.Split("hijklmn", "")
			for _, name := range late {
				c.dies(name, name)
			}
			c.start()
			c.round()
			c.leaves(late...)
			c.watch()
		}},
	}
}

// fullAndShort has one machine whose orchRef is right, one whose orchRef names the Node by its short name, and one without.
func fullAndShort(c *comparison) {
	c.live = []string{c.machine("a", "a.ex.com", "a.ex.com"), c.machine("b", "b.ex.com", "b"), c.machine("c", "c.ex.com", "")}
	c.expect()
	c.dies("z", "z.ex.com")
	c.leave("z.ex.com")
	c.start()
	c.watch()
}

// eastLeaves has two Nodes whose short names are the same.
func eastLeaves(c *comparison, orchRef string) {
	c.createNode("a.east.ex.com")
	c.live = []string{c.machine("a", "a.west.ex.com", orchRef), c.machine("b", "b.west.ex.com", "b.west.ex.com")}
	c.expect()
	c.start()
	c.period()
	c.round()
	c.leaves("a.east.ex.com")
	c.watch()
}

func serversFail(c *comparison) {
	c.lives("a", "b", "c")
	c.expect()
	c.dies("z", "z")
	c.start()
	c.round()
	c.etcd.Kill()
	c.fails()
	c.old.resync(nil, errors.New("etcd cluster is unavailable"), c.kubernetesNames(), works)
	c.leave("z")
	c.etcd.Restart(c.t)
	cluster := c.r.Cluster
	c.r.Cluster = c.unreachable()
	c.fails()
	c.r.Cluster = cluster
	c.old.start(c.calicoNames()) // its container is started again
	c.watch()
}

// foreign has all machines' Nodes in another cluster than the one that both controllers are told of.
func foreign(c *comparison, owner string) {
	for _, name := range []string{"x", "y"} {
		c.createNode(name)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		c.live = append(c.live, c.machine(name, "", name))
	}
	if owner != "" {
		c.belongsTo(owner)
	}
	c.expect()
	c.start()
	c.watch()
}

func rejoins(c *comparison) {
	c.lives("a", "b", "c", "z")
	c.start()
	c.period()
	c.round()
	c.r.Datastore = &interrupted{Datastore: c.store, before: func(write int) error {
		if write == 2 { // the fence is written, Kubernetes has said NotFound again, and the next transaction is about to be sent
			c.createNode("z")
			c.startOn("z", "z", byte(c.addresses))
			c.expect()
		}
		return nil
	}}
	c.leaves("z") // the old controller looks, then removes: what joins in between it does not see
	c.watch()
}

func (c *comparison) uid() string {
	c.t.Helper()
	uid, err := c.cluster.UID(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return uid
}
