// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// targets waits until a Service's load balancer has just these targets.
func (w *world) targets(service string, want ...int) {
	w.T.Helper()
	slices.Sort(want)
	w.eventually(fmt.Sprintf("service %s to have the targets %v", service, want), w.balancer(service).ID, func(lb digitalocean.LoadBalancer) bool {
		return slices.Equal(slices.Sorted(slices.Values(lb.DropletIDs)), want)
	})
}

// claims registers a Node that names a droplet which is not its own, with the droplet's addresses.
func (w *world) claims(name string, d digitalocean.Droplet) {
	w.T.Helper()
	w.Register(w.NodeName(name), cloud.RunsOn(d), cloud.HasAddresses(d))
}

// confirm is an administrator's word that a Node is a droplet.
func (w *world) confirm(name string, id int) {
	w.T.Helper()
	w.PatchNode(w.NodeName(name), fmt.Sprintf(`{"metadata":{"labels":{%q:"%d"}}}`, instance.ConfirmedLabel, id))
}

// A kubelet can name any droplet of the account, such as a database's, or another Node's. Neither becomes a target for its sake, of no load balancer that
// is there or made later, nor after a restart; the droplet's own Node is served, and so is one that is called by its address. An administrator's word lets a
// Node in.
func TestANodeIsNotWhatItSays(t *testing.T) {
	both(t, digitalocean.Options{}, func(_ *testing.T, w *world) {
		ids := w.nodesOf("a", "b")
		database := w.Droplet(digitalocean.DropletSpec{Name: "database-" + w.Name})
		w.run()
		w.create("web")
		w.targets("web", ids...)
		w.claims("thief", database)
		w.claims("twin", w.droplet("a"))
		named := w.Droplet(digitalocean.DropletSpec{Name: "by-address-" + w.Name})
		w.Register(cloud.Address(named, "public"), cloud.RunsOn(named), cloud.HasAddresses(named))
		ids = append(ids, named.ID)
		w.Reported(w.NodeName("thief"), machines.EventDisputed, "node "+w.NodeName("thief"), fmt.Sprintf("droplet %d (%q)", database.ID, database.Name))
		w.Reported(w.NodeName("twin"), machines.EventDisputed, "node "+w.NodeName("twin"), fmt.Sprint("droplet ", w.droplet("a").ID))
		w.targets("web", ids...)
		w.Reported("web", "LoadBalancerNodesLeftOut", w.NodeName("thief")+" names droplet")
		w.create("later")
		w.targets("later", ids...)
		w.Stop()
		w.claims("another", database)
		w.run()
		w.resyncs()
		w.create("last")
		for _, service := range []string{"web", "later", "last"} {
			w.targets(service, ids...)
		}
		w.confirm("thief", database.ID)
		w.targets("web", append(ids, database.ID)...)
	})
}

// Where the cluster's tag is needed, a droplet without it is no target, also if a Node has its name, until somebody confirms it; while no
// droplet has the tag none needs it.
func TestTargetsHaveTheClustersTag(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(_ *testing.T, w *world) {
		w.requireTag = true
		ids := w.nodesOf("a", "b")
		must.Do(w.T, w.Account.SetDropletTags(fmt.Sprint(ids[0]), "of-another-kind"))
		w.run()
		w.create("before")
		w.targets("before", ids...) // no droplet has the tag
		tagged := w.Droplet(digitalocean.DropletSpec{Name: w.NodeName("tagged"), Tags: []string{"k8s:" + w.Name}})
		w.Register(tagged.Name, cloud.RunsOn(tagged), cloud.HasAddresses(tagged))
		database := w.Droplet(digitalocean.DropletSpec{Name: w.NodeName("database")})
		w.Register(database.Name, cloud.RunsOn(database), cloud.HasAddresses(database))
		unnamed := w.Droplet(digitalocean.DropletSpec{Name: w.NodeName("unnamed")})
		w.Register(unnamed.Name, cloud.HasAddresses(unnamed))
		w.targets("before", append(ids, tagged.ID)...)
		w.create("after")
		w.targets("after", tagged.ID)
		w.Reported(database.Name, machines.EventDisputed, "lacks the tag k8s:"+w.Name)
		w.Reported("after", "LoadBalancerNodesLeftOut", w.NodeName("unnamed")+" has the name of droplet")
		w.confirm("database", database.ID)
		w.targets("after", tagged.ID, database.ID)
	})
}

// droplet is the one of a Node.
func (w *world) droplet(name string) digitalocean.Droplet {
	w.T.Helper()
	d := must.Get(w.Account.Droplet(w.NodeName(name))).Or(w.T)
	return d
}

// nodesOf are the droplets of Nodes.
func (w *world) nodesOf(names ...string) []int {
	w.T.Helper()
	var ids []int
	for _, name := range names {
		ids = append(ids, w.droplet(name).ID)
	}
	return ids
}
