// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
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

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/lab/internal/bgp/birdc"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// soon is by when the peers of a machine that is cut must have lost it with patched templates, and must not with
// Calico's: a quarter of BIRD's hold time.
const soon = assumed.HoldTime / 4

// TestBIRDTemplates cuts a reflector off with the templates that kubectl mooring bird-templates patches, and, in the
// full run, with Calico's own as the control: all that the patch promises is measured in both.
func TestBIRDTemplates(t *testing.T) {
	nodes, kinds := failing, []string{blueprint.PatchedTemplates, blueprint.TemplatesOfCalico}
	if testing.Short() {
		nodes, kinds = 6, kinds[:1]
	}
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			l := startScenarios(t, nodes, "--bird-templates", kind)
			l.awaitRoutes()
			judge(t, l.scenario(scenario.Enable))
			if kind == blueprint.PatchedTemplates {
				l.bfd(nodes)
			}
			r := l.scenario(scenario.ReplaceOne)
			judge(t, r)
			t.Logf("%s: a node that was promoted or demoted lost its routes for %v at most", kind, r.Report.All.LongestOutage)
			l.cutAndCount(kind)
		})
	}
}

// bird asks the BIRD of a machine.
func (l *lab) bird(node, question string) []string {
	l.t.Helper()
	lines, err := birdc.Ask(l.t.Context(), filepath.Join(l.BGPNetwork(), "nodes", node, "run", "calico", "bird.ctl"), question)
	if err != nil {
		l.t.Fatal(err)
	}
	return lines
}

// bfd waits until every reflector has a BFD session that is up with each other machine.
func (l *lab) bfd(nodes int) {
	l.t.Helper()
	_, reflectors := l.nodes()
	l.await("the BFD sessions", func() error {
		for _, name := range reflectors {
			up := 0
			for _, line := range l.bird(name, "show bfd sessions") {
				if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "Up" {
					up++
				}
			}
			if up != nodes-1 {
				return fmt.Errorf("%s has %d that are up, want %d", name, up, nodes-1)
			}
		}
		return nil
	})
}

// holders are the machines with an Established session with an address.
func (l *lab) holders(but string, peer netip.Addr) (out []string) {
	l.t.Helper()
	for _, n := range l.state().Nodes {
		if n.Name == but {
			continue
		}
		for _, s := range birdc.Sessions(l.bird(n.Name, "show protocols")) {
			if s.Peer == peer && s.Established {
				out = append(out, n.Name)
			}
		}
	}
	return out
}

// cutAndCount cuts a reflector's cable and counts who has lost it when; then it restarts another reflector's BIRD
// without routes, as a reboot does.
func (l *lab) cutAndCount(kind string) {
	l.t.Helper()
	all, reflectors := l.nodes()
	victim, other := reflectors[0], reflectors[1]
	node := all[victim]
	prefix, err := netip.ParsePrefix(node.Annotations["projectcalico.org/IPv4Address"])
	if err != nil {
		l.t.Fatal(err)
	}
	address := prefix.Addr()
	peers := len(l.holders(victim, address))
	if want := len(all) - 1; peers != want {
		l.t.Fatalf("%d machines have a session with the reflector %s, want %d", peers, victim, want)
	}
	begun := time.Now()
	l.link(victim, "down")
	left := peers
	l.awaitFor(2*assumed.HoldTime, "the peers to lose "+victim, func() error {
		now := len(l.holders(victim, address))
		if passed := time.Since(begun); now < left {
			l.t.Logf("%s: after %v %d of %d peers have the session", kind, passed.Round(100*time.Millisecond), now, peers)
		}
		left = now
		if left > 0 {
			return fmt.Errorf("%d of %d have it", left, peers)
		}
		return nil
	})
	took := time.Since(begun)
	l.t.Logf("%s: all %d peers lost the cut machine within %v", kind, peers, took.Round(100*time.Millisecond))
	if patched := kind == blueprint.PatchedTemplates; patched != (took < soon) {
		l.t.Errorf("that is on the wrong side of %v", soon)
	}
	l.reboot(kind, other)
}

// reboot takes the routes from a machine and kills its BIRD, as a reboot does, while a machine that it has a session
// with is dead, and waits until it has the routes again.
func (l *lab) reboot(kind, node string) {
	l.t.Helper()
	pid := l.state().Processes[node+"/bird"]
	if pid <= 1 {
		l.t.Fatalf("the BIRD of %s has process ID %d", node, pid)
	}
	namespace, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/net") // which outlives the process
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = namespace.Close() }()
	before := len(l.routes(namespace, "show"))
	if before == 0 {
		l.t.Fatalf("%s has no routes to lose", node)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	l.routes(namespace, "flush")
	begun := time.Now()
	l.awaitFor(2*assumed.HoldTime, "the routes of "+node, func() error {
		if now := len(l.routes(namespace, "show")); now < before {
			return fmt.Errorf("it has %d of %d", now, before)
		}
		return nil
	})
	took := time.Since(begun)
	l.t.Logf("%s: a BIRD without routes had its %d again after %v", kind, before, took.Round(100*time.Millisecond))
	if patched := kind == blueprint.PatchedTemplates; patched != (took < soon) {
		l.t.Errorf("that is on the wrong side of %v", soon)
	}
}

// routes shows or flushes the routes that BIRD has made in a network namespace, a line for each.
func (l *lab) routes(namespace *os.File, verb string) []string {
	l.t.Helper()
	command := exec.CommandContext(l.t.Context(), "nsenter", "--net=/proc/self/fd/3", "ip", "route", verb, "proto", "bird")
	command.ExtraFiles = []*os.File{namespace}
	out, err := command.CombinedOutput()
	if err != nil {
		l.t.Fatalf("ip route %s: %v\n%s", verb, err, out)
	}
	return slices.Collect(strings.Lines(string(out)))
}
