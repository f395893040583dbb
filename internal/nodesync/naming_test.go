// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func TestSpellings(t *testing.T) {
	t.Parallel()
	c := Config{Domains: []string{"east.ex", "west.ex"}}
	for name, want := range map[string][]string{
		"a":           {"a", "a.east.ex", "a.west.ex"},
		"a.east.ex":   {"a.east.ex", "a"},
		"a.west.ex":   {"a.west.ex", "a"},
		"a.north.ex":  {"a.north.ex", "a.north.ex.east.ex", "a.north.ex.west.ex"},
		"a-b":         {"a-b", "a-b.east.ex", "a-b.west.ex"},
		".east.ex":    {".east.ex", ".east.ex.east.ex", ".east.ex.west.ex"},
		"":            {""},
		"northeast.e": {"northeast.e", "northeast.e.east.ex", "northeast.e.west.ex"},
	} {
		if diff := cmp.Diff(want, c.Spellings(name)); diff != "" {
			t.Errorf("spellings of %q:\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"a"}, Config{}.Spellings("a")); diff != "" {
		t.Errorf("without domains:\n%s", diff)
	}
}

func TestDomains(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		domains []string
		want    string
	}{
		{[]string{"ex.com", "ec2.internal"}, ""},
		{[]string{"ex.com", "ex.com"}, ""},
		{[]string{".ex.com"}, `the domain ".ex.com" is not a DNS domain: use the form "example.com"`},
		{[]string{""}, `the domain "" is not a DNS domain: use the form "example.com"`},
		{[]string{"Ex.com"}, `the domain "Ex.com" is not a DNS domain: use the form "example.com"`},
		{[]string{"ex_.com"}, `the domain "ex_.com" is not a DNS domain: use the form "example.com"`},
		{[]string{"a.ex.com", "ex.com"}, `the domains "ex.com" and "a.ex.com" overlap, so that one name could mean two machines: name just one of them`},
	} {
		c := DefaultConfig()
		c.Domains = test.domains
		got := ""
		if err := c.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%q: got %q, want %q", test.domains, got, test.want)
		}
	}
	for in, want := range map[string]string{".Ex.com.": "ex.com", "ex.com": "ex.com", "..": ""} {
		if got := NormalizeDomain(in); got != want {
			t.Errorf("NormalizeDomain(%q) = %q, want %q", in, got, want)
		}
	}
}

// named is a world of Calico Nodes "name" (without orchRef) or "name=ref", and Kubernetes Nodes, long after those that are missing went.
func named(c Config, calico, kubernetes, seen []string) World {
	w := World{Now: start, Kubernetes: Kubernetes{Synced: true, ClusterUID: "u"}, Calico: Calico{Ready: true, Binding: Binding{ClusterUID: "u"}}}
	for _, text := range calico {
		name, ref, referenced := strings.Cut(text, "=")
		n := CalicoNode{Name: name, Revision: 1}
		if referenced {
			n.OrchRefs = []OrchRef{{OrchestratorKubernetes, ref}}
		}
		w.Calico.Nodes = append(w.Calico.Nodes, n)
		w.Calico.Hosts = append(w.Calico.Hosts, Host{Name: name})
		for _, spelling := range c.Spellings(strings.Trim(ref, "=")) {
			w.look(spelling, slices.Contains(kubernetes, spelling))
		}
		for _, spelling := range c.Spellings(name) {
			w.look(spelling, slices.Contains(kubernetes, spelling))
		}
	}
	for _, name := range kubernetes {
		w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, KubernetesNode{Name: name})
	}
	for _, name := range seen {
		w.Sightings = append(w.Sightings, Sighting{Node: name})
	}
	w.Memory = MakePlan(w, c).Memory
	w.Now = w.Now.Add(c.Grace + time.Second)
	return w
}

func (w *World) look(name string, alive bool) {
	verdict := VerdictGone
	if alive {
		verdict = VerdictAlive
	}
	w.Kubernetes.Lookups = append(w.Kubernetes.Lookups, Lookup{Node: name, Verdict: verdict})
	w.Kubernetes.RunningPods = append(w.Kubernetes.RunningPods, RunningPods{Node: name})
}

// removedHosts are the Calico Nodes that a plan removes.
func removedHosts(p Plan) string {
	var hosts []string
	for _, s := range p.Steps {
		if _, ok := s.(RemoveNode); ok {
			hosts = append(hosts, s.Subject().Host)
		}
	}
	slices.Sort(hosts)
	return strings.Join(hosts, " ")
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name                     string
		domains                  []string
		adopt                    bool
		calico, kubernetes, seen []string
		removed                  string
		refusals                 []string // beginnings of "host gate: message"
	}{
		{
			name: "Calico's short names without a domain are refused", calico: []string{"a=a", "b=b"}, kubernetes: []string{"a.ex", "b.ex"},
			refusals: []string{`a ambiguous-name: Kubernetes Node "a.ex" may be the same machine as "a"`, `b ambiguous-name`},
		},
		{
			name: "with the domain they are alive, and the one that is gone goes", domains: []string{"ex"},
			calico: []string{"a=a", "b=b", "c=c"}, kubernetes: []string{"a.ex", "b.ex"}, removed: "c",
		},
		{
			name: "the other way about", domains: []string{"ex"}, calico: []string{"a.ex=a.ex", "b.ex=b.ex", "c.ex=c.ex"}, kubernetes: []string{"a", "b"}, removed: "c.ex",
		},
		{
			name: "two domains, one name: the one that is left keeps it alive", domains: []string{"east", "west"},
			calico: []string{"a=a", "b=b"}, kubernetes: []string{"a.west", "b.east"}, seen: []string{"a.east"},
		},
		{
			name: "two domains, both there: ambiguous, so left alone", domains: []string{"east", "west"},
			calico: []string{"a=a"}, kubernetes: []string{"a.west", "a.east"},
			refusals: []string{`a ambiguous-name: with the domains "a" may be any of Kubernetes Nodes "a.east", "a.west"`},
		},
		{
			name: "an orchRef with a domain never means another domain's machine", domains: []string{"east", "west"},
			calico: []string{"a=a.east", "b=b.east"}, kubernetes: []string{"b.east", "a.west"},
			refusals: []string{`a ambiguous-name: its orchRef names "a.east", which is gone, but a Kubernetes Node "a.west" exists`},
		},
		{
			name: "two Calico Nodes for one Kubernetes Node", domains: []string{"ex"}, calico: []string{"a=a", "a.ex=a.ex"}, kubernetes: []string{"a.ex"},
			refusals: []string{`a ambiguous-name: with the domains 2 Calico Nodes would be Kubernetes Node "a.ex"`},
		},
		{
			name: "without orchRef it is not ours", calico: []string{"a", "b=b"}, kubernetes: []string{"b"}, refusals: []string{"a no-identity"},
		},
		{
			name: "adopted and watched, it goes", adopt: true, calico: []string{"a", "b"}, kubernetes: []string{"b"}, seen: []string{"a"}, removed: "a",
		},
		{
			name: "adopted and not watched, it waits for a person, even if it is only one", adopt: true, calico: []string{"a", "b"}, kubernetes: []string{"b"},
			refusals: []string{"a mass-guard: nothing but its name shows that it was ever a Kubernetes Node, and its deletion was not watched; nobody has confirmed it; " +
				"if a is gone, run `kubectl mooring confirm nodes "},
		},
		{
			name: "adopted by short names without a domain: all refused", adopt: true, calico: []string{"a", "b", "c"}, kubernetes: []string{"a.ex", "b.ex"}, seen: []string{"c.ex"},
			refusals: []string{"a ambiguous-name", "b ambiguous-name", `c ambiguous-name: it has no orchRef, and Calico Nodes here have other names than their Kubernetes Nodes, ` +
				`so it may be any of them; --domain names the difference`},
		},
		{
			name: "adopted by short names with the domain: the watched one goes", adopt: true, domains: []string{"ex"},
			calico: []string{"a", "b", "c"}, kubernetes: []string{"a.ex", "b.ex"}, seen: []string{"c.ex"}, removed: "c",
		},
		{
			name: "another orchestrator's is never adopted", adopt: true, calico: []string{"a=", "b=b"}, kubernetes: []string{"b"}, seen: []string{"a"},
			refusals: []string{"a no-identity"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := DefaultConfig()
			c.Domains, c.AdoptUnreferenced = test.domains, test.adopt
			p := MakePlan(named(c, test.calico, test.kubernetes, test.seen), c)
			if got := removedHosts(p); got != test.removed {
				t.Errorf("removed %q, want %q:\n%s", got, test.removed, p)
			}
			if len(p.Refusals) != len(test.refusals) {
				t.Fatalf("got %d refusals, want %d:\n%s", len(p.Refusals), len(test.refusals), p)
			}
			for i, r := range p.Refusals {
				if text := fmt.Sprintf("%s %s: %s", r.Of.Host, r.Gate, r.Message); !strings.HasPrefix(text, test.refusals[i]) {
					t.Errorf("got %q, want %q…", text, test.refusals[i])
				}
			}
		})
	}
}

// Whatever names and domains there are, no Calico Node is touched while a Kubernetes Node exists by any name that it may be known by, unless that has
// a Calico Node of its own and the deletion under the old name was watched; and which machines are removed does not depend on the order of
// the domains.
func TestNamesNeverTouchWhatMayLive(t *testing.T) {
	t.Parallel()
	parts := []string{"a", "b", "c", "a.x"}
	suffixes := []string{"", ".east", ".west", ".x"}
	cases.Check(t, func(t *rapid.T) {
		name := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom(parts).Draw(t, "part") + rapid.SampledFrom(suffixes).Draw(t, "suffix")
		})
		c := generous()
		c.Domains = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"east", "west", "x"}), 0, 3, rapid.ID[string]).Draw(t, "domains")
		c.AdoptUnreferenced = rapid.Bool().Draw(t, "adopt")
		kubernetes := rapid.SliceOfNDistinct(name, 1, 5, rapid.ID[string]).Draw(t, "kubernetes")
		calico := rapid.SliceOfNDistinct(name, 1, 5, rapid.ID[string]).Draw(t, "calico")
		seen := slices.DeleteFunc(rapid.SliceOfNDistinct(name, 0, 5, rapid.ID[string]).Draw(t, "seen"), func(s string) bool { return slices.Contains(kubernetes, s) })
		refs := map[string]string{}
		for i, n := range calico {
			refs[n] = n
			if rapid.Bool().Draw(t, "referenced") {
				refs[n] = rapid.OneOf(rapid.Just(n), name).Draw(t, "ref")
				calico[i] = n + "=" + refs[n]
			}
		}
		p := MakePlan(named(c, calico, kubernetes, seen), c)
		for host := range strings.FieldsSeq(removedHosts(p)) {
			for _, spelling := range slices.Concat(c.Spellings(host), c.Spellings(refs[host])) {
				own := func(text string) bool {
					return !strings.HasPrefix(text, host+"=") && strings.HasSuffix(text, "="+spelling)
				}
				old := refs[host] == host && spelling != host && slices.Contains(seen, host) && slices.ContainsFunc(calico, own)
				if slices.Contains(kubernetes, spelling) && !old {
					t.Errorf("%s is removed, and Kubernetes Node %s exists:\n%s", host, spelling, p)
				}
			}
		}
		backwards := c
		backwards.Domains = slices.Clone(c.Domains)
		slices.Reverse(backwards.Domains)
		if got, want := removedHosts(MakePlan(named(backwards, calico, kubernetes, seen), backwards)), removedHosts(p); got != want {
			t.Errorf("domains in another order remove %q, not %q", got, want)
		}
	})
}

// A hash that one command shows must be good for the next, which is another process at another time.
func TestAOneShotHashOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.OneShot, c.Grace, c.MaxUnwitnessed, c.MaxUnwitnessedPercent = true, 0, 0, 0
	calico, kubernetes := []string{"a=a", "b=b", "c=c"}, []string{"b", "c"}
	const before, after = "nobody has confirmed it; if a is gone, run apply with --confirm=", "HASH"
	w := named(c, calico, kubernetes, nil)
	w.Memory = Memory{}
	message := MakePlan(w, c).Refusals[0].Message
	_, hash, ok := strings.Cut(message, before)
	if !ok || len(hash) != 12 {
		t.Fatalf("got %q, want …%s%s", message, before, after)
	}
	later := named(c, calico, kubernetes, nil)
	later.Now, later.Memory = later.Now.Add(time.Hour), Memory{}
	later.Confirmation = hash + "/" + later.Now.Add(time.Hour).Format(time.RFC3339)
	if got := removedHosts(MakePlan(later, c)); got != "a" {
		t.Errorf("with the hash of an hour ago %q is removed, want a", got)
	}
	later.Calico.Nodes[0].Revision++
	if got := removedHosts(MakePlan(later, c)); got != "" {
		t.Errorf("with the hash of another revision %q is removed", got)
	}
}

// A host that only objects of other kinds are about may be bare metal: only a deletion that was watched shows that it was a Kubernetes Node,
// and that is remembered when the sighting is not there any more.
func TestAHostOfResourcesGoesOnlyIfItsDeletionWasWatched(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		seen, kubernetes []string
		steps            int
		refusal          string
	}{
		{nil, []string{"a"}, 0, "objects that users or programs wrote are about it, and there is neither a Calico Node nor a Kubernetes Node of this " +
			"name: if the machine is gone, `calico-node-sync apply z --also-remove=KIND` removes them"},
		{[]string{"z"}, []string{"a"}, 1, ""},
		{nil, []string{"a", "z"}, 0, ""},
	} {
		c := DefaultConfig()
		world := func(memory Memory, now time.Time, seen []string) World {
			w := named(c, []string{"a=a", "z=z"}, test.kubernetes, seen)
			w.Now, w.Memory, w.Sightings = now, memory, nil
			for _, name := range seen {
				w.Sightings = append(w.Sightings, Sighting{Node: name})
			}
			w.Calico.Nodes[1].Implied, w.Calico.Nodes[1].OnlyWitnessed, w.Calico.Nodes[1].Revision = true, true, 0
			w.Calico.Hosts[1].Resources = []Resource{{Kind: KindHostEndpoint, Name: "z-auto-hep", Revision: 1, Automatic: true}}
			return w
		}
		first := MakePlan(world(Memory{}, start, test.seen), c)
		p := MakePlan(world(first.Memory, start.Add(c.Grace), nil), c)
		refusal := ""
		if len(p.Refusals) > 0 {
			refusal = p.Refusals[0].Message
		}
		if len(p.Steps) != test.steps || refusal != test.refusal {
			t.Errorf("seen %q, Nodes %q: got\n%s", test.seen, test.kubernetes, p)
		}
	}
}

// A process that is killed right after a clean-up leaves a memory of the absence to the next one, which finds what the clean-up has left to
// users: that is not a machine whose absence is to be remembered for as long as they leave it.
func TestWhatIsLeftToUsersIsNoAbsence(t *testing.T) {
	t.Parallel()
	for node, kubernetes := range map[string]string{"a=a": "a", "a=a.ex": "a.ex"} {
		c := DefaultConfig()
		w := named(c, []string{node, "z=z"}, []string{kubernetes}, nil)
		w.Now, w.Sightings = start.Add(time.Hour), nil
		w.Memory = Memory{Absences: []Absence{{CalicoNode: "z", KubernetesNode: "z", Since: start, Witnessed: true}}}
		w.Calico.Nodes[1].Implied, w.Calico.Nodes[1].OnlyWitnessed, w.Calico.Nodes[1].Revision = true, true, 0
		w.Calico.Hosts[1].Resources = []Resource{{Kind: KindBGPPeer, Name: "p", Revision: 1}}
		var p Plan
		for range 3 {
			p = MakePlan(w, c)
			w.Memory = p.Memory
		}
		if len(p.Steps) != 0 || len(p.Memory.Absences) != 0 {
			t.Errorf("Calico Node %s: remembered are %+v\n%s", node, p.Memory.Absences, p)
		}
	}
}

// By its name a person can have removed what is about a host of which nothing else is left: what programs wrote, and the kinds that are named.
func TestAHostOfResourcesGoesByName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kubernetes []string
		also       []ResourceKind
		steps      int
		gates      []Gate
	}{
		{[]string{"a"}, nil, 1, []Gate{GateUserConfiguration}},
		{[]string{"a"}, []ResourceKind{KindBGPPeer}, 2, nil},
		{[]string{"a", "z"}, []ResourceKind{KindBGPPeer}, 0, []Gate{GateNotConfirmed}},
	} {
		c := DefaultConfig()
		c.Named, c.AlsoRemove, c.OneShot = []string{"z"}, test.also, true
		w := named(c, []string{"a=a", "z=z"}, test.kubernetes, nil)
		w.Calico.Nodes[1].Implied, w.Calico.Nodes[1].OnlyWitnessed, w.Calico.Nodes[1].Revision = true, true, 0
		w.Calico.Hosts[1].Resources = []Resource{
			{Kind: KindHostEndpoint, Name: "z-auto-hep", Revision: 1, Automatic: true}, {Kind: KindBGPPeer, Name: "p", Revision: 1},
		}
		p := MakePlan(w, c)
		var gates []Gate
		for _, r := range p.Refusals {
			gates = append(gates, r.Gate)
		}
		if len(p.Steps) != test.steps || !slices.Equal(gates, test.gates) {
			t.Errorf("Nodes %q, also %q: got gates %q\n%s", test.kubernetes, test.also, gates, p)
		}
	}
}

// Hosts that only resources name, however many, neither shut nor open the gate overlap, and record no cluster.
func TestHostsOfResourcesSayNothingAboutTheCluster(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	w := named(c, []string{"a=a"}, []string{"a", "r1"}, nil)
	for i := range 9 {
		w.Calico.Nodes = append(w.Calico.Nodes, CalicoNode{
			Name: fmt.Sprintf("r%d", i), Implied: true, OnlyWitnessed: true, OrchRefs: []OrchRef{{OrchestratorKubernetes, fmt.Sprintf("r%d", i)}},
		})
	}
	w.Sightings = []Sighting{{Node: "r2"}}
	if p := MakePlan(w, c); slices.ContainsFunc(p.Refusals, func(r Refusal) bool { return r.Of == Subject{} }) || len(p.Refusals) != 8 {
		t.Errorf("got\n%s", p)
	}
	w.Calico.Nodes = w.Calico.Nodes[1:]
	w.Calico.Binding = Binding{Revision: 1}
	if p := MakePlan(w, c); len(p.Steps) > 0 {
		t.Errorf("the cluster is recorded on the word of a user's objects:\n%s", p)
	}
}

func TestNodesWithoutACalicoNode(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	c.Domains = []string{"example.com"}
	nodes := []CalicoNode{
		{Name: "a", OrchRefs: []OrchRef{{OrchestratorKubernetes, "k8s-a"}}}, {Name: "b"}, {Name: "left", Implied: true},
		{Name: "o", OrchRefs: []OrchRef{{"openstack", "p"}}},
	}
	got := WithoutCalicoNode(nodes, []string{"k8s-a", "b.example.com", "left", "new", "p"}, c)
	if want := []string{"left", "new", "p"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestMentionsAreOnlyReported(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	w := named(c, []string{"a=a", "b=b", "z=z"}, []string{"a", "b"}, []string{"z"})
	w.Calico.Hosts[2].Mentions = []string{"BGPPeer p peers with its address 172.30.0.1"}
	p := MakePlan(w, c)
	if removedHosts(p) != "z" || len(p.Refusals) != 1 || p.Refusals[0] != (Refusal{Of: Subject{Host: "z", KubernetesNode: "z"}, Gate: GateUserConfiguration,
		Message: "BGPPeer p peers with its address 172.30.0.1; it stays; check whether it is still needed"}) {
		t.Errorf("got\n%s", p)
	}
}

// Likeness of names keeps machines from being removed; it does not show whose the datastore is.
func TestADatastoreIsNotRecordedOnLikenessOfNames(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	for domains, want := range map[string]int{"": 0, "ex": 1} {
		if domains != "" {
			c.Domains = []string{domains}
		}
		w := named(c, []string{"a=a"}, []string{"a.ex"}, nil)
		w.Calico.Binding = Binding{Revision: 1}
		if p := MakePlan(w, c); len(p.Steps) != want {
			t.Errorf("with domains %q: got\n%s", c.Domains, p)
		}
		c.Domains = nil
	}
}

// What is left of many machines that somebody removed long ago says nothing about whether this is the right cluster, as long as there are
// Calico Nodes that do.
func TestLeftoversDoNotShutTheOverlapGate(t *testing.T) {
	t.Parallel()
	c := DefaultConfig()
	calico, kubernetes := []string{"z=z"}, []string{}
	for i := range 10 {
		calico, kubernetes = append(calico, fmt.Sprintf("a%d=a%d", i, i)), append(kubernetes, fmt.Sprintf("a%d", i))
	}
	strays := func(w World) World {
		for i := range 11 {
			w.Calico.Nodes = append(w.Calico.Nodes, CalicoNode{Name: fmt.Sprintf("stray%d", i), Implied: true})
		}
		return w
	}
	first := MakePlan(strays(named(c, calico, kubernetes, []string{"z"})), c)
	w := strays(named(c, calico, kubernetes, []string{"z"}))
	w.Memory = first.Memory
	if p := MakePlan(w, c); removedHosts(p) != "z" {
		t.Errorf("with strays alongside it z is not removed:\n%s", p)
	}
	alone := strays(World{Now: start, Kubernetes: w.Kubernetes, Calico: Calico{Ready: true, Binding: Binding{ClusterUID: "u"}}})
	if p := MakePlan(alone, c); len(p.Refusals) != 1 || p.Refusals[0].Gate != GateOverlap {
		t.Errorf("with nothing but strays:\n%s", p)
	}
}
