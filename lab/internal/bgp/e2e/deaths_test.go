// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/lab/internal/bgp/birdc"
	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// deathsVariable is how many deaths of a reflector TestDeaths has; without it, none.
const deathsVariable = "MOORING_BGP_DEATHS"

// templatesVariable is --bird-templates of TestDeaths' lab: calico (also if empty) or mooring.
const templatesVariable = "MOORING_BGP_TEMPLATES"

// death is a way for a reflector to die. cause makes it die; recovers says that it comes back by itself, and keeps its
// role; kubeletLives that its Node stays Ready, so that its peers alone notice.
type death struct {
	name                   string
	cause                  func(l *lab, victim string)
	recovers, kubeletLives bool
	// grace is spec.failure.unreachableGrace if it is not [shortGrace].
	grace time.Duration
}

// shortGrace is how long a reflector may be lost in TestDeaths, so that ten deaths take no hour.
const shortGrace = 20 * time.Second

func deaths() []death {
	return []death{
		{name: "crash loop of BIRD", cause: (*lab).crashLoop, kubeletLives: true},
		{name: "SIGSTOP of BIRD", cause: func(l *lab, victim string) {
			l.signalBIRD(victim, syscall.SIGSTOP)
		}, kubeletLives: true},
		{name: "port 179 filtered", cause: (*lab).filter, kubeletLives: true},
		{name: "full disk", cause: (*lab).fillDisk, kubeletLives: true},
		{name: "power-off", cause: func(l *lab, victim string) { l.cut(victim); l.taintAsOff(victim) }},
		{name: "kill -9 of BIRD", cause: func(l *lab, victim string) {
			l.signalBIRD(victim, syscall.SIGKILL)
		}, recovers: true},
		{name: "network cut", cause: (*lab).cut},
		{name: "Node deleted", cause: func(l *lab, victim string) { l.run("node", "remove", victim) }},
		// Within the default of the grace period, which no other death needs.
		{name: "reboot within a minute", cause: func(l *lab, victim string) {
			l.cut(victim)
			l.pass(25 * time.Second)
			l.mend(victim)
		}, recovers: true, grace: time.Minute},
	}
}

// connect gives the operator, which is outside of the lab's network, a way to the machines, as it has in a cluster to
// kubelets. None runs there, so that a machine refuses the connection, which shows that it lives. The link is gone with
// the lab's network.
func (l *lab) connect() {
	l.t.Helper()
	pid := strconv.Itoa(l.runningState().Identities[blueprint.BGPNetwork].PID)
	threads, err := filepath.Glob(filepath.Join("/proc", pid, "task", "*", "ns", "net"))
	if err != nil {
		l.t.Fatal(err)
	}
	in := func(namespace string, args ...string) error {
		args = append([]string{"--net=" + namespace, "ip", "link"}, args...)
		if out, err := exec.CommandContext(l.t.Context(), "nsenter", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, out)
		}
		return nil
	}
	at := slices.IndexFunc(threads, func(namespace string) bool { return in(namespace, "show", "bridge") == nil })
	if at < 0 {
		l.t.Fatalf("none of %d threads is in the bridge's namespace", len(threads))
	}
	const here = "lab-kubelets"
	err = errors.Join(
		in(threads[at], "add", "outside", "type", "veth", "peer", "name", here, "netns", strconv.Itoa(os.Getpid())),
		in(threads[at], "set", "outside", "master", "bridge", "up"),
	)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, args := range [][]string{{"addr", "add", "172.30.255.254/16", "dev", here}, {"link", "set", here, "up"}} {
		if out, err := exec.CommandContext(l.t.Context(), "ip", args...).CombinedOutput(); err != nil {
			l.t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
}

// signalBIRD sends a signal to the BIRD of a machine.
func (l *lab) signalBIRD(node string, signal syscall.Signal) {
	l.t.Helper()
	pid := l.state().Processes[node+"/bird"]
	if pid <= 1 { // kill(2) takes 0 for the test's own group
		l.t.Fatalf("the BIRD of %s has process ID %d", node, pid)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		l.t.Fatal(err)
	}
}

// crashLoop kills the BIRD of a machine as often as it is started again, until the machine is removed or the test ends.
func (l *lab) crashLoop(node string) {
	l.signalBIRD(node, syscall.SIGKILL)
	go func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-l.t.Context().Done():
				return
			case <-ticker.C:
			}
			state, err := l.client().State(l.t.Context())
			if err != nil {
				continue
			}
			if !slices.ContainsFunc(state.Nodes, func(n network.NodeState) bool { return n.Name == node }) {
				return
			}
			if pid := state.Processes[node+"/bird"]; pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
			}
		}
	}()
}

// fillDisk has calico-node of a machine start again on a disk without a free byte: confd has no configuration from an
// earlier container and cannot write one, so BIRD does not start. A BIRD that runs goes on when the disk becomes full.
func (l *lab) fillDisk(node string) {
	l.t.Helper()
	config := filepath.Join(l.BGPNetwork(), "nodes", node, "confd", "config")
	if err := syscall.Mount("tmpfs", config, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		l.t.Fatalf("mounting a small disk for %s: %v", node, err)
	}
	l.t.Cleanup(func() {
		if err := syscall.Unmount(config, syscall.MNT_DETACH); err != nil {
			l.t.Errorf("unmounting the small disk of %s: %v", node, err)
		}
	})
	if err := os.WriteFile(filepath.Join(config, "log"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		l.t.Fatalf("filling the disk of %s: %v", node, err)
	}
	processes := l.state().Processes
	for _, name := range []string{"/agent", "/bird", "/bird6"} {
		if pid := processes[node+name]; pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
	}
}

// filter drops whatever BIRD sends from a machine or that is sent to it, as a NetworkPolicy on port 179 does.
func (l *lab) filter(node string) {
	l.t.Helper()
	pid := strconv.Itoa(l.state().Processes[node+"/bird"])
	rules := exec.CommandContext(l.t.Context(), "nsenter", "--net=/proc/"+pid+"/ns/net", "nft", "-f", "-")
	rules.Stdin = strings.NewReader(`table inet filtered {
	chain in { type filter hook input priority 0; tcp dport 179 drop; tcp sport 179 drop; }
	chain out { type filter hook output priority 0; tcp dport 179 drop; tcp sport 179 drop; }
}
`)
	if out, err := rules.CombinedOutput(); err != nil {
		l.t.Fatalf("filtering port 179 of %s: %v\n%s", node, err, out)
	}
}

// TestDeaths lets reflectors die, one after the other, in each of the ways in turn, and logs a line of a table for
// each: from its death until its peers have lost it, until the status says so, until another is a reflector, until that
// one carries the routes of all clients, until it has taken the dead one's place, and the longest outages of its own pairs
// and of others.
func TestDeaths(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv(deathsVariable))
	if err != nil {
		t.Skip("set " + deathsVariable + " to a number of deaths")
	}
	l := startScenarios(
		t,
		failing,
		"--zones",
		"3",
		"--bird-templates",
		cmp.Or(os.Getenv(templatesVariable), blueprint.TemplatesOfCalico),
	)
	l.awaitRoutes()
	l.connect()
	l.scenario(scenario.Enable) // which TestScenarios judges
	l.patchTopology(`{"spec":{"redundancy":3}}`)
	ways := deaths()
	l.operated(func(l *lab) {
		for i := range count {
			d := ways[i%len(ways)]
			if !l.part(fmt.Sprintf("%d %s", i, d.name), d.run) {
				return
			}
		}
	})
}

// operated runs something with the operator at work.
func (l *lab) operated(run func(l *lab)) {
	l.t.Helper()
	stop, err := scenario.Operate(l.t.Context(), operator(), l.Kubeconfig(), filepath.Join(l.BGPNetwork(), operatorLog))
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			l.t.Error(err)
		}
	}()
	l.awaitReflectors(nil)
	run(l)
}

// settled waits until the topology is Ready and its witnesses have reported, as they have for most of a cluster's life.
func (l *lab) settled() {
	l.t.Helper()
	l.awaitReflectors(nil)
	l.await("the witnesses", func() error {
		const path = "/apis/crd.projectcalico.org/v1/caliconodestatuses"
		text, err := l.kubernetes().CoreV1().RESTClient().Get().AbsPath(path).DoRaw(l.t.Context())
		if err != nil {
			return err
		}
		var requests calicov3.CalicoNodeStatusList
		if err := json.Unmarshal(text, &requests); err != nil {
			return err
		}
		answered := 0
		for i := range requests.Items {
			answered += min(1, len(requests.Items[i].Status.BGP.PeersV4))
		}
		if answered < 3 {
			return fmt.Errorf("%d of %d requests are answered", answered, len(requests.Items))
		}
		return nil
	})
}

func (d death) run(l *lab) {
	l.replenish()
	l.patchTopology(fmt.Sprintf(
		`{"spec":{"failure":{"unreachableGrace":%q,"notReadyGrace":%q}}}`,
		cmp.Or(d.grace, shortGrace),
		shortGrace,
	))
	l.settled()
	all, before := l.nodes()
	victim := before[0]
	node := all[victim]
	v := dying{name: victim, reflectors: before}
	v.address = routereflector.NodeFrom(&node, 0, routereflector.DefaultASNumber).IPv4
	v.peers = len(l.holders(victim, v.address))
	v.end, v.begun = l.begin(), time.Now()
	d.cause(l, victim)
	if d.recovers {
		d.recovered(l, v)
		return
	}
	d.replaced(l, v)
}

// recovered waits until a reflector that comes back has its sessions again, and a spare that took its place meanwhile, or
// another, has given its role up.
func (d death) recovered(l *lab, v dying) {
	spare, promoted := "", time.Duration(0)
	l.pass(10 * time.Second) // in which a spare would be promoted
	l.await("the reflectors", func() error {
		top := l.topology()
		_, reflectors := l.nodes()
		for _, s := range top.Status.Spares {
			if s.Reflector == v.name {
				spare, promoted = s.Node, s.Since.Sub(v.begun)
			}
		}
		if len(reflectors) != int(*top.Spec.Redundancy) || top.Status.Phase != v1alpha1.PhaseReady {
			return fmt.Errorf("they are %v, the topology is %s", reflectors, top.Status.Phase)
		}
		return nil
	})
	if _, after := l.nodes(); spare == "" && !slices.Equal(after, v.reflectors) {
		l.t.Errorf("the reflectors are %v, were %v", after, v.reflectors)
	}
	whole := time.Since(v.begun)
	report := v.end(v.name, cmp.Or(spare, v.name))
	l.noCollateral(report)
	l.t.Logf("| %s | spare %q promoted %v | whole %v | its own %v | promoted node %v | others %v |", d.name, spare,
		tenth(promoted), tenth(whole), tenth(time.Duration(report.All.LongestOutage)), tenth(longestBeyond(report, v.name)),
		report.Collateral.LongestOutage)
}

func tenth(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// carries reports whether every client has routes to all machines that are left from a reflector: those to the clients'
// own addresses come from it as well.
func (l *lab) carries(reflector, dead string, reflectors []string) bool {
	all, _ := l.nodes()
	node := all[reflector]
	address := routereflector.NodeFrom(&node, 0, routereflector.DefaultASNumber).IPv4
	nodes := slices.DeleteFunc(l.state().Nodes, func(n network.NodeState) bool { return n.Name == dead })
	for _, n := range nodes {
		if n.Name == reflector || slices.Contains(reflectors, n.Name) {
			continue
		}
		carried := 0
		for _, s := range birdc.Sessions(l.bird(n.Name, "show protocols")) {
			if s.Peer == address && s.Established {
				carried = len(birdc.Paths(l.bird(n.Name, "show route protocol "+s.Protocol)))
			}
		}
		if carried < len(nodes)-1 {
			return false
		}
	}
	return true
}

// dying is a reflector that dies: its address, the reflectors before, how many peers had a session with it, since when,
// and what ends the probe.
type dying struct {
	name       string
	address    netip.Addr
	reflectors []string
	peers      int
	begun      time.Time
	end        func(failed ...string) probe.Report
}

// replaced waits until another reflector has taken the place of one that died, and logs when what was seen. A machine
// whose kubelet lives is a client without a session afterwards, which keeps the topology Degraded.
func (d death) replaced(l *lab, v dying) {
	var first, lost, shown, promoted, carrying time.Duration
	l.awaitFor(2*assumed.HoldTime, "another reflector in its place", func() error {
		passed, top := time.Since(v.begun), l.topology()
		if lost == 0 {
			switch left := len(l.holders(v.name, v.address)); {
			case left == 0:
				first, lost = cmp.Or(first, passed), passed
			case left < v.peers && first == 0:
				first = passed
			}
		}
		if shown == 0 && d.isShown(&top, v.name) {
			shown = passed
		}
		_, reflectors := l.nodes()
		isNew := func(name string) bool { return !slices.Contains(v.reflectors, name) }
		if at := slices.IndexFunc(reflectors, isNew); at >= 0 && carrying == 0 {
			promoted = cmp.Or(promoted, passed)
			if l.carries(reflectors[at], v.name, v.reflectors) {
				carrying = time.Since(v.begun)
			}
		}
		if slices.Contains(reflectors, v.name) || len(reflectors) != int(*top.Spec.Redundancy) ||
			top.Status.Plan != nil || carrying == 0 {
			return fmt.Errorf("the reflectors are %v, %+v, %s", reflectors, top.Status.Plan, top.Status.Phase)
		}
		return nil
	})
	whole := time.Since(v.begun)
	all, _ := l.nodes()
	if d.kubeletLives && !ready(all[v.name]) {
		l.t.Errorf("the Node of %s is not Ready any more", v.name)
	}
	if shown == 0 {
		l.t.Errorf("the loss of %s was never shown", v.name)
	}
	report := v.end(v.name)
	l.noCollateral(report)
	l.t.Logf(
		"| %s | first peer lost it %v, last %v | shown %v | promoted %v | carrying %v | whole %v | promoted node %v | others %v |",
		d.name, tenth(first), tenth(lost), tenth(shown), tenth(promoted), tenth(carrying), tenth(whole),
		tenth(longestBeyond(report, v.name)), report.Collateral.LongestOutage,
	)
	if len(all[v.name].Name) > 0 {
		l.run("node", "remove", v.name)
	}
}

// isShown reports whether the status says that a reflector is lost, or not one any more.
func (d death) isShown(t *v1alpha1.RouteReflectorTopology, victim string) bool {
	if c := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionDegraded); c != nil &&
		c.Status == metav1.ConditionTrue && strings.Contains(c.Message, victim) {
		return !d.kubeletLives || c.Reason == "ReflectorLost"
	}
	return !slices.ContainsFunc(t.Status.Reflectors, func(r v1alpha1.ReflectorStatus) bool { return r.Node == victim })
}

func ready(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// longestBeyond is the longest outage of pairs with a change of role, without those of the machine that is dead.
func longestBeyond(r probe.Report, dead string) time.Duration {
	var longest time.Duration
	for _, p := range r.Losers {
		if p.From != dead && p.To != dead {
			longest = max(longest, time.Duration(p.LongestOutage))
		}
	}
	return longest
}

// pass lets time pass.
func (l *lab) pass(d time.Duration) {
	l.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.t.Context().Done():
	case <-timer.C:
	}
}

// link sets the interface of a machine up or down, in its namespace.
func (l *lab) link(node, state string) {
	l.t.Helper()
	pid := strconv.Itoa(l.state().Processes[node+"/bird"])
	if out, err := exec.CommandContext(
		l.t.Context(),
		"nsenter",
		"--net=/proc/"+pid+"/ns/net",
		"ip",
		"link",
		"set",
		"eth0",
		state,
	).CombinedOutput(); err != nil {
		l.t.Fatalf("setting the interface of %s %s: %v\n%s", node, state, err, out)
	}
}

// cut takes a machine's network away, and its kubelet's heartbeats with it.
func (l *lab) cut(node string) {
	l.run("node", "freeze", node)
	l.link(node, "down")
}

func (l *lab) mend(node string) {
	l.link(node, "up")
	l.run("node", "thaw", node)
}

// taintAsOff does what a cloud controller does for a machine that is off.
func (l *lab) taintAsOff(node string) {
	l.t.Helper()
	const patch = `{"spec":{"taints":[{"key":"node.cloudprovider.kubernetes.io/shutdown","effect":"NoSchedule"}]}}`
	if _, err := l.kubernetes().CoreV1().Nodes().Patch(
		l.t.Context(),
		node,
		types.MergePatchType,
		[]byte(patch),
		metav1.PatchOptions{},
	); err != nil {
		l.t.Fatal(err)
	}
}

// TestAllReflectorsAreOff powers all reflectors off at once. A spare carries the others, if one of the reflectors is known
// to be off before the others are, or the mesh until new reflectors do; and the mesh is off at the end.
func TestAllReflectorsAreOff(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes: -short leaves it out")
	}
	l := startScenarios(t, failing, "--zones", "3")
	l.awaitRoutes()
	l.scenario(scenario.Enable) // which TestScenarios judges
	l.patchTopology(`{"spec":{"redundancy":3,"failure":{"unreachableGrace":"20s","notReadyGrace":"20s"}}}`)
	l.operated(func(l *lab) {
		_, before := l.nodes()
		end, begun := l.begin(), time.Now()
		for _, name := range before {
			l.cut(name)
			l.taintAsOff(name)
		}
		carried, by := time.Duration(0), "the mesh"
		l.await("the mesh, or a spare", func() error {
			top := l.topology()
			for _, r := range top.Status.Reflectors {
				if !slices.Contains(before, r.Node) && r.Established > 0 {
					by = r.Node
				}
			}
			if by == "the mesh" && top.Status.Mesh != v1alpha1.MeshOn {
				return fmt.Errorf("it is %s, %+v", top.Status.Mesh, top.Status.Conditions)
			}
			carried = time.Since(begun)
			return nil
		})
		l.awaitRoles(before)
		took := time.Since(begun)
		top := l.topology()
		if top.Status.Mesh != v1alpha1.MeshOff || top.Status.Emergency != nil {
			l.t.Errorf("Ready, with the mesh %s and %+v", top.Status.Mesh, top.Status.Emergency)
		}
		l.observe()
		report := end(before...)
		l.t.Logf(
			"%s carries after %v, new reflectors and the mesh off after %v; others: %+v",
			by, carried.Round(100*time.Millisecond),
			took.Round(time.Second),
			report.Collateral,
		)
	})
}

// TestASNumbers enables reflectors where a BGPPeer gives a node a wrong AS number for another: pairs without a role
// lose nothing, the two included, which reach each other at the end.
func TestASNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes: -short leaves it out")
	}
	l := startScenarios(t, 7)
	l.awaitRoutes()
	b := newBench(l)
	all, _ := l.nodes()
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	node, other := all[names[0]], all[names[1]]
	address := routereflector.NodeFrom(&other, 0, routereflector.DefaultASNumber).IPv4
	var wrong client.Object = &calicov3.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{
			Name: "wrong",
		},
		Spec: calicov3.BGPPeerSpec{Node: node.Name, PeerIP: address.String(), ASNumber: 65001},
	}
	if err := b.api.Create(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	judge(t, l.scenario(scenario.Enable))
	l.awaitRoutes()
}
