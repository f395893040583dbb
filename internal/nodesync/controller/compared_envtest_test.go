// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	libapi "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
)

var updatePage = flag.Bool("update", false, "write docs/components/calico-node-sync-compared.md")

// predecessor is the rule by which kube-calico-controller removes Calico Nodes, made from a description of it and in no way from its code.
//
//   - At its start it lists the Calico Nodes and remembers their names. No name is ever added to them.
//   - Each period it lists the Calico Nodes again, and forgets the names that are gone. An error of that list is a panic.
//   - It then judges every Calico Node's name, with the domain behind it if there is one and the name has no dot, and every Kubernetes
//     Node's name. It also judges the name of a Kubernetes Node when an event says anything of it.
//   - A name that Kubernetes lists is well. Of any other it removes the Calico Node of that name if it remembers one, or else, with a
//     domain, the one whose name is the part before the first dot. It forgets the name first.
type predecessor struct {
	domain string
	dryRun bool

	known    map[string]bool
	removed  []string
	panicked bool
}

func (p *predecessor) start(calicoNames []string) {
	p.known = map[string]bool{}
	for _, name := range calicoNames {
		p.known[name] = true
	}
}

// resync is what it does each period. remove is the removal of one Calico Node.
func (p *predecessor) resync(calicoNames []string, err error, kubernetesNames []string, remove func(string) error) {
	if err != nil {
		p.panicked = true
		return
	}
	maps.DeleteFunc(p.known, func(name string, _ bool) bool { return !slices.Contains(calicoNames, name) })
	keys := slices.Clone(kubernetesNames)
	for _, name := range calicoNames {
		if p.domain != "" && !strings.Contains(name, ".") {
			name += "." + p.domain
		}
		keys = append(keys, name)
	}
	for _, key := range keys {
		p.judge(key, kubernetesNames, remove)
	}
}

func (p *predecessor) judge(key string, kubernetesNames []string, remove func(string) error) {
	if slices.Contains(kubernetesNames, key) {
		return
	}
	name := key
	if !p.known[name] && p.domain != "" {
		name, _, _ = strings.Cut(key, ".")
	}
	if !p.known[name] || p.dryRun {
		return
	}
	delete(p.known, name)
	if remove(name) == nil {
		p.removed = append(p.removed, name)
	}
}

// tally is how many machines lost their Calico Node.
type tally struct{ live, dead int }

// comparison is one scenario: both controllers, the same two servers.
type comparison struct {
	*stage
	old        *predecessor
	r          *Reconciler
	live, dead []string          // names of Calico Nodes
	want       map[string]string // the datastore as the live machines made it
	began      int64             // the store's revision when ours started

	addresses int
	held      map[string]map[nodesync.Gate]bool // what held which Calico Node back; "" is everything
	failed    int                               // rounds that ended with an error
	most      int                               // most Calico Nodes that went in one round
}

// machine registers a Node, unless it has no name, and starts calico-node with two pods there. An empty orchRef means none.
func (c *comparison) machine(calicoName, kubernetesName, orchRef string) string {
	c.t.Helper()
	if kubernetesName != "" {
		c.createNode(kubernetesName)
	}
	c.addresses++
	c.startOn(calicoName, orchRef, byte(c.addresses))
	for _, pod := range []string{"a", "b"} {
		if _, err := c.agents[calicoName].PodNetwork().Add(c.t.Context(), podOn(c.name(calicoName), pod)); err != nil {
			c.t.Fatal(err)
		}
	}
	return c.name(calicoName)
}

func (c *comparison) startOn(calicoName, orchRef string, address byte) {
	c.t.Helper()
	host := caliconode.Host{Name: c.name(calicoName), Address: netip.AddrFrom4([4]byte{172, 30, 1, address}), IPIP: true}
	if orchRef != "" {
		host.KubernetesNode = c.name(orchRef)
	}
	agent, err := c.calico.Start(c.t.Context(), host)
	if err != nil {
		c.t.Fatal(err)
	}
	c.agents[calicoName] = agent
}

// lives adds machines that live; their names on both sides are the same.
func (c *comparison) lives(names ...string) {
	for _, name := range names {
		c.live = append(c.live, c.machine(name, name, name))
	}
}

// dies adds a machine that is to be cleaned up. The caller says when its Node goes.
func (c *comparison) dies(calicoName, kubernetesName string) {
	c.dead = append(c.dead, c.machine(calicoName, kubernetesName, kubernetesName))
}

// expect takes the datastore as it is for what must be there in the end.
func (c *comparison) expect() { c.want = c.dump() }

// dump is the datastore without what is no machine's and without our fence.
func (c *comparison) dump() map[string]string {
	c.t.Helper()
	out := c.etcd.Dump(c.t)
	for key, value := range out {
		switch {
		case strings.Contains(key, "/clusterinformations/"):
			delete(out, key)
		case strings.HasPrefix(key, c.nodeKey("")):
			out[key] = unfenced(c.t, value)
		}
	}
	return out
}

func unfenced(t *testing.T, value string) string {
	t.Helper()
	var node map[string]any
	if err := json.Unmarshal([]byte(value), &node); err != nil {
		t.Fatal(err)
	}
	metadata, _ := node["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if delete(annotations, nodesync.FenceAnnotation); len(annotations) == 0 {
		delete(metadata, "annotations")
	}
	text, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *comparison) calicoNames() []string {
	c.t.Helper()
	folder := strings.TrimSuffix(c.nodeKey(""), c.prefix)
	var names []string
	for key := range c.etcd.Dump(c.t) {
		if name, ok := strings.CutPrefix(key, folder); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *comparison) kubernetesNames() []string {
	c.t.Helper()
	list, err := c.api.Client.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	names := make([]string, 0, len(list.Items))
	for _, node := range list.Items {
		names = append(names, node.Name)
	}
	return names
}

// start starts both controllers, which have seen nothing yet.
func (c *comparison) start() {
	c.t.Helper()
	c.follow()
	c.r = c.reconciler()
	c.began = c.etcd.Revision(c.t)
	c.old.start(c.calicoNames())
}

// leftToOld is the Calico Nodes as they stand where the old controller is at work.
func (c *comparison) leftToOld() []string {
	return slices.DeleteFunc(c.calicoNames(), func(name string) bool { return slices.Contains(c.old.removed, name) })
}

func works(string) error { return nil }

// period is a period of the old controller.
func (c *comparison) period() {
	c.t.Helper()
	c.old.resync(c.leftToOld(), nil, c.kubernetesNames(), works)
}

// leaves deletes Nodes while both controllers watch.
func (c *comparison) leaves(kubernetesNames ...string) {
	c.t.Helper()
	for _, name := range kubernetesNames {
		c.leave(name)
		c.old.judge(c.name(name), c.kubernetesNames(), works)
	}
}

// round runs one round of ours and passes the time it asks for.
func (c *comparison) round() {
	c.t.Helper()
	before := len(c.calicoNames())
	next, err := c.r.Round(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	c.most = max(c.most, before-len(c.calicoNames()))
	for refusal := range c.r.refused {
		if c.held[refusal.Of.Host] == nil {
			c.held[refusal.Of.Host] = map[nodesync.Gate]bool{}
		}
		c.held[refusal.Of.Host][refusal.Gate] = true
	}
	c.clock.Step(next)
}

// fails runs a round of ours that cannot succeed.
func (c *comparison) fails() {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer stop()
	if _, err := c.r.Round(ctx); err == nil {
		c.t.Error("a round succeeded without a server")
	}
	c.failed++
}

// watch runs both for long enough: twice the mass guard's window, and many periods.
func (c *comparison) watch() {
	c.t.Helper()
	for range 3 {
		c.period()
	}
	for end := c.clock.Now().Add(2 * c.config.MassWindow); c.clock.Now().Before(end); {
		c.round()
	}
}

// removed counts who of the machines has no Calico Node any more.
func (c *comparison) removed() tally {
	names := c.calicoNames()
	gone := func(name string) bool { return !slices.Contains(names, name) }
	return tally{live: len(filter(c.live, gone)), dead: len(filter(c.dead, gone))}
}

func (c *comparison) removedByOld() tally {
	gone := func(name string) bool { return slices.Contains(c.old.removed, name) }
	return tally{live: len(filter(c.live, gone)), dead: len(filter(c.dead, gone))}
}

func filter(names []string, keep func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !keep(name) })
}

// judgeOurs fails the test if a live machine lost anything, or if anything of a dead one is left that should go.
func (c *comparison) judgeOurs(deadStay bool) {
	c.t.Helper()
	got := c.dump()
	for key, value := range c.want {
		if got[key] != value {
			c.t.Errorf("LIVE machines lost something: %s was\n%s\nand is\n%s", key, value, got[key])
		}
	}
	for _, name := range c.live {
		if node := c.etcd.Dump(c.t)[strings.TrimSuffix(c.nodeKey(""), c.prefix)+name]; strings.Contains(node, nodesync.FenceAnnotation) {
			c.t.Errorf("the fence of %s was not withdrawn", name)
		}
	}
	if deadStay {
		return
	}
	for key := range got {
		if _, ok := c.want[key]; !ok {
			c.t.Errorf("left of a dead machine: %s", key)
		}
	}
}

// unreachable is an API server that nobody can reach.
func (c *comparison) unreachable() Cluster {
	c.t.Helper()
	config := rest.CopyConfig(c.api.Config)
	config.Host = "https://127.0.0.1:1"
	reader, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		c.t.Fatal(err)
	}
	return NewKubernetesCluster(reader, c.clock)
}

// belongsTo records on the datastore which cluster it is of.
func (c *comparison) belongsTo(uid string) {
	c.t.Helper()
	info, err := c.calico.Client().ClusterInformation().Get(c.t.Context(), "default", options.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	info.Annotations = map[string]string{nodesync.BindingAnnotation: uid}
	if _, err := c.calico.Client().ClusterInformation().Update(c.t.Context(), info, options.SetOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// belongsToOrchestrator gives a Calico Node another orchestrator's orchRef.
func (c *comparison) belongsToOrchestrator(calicoName, orchestrator string) {
	c.t.Helper()
	nodes := c.calico.Client().Nodes()
	node, err := nodes.Get(c.t.Context(), c.name(calicoName), options.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	node.Spec.OrchRefs = []libapi.OrchRef{{NodeName: node.Name, Orchestrator: orchestrator}}
	if _, err := nodes.Update(c.t.Context(), node, options.SetOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func TestSideBySide(t *testing.T) {
	var rows []string
	for _, sc := range scenarios() {
		t.Run(sc.letter, func(t *testing.T) {
			c := &comparison{
				stage: newStage(t, 0), old: &predecessor{domain: sc.domain, dryRun: sc.dryRun},
				held: map[string]map[nodesync.Gate]bool{},
			}
			sc.run(c)
			c.judgeOurs(sc.dryRun)
			if got := c.removedByOld(); got != sc.published {
				t.Errorf("the rule of the old controller removes %+v here, and it is known to remove %+v", got, sc.published)
			}
			rows = append(rows, c.row(sc))
		})
	}
	if len(rows) != len(scenarios()) {
		return // not all of them ran
	}
	file := filepath.Join(testkit.Root(t), "docs", "components", "calico-node-sync-compared.md")
	got := pageStart + strings.Join(rows, "\n") + "\n" + pageEnd
	if *updatePage {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs, run with -update if that is meant:\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// row is the scenario's row of the table, made of what was observed.
func (c *comparison) row(sc scenario) string {
	old := says(c.removedByOld(), len(c.live), len(c.dead))
	if c.old.panicked {
		old = "panics until etcd answers; " + old
	}
	ours := says(c.removed(), len(c.live), len(c.dead))
	if c.most > c.config.NodesPerRound {
		c.t.Errorf("%d machines were cleaned in one round", c.most)
	}
	if c.most > 1 {
		ours += fmt.Sprintf(", at most %d in a round", c.most)
	}
	if c.etcd.Revision(c.t) == c.began {
		ours += "; writes nothing"
	}
	if n := strings.Count(c.r.lastDryRun, "\n"); n > 0 {
		ours += fmt.Sprintf("; logs the %d steps it would apply", n+1)
	}
	return "| " + strings.Join([]string{sc.letter, sc.what, old, ours, c.because()}, " | ") + " |"
}

// says puts a tally in words; what live machines lost stands out.
func says(removed tally, live, dead int) string {
	out := fmt.Sprintf("keeps all %d live", live)
	if removed.live > 0 {
		out = fmt.Sprintf("**removes %d of %d live**", removed.live, live)
	}
	switch {
	case dead == 0:
		return out
	case removed.dead == 0:
		return out + fmt.Sprintf(", keeps %d dead", dead)
	}
	return out + fmt.Sprintf(", removes %d of %d dead", removed.dead, dead)
}

// because is which gates held what back.
func (c *comparison) because() string {
	var parts []string
	for _, gate := range sortedGates(c.held[""]) {
		parts = append(parts, fmt.Sprintf("everything: `%s`", gate))
	}
	if c.failed > 0 {
		parts = append(parts, "everything: a round without an answer ends before it decides")
	}
	if conflicts := c.conflicts(); conflicts > 0 {
		parts = append(parts, "live: the fence")
	} else if len(c.held[""]) == 0 {
		parts = append(parts, "live: "+c.heldBack(c.live))
	}
	if len(c.dead) > 0 && len(c.held[""]) == 0 {
		parts = append(parts, "dead, for a time: "+c.heldBack(c.dead))
	}
	return strings.Join(parts, "; ")
}

// heldBack counts the gates that held any of the machines; a machine that none had to hold is known to live by its orchRef.
func (c *comparison) heldBack(names []string) string {
	count, alive := map[nodesync.Gate]int{}, 0
	for _, name := range names {
		if len(c.held[name]) == 0 {
			alive++
		}
		for gate := range c.held[name] {
			count[gate]++
		}
	}
	var parts []string
	for _, gate := range sortedGates(count) {
		parts = append(parts, fmt.Sprintf("`%s` %d", gate, count[gate]))
	}
	if alive > 0 {
		parts = append(parts, fmt.Sprintf("orchRef %d", alive))
	}
	return strings.Join(parts, ", ")
}

func sortedGates[V any](gates map[nodesync.Gate]V) []nodesync.Gate {
	return slices.DeleteFunc(nodesync.Gates(), func(gate nodesync.Gate) bool {
		_, ok := gates[gate]
		return !ok
	})
}

// conflicts is how many steps did not hold because the world had moved on.
func (c *comparison) conflicts() int {
	sum := 0.0
	for _, step := range []nodesync.Step{
		nodesync.Fence{}, nodesync.RemoveEndpoints{}, nodesync.ReleaseAddresses{}, nodesync.RemoveAffinity{}, nodesync.RemoveResource{},
		nodesync.RemoveNode{},
	} {
		sum += testutil.ToFloat64(c.r.Metrics.steps.WithLabelValues(nodesync.Kind(step), "conflict"))
	}
	return int(sum)
}

// once is an error for the n-th write alone.
func once(n int) func(int) error {
	return func(write int) error {
		if write == n {
			return errors.New("etcdserver: request timed out")
		}
		return nil
	}
}

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
		{letter: "J", what: "etcd does not answer, then the API server does not; a machine leaves meanwhile", published: tally{dead: 1}, run: serversFail},
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
		if write == 2 { // the fence is written, Kubernetes has said NotFound once more, and the next transaction is about to be sent
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

const pageStart = `PAGE
`

const pageEnd = `END
`
