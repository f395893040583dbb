// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/topology"
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

func node(name, zone string, labels ...string) topology.Node {
	n := topology.Node{Name: name, Speaks: true, Labels: map[string]string{}}
	if zone != "" {
		n.Labels["topology.kubernetes.io/zone"] = zone
	}
	for i := 0; i+1 < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

// cluster is how many nodes of three zones, of which the first three are reflectors.
func cluster(nodes int) (v1alpha1.RouteReflectorTopology, []topology.Node) {
	var seen v1alpha1.RouteReflectorTopology
	seen.Name = "main"
	seen.Spec.ClusterID = "244.0.0.1"
	status := &seen.Status
	status.Phase, status.Mode, status.Mesh = v1alpha1.PhaseReady, v1alpha1.ModeFlat, v1alpha1.MeshOff
	var list []topology.Node
	for i := range nodes {
		n := node(fmt.Sprintf("node-%03d", i+1), fmt.Sprintf("fra%d", i%3+1))
		if i < 3 {
			n.Labels[v1alpha1.ReflectorLabel] = "main"
			status.Reflectors = append(status.Reflectors, v1alpha1.ReflectorStatus{
				Node: n.Name, Zone: n.Labels["topology.kubernetes.io/zone"], ClusterID: "244.0.0.1", Role: "Reflector", Clients: int32(nodes - 3), Established: int32(nodes - 3),
			})
		}
		list = append(list, n)
	}
	status.Sessions.Summary = fmt.Sprintf("%d/%d", 3*(nodes-3), 3*(nodes-3))
	return seen, list
}

// deep is a hierarchy in which several things are not as they should be.
func deep() (v1alpha1.RouteReflectorTopology, []topology.Node) {
	var seen v1alpha1.RouteReflectorTopology
	seen.Name = "deep"
	seen.Spec.ClusterID = "244.0.0.1"
	status := &seen.Status
	status.Phase, status.Mode, status.Mesh = v1alpha1.PhaseProgressing, v1alpha1.ModeHierarchical, v1alpha1.MeshOn
	status.Plan = &v1alpha1.PlanStatus{WaitingFor: "the sessions of node r4 with 2 of 3 clients, which were last seen 40 seconds ago and must be Established before the next step is done"}
	reflector := func(name, id, role string, clients, established int32) {
		status.Reflectors = append(status.Reflectors, v1alpha1.ReflectorStatus{Node: name, Zone: "b", ClusterID: id, Role: role, Clients: clients, Established: established})
	}
	status.Spares = []v1alpha1.Spare{{Node: "c1", Zone: "a"}, {Node: "c4", Reflector: "r1"}}
	reflector("s1", "244.0.0.2", "Reflector", 0, 0)
	reflector("s2", "244.0.0.2", "Reflector", 0, 0)
	reflector("r1", "244.0.0.1", "Reflector", 2, 2)
	reflector("r2", "244.0.0.1", "Leaving", 2, 2)
	reflector("r3", "244.0.0.3", "Reflector", 3, 3)
	reflector("r4", "244.0.0.3", "Joining", 3, 1)
	reflector("r10", "244.0.0.4", "Reflector", 0, 0)
	for i, r := range status.Reflectors {
		status.Reflectors[i].Group = map[string]string{"s1": "spine", "s2": "spine", "r3": "2", "r10": "10"}[r.Node]
	}
	const group, client = v1alpha1.GroupLabel, v1alpha1.ClientLabel
	return seen, []topology.Node{
		node("s1", "b", group, "spine"), node("s2", "b"), node("r1", "b"), node("r3", "b"), node("r4", "b", group, "2"), node("r10", "b"),
		node("r5", "a", v1alpha1.ReflectorLabel, "deep", group, "2"),
		node("c1", "a", client, "1"), node("c2", "b", client, "1"), node("c3", "a", client, "2"), node("c4", "", client, "2"), node("c5", "a", client, "2"),
		node("c6", "a"), node("c7", "a", client, "77"), node("c8", "a", client, "spine"),
		{Name: "no-bgp", Labels: map[string]string{client: "1"}},
	}
}

func maps(t *testing.T, seen v1alpha1.RouteReflectorTopology, nodes []topology.Node) []topology.Map {
	t.Helper()
	m := must.Get(topology.Maps([]v1alpha1.RouteReflectorTopology{seen}, nodes)).Or(t)
	return m
}

// What a person sees, in each format and width.
func TestDrawings(t *testing.T) {
	t.Parallel()
	five, fiveNodes := cluster(5)
	forty, fortyNodes := cluster(40)
	hierarchy, hierarchyNodes := deep()
	many, manyNodes := cluster(201)
	for name, m := range map[string][]topology.Map{
		"five": maps(t, five, fiveNodes), "forty": maps(t, forty, fortyNodes), "deep": maps(t, hierarchy, hierarchyNodes), "many": maps(t, many, manyNodes),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, width := range []int{80, 200} {
				text := topology.Tree(m, width, finding.Plain)
				golden(t, fmt.Sprintf("%s-%d.txt", name, width), text)
				for line := range strings.Lines(text) {
					if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width && !strings.Contains(line, "not list it") {
						t.Errorf("a line of %d columns: %s", n, line)
					}
				}
			}
			golden(t, name+".dot", topology.DOT(m))
			golden(t, name+".mermaid", topology.Mermaid(m))
			golden(t, name+".svg", topology.SVG(m))
			text := must.Get(json.MarshalIndent(m, "", "  ")).Or(t)
			if name == "five" || name == "deep" {
				golden(t, name+".json", string(text)+"\n")
			}
		})
	}
}

// Names stand in a drawing up to 200 nodes, and counts above.
func TestGroupedAbove(t *testing.T) {
	t.Parallel()
	for nodes, names := range map[int]bool{topology.GroupedAbove: true, topology.GroupedAbove + 1: false} {
		seen, list := cluster(nodes)
		m := maps(t, seen, list)
		for format, text := range map[string]string{
			"svg": topology.SVG(m), "tree": topology.Tree(m, 0, finding.Plain), "dot": topology.DOT(m), "mermaid": topology.Mermaid(m),
		} {
			if strings.Contains(text, "node-004") != names {
				t.Errorf("%s of %d nodes: names %t", format, nodes, !names)
			}
			if !strings.Contains(text, "node-003") {
				t.Errorf("%s of %d nodes lacks a reflector", format, nodes)
			}
		}
	}
}

// Without an end to lines nothing wraps; colors change nothing that is visible.
func TestTreeForPipesAndTerminals(t *testing.T) {
	t.Parallel()
	seen, list := cluster(150)
	m := maps(t, seen, list)
	if text := topology.Tree(m, 0, finding.Plain); strings.Count(text, "\n") != 1+1+3+3 {
		t.Errorf("it wraps:\n%s", text)
	}
	ansi := regexp.MustCompile("\x1b\\[[0-9]+m")
	ill, illNodes := deep()
	m = append(m, maps(t, ill, illNodes)...)
	var well, unwell int
	colored := topology.Tree(m, 80, func(text string, good bool) string {
		if good {
			well++
		} else {
			unwell++
		}
		return "\x1b[32m" + text + "\x1b[0m"
	})
	if diff := cmp.Diff(topology.Tree(m, 80, finding.Plain), ansi.ReplaceAllString(colored, "")); diff != "" || colored == ansi.ReplaceAllString(colored, "") {
		t.Errorf("colors change the text:\n%s", diff)
	}
	if well != 1+3+5 || unwell != 1+4-1 {
		t.Errorf("%d are well, %d are not", well, unwell)
	}
}

func TestMapsRefuseASelector(t *testing.T) {
	t.Parallel()
	seen, list := cluster(5)
	seen.Spec.ClientSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Like"}}
	_, err := topology.Maps([]v1alpha1.RouteReflectorTopology{seen}, list)
	if want := `spec.clientSelector of RouteReflectorTopology main: "Like" is not a valid label selector operator`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// The order of what is read does not matter, and no node is lost: each that a selector takes stands in one group once.
func TestMapsAreOrderBlind(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		var list []topology.Node
		var seen v1alpha1.RouteReflectorTopology
		seen.Name = "main"
		labels := []string{"", "1", "2", "10", "spine", "x"}
		speaking := 0
		for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
			n := node(fmt.Sprintf("n%d", i), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone"))
			n.Speaks = rapid.Bool().Draw(t, "speaks")
			for _, key := range []string{"bgp.mooring.dev/group", "bgp.mooring.dev/client"} {
				if v := rapid.SampledFrom(labels).Draw(t, key); v != "" {
					n.Labels[key] = v
				}
			}
			switch rapid.IntRange(0, 3).Draw(t, "reflector") {
			case 0:
				n.Labels[v1alpha1.ReflectorLabel] = rapid.SampledFrom([]string{"main", "other"}).Draw(t, "label")
			case 1:
				seen.Status.Reflectors = append(seen.Status.Reflectors,
					v1alpha1.ReflectorStatus{Node: n.Name, Role: "Reflector", ClusterID: rapid.SampledFrom([]string{"244.0.0.1", "244.0.0.2"}).Draw(t, "id")})
			}
			if n.Speaks {
				speaking++
			}
			list = append(list, n)
		}
		one := must.Get(topology.Maps([]v1alpha1.RouteReflectorTopology{seen}, list)).Or(t)
		seen.Status.Reflectors = rapid.Permutation(seen.Status.Reflectors).Draw(t, "reflectors")
		two, err := topology.Maps([]v1alpha1.RouteReflectorTopology{seen}, rapid.Permutation(list).Draw(t, "order"))
		must.Do(t, err)
		if diff := cmp.Diff(one, two); diff != "" {
			t.Fatalf("the order matters:\n%s", diff)
		}
		found := map[string]int{}
		for _, g := range one[0].Groups {
			for _, r := range g.Reflectors {
				found[r.Node]++
			}
			inZones := 0
			for _, z := range g.Zones {
				inZones += len(z.Clients)
				for _, c := range z.Clients {
					found[c]++
				}
			}
			if inZones != g.Clients {
				t.Fatalf("group %s has %d clients, its zones have %d", g.Name, g.Clients, inZones)
			}
		}
		for _, n := range list {
			isReflector := n.Labels[v1alpha1.ReflectorLabel] == "main"
			for _, r := range seen.Status.Reflectors {
				isReflector = isReflector || r.Node == n.Name
			}
			want := 0
			if isReflector || n.Speaks {
				want = 1
			}
			if found[n.Name] != want {
				t.Fatalf("%s stands there %d times, want %d", n.Name, found[n.Name], want)
			}
		}
	})
}

// svgText parses a drawing as strictly as a browser does and returns its text. Only elements of drawings may be in it, and nothing that
// fetches or runs.
func svgText(t *testing.T, drawing string) string {
	t.Helper()
	allowed := map[string]bool{"svg": true, "title": true, "style": true, "rect": true, "line": true, "text": true}
	decoder := xml.NewDecoder(strings.NewReader(drawing))
	var text strings.Builder
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("it is not XML: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if !allowed[token.Name.Local] {
				t.Fatalf("element %s", token.Name.Local)
			}
			for _, a := range token.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Name.Local, "href") || a.Name.Local != "xmlns" && strings.Contains(a.Value, ":") {
					t.Fatalf("attribute %s=%q", a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			text.Write(token)
			text.WriteByte('\n')
		}
	}
}

// Whatever stands in names and labels, a drawing stays well-formed, one element for one thing, and each statement of DOT and Mermaid one line.
func FuzzDrawings(f *testing.F) {
	for _, s := range []string{"n1", `"><script>alert(1)</script>`, "]]>", "&amp;", "a\"b\\", "\x00\x1f\ufffe", "\xff\xfe", "#quot; --> x", "é\u2028x\r\n", strings.Repeat("w", 300)} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, name, zone string) {
		var seen v1alpha1.RouteReflectorTopology
		seen.Name = name
		seen.Status.Sessions.Summary = zone
		seen.Status.Plan = &v1alpha1.PlanStatus{WaitingFor: name}
		seen.Status.Reflectors = []v1alpha1.ReflectorStatus{{Node: name, Zone: zone, ClusterID: zone, Role: name}}
		m, err := topology.Maps([]v1alpha1.RouteReflectorTopology{seen}, []topology.Node{node("c"+name, zone), node("d", "a")})
		must.Do(t, err)
		plain := must.Get(topology.Maps([]v1alpha1.RouteReflectorTopology{{}}, nil)).Or(t)
		drawing := topology.SVG(m)
		text := svgText(t, drawing)
		if !strings.Contains(text, "client") || !strings.Contains(svgText(t, topology.SVG(plain)), "no status yet") {
			t.Error("text is missing")
		}
		zones := len(m[0].Groups[0].Zones)
		if got, want := strings.Count(drawing, "<rect"), 1+1+zones+2; got != want {
			t.Errorf("%d boxes, want %d", got, want)
		}
		if got := strings.Count(topology.DOT(m), "\n"); got != 2+2+2+1+zones+2+zones+1 {
			t.Errorf("DOT has %d lines:\n%s", got, topology.DOT(m))
		}
		if got := strings.Count(topology.Mermaid(m), "\n"); got != 1+2+2+1+zones+zones {
			t.Errorf("Mermaid has %d lines:\n%s", got, topology.Mermaid(m))
		}
		for line := range strings.Lines(topology.DOT(m)) {
			if quotes := strings.Count(strings.NewReplacer(`\\`, "", `\"`, "").Replace(line), `"`); quotes%2 != 0 {
				t.Errorf("a quote stays open: %s", line)
			}
		}
		for line := range strings.Lines(topology.Mermaid(m)) {
			if quotes := strings.Count(line, `"`); quotes != 0 && quotes != 2 {
				t.Errorf("quotes: %s", line)
			}
		}
	})
}

// A reflector is not well by its sessions alone where its Node is not what the topology made of it. Where no Node has the
// label, Calico keeps it elsewhere.
func TestReflectorsUnlikeTheirStatus(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(nodes []topology.Node){
		"2/2 sessions": func(nodes []topology.Node) { nodes[0].ClusterID = "244.0.0.1" },
		"its Node does not have the label bgp.mooring.dev/reflector; last report: 2/2 sessions": func(nodes []topology.Node) {
			delete(nodes[0].Labels, v1alpha1.ReflectorLabel)
		},
		"its Node has the cluster ID 244.0.0.9, not 244.0.0.1; last report: 2/2 sessions": func(nodes []topology.Node) {
			nodes[0].ClusterID = "244.0.0.9"
		},
	} {
		seen, nodes := cluster(5)
		change(nodes)
		r := maps(t, seen, nodes)[0].Groups[0].Reflectors[0]
		if text, well := r.State(); text != want || well != (r.Unlike == "") {
			t.Errorf("%q, well %t; want %q", text, well, want)
		}
	}
	seen, nodes := cluster(5)
	for i := range nodes {
		delete(nodes[i].Labels, v1alpha1.ReflectorLabel)
	}
	if _, well := maps(t, seen, nodes)[0].Groups[0].Reflectors[0].State(); !well {
		t.Error("Calico's etcdv3 datastore has the labels, and a reflector is not well without them")
	}
}

// What the operator reports to be wrong with a topology as a whole is part of it.
func TestTroubles(t *testing.T) {
	t.Parallel()
	seen, nodes := cluster(5)
	for kind, status := range map[string]metav1.ConditionStatus{
		v1alpha1.ConditionAccepted: "True", v1alpha1.ConditionDegraded: "False", v1alpha1.ConditionProgressing: "True",
	} {
		seen.Status.Conditions = append(seen.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Why"})
	}
	if got := maps(t, seen, nodes)[0].Troubles; len(got) > 0 {
		t.Errorf("nothing is wrong: %q", got)
	}
	for i := range seen.Status.Conditions {
		if c := &seen.Status.Conditions[i]; c.Type == v1alpha1.ConditionDegraded {
			c.Status, c.Message = "True", "w1 is lost"
		}
	}
	if got := maps(t, seen, nodes)[0].Troubles; !slices.Equal(got, []string{"Degraded is True, Why: w1 is lost"}) {
		t.Errorf("it is degraded: %q", got)
	}
}
