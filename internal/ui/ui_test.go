// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/topology"
	"github.com/mooring-dev/mooring/internal/ui"
	"github.com/mooring-dev/mooring/internal/volumes"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func at(minutes int) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(-time.Duration(minutes) * time.Minute)
}

// small has one of each thing that is shown.
func small() ui.World {
	since := at(7)
	return ui.World{
		Cluster: "lab at https://127.0.0.1:6443", ReadAt: at(0), Notes: []string{"DigitalOcean not queried: there is no token"},
		Zones: map[string]string{"w1": "a", "w2": "a", "w3": "b"}, Candidates: 4, Excluded: []ui.Excluded{{"w3", "is being deleted"}, {"w2", "has a label"}},
		Machines: []agreement.Row{
			{Machine: "w3", HasNode: true, Verdict: finding.Unknown, Findings: []finding.Verdict{{State: finding.Unknown, What: "the cloud could not be read"}}},
			{Machine: "w1", HasNode: true, Verdict: finding.Agree, Droplet: "droplet 1", Node: "Ready", CalicoNode: "w1", Reflector: "main"},
			{Machine: "w4", HasNode: true, Verdict: finding.Down, Findings: []finding.Verdict{{State: finding.Down, What: "the Node is NotReady"}}},
			{Machine: "gone", Verdict: finding.Disagree, Findings: []finding.Verdict{{State: finding.Disagree, What: "there is no Node"}}},
			{Machine: "w2", HasNode: true, Verdict: finding.Disagree, Findings: []finding.Verdict{{State: finding.Disagree, What: "its droplet is gone", Since: &since, Next: "wait"}, {State: finding.Settling, What: "and more"}}},
		},
		Topologies: []topology.Map{
			{Name: "other", WaitingFor: "a Node"},
			{Name: "main", Phase: "Ready", Clients: 1, Groups: []topology.Group{{Reflectors: []topology.Reflector{
				{Node: "w1", Zone: "a", Role: "Reflector", Expected: 1, Established: 1}, {Node: "w9", Zone: "b", Role: "Reflector", Missing: true},
			}}}},
		},
		Waits: []finding.Verdict{
			{
				What: "3 machines are held back by the gate MassGuard of calico-node-sync: w7, w8, w9", Why: "3 of 9 machines are gone at once", State: finding.Held, ObservedAt: at(40),
				Stale: "it has not saved its state since; a confirmation has an effect only if calico-node-sync runs", Answer: "it has expired", Next: "kubectl mooring confirm nodes 3f2a9c01d4be",
			},
			{What: "RouteReflectorTopology main waits: NodesVanished", Why: "4 Nodes went all at once", State: finding.Settling, Answer: "confirmed; calico-route-reflector-operator has yet to act on it"},
		},
		WaitProblem: "reading ConfigMap b/state: forbidden", CheckedAt: at(4),
		Findings: []finding.Finding{
			{Check: "replicas", Severity: finding.Problem, Where: "Deployment x/y", What: "Deployment x/y has no ready pod of 1", Why: "it does nothing", Do: "see why"},
			{Check: "rbac", Severity: finding.Warning, Unread: true, What: "not read: rights: forbidden", Why: "problems there are not found", Do: "ask for the right"},
			{Check: "certificates", Severity: finding.Note, What: "not read: 3 Secrets"},
			{Check: "leader", Severity: finding.OK, What: "a leads Deployment x/z"},
		},
		Components: []finding.Component{
			{Name: "calico-node-sync", Namespace: "mooring-system", Workload: "deployment/calico-node-sync", Version: "v0.1.0", Ready: 2, Wanted: 2, Leader: "a", Renewed: new(at(0))},
			{Name: "etcd-storage-operator", Namespace: "mooring-system", Workload: "deployment/etcd-storage-operator", Version: "v0.1.0", Ready: 0, Wanted: 1, Problem: "no pod of 1 pod is ready"},
		},
		Balancers: []ui.Balancer{
			balancer("shop", "front", at(120), []string{"203.0.113.2", "2001:db8::2"}, func(b *ui.Balancer) {
				b.ID, b.Spec.Ports = "lb-1", []corev1.ServicePort{{Protocol: "TCP", Port: 443, NodePort: 30443}, {Port: 80}}
			}),
			balancer("shop", "back", at(7), nil, func(b *ui.Balancer) {
				b.Spec.LoadBalancerClass, b.Spec.ExternalTrafficPolicy = new("example.com/other"), corev1.ServiceExternalTrafficPolicyLocal
			}, judged(finding.Disagree, "status.loadBalancer is empty", at(7))),
			balancer("a", "going", time.Time{}, []string{"203.0.113.3"}, judged(finding.Settling, "it is being deleted", at(0))),
		},
		Volumes: someVolumes(),
		Tenants: []ui.Tenant{
			tenant("quiet", metav1.Condition{Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(60))}, using(1<<20, 4<<20, 1, 0)),
			tenant("full", metav1.Condition{Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(at(60))}, using(900, 1000, 0, 0)),
			tenant("ill", metav1.Condition{Status: metav1.ConditionFalse, Reason: "Conflict", Message: "another has its prefix", LastTransitionTime: metav1.NewTime(at(5))}),
			tenant("new", metav1.Condition{}),
			tenant("going", metav1.Condition{Status: metav1.ConditionTrue}, func(t *ui.Tenant) { t.DeletionTimestamp = new(metav1.NewTime(at(0))) }),
		},
		Entries: []finding.Event{
			{At: at(9), Source: "calico-node-sync", About: "gone", Reason: "Journaled", Text: "5 steps, because its Node is gone", Count: 1},
			{At: at(2), Source: "etcd-storage-operator", About: "EtcdStorage ill", Reason: "Conflict", Text: "another has its prefix", Count: 4, Warning: true},
			{At: at(1), Source: "service-controller", About: "Service shop/front", Reason: "X", Text: "run: kubectl delete node w1", Count: 1, Warning: true, Unverified: true},
		},
	}
}

// balancer is a Service with those addresses.
func balancer(namespace, name string, created time.Time, addresses []string, changes ...func(*ui.Balancer)) (b ui.Balancer) {
	b.Namespace, b.Name, b.CreationTimestamp = namespace, name, metav1.NewTime(created)
	for _, a := range addresses {
		b.Status.LoadBalancer.Ingress = append(b.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	b.Verdict.State = finding.Agree
	for _, change := range changes {
		change(&b)
	}
	return b
}

// tenant is an EtcdStorage with that condition Ready, without one if it has no status.
func tenant(name string, ready metav1.Condition, changes ...func(*ui.Tenant)) (t ui.Tenant) {
	if t.Name = name; ready.Status != "" {
		ready.Type = "Ready"
		t.Status.Conditions = []metav1.Condition{ready}
	}
	for _, change := range changes {
		change(&t)
	}
	return t
}

// using is what a tenant of three proxies stores, with its limits, 0 for none.
func using(bytes, mostBytes, keys, mostKeys int64) func(*ui.Tenant) {
	return func(t *ui.Tenant) {
		t.Status.Proxies, t.Status.Usage = "3/3", &v1alpha1.Usage{Bytes: *resource.NewQuantity(bytes, resource.BinarySI), Keys: keys}
		t.Spec.Quota = v1alpha1.Quota{Bytes: resource.NewQuantity(mostBytes, resource.BinarySI), Keys: &mostKeys}
	}
}

// Every sentence of the page, for each filter.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]ui.Filter{"all": {}, "attention": {Attention: true}, "words": {Text: " W1 rEaDy "}, "nothing": {Text: "no such thing"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := must.Get(json.MarshalIndent(ui.View(small(), filter, ""), "", " ")).Or(t)
			path := filepath.Join("testdata", name+".golden")
			if *update {
				must.Do(t, os.WriteFile(path, append(got, '\n'), 0o600))
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v (run the test with -update to write it)", err)
			}
			if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
				t.Errorf("%s differs (-want +got), rewrite it with -update if that is meant:\n%s", path, diff)
			}
		})
	}
}

// A filter by zone and by state, alone and with words.
func TestFilters(t *testing.T) {
	t.Parallel()
	w := small()
	w.Zones = map[string]string{"w1": "fra1-a", "w2": "fra1-a", "w3": "fra1-b"}
	for filter, want := range map[string]string{
		"zone:a": "w2 w1", "zone:FRA1-a": "w2 w1", "zone:fra1": "", "zone:b": "w3", "state:down": "w4", "State:notReady": "w4", "state:disagree": "w2 gone",
		"state:disagree zone:a": "w2", "zone:a state:agree w1": "w1", "zone:a w3": "", "zone:": "", "state:bad": "",
	} {
		var got []string
		for _, z := range ui.View(w, ui.Filter{Text: filter}, "").Machines.Zones {
			for _, m := range z.Machines {
				got = append(got, m.Name)
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s shows %q, want %q", filter, text, want)
		}
	}
	rows := func(filter string) (out []string) {
		for _, l := range ui.View(small(), ui.Filter{Text: filter}, "").Lists {
			out = append(out, fmt.Sprintf("%s %d", l.Key, len(l.Rows)))
		}
		return out
	}
	if diff := cmp.Diff([]string{"waits 0", "doctor 0", "components 0", "reflectors 1", "balancers 0", "volumes 1", "tenants 0", "journal 0"}, rows("zone:b")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"waits 1", "doctor 2", "components 1", "reflectors 1", "balancers 1", "volumes 3", "tenants 3", "journal 1"}, rows("state:bad")); diff != "" {
		t.Error(diff)
	}
}

// The health of the parts in a terminal, at both widths: what is down is never good, whatever else agrees.
func TestText(t *testing.T) {
	t.Parallel()
	for _, width := range []int{80, 120} {
		got := ui.Text(small(), width, finding.Plain)
		path := filepath.Join("testdata", fmt.Sprintf("status-%d.txt", width))
		if *update {
			must.Do(t, os.WriteFile(path, []byte(got), 0o600))
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v (run the test with -update to write it)", err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs (-want +got), rewrite it with -update if that is meant:\n%s", path, diff)
		}
		for line := range strings.Lines(got) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Errorf("a line of %d columns at %d: %s", n, width, line)
			}
		}
	}
}

// A part is bad while one thing in it is, and is not good before it was read.
func TestHealth(t *testing.T) {
	t.Parallel()
	row := func(v finding.State) agreement.Row {
		return agreement.Row{Machine: string(v), HasNode: true, Verdict: v}
	}
	for _, tt := range []struct {
		verdicts []finding.State
		want     ui.State
		attends  bool
	}{
		{nil, ui.Absent, false},
		{[]finding.State{finding.Agree}, ui.Good, false},
		{[]finding.State{finding.Agree, finding.Settling}, ui.Changing, false},
		{[]finding.State{finding.Agree, finding.OneSide}, ui.Unread, true},
		{[]finding.State{finding.Agree, finding.Unknown}, ui.Unread, true},
		{[]finding.State{finding.Unknown, finding.Disagree}, ui.Bad, true},
		{[]finding.State{finding.Agree, finding.Down}, ui.Bad, true},
	} {
		w := ui.World{CheckedAt: at(0)}
		for _, v := range tt.verdicts {
			w.Machines = append(w.Machines, row(v))
		}
		health := ui.View(w, ui.Filter{Text: "a filter changes nothing"}, "").Health
		at := slices.IndexFunc(health, func(x ui.Tile) bool { return x.Key == "machines" })
		if at < 0 || health[at].State != tt.want || ui.NeedsAttention(health) != tt.attends {
			t.Errorf("%v: %+v", tt.verdicts, health)
		}
	}
	unread := ui.View(ui.World{BalancerProblem: "forbidden", CheckedAt: at(0)}, ui.Filter{}, "").Health
	if unread[0] != (ui.Tile{Key: "balancers", Title: "Load balancers", State: ui.Unread, Text: "forbidden"}) {
		t.Errorf("%+v", unread)
	}
}

// What waits for a person and what the doctor finds need attention, and neither is green before somebody has looked.
func TestHealthOfWaitsAndFindings(t *testing.T) {
	t.Parallel()
	found := func(f ...finding.Finding) ui.World { return ui.World{CheckedAt: at(0), ReadAt: at(0), Findings: f} }
	old := found()
	old.CheckedAt = at(60)
	unread := finding.Finding{Severity: finding.Warning, Unread: true}
	without := func(b ...ui.Balancer) ui.World { return ui.World{ReadAt: at(0), Balancers: b} }
	for name, tt := range map[string]struct {
		world ui.World
		key   string
		want  string
	}{
		"the doctor has not run":    {ui.World{}, "doctor", "unread the doctor has not run"},
		"nothing found":             {found(finding.Finding{Severity: finding.OK}), "doctor", "good nothing found"},
		"a note":                    {found(finding.Finding{Severity: finding.Note}), "doctor", "good 1 note"},
		"a warning":                 {found(finding.Finding{Severity: finding.Warning}, unread), "doctor", "bad 1 warning, 1 not read"},
		"a check that did not run":  {found(unread), "doctor", "unread 1 not read"},
		"what nobody could look at": {found(finding.Finding{Severity: finding.Note, Unread: true}), "doctor", "absent 1 not looked at"},
		"nothing waits":             {ui.World{}, "waits", "good none"},
		"waits are not read":        {ui.World{WaitProblem: "forbidden"}, "waits", "unread forbidden"},
		"one waits":                 {ui.World{Waits: []finding.Verdict{{State: finding.Held, Next: "c"}, {State: finding.Settling}}, WaitProblem: "forbidden"}, "waits", "bad 1 confirmation awaited"},
		"one is not acted on yet":   {ui.World{Waits: []finding.Verdict{{State: finding.Settling}}}, "waits", "changing 1 confirmation not acted on yet"},
		"a balancer is being made": {without(
			balancer("", "", at(4), nil, judged(finding.Settling, "it is new", at(4))), balancer("", "", at(60), []string{"192.0.2.1"}),
		), "balancers", "changing 1 of 2 settling"},
		"a balancer was not made": {without(
			balancer("", "", at(4), nil), balancer("", "", at(6), nil, judged(finding.Disagree, "it is empty", at(6))),
		), "balancers", "bad 1 of 2 need attention"},
		"a Service that nobody judged": {without(ui.Balancer{}), "balancers", "bad 1 of 1 need attention"},
		"one confirmed, one unread":    {ui.World{Waits: []finding.Verdict{{State: finding.Settling}}, WaitProblem: "forbidden"}, "waits", "unread forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			health := ui.View(tt.world, ui.Filter{}, "").Health
			at := slices.IndexFunc(health, func(x ui.Tile) bool { return x.Key == tt.key })
			if got := string(health[at].State) + " " + health[at].Text; got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	if got := ui.Text(old, 80, finding.Plain); !strings.Contains(got, "nothing found (60m ago)") {
		t.Errorf("findings of an hour ago are shown as new:\n%s", got)
	}
}

// The sentences that a golden file does not have.
func TestSentences(t *testing.T) {
	t.Parallel()
	if got := ui.View(ui.World{}, ui.Filter{}, "listing Nodes: refused"); got.Machines.Summary != "There are no machines." || got.Stale != "listing Nodes: refused" {
		t.Errorf("of nothing: %q, %q", got.Machines.Summary, got.Stale)
	}
	well := ui.World{Machines: []agreement.Row{{Machine: "w1", Verdict: finding.Agree, HasNode: true}}, TopologiesAbsent: true, TenantsAbsent: true, JournalProblems: []string{"a", "b"}}
	if got := ui.View(well, ui.Filter{}, ""); got.Machines.Summary != "1 machine: 1 agree." {
		t.Errorf("of one that is well: %q", got.Machines.Summary)
	}
	got := ui.View(well, ui.Filter{Attention: true}, "")
	if got.Machines.Summary != "None of 1 machine needs attention." {
		t.Errorf("of none that needs attention: %q", got.Machines.Summary)
	}
	for i, want := range []string{"0 confirmations", "0 findings", "0 components", "the cluster has no kind RouteReflectorTopology", "0 load balancers", "0 volumes", "the cluster has no kind EtcdStorage", "0 steps"} {
		if got.Lists[i].Summary != want {
			t.Errorf("%s: %q, want %q", got.Lists[i].Key, got.Lists[i].Summary, want)
		}
	}
	if got.Lists[7].Problem != "a; b" {
		t.Errorf("problems of the journal: %q", got.Lists[7].Problem)
	}
}

// Above 200 machines those that are well are counted, and named when somebody looks for them.
func TestGrouped(t *testing.T) {
	t.Parallel()
	w := ui.World{Zones: map[string]string{}}
	for i := range 5000 {
		name := fmt.Sprintf("w%04d", i)
		r := agreement.Row{Machine: name, HasNode: true, Verdict: finding.Agree}
		if i%1000 == 7 {
			r.Verdict = finding.Disagree
		}
		w.Machines, w.Zones[name] = append(w.Machines, r), string(rune('a'+i%2))
		if i != 199 && i != 200 {
			continue
		}
		if got := ui.View(w, ui.Filter{}, "").Machines; got.Grouped != (i == 200) || got.Zones[0].Hidden > 0 != got.Grouped {
			t.Errorf("of %d machines: grouped %v, %d hidden", i+1, got.Grouped, got.Zones[0].Hidden)
		}
	}
	named := func(f ui.Filter) (names []string, hidden int) {
		for _, z := range ui.View(w, f, "").Machines.Zones {
			hidden += z.Hidden
			for _, m := range z.Machines {
				names = append(names, m.Name)
			}
		}
		return names, hidden
	}
	if names, hidden := named(ui.Filter{}); !slices.Equal(names, []string{"w0007", "w1007", "w2007", "w3007", "w4007"}) || hidden != 4995 {
		t.Errorf("all: %q and %d", names, hidden)
	}
	if names, hidden := named(ui.Filter{Text: "w49"}); len(names) != 100 || hidden != 0 {
		t.Errorf("found: %d and %d", len(names), hidden)
	}
	if names, hidden := named(ui.Filter{Text: "w4"}); len(names) != 200 || hidden != 800 {
		t.Errorf("too many found: %d and %d", len(names), hidden)
	}
}

// anything is any text, hostile ones among them.
func anything() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringN(0, 12, 40), rapid.SampledFrom([]string{
		"<script>alert(1)</script>", "\u202egnp.exe", "a\x00b", "line\nline", strings.Repeat("x", 5000), "\xff\xfe", "w1", "",
	}))
}

// worlds are Worlds with repeated machines, names and zones of any kind.
func worlds() *rapid.Generator[ui.World] {
	verdicts := []finding.State{finding.Agree, finding.Agree, finding.Disagree, finding.Agree, finding.Unknown}
	return rapid.Custom(func(t *rapid.T) ui.World {
		w := ui.World{Cluster: anything().Draw(t, "cluster"), Zones: map[string]string{}, Notes: rapid.SliceOfN(anything(), 0, 12).Draw(t, "notes"), CheckedAt: at(0)}
		zones, kinds := rapid.IntRange(1, 300).Draw(t, "zones"), rapid.IntRange(1, 9).Draw(t, "kinds")
		for i := range rapid.SampledFrom([]int{0, 1, 5, 200, 201, 320}).Draw(t, "machines") {
			name := fmt.Sprintf("m%d", i)
			r := agreement.Row{Machine: name, Verdict: verdicts[i/3*kinds%len(verdicts)], HasNode: i%7 != 6, Node: "Ready"}
			if r.Verdict == finding.Disagree {
				for range i%12 + 1 {
					r.Findings = append(r.Findings, finding.Verdict{State: finding.Disagree, What: "what"})
				}
			}
			w.Machines, w.Zones[name] = append(w.Machines, r), fmt.Sprintf("zone %d", i%zones)
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "hostile") {
			name := anything().Draw(t, "name") + fmt.Sprint(i)
			w.Machines = append(w.Machines, agreement.Row{Machine: name, HasNode: true, Droplet: anything().Draw(t, "droplet"), Verdict: finding.Unknown, Findings: []finding.Verdict{{State: finding.Unknown, What: anything().Draw(t, "unknown")}}})
			w.Zones[name] = anything().Draw(t, "zone")
		}
		for i := range rapid.SampledFrom([]int{0, 2, 201}).Draw(t, "things") {
			text := anything().Draw(t, "text")
			w.Volumes.Volumes = append(w.Volumes.Volumes, anyVolume(text, i))
			w.Volumes.Snapshots = append(w.Volumes.Snapshots, volumes.SnapshotRow{Name: text, ID: fmt.Sprint(i), Verdict: finding.Disagree})
			w.Volumes.NotRead = append(w.Volumes.NotRead, text)
			w.Balancers = append(w.Balancers, balancer(text, fmt.Sprint(i), time.Time{}, []string{text}))
			w.Tenants = append(w.Tenants, tenant(
				fmt.Sprint(i, text), metav1.Condition{Status: metav1.ConditionFalse, Message: text}, using(int64(i)-3, int64(i)%5, int64(i)-3, int64(i)%5)))
			w.Waits = append(w.Waits, finding.Verdict{What: text, On: text, Why: fmt.Sprint(i), Stale: text, Next: text, Answer: text})
			w.Findings = append(w.Findings, finding.Finding{Check: text, Severity: finding.Warning, What: text, Why: text, Do: text})
			w.Entries = append(w.Entries, finding.Event{At: at(i % 9), About: text, Text: fmt.Sprint(text, i), Count: int32(i % 3)})
		}
		return w
	})
}

// reversed is another order.
func reversed[T any](list []T) []T {
	out := slices.Clone(list)
	slices.Reverse(out)
	return out
}

// Whatever the cluster holds: the page is bounded, its texts are on one line and printable, the counts are right, nothing that disagrees hides behind
// what is well, and the order of lists changes nothing.
func TestAnyPage(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := worlds().Draw(t, "world")
		f := ui.Filter{Text: rapid.SampledFrom([]string{"", "m1", "zone 1", "x", "ready m"}).Draw(t, "text"), Attention: rapid.Bool().Draw(t, "attention")}
		page := ui.View(w, f, "")
		body := must.Get(json.Marshal(page)).Or(t)
		bounded(t, page, body)
		counted(t, w, f, page.Machines)
		bad := slices.ContainsFunc(page.Health, func(t ui.Tile) bool { return t.State == ui.Bad })
		if n := len(page.Wrong.First); n > 3 || bad && n == 0 || n == 0 && page.Wrong.More != "" {
			t.Errorf("something is bad: %v, and what is wrong is %+v", bad, page.Wrong)
		}
		again := w
		again.Machines, again.Balancers = reversed(w.Machines), reversed(w.Balancers)
		again.Waits, again.Volumes.Volumes, again.Volumes.Snapshots = reversed(w.Waits), reversed(w.Volumes.Volumes), reversed(w.Volumes.Snapshots)
		again.Tenants, again.Entries = reversed(w.Tenants), reversed(w.Entries)
		if diff := cmp.Diff(page, ui.View(again, f, ""), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
			t.Errorf("the order matters: %s", diff)
		}
	})
}

// mostBytes is how large a page may be.
const mostBytes = 1 << 20

func bounded(t *rapid.T, page ui.Page, body []byte) {
	if len(body) > mostBytes {
		t.Errorf("%d bytes", len(body))
	}
	tiles := 0
	for _, z := range page.Machines.Zones {
		tiles += len(z.Machines)
	}
	if tiles > ui.MostShown || len(page.Machines.Zones) > ui.MostZones {
		t.Errorf("%d tiles in %d zones", tiles, len(page.Machines.Zones))
	}
	for _, l := range page.Lists {
		if len(l.Rows) > ui.MostShown {
			t.Errorf("%s has %d rows", l.Key, len(l.Rows))
		}
		for _, r := range l.Rows {
			if len(r.Cells) != len(l.Columns) {
				t.Errorf("%s has %d columns, a row %d cells", l.Key, len(l.Columns), len(r.Cells))
			}
			for _, c := range r.Cells {
				for _, b := range c.Bars {
					if b.Percent < -1 || b.Percent > 100 {
						t.Errorf("a bar of %d %%", b.Percent)
					}
				}
			}
		}
	}
	var all any
	must.Do(t, json.Unmarshal(body, &all))
	printable(t, all)
}

// printable looks at every text of a page.
func printable(t *rapid.T, value any) {
	switch v := value.(type) {
	case string:
		if len([]rune(v)) > ui.MostRunes+1 || strings.ContainsFunc(v, func(r rune) bool { return !unicode.IsPrint(r) && r != unicode.ReplacementChar }) {
			t.Errorf("a text of %d bytes: %.80q", len(v), v)
		}
	case []any:
		for _, x := range v {
			printable(t, x)
		}
	case map[string]any:
		for _, x := range v {
			printable(t, x)
		}
	}
}

func counted(t *rapid.T, w ui.World, f ui.Filter, m ui.Machines) {
	if f.Text == "" && !f.Attention && m.Total != len(w.Machines) {
		t.Errorf("%d of %d machines are counted", m.Total, len(w.Machines))
	}
	sum := ui.Counts{ByVerdict: finding.Counts{}}
	named := map[finding.State]int{}
	for _, z := range m.Zones {
		sum.Total += z.Total
		for v, n := range z.ByVerdict {
			sum.ByVerdict[v] += n
		}
		if len(z.Machines)+z.Hidden != z.Total {
			t.Errorf("zone %q has %d machines, %d named, %d hidden", z.Name, z.Total, len(z.Machines), z.Hidden)
		}
		for _, x := range z.Machines {
			named[x.Verdict]++
			if f.Attention && !x.Verdict.NeedsAttention() {
				t.Errorf("%s is well", x.Name)
			}
		}
	}
	if m.More != "" {
		return // zones without a box hide what they have
	}
	if sum.Total != m.Total || !maps.Equal(sum.ByVerdict, m.ByVerdict) {
		t.Errorf("zones have %+v, all %+v", sum, m.Counts)
	}
	// The worst are named first, as long as there is room.
	room := ui.MostShown
	for _, v := range finding.States()[:finding.Agree.Rank()] {
		if want := min(m.ByVerdict[v], room); named[v] != want {
			t.Errorf("%d of %d that are %s are named", named[v], want, v)
		}
		room -= named[v]
	}
}

// A drawing that no browser should be given is not given.
func TestDrawingIsBounded(t *testing.T) {
	t.Parallel()
	m := topology.Map{Name: "main"}
	g := topology.Group{}
	for i := range 400 {
		g.Reflectors = append(g.Reflectors, topology.Reflector{Node: fmt.Sprint("r", i)})
		g.Zones = append(g.Zones, topology.Zone{Name: fmt.Sprint("z", i), Clients: []string{"c"}})
	}
	m.Groups = []topology.Group{g}
	w := ui.World{Topologies: []topology.Map{m}}
	page := ui.View(w, ui.Filter{}, "")
	if ui.SVG(w) != "" || page.Drawing.Version != "" || page.Drawing.Text != "The topologies are too large to draw: see kubectl mooring topology." {
		t.Errorf("drawn: %+v", page.Drawing)
	}
	w.Topologies[0].Groups[0].Zones = nil
	drawn := ui.View(w, ui.Filter{}, "").Drawing
	if drawn.Version == "" || ui.SVG(w) == "" || !strings.HasPrefix(drawn.Text, "Topology main: ") {
		t.Errorf("not drawn: %+v", drawn)
	}
	w.Topologies[0].Phase = "Ready"
	if ui.View(w, ui.Filter{}, "").Drawing.Version == drawn.Version {
		t.Error("a change has the same version")
	}
}

// A tile is not good by the rows that are well: a deletion that hangs, and a topology that its operator calls degraded, need
// attention.
func TestTilesThatAreNotGoodByTheirRowsAlone(t *testing.T) {
	t.Parallel()
	well := func() ui.World {
		return ui.World{
			ReadAt:    at(0),
			Machines:  []agreement.Row{{Machine: "w1", HasNode: true, Verdict: finding.Agree}},
			Balancers: []ui.Balancer{balancer("shop", "front", at(60), []string{"203.0.113.1"})},
			Topologies: []topology.Map{{Name: "main", Groups: []topology.Group{{
				Reflectors: []topology.Reflector{{Node: "w1", Role: "Reflector", Expected: 1, Established: 1}},
			}}}},
		}
	}
	state := func(w ui.World, key string) ui.State {
		for _, tile := range ui.View(w, ui.Filter{}, "").Health {
			if tile.Key == key {
				return tile.State
			}
		}
		return ""
	}
	if w := well(); state(w, "balancers") != ui.Good || state(w, "reflectors") != ui.Good {
		t.Errorf("%+v", ui.View(w, ui.Filter{}, "").Health)
	}
	for name, test := range map[string]struct {
		key    string
		change func(*ui.World)
		want   ui.State
	}{
		"a deletion that hangs": {"balancers", func(w *ui.World) {
			judged(finding.Disagree, "it is being deleted", at(60))(&w.Balancers[0])
		}, ui.Bad},
		"a deletion": {"balancers", func(w *ui.World) {
			judged(finding.Settling, "it is being deleted", at(1))(&w.Balancers[0])
		}, ui.Changing},
		"half read": {"balancers", func(w *ui.World) { w.BalancerProblem = "DigitalOcean: 403" }, ui.Unread},
		"degraded":  {"reflectors", func(w *ui.World) { w.Topologies[0].Troubles = []string{"Degraded is True"} }, ui.Bad},
	} {
		w := well()
		test.change(&w)
		if got := state(w, test.key); got != test.want {
			t.Errorf("%s: %s is %s, want %s", name, test.key, got, test.want)
		}
	}
}
