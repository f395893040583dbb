// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/calico"
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
	for _, kv := range u.etcd.scan(modelBlocks, u.etcd.revision) {
		block, _ := kv.value.(modelBlock)
		for _, a := range block.Assigned {
			if a.Host == host && a.Handle == handle {
				return true
			}
		}
	}
	return false
}

// modelContainer is the container ID in a handle.
func modelContainer(handle string) string {
	return handle[strings.LastIndex(handle, ".")+1:]
}

// doubled are what living pods hold that have something on two hosts or addresses of two containers.
func (d *datastoreModel) doubled(revision int64, alive func(namespace, name string) bool) (out []calico.Sandboxed) {
	held, hosts, containers := map[string][]calico.Sandboxed{}, map[string]map[string]bool{}, map[string]map[string]bool{}
	note := func(pod, host, container string, l calico.Leftover, readable bool) {
		if hosts[pod] == nil {
			hosts[pod], containers[pod] = map[string]bool{}, map[string]bool{}
		}
		hosts[pod][host] = true
		if l.Endpoint.Name == "" {
			containers[pod][container] = true
		}
		if readable {
			held[pod] = append(held[pod], calico.Sandboxed{Leftover: l, Container: container})
		}
	}
	for _, kv := range d.etcd.scan(modelEndpoints, revision) {
		ids := modelEndpointIDs(kv.key)
		namespace, name, _ := strings.Cut(strings.TrimPrefix(kv.key, modelEndpoints), "/")
		if ids.Orchestrator == nodesync.OrchestratorKubernetes && alive(namespace, ids.Pod) {
			endpoint, readable := kv.value.(modelEndpoint)
			note(ids.Pod, ids.Node, modelContainer(endpoint.Handle), calico.Leftover{
				Host: endpoint.Node, Namespace: namespace, Pod: ids.Pod, Endpoint: calico.EndpointRef{Namespace: namespace, Name: name, Revision: kv.revision},
			}, readable)
		}
	}
	for _, kv := range d.etcd.scan(modelBlocks, revision) {
		block, _ := kv.value.(modelBlock)
		for address, a := range block.Assigned {
			if pod := modelPodOf(a); pod != "" && a.Host != "" && a.Handle != "" && alive("ns", pod) {
				note(pod, a.Host, modelContainer(a.Handle), calico.Leftover{
					Host: a.Host, Namespace: "ns", Pod: pod, Block: block.CIDR,
					Reservation: calico.Assignment{Address: address, Handle: a.Handle, Sequence: a.Sequence},
				}, true)
			}
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(held)) {
		if len(hosts[pod]) > 1 || len(containers[pod]) > 1 {
			out = append(out, held[pod]...)
		}
	}
	return out
}
