// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

const (
	// operatorVariable names the operator's binary when it is not in bin of the repository.
	operatorVariable = "MOORING_ROUTE_REFLECTOR_OPERATOR_BINARY"
	// nodesVariable is how many nodes TestSize has; without it the test is left out.
	nodesVariable = "MOORING_BGP_NODES"
)

// TestScenarios runs one after the other, since each begins where the one before it ended.
func TestScenarios(t *testing.T) {
	nodes, names := 10, scenario.Names()
	if testing.Short() {
		nodes, names = 6, []string{scenario.Enable, scenario.ReplaceOne}
	}
	l := startScenarios(t, nodes)
	t.Logf("%d nodes had every route after %v", nodes, l.awaitRoutes())
	for _, name := range names {
		if !l.part(name, func(l *lab) { judge(l.t, l.scenario(name)) }) {
			return // what comes next needs this one's end
		}
		if name == scenario.ReplaceAll && !l.part("killed", killed) {
			return
		}
		if name == scenario.ReplaceOne && !l.part("adopt by hand", adoptByHand) {
			return
		}
		if name == scenario.Grow && !l.part("adopt multi", adoptMulti) {
			return
		}
	}
	if testing.Short() {
		l.failures(aBirdIsKilled, aReflectorDies)
	}
	// The last of all scenarios ends without reflectors, that of the short run with two.
	name := scenario.Enable
	if testing.Short() {
		name = scenario.Disable
	}
	l.part("control", func(l *lab) { control(l.t, l.scenario(name, "--burst")) })
}

// TestSize enables reflectors in a lab of many nodes. Its probe is a slow one: 50 nodes are 2,450 pairs.
func TestSize(t *testing.T) {
	nodes, err := strconv.Atoi(os.Getenv(nodesVariable))
	if err != nil {
		t.Skip("set " + nodesVariable + " to a number of nodes, at most 50")
	}
	l := startScenarios(t, nodes)
	t.Logf("%d nodes had every route after %v", nodes, l.awaitRoutes())
	judge(t, l.scenario(scenario.Enable, "--interval", "250ms"))
}

// startScenarios starts a lab and sees that there is an operator to run in it. More arguments are those of `lab up`.
func startScenarios(t *testing.T, nodes int, args ...string) *lab {
	t.Helper()
	if _, err := os.Stat(operator()); err != nil {
		testkit.Skip(t, "the operator's binary is needed: build it with `make build` or name it in %s", operatorVariable)
	}
	l := start(t, nodes, append(args, "--cloud", blueprint.CloudNone)...)
	t.Cleanup(func() {
		if content, err := os.ReadFile(filepath.Join(l.BGPNetwork(), operatorLog)); err == nil && t.Failed() {
			t.Logf("log of the operator:\n%s", content)
		}
	})
	return l
}

// operatorLog is in the network's folder.
const operatorLog = "calico-route-reflector-operator.log"

func operator() string {
	if named := os.Getenv(operatorVariable); named != "" {
		return named
	}
	return filepath.Join(repository, "bin", "calico-route-reflector-operator")
}

// repository is where this module's is, from here.
const repository = "../../../.."

// part runs a part of a test with the same lab.
func (l *lab) part(name string, run func(*lab)) bool {
	return l.t.Run(name, func(t *testing.T) {
		on := *l
		on.t = t
		run(&on)
	})
}

// scenario runs one and logs what it cost.
func (l *lab) scenario(name string, args ...string) scenario.Result {
	l.t.Helper()
	args = append([]string{"scenario", name, "--output", "json", "--crds", filepath.Join(repository, "config", "crd", "bases")}, args...)
	if !slices.Contains(args, "--burst") {
		args = append(args, "--operator", operator())
	}
	out := l.run(args...)
	var result scenario.Result
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		l.t.Fatalf("%v\n%s", err, out)
	}
	all, collateral := result.Report.All, result.Report.Collateral
	l.t.Logf("%s, burst %v, killed %v: %d steps in %v; lost %d of %d, longest outage %v; collateral: lost %d of %d, %d outages, longest %v", name,
		result.Burst, result.Killed, len(result.Changes), result.Took, all.Lost, all.Sent, all.LongestOutage, collateral.Lost, collateral.Sent,
		collateral.Outages, collateral.LongestOutage)
	for _, c := range result.Changes {
		l.t.Logf("%8v %s %s; mesh on %v, reflectors %v, members %v", c.At, c.Kind, c.Object, c.MeshOn, c.Reflectors, c.Members)
	}
	return result
}

// killed is replace-all again, with the operator killed on the way.
func killed(l *lab) {
	random := cases.Rand(l.t)
	// There are two Promotes and two Demotes; after the last there is nothing left to do.
	step, delay := 1+random.IntN(2*scenario.Redundancy-1), time.Duration(random.Int64N(int64(5*time.Second)))
	l.t.Logf("killed %v after step %d", delay, step)
	r := l.scenario(scenario.ReplaceAll, "--kill-at", strconv.Itoa(step), "--kill-delay", delay.String())
	if !r.Killed {
		l.t.Error("the operator was not killed")
	}
	judge(l.t, r)
}

// The kinds of changes of roles.
const promote, demote = "Promote", "Demote"

// expected are the kinds of the steps of each scenario, sorted, and how many reflectors there are at its end.
func expected(name string) (kinds []string, reflectors int) {
	const ensure, remove, off, on = "EnsurePeer", "RemovePeer", "MeshOff", "MeshOn"
	switch name {
	case scenario.Enable:
		return []string{ensure, ensure, off, promote, promote}, scenario.Redundancy
	case scenario.Steady:
		return nil, scenario.Redundancy
	case scenario.ReplaceOne:
		return []string{demote, promote}, scenario.Redundancy
	case scenario.ReplaceAll:
		return []string{demote, demote, promote, promote}, scenario.Redundancy
	case scenario.Grow:
		return []string{promote, promote}, scenario.Grown
	case scenario.Shrink:
		return []string{demote, demote}, scenario.Redundancy
	case scenario.Disable:
		return []string{demote, demote, on, remove, remove}, 0
	}
	return nil, 0
}

// judge is what must hold in every scenario. That the routes are there at the end has been awaited already.
func judge(t *testing.T, r scenario.Result) {
	t.Helper()
	if r.Report.Collateral.Sent == 0 {
		t.Fatal("no pair kept its roles, so that nothing was measured")
	}
	if r.Report.Collateral.Outages > 0 {
		for _, p := range r.Report.Losers {
			if !p.RoleChange && p.Outages > 0 {
				t.Errorf("%s to %s: an outage of %v at %v although neither changed its role", p.From, p.To, p.LongestOutage, p.OutageAt)
			}
		}
	}
	kinds, reflectors := expected(r.Scenario)
	var did []string
	for _, c := range r.Changes {
		did = append(did, c.Kind)
	}
	slices.Sort(did)
	if !slices.Equal(did, kinds) {
		t.Errorf("the steps are %v; want %v", did, kinds)
	}
	if len(r.Reflectors) != reflectors {
		t.Errorf("the reflectors are %v; want %d", r.Reflectors, reflectors)
	}
	if len(r.Questions) > 0 {
		t.Errorf("left over: CalicoNodeStatus %v", r.Questions)
	}
	if len(r.Writes) > 0 {
		t.Errorf("written while there was no reason for it: %v", r.Writes)
	}
	for i, c := range r.Changes {
		judgeChange(t, r, i, c)
	}
}

// sampled is how many members of the mesh must have said that it is whole before a reflector goes for good.
const sampled = 3

// judgeChange sees that a step was done on evidence: that what the step before it had begun was seen to work.
func judgeChange(t *testing.T, r scenario.Result, i int, c scenario.Change) {
	t.Helper()
	lack := func(ws []scenario.Witness, exempt func(node string) bool) []scenario.Witness {
		return slices.DeleteFunc(slices.Clone(ws), func(w scenario.Witness) bool { return w.Full() || exempt(w.Node) })
	}
	switch {
	case c.Kind == scenario.Torn:
		t.Errorf("step %d, %s: label and cluster ID did not change in one write", i, c.Object)
	case c.Kind == demote && r.Scenario == scenario.Disable:
		if lacking := lack(c.Members, func(string) bool { return false }); !c.MeshOn || len(c.Members) < sampled || len(lacking) > 0 {
			t.Errorf("step %d, Demote %s: mesh on: %v, said by %v, not whole by %v; want a whole mesh by %d", i, c.Node, c.MeshOn, c.Members, lacking, sampled)
		}
	case c.Kind == promote || c.Kind == demote || c.Kind == "MeshOff":
		// Nobody relies on a reflector that leaves as well.
		leaves := func(node string) bool { return c.Kind == demote && !slices.Contains(r.Reflectors, node) }
		if lacking := lack(c.Reflectors, leaves); len(lacking) > 0 {
			t.Errorf("step %d, %s %s: of these reflectors not all sessions had been seen before: %v", i, c.Kind, c.Object, lacking)
		}
		stay := 0
		for _, w := range c.Reflectors {
			if w.Full() && w.Node != c.Node {
				stay++
			}
		}
		if least := scenario.Redundancy - 1; !c.MeshOn && stay < least {
			t.Errorf("step %d, %s %s: %d established reflectors are left; want %d", i, c.Kind, c.Object, stay, least)
		}
		if c.Kind == "MeshOff" && stay < scenario.Redundancy {
			t.Errorf("step %d: the mesh went off with %d established reflectors; want %d", i, stay, scenario.Redundancy)
		}
	}
}

// control is what a burst must show: else the harness would not see an outage in the scenarios either.
func control(t *testing.T, r scenario.Result) {
	t.Helper()
	kinds, reflectors := expected(r.Scenario)
	if len(r.Changes) != len(kinds) || len(r.Reflectors) != reflectors {
		t.Fatalf("%d steps, reflectors %v; want %d and %d", len(r.Changes), r.Reflectors, len(kinds), reflectors)
	}
	if last := time.Duration(r.Changes[len(r.Changes)-1].At - r.Changes[0].At); last > 5*time.Second {
		t.Errorf("the steps took %v, which is not a burst", last)
	}
	if r.Report.Collateral.Outages == 0 {
		t.Errorf("all steps at once cost no pair an outage that kept its roles: %+v", r.Report.Collateral)
	}
}
