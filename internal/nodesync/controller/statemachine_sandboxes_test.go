// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// Pods that come again under their names, on their machine or on another, as those of a StatefulSet do: what their
// earlier sandboxes have left is found and goes, and nothing of a sandbox that runs, whatever its kubelet and its
// plugin do meanwhile.
func TestOldSandboxesOfPodsThatComeAgain(t *testing.T) {
	t.Parallel()
	stats := newShare(t, "pods that come again", "old sandboxes removed", "killed pods", "dead kubelets")
	cases.Check(t, func(t *rapid.T) {
		x := newTrial(t, stats.metrics)
		defer x.end()
		x.watchesPods(t)
		x.u.config.AlsoRemove, x.u.config.SweepPeriod = []nodesync.ResourceKind{nodesync.KindPodLeftovers}, 30*time.Second
		x.addLeaders(t, 1, false)
		s := &story{trial: x}
		p := x.leaders[0]
		for range rapid.IntRange(5, 25).Draw(t, "times") {
			if m := s.machine(t); m.identity == byReference {
				x.u.registers(m)
				x.u.startsCalicoNode(m)
				x.u.startsPod(m)
			}
			s.killsPod(t)
			s.comesAgain(t)
			if rapid.IntRange(0, 3).Draw(t, "and trouble") == 0 {
				s.podTrouble(t)
			}
			p.watchAll()
			p.round()
			s.must(t)
			x.u.pass(min(p.wait(), time.Minute))
		}
		s.rest(t)
		stats.add(x.counts)
	})
}

// elsewhere reports that a pod lives on another machine, where its endpoint shows it.
func (u *universe) elsewhere(m *modelMachine, name string) bool {
	pod := u.api.pods[name]
	on := slices.IndexFunc(u.machines, func(other *modelMachine) bool { return other.kube == pod.node })
	if !u.api.alive(name) || pod.node == m.kube || pod.endpoint == "" || on < 0 || strings.HasSuffix(name, "-"+m.kube) {
		return false
	}
	value, _ := u.etcd.get(pod.endpoint)
	node, _ := u.etcd.get(modelNodeKey(u.machines[on].host))
	_, readable := value.(modelEndpoint)
	known, _ := node.(modelNode)
	return readable && len(known.OrchRefs) == 1 && known.OrchRefs[0].NodeName == pod.node
}

// later reports that a pod lives on the machine in another sandbox than that of a handle, as its endpoint and its
// address show.
func (u *universe) later(m *modelMachine, name, handle string) bool {
	pod := u.api.pods[name]
	value, _ := u.etcd.get(pod.endpoint)
	endpoint, _ := value.(modelEndpoint)
	return u.api.alive(name) && pod.node == m.kube && pod.handle != handle && endpoint.Handle == pod.handle && endpoint.Node == m.host &&
		u.holdsHandle(m.host, pod.handle) && !strings.HasSuffix(name, "-"+m.kube)
}

func (u *universe) holdsHandle(host, handle string) bool {
	return len(u.assigned(u.etcd.revision, func(_ modelBlock, _ netip.Addr, a modelAssignment) bool { return a.Host == host && a.Handle == handle })) > 0
}

// modelContainer is the container ID in a handle.
func modelContainer(handle string) string {
	return handle[strings.LastIndex(handle, ".")+1:]
}
