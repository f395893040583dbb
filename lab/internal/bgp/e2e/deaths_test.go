// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"cmp"
	"encoding/json"
	"fmt"
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
}

func deaths() []death {
	return []death{
		{"crash loop of BIRD", (*lab).crashLoop, false, true},
		{"SIGSTOP of BIRD", func(l *lab, victim string) { l.signalBIRD(victim, syscall.SIGSTOP) }, false, true},
		{"port 179 filtered", (*lab).filter, false, true},
		{"power-off", func(l *lab, victim string) { l.cut(victim); l.taintAsOff(victim) }, false, false},
		{"kill -9 of BIRD", func(l *lab, victim string) {
			l.signalBIRD(victim, syscall.SIGKILL)
		}, true, false},
		{"network cut", (*lab).cut, false, false},
		{"Node deleted", func(l *lab, victim string) { l.run("node", "remove", victim) }, false, false},
		{"reboot within a minute", func(l *lab, victim string) {
			l.cut(victim)
			l.pass(25 * time.Second)
			l.mend(victim)
		}, true, false},
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
// each: from its death until its Node is not ready or gone, until the status says so, until another has taken its
// place, and the longest outages of its own pairs and of others.
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
	l.scenario(scenario.Enable) // which TestScenarios judges
	l.patchTopology(`{"spec":{"redundancy":3,"failure":{"unreachableGrace":"20s","notReadyGrace":"20s"}}}`)
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
	l.settled()
	_, before := l.nodes()
	victim := before[0]
	end, begun := l.begin(), time.Now()
	d.cause(l, victim)
	if d.recovers {
		l.observe()
		if after := l.awaitReflectors(nil); !slices.Equal(after, before) {
			l.t.Errorf("the reflectors are %v, were %v", after, before)
		}
		report := end(victim)
		l.noCollateral(report)
		l.t.Logf(
			"| %s | – | – | – | %v | %v |",
			d.name,
			time.Duration(report.All.LongestOutage).Round(100*time.Millisecond),
			report.Collateral.LongestOutage,
		)
		return
	}
	if d.kubeletLives {
		d.runAlive(l, victim, begun, end)
		return
	}
	var notReady, shown time.Duration
	l.await("the status to show it, or another to take its place", func() error {
		top := l.topology()
		if all, _ := l.nodes(); notReady == 0 && !ready(all[victim]) {
			notReady = time.Since(begun)
		}
		if meta.IsStatusConditionTrue(top.Status.Conditions, v1alpha1.ConditionDegraded) ||
			!slices.ContainsFunc(
				top.Status.Reflectors,
				func(r v1alpha1.ReflectorStatus) bool { return r.Node == victim },
			) {
			shown = time.Since(begun)
			return nil
		}
		return fmt.Errorf("it is %s", top.Status.Phase)
	})
	l.awaitRoles([]string{victim})
	replaced := time.Since(begun)
	report := end(victim)
	l.noCollateral(report)
	l.t.Logf(
		"| %s | %v | %v | %v | %v | %v |",
		d.name,
		notReady.Round(time.Second),
		shown.Round(time.Second),
		replaced.Round(time.Second),
		longestBeyond(report, victim).Round(100*time.Millisecond),
		report.Collateral.LongestOutage,
	)
	if all, _ := l.nodes(); len(all[victim].Name) > 0 {
		l.run("node", "remove", victim)
	}
}

// runAlive is run of a death that the kubelet survives. Its machine is a client without a session afterwards, which
// keeps the topology Degraded.
func (d death) runAlive(l *lab, victim string, begun time.Time, end func(...string) probe.Report) {
	all, _ := l.nodes()
	node := all[victim]
	address := routereflector.NodeFrom(&node, 0, routereflector.DefaultASNumber).IPv4
	var first, lost, shown, promoted time.Duration
	peers := len(l.holders(victim, address))
	l.awaitFor(2*assumed.HoldTime, "another reflector in its place", func() error {
		passed, top := time.Since(begun), l.topology()
		if lost == 0 {
			switch left := len(l.holders(victim, address)); {
			case left == 0:
				first, lost = cmp.Or(first, passed), passed
			case left < peers && first == 0:
				first = passed
			}
		}
		c := meta.FindStatusCondition(top.Status.Conditions, v1alpha1.ConditionDegraded)
		if shown == 0 && c != nil && c.Status == metav1.ConditionTrue && c.Reason == "ReflectorLost" &&
			strings.Contains(c.Message, victim) {
			shown = passed
		}
		_, reflectors := l.nodes()
		if promoted == 0 && len(reflectors) > int(*top.Spec.Redundancy) {
			promoted = passed
		}
		if slices.Contains(reflectors, victim) || len(reflectors) != int(*top.Spec.Redundancy) ||
			top.Status.Plan != nil {
			return fmt.Errorf("the reflectors are %v, %+v, %s", reflectors, top.Status.Plan, top.Status.Phase)
		}
		return nil
	})
	whole := time.Since(begun)
	if all, _ = l.nodes(); !ready(all[victim]) {
		l.t.Errorf("the Node of %s is not Ready any more", victim)
	}
	if shown == 0 {
		l.t.Errorf("ReflectorLost of %s was never shown", victim)
	}
	report := end(victim)
	l.noCollateral(report)
	second := func(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
	l.t.Logf(
		"| %s | first peer lost it %v, last %v | shown %v | promoted %v | whole %v | promoted node %v | others %v |",
		d.name,
		second(first),
		second(lost),
		second(
			shown,
		),
		second(promoted),
		second(whole),
		second(longestBeyond(report, victim)),
		report.Collateral.LongestOutage,
	)
	l.run("node", "remove", victim)
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

// TestAllReflectorsAreOff powers all reflectors off at once. The mesh carries the others until new reflectors do, and
// is off at the end.
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
		meshOn := time.Duration(0)
		l.await("the mesh", func() error {
			if top := l.topology(); top.Status.Mesh != v1alpha1.MeshOn {
				return fmt.Errorf("it is %s, %+v", top.Status.Mesh, top.Status.Conditions)
			}
			meshOn = time.Since(begun)
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
			"mesh on after %v, new reflectors and the mesh off after %v; others: %+v",
			meshOn.Round(100*time.Millisecond),
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
