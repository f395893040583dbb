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

// KindPodLeftovers is what --also-remove calls the addresses and endpoints of pods that are gone, on existing machines.
const KindPodLeftovers ResourceKind = "PodLeftovers"

// Leftover is an address or an endpoint of a pod that the API server did not list when the datastore was swept. The value names what was
// found and no later one: an address by its sequence number, an endpoint by its revision.
type Leftover struct {
	// Host is the Calico Node that it names.
	Host      string `json:"host"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Block is the block of the address, the zero Prefix for an endpoint.
	Block netip.Prefix `json:"block,omitzero"`
	Reservation
	// Endpoint has an empty name for an address.
	Endpoint EndpointRef `json:"endpoint,omitzero"`
	// Sandbox is the container ID of the pod's present sandbox, if the pod is alive on the host and it is an address of
	// an earlier one; Living is the endpoint that says so, with an empty name in the kubernetes datastore.
	Sandbox string      `json:"sandbox,omitempty"`
	Living  EndpointRef `json:"living,omitzero"`
}

// String is the leftover for people.
func (l Leftover) String() string {
	if l.Endpoint.Name != "" {
		return fmt.Sprintf("endpoint %s of pod %s/%s on %s", l.Endpoint.Name, l.Namespace, l.Pod, l.Host)
	}
	if l.Sandbox != "" {
		return fmt.Sprintf("address %s of an earlier sandbox of pod %s/%s on %s", l.Address, l.Namespace, l.Pod, l.Host)
	}
	return fmt.Sprintf("address %s of pod %s/%s on %s", l.Address, l.Namespace, l.Pod, l.Host)
}

func compareLeftovers(a, b Leftover) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(b.Endpoint.Name, a.Endpoint.Name), comparePrefix(a.Block, b.Block), a.Address.Compare(b.Address),
		cmp.Compare(a.Endpoint.Namespace, b.Endpoint.Namespace), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
		cmp.Compare(a.Handle, b.Handle), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Endpoint.Revision, b.Endpoint.Revision))
}

// SeenLeftover is a Leftover and when sweeps have found it.
type SeenLeftover struct {
	Leftover
	// Since is when the first of the sweeps found it that have found it without a gap, and Seen when the last did.
	Since, Seen time.Time
	// Batch is the hash of what waits for a confirmation together with it, and ConfirmedUntil until when a person's confirmation holds.
	Batch          string
	ConfirmedUntil time.Time
	// NotBefore is when to try again after something spoke against it, which is Held; Holds is how often it has been so.
	NotBefore time.Time
	Held      string
	Holds     int
}

// LeftoverRemoval is how many leftovers were removed at a time without a person's confirmation.
type LeftoverRemoval struct {
	At    time.Time `json:"at"`
	Count int       `json:"count"`
}

// PodLookup is the answer to a live read of one pod. VerdictGone stands for a pod that is absent, and for one that has finished and is not
// being deleted.
type PodLookup struct {
	Namespace, Name string
	Verdict         Verdict
	// Detail is the error behind VerdictUnknown, for people.
	Detail string
	// Node is the Kubernetes Node that it is bound to, and Container the container ID that Calico's CNI plugin annotates
	// it with in the kubernetes datastore; both empty if it is not alive.
	Node, Container string
}

// Heartbeat is a live read of a machine's Kubernetes Node and of the Lease that its kubelet renews.
type Heartbeat struct {
	Node string
	// UID is that of the Kubernetes Node, empty if it could not be read.
	UID string
	// Ready is the Node's condition of that name; Keep says that the keep annotation stands on it.
	Ready, Keep bool
	// ReadySince is when that condition changed last, the zero time if the Node does not say so.
	ReadySince time.Time
	// Renewed is the Lease's renewTime, by the clock of the machine.
	Renewed time.Time
	// Detail is why one of them could not be read, for people.
	Detail string
}

// Beat is a Heartbeat that was seen.
type Beat struct {
	Node, UID string
	Renewed   time.Time
	// At is when it was read, and Proven when two reads have last shown that the kubelet renews its Lease. First says that there was no read
	// shortly before.
	At, Proven time.Time
	First      bool
	// Since is the first of the times at which that was shown without a gap longer than beatWindow.
	Since time.Time
}

// ReadyLongEnough reports whether the Node has been Ready for as long as leftovers must be old. A kubelet that was dead while its pods were
// deleted by force still takes them down when it is back.
func (h Heartbeat) ReadyLongEnough(now time.Time, c Config) bool {
	return h.Ready && !h.ReadySince.IsZero() && now.Sub(h.ReadySince) >= c.oldLeftover()
}

// oldLeftover is how far the sweeps must be apart that find a leftover before it goes, and for how long its machine must have been seen to be well.
func (c Config) oldLeftover() time.Duration { return max(c.Grace, c.LeftoverAge) }

const (
	// leftoversPerRound bounds the live reads of one round.
	leftoversPerRound = 100
	// leftoversPerStep bounds one transaction.
	leftoversPerStep = 50
	// reportedMachines bounds how many machines are reported one by one.
	reportedMachines = 100
	// beatWindow is how far two reads of a Lease may be apart between which it must be renewed, and provenLife how long that proves that the
	// kubelet is at work: a kubelet renews every 10 s, and its Node counts as lost after 40 s (kubelet: nodeLeaseDurationSeconds).
	beatWindow = 2 * time.Minute
	provenLife = 40 * time.Second
	// beatAgain is when to look again at a kubelet that has not been at work for long enough yet: often enough for the reads to follow on each other.
	beatAgain = time.Minute
	// longestBatch is how long a hash names the same leftovers while others come and go.
	longestBatch = 24 * time.Hour
)

// LeftoversNotSought begins the message of a refusal that is about no leftover: the pods could not be listed, or not compared.
const LeftoversNotSought = "leftovers of pods were not looked for"

// ofLeftovers is whose the leftovers of a machine are; with an empty host, of all of them. No host can have that name.
func ofLeftovers(host, kubernetes string) Subject {
	return Subject{Host: cmp.Or(host, "pod leftovers"), KubernetesNode: kubernetes, Leftovers: true}
}

// LeftoverMemory is what the planner of leftovers asks to remember. All but what counts for the mass guard and what waits is not worth keeping: after a
// restart two sweeps must find the leftovers again.
type LeftoverMemory struct {
	// Leftovers are what the last sweep found of pods that are gone, of Holdings that name a pod; Beats are the kubelets that were looked at.
	Leftovers     []SeenLeftover `json:"-"`
	Holdings      int            `json:"-"`
	Beats         []Beat         `json:"-"`
	LeftoverBatch LeftoverBatch  `json:"-"`
	// LeftoverRemovals are how many leftovers were planned for removal without a confirmation, within the window of the mass guard.
	LeftoverRemovals []LeftoverRemoval `json:"leftoverRemovals,omitempty"`
	// AwaitingLeftovers is Awaiting for leftovers of pods.
	AwaitingLeftovers Awaiting `json:"awaitingLeftovers,omitzero"`
}

// rememberLeftovers returns the leftovers with since when they are some, and the removals within the mass guard's window. Without a sweep this time, what
// the last one found still holds.
func rememberLeftovers(w World, c Config) LeftoverMemory {
	m := w.Memory.LeftoverMemory
	m.AwaitingLeftovers, m.LeftoverRemovals = Awaiting{}, nil
	for _, r := range w.Memory.LeftoverRemovals {
		if r.At.After(w.Now) {
			r.At = w.Now // the clock was set back
		}
		if w.Now.Sub(r.At) < c.MassWindow && r.Count > 0 {
			m.LeftoverRemovals = append(m.LeftoverRemovals, r)
		}
	}
	if !w.Calico.PodsSwept {
		m.Leftovers = slices.Clone(m.Leftovers)
		return m
	}
	old := make(map[Leftover]SeenLeftover, len(m.Leftovers))
	for _, l := range m.Leftovers {
		old[l.Leftover] = l
	}
	// An API server that lists no pod at all, as a restored one does, makes all look gone.
	found := w.Calico.Leftovers
	if w.Calico.AlivePods == 0 {
		found = nil
	}
	out := make([]SeenLeftover, 0, len(found))
	for _, l := range found {
		seen, known := old[l]
		if !known || seen.Since.After(w.Now) {
			seen = SeenLeftover{Leftover: l, Since: w.Now}
		}
		seen.Seen = w.Now
		out = append(out, seen)
	}
	slices.SortFunc(out, func(a, b SeenLeftover) int { return compareLeftovers(a.Leftover, b.Leftover) })
	m.Holdings, m.Leftovers = w.Calico.Holdings, slices.CompactFunc(out, func(a, b SeenLeftover) bool { return a.Leftover == b.Leftover })
	return m
}

// living is a machine whose Kubernetes Node is listed, and that nothing is doubtful about.
type living struct {
	subject  Subject
	revision int64 // of the Calico Node, 0 where there is none of its own
	uid      string
	keep     bool
}

// livingMachines are the existing machines, by the name of their Calico Node. One of which a second Calico Node speaks, that is being
// cleaned up, or that has no Calico Node where it should have one is not among them.
func (s *census) livingMachines(w World) map[string]living {
	uids := make(map[string]string, len(w.Kubernetes.Nodes))
	for _, n := range w.Kubernetes.Nodes {
		uids[n.Name] = n.UID
	}
	out := make(map[string]living, len(w.Calico.Nodes))
	for _, n := range w.Calico.Nodes {
		name, adopted, gate, _ := s.config.identify(n)
		if gate != "" || adopted || n.nameless() || !s.roster.listed[name] || n.FencedFor != "" || len(s.own[name]) > 1 {
			continue
		}
		out[n.Name] = living{subject: ofLeftovers(n.Name, name), revision: n.Revision, uid: uids[name], keep: n.Keep}
	}
	return out
}

// leftoverPlanner decides about what pods that are gone have left on existing machines. With the planner of machines it shares what that has found out
// about machines, and nothing else.
type leftoverPlanner struct {
	Plan
	w      World
	c      Config
	living map[string]living
	// shared is why nothing is to be removed that the API server's lists alone speak against, "" for nothing.
	shared string
	m      *LeftoverMemory
	tally  *tally
	due    []SeenLeftover // every gate but the live ones holds
}

// planLeftovers is the plan about leftovers; living is nil while nothing at all may be removed.
func planLeftovers(w World, c Config, living map[string]living, shared string, memory LeftoverMemory) Plan {
	p := leftoverPlanner{w: w, c: c, living: living, shared: shared, m: &memory, tally: newTally(), Plan: Plan{Next: c.Resync}}
	if living != nil {
		p.judge()
	}
	p.decide()
	p.Refusals = append(p.Refusals, p.tally.refusals(w.Now)...)
	p.Memory.LeftoverMemory = memory
	return p.Plan
}

// judge says of each leftover on a machine that lives why it is left alone, or that it is due: it has been found by two sweeps long enough apart, and the
// mass guard lets it pass.
func (p *leftoverPlanner) judge() {
	if p.w.Calico.PodsSwept && p.w.Calico.AlivePods == 0 && len(p.w.Calico.Leftovers) > 0 && !p.c.OneShot {
		p.refuse(ofLeftovers("", ""), GatePodLeftovers, "Kubernetes lists no pod at all: whether pods are gone is unknown")
	}
	if p.w.Calico.PodsNotSwept != "" {
		p.refuse(ofLeftovers("", ""), GatePodLeftovers, LeftoversNotSought+": "+p.w.Calico.PodsNotSwept)
	}
	p.m.confirmLeftovers(p.w)
	var ripe []int
	for i, l := range p.m.Leftovers {
		machine, lives := p.living[l.Host]
		if !lives {
			continue
		}
		p.Leftovers++
		if why := cmp.Or(l.unripe(machine, p.c), p.shared); why != "" {
			p.tally.add(machine.subject, l, why)
			continue
		}
		ripe = append(ripe, i)
	}
	p.guard(ripe)
}

// unripe returns why a leftover is not to be removed, whatever a live read says, or "".
func (l SeenLeftover) unripe(machine living, c Config) string {
	age := c.oldLeftover()
	switch {
	case machine.keep:
		return "annotation " + KeepAnnotation + " forbids removing it"
	case strings.HasSuffix(l.Pod, "-"+machine.subject.KubernetesNode):
		return "a static pod may run under that name without the API server knowing it; look on the machine"
	case !slices.Contains(c.AlsoRemove, KindPodLeftovers):
		return fmt.Sprintf("they cannot be assigned; a controller with --also-remove=%s removes them", KindPodLeftovers)
	case c.OneShot || len(c.Named) > 0:
		return fmt.Sprintf("the controller removes them when two sweeps, at least %s apart, have found them; "+
			"a command makes only one", age)
	case l.Seen.Sub(l.Since) < age:
		return fmt.Sprintf("they are removed if another sweep, at least %s later, finds them unchanged", age)
	}
	return ""
}

// guard lets the ripe ones be due, or holds those back that nobody has confirmed, if they are too many with those of the mass
// guard's window.
func (p *leftoverPlanner) guard(ripe []int) {
	m, w, c := p.m, p.w, p.c
	var open []int // not confirmed
	for _, i := range ripe {
		if !w.Now.Before(m.Leftovers[i].ConfirmedUntil) {
			open = append(open, i)
		}
	}
	planned, limit := len(open), c.leftoverLimit(m.Holdings)
	for _, r := range m.LeftoverRemovals {
		planned += r.Count
	}
	held := len(open) > 0 && planned > limit
	if held {
		why := fmt.Sprintf("%s of deleted pods are found on existing machines, including removals of the last %s; the guard allows %d of %d without a confirmation",
			prose.Plural(planned, "leftover"), c.MassWindow, limit, m.Holdings)
		m.awaitLeftovers(open, why, w.Now)
		p.refuse(ofLeftovers("", ""), GateLeftoverGuard, fmt.Sprintf("%s; if the pods are gone, run `kubectl mooring confirm nodes %s`", why, m.AwaitingLeftovers.Hash))
	}
	for _, i := range ripe {
		l := m.Leftovers[i]
		switch {
		case held && !w.Now.Before(l.ConfirmedUntil): // the guard's refusal says so
		case w.Now.Before(l.NotBefore):
			p.tally.add(p.living[l.Host].subject, l, l.Held)
			p.lookAgain(l.NotBefore.Sub(w.Now))
		default:
			p.due = append(p.due, l)
		}
	}
	// Machines that are being looked at come first: their reads must follow on each other.
	later := make(map[string]int, len(p.living))
	for host, machine := range p.living {
		if !slices.ContainsFunc(m.Beats, func(b Beat) bool { return b.Node == machine.subject.KubernetesNode }) {
			later[host] = 1
		}
	}
	slices.SortStableFunc(p.due, func(a, b SeenLeftover) int {
		return cmp.Or(cmp.Compare(later[a.Host], later[b.Host]), a.NotBefore.Compare(b.NotBefore))
	})
	if more := len(p.due) - leftoversPerRound; more > 0 {
		p.due = p.due[:leftoversPerRound]
		p.lookAgain(c.Pace)
	}
	slices.SortFunc(p.due, func(a, b SeenLeftover) int { return compareLeftovers(a.Leftover, b.Leftover) })
}

// leftoverLimit is how many leftovers may go within the mass guard's window, of as many addresses and endpoints of pods as there are.
func (c Config) leftoverLimit(holdings int) int {
	return max(c.MaxLeftovers, holdings*c.MaxLeftoversPercent/100)
}

// decide plans the removal of what live reads do not speak for, and holds the rest. It needs the machines of all that is due, and the pods of what is due
// on those that are well: while a machine is not, nothing is to be known of its pods, however many its leftovers are.
func (p *leftoverPlanner) decide() {
	p.m.beat(p.w)
	pods := make(map[[2]string]PodLookup, len(p.w.Kubernetes.Pods))
	for _, pod := range p.w.Kubernetes.Pods {
		pods[[2]string{pod.Namespace, pod.Name}] = pod
	}
	removed := 0
	for group := range groups(p.due, func(l SeenLeftover) string { return l.Host }) {
		machine := p.living[group[0].Host]
		p.Needs.Heartbeats = append(p.Needs.Heartbeats, machine.subject.KubernetesNode)
		heldMachine, wait := p.m.askMachine(p.w, machine, p.c)
		if heldMachine != "" {
			for _, l := range group {
				p.tally.add(machine.subject, l, heldMachine)
			}
			p.lookAgain(p.m.holdLeftovers(func(l Leftover) bool { return l.Host == group[0].Host }, heldMachine, wait, p.w.Now, p.c))
			continue
		}
		var going []Leftover
		for _, l := range group {
			pod, read := pods[[2]string{l.Namespace, l.Pod}]
			p.Needs.Pods = append(p.Needs.Pods, [2]string{l.Namespace, l.Pod})
			switch {
			case !read || pod.Verdict == VerdictUnknown:
				held := "whether the pod is gone is unknown: " + cmp.Or(pod.Detail, "it was not read")
				p.tally.add(machine.subject, l, held)
				p.lookAgain(p.m.holdLeftover(l.Leftover, held, p.w.Now, p.c))
			case !l.GoneFrom(machine.subject.KubernetesNode, pod):
				p.m.dropLeftovers(l.Leftover) // it is none
			default:
				going = append(going, l.Leftover)
				if !p.w.Now.Before(l.ConfirmedUntil) {
					removed++
				}
			}
		}
		p.remove(machine, going)
	}
	slices.Sort(p.Needs.Heartbeats)
	if removed > 0 {
		p.m.LeftoverRemovals = append(p.m.LeftoverRemovals, LeftoverRemoval{At: p.w.Now, Count: removed})
		p.lookAgain(p.c.Pace)
	}
}

// remove adds the steps for the leftovers of one machine.
func (p *leftoverPlanner) remove(machine living, going []Leftover) {
	if len(going) == 0 {
		return
	}
	p.Decisions = append(p.Decisions, Decision{Of: machine.subject, Because: fmt.Sprintf(
		"two sweeps found them, a live read finds none of the pods there, and Kubernetes Node %s has been Ready for long and its kubelet renews its Lease", machine.subject.KubernetesNode)})
	for group := range groups(going, func(l Leftover) netip.Prefix { return l.Block }) {
		for chunk := range slices.Chunk(group, leftoversPerStep) {
			p.Steps = append(p.Steps, RemoveLeftovers{Of: machine.subject, Revision: machine.revision, NodeUID: machine.uid, Leftovers: slices.Clone(chunk)})
		}
	}
}

// askMachine returns why a machine's leftovers are not to be touched now, and when to ask again (0 for the usual time), or "".
func (m LeftoverMemory) askMachine(w World, machine living, c Config) (why string, wait time.Duration) {
	i := slices.IndexFunc(w.Kubernetes.Heartbeats, func(h Heartbeat) bool { return h.Node == machine.subject.KubernetesNode })
	if i < 0 {
		return "its Kubernetes Node and the Lease of its kubelet were not read", 0
	}
	h := w.Kubernetes.Heartbeats[i]
	switch {
	case h.Detail != "":
		return "it is unknown whether its kubelet is running: " + h.Detail, 0
	case h.UID == "" || h.UID != machine.uid:
		return "its Kubernetes Node was replaced", 0
	case h.Keep:
		return "annotation " + KeepAnnotation + " on its Kubernetes Node forbids removing it", 0
	case !h.Ready:
		return "its Kubernetes Node is not Ready", 0
	case !h.ReadyLongEnough(w.Now, c):
		return fmt.Sprintf("its Kubernetes Node has not been Ready for %s: its kubelet may still take pods down", c.oldLeftover()), beatAgain
	}
	return m.askKubelet(w.Now, h, c)
}

// askKubelet is the part of askMachine about the Lease.
func (m LeftoverMemory) askKubelet(now time.Time, h Heartbeat, c Config) (why string, wait time.Duration) {
	i := slices.IndexFunc(m.Beats, func(b Beat) bool { return b.Node == h.Node && b.UID == h.UID })
	if i < 0 || m.Beats[i].First {
		return "the next check shows whether its kubelet renews its Lease", firstHold
	}
	switch beat := m.Beats[i]; {
	case beat.Proven.IsZero() || beat.Proven.After(now) || now.Sub(beat.Proven) > provenLife:
		return "its kubelet has not renewed its Lease between two checks", 0
	case beat.Since.After(now) || now.Sub(beat.Since) < c.oldLeftover():
		return fmt.Sprintf("its kubelet has not been seen to renew its Lease for %s: it may still take pods down", c.oldLeftover()),
			min(beatAgain, max(time.Second, beat.Since.Add(c.oldLeftover()).Sub(now)))
	}
	return "", 0
}

// beat notes the heartbeats that were read, and which of them show that a kubelet is at work.
func (m *LeftoverMemory) beat(w World) {
	old := make(map[string]Beat, len(m.Beats))
	for _, b := range m.Beats {
		old[b.Node] = b
	}
	read := map[string]bool{}
	var beats []Beat
	for _, h := range w.Kubernetes.Heartbeats {
		if h.Detail != "" || h.UID == "" {
			continue
		}
		next, before := Beat{Node: h.Node, UID: h.UID, Renewed: h.Renewed, At: w.Now, First: true}, old[h.Node]
		if gap := w.Now.Sub(before.At); before.UID == h.UID && gap > 0 && gap <= beatWindow {
			next.First = false
			next.Proven, next.Since = before.Proven, before.Since
			if h.Renewed.After(before.Renewed) {
				if next.Proven = w.Now; before.Since.IsZero() || w.Now.Sub(before.Proven) > beatWindow {
					next.Since = w.Now
				}
			}
		}
		read[h.Node] = true
		beats = append(beats, next)
	}
	for _, b := range m.Beats {
		if gap := w.Now.Sub(b.At); !read[b.Node] && gap >= 0 && gap <= beatWindow {
			beats = append(beats, b)
		}
	}
	slices.SortFunc(beats, func(a, b Beat) int { return cmp.Compare(a.Node, b.Node) })
	m.Beats = beats
}

// holdLeftover notes that something speaks against removing a leftover now, and returns when to ask again: after twice as long each time.
func (m *LeftoverMemory) holdLeftover(which Leftover, why string, now time.Time, c Config) time.Duration {
	return m.holdLeftovers(func(l Leftover) bool { return l == which }, why, 0, now, c)
}

// holdLeftovers does so for some, until the given time or, with 0, after twice as long each time, and returns the shortest time until one is asked about again.
func (m *LeftoverMemory) holdLeftovers(which func(Leftover) bool, why string, wait time.Duration, now time.Time, c Config) time.Duration {
	soonest := c.Resync
	for i := range m.Leftovers {
		l := &m.Leftovers[i]
		if !which(l.Leftover) {
			continue
		}
		until := wait
		if until == 0 {
			until = min(c.Resync, firstHold<<min(l.Holds, 10))
			l.Holds++
		}
		l.NotBefore, l.Held = now.Add(until), why
		soonest = min(soonest, until)
	}
	return soonest
}

func (m *LeftoverMemory) dropLeftovers(which ...Leftover) {
	m.Leftovers = slices.DeleteFunc(slices.Clone(m.Leftovers), func(l SeenLeftover) bool { return slices.Contains(which, l.Leftover) })
}

// LeftoversTried returns the memory after a RemoveLeftovers step of the plan that was made at the given time: without them if they are
// removed, else with the reason, and without counting them for the mass guard. It returns when to try again as well.
func (m Memory) LeftoversTried(step RemoveLeftovers, failed string, planned, now time.Time, c Config) (Memory, time.Duration) {
	m.Leftovers = slices.Clone(m.Leftovers)
	if failed == "" {
		m.dropLeftovers(step.Leftovers...)
		return m, c.Resync
	}
	open, wait := 0, c.Resync
	for _, l := range m.Leftovers {
		if slices.Contains(step.Leftovers, l.Leftover) && !planned.Before(l.ConfirmedUntil) {
			open++
		}
	}
	for _, l := range step.Leftovers {
		wait = min(wait, m.holdLeftover(l, failed, now, c))
	}
	m.LeftoverRemovals = slices.Clone(m.LeftoverRemovals)
	for i := range m.LeftoverRemovals {
		if r := &m.LeftoverRemovals[i]; r.At.Equal(planned) {
			r.Count = max(0, r.Count-open)
		}
	}
	return m, wait
}

// groups yields the runs of values of one key.
func groups[T any, K comparable](all []T, key func(T) K) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		for start := 0; start < len(all); {
			end := start + 1
			for end < len(all) && key(all[end]) == key(all[start]) {
				end++
			}
			if !yield(all[start:end]) {
				return
			}
			start = end
		}
	}
}
