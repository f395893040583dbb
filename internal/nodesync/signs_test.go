// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// absentFor is a world in which machine x, and y if it is told of, have been absent for just longer than the grace
// period, at revision 200 of the store; it was at 100 when that began.
func absentFor(c Config, seen []string, more ...string) World {
	calico := append([]string{"a=a", "b=b", "c=c", "x=x"}, more...)
	first := named(c, calico, []string{"a", "b", "c"}, seen)
	first.Now, first.Memory, first.Calico.Revision = start, Memory{}, 100
	w := named(c, calico, []string{"a", "b", "c"}, seen)
	w.Memory, w.Now, w.Calico.Revision = MakePlan(first, c).Memory, start.Add(c.Grace+time.Second), 200
	return w
}

// holds gives host x something in the datastore.
func (w *World) holds(host Host) {
	for i := range w.Calico.Hosts {
		if host.Name = "x"; w.Calico.Hosts[i].Name == "x" {
			w.Calico.Hosts[i] = host
		}
	}
}

func endpointAt(revision int64) func(*World) {
	return func(w *World) {
		w.holds(Host{Endpoints: []Endpoint{{Namespace: "ns", Name: "e", Pod: "p", Orchestrator: OrchestratorKubernetes, Revision: revision}}})
	}
}

func addressAt(at time.Time) func(*World) {
	return func(w *World) {
		w.holds(Host{Blocks: []Block{{CIDR: netip.MustParsePrefix("10.0.0.0/26"), AffineTo: "x", Allocations: []Allocation{
			{Address: netip.MustParseAddr("10.0.0.1"), Handle: "h", Host: "x", AssignedAt: at},
		}}}})
	}
}

func statusAt(revision int64, at time.Time) func(*World) {
	return func(w *World) {
		w.holds(Host{Resources: []Resource{{Kind: KindCalicoNodeStatus, Name: "s", Automatic: true, Revision: revision, StatusAt: at}}})
	}
}

func reportAt(revision int64, at time.Time) func(*World) {
	return func(w *World) {
		w.Calico.Reports = append(w.Calico.Reports, Report{Host: "x", Revision: revision, At: at})
	}
}

func nothing(*World) {}

// What a machine wrote after its Node was missing is a sign of life, whatever Kubernetes lists; what it wrote before
// is none, and a machine that is silent goes when its grace period is over.
func TestASignOfLifeHoldsAMachineBack(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	before, after, ahead := start.Add(-time.Second), start.Add(time.Minute), start.Add(time.Hour)
	for name, test := range map[string]struct {
		sign    func(*World)
		says    string
		removed string
	}{
		"silent":                               {nothing, "", "x"},
		"a report from before":                 {reportAt(99, before), "", "x"},
		"a report":                             {reportAt(150, after), "its Felix reports its status", ""},
		"a report by a clock that is behind":   {reportAt(150, before), "its Felix reports its status", ""},
		"a report by a clock that is ahead":    {reportAt(150, ahead), "its Felix reports its status", ""},
		"an endpoint from before":              {endpointAt(99), "", "x"},
		"an endpoint":                          {endpointAt(150), "workload endpoints were written", ""},
		"an endpoint that a sweep found":       {func(w *World) { w.Calico.EndpointsWritten = map[string]int64{"x": 150} }, "workload endpoints were written", ""},
		"a sweep that found one from before":   {func(w *World) { w.Calico.EndpointsWritten = map[string]int64{"x": 99} }, "", "x"},
		"an address from before":               {addressAt(before), "", "x"},
		"an address of an unknown time":        {addressAt(time.Time{}), "", "x"},
		"an address by a clock that is ahead":  {addressAt(after), "", "x"},
		"a status from before":                 {statusAt(99, after), "", "x"},
		"a status":                             {statusAt(150, after), "its CalicoNodeStatus s was updated", ""},
		"a status request that nobody answers": {statusAt(150, time.Time{}), "", "x"},
		"its Node was written":                 {func(w *World) { w.Calico.Nodes[3].Revision = 150 }, "its Calico Node was written", ""},
	} {
		for _, watched := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", watched"}[watched], func(t *testing.T) {
				t.Parallel()
				var seen []string
				if watched {
					seen = []string{"x"}
				}
				w := absentFor(c, seen)
				test.sign(&w)
				p := MakePlan(w, c)
				if got := removedHosts(p); got != test.removed {
					t.Fatalf("removed %q, want %q:\n%s", got, test.removed, p)
				}
				question := strings.Contains(p.String(), "another cluster on this datastore, or one whose calico-node runs with another NODENAME?")
				if test.says != "" && (!strings.Contains(p.String(), test.says) || question == watched || p.Refusals[0].Gate != GateSigns) {
					t.Errorf("%q is not said, or the question is wrong:\n%s", test.says, p)
				}
			})
		}
	}
}

// In the kubernetes datastore, which has no revisions in common, times tell, with room for clocks that differ: of
// addresses and of statuses.
func TestSignsOfLifeInTheKubernetesDatastore(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	for name, test := range map[string]struct {
		sign    func(*World)
		says    string
		removed bool
	}{
		"silent":                              {nothing, "", true},
		"an address from before":              {addressAt(start.Add(-time.Second)), "", true},
		"an address by a clock that is ahead": {addressAt(start.Add(time.Minute)), "", true},
		"an address":                          {addressAt(start.Add(3 * time.Minute)), "addresses were assigned", false},
		"a status":                            {statusAt(1, start.Add(3*time.Minute)), "its CalicoNodeStatus s was updated", false},
	} {
		w := absentFor(c, nil)
		for i := range w.Calico.Nodes {
			w.Calico.Nodes[i].Implied, w.Calico.Nodes[i].Revision = true, 0
		}
		w.Calico.Revision, w.Calico.Binding.Implied = 0, true
		for i := range w.Memory.Absences {
			w.Memory.Absences[i].Store, w.Memory.Absences[i].Revision = 0, 0
		}
		w.holds(Host{Affinities: []Affinity{{CIDR: netip.MustParsePrefix("10.0.1.0/26"), Revision: 1}}})
		test.sign(&w)
		p := MakePlan(w, c)
		if got := len(p.Steps) > 0; got != test.removed || !strings.Contains(p.String(), test.says) || strings.Contains(p.String(), "another cluster") {
			t.Errorf("%s: removed %t, want %t:\n%s", name, got, test.removed, p)
		}
	}
}

// A machine of this cluster goes after a grace period of silence. One that nobody saw leave has lived without a
// Kubernetes Node: it goes after a day, also if a new process has only what was saved, or when a person says so.
func TestHowLongASignOfLifeHolds(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	for name, test := range map[string]struct {
		seen    []string
		silence time.Duration
	}{"watched": {[]string{"x"}, c.Grace}, "not watched": {nil, strangerSilence}} {
		w := absentFor(c, test.seen)
		reportAt(150, start.Add(time.Minute))(&w)
		for range 3 { // the same report is no new sign
			w.Memory = MakePlan(w, c).Memory
		}
		forget := c
		forget.Named = []string{"x"}
		if p := MakePlan(w, forget); removedHosts(p) != "x" {
			t.Errorf("%s: %s after the report, by name:\n%s", name, w.Now.Sub(start.Add(time.Minute)), p)
		}
		w.Now = start.Add(time.Minute + test.silence - time.Second)
		w.Memory.SavedAt = w.Now
		w.Memory = w.Memory.Recalled(w.Now, c)
		if p := MakePlan(w, c); removedHosts(p) != "" || p.Next > time.Second {
			t.Errorf("%s, a second early, next in %s:\n%s", name, p.Next, p)
		}
		w.Now = w.Now.Add(time.Second)
		if p := MakePlan(w, c); removedHosts(p) != "x" {
			t.Errorf("%s, after %s:\n%s", name, test.silence, p)
		}
	}
}

// While a machine lives that is not of this cluster, its silent neighbors and what pods left are held back, unless a
// person confirms it, or has annotated the machine to be kept. What was seen to leave this cluster goes.
func TestAStrangerHoldsBackWhatIsSilent(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	w := absentFor(c, []string{"seen"}, "y=y", "seen=seen")
	reportAt(150, start.Add(time.Minute))(&w)
	p := MakePlan(w, c)
	if removedHosts(p) != "seen" || !strings.Contains(p.String(), `y: 1 machine is alive by Calico's datastore and unknown to Kubernetes, such as "x"`) {
		t.Errorf("got\n%s", p)
	}
	if a := p.Memory.Awaiting; a.Gate != GateSigns || !slices.Equal(a.Machines, []string{"y"}) {
		t.Errorf("what waits for a confirmation: %+v", a)
	}
	confirmed := w
	confirmed.Confirmation = p.Memory.Awaiting.Confirmation(w.Now.Add(time.Hour))
	if p := MakePlan(confirmed, c); removedHosts(p) != "seen y" {
		t.Errorf("confirmed:\n%s", p)
	}
	forget := c
	forget.Named = []string{"y"}
	if p := MakePlan(w, forget); removedHosts(p) != "y" {
		t.Errorf("by name:\n%s", p)
	}
	w.Calico.Nodes[3].Keep = true
	if p := MakePlan(w, c); removedHosts(p) != "seen y" {
		t.Errorf("kept:\n%s", p)
	}
	leftover := SeenLeftover{Leftover: Leftover{Host: "a", Namespace: "ns", Pod: "p", Endpoint: EndpointRef{Namespace: "ns", Name: "e", Revision: 1}},
		Since: start.Add(-time.Hour), Seen: w.Now}
	c.AlsoRemove = []ResourceKind{KindPodLeftovers}
	w.Memory.Leftovers = []SeenLeftover{leftover}
	if got := MakePlan(w, c).Needs.Heartbeats; len(got) != 1 {
		t.Errorf("leftovers without a stranger: %v", got)
	}
	w.Calico.Nodes[3].Keep = false
	if p := MakePlan(w, c); len(p.Needs.Heartbeats) != 0 || !strings.Contains(p.String(), "is there another cluster on this datastore?") {
		t.Errorf("leftovers beside a stranger: %v\n%s", p.Needs, p)
	}
}

// A person who names a machine is told what speaks for it, also if it is the first that is heard of its absence. What
// it wrote earlier, or before its Node was seen to leave, does not hold it back; and a person has the last word.
func TestANamedMachineIsAskedForSignsOfLife(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sign    func(*World)
		removed string
	}{
		"silent": {nothing, "x"}, "reported lately": {reportAt(99, start.Add(-time.Minute)), ""}, "reported earlier": {reportAt(99, start.Add(-3*time.Minute)), "x"},
		"an address lately": {addressAt(start.Add(-time.Minute)), "x"}, "a status lately": {statusAt(99, start.Add(-time.Minute)), ""},
		"an address earlier": {addressAt(start.Add(-time.Hour)), "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			c.Named, c.OneShot = []string{"x"}, true
			w := absentFor(c, nil)
			w.Now, w.Memory = start, Memory{}
			test.sign(&w)
			p := MakePlan(w, c)
			if got := removedHosts(p); got != test.removed {
				t.Fatalf("removed %q, want %q:\n%s", got, test.removed, p)
			}
			if again := w; test.removed == "" { // the next look of the same command is no later absence
				again.Now, again.Memory = start.Add(time.Second), p.Memory
				if p := MakePlan(again, c); removedHosts(p) != "" || !strings.Contains(p.String(), "apply x --ignore-signs-of-life") {
					t.Errorf("a second later:\n%s", p)
				}
				if again.Now = start.Add(freshSign); removedHosts(MakePlan(again, c)) != "x" {
					t.Errorf("two minutes later:\n%s", MakePlan(again, c))
				}
			}
			c.IgnoreSigns = true
			if p := MakePlan(w, c); removedHosts(p) != "x" {
				t.Errorf("although a person insists:\n%s", p)
			}
		})
	}
}

// Of several Calico Nodes of a machine either can be named, and the stale one is removable, whatever it is called;
// the one that the machine uses is not, nor any while nothing shows which that is, unless a person insists. The
// reason is true.
func TestWhichOfTwoCalicoNodesIsStale(t *testing.T) {
	t.Parallel()
	pod := func(nodename string) func(*World) {
		return func(w *World) {
			w.Kubernetes.CalicoPods = []CalicoPod{{Node: "live", Pod: "kube-system/calico-node-1", Nodename: nodename}}
		}
	}
	reports := func(host string, age time.Duration) func(*World) {
		return func(w *World) {
			w.Calico.Reports = append(w.Calico.Reports, Report{Host: host, Revision: 1, At: w.Now.Add(-age)})
		}
	}
	for name, test := range map[string]struct {
		evidence func(*World)
		stale    string // "" for neither
		says     string
	}{
		"the pod's NODENAME is another name":       {pod("c-live"), "live", `runs with NODENAME "c-live"`},
		"the pod's NODENAME is the Node's name":    {pod("live"), "c-live", `runs with NODENAME "live"`},
		"no pod":                                   {nothing, "", "nothing shows which of them"},
		"a pod of which that is not known":         {pod(""), "", "nothing shows which of them"},
		"a NODENAME that is none of them":          {pod("other"), "", "nothing shows which of them"},
		"a report":                                 {reports("c-live", time.Minute), "live", `reports as "c-live"`},
		"an old report":                            {reports("c-live", time.Hour), "", "nothing shows which of them"},
		"a report as the Node":                     {reports("live", time.Minute), "c-live", `reports as "live"`},
		"both report":                              {func(w *World) { reports("live", 0)(w); reports("c-live", 0)(w) }, "", "used this Calico Node until lately"},
		"the NODENAME and a report do not agree":   {func(w *World) { pod("c-live")(w); reports("live", 0)(w) }, "", "lately; it can|this is the Calico Node"},
		"an old report, and a NODENAME of another": {func(w *World) { pod("c-live")(w); reports("live", time.Hour)(w) }, "live", "NODENAME"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, person := range []string{"live", "c-live"} {
				c := DefaultConfig()
				c.Named = []string{person}
				w := named(c, []string{"a=a", "live=live", "c-live=live"}, []string{"a", "live"}, nil)
				w.Memory = Memory{}
				test.evidence(&w)
				want := ""
				if person == test.stale {
					want = person
				}
				p := MakePlan(w, c)
				if got := removedHosts(p); got != want {
					t.Fatalf("%s: removed %q, want %q:\n%s", person, got, want, p)
				}
				said := slices.ContainsFunc(strings.Split(test.says, "|"), func(says string) bool { return strings.Contains(p.String(), says) })
				if !said && (want != "" || test.stale == "") || strings.Contains(p.String(), "is gone:") || strings.Contains(p.String(), "does not exist") {
					t.Errorf("%s: %q is not said, or more than is true:\n%s", person, test.says, p)
				}
				c.IgnoreSigns = true
				if p := MakePlan(w, c); removedHosts(p) != person || strings.Contains(p.String(), "is gone:") {
					t.Errorf("although a person insists on %s:\n%s", person, p)
				}
			}
		})
	}
}

// The reports that are read are those of machines that may go: not those of a cluster.
func TestWhoseReportsAreRead(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	w := absentFor(c, []string{"seen"}, "y=y", "seen=seen")
	if got := MakePlan(w, c).Needs.Reports; !slices.Equal(got, []string{"seen", "x", "y"}) {
		t.Errorf("got %q", got)
	}
	w.Now = start // in the grace period
	if got := MakePlan(w, c).Needs.Reports; !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("in the grace period: got %q", got)
	}
}
