// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// trial is one case: a universe, the processes at work in it, and who watches them.
type trial struct {
	*watcher
	leaders []*process
	stray   *process // of another cluster, whose kubeconfig or endpoints are wrong
	serves  bool     // the leaders answer requests
	// leftovers says that the leaders look for what pods have left on machines that live.
	leftovers bool
}

// newTrial draws a universe with machines of all sorts and the configuration of the controllers.
func newTrial(t *rapid.T, metrics *Metrics) *trial {
	x := &trial{watcher: newWatcher(newUniverse(rapid.IntRange(2, 8).Draw(t, "blocks")), metrics)}
	x.u.config = drawModelConfig(t)
	x.u.api.createNode("always")
	x.u.foreign.createNode("elsewhere-1")
	x.u.foreign.createNode("elsewhere-2")
	x.u.machines = append(x.u.machines, &modelMachine{host: "always", kube: "always", identity: byReference, up: true})
	x.u.startsCalicoNode(x.u.machines[0])
	x.u.startsPod(x.u.machines[0])
	renamed := rapid.IntRange(0, 3).Draw(t, "names differ") == 0
	for i := range rapid.IntRange(1, 5).Draw(t, "machines") {
		x.addMachine(t, i, renamed)
	}
	if rapid.Bool().Draw(t, "bound before") {
		x.u.etcd.put("an earlier run", modelInformation, modelClusterInformation{
			Ready: true, Annotations: map[string]string{nodesync.BindingAnnotation: x.u.api.uid},
		})
	}
	return x
}

func drawModelConfig(t *rapid.T) nodesync.Config {
	c := nodesync.DefaultConfig()
	c.Grace = rapid.SampledFrom([]time.Duration{0, 30 * time.Second, 5 * time.Minute}).Draw(t, "grace")
	c.MinOverlapPercent = rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "overlap")
	c.MaxUnwitnessed = rapid.SampledFrom([]int{6, 6, 0, 1, 2}).Draw(t, "mass guard")
	c.MaxUnwitnessedPercent = rapid.SampledFrom([]int{0, 34}).Draw(t, "mass guard percent")
	c.MassWindow = rapid.SampledFrom([]time.Duration{10 * time.Minute, time.Hour}).Draw(t, "window")
	c.NodesPerRound = rapid.IntRange(1, 5).Draw(t, "nodes per round")
	c.Resync = rapid.SampledFrom([]time.Duration{30 * time.Second, 5 * time.Minute}).Draw(t, "resync")
	c.SweepPeriod = rapid.SampledFrom([]time.Duration{0, 30 * time.Second, 10 * time.Minute}).Draw(t, "sweeps")
	for _, kind := range []nodesync.ResourceKind{nodesync.KindHostEndpoint, nodesync.KindIPAMHandle} {
		if rapid.IntRange(0, 2).Draw(t, "also "+string(kind)) == 0 {
			c.AlsoRemove = append(c.AlsoRemove, kind)
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "domains") == 0 {
		c.Domains = []string{"example.com"}
		c.AdoptUnreferenced = rapid.Bool().Draw(t, "adopt")
	}
	return c
}

// modelNames are what goes wrong with prefixes, dashes, dots and numbers.
func modelNames() []string {
	return []string{"n1", "n1.internal", "n10", "n1-k8s", "172.30.0.1", "x-y-z"}
}

func (x *trial) addMachine(t *rapid.T, i int, renamed bool) {
	name := modelNames()[i]
	m := &modelMachine{host: name, kube: name, up: true, wireguard: rapid.Bool().Draw(t, "tunnel")}
	m.identity = rapid.SampledFrom([]identity{
		byReference, byReference, byReference, byReference, byReference, byReference, unreferenced, elsewhere, inBoth, bare,
	}).Draw(t, "identity")
	if len(x.u.config.Domains) > 0 && rapid.Bool().Draw(t, "full name") {
		m.kube = name + ".example.com"
	} else if renamed && m.identity == byReference && rapid.Bool().Draw(t, "other name") {
		m.kube = "k8s-" + name
	}
	x.u.machines = append(x.u.machines, m)
	x.u.registers(m)
	x.u.startsCalicoNode(m)
	for range rapid.IntRange(0, 3).Draw(t, "pods") {
		x.u.startsPod(m)
	}
	if rapid.IntRange(0, 2).Draw(t, "user's host endpoint") == 0 {
		automatic := rapid.Bool().Draw(t, "automatic")
		x.u.write("a user", modelResourceKey("HostEndpoint", "hep-"+name), modelResource{Kind: "HostEndpoint", Host: name, Automatic: automatic})
	}
	x.drawOddities(t, m)
	if rapid.IntRange(0, 2).Draw(t, "gone already") == 0 {
		x.u.leaves(m)
		x.u.collectsPods()
	}
}

// drawOddities leaves what real datastores hold as well.
func (x *trial) drawOddities(t *rapid.T, m *modelMachine) {
	switch rapid.IntRange(0, 11).Draw(t, "oddity") {
	case 0: // a claim that was never finished
		x.u.write("ipam", modelAffinityKey(m.host, netip.MustParsePrefix("10.0.9.0/30")), modelAffinity{State: "pending"})
	case 1: // a block for load balancers
		cidr := netip.MustParsePrefix("10.0.10.0/30")
		x.u.write("ipam", modelBlockKey(cidr), modelBlock{CIDR: cidr, AffineTo: "virtual:load-balancer", Assigned: map[netip.Addr]modelAssignment{
			cidr.Addr(): {Handle: "lb", Sequence: 1, Host: ""},
		}})
	case 2: // an endpoint of another orchestrator
		key := modelEndpointKey("ns", modelEndpointName(m.host, "libnetwork", "c"))
		x.u.write("docker", key, modelEndpoint{Node: m.host, Orchestrator: "libnetwork"})
	case 3: // what Calico keeps for Windows
		for _, kv := range x.u.etcd.scan(modelBlocks, x.u.etcd.revision) {
			if block, ok := kv.value.(modelBlock); ok && block.AffineTo == m.host {
				if address, free := block.firstFree(); free {
					x.u.write("ipam", kv.key, block.with(address, modelAssignment{Handle: modelWindowsHandle, Sequence: block.Sequence}))
					return
				}
			}
		}
	case 4: // an assignment that crashed
		x.u.counts("ipam", "lost-on-"+m.host, netip.MustParsePrefix("10.0.0.0/30"), 1)
	}
}

// newProcess starts a replica.
func (x *trial) newProcess(name string, api *apiModel, o processOptions) *process {
	p := &process{name: name, u: x.u, api: api, options: o, watcher: x.watcher}
	x.processes[name] = p
	p.start()
	return p
}

// fork is a trial of its own that goes on from where this one stands, without any process.
func (x *trial) fork() *trial { return &trial{watcher: x.watcher.clone()} }

// addLeaders starts replicas in the right cluster, some of which have no working watch.
func (x *trial) addLeaders(t *rapid.T, n int, blind bool) {
	for i := range n {
		x.leaders = append(x.leaders, x.newProcess(fmt.Sprintf("leader-%d", i+1), x.u.api, processOptions{
			journal: rapid.Bool().Draw(t, "journal"), serves: x.serves, leftovers: x.leftovers, blind: blind || rapid.IntRange(0, 5).Draw(t, "blind") == 0,
			reversed: rapid.Bool().Draw(t, "reversed"), dryRun: rapid.IntRange(0, 9).Draw(t, "dry run") == 0,
		}))
	}
}

// end stops all processes, wherever they are.
func (x *trial) end() {
	for _, p := range x.processes {
		p.stop()
	}
}

// must fails the case if a check has failed.
func (x *trial) must(t *rapid.T) {
	t.Helper()
	if len(x.violations) > 0 {
		t.Fatalf("%s", strings.Join(x.violations, "\n"))
	}
}

// watchAll delivers all events to a process.
func (p *process) watchAll() {
	if p.options.blind {
		return
	}
	p.watch.deliver(p.cluster, len(p.watch.pending))
}

// howToConfirm is what the mass guard tells a person to write.
var howToConfirm = regexp.MustCompile(regexp.QuoteMeta(nodesync.ConfirmAnnotation) + `=([0-9a-f]+/\S+)`)

// confirms is a person who does what the mass guard of a process says; it returns whether there was anything.
func (x *trial) confirms(p *process) bool {
	text := ""
	var hosts []string
	for refusal := range p.r.refused {
		found := howToConfirm.FindStringSubmatch(refusal.Message)
		if refusal.Gate != nodesync.GateMass || found == nil {
			continue
		}
		text = max(text, found[1])
		hosts = append(hosts, refusal.Of.Host)
	}
	if text == "" || !x.u.api.confirm(nodesync.ConfirmAnnotation, text) {
		return false
	}
	for _, host := range hosts {
		x.confirmed[host] = true
	}
	return true
}

// wait is how long a process sleeps after a round. What it adds by chance is taken for all that it can be, so that a case can be repeated.
func (p *process) wait() time.Duration {
	switch resync := p.r.Config.Resync; {
	case p.err != nil:
		return 2 * firstRetry
	case p.due >= resync:
		return resync + resync/10
	default:
		return p.due
	}
}

// settle lets a process work on until it has had nothing to write for longer than any of its waits, with the time that it asks for in between.
// It returns when the last write was, in time since it was called. confirming is a person who confirms what the mass guard holds. What waits for the
// silence of a machine then gets it, once, which is no part of that time.
func (x *trial) settle(t *rapid.T, p *process, confirming bool) (lastWrite time.Duration) {
	t.Helper()
	began, last := x.u.age, x.u.age
	c := p.r.Config
	quiet := 3*c.Resync + c.Grace + 2*c.SweepPeriod + time.Duration(x.counts["clock jumps"])*smallJump + p.slowness()
	took := time.Duration(-1)
	var held, holds bool
	for range 2000 {
		revision, r := x.u.etcd.revision, p.r
		p.watchAll()
		p.round()
		x.must(t)
		if p.err != nil && p.fate == nil {
			t.Fatalf("the round failed although nothing is broken: %v", p.err)
		}
		confirmed := confirming && x.confirms(p)
		held, holds = holds, p.refuses(nodesync.GateLeftoverGuard)
		released := held && !holds // with the end of the guard's window, kubelets are looked at

		if x.u.etcd.revision != revision || confirmed || released || p.r != r { // or it has died, and begins to wait again
			last = x.u.age
		}
		switch {
		case x.u.age-last <= quiet:
		case took >= 0:
			return took
		case x.waitsForSilence(t, p):
			took = last - began
			x.u.pass(longestSilence + time.Duration(x.counts["clock jumps"])*time.Hour)
			last = x.u.age
		default:
			return last - began
		}
		x.u.pass(p.wait())
	}
	t.Fatalf("%s does not come to rest", p)
	return 0
}

// longestSilence is how long the longest silence is that a machine must keep until it counts as gone.
const longestSilence = 24 * time.Hour

// waitsForSilence reports that a process leaves something alone because a machine spoke, and checks that one did after it was missed.
func (x *trial) waitsForSilence(t *rapid.T, p *process) bool {
	t.Helper()
	heard := func(m *modelMachine) bool {
		missed, known := x.absentAt[m.kube]
		return known && x.spoke[m.host] >= missed
	}
	waits := p.refuses(nodesync.GateSigns)
	if waits && !slices.ContainsFunc(x.u.machines, heard) {
		t.Errorf("I4: a sign of life holds something back, and nothing was written for a machine that was missed")
	}
	return waits
}

// refuses reports whether the last round refused something by a gate.
func (p *process) refuses(by nodesync.Gate) bool {
	return slices.ContainsFunc(refusals(p), func(r nodesync.Refusal) bool { return r.Gate == by })
}

// slowness is for how much longer a process may wait that removes leftovers of pods: for a sweep long enough after the first, and until a kubelet has been
// seen at work for as long.
func (p *process) slowness() time.Duration {
	c := p.r.Config
	if !p.options.leftovers || !slices.Contains(c.AlsoRemove, nodesync.KindPodLeftovers) {
		return 0
	}
	return 2*max(c.Grace, c.LeftoverAge) + 2*c.SweepPeriod + 2*c.Resync + c.LeftoverAge
}

// dump is all that stands in the datastore, without what tells of history: revisions, sequence numbers, how often calico-node has written.
func (u *universe) dump() map[string]string {
	out := map[string]string{}
	for _, kv := range u.etcd.scan("", u.etcd.revision) {
		switch value := kv.value.(type) {
		case modelBlock:
			value.Sequence = 0
			value.Assigned = maps.Clone(value.Assigned)
			for address, a := range value.Assigned {
				a.Sequence = 0
				value.Assigned[address] = a
			}
			out[kv.key] = modelText(value)
		default:
			out[kv.key] = modelText(value)
		}
	}
	return out
}

// hosts are all names under which the datastore may hold anything.
func (u *universe) hosts() []string {
	var out []string
	for _, m := range u.machines {
		out = append(out, m.host)
	}
	slices.Sort(out)
	return out
}
