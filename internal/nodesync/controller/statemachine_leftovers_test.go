// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// modelSandbox is a pod's sandbox on its machine, by the handle of its address. It is what uses the address, whatever Kubernetes knows of the pod.
type modelSandbox struct {
	host, kube, pod, endpoint string
	// static sandboxes run although the API server knows of no pod.
	static bool
	// fails says that the CNI plugin will not be able to release what it has.
	fails bool
	// seen is for how long the kubelet has been at work since the pod is gone.
	seen time.Duration
}

// modelKubelet is what Kubernetes shows of a machine's kubelet.
type modelKubelet struct {
	dead, ready         bool
	readySince, renewed time.Time
}

// lease is when the kubelet renewed its Lease last: it does so every 10 s.
func (k modelKubelet) lease(now time.Time) time.Time {
	if k.dead {
		return k.renewed
	}
	return now.Truncate(10 * time.Second)
}

// modelHandlePrefix begins the handle of a pod's address; what follows a # tells sandboxes of one pod's name apart.
const modelHandlePrefix = "k8s-pod-network."

// modelPodOf is the pod that an assignment names, "" for none.
func modelPodOf(a modelAssignment) string {
	if a.Of != "pod" {
		return ""
	}
	pod, _, _ := strings.Cut(strings.TrimPrefix(a.Handle, modelHandlePrefix), "#")
	return pod
}

// alive reports that Kubernetes has a pod of that name which has not finished.
func (a *apiModel) alive(pod string) bool {
	p, there := a.pods[pod]
	return there && p.phase != "Succeeded" && p.phase != "Failed"
}

func (u *universe) runsSandbox(m *modelMachine, pod, handle, endpoint string) {
	u.sandboxes[handle] = modelSandbox{host: m.host, kube: m.kube, pod: pod, endpoint: endpoint}
}

// takesDown is for how long a kubelet must be at work at most until it has taken down the sandbox of a pod that is gone.
func (u *universe) takesDown() time.Duration { return u.config.LeftoverAge / 3 }

// kubeletsWork lets the kubelets work for a time: they take down sandboxes whose pods are gone.
func (u *universe) kubeletsWork(d time.Duration) {
	for _, handle := range slices.Sorted(maps.Keys(u.sandboxes)) {
		s := u.sandboxes[handle]
		kubelet := u.api.kubelets[s.kube]
		if s.static || kubelet == nil || kubelet.dead || u.api.alive(s.pod) && u.api.pods[s.pod].handle == handle {
			continue
		}
		if s.seen += d; s.seen < u.takesDown() {
			u.sandboxes[handle] = s
			continue
		}
		delete(u.sandboxes, handle)
		if !s.fails {
			u.releaseHandle("cni", handle)
			value, _ := u.etcd.get(s.endpoint)
			if endpoint, ok := value.(modelEndpoint); ok && endpoint.Handle == handle {
				u.write("cni", s.endpoint, nil)
			}
		}
	}
}

// podTrouble is what leaves something of pods on machines that live, or looks as if it did.
func (s *story) podTrouble(t *rapid.T) {
	u := s.u
	m := s.machine(t)
	switch rapid.IntRange(0, 7).Draw(t, "pod trouble") {
	case 0:
		if kubelet := u.api.kubelets[m.kube]; kubelet != nil && !kubelet.dead {
			kubelet.dead, kubelet.renewed = true, u.clock.Now()
			if rapid.Bool().Draw(t, "and it shows") {
				kubelet.ready, kubelet.readySince = false, u.clock.Now()
			}
			s.count("dead kubelets")
		}
	case 1:
		s.kubeletReturns(m)
	case 2:
		s.comesAgain(t)
	case 3:
		if u.runsPods(m) {
			handle, pod := fmt.Sprintf("%sstatic-%s#%d", modelHandlePrefix, m.kube, u.next()), "static-"+m.kube
			if address, ok := u.assign(m, handle); ok {
				endpoint := modelEndpointKey("ns", modelEndpointName(m.host, "k8s", pod))
				u.write("cni", endpoint, modelEndpoint{Node: m.host, Orchestrator: "k8s", Pod: pod, Address: address, Handle: handle})
				u.sandboxes[handle] = modelSandbox{host: m.host, kube: m.kube, pod: pod, endpoint: endpoint, static: true}
			}
		}
	default:
		s.killsPod(t)
	}
}

func (s *story) kubeletReturns(m *modelMachine) {
	if kubelet := s.u.api.kubelets[m.kube]; kubelet != nil && kubelet.dead {
		kubelet.dead = false
		if !kubelet.ready {
			kubelet.ready, kubelet.readySince = true, s.u.clock.Now()
		}
	}
}

// killsPod lets a pod be deleted by force, or finish. Its sandbox is taken down when its kubelet is at work, and the CNI plugin may fail then.
func (s *story) killsPod(t *rapid.T) {
	var handles []string
	for _, handle := range slices.Sorted(maps.Keys(s.u.sandboxes)) {
		sandbox := s.u.sandboxes[handle]
		if pod := s.u.api.pods[sandbox.pod]; s.u.api.alive(sandbox.pod) && pod.handle == handle && sandbox.kube != "always" && !s.pinnedTo(sandbox.kube) {
			handles = append(handles, handle)
		}
	}
	if len(handles) == 0 {
		return
	}
	handle := rapid.SampledFrom(handles).Draw(t, "killed")
	sandbox := s.u.sandboxes[handle]
	sandbox.fails = rapid.IntRange(0, 3).Draw(t, "and something is left") > 0
	s.u.sandboxes[handle] = sandbox
	if rapid.IntRange(0, 3).Draw(t, "it finishes") == 0 {
		pod := s.u.api.pods[sandbox.pod]
		pod.phase = "Failed"
		s.u.api.pods[sandbox.pod] = pod
	} else {
		delete(s.u.api.pods, sandbox.pod)
	}
	s.count("killed pods")
}

// pinnedTo reports that pods of a Node are all that shows that its machine lives.
func (s *story) pinnedTo(kube string) bool {
	return slices.ContainsFunc(s.u.machines, func(m *modelMachine) bool { return m.kube == kube && m.pinned })
}

// comesAgain is a pod under the name of one that has left something, as a StatefulSet has them.
func (s *story) comesAgain(t *rapid.T) {
	u := s.u
	var left []string
	for _, kv := range u.etcd.scan(modelEndpoints, u.etcd.revision) {
		if e, ok := kv.value.(modelEndpoint); ok && e.Orchestrator == "k8s" && !u.api.alive(e.Pod) && !strings.HasPrefix(e.Pod, "static-") {
			left = append(left, kv.key)
		}
	}
	if len(left) == 0 {
		return
	}
	key := rapid.SampledFrom(left).Draw(t, "comes again")
	value, _ := u.etcd.get(key)
	endpoint := value.(modelEndpoint)
	m := u.machineOf(endpoint.Node)
	if other := s.machine(t); rapid.IntRange(0, 2).Draw(t, "on another machine") == 0 {
		m = other
	}
	if m == nil || !u.runsPods(m) {
		return
	}
	key = modelEndpointKey("ns", modelEndpointName(m.host, "k8s", endpoint.Pod))
	endpoint.Node = m.host
	handle := fmt.Sprintf("%s%s#%d", modelHandlePrefix, endpoint.Pod, u.next())
	address, ok := u.assign(m, handle)
	if !ok {
		return
	}
	endpoint.Address, endpoint.Handle = address, handle
	u.write("cni", key, endpoint)
	u.api.pods[endpoint.Pod] = modelPod{node: m.kube, phase: "Running", address: address.String(), handle: handle, endpoint: key}
	u.runsSandbox(m, endpoint.Pod, handle, key)
	s.count("pods that come again")
	if rapid.Bool().Draw(t, "and is there for long") {
		u.pass(u.takesDown())
	}
}

// leftoversGo brings a process to the removal of what a pod has left, stops it before that write, and lets something happen there.
func (s *story) leftoversGo(t *rapid.T) {
	p := s.leader(t)
	if m := s.machine(t); m.identity == byReference {
		s.u.registers(m)
		s.u.startsCalicoNode(m)
		s.u.startsPod(m)
	}
	s.killsPod(t)
	for range 40 {
		p.finish()
		p.watchAll()
		p.begin()
		if p.until(func(c portCall) bool { return c.name == "RemoveLeftovers" }) {
			break
		}
		s.must(t)
		s.u.pass(min(p.wait(), time.Minute))
	}
	if !p.inRound() {
		return
	}
	s.count("interrupted removals of leftovers")
	if rapid.Bool().Draw(t, "the call itself") {
		s.goesWrong(t, p)
	} else if s.podTrouble(t); rapid.Bool().Draw(t, "and more") {
		s.happens(t, nil)
	}
	s.must(t)
	p.finish()
}

// judgeLeftovers checks a write that takes what pods have left on a machine that lives: nothing that a sandbox may hold, nobody's but a pod's that was looked
// for and was gone, and only where that is asked for.
func (k *watcher) judgeLeftovers(p *process, w etcdWrite, t taking) {
	if p.serving != nil || !slices.Contains(p.r.Config.AlsoRemove, nodesync.KindPodLeftovers) {
		k.violate("leftovers of pods were removed although nobody asked for it")
	}
	value, _ := k.u.etcd.at(modelNodeKey(t.host), w.revision-1)
	node, ok := value.(modelNode)
	if !ok || node.Annotations[nodesync.KeepAnnotation] != "" || node.Annotations[nodesync.FenceAnnotation] != "" {
		k.violate("leftovers were removed from %s, which is to be kept, is fenced, or cannot be read: %v", t.host, value)
	}
	taken := map[string][]string{} // pods, with the handles and endpoints that are taken
	for _, c := range t.gone {
		endpoint, ok := c.before.(modelEndpoint)
		if !ok || endpoint.Orchestrator != nodesync.OrchestratorKubernetes {
			k.violate("I2: %s is not an endpoint of a pod", c.key)
		}
		taken[endpoint.Pod] = append(taken[endpoint.Pod], c.key)
		for handle, sandbox := range k.u.sandboxes {
			if sandbox.endpoint == c.key {
				k.violate("I3: the sandbox of %s has endpoint %s", handle, c.key)
			}
		}
	}
	for address, a := range t.released {
		taken[modelPodOf(a)] = append(taken[modelPodOf(a)], a.Handle)
		if sandbox, runs := k.u.sandboxes[a.Handle]; runs {
			k.violate("I3: address %s is that of the sandbox of pod %s", address, sandbox.pod)
		}
	}
	for pod, handles := range taken {
		seen, looked := p.seen.pods[pod]
		existed, its := seen != nil, false
		if existed { // it may have been killed since, which makes nothing of what it had then an old sandbox's
			living := k.u.api.pods[pod]
			its = slices.ContainsFunc([]string{seen.handle, seen.endpoint, living.handle, living.endpoint}, func(key string) bool {
				return slices.Contains(handles, key)
			})
		}
		if pod == "" || its || !looked {
			k.violate("I1: pod %q existed when it was looked for, with something of %q, or was not looked for (%t)", pod, handles, looked)
		}
		if existed {
			k.count("old sandboxes removed")
		}
	}
	k.judgeReleases(p, t)
	if p.options.journal {
		k.judgeJournal(t)
	}
	k.count("leftovers removed")
}

// checkLeftovers looks, at rest, for what pods have left on machines whose kubelets are at work: it is found, and gone if that was asked for.
func (x *trial) checkLeftovers(t *rapid.T, p *process) {
	t.Helper()
	none := !slices.ContainsFunc(slices.Collect(maps.Keys(x.u.api.pods)), x.u.api.alive)
	if !p.options.leftovers || x.u.config.SweepPeriod == 0 || none {
		return
	}
	removes := slices.Contains(x.u.config.AlsoRemove, nodesync.KindPodLeftovers)
	for _, m := range x.u.machines {
		left := x.u.podLeftovers(m)
		if len(left) == 0 {
			continue
		}
		x.count("leftovers in the end")
		switch {
		case removes && x.jumped: // a clock that was set back lets Nodes be Ready since an hour to come: it is waited for
		case removes:
			t.Errorf("%s is left of pods on %s: %v", strings.Join(left, ", "), m.host, refusals(p))
		case !slices.ContainsFunc(refusals(p), func(r nodesync.Refusal) bool { return r.Gate == nodesync.GatePodLeftovers && r.Of.Host == m.host }):
			t.Errorf("%s is left of pods on %s, and nothing says so: %v", strings.Join(left, ", "), m.host, refusals(p))
		}
	}
}

// podLeftovers are what pods have left on a machine that nothing is doubtful about: whatever names a pod that is gone and that no sandbox has.
func (u *universe) podLeftovers(m *modelMachine) (left []string) {
	value, _ := u.etcd.get(modelNodeKey(m.host))
	node, readable := value.(modelNode)
	kubelet := u.api.kubelets[m.kube]
	twice := slices.ContainsFunc(u.machines, func(other *modelMachine) bool { return other != m && other.kube == m.kube })
	if kubelet == nil || kubelet.dead || !readable || m.identity != byReference || twice || node.Annotations[nodesync.KeepAnnotation] != "" {
		return nil
	}
	gone := func(pod string) bool { return pod != "" && !u.api.alive(pod) && !strings.HasSuffix(pod, "-"+m.kube) }
	held := map[string]bool{}
	for handle, sandbox := range u.sandboxes {
		held[handle], held[sandbox.endpoint] = true, true
	}
	for _, kv := range u.etcd.scan(modelEndpoints, u.etcd.revision) {
		if e, ok := kv.value.(modelEndpoint); ok && e.Node == m.host && e.Orchestrator == nodesync.OrchestratorKubernetes &&
			(gone(e.Pod) || u.elsewhere(m, e.Pod)) && !held[kv.key] {
			left = append(left, kv.key)
		}
	}
	for _, address := range u.assigned(u.etcd.revision, func(_ modelBlock, _ netip.Addr, a modelAssignment) bool {
		pod := modelPodOf(a)
		return a.Host == m.host && (gone(pod) || u.elsewhere(m, pod) || u.later(m, pod, a.Handle)) && !held[a.Handle]
	}) {
		left = append(left, "address "+address.String())
	}
	return left
}

// The ports of a process for leftovers.

func (x *ports) PodHoldings(ctx context.Context, revision int64, alive func(namespace, name string) bool) (calico.PodHoldings, error) {
	found, err := call(x.p, portCall{"read", "PodHoldings", ""}, func() (calico.PodHoldings, error) { return x.datastore.PodHoldings(ctx, revision, alive) })
	found.Leftovers = turned(x.p, found.Leftovers)
	return found, err
}

func (x *ports) DescribeLeftovers(ctx context.Context, leftovers []calico.Leftover) (objects []calico.Object, addresses []calico.HeldAddress, err error) {
	defer x.p.turn()()
	_, err = call(x.p, portCall{"read", "DescribeLeftovers", ""}, func() (struct{}, error) {
		objects, addresses, err = x.datastore.DescribeLeftovers(ctx, leftovers)
		return struct{}{}, err
	})
	if err != nil {
		return nil, nil, err
	}
	return objects, addresses, nil
}

func (x *ports) MachineUID(ctx context.Context, host string) (string, error) {
	defer x.p.turn()()
	return call(x.p, portCall{"read", "MachineUID", host}, func() (string, error) { return x.datastore.MachineUID(ctx, host) })
}

func (x *ports) RemoveLeftovers(ctx context.Context, guard calico.Guard, leftovers []calico.Leftover) error {
	pods := make([]string, 0, len(leftovers))
	for _, l := range leftovers {
		pods = append(pods, l.Pod)
	}
	return x.write("RemoveLeftovers", guard.Host, func() error {
		x.p.removing = pods
		return x.datastore.RemoveLeftovers(ctx, guard, leftovers)
	})
}

func (x *ports) EachPod(ctx context.Context, visit func(namespace, name string)) error {
	_, err := call(x.p, portCall{"kubernetes", "EachPod", ""}, func() (struct{}, error) { return struct{}{}, x.p.cluster.EachPod(ctx, visit) })
	return err
}

func (x *ports) LookUpPod(ctx context.Context, namespace, name string) nodesync.PodLookup {
	defer x.p.turn()()
	lookup, err := call(x.p, portCall{"kubernetes", "LookUpPod", name}, func() (nodesync.PodLookup, error) {
		x.p.seen.pods[name] = nil
		if pod := x.p.u.api.pods[name]; x.p.u.api.alive(name) {
			x.p.seen.pods[name] = &pod
		}
		return x.p.cluster.LookUpPod(ctx, namespace, name), nil
	})
	if err != nil {
		return nodesync.PodLookup{Namespace: namespace, Name: name, Verdict: nodesync.VerdictUnknown, Detail: err.Error()}
	}
	return lookup
}

func (x *ports) Heartbeat(ctx context.Context, node string) nodesync.Heartbeat {
	defer x.p.turn()()
	heartbeat, err := call(x.p, portCall{"kubernetes", "Heartbeat", node}, func() (nodesync.Heartbeat, error) { return x.p.cluster.Heartbeat(ctx, node), nil })
	if err != nil {
		return nodesync.Heartbeat{Node: node, Detail: err.Error()}
	}
	if x.p.wrongly == trustsKubelets && heartbeat.Detail == "" {
		heartbeat.Ready, heartbeat.ReadySince, heartbeat.Renewed = true, modelStart.Add(-24*time.Hour), x.p.u.clock.Now()
	}
	return heartbeat
}

// watchesPods lets the leaders of a trial look for leftovers of pods, and perhaps remove them.
func (x *trial) watchesPods(t *rapid.T) {
	x.leftovers = true
	x.u.config.LeftoverAge = 6 * time.Minute
	if rapid.Bool().Draw(t, "leftovers of pods go") {
		x.u.config.AlsoRemove = append(x.u.config.AlsoRemove, nodesync.KindPodLeftovers)
	}
}
