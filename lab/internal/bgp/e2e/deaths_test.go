// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// deathsVariable is how many deaths of a reflector TestDeaths has; without it, none.
const deathsVariable = "MOORING_BGP_DEATHS"

// templatesVariable is --bird-templates of TestDeaths' lab: calico (also if empty) or mooring.
const templatesVariable = "MOORING_BGP_TEMPLATES"

// death is a way for a reflector to die. cause makes it die; recovers says that it comes back by itself, and keeps its role.
type death struct {
	name     string
	cause    func(l *lab, victim string)
	recovers bool
}

func deaths() []death {
	return []death{
		{"power-off", func(l *lab, victim string) { l.cut(victim); l.taintAsOff(victim) }, false},
		{"kill -9 of BIRD", func(l *lab, victim string) {
			pid := l.state().Processes[victim+"/bird"]
			if pid <= 1 { // kill(2) takes 0 for the test's own group
				l.t.Fatalf("the BIRD of %s has process ID %d", victim, pid)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				l.t.Fatal(err)
			}
		}, true},
		{"network cut", (*lab).cut, false},
		{"Node deleted", func(l *lab, victim string) { l.run("node", "remove", victim) }, false},
		{"reboot within a minute", func(l *lab, victim string) {
			l.cut(victim)
			l.pass(25 * time.Second)
			l.mend(victim)
		}, true},
	}
}

// TestDeaths lets reflectors die, one after the other, in each of the ways in turn, and logs a line of a table for each: from its death until its Node is not
// ready or gone, until the status says so, until another has taken its place, and the longest outages of its own pairs and of others.
func TestDeaths(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv(deathsVariable))
	if err != nil {
		t.Skip("set " + deathsVariable + " to a number of deaths")
	}
	l := startScenarios(t, failing, "--zones", "3", "--bird-templates", cmp.Or(os.Getenv(templatesVariable), blueprint.TemplatesOfCalico))
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

func (d death) run(l *lab) {
	l.replenish()
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
		l.t.Logf("| %s | – | – | – | %v | %v |", d.name, time.Duration(report.All.LongestOutage).Round(100*time.Millisecond), report.Collateral.LongestOutage)
		return
	}
	var notReady, shown time.Duration
	l.await("the status to show it, or another to take its place", func() error {
		top := l.topology()
		if all, _ := l.nodes(); notReady == 0 && !ready(all[victim]) {
			notReady = time.Since(begun)
		}
		if meta.IsStatusConditionTrue(top.Status.Conditions, v1alpha1.ConditionDegraded) ||
			!slices.ContainsFunc(top.Status.Reflectors, func(r v1alpha1.ReflectorStatus) bool { return r.Node == victim }) {
			shown = time.Since(begun)
			return nil
		}
		return fmt.Errorf("it is %s", top.Status.Phase)
	})
	l.awaitRoles([]string{victim})
	replaced := time.Since(begun)
	report := end(victim)
	l.noCollateral(report)
	l.t.Logf("| %s | %v | %v | %v | %v | %v |", d.name, notReady.Round(time.Second), shown.Round(time.Second), replaced.Round(time.Second),
		longestBeyond(report, victim).Round(100*time.Millisecond), report.Collateral.LongestOutage)
	if all, _ := l.nodes(); len(all[victim].Name) > 0 {
		l.run("node", "remove", victim)
	}
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
	if out, err := exec.CommandContext(l.t.Context(), "nsenter", "--net=/proc/"+pid+"/ns/net", "ip", "link", "set", "eth0", state).CombinedOutput(); err != nil {
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
	if _, err := l.kubernetes().CoreV1().Nodes().Patch(l.t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		l.t.Fatal(err)
	}
}

// TestAllReflectorsAreOff powers all reflectors off at once. The mesh carries the others until new reflectors do, and is off at the end.
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
		l.t.Logf("mesh on after %v, new reflectors and the mesh off after %v; others: %+v", meshOn.Round(100*time.Millisecond), took.Round(time.Second), report.Collateral)
	})
}

// TestASNumbers enables reflectors where a BGPPeer gives a node a wrong AS number for another: pairs without a role lose nothing, the two
// included, which reach each other at the end.
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
		ObjectMeta: metav1.ObjectMeta{Name: "wrong"}, Spec: calicov3.BGPPeerSpec{Node: node.Name, PeerIP: address.String(), ASNumber: 65001},
	}
	if err := b.api.Create(t.Context(), wrong); err != nil {
		t.Fatal(err)
	}
	judge(t, l.scenario(scenario.Enable))
	l.awaitRoutes()
}
