// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Plan is what to do, in order, and what is left alone, with the reasons. Equal Worlds give equal Plans, byte for byte.
type Plan struct {
	// Steps are to be applied in this order. When one fails, the later steps of the same Subject must not be tried; when one fails that is
	// about no machine, none at all.
	Steps []Step
	// Needs are what has to be read for a better plan.
	Needs Needs
	// Decisions say, for each Subject that has steps, why.
	Decisions []Decision
	// Refusals say what is not done and why.
	Refusals []Refusal
	// Leftovers is how many addresses and endpoints of pods that are gone are known on existing machines.
	Leftovers int
	// Memory belongs into the next World.
	Memory Memory
	// Next is how long to wait before looking again, if nothing happens before.
	Next time.Duration
	// Pace is how long to wait at least after the steps, whatever happens: Config.Pace, or a second if all of them are about machines whose deletion was
	// watched or confirmed. 0 without steps.
	Pace time.Duration
	// More reports that machines wait only because one plan cleans so many.
	More bool
}

// Needs are live reads that a plan depends on. What is missing in the World is refused, so that of two plans in a row the later one is to be followed.
// Most of it is known to be needed when something else was read.
type Needs struct {
	// Heartbeats are Kubernetes Nodes, Reports hosts, and Pods namespaces and names.
	Heartbeats, Reports []string
	Pods                [][2]string
	// Suspects are the machines for which all gates hold that can be asked without live reads, at most Config.Backlog, whatever the size of the cluster: a
	// plan needs the Host of each, and for each of Config.NamesOf a Lookup and the running pods.
	Suspects []Subject
	// Addresses are what a running pod may have, of suspects without identity or with a name like that of an existing machine.
	Addresses []netip.Addr
}

// Decision is the reason for the steps of one Subject.
type Decision struct {
	Of      Subject
	Because string
}

// Refusal is one thing that is not done. A Refusal without Subject concerns the whole cluster.
type Refusal struct {
	Of      Subject `json:"of"`
	Gate    Gate    `json:"gate"`
	Message string  `json:"message"`
	// Until is when the gate opens by itself, the zero time if that is not known.
	Until time.Time `json:"until,omitzero"`
	// Lives reports that the Kubernetes Node was found: waiting does not open the gate.
	Lives bool `json:"-"`
}

// MakePlan decides. What it needs in the World is in the plan.
func MakePlan(w World, c Config) Plan {
	j := judge(w, c)
	j.plan(w, c)
	p := j.Plan.with(planLeftovers(w, c, j.living, j.shared, j.Memory.LeftoverMemory))
	slices.SortFunc(p.Refusals, compareRefusals)
	p.Memory.AlsoRemove = c.AlsoRemove
	leftovers := slices.DeleteFunc(slices.Clone(p.Refusals), func(r Refusal) bool { return r.Gate != GatePodLeftovers })
	p.Memory.PodLeftovers = leftovers[:min(len(leftovers), mostReported)]
	p.Pace = paceAfter(p.Steps, j.due, w.Now, c)
	if len(c.Named) > 0 {
		p = p.About(func(of Subject) bool { return of == (Subject{}) || slices.Contains(c.Named, of.Host) })
	}
	return p
}

// with is the plan of machines with that of leftovers.
func (p Plan) with(leftovers Plan) Plan {
	p.Steps, p.Decisions = append(p.Steps, leftovers.Steps...), append(p.Decisions, leftovers.Decisions...)
	p.Refusals, p.Leftovers, p.Next = append(p.Refusals, leftovers.Refusals...), leftovers.Leftovers, min(p.Next, leftovers.Next)
	pods := append(p.Needs.Pods, leftovers.Needs.Pods...)
	slices.SortFunc(pods, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	slices.SortFunc(p.Needs.Addresses, netip.Addr.Compare)
	p.Needs.Heartbeats, p.Needs.Pods = leftovers.Needs.Heartbeats, slices.Compact(pods)
	p.Memory.LeftoverMemory = leftovers.Memory.LeftoverMemory
	return p
}

// plan adds the steps about machines.
func (j *judgement) plan(w World, c Config) {
	if j.bind {
		j.Steps = append(j.Steps, BindCluster{ClusterUID: w.Kubernetes.ClusterUID, Revision: w.Calico.Binding.Revision})
		j.Decisions = append(j.Decisions, Decision{Because: "no cluster is recorded yet, and its Calico Nodes have their Kubernetes Nodes here"})
	}
	for _, cand := range j.revived {
		j.Steps = append(j.Steps, Unfence{Of: cand.subject, Revision: cand.node.Revision})
		j.Decisions = append(j.Decisions, Decision{Of: cand.subject, Because: "its Kubernetes Node exists again"})
	}
	live := readLive(w)
	for _, cand := range j.due {
		j.need(cand, live.hosts[cand.subject.Host])
		reason, steps, refusals := decide(cand, live, w.Now, c)
		j.Refusals = append(j.Refusals, refusals...)
		switch {
		case len(steps) == 0 && cand.node.OnlyWitnessed && onlyUsers(refusals) && !w.sighted(cand.subject, c):
			// What a clean-up has left to users is not an absence to be remembered: it would be for as long as they leave it. While the sighting lasts, a new
			// absence would begin in the next round.
			j.Memory.Absences = slices.DeleteFunc(j.Memory.Absences, func(a Absence) bool { return a.CalicoNode == cand.subject.Host })
			continue
		case len(steps) == 0:
			j.hold(cand, refusals, w.Now, c)
			continue
		}
		j.Steps = append(j.Steps, steps...)
		j.Decisions = append(j.Decisions, Decision{Of: cand.subject, Because: reason})
		j.Memory.planned(w, cand, refusals)
		j.lookAgain(c.Pace)
	}
	if j.Steps = append(j.Steps, j.handles...); len(j.handles) > 0 {
		j.Decisions = append(j.Decisions, Decision{Of: ofHandles(), Because: "no block has an address under them, and none of them changed over a grace period"})
	}
}

// need adds what a plan needs to know of a suspect, of which the host was read or is nil.
func (j *judgement) need(cand candidate, host *Host) {
	j.Needs.Suspects = append(j.Needs.Suspects, cand.subject)
	exact := cand.subject.Exact || cand.subject.Second
	if host == nil || !exact && !cand.node.orphan() {
		return
	}
	for _, e := range host.Endpoints {
		if exact {
			j.Needs.Pods = append(j.Needs.Pods, [2]string{e.Namespace, e.Pod})
		}
	}
	for _, b := range host.Blocks {
		for _, a := range b.Allocations {
			if a.Host == host.Name {
				j.Needs.Addresses = append(j.Needs.Addresses, a.Address)
			}
		}
	}
}

// paceAfter is the pace after the steps. Evidence sets it: what was watched is no more in doubt a second later, and the next machine that goes need not
// wait for it; what was not is removed slowly enough for a person to see it and to step in.
func paceAfter(steps []Step, due []candidate, now time.Time, c Config) time.Duration {
	if len(steps) == 0 {
		return 0
	}
	vouched := make(map[Subject]bool, len(due))
	for _, cand := range due {
		vouched[cand.subject] = cand.vouched(now)
	}
	if slices.ContainsFunc(steps, func(s Step) bool { return !vouched[s.Subject()] }) {
		return c.Pace
	}
	return shortestPace
}

// onlyUsers reports whether all that is left alone is what users wrote.
func onlyUsers(refusals []Refusal) bool {
	return len(refusals) > 0 && !slices.ContainsFunc(refusals, func(r Refusal) bool { return r.Gate != GateUserConfiguration })
}

// decide returns the steps for a machine about which everything has been read, with the reason, and what is left alone of it.
func decide(cand candidate, l live, now time.Time, c Config) (reason string, steps []Step, refusals []Refusal) {
	reason = because(cand, now)
	if cand.second != nil {
		evidence, refused := l.askSecond(cand, now, c)
		if refused != "" {
			return "", nil, []Refusal{{Of: cand.subject, Gate: GateSigns, Message: refused, Lives: true}}
		}
		reason = fmt.Sprintf("it is a second Calico Node of Kubernetes Node %s, which uses another one: %s",
			cand.subject.KubernetesNode, evidence)
	}
	if refusals := l.ask(cand, c); len(refusals) > 0 {
		return "", nil, refusals
	}
	steps, refusals = removal(cand, l.hosts[cand.subject.Host], now, c)
	return reason, steps, refusals
}

// hold puts a machine back that has no steps now.
func (j *judgement) hold(cand candidate, refusals []Refusal, now time.Time, c Config) {
	first := Refusal{Of: cand.subject, Gate: GateForeignAddress, Message: "it holds nothing more that could be removed"}
	if len(refusals) > 0 {
		first = slices.MinFunc(refusals, compareRefusals)
	} else {
		j.Refusals = append(j.Refusals, first)
	}
	var wait time.Duration
	j.Memory, wait = j.Memory.Hold(cand.subject.Host, first.Gate, first.Message, now, c)
	if !first.Until.IsZero() {
		// A second later, since Calico's times have no fractions; and not much later than what is read then may have changed.
		wait = min(max(0, latest(refusals).Sub(now))+time.Second, c.Resync)
		j.Memory.notBefore(cand.subject.Host, now.Add(wait))
	}
	j.lookAgain(wait)
}

// latest is when the last of the gates opens.
func latest(refusals []Refusal) (until time.Time) {
	for _, r := range refusals {
		if r.Until.After(until) {
			until = r.Until
		}
	}
	return until
}

func compareRefusals(a, b Refusal) int {
	return cmp.Or(cmp.Compare(a.Of.Host, b.Of.Host), cmp.Compare(a.Gate, b.Gate), cmp.Compare(a.Message, b.Message))
}

func because(cand candidate, now time.Time) string {
	how := "missing from the list"
	if cand.absence.Witnessed {
		how = "deletion watched"
	}
	return fmt.Sprintf("Kubernetes Node %s is gone: %s, absent for %s, a live read says NotFound, no pod runs there",
		cand.subject.KubernetesNode, how, now.Sub(cand.absence.Since).Round(time.Second))
}

// live is what was read about suspects right before the decision.
type live struct {
	lookups map[string]Lookup
	pods    map[string]RunningPods
	hosts   map[string]*Host
	inUse   map[netip.Addr]string
	// lookedUp are live reads of pods.
	lookedUp map[[2]string]Verdict
	// calicoPods are the running calico-node pods of a Kubernetes Node.
	calicoPods map[string][]CalicoPod
	reports    map[string]Report
}

func readLive(w World) live {
	l := live{
		lookups: map[string]Lookup{}, pods: map[string]RunningPods{}, hosts: map[string]*Host{}, inUse: map[netip.Addr]string{},
		lookedUp: map[[2]string]Verdict{}, calicoPods: map[string][]CalicoPod{}, reports: map[string]Report{},
	}
	for _, x := range w.Kubernetes.CalicoPods {
		l.calicoPods[x.Node] = append(l.calicoPods[x.Node], x)
	}
	for _, x := range w.Calico.Reports {
		l.reports[x.Host] = x
	}
	for _, x := range w.Kubernetes.Pods {
		l.lookedUp[[2]string{x.Namespace, x.Name}] = x.Verdict
	}
	for _, x := range w.Kubernetes.Lookups {
		l.lookups[x.Node] = x
	}
	for _, x := range w.Kubernetes.RunningPods {
		l.pods[x.Node] = x
	}
	for _, x := range w.Kubernetes.PodAddresses {
		l.inUse[x.Address] = max(l.inUse[x.Address], x.Pod)
	}
	for i := range w.Calico.Hosts {
		l.hosts[w.Calico.Hosts[i].Name] = &w.Calico.Hosts[i]
	}
	return l
}

// ask puts the gates that need live reads, for each name that the machine may be known by.
func (l live) ask(cand candidate, c Config) []Refusal {
	for _, name := range c.NamesOf(cand.subject) {
		if refusal := l.askName(name); refusal.Gate != "" {
			refusal.Of = cand.subject
			return []Refusal{refusal}
		}
	}
	if l.hosts[cand.subject.Host] == nil {
		return []Refusal{{Of: cand.subject, Gate: GateUnreadable, Message: "what it holds in the datastore was not read"}}
	}
	// A second Calico Node of a machine that lives stays while a pod may exist whose endpoint is under its name.
	endpoints := slices.SortedFunc(slices.Values(l.hosts[cand.subject.Host].Endpoints), func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	endpoints = slices.DeleteFunc(endpoints, func(e Endpoint) bool {
		return l.lookedUp[[2]string{e.Namespace, e.Pod}] == VerdictGone
	})
	if cand.second != nil && len(endpoints) > 0 {
		first := endpoints[0]
		return []Refusal{{Of: cand.subject, Gate: GateRunningPods, Message: fmt.Sprintf(
			"%s under this name whose pod is not known to be gone, such as %s/%s, and may run on Kubernetes Node %s, which exists; "+
				"they are removed after their pods",
			prose.Are(len(endpoints), "workload endpoint"), first.Namespace, first.Name, quote(cand.node.OrchRefs[0].NodeName))}}
	}
	if cand.node.orphan() || cand.subject.Exact || cand.subject.Second {
		return l.askAddresses(cand)
	}
	return nil
}

// askName says why a Kubernetes Node of this name is not proven gone, the zero Refusal if it is.
func (l live) askName(name string) Refusal {
	lookup, looked := l.lookups[name]
	pods, counted := l.pods[name]
	switch {
	case !looked:
		return Refusal{Gate: GateNotConfirmed, Message: "no live read of Kubernetes Node " + quote(name) + " was made"}
	case lookup.Verdict == VerdictAlive:
		return Refusal{Gate: GateNotConfirmed, Message: "a live read finds Kubernetes Node " + quote(name), Lives: true}
	case lookup.Verdict != VerdictGone:
		return Refusal{Gate: GateNotConfirmed, Message: "a live read of Kubernetes Node " + quote(name) + " failed: " + lookup.Detail}
	case !counted:
		return Refusal{Gate: GateRunningPods, Message: "the pods bound to it could not be listed"}
	case pods.Count > 0:
		return Refusal{Gate: GateRunningPods, Message: fmt.Sprintf("%s bound to it according to Kubernetes, among them %s; "+
			"pod garbage collection removes them about a minute after the Node", prose.Are(pods.Count, "running pod"), pods.Example)}
	}
	return Refusal{}
}

// askAddresses refuses a host without identity, or with a name like that of an existing machine, while a running pod has an address that the host
// holds: then the machine lives, whatever it is called.
func (l live) askAddresses(cand candidate) []Refusal {
	var used []netip.Addr
	for _, b := range l.hosts[cand.subject.Host].Blocks {
		for _, a := range b.Allocations {
			if l.inUse[a.Address] != "" && a.Host == cand.subject.Host {
				used = append(used, a.Address)
			}
		}
	}
	if len(used) == 0 {
		return nil
	}
	first, what := slices.MinFunc(used, netip.Addr.Compare), "it has no Calico Node"
	switch {
	case cand.second != nil:
		what = "it is a second Calico Node of an existing machine"
	case !cand.node.orphan():
		what = "its name is similar to that of an existing machine"
	}
	return []Refusal{{Of: cand.subject, Gate: GateRunningPods, Message: fmt.Sprintf(
		"%s, but its address %s is that of running pod %s", what, first, l.inUse[first])}}
}

// About is what the plan says of some machines, and what it says of the cluster as a whole where that holds everything back.
func (p Plan) About(concerned func(Subject) bool) Plan {
	p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool { return !concerned(s.Subject()) })
	p.Decisions = slices.DeleteFunc(slices.Clone(p.Decisions), func(d Decision) bool { return !concerned(d.Of) })
	p.Refusals = slices.DeleteFunc(slices.Clone(p.Refusals), func(r Refusal) bool { return r.Of != (Subject{}) && !concerned(r.Of) })
	return p
}

// Unknown lists those of the machines that a person has named of which a plan says nothing: the datastore holds nothing under their names. While
// everything is held back it is not known, and none is.
func (p Plan) Unknown(named []string) []string {
	if slices.ContainsFunc(p.Refusals, func(r Refusal) bool { return r.Of == (Subject{}) }) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(named), func(name string) bool {
		return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Subject().Host == name }) ||
			slices.ContainsFunc(p.Refusals, func(r Refusal) bool { return r.Of.Host == name })
	})
}

// Leaves reports that the plan cleans a host, or one before it did, and that something of its blocks stays.
func (p Plan) Leaves(host string) bool {
	return slices.ContainsFunc(p.Memory.Absences, func(a Absence) bool { return a.CalicoNode == host && a.BlocksStay }) &&
		slices.ContainsFunc(p.Refusals, func(r Refusal) bool { return r.Of.Host == host })
}

// Held reports that something is held back. What is not Kubernetes' or is to be kept is not: it is as it should be.
func Held(refusals []Refusal) bool {
	return slices.ContainsFunc(refusals, func(r Refusal) bool { return !r.Gate.Settled() })
}

// StepsText is one line for each step: what the plan would change, without the reasons, which contain times.
func (p Plan) StepsText() string {
	lines := make([]string, len(p.Steps))
	for i, s := range p.Steps {
		lines[i] = s.String()
	}
	return strings.Join(lines, "\n")
}

// refusalGroup is what is refused for several machines with the same words.
type refusalGroup struct {
	gate    Gate
	message string
	hosts   []string
}

// grouped puts refusals with the same words together, in the order of the first of each.
func grouped(refusals []Refusal) []*refusalGroup {
	var groups []*refusalGroup
	byWords := map[Refusal]*refusalGroup{}
	for _, r := range refusals {
		words := Refusal{Gate: r.Gate, Message: r.Message}
		g := byWords[words]
		if g == nil {
			g = &refusalGroup{gate: r.Gate, message: r.Message}
			byWords[words] = g
			groups = append(groups, g)
		}
		g.hosts = append(g.hosts, cmp.Or(r.Of.Host, "everything"))
	}
	return groups
}

// listed names the first few hosts.
func listed(hosts []string) string {
	const shown = 5
	if len(hosts) <= shown {
		return strings.Join(hosts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(hosts[:shown], ", "), len(hosts)-shown)
}

// String is the plan for people: one line for each step, and one for refusals with the same words, the same for the same plan.
func (p Plan) String() string {
	var b strings.Builder
	reasons := make(map[Subject]string, len(p.Decisions))
	for _, d := range p.Decisions {
		reasons[d.Of] = d.Because
	}
	current := Subject{Host: "\x00"} // of no step
	for i, s := range p.Steps {
		if s.Subject() != current {
			current = s.Subject()
			fmt.Fprintf(&b, "%s: %s\n", cmp.Or(current.Host, "the datastore"), reasons[current])
		}
		fmt.Fprintf(&b, "  %d. %s\n", i+1, s)
	}
	for _, g := range grouped(p.Refusals) {
		fmt.Fprintf(&b, "left alone: %s: %s (%s)\n", listed(g.hosts), g.message, g.gate)
	}
	if b.Len() == 0 {
		return "nothing to do\n"
	}
	return b.String()
}
