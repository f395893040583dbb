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
	"github.com/mooring-dev/mooring/internal/testkit/cases"
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

// dump is the datastore without what is not a machine's and without our fence.
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
	next, err := c.r.pass(c.t.Context())
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
	if c.r.DryRun {
		next = c.config.Resync // it asks to be run again at the pace of removals, which it never makes
	}
	c.clock.Step(next)
}

// fails runs a round of ours that cannot succeed.
func (c *comparison) fails() {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer stop()
	if _, err := c.r.pass(ctx); err == nil {
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
	tried := scenarios()
	if !*updatePage {
		tried = cases.Sample(t, 4, tried...)
	}
	for _, sc := range tried {
		t.Run(sc.letter, func(t *testing.T) {
			c := &comparison{
				stage: newStage(t, 0), old: &predecessor{domain: sc.domain, dryRun: sc.dryRun},
				held: map[string]map[nodesync.Gate]bool{},
			}
			if sc.domain != "" {
				c.config.Domains = []string{nodesync.NormalizeDomain(sc.domain)}
			}
			sc.run(c)
			c.judgeOurs(sc.dryRun)
			if got := c.removedByOld(); got != sc.published {
				t.Errorf("the rule of the old controller removes %+v here, and it is known to remove %+v", got, sc.published)
			}
			rows = append(rows, c.row(sc))
		})
	}
	if t.Failed() || len(rows) != len(scenarios()) {
		return // the page says what is right, and all of it (in CI)
	}
	file := filepath.Join(testkit.Root(t), "docs", "components", "calico-node-sync-compared.md")
	template, err := os.ReadFile(filepath.Join("testdata", "compared.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Replace(string(template), "ROWS", strings.Join(rows, "\n"), 1)
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
	if c.most > c.config.Backlog() {
		c.t.Errorf("%d machines were cleaned in one round", c.most)
	}
	if c.most > 1 {
		ours += fmt.Sprintf(", at most %d in a round", c.most)
	}
	if c.etcd.Revision(c.t) == c.began {
		ours += "; writes nothing"
	}
	if c.r.DryRun {
		ours += fmt.Sprintf("; logs the %.0f steps it would apply", testutil.ToFloat64(c.r.Metrics.planned))
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
		parts = append(parts, "everything: a round without a response ends before it decides")
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
