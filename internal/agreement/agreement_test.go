// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
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
}

// repairs is the next step of what the operator of route reflectors repairs.
const repairs = " > calico-route-reflector-operator repairs it if it works: kubectl mooring doctor controllers"

func now() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// before is that long before now.
func before(d time.Duration) time.Time { return now().Add(-d) }

func node(name string, id int) agreement.Node {
	return agreement.Node{
		Name: name, ProviderID: fmt.Sprintf("digitalocean://%d", id), Created: before(72 * time.Hour), Ready: "True", ReadySince: before(71 * time.Hour),
		Address: fmt.Sprintf("10.0.0.%d", id),
	}
}

func droplet(node string, id int) agreement.Droplet {
	return agreement.Droplet{Verdict: instance.Verdict{Node: node, Droplet: id, Existence: instance.Exists}}
}

// healthy is three machines, of which the first is a reflector.
func healthy() agreement.World {
	w := agreement.World{Now: now()}
	for i := 1; i <= 3; i++ {
		n := node(fmt.Sprintf("n%d", i), i)
		if i == 1 {
			n.Reflector, n.ClusterID = "main", "244.0.0.1"
		}
		w.Nodes, w.Cloud.Droplets = append(w.Nodes, n), append(w.Cloud.Droplets, droplet(n.Name, i))
	}
	w.Calico = agreement.Calico{OnNodes: true, Nodes: []agreement.CalicoNode{{Name: "n1", Kubernetes: "n1", Host: true}}}
	w.Reflectors = agreement.Reflectors{
		Topologies: []string{"main"}, Reflectors: []agreement.Reflector{{Topology: "main", Node: "n1", ClusterID: "244.0.0.1", Role: "Reflector"}},
	}
	return w
}

// etcd is the same machines with Calico's etcdv3 datastore, where the first is known by another name.
func etcd() agreement.World {
	w := healthy()
	for i := range w.Nodes {
		w.Nodes[i].Address, w.Nodes[i].Reflector, w.Nodes[i].ClusterID = "", "", ""
	}
	w.Calico = agreement.Calico{Nodes: []agreement.CalicoNode{{Name: "n1.example", Kubernetes: "n1"}, {Name: "n2", Kubernetes: "n2"}, {Name: "n3"}}}
	w.Reflectors.Reflectors[0].Node = "n1.example"
	return w
}

// found is one machine's verdict, and its findings with their verdicts.
func found(w agreement.World, machine string) string {
	for _, r := range agreement.Rows(w) {
		if r.Machine != machine {
			continue
		}
		text := string(r.Verdict)
		for _, f := range r.Findings {
			text += "\n" + string(f.State) + ": " + f.What
			if f.Since != nil {
				text += " @" + now().Sub(*f.Since).String()
			}
			if f.Next != "" {
				text += " > " + f.Next
			}
		}
		return text
	}
	return ""
}

// What can be wrong with one machine, word for word, and with since when.
func TestDisagreements(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		base    func() agreement.World
		change  func(w *agreement.World)
		machine string
		want    string
	}{
		"all well":    {healthy, func(*agreement.World) {}, "n1", "agree"},
		"all well, 2": {etcd, func(*agreement.World) {}, "n1", "agree"},
		"a droplet that is gone": {healthy, func(w *agreement.World) {
			w.Cloud.Droplets[1].Existence = instance.Gone
			w.Nodes[1].Ready, w.Nodes[1].ReadySince = "Unknown", before(12*time.Minute)
		}, "n2", "disagree\ndisagree: droplet 2 is gone, and its Node still exists @12m0s > check whether digitalocean-cloud-controller-manager runs, which deletes such Nodes: kubectl mooring status"},
		"gone while Ready": {healthy, func(w *agreement.World) { w.Cloud.Droplets[1].Existence = instance.Gone }, "n2",
			"disagree\ndisagree: droplet 2 is gone, and its Node still exists > wait a minute: its Node becomes NotReady, and is deleted then; if it stays Ready, another machine reports under its name"},
		"gone a minute ago": {healthy, func(w *agreement.World) {
			w.Cloud.Droplets[1].Existence = instance.Gone
			w.Nodes[1].Ready, w.Nodes[1].ReadySince = "Unknown", before(time.Minute)
		}, "n2", "settling\nsettling: droplet 2 is gone, and its Node still exists @1m0s > the cloud controller manager deletes the Node when that is proven"},
		"gone, drained and still Ready": {healthy, func(w *agreement.World) {
			w.Cloud.Droplets[1].Existence, w.Nodes[1].Leaving = instance.Gone, true
		}, "n2", "settling\nsettling: droplet 2 is gone, and its Node still exists > the cloud controller manager deletes the Node when that is proven"},
		"NotReady": {healthy, func(w *agreement.World) { w.Nodes[1].Ready, w.Nodes[1].ReadySince = "False", before(time.Minute) }, "n2",
			"down\ndown: the Node is NotReady @1m0s > see the Node's condition Ready: kubectl describe node n2"},
		"silent": {healthy, func(w *agreement.World) { w.Nodes[1].Ready, w.Nodes[1].ReadySince = "Unknown", before(time.Minute) }, "n2",
			"down\ndown: the Node is NotReady: its kubelet no longer reports @1m0s > check whether the machine runs and reaches the API server"},
		"never reported": {healthy, func(w *agreement.World) { w.Nodes[1].Ready = "" }, "n2",
			"down\ndown: no kubelet has reported the status of the Node @72h0m0s > check whether its kubelet runs"},
		"NotReady, and nobody asked the cloud": {healthy, func(w *agreement.World) {
			w.Cloud, w.Nodes[1].Ready, w.Nodes[1].ReadySince = agreement.Cloud{Side: finding.Side{NotAsked: "x"}}, "False", time.Time{}
		}, "n2", "down\ndown: the Node is NotReady > see the Node's condition Ready: kubectl describe node n2"},
		"being deleted": {healthy, func(w *agreement.World) { w.Nodes[1].Deleting, w.Nodes[1].Ready = true, "False" }, "n2",
			"settling\nsettling: the Node is being deleted > it is removed when its finalizers are done"},
		"nothing but Kubernetes": {healthy, func(w *agreement.World) {
			w.Cloud, w.Calico = agreement.Cloud{Side: finding.Side{NotAsked: "x"}}, agreement.Calico{Side: finding.Side{NotAsked: "x"}}
		}, "n2", "one-side"},
		"a droplet nobody knows of": {healthy, func(w *agreement.World) {
			w.Cloud.Droplets[1].Existence, w.Cloud.Droplets[1].Message = instance.Unknown, "it was not queried for by ID"
		}, "n2", "unknown\nunknown: it was not queried for by ID > run this again in a minute, with a token of the cluster's account"},
		"a Node without a verdict": {healthy, func(w *agreement.World) { w.Cloud.Droplets = w.Cloud.Droplets[:1] }, "n2",
			"unknown\nunknown: its droplet is unknown > run this again in a minute, with a token of the cluster's account"},
		"switched off and Ready": {healthy, func(w *agreement.World) { w.Cloud.Droplets[1].Off = true }, "n2",
			"down\ndown: droplet 2 is switched off > its Node becomes NotReady within a minute; switch the droplet on, or delete it"},
		"switched off": {healthy, func(w *agreement.World) { w.Cloud.Droplets[1].Off, w.Nodes[1].Ready = true, "Unknown" }, "n2",
			"down\ndown: droplet 2 is switched off @71h0m0s > switch the droplet on, or delete it: its Node is then deleted"},
		"a Node that waits": {healthy, func(w *agreement.World) { w.Nodes[1].Uninitialized = true }, "n2",
			"disagree\ndisagree: the Node waits for its cloud controller (taint uninitialized) @72h0m0s > check whether digitalocean-cloud-controller-manager runs: kubectl mooring status; and its Events: kubectl describe node n2"},
		"a new Node": {healthy, func(w *agreement.World) {
			w.Nodes[1].Uninitialized, w.Nodes[1].Address, w.Nodes[1].Created = true, "", before(agreement.SettleTime-1)
		}, "n2", "settling\nsettling: the Node waits for its cloud controller (taint uninitialized) @1m59.999999999s > the Node has just joined\n" +
			"settling: calico-node has not written its address on this Node, as it has on others @1m59.999999999s > the Node has just joined"},
		"a new Node that is complete": {healthy, func(w *agreement.World) { w.Nodes[1].Created = before(time.Second) }, "n2", "agree"},
		"a new Node that is silent": {healthy, func(w *agreement.World) { w.Nodes[1].Created, w.Nodes[1].Ready = before(time.Minute), "Unknown" }, "n2",
			"down\ndown: the Node is NotReady: its kubelet no longer reports @71h0m0s > check whether the machine runs and reaches the API server"},
		"a new Node that is not Ready": {healthy, func(w *agreement.World) { w.Nodes[1].Created, w.Nodes[1].Ready = before(time.Second), "False" }, "n2",
			"settling\nsettling: the Node has just joined and is not Ready yet @1s > its kubelet reports Ready when the network is available"},
		"one ID twice": {healthy, func(w *agreement.World) {
			w.Nodes[1].ProviderID, w.Nodes[1].Created = w.Nodes[2].ProviderID, before(time.Hour)
		}, "n3", "disagree\ndisagree: it has the provider ID of Node n2 as well @1h0m0s"},
		"no IDs at all": {healthy, func(w *agreement.World) {
			w.Cloud = agreement.Cloud{Side: finding.Side{NotAsked: "x"}}
			for i := range w.Nodes {
				w.Nodes[i].ProviderID = ""
			}
		}, "n3", "agree"},
		"no address of Calico's": {healthy, func(w *agreement.World) { w.Nodes[1].Address = "" }, "n2",
			"disagree\ndisagree: calico-node has not written its address on this Node, as it has on others @72h0m0s > check whether calico-node runs there"},
		"nobody has one": {healthy, func(w *agreement.World) {
			for i := range w.Nodes {
				w.Nodes[i].Address = ""
			}
		}, "n2", "agree"},
		"addresses of no Node": {healthy, func(w *agreement.World) {
			w.Calico.Nodes = append(w.Calico.Nodes, agreement.CalicoNode{Name: "old", Kubernetes: "old", Host: true})
		}, "old", "disagree\ndisagree: Calico holds addresses for a host that is not a Kubernetes Node > a calico-node-sync that runs removes it: kubectl mooring status"},
		"a Calico Node of no Node": {etcd, func(w *agreement.World) {
			w.Calico.Nodes = append(w.Calico.Nodes, agreement.CalicoNode{Name: "old.example", Kubernetes: "old"})
		}, "old", "disagree\ndisagree: there is a Calico Node and no Kubernetes Node > a calico-node-sync that runs removes it: kubectl mooring status"},
		"one that calico-node-sync removes": {etcd, func(w *agreement.World) {
			w.Calico.Nodes = append(w.Calico.Nodes, agreement.CalicoNode{Name: "old.example", Kubernetes: "old"})
			w.CleanUps = []agreement.CleanUp{{Machine: "old", Pending: true, Message: "grace period"}}
		}, "old", "settling\nsettling: there is a Calico Node and no Kubernetes Node > calico-node-sync removes it: grace period"},
		"one that it leaves": {etcd, func(w *agreement.World) {
			w.Calico.Nodes = append(w.Calico.Nodes, agreement.CalicoNode{Name: "old.example", Kubernetes: "old"})
			w.CleanUps = []agreement.CleanUp{{Machine: "old", Message: "mass guard"}}
		}, "old", "disagree\ndisagree: there is a Calico Node and no Kubernetes Node > calico-node-sync keeps it: mass guard"},
		"a host that never was a Node": {etcd, func(w *agreement.World) { w.Calico.Nodes = append(w.Calico.Nodes, agreement.CalicoNode{Name: "metal"}) }, "metal", "agree"},
		"no Calico Node":               {etcd, func(w *agreement.World) { w.Calico.Nodes = w.Calico.Nodes[:2] }, "n3", "disagree\ndisagree: Calico has no Calico Node for this Node @72h0m0s > check whether calico-node runs there"},
		"only addresses": {etcd, func(w *agreement.World) { w.Calico.Nodes[2].Host = true }, "n3",
			"disagree\ndisagree: Calico holds addresses for this Node, and has no Calico Node for it"},
		"two Calico Nodes": {etcd, func(w *agreement.World) {
			w.Calico.Nodes = append(w.Calico.Nodes, agreement.CalicoNode{Name: "a", Kubernetes: "n2"})
		}, "n2", "disagree\ndisagree: 2 Calico Nodes name this Node: a, n2"},
		"one that cannot be parsed": {etcd, func(w *agreement.World) { w.Calico.Nodes, w.Calico.Unreadable = w.Calico.Nodes[:2], []string{"zzz"} }, "n3",
			"unknown\nunknown: its Calico Node may be one of those that cannot be parsed: zzz"},
		"the one itself": {etcd, func(w *agreement.World) { w.Calico.Unreadable = []string{"zzz"} }, "zzz", "unknown\nunknown: Calico Node zzz cannot be parsed"},
		"a reflector without its label": {healthy, func(w *agreement.World) { w.Nodes[0].Reflector = "" }, "n1",
			"disagree\ndisagree: topology main lists it as a reflector, and the Node does not have its label" + repairs},
		"one that joins": {healthy, func(w *agreement.World) { w.Nodes[0].Reflector, w.Reflectors.Reflectors[0].Role = "", "Joining" }, "n1",
			"settling\nsettling: topology main changes its role: Joining > calico-route-reflector-operator completes it"},
		"another cluster ID": {healthy, func(w *agreement.World) { w.Nodes[0].ClusterID = "" }, "n1",
			"disagree\ndisagree: topology main lists it with cluster ID 244.0.0.1, and the Node has none" + repairs},
		"a label of no topology": {healthy, func(w *agreement.World) { w.Nodes[1].Reflector = "old" }, "n2",
			"disagree\ndisagree: its label names it a reflector of topology old, which does not exist"},
		"a label that nobody lists": {healthy, func(w *agreement.World) { w.Nodes[1].Reflector = "main" }, "n2",
			"disagree\ndisagree: its label names it a reflector of topology main, which does not list it"},
		"a reflector of no Node": {healthy, func(w *agreement.World) { w.Reflectors.Reflectors[0].Node = "old" }, "old",
			"disagree\ndisagree: topology main lists it as a reflector and there is no Node"},
		"the same with etcdv3": {etcd, func(w *agreement.World) { w.Reflectors.Reflectors[0].Node = "old" }, "old",
			"disagree\ndisagree: topology main lists it as a reflector and there is no Node"},
		"a reflector by a name that nobody can look up": {etcd, func(w *agreement.World) {
			w.Calico = agreement.Calico{Side: finding.Side{Problem: "timeout"}}
		}, "n1.example", "unknown\nunknown: topology main lists it as a reflector, by a name of Calico's that could not be looked up"},
		"a deletion that hangs": {healthy, func(w *agreement.World) { w.Nodes[1].Deleting, w.Nodes[1].DeletedAt = true, before(time.Hour) }, "n2",
			"disagree\ndisagree: the deletion of the Node is not done @1h0m0s > see which finalizers hold it: kubectl get node n2 -o jsonpath='{.metadata.finalizers}'"},
		"no cloud": {healthy, func(w *agreement.World) { w.Cloud = agreement.Cloud{Side: finding.Side{Problem: "401"}} }, "n1",
			"unknown\nunknown: the cloud could not be read: 401 > " + agreement.CloudNext},
		"no Calico": {healthy, func(w *agreement.World) { w.Calico.Side.Problem = "timeout" }, "n1", "unknown\nunknown: Calico's datastore could not be read: timeout"},
		"no topologies": {healthy, func(w *agreement.World) {
			w.Reflectors = agreement.Reflectors{Side: finding.Side{Problem: "forbidden"}}
		}, "n1",
			"unknown\nunknown: the RouteReflectorTopologies could not be read: forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := tt.base()
			tt.change(&w)
			if got := found(w, tt.machine); got != tt.want {
				t.Errorf("%s:\n%s\nwant\n%s", tt.machine, got, tt.want)
			}
		})
	}
}

// mixed is a cluster with something of everything.
func mixed() agreement.World {
	w := healthy()
	for i := 4; i <= 7; i++ {
		w.Nodes, w.Cloud.Droplets = append(w.Nodes, node(fmt.Sprintf("worker-pool-%d", i), i)), append(w.Cloud.Droplets, droplet(fmt.Sprintf("worker-pool-%d", i), i))
	}
	w.Cloud.Droplets[3].Existence, w.Nodes[3].Ready, w.Nodes[3].ReadySince = instance.Gone, "Unknown", before(12*time.Minute)
	w.Cloud.Droplets[4].Existence, w.Cloud.Droplets[4].Message = instance.Unknown, "droplet 5 is not in the list, and reading it failed: 500 Internal Server Error from DigitalOcean"
	w.Nodes[5].Address, w.Nodes[5].Created, w.Nodes[5].Ready = "", before(10*24*time.Hour), "False"
	w.Nodes[6].Created, w.Nodes[6].Address = before(time.Minute), ""
	w.Nodes[4].Deleting = true
	w.Calico.Nodes = append(w.Calico.Nodes, agreement.CalicoNode{Name: "worker-pool-3", Kubernetes: "worker-pool-3", Host: true})
	w.Reflectors.Reflectors = append(w.Reflectors.Reflectors, agreement.Reflector{Topology: "main", Node: "n2", Group: "2", Role: "Joining"})
	return w
}

// What a person sees, at both widths.
func TestText(t *testing.T) {
	t.Parallel()
	blind := etcd()
	blind.Calico = agreement.Calico{Side: finding.Side{Problem: "dialing https://10.0.0.1:2379: connection refused, and that is a long sentence"}}
	blind.Cloud = agreement.Cloud{Side: finding.Side{NotAsked: "there is no token"}}
	for name, w := range map[string]agreement.World{"healthy": healthy(), "mixed": mixed(), "etcd": etcd(), "blind": blind, "empty": {}} {
		rows := agreement.Rows(w)
		for _, width := range []int{80, 200} {
			text := agreement.Text(rows, now(), width, finding.Plain)
			golden(t, fmt.Sprintf("%s-%d.txt", name, width), text)
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%s: a line of %d columns at %d: %s", name, n, width, line)
				}
			}
		}
		text := must.Get(json.MarshalIndent(rows, "", "  ")).Or(t)
		if name == "mixed" {
			golden(t, name+".json", string(text)+"\n")
		}
		for _, row := range rows {
			if len(row.Wide(now())) != len(agreement.Columns()) {
				t.Errorf("%q has not all columns", row.Wide(now()))
			}
		}
	}
	if got, want := agreement.Rows(mixed())[3].Wide(now()), []string{"worker-pool-3", "-", "-", "addresses", "-", "disagree", "-", "", "Calico holds addresses for a host that is not a Kubernetes Node"}; !slices.Equal(got, want) {
		t.Errorf("wide: %q", got)
	}
	painted := agreement.Text(agreement.Rows(mixed()), now(), 0, func(text string, well bool) string { return fmt.Sprintf("<%s %t>", text, well) })
	if strings.Count(painted, "<agree true>") != 2 || strings.Count(painted, "<disagree false>") != 2 || strings.Count(painted, "<unknown false>") != 1 ||
		strings.Count(painted, "<settling true>") != 2 || strings.Count(painted, "<down false>") != 1 {
		t.Errorf("painted:\n%s", painted)
	}
}

// Above the bound those that agree are counted, and all others are shown.
func TestManyThatAgreeAreFolded(t *testing.T) {
	t.Parallel()
	w := healthy()
	for i := 4; i <= agreement.FoldAbove+1; i++ {
		w.Nodes, w.Cloud.Droplets = append(w.Nodes, node(fmt.Sprintf("n%d", i), i)), append(w.Cloud.Droplets, droplet(fmt.Sprintf("n%d", i), i))
	}
	if got, want := agreement.Text(agreement.Rows(w), now(), 0, finding.Plain), "51 machines: 51 agree. 51 that agree are not shown; -o wide shows all.\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w.Nodes[9].Ready = "False"
	got := agreement.Text(agreement.Rows(w), now(), 0, finding.Plain)
	if strings.Count(got, "\nn") != 1 || !strings.Contains(got, "\nn10 ") || !strings.HasSuffix(got, "\n51 machines: 1 down, 50 agree. 50 that agree are not shown; -o wide shows all.\n") {
		t.Errorf("%s", got)
	}
}

func worlds() *rapid.Generator[agreement.World] {
	return rapid.Custom(func(t *rapid.T) agreement.World {
		names := []string{"a", "b", "c", "d", "e"}
		name := rapid.SampledFrom(names)
		side := rapid.SampledFrom([]finding.Side{{}, {}, {NotAsked: "x"}, {Problem: "y"}})
		w := agreement.World{Now: now(), Cloud: agreement.Cloud{Side: side.Draw(t, "cloud")}, Calico: agreement.Calico{Side: side.Draw(t, "calico")}}
		w.Reflectors.Side = side.Draw(t, "reflectors")
		w.Calico.OnNodes = rapid.Bool().Draw(t, "kubernetes")
		for _, n := range rapid.SliceOfDistinct(name, rapid.ID).Draw(t, "nodes") {
			made := node(n, rapid.IntRange(1, 4).Draw(t, "id"))
			made.Ready = rapid.SampledFrom([]string{"True", "False", "Unknown"}).Draw(t, "ready")
			made.Created = before(time.Duration(rapid.IntRange(0, 5).Draw(t, "age")) * time.Minute)
			made.Reflector = rapid.SampledFrom([]string{"", "main", "old"}).Draw(t, "label")
			made.Uninitialized = rapid.Bool().Draw(t, "taint")
			made.Address = rapid.SampledFrom([]string{"", "10.0.0.1"}).Draw(t, "address")
			w.Nodes = append(w.Nodes, made)
			w.Cloud.Droplets = append(w.Cloud.Droplets, agreement.Droplet{Off: rapid.Bool().Draw(t, "off"), Verdict: instance.Verdict{
				Node: n, Droplet: rapid.IntRange(1, 4).Draw(t, "droplet"),
				Existence: rapid.SampledFrom([]instance.Existence{instance.Exists, instance.Gone, instance.Unknown}).Draw(t, "existence"),
			}})
		}
		// A side that was not read may have part of what there is all the same.
		for _, n := range rapid.SliceOfNDistinct(name, 0, 4, rapid.ID).Draw(t, "calico nodes") {
			w.Calico.Nodes = append(w.Calico.Nodes, agreement.CalicoNode{
				Name: n, Kubernetes: rapid.SampledFrom(append(names, "")).Draw(t, "ref"), Host: rapid.Bool().Draw(t, "host"),
			})
		}
		w.Calico.Unreadable = rapid.SliceOfNDistinct(name, 0, 2, rapid.ID).Draw(t, "unreadable")
		w.Reflectors.Topologies = []string{"main"}
		for _, n := range rapid.SliceOfNDistinct(name, 0, 3, rapid.ID).Draw(t, "listed") {
			w.Reflectors.Reflectors = append(w.Reflectors.Reflectors, agreement.Reflector{Topology: "main", Node: n, Role: "Reflector", ClusterID: "244.0.0.1"})
		}
		return w
	})
}

// The order of what was read does not matter.
func TestRowsAreOrderBlind(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := worlds().Draw(t, "world")
		want := agreement.Rows(w)
		w.Nodes = rapid.Permutation(w.Nodes).Draw(t, "nodes")
		w.Cloud.Droplets = rapid.Permutation(w.Cloud.Droplets).Draw(t, "droplets")
		w.Calico.Nodes = rapid.Permutation(w.Calico.Nodes).Draw(t, "calico")
		w.Calico.Unreadable = rapid.Permutation(w.Calico.Unreadable).Draw(t, "unreadable")
		w.Reflectors.Reflectors = rapid.Permutation(w.Reflectors.Reflectors).Draw(t, "reflectors")
		if diff := cmp.Diff(want, agreement.Rows(w)); diff != "" {
			t.Fatalf("the order matters:\n%s", diff)
		}
	})
}

// A side that was not read is not evidence: nothing is said to be gone or missing there, and no verdict is better than what is known. Each
// Node has one row.
func TestNoEvidenceFromSidesThatWereNotRead(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := worlds().Draw(t, "world")
		rows := agreement.Rows(w)
		gone := map[string]bool{}
		for _, d := range w.Cloud.Droplets {
			gone[d.Node] = d.Existence == instance.Gone && w.Cloud.Side == (finding.Side{})
		}
		seen := map[string]int{}
		for _, r := range rows {
			seen[r.Machine]++
			text := ""
			for _, f := range r.Findings {
				if f.State == finding.Disagree || f.State == finding.Down {
					text += f.What
				}
			}
			if strings.Contains(r.Droplet+text, "gone") && !gone[r.Machine] {
				t.Fatalf("gone without evidence: %+v", r)
			}
			if w.Calico.Side != (finding.Side{}) && (strings.Contains(text, "Calico") || strings.Contains(text, "calico")) {
				t.Fatalf("Calico was not read: %+v", r)
			}
			if w.Reflectors.Side != (finding.Side{}) && strings.Contains(text, "topology") {
				t.Fatalf("no topology was read: %+v", r)
			}
			if (w.Cloud.Problem != "" || w.Calico.Problem != "" || w.Reflectors.Problem != "") && r.HasNode && r.Verdict == finding.Agree {
				t.Fatalf("a side could not be read: %+v", r)
			}
		}
		for _, n := range w.Nodes {
			if seen[n.Name] != 1 {
				t.Fatalf("Node %s has %d rows", n.Name, seen[n.Name])
			}
		}
		// Less evidence never makes a verdict worse to disagree: without the cloud's word, no row disagrees that did not, unless it was down.
		blind := w
		blind.Cloud = agreement.Cloud{Side: finding.Side{Problem: "y"}}
		for i, r := range agreement.Rows(blind) {
			if r.Verdict == finding.Disagree && rows[i].Verdict.Rank() > finding.Disagree.Rank() {
				t.Fatalf("without the cloud %+v, with it %+v", r, rows[i])
			}
		}
	})
}
