// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
)

// failure is what happens to a cluster with reflectors. Each begins with as many of them as are wanted, and ends so.
type failure struct {
	name string
	run  func(*lab)
}

var (
	aBirdIsKilled    = failure{"bird is killed", birdIsKilled}
	aReflectorDies   = failure{"a reflector dies", reflectorDies}
	aKubeletDies     = failure{"a kubelet dies", kubeletDies}
	aPoolIsRolled    = failure{"the pool is rolled", poolIsRolled}
	aZoneDies        = failure{"a zone dies", zoneDies}
	allReflectorsDie = failure{"all reflectors die", reflectorsDie}
	backToTheMesh    = failure{"back to the mesh", toTheMesh}
)

// topologyPath is where the topology of all scenarios is.
const topologyPath = "/apis/bgp.mooring.dev/v1alpha1/routereflectortopologies/lab"

// failing is how many machines there are in TestFailures.
const failing = 9

// TestFailures has a lab of nine nodes in three zones, with a reflector in each.
func TestFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes: -short leaves it out; the short one has two parts of it in TestScenarios")
	}
	l := startScenarios(t, failing, "--zones", "3")
	l.awaitRoutes()
	if !l.part(scenario.Enable, func(l *lab) { judge(l.t, l.scenario(scenario.Enable)) }) {
		return
	}
	l.patchTopology(`{"spec":{"redundancy":3,"failure":{"unreachableGrace":"10s","notReadyGrace":"10s"}}}`)
	l.failures(aBirdIsKilled, aKubeletDies, aReflectorDies, aPoolIsRolled, aZoneDies, allReflectorsDie, backToTheMesh)
}

// failures runs them one after the other, with the operator at work.
func (l *lab) failures(all ...failure) {
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
	for _, f := range all {
		if !l.part(f.name, f.run) {
			return // what comes next needs this one's end
		}
	}
}

func (l *lab) topology() v1alpha1.RouteReflectorTopology {
	l.t.Helper()
	var out v1alpha1.RouteReflectorTopology
	text, err := l.kubernetes().CoreV1().RESTClient().Get().AbsPath(topologyPath).DoRaw(l.t.Context())
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return out
}

func (l *lab) patchTopology(patch string) {
	l.t.Helper()
	rest := l.kubernetes().CoreV1().RESTClient()
	if err := rest.Patch(types.MergePatchType).AbsPath(topologyPath).Body([]byte(patch)).Do(l.t.Context()).Error(); err != nil {
		l.t.Fatal(err)
	}
}

// nodes are the Nodes that there are, by name, and the names of those that are reflectors, sorted.
func (l *lab) nodes() (all map[string]corev1.Node, reflectors []string) {
	l.t.Helper()
	list, err := l.kubernetes().CoreV1().Nodes().List(l.t.Context(), metav1.ListOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	all = map[string]corev1.Node{}
	for _, n := range list.Items {
		all[n.Name] = n
		if n.Labels[v1alpha1.ReflectorLabel] != "" {
			reflectors = append(reflectors, n.Name)
		}
	}
	slices.Sort(reflectors)
	return all, reflectors
}

// awaitReflectors waits until there are as many reflectors as are wanted, none of them among some, the topology is Ready with just them, and
// every node has every route.
func (l *lab) awaitReflectors(but []string) []string {
	l.t.Helper()
	reflectors := l.awaitRoles(but)
	l.awaitRoutes()
	return reflectors
}

// awaitRoles is awaitReflectors where a machine is in the lab that no route leads to any more.
func (l *lab) awaitRoles(but []string) []string {
	l.t.Helper()
	var reflectors []string
	l.await("the reflectors", func() error {
		t := l.topology()
		var said []string
		for _, r := range t.Status.Reflectors {
			said = append(said, r.Node)
		}
		slices.Sort(said)
		_, reflectors = l.nodes()
		want := int(*t.Spec.Redundancy)
		if len(reflectors) != want || !slices.Equal(said, reflectors) || t.Status.Phase != v1alpha1.PhaseReady || t.Status.ObservedGeneration != t.Generation ||
			slices.ContainsFunc(but, func(name string) bool { return slices.Contains(reflectors, name) }) {
			return fmt.Errorf("they are %v; the topology says %v, %s; want %d, and none of %v", reflectors, said, t.Status.Phase, want, but)
		}
		return nil
	})
	return reflectors
}

// begin starts a probe, and remembers who is a reflector; end stops it. Anyone who changed its role in between, or failed, is not among the others.
func (l *lab) begin() (end func(failed ...string) probe.Report) {
	l.t.Helper()
	_, before := l.nodes()
	id, err := l.client().StartProbe(l.t.Context(), 20*time.Millisecond)
	if err != nil {
		l.t.Fatal(err)
	}
	return func(failed ...string) probe.Report {
		l.t.Helper()
		_, after := l.nodes()
		changed := slices.DeleteFunc(slices.Concat(before, after), func(name string) bool {
			return slices.Contains(before, name) && slices.Contains(after, name)
		})
		changed = append(changed, failed...)
		slices.Sort(changed)
		report, err := l.client().StopProbe(l.t.Context(), id, slices.Compact(changed))
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Logf("%v failed or changed their roles in %v; lost %d of %d, longest outage %v; others: lost %d of %d, %d outages, longest %v", report.Changed,
			report.Duration, report.All.Lost, report.All.Sent, report.All.LongestOutage, report.Collateral.Lost, report.Collateral.Sent,
			report.Collateral.Outages, report.Collateral.LongestOutage)
		return report
	}
}

// observe lets the probe go on, to see what comes late.
func (l *lab) observe() {
	l.t.Helper()
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case <-l.t.Context().Done():
	case <-timer.C:
	}
}

// noCollateral sees that nobody had an outage who neither failed nor changed its role.
func (l *lab) noCollateral(r probe.Report) {
	l.t.Helper()
	if r.Collateral.Sent == 0 {
		l.t.Error("no pair kept its roles, so that nothing was measured")
	}
	for _, p := range r.Losers {
		if !p.RoleChange && p.Outages > 0 {
			l.t.Errorf("%s to %s: an outage of %v at %v although neither failed or changed its role", p.From, p.To, p.LongestOutage, p.OutageAt)
		}
	}
}

// birdIsKilled: it is started again, as runit does it in calico-node. Only the reflector's own pods lose anything, and nobody's role changes.
func birdIsKilled(l *lab) {
	_, before := l.nodes()
	victim := before[0]
	end := l.begin()
	pid := l.state().Processes[victim+"/bird"]
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	l.await("another bird", func() error {
		if now := l.state().Processes[victim+"/bird"]; now == 0 || now == pid {
			return fmt.Errorf("its process is %d, was %d", now, pid)
		}
		return nil
	})
	l.observe()
	if after := l.awaitReflectors(nil); !slices.Equal(after, before) {
		l.t.Errorf("the reflectors are %v, were %v", after, before)
	}
	l.noCollateral(end(victim))
}

// reflectorDies: the machine falls silent, and its Node is deleted. Another one takes its place.
func reflectorDies(l *lab) {
	_, before := l.nodes()
	end := l.begin()
	l.run("node", "remove", before[0])
	l.awaitReflectors(before[:1])
	l.noCollateral(end(before[0]))
}

// kubeletDies: a reflector's Node is not Ready for longer than the grace period, and its BIRD works. It stays a reflector, and nobody loses anything.
func kubeletDies(l *lab) {
	_, before := l.nodes()
	victim := before[0]
	end := l.begin()
	l.run("node", "freeze", victim)
	grace := l.topology().Spec.Failure.UnreachableGrace.Duration
	l.await("its grace period to be over, and the others to be asked", func() error {
		all, _ := l.nodes()
		for _, c := range all[victim].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown && time.Since(c.LastTransitionTime.Time) > grace+10*time.Second {
				return nil
			}
		}
		return fmt.Errorf("%s is %v", victim, all[victim].Status.Conditions)
	})
	if _, after := l.nodes(); !slices.Equal(after, before) {
		l.t.Errorf("the reflectors are %v, were %v", after, before)
	}
	l.run("node", "thaw", victim)
	l.await("its Node to be Ready", func() error {
		all, _ := l.nodes()
		for _, c := range all[victim].Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%s is %v", victim, all[victim].Status.Conditions)
	})
	l.awaitReflectors(nil)
	report := end()
	l.noCollateral(report)
	if report.All.Outages > 0 {
		l.t.Errorf("the death of a kubelet cost %+v", report.All)
	}
}

// poolIsRolled: each reflector's machine is replaced by a new one: that comes, the old one is cordoned, and goes when its role has gone.
func poolIsRolled(l *lab) {
	_, before := l.nodes()
	end := l.begin()
	failed := slices.Clone(before)
	for i, old := range before {
		all, _ := l.nodes()
		name := fmt.Sprintf("new-%d", i)
		l.run("node", "add", name, "--zone", all[old].Labels[corev1.LabelTopologyZone])
		failed = append(failed, name)
		l.awaitRoutes()
		patch := []byte(`{"spec":{"unschedulable":true}}`)
		if _, err := l.kubernetes().CoreV1().Nodes().Patch(l.t.Context(), old, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			l.t.Fatal(err)
		}
		failed = append(failed, l.awaitReflectors(before[:i+1])...)
		l.run("node", "remove", old)
		l.awaitReflectors(before[:i+1])
	}
	l.noCollateral(end(failed...))
}

// replenish brings the lab back to its number of machines: half of them may not vanish within minutes, or the operator believes nothing.
func (l *lab) replenish() {
	l.t.Helper()
	all, _ := l.nodes()
	for i := range failing - len(all) {
		l.run("node", "add", fmt.Sprintf("more-%d-%s", i, strings.ToLower(rand.Text()[:4])))
	}
	l.awaitRoutes()
}

// zoneDies: all machines of a reflector's zone at once. Another zone has two reflectors then.
func zoneDies(l *lab) {
	l.replenish()
	all, before := l.nodes()
	zone := all[before[0]].Labels[corev1.LabelTopologyZone]
	var dead []string
	end := l.begin()
	for name, n := range all {
		if n.Labels[corev1.LabelTopologyZone] == zone {
			dead = append(dead, name)
			l.run("node", "remove", name)
		}
	}
	l.awaitReflectors(dead)
	l.noCollateral(end(dead...))
}

// reflectorsDie: all at once, so that nobody is left to reflect. The others have an outage, and it ends by itself: others are promoted at once.
func reflectorsDie(l *lab) {
	l.replenish()
	_, before := l.nodes()
	end := l.begin()
	for _, name := range before {
		l.run("node", "remove", name)
	}
	l.awaitReflectors(before)
	report := end(before...)
	if report.All.Lost == 0 {
		l.t.Error("nothing was lost, so that nothing was measured")
	}
	if mesh := l.topology().Status.Mesh; mesh != v1alpha1.MeshOff {
		l.t.Errorf("the topology is Ready, and the mesh is %s", mesh)
	}
}

// toTheMesh: the topology is deleted, after all of this.
func toTheMesh(l *lab) {
	end := l.begin()
	if err := l.kubernetes().CoreV1().RESTClient().Delete().AbsPath(topologyPath).Do(l.t.Context()).Error(); err != nil {
		l.t.Fatal(err)
	}
	l.await("the end of the topology", func() error {
		if text, err := l.kubernetes().CoreV1().RESTClient().Get().AbsPath(topologyPath).DoRaw(l.t.Context()); err == nil {
			return fmt.Errorf("it is there: %s", text)
		}
		return nil
	})
	l.awaitRoutes()
	if _, after := l.nodes(); len(after) > 0 {
		l.t.Errorf("these are still reflectors: %v", after)
	}
	l.noCollateral(end())
}
