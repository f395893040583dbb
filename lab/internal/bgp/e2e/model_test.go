// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/lab/internal/bgp/birdc"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

const (
	// modelOnlyVariable selects one topology of TestModel by its number.
	modelOnlyVariable = "MOORING_MODEL_ONLY"
	// modelPrefix begins the labels that the test gives to Nodes.
	modelPrefix = "model.mooring.dev/"
	// foreignAS is the AS number of nodes that are not of the cluster's AS.
	foreignAS = "65001"
)

const (
	// quiet is how long the observed state must have been what is predicted, without a change, to count as the end.
	quiet = 1500 * time.Millisecond
	// still is how long it must have been the same to count as the end if it is something else. BIRD waits for up to 30 s before it tries again.
	still = 45 * time.Second
)

// TestModel compares what the model predicts of generated topologies with what BIRD does with the configuration that Calico's confd makes of
// them: the sessions, the number of paths that each node has to each other's block of pod addresses, and the kernel's routes. One lab is taken
// through all of them.
func TestModel(t *testing.T) {
	nodes, count := 10, 60
	if testing.Short() {
		nodes, count = 7, 6
	}
	seed := cases.Seed(t)
	only, err := strconv.Atoi(os.Getenv(modelOnlyVariable))
	if err != nil {
		only = -1
	}
	t.Logf("%d topologies; %s=N runs the one of that number", count, modelOnlyVariable)
	l := start(t, nodes, "--cloud", blueprint.CloudNone)
	l.awaitRoutes()
	b := newBench(l)
	kinds := shapeKinds()
	for i := range count {
		if only >= 0 && i != only {
			continue
		}
		// Each has a seed of its own, so that it can be repeated alone.
		s := newShape(kinds[i%len(kinds)], rand.New(rand.NewPCG(seed, uint64(i))), b.members)
		begun := time.Now()
		b.write(s)
		summary, err := b.compare(s)
		if err != nil {
			t.Errorf("topology %d (%s=%d): %s\n%v", i, modelOnlyVariable, i, s, err)
			continue
		}
		t.Logf("topology %d as predicted after %v: %s: %s", i, time.Since(begun).Round(100*time.Millisecond), summary, s)
	}
}

// bench is a lab whose route reflectors, BGPPeers and mesh a test writes as it likes.
type bench struct {
	*lab
	api     client.Client
	members []member
	// pods are the addresses by which the block of each member is known.
	pods []netip.Addr
	// silent are the members whose daemons are kept silent.
	silent map[int]bool
	// written is when the last change was made.
	written time.Time
	// waiting is since when sessions have been waited for, by "a - b".
	waiting map[string]time.Time
}

func newBench(l *lab) *bench {
	l.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}
	config.QPS, config.Burst = -1, -1
	bgp, err := calico.OpenBGP(l.t.Context(), config)
	if err != nil {
		l.t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		l.t.Fatal(err)
	}
	bgp.AddToScheme(scheme)
	b := &bench{lab: l}
	if b.api, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		l.t.Fatal(err)
	}
	nodes := l.state().Nodes
	slices.SortFunc(nodes, func(x, y network.NodeState) int { return strings.Compare(x.Name, y.Name) })
	for _, n := range nodes {
		b.members = append(b.members, member{name: n.Name, address: n.Address.Addr().String()})
		b.pods = append(b.pods, n.Pods[0])
	}
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// write makes the cluster what the shape says. The order of the writes does not matter for where it ends.
func (b *bench) write(s *shape) {
	b.t.Helper()
	ctx := b.t.Context()
	for i := range b.silent {
		if !s.silent[i] {
			_, err := b.bird(i, "enable all")
			b.must(err)
		}
	}
	b.silent = s.silent
	b.must(b.api.DeleteAllOf(ctx, &calicov3.BGPPeer{}))
	b.writeMesh(s.mesh)
	for i, m := range b.members {
		labels, annotations := map[string]any{}, map[string]any{routereflector.ClusterIDAnnotation: nil, routereflector.ASNumberAnnotation: nil}
		var n corev1.Node
		b.must(b.api.Get(ctx, client.ObjectKey{Name: m.name}, &n))
		for key := range n.Labels {
			if strings.HasPrefix(key, modelPrefix) {
				labels[key] = nil
			}
		}
		for _, key := range s.labels[i] {
			labels[key] = ""
		}
		if id := s.ids[i]; id != "" {
			annotations[routereflector.ClusterIDAnnotation] = id
		}
		if s.foreign[i] {
			annotations[routereflector.ASNumberAnnotation] = foreignAS
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
		b.must(err)
		b.must(b.api.Patch(ctx, &n, client.RawPatch(types.MergePatchType, patch)))
	}
	for i, spec := range s.peers {
		b.must(b.api.Create(ctx, &calicov3.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("model-%d", i)}, Spec: spec}))
	}
	b.written, b.waiting = time.Now(), map[string]time.Time{}
}

func (b *bench) writeMesh(on bool) {
	b.t.Helper()
	var c calicov3.BGPConfiguration
	err := b.api.Get(b.t.Context(), client.ObjectKey{Name: "default"}, &c)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	c.Name, c.Spec.NodeToNodeMeshEnabled = "default", &on
	if err != nil {
		err = b.api.Create(b.t.Context(), &c)
	} else {
		err = b.api.Update(b.t.Context(), &c)
	}
	b.must(err)
}

// bird asks the IPv4 daemon of a member.
func (b *bench) bird(i int, command string) ([]string, error) {
	return birdc.Ask(b.t.Context(), filepath.Join(b.BGPNetwork(), "nodes", b.members[i].name, "run", "calico", "bird.ctl"), command)
}

// facts are what is predicted, or seen, of pairs of members that count.
type facts struct {
	// sessions holds, by "a - b", the sessions of a with b that are Established.
	sessions map[string]bool
	// paths are the numbers of paths that a has to the block of b, by "a to b", where there are any; unroutable are the pairs of which a's kernel
	// has no route to b's pod.
	paths      map[string]int
	unroutable map[string]bool
}

func newFacts() facts {
	return facts{sessions: map[string]bool{}, paths: map[string]int{}, unroutable: map[string]bool{}}
}

func (f facts) equal(other facts) bool {
	return maps.Equal(f.sessions, other.sessions) && maps.Equal(f.paths, other.paths) && maps.Equal(f.unroutable, other.unroutable)
}

// atLeast lowers what was seen to what is predicted where there are more paths than that: members of the mesh with external sessions pass on what the
// model does not count, and never to where that gives a path to a node that has none.
func (f facts) atLeast(seen facts) facts {
	seen.paths = maps.Clone(seen.paths)
	for pair, paths := range seen.paths {
		if predicted := f.paths[pair]; predicted > 0 {
			seen.paths[pair] = min(paths, predicted)
		}
	}
	return seen
}

// predict asks the model, with what the API server has now, read as the operator reads it. Nodes that are silent are told to it as ones that are
// not Ready, all others as Ready. counts are the nodes of which it says anything, by their index.
func (b *bench) predict(s *shape) (want facts, counts []bool, unreachable, most int) {
	b.t.Helper()
	ctx := b.t.Context()
	var list corev1.NodeList
	var peers calicov3.BGPPeerList
	var configuration calicov3.BGPConfiguration
	b.must(b.api.List(ctx, &list))
	b.must(b.api.List(ctx, &peers))
	b.must(b.api.Get(ctx, client.ObjectKey{Name: "default"}, &configuration))
	slices.SortFunc(list.Items, func(x, y corev1.Node) int { return strings.Compare(x.Name, y.Name) })
	var nodes []routereflector.Node
	for i := range list.Items {
		n := routereflector.NodeFrom(&list.Items[i], 0, routereflector.ASNumberFrom(&configuration))
		n.Ready = corev1.ConditionTrue
		if s.silent[i] {
			n.Ready = corev1.ConditionUnknown
		}
		nodes = append(nodes, n)
	}
	var from []routereflector.Peer
	for i := range peers.Items {
		p, err := routereflector.PeerFrom(&peers.Items[i], func(text string) (routereflector.Matcher, error) { return selector.Parse(text) })
		b.must(err)
		from = append(from, p)
	}
	family := routereflector.Families(nodes, from, routereflector.MeshFrom(&configuration).On)[0]
	want = newFacts()
	verdict := family.Network.Judge(func(i int32) bool { return !family.Up[i] })
	for origin := range nodes {
		paths, _ := family.Network.Paths(int32(origin))
		for to := range nodes {
			if to == origin || !family.Up[to] || !family.Up[origin] {
				continue
			}
			if family.Network.Connected(int32(to), int32(origin)) {
				want.sessions[b.between(to, " - ", origin)] = true
			}
			if paths[to] == 0 {
				want.unroutable[b.between(to, " to ", origin)] = true
				continue
			}
			want.paths[b.between(to, " to ", origin)] = paths[to]
		}
	}
	return want, family.Up, verdict.UnreachablePairs, max(verdict.MaxPaths, verdict.ForeignPaths)
}

func (b *bench) between(from int, word string, to int) string {
	return b.members[from].name + word + b.members[to].name
}

// look reads what the daemons and the kernels have. pending are sessions that both ends are configured for, and that may still come.
func (b *bench) look(counts []bool) (seen facts, pending []string, err error) {
	seen = newFacts()
	configured := map[string]birdc.Session{}
	for i := range b.members {
		if b.silent[i] {
			for _, pattern := range []string{"Mesh_*", "Node_*", "Global_*"} {
				_, _ = b.bird(i, fmt.Sprintf("disable %q", pattern)) // it says so if there are none
			}
		}
		if !counts[i] {
			continue
		}
		protocols, err := b.bird(i, "show protocols")
		if err != nil {
			return seen, nil, err
		}
		for _, session := range birdc.Sessions(protocols) {
			at := slices.IndexFunc(b.members, func(m member) bool { return m.address == session.Peer.String() })
			if at < 0 || !counts[at] {
				continue
			}
			if session.Established {
				seen.sessions[b.between(i, " - ", at)] = true
			}
			configured[b.between(i, " - ", at)] = session
		}
		routes, err := b.bird(i, "show route")
		if err != nil {
			return seen, nil, err
		}
		for block, paths := range birdc.Paths(routes) {
			at := slices.IndexFunc(b.pods, block.Contains)
			if at >= 0 && at != i && counts[at] {
				seen.paths[b.between(i, " to ", at)] += paths
			}
		}
	}
	for i := range b.members {
		for at := range b.members {
			here, there := b.between(i, " - ", at), b.between(at, " - ", i)
			session, has := configured[here]
			if _, both := configured[there]; both && has && !seen.sessions[here] {
				pending = append(pending, here+": "+session.Info)
				b.hasten(i, at, session)
			}
		}
	}
	state, err := b.client().State(b.t.Context())
	if err != nil {
		return seen, nil, err
	}
	for _, n := range state.Nodes {
		i := slices.IndexFunc(b.members, func(m member) bool { return m.name == n.Name })
		for _, pod := range n.Missing {
			if at := slices.Index(b.pods, pod); counts[i] && counts[at] {
				seen.unroutable[b.between(i, " to ", at)] = true
			}
		}
	}
	return seen, pending, nil
}

// haste is how long a session may wait before it is hastened.
const haste = time.Second

// hasten starts one end of a session again: where both ends have been configured at once, both call at once, refuse each other, and do so again for
// up to half a minute.
func (b *bench) hasten(i, at int, session birdc.Session) {
	key := b.between(i, " - ", at)
	since, known := b.waiting[key]
	if !known {
		b.waiting[key] = time.Now()
	}
	if known && i > at && time.Since(since) > haste {
		b.waiting[key] = time.Now().Add(2 * haste)
		_, _ = b.bird(i, "restart "+session.Protocol) // it may have gone
	}
}

// compare waits until the observed state has come to rest, and says what differs from what is predicted.
func (b *bench) compare(s *shape) (summary string, err error) {
	want, counts, unreachable, most := b.predict(s)
	summary = fmt.Sprintf("%d sessions, %d pairs without a route, at most %d paths", len(want.sessions)/2, unreachable, most)
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var last facts
	changed := b.written
	for {
		seen, pending, err := b.look(counts)
		if err == nil && !seen.equal(last) {
			last, changed = seen, time.Now()
		}
		rested := time.Since(changed)
		if s.mesh && len(s.foreign) > 0 {
			seen = want.atLeast(seen)
		}
		same := err == nil && seen.equal(want) && len(pending) == 0
		if same && rested >= quiet {
			return summary, nil
		}
		if !same && rested >= still || ctx.Err() != nil {
			return summary, fmt.Errorf("%s\npending: %v, error: %w\n%s", summary, pending, err, difference(want, seen))
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// difference lists the observed state and not predicted, or the reverse.
func difference(want, seen facts) string {
	lines := map[string]bool{}
	sets := []struct {
		what       string
		want, seen map[string]bool
	}{{"session", want.sessions, seen.sessions}, {"no kernel route", want.unroutable, seen.unroutable}}
	for _, set := range sets {
		for _, pair := range slices.Concat(slices.Collect(maps.Keys(set.want)), slices.Collect(maps.Keys(set.seen))) {
			if set.want[pair] != set.seen[pair] {
				lines[fmt.Sprintf("%s, %s: predicted %v, seen %v", pair, set.what, set.want[pair], set.seen[pair])] = true
			}
		}
	}
	for _, pair := range slices.Concat(slices.Collect(maps.Keys(want.paths)), slices.Collect(maps.Keys(seen.paths))) {
		if want.paths[pair] != seen.paths[pair] {
			lines[fmt.Sprintf("%s: predicted %d paths, seen %d", pair, want.paths[pair], seen.paths[pair])] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n")
}
