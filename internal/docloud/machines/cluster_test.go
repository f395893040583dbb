// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const dropletRoute = "GET /v2/droplets/{droplet_id}"

// A Node is initialized with all that its droplet says, and deleted only after the droplet itself was asked for and responded with 404.
func TestNodeFollowsDroplet(t *testing.T) {
	both(t, sim.Options{Seed: 1}, func(t *testing.T, w *world) {
		droplets := w.fleet(3)
		got := must.Get(w.node(droplets[0].Name)).Or(t)
		want := []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: droplets[0].Name},
			{Type: corev1.NodeInternalIP, Address: cloud.Address(droplets[0], "private")},
			{Type: corev1.NodeExternalIP, Address: cloud.Address(droplets[0], "public")},
		}
		if diff := cmp.Diff(want, got.Status.Addresses); diff != "" {
			t.Error(diff)
		}
		asked := w.Sim.Stats().Count(dropletRoute)
		w.SetReady(droplets[1].Name, false)
		w.asked(3)
		if now := w.Sim.Stats().Count(dropletRoute); now != asked {
			t.Errorf("%d droplets were asked for by ID although the list has them", now-asked)
		}
		w.DeleteDroplet(droplets[1].ID)
		testkit.Eventually(t, "the Node to go", func() string { return w.gone(droplets[1].Name) })
		if n := w.Sim.Stats().Routes[dropletRoute].Statuses[404]; n != 1 {
			t.Errorf("%d GETs by ID responded with 404, want 1", n)
		}
		if got := w.nodes(); len(got) != 2 {
			t.Errorf("Nodes %q, want the other two", got)
		}
	})
}

// The list lags behind: a droplet that the list lacks and that answers by ID is there, and what is told of it comes from that answer.
func TestLaggingListDeletesNothing(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 2}, func(t *testing.T, w *world) {
		w.fleet(2)
		w.Sim.SetConsistency(sim.Consistency{List: time.Hour})
		unlisted := w.Droplet(sim.DropletSpec{Name: w.NodeName(7)})
		w.join(unlisted.Name, false, func(n *corev1.Node) {
			n.Spec.ProviderID, n.Spec.Taints = fmt.Sprintf("digitalocean://%d", unlisted.ID), nil
		})
		testkit.Eventually(t, "the droplet to be asked for by ID", func() string {
			if w.Sim.Stats().Routes[dropletRoute].Statuses[200] < 3 { // two when the others were initialized
				return "it was not"
			}
			return ""
		})
		w.asked(4)
		if problem := w.gone(unlisted.Name); problem == "" {
			t.Fatal("the Node was deleted because the list lacks its droplet")
		}
	})
}

// DigitalOcean's API does not show a new droplet yet, neither by ID nor in its lists: the Nodes of its machines stay, however their kubelets
// registered them, over a restart too. Once it was shown, the Node goes with it.
func TestUnseenDropletIsNotGone(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 21}, func(t *testing.T, w *world) {
		fleet := w.fleet(2)
		tainted, plain := w.NodeName(7), w.NodeName(8)
		next := func(n int) func(*corev1.Node) { // what the simulator does not have yet is what the API does not show
			return func(node *corev1.Node) { node.Spec.ProviderID = fmt.Sprintf("digitalocean://%d", fleet[1].ID+n) }
		}
		w.join(tainted, false, next(1))
		w.join(plain, false, next(2), func(n *corev1.Node) { n.Spec.Taints = nil })
		missed := func(at int) {
			t.Helper()
			testkit.Eventually(t, "the droplets to be missed by ID", func() string {
				if n := w.Sim.Stats().Routes[dropletRoute].Statuses[404]; n < at {
					return fmt.Sprintf("%d were", n)
				}
				return ""
			})
			w.asked(4)
			for _, name := range []string{tainted, plain} {
				if _, err := w.node(name); err != nil {
					t.Fatalf("a living machine's Node was deleted: %v", err)
				}
			}
		}
		missed(2)
		w.Stop()
		w.run()
		missed(4)
		w.Reported(plain, EventExistenceUnknown, fmt.Sprint("has not shown droplet ", fleet[1].ID+2))
		one, two := w.Droplet(sim.DropletSpec{Name: tainted}), w.Droplet(sim.DropletSpec{Name: plain})
		testkit.Eventually(t, "the Node to be initialized", func() string { return w.initialized(one) })
		w.asked(4)
		w.DeleteDroplet(two.ID)
		testkit.Eventually(t, "the Node to go once its droplet was shown", func() string { return w.gone(plain) })
	})
}

// With a token of another account DigitalOcean responds with 404 for every droplet. Nothing is deleted, and people are told why; with the right token all is
// well again.
func TestAnotherAccountDeletesNothing(t *testing.T) {
	both(t, sim.Options{Seed: 3, Accounts: []sim.AccountOptions{{Name: "ours", Tokens: []sim.Token{{Value: sim.DefaultToken}}}, {Name: "theirs", Tokens: []sim.Token{{Value: "their-token"}}}}}, func(t *testing.T, w *world) {
		must.Get(w.Sim.Account("theirs").CreateDroplet(sim.DropletSpec{Name: "a-droplet-of-theirs"})).Or(t)
		droplets := w.fleet(3)
		w.Stop()
		w.useToken("their-token")
		for _, d := range droplets {
			w.SetReady(d.Name, false)
		}
		w.run()
		w.keepsAll(instance.AnotherAccount, 3)
		ours, theirs := w.Sim.Account("ours").UUID(), w.Sim.Account("theirs").UUID()
		w.Reported(droplets[0].Name, EventAnotherAccount, ours, theirs, "delete the Lease kube-system/"+w.Name)
		if err := w.machines.Trusted(t.Context()); err == nil {
			t.Error("load balancers may be made in another account")
		}
		// A new Node must not get the ID of their droplet.
		w.join("a-droplet-of-theirs", true)
		w.asked(3)
		if n, err := w.node("a-droplet-of-theirs"); err != nil || n.Spec.ProviderID != "" {
			t.Errorf("the Node has got provider ID %q of another account's droplet (%v)", n.Spec.ProviderID, err)
		}
		w.Reported("a-droplet-of-theirs", EventAnotherAccount, "not initialized", ours)
		w.useToken(sim.DefaultToken)
		w.DeleteDroplet(droplets[0].ID)
		testkit.Eventually(t, "the Node to go once the token is right again", func() string { return w.gone(droplets[0].Name) })
		if got := w.nodes(); len(got) != 3 {
			t.Errorf("Nodes %q, want the other two and the new one", got)
		}
	})
}

// On purpose: the operator deletes the record, and the cluster is bound to the account that has its droplets.
func TestRecordDeletedByTheOperator(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 4, Accounts: []sim.AccountOptions{{Name: "ours", Tokens: []sim.Token{{Value: sim.DefaultToken}}}, {Name: "theirs", Tokens: []sim.Token{{Value: "their-token"}}}}}, func(t *testing.T, w *world) {
		droplets := w.fleet(2)
		w.Stop()
		leases := w.Client.CoordinationV1().Leases(RecordNamespace)
		must.Do(t, leases.Delete(t.Context(), w.Name, metav1.DeleteOptions{}))
		// Without a record and with the wrong token nothing is visible: it is not bound, and nothing is deleted.
		w.useToken("their-token")
		w.SetReady(droplets[0].Name, false)
		w.run()
		w.keepsAll(instance.NothingVisible, 2)
		if annotations, err := w.lease(); err == nil {
			t.Errorf("the cluster was bound to an account that has none of its droplets: %v", annotations)
		}
		w.useToken(sim.DefaultToken)
		testkit.Eventually(t, "the account to be recorded again", func() string {
			annotations, err := w.lease()
			if err != nil {
				return err.Error()
			}
			if got := annotations[AccountAnnotation]; got != w.Sim.Account("ours").UUID() {
				return "recorded is " + got
			}
			return ""
		})
	})
}

// None of the cluster's droplets is visible, in the right account: a token without a scope, or everything was deleted by mistake.
func TestNoneVisibleDeletesNothing(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 5}, func(t *testing.T, w *world) {
		droplets := w.fleet(3)
		// All are gone before anybody asks for the first: two of three could be scaling down.
		for _, d := range droplets {
			w.DeleteDroplet(d.ID)
		}
		for _, d := range droplets {
			w.SetReady(d.Name, false)
		}
		w.keepsAll(instance.NothingVisible, 3)
		w.Reported(droplets[0].Name, EventNothingVisible, "3 known droplets", "scopes")
		// One new machine is enough to see that the account is the right one: the others go.
		fresh := w.Droplet(sim.DropletSpec{Name: w.NodeName(9)})
		w.join(fresh.Name, true)
		for _, d := range droplets {
			testkit.Eventually(t, "the lost Nodes to go", func() string { return w.gone(d.Name) })
		}
		if problem := w.initialized(fresh); problem != "" {
			t.Error(problem)
		}
	})
}

// Lists that fail, are cut off or lack items prove nothing.
func TestBrokenListsDeleteNothing(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]fault.Rule{
		"failed":    {{Route: "GET /v2/droplets", Kind: fault.Error, Nth: 1, Times: -1}},
		"proxy":     {{Route: "GET /v2/droplets*", Kind: fault.ProxyError, Nth: 1, Times: -1}},
		"truncated": {{Route: "GET /v2/droplets", Kind: fault.TruncatedJSON, Nth: 1, Times: -1}},
		"partial":   {{Route: "GET /v2/droplets", Kind: fault.OmitItems, Nth: 1, Times: -1, Fraction: 0.7}},
		"no-404":    {{Route: dropletRoute, Kind: fault.Error, Nth: 1, Times: -1}},
		"limited":   {{Route: "GET /v2/droplets*", Kind: fault.TooManyRequests, Delay: time.Second, Nth: 1, Times: -1}},
		"cut":       {{Route: "GET /v2/droplets*", Kind: fault.Reset, Nth: 1, Times: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, sim.Options{Seed: 6}, func(t *testing.T, w *world) {
				droplets := w.fleet(5)
				must.Do(t, w.Sim.Inject(rules...))
				w.DeleteDroplet(droplets[4].ID)
				for _, d := range droplets {
					w.SetReady(d.Name, false)
				}
				// A call is made three times at most, so that seven failures are more than two questions that went unanswered.
				testkit.Eventually(t, "the faults to strike", func() string {
					if n := len(w.Sim.Requests(journal.Filter{Fault: string(rules[0].Kind)})); n < 7 {
						return fmt.Sprintf("%d have", n)
					}
					return ""
				})
				w.asked(2)
				if got := w.nodes(); len(got) != 5 {
					t.Fatalf("Nodes %q are left, want all: that droplet 5 is gone was not proven", got)
				}
				w.Sim.ClearFaults()
				testkit.Eventually(t, "the Node to go when the API is well again", func() string { return w.gone(droplets[4].Name) })
				if got := w.nodes(); len(got) != 4 {
					t.Fatalf("Nodes %q are left, want the other four", got)
				}
			})
		})
	}
}

// Half of a cluster goes at once. That is worked off without help, never faster than the pace allows, over a restart too.
func TestLargeScaleDown(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 7}, func(t *testing.T, w *world) {
		droplets := w.fleet(60)
		lost := droplets[:30]
		grants := w.grants()
		for _, d := range lost {
			w.DeleteDroplet(d.ID)
			w.SetReady(d.Name, false)
		}
		testkit.Eventually(t, "an event about the pace", func() string {
			for _, d := range lost {
				if w.CountEvents(d.Name, EventNotItsTurn, "it has to wait") > 0 {
					return ""
				}
			}
			return "there is none"
		})
		restarted := false
		testkit.Eventually(t, "the thirty Nodes to go", func() string {
			left := len(w.nodes())
			if left <= 45 && !restarted {
				restarted = true
				w.Stop()
				w.run()
			}
			if left > 30 {
				return fmt.Sprintf("%d are left", left)
			}
			return ""
		})
		testkit.Eventually(t, "the grants of thirty losses", func() string {
			if n := len(grants()); n != 30 {
				return fmt.Sprintf("%d losses were granted for thirty Nodes that went", n)
			}
			return ""
		})
		// The window is a sliding one and a restart must not open it again: in no stretch of a window do more than a tenth of sixty go.
		const allowed = 6
		times := slices.SortedFunc(maps.Values(grants()), time.Time.Compare)
		for i := range max(0, len(times)-allowed) {
			if within := times[i+allowed].Sub(times[i]); within < w.config.Decision.Window {
				t.Fatalf("%d losses were granted within %s, %d may", allowed+1, within, allowed)
			}
		}
		for _, d := range droplets[30:] {
			if problem := w.initialized(d); problem != "" {
				t.Errorf("%s, whose droplet is there: %s", d.Name, problem)
			}
		}
	})
}

// Two droplets of one name: no Node takes either of them, and the event names both.
func TestTwoDropletsOfOneName(t *testing.T) {
	both(t, sim.Options{Seed: 8}, func(t *testing.T, w *world) {
		name := w.NodeName(0)
		one, two := w.Droplet(sim.DropletSpec{Name: name}), w.Droplet(sim.DropletSpec{Name: name})
		w.join(name, true)
		w.run()
		w.Reported(name, EventAmbiguous, fmt.Sprint(one.ID), fmt.Sprint(two.ID))
		if n, err := w.node(name); err != nil || n.Spec.ProviderID != "" {
			t.Errorf("the Node has provider ID %q (%v)", n.Spec.ProviderID, err)
		}
		w.DeleteDroplet(one.ID)
		testkit.Eventually(t, "the Node to be initialized once the name is unique", func() string { return w.initialized(two) })
	})
}

// What the upstream project could not do: droplets with GPUs, without a private network, and Nodes named by their address.
func TestUnusualDroplets(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 9, Addresses: sim.AddressOptions{Public: netip.MustParsePrefix("203.0.113.0/24")}}, func(t *testing.T, w *world) {
		gpu := w.Droplet(sim.DropletSpec{Name: w.NodeName(0), Size: "gpu-h100x1-80gb"})
		public := w.Droplet(sim.DropletSpec{Name: w.NodeName(1), NoPrivateNetwork: true, IPv6: true})
		private := w.Droplet(sim.DropletSpec{Name: w.NodeName(2), NoPublicNetwork: true})
		byAddress := w.Droplet(sim.DropletSpec{Name: w.NodeName(3)})
		for _, d := range []sim.Droplet{gpu, public, private} {
			w.join(d.Name, true)
		}
		byAddress.Name = cloud.Address(byAddress, "public")
		w.join(byAddress.Name, true)
		w.run()
		for _, d := range []sim.Droplet{gpu, public, private, byAddress} {
			testkit.Eventually(t, "the Node to be initialized", func() string { return w.initialized(d) })
		}
		n := must.Get(w.node(public.Name)).Or(t)
		want := []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: public.Name},
			{Type: corev1.NodeExternalIP, Address: cloud.Address(public, "public")},
			{Type: corev1.NodeExternalIP, Address: public.Networks.V6[0].IPAddress},
		}
		if diff := cmp.Diff(want, n.Status.Addresses); diff != "" {
			t.Error(diff)
		}
	})
}

// A droplet that is new has no address: its Node waits. An address that arrives later than that gets into the Node all the same.
func TestLateAddresses(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 10}, func(t *testing.T, w *world) {
		d := w.Droplet(sim.DropletSpec{Name: w.NodeName(0), Networks: &sim.Networks{V4: []sim.NetworkV4{}, V6: []sim.NetworkV6{}}})
		w.join(d.Name, true)
		w.run()
		w.asked(3)
		if n, err := w.node(d.Name); err != nil || n.Spec.ProviderID != "" {
			t.Fatalf("the Node was initialized without an address: %v (%v)", n.Spec, err)
		}
		inner := sim.NetworkV4{IPAddress: "10.1.2.3", Netmask: "255.255.0.0", Type: "private"}
		outer := sim.NetworkV4{IPAddress: "198.51.100.7", Netmask: "255.255.255.0", Type: "public"}
		set := func(networks ...sim.NetworkV4) {
			must.Do(t, w.Account.SetDropletNetworks(fmt.Sprint(d.ID), sim.Networks{V4: networks}))
		}
		set(inner)
		testkit.Eventually(t, "the Node to be initialized", func() string { return w.initialized(d) })
		set(inner, outer)
		testkit.Eventually(t, "the late address", func() string {
			n, err := w.node(d.Name)
			if err != nil {
				return err.Error()
			}
			for _, a := range n.Status.Addresses {
				if a.Type == corev1.NodeExternalIP && a.Address == outer.IPAddress {
					return ""
				}
			}
			return fmt.Sprint(n.Status.Addresses)
		})
	})
}

// A droplet that is switched off keeps its Node, which gets the taint, until it is on again.
func TestPowerOff(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 11}, func(t *testing.T, w *world) {
		d := w.fleet(2)[0]
		tainted := func() bool {
			n := must.Get(w.node(d.Name)).Or(t)
			for _, taint := range n.Spec.Taints {
				if taint.Key == cloudproviderapi.TaintNodeShutdown {
					return true
				}
			}
			return false
		}
		power := func(status string, ready bool) {
			must.Do(t, w.Account.SetDropletStatus(fmt.Sprint(d.ID), status))
			w.SetReady(d.Name, ready)
		}
		power("off", false)
		testkit.Eventually(t, "the taint", func() string { return map[bool]string{false: "it is not there"}[tainted()] })
		power("active", true)
		testkit.Eventually(t, "the taint to go", func() string { return map[bool]string{true: "it is there"}[tainted()] })
	})
}

// A kubelet was started with a --node-ip that its machine does not have: the Node cannot be initialized, and its Event says why. With a right one it is.
func TestWrongNodeIP(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 22}, func(t *testing.T, w *world) {
		d := w.Droplet(sim.DropletSpec{Name: w.NodeName(0)})
		w.join(d.Name, true, func(n *corev1.Node) {
			n.Annotations = map[string]string{cloudproviderapi.AnnotationAlphaProvidedIPAddr: "192.0.2.99"}
		})
		w.run()
		w.Reported(d.Name, EventNotInitialized, "--node-ip is 192.0.2.99, which is not an address of droplet "+fmt.Sprint(d.ID))
		w.PatchNode(d.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, cloudproviderapi.AnnotationAlphaProvidedIPAddr, cloud.Address(d, "private")))
		testkit.Eventually(t, "the Node to be initialized", func() string { return w.initialized(d) })
	})
}

// A new Node may not be the droplet that it names: it stays uninitialized, without addresses, until an administrator
// confirms it, and a second Node of a droplet until the first is deleted.
func TestADisputedNodeIsNotInitialized(t *testing.T) {
	both(t, sim.Options{Seed: 23}, func(t *testing.T, w *world) {
		one := w.fleet(1)[0]
		database := w.Droplet(sim.DropletSpec{Name: "database"})
		thief, twin := w.NodeName(7), w.NodeName(8)
		names := func(d sim.Droplet) func(*corev1.Node) {
			return func(n *corev1.Node) { n.Spec.ProviderID = fmt.Sprintf("digitalocean://%d", d.ID) }
		}
		w.join(thief, true, names(database))
		w.join(twin, true, names(one))
		w.Reported(thief, EventDisputed, fmt.Sprintf("not initialized: it names droplet %d", database.ID))
		w.Reported(twin, EventDisputed, fmt.Sprintf("not initialized: it names droplet %d", one.ID))
		w.asked(4)
		for _, name := range []string{thief, twin} {
			if n, err := w.node(name); err != nil || !uninitialized(n) || len(n.Status.Addresses) > 0 {
				t.Errorf("node %s got what a droplet of others has: %v (%v)", name, n, err)
			}
		}
		w.PatchNode(thief, fmt.Sprintf(`{"metadata":{"labels":{%q:"%d"}}}`, instance.ConfirmedLabel, database.ID))
		testkit.Eventually(t, "the confirmed Node to be initialized", func() string {
			n, err := w.node(thief)
			return map[bool]string{true: "it is not"}[err != nil || uninitialized(n)]
		})
	})
}

// Where the cluster's tag is required, a new Node of a droplet without it is not initialized, although it has the
// droplet's name, until an administrator confirms it; while no droplet has the tag none needs it.
func TestAnUntaggedDropletIsNotInitialized(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 24}, func(t *testing.T, w *world) {
		w.config.Tag, w.config.RequireTag = "k8s:ours", true
		first := w.fleet(1)[0] // no droplet has the tag
		ours := w.Droplet(sim.DropletSpec{Name: w.NodeName(1), Tags: []string{"k8s:ours"}})
		w.join(ours.Name, true)
		testkit.Eventually(t, "the Node of a tagged droplet", func() string { return w.initialized(ours) })
		database := w.Droplet(sim.DropletSpec{Name: w.NodeName(2)})
		w.asked(4) // the list shows the tag
		w.join(database.Name, true)
		w.Reported(database.Name, EventDisputed, "not initialized: it names droplet", "lacks the tag k8s:ours")
		if n, err := w.node(database.Name); err != nil || !uninitialized(n) || n.Spec.ProviderID != "" {
			t.Errorf("the Node of a droplet without the tag: %v (%v)", n, err)
		}
		if problem := w.initialized(first); problem != "" {
			t.Errorf("an older Node lost something: %s", problem)
		}
		w.PatchNode(database.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:"%d"}}}`, instance.ConfirmedLabel, database.ID))
		testkit.Eventually(t, "the confirmed Node", func() string { return w.initialized(database) })
	})
}

// The token rotates while the process runs: the old one is refused, and the next call is made with the new one.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 12}, func(t *testing.T, w *world) {
		droplets := w.fleet(3)
		w.Account.RevokeToken(sim.DefaultToken)
		w.SetReady(droplets[0].Name, false)
		w.asked(3)
		if got := w.nodes(); len(got) != 3 {
			t.Fatalf("Nodes %q are left while the token is refused", got)
		}
		w.Account.AddToken(sim.Token{Value: "a-new-token"})
		w.useToken("a-new-token")
		w.DeleteDroplet(droplets[0].ID)
		testkit.Eventually(t, "the Node to go", func() string { return w.gone(droplets[0].Name) })
	})
}

// A bad day at DigitalOcean, seed by seed: nothing that is there is lost, and when it is over all is as it should be.
func TestStorm(t *testing.T) {
	t.Parallel()
	first := cases.Seed(t)
	for day := range uint64(4) {
		t.Run(fmt.Sprint("day ", day), func(t *testing.T) {
			t.Parallel()
			simulated(t, sim.Options{Seed: first + day, Consistency: sim.Consistency{List: 300 * time.Millisecond, Get: 100 * time.Millisecond}}, func(t *testing.T, w *world) {
				droplets := w.fleet(8)
				must.Do(t, w.Sim.Inject(fault.Storm(0.08)...))
				for _, d := range droplets {
					w.SetReady(d.Name, false)
				}
				w.DeleteDroplet(droplets[0].ID)
				fresh := w.Droplet(sim.DropletSpec{Name: w.NodeName(20)})
				w.join(fresh.Name, true)
				w.asked(8)
				w.Sim.ClearFaults()
				testkit.Eventually(t, "the lost Node to go", func() string { return w.gone(droplets[0].Name) })
				testkit.Eventually(t, "the new Node to be initialized", func() string { return w.initialized(fresh) })
				for _, d := range droplets[1:] {
					if problem := w.initialized(d); problem != "" {
						t.Errorf("%s, whose droplet is there: %s", d.Name, problem)
					}
				}
			})
		})
	}
}

// Two leaders write one record at one time: the API server lets one of them, and the other looks again.
func TestTwoLeadersOnOneRecord(t *testing.T) {
	both(t, sim.Options{Seed: 13}, func(t *testing.T, w *world) {
		leases := w.Client.CoordinationV1().Leases(RecordNamespace)
		one, two := &ledger{leases: leases, name: w.Name}, &ledger{leases: leases, name: w.Name}
		r := accountRecord{Account: instance.Account{UUID: "ours", Team: "t"}}
		must.Do(t, one.save(t.Context(), r))
		must.Get(two.load(t.Context())).Or(t)
		r.Memory.Gone = []instance.Loss{{Droplet: 1, At: time.Unix(1e9, 0)}}
		must.Do(t, one.save(t.Context(), r))
		r.Memory.Gone[0].Droplet = 2
		if err := two.save(t.Context(), r); !errors.Is(err, errRecordMoved) {
			t.Errorf("the other's loss was overwritten: %v", err)
		}
		got, err := two.load(t.Context())
		if err != nil || len(got.Memory.Gone) != 1 || got.Memory.Gone[0].Droplet != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
