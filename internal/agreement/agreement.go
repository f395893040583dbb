// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Verdict is how it stands with a machine in one word.
type Verdict string

// The verdicts.
const (
	Agree    Verdict = "agree"
	Disagree Verdict = "disagree"
	Doubtful Verdict = "unknown"
)

// Settle is how old a Node must be before it is missed on other sides: a machine that joins is known to one side after the other.
const Settle = 2 * time.Minute

// Row is one machine. Its JSON form is a contract with programs.
type Row struct {
	// Machine is the Node's name, or the one by which another side knows a machine that has no Node.
	Machine string `json:"machine"`
	// Droplet, Node, CalicoNode and Reflector are what each side says, for people.
	Droplet    string  `json:"droplet"`
	Node       string  `json:"node"`
	CalicoNode string  `json:"calicoNode"`
	Reflector  string  `json:"reflector"`
	Verdict    Verdict `json:"verdict"`
	// Disagreements are in the order of the sides; Unknowns say what could not be compared.
	Disagreements []Disagreement `json:"disagreements,omitempty"`
	Unknowns      []string       `json:"unknowns,omitempty"`
	// HasNode says that there is a Kubernetes Node.
	HasNode bool `json:"hasNode"`
}

// Disagreement is one thing on which two sides differ.
type Disagreement struct {
	What string `json:"what"`
	// Since is since when at least, nil if no side says.
	Since *time.Time `json:"since,omitempty"`
}

// The words of a side that has nothing, was not asked, or could not be read.
const (
	nothing  = "none"
	notAsked = "not asked"
	unknown  = "unknown"
)

// Rows compares the sides: one row for each machine that any side knows, in the order of names.
func Rows(w World) []Row {
	j := newJudge(w)
	for _, n := range w.Nodes {
		j.row(n.Name).HasNode = true
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		row := j.row(n.Name)
		row.Node = j.nodeText(n)
		j.droplet(n, row)
		j.calicoOf(n, row)
	}
	j.leftInCalico()
	j.reflectors()
	out := make([]Row, 0, len(j.rows))
	for _, row := range j.rows {
		row.finish()
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b Row) int { return cmp.Compare(a.Machine, b.Machine) })
	return out
}

// judge is a World by name.
type judge struct {
	World
	rows map[string]*Row
	// addressed says that calico-node has written some Node's address, so that one without is missing something.
	addressed bool
	droplets  map[string]Droplet
	byID      map[string][]*Node
	calico    map[string][]CalicoNode
	listed    map[string][]Reflector
}

func newJudge(w World) *judge {
	j := &judge{
		World: w, rows: map[string]*Row{}, droplets: map[string]Droplet{}, byID: map[string][]*Node{}, calico: map[string][]CalicoNode{}, listed: map[string][]Reflector{},
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		j.addressed = j.addressed || n.Address != ""
		if n.ProviderID != "" {
			j.byID[n.ProviderID] = append(j.byID[n.ProviderID], n)
		}
	}
	for _, d := range w.Cloud.Droplets {
		j.droplets[d.Node] = d
	}
	names := map[string]string{} // of Kubernetes Nodes, by Calico's names
	for _, c := range w.Calico.Nodes {
		name := cmp.Or(c.Kubernetes, c.Name)
		names[c.Name] = name
		j.calico[name] = append(j.calico[name], c)
	}
	for _, r := range w.Reflectors.Reflectors {
		name := r.Node // which is a Calico Node's name where the datastore has such
		if k, ok := names[name]; ok && !w.Calico.OnNodes {
			name = k
		}
		j.listed[name] = append(j.listed[name], r)
	}
	return j
}

// row is the machine's row, which says nothing yet when it is new.
func (j *judge) row(machine string) *Row {
	row := j.rows[machine]
	if row == nil {
		row = &Row{Machine: machine, Droplet: nothing, Node: nothing, CalicoNode: j.Calico.word(), Reflector: j.Reflectors.word()}
		if j.Cloud.NotAsked != "" {
			row.Droplet = notAsked
		}
		j.rows[machine] = row
	}
	return row
}

// word is what stands in a column of a side for a machine that it does not know.
func (s Side) word() string {
	switch {
	case s.NotAsked != "":
		return notAsked
	case s.Problem != "":
		return unknown
	}
	return nothing
}

func (r *Row) differ(since time.Time, format string, args ...any) {
	d := Disagreement{What: fmt.Sprintf(format, args...)}
	if !since.IsZero() {
		d.Since = &since
	}
	r.Disagreements = append(r.Disagreements, d)
}

// finish gives the verdict.
func (r *Row) finish() {
	slices.Sort(r.Unknowns)
	r.Unknowns = slices.Compact(r.Unknowns)
	switch {
	case len(r.Disagreements) > 0:
		r.Verdict = Disagree
	case len(r.Unknowns) > 0:
		r.Verdict = Doubtful
	default:
		r.Verdict = Agree
	}
}

// settled says that a Node is old enough to be missed elsewhere.
func (j *judge) settled(n *Node) bool { return j.Now.Sub(n.Created) >= Settle }

func (j *judge) nodeText(n *Node) string {
	text := map[string]string{"True": "Ready", "False": "NotReady"}[n.Ready]
	if text = cmp.Or(text, "Unknown"); n.Deleting {
		text += ", deleting"
	}
	if !j.settled(n) {
		text += ", new"
	}
	return text
}

// droplet compares a Node with the cloud.
func (j *judge) droplet(n *Node, row *Row) {
	if n.Uninitialized && j.settled(n) {
		row.differ(n.Created, "the Node waits for its cloud controller (taint uninitialized)")
	}
	j.sameID(n, row)
	d, judged := j.droplets[n.Name]
	name := n.ProviderID
	if d.ID != 0 {
		name = fmt.Sprintf("droplet %d", d.ID)
	}
	switch {
	case j.Cloud.NotAsked != "":
		row.Droplet = cmp.Or(n.ProviderID, "no ID") + ", " + notAsked
	case j.Cloud.Problem != "":
		row.Droplet = cmp.Or(n.ProviderID, "no ID") + ", " + unknown
		row.Unknowns = append(row.Unknowns, "the cloud could not be read: "+j.Cloud.Problem)
	case !judged || d.Existence == Unknown:
		row.Droplet = cmp.Or(name, "no ID") + ", " + unknown
		row.Unknowns = append(row.Unknowns, cmp.Or(d.Message, "nothing is known of its droplet"))
	case d.Existence == Gone:
		row.Droplet = name + ", gone"
		since := n.ReadySince
		if n.Ready == "True" {
			since = time.Time{}
		}
		row.differ(since, "%s is gone, and its Node is still there", name)
	case d.Off:
		row.Droplet = name + ", off"
		if n.Ready == "True" {
			row.differ(time.Time{}, "%s is switched off, and its Node is Ready", name)
		}
	default:
		row.Droplet = name
	}
}

// sameID finds other Nodes that claim the same machine.
func (j *judge) sameID(n *Node, row *Row) {
	var others []string
	since := n.Created
	for _, o := range j.byID[n.ProviderID] {
		if o.Name != n.Name {
			others = append(others, o.Name)
			if o.Created.After(since) {
				since = o.Created
			}
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		row.differ(since, "it has the provider ID of Node %s as well", strings.Join(others, ", "))
	}
}

// calicoOf compares a Node with Calico's datastore.
func (j *judge) calicoOf(n *Node, row *Row) {
	switch {
	case j.Calico.NotAsked != "":
	case j.Calico.Problem != "":
		row.Unknowns = append(row.Unknowns, "Calico's datastore could not be read: "+j.Calico.Problem)
	case j.Calico.OnNodes:
		if row.CalicoNode = cmp.Or(n.Address, nothing); n.Address == "" && j.addressed && j.settled(n) {
			row.differ(n.Created, "calico-node has not written its address on this Node, as it has on others")
		}
	default:
		j.calicoNodes(n, row)
	}
}

func (j *judge) calicoNodes(n *Node, row *Row) {
	var names, hosts []string
	for _, c := range j.calico[n.Name] {
		if c.Host {
			hosts = append(hosts, c.Name)
		} else {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	switch {
	case len(names) == 1:
		row.CalicoNode = names[0]
	case len(names) > 1:
		row.CalicoNode = strings.Join(names, ", ")
		row.differ(time.Time{}, "%d Calico Nodes name this Node: %s", len(names), row.CalicoNode)
	case len(j.Calico.Unreadable) > 0:
		row.CalicoNode = unknown
		unreadable := slices.Sorted(slices.Values(j.Calico.Unreadable))
		row.Unknowns = append(row.Unknowns, "its Calico Node may be one of those that cannot be parsed: "+strings.Join(unreadable, ", "))
	case len(hosts) > 0:
		row.differ(time.Time{}, "Calico holds addresses for this Node, and has no Calico Node for it")
	case j.settled(n):
		row.differ(n.Created, "Calico has no Calico Node for this Node")
	}
}

// leftInCalico finds what Calico has of machines without a Node.
func (j *judge) leftInCalico() {
	if !j.Calico.read() {
		return
	}
	for name, nodes := range j.calico {
		if row := j.rows[name]; row != nil && row.HasNode {
			continue
		}
		row := j.row(name)
		var texts []string
		hosts, named := true, false
		for _, c := range nodes {
			text := c.Name
			if c.Host {
				text = "addresses"
			}
			texts = append(texts, text)
			hosts, named = hosts && c.Host, named || c.Kubernetes != "" && !c.Host
		}
		slices.Sort(texts)
		row.CalicoNode = strings.Join(slices.Compact(texts), ", ")
		switch {
		case hosts:
			row.differ(time.Time{}, "Calico holds addresses for a host that is no Kubernetes Node")
		case named: // without that name it may be a host that never was one
			row.differ(time.Time{}, "there is a Calico Node, and no Kubernetes Node")
		}
	}
	for _, name := range j.Calico.Unreadable {
		row := j.row(name)
		if row.CalicoNode == nothing || row.CalicoNode == unknown {
			row.CalicoNode = unknown
			row.Unknowns = append(row.Unknowns, fmt.Sprintf("Calico Node %s cannot be parsed", name))
		}
	}
}

// reflectors compares the topologies with the Nodes.
func (j *judge) reflectors() {
	if j.Reflectors.NotAsked != "" {
		return
	}
	if j.Reflectors.Problem != "" {
		for _, row := range j.rows {
			row.Unknowns = append(row.Unknowns, "the RouteReflectorTopologies could not be read: "+j.Reflectors.Problem)
		}
		return
	}
	for name, list := range j.listed {
		row := j.row(name)
		slices.SortFunc(list, func(a, b Reflector) int {
			return cmp.Or(cmp.Compare(a.Topology, b.Topology), cmp.Compare(a.Node, b.Node))
		})
		texts := make([]string, len(list))
		for i, r := range list {
			texts[i] = r.text()
			j.missing(r, row)
		}
		row.Reflector = strings.Join(texts, ", ")
	}
	if j.Calico.OnNodes {
		for i := range j.Nodes {
			j.labels(&j.Nodes[i])
		}
	}
}

// missing says of a reflector that no Node has its name what follows. Where reflectors are Calico Nodes the name alone proves nothing.
func (j *judge) missing(r Reflector, row *Row) {
	switch {
	case row.HasNode:
	case !j.Calico.OnNodes && (!j.Calico.read() || slices.Contains(j.Calico.Unreadable, r.Node)):
		row.Unknowns = append(row.Unknowns, fmt.Sprintf("topology %s lists it as a reflector, by a name of Calico's that could not be looked up", r.Topology))
	default:
		row.differ(time.Time{}, "topology %s lists it as a reflector, and there is no Node", r.Topology)
	}
}

// text is a role in few words.
func (r Reflector) text() string {
	text := r.Topology
	if r.Group != "" {
		text += " " + r.Group
	}
	if r.Role != "Reflector" {
		text += ", " + r.Role
	}
	return text
}

// labels compares what is written on a Node with what topologies list; with the kubernetes datastore alone, since else it is not written there.
func (j *judge) labels(n *Node) {
	row, listed := j.row(n.Name), false
	for _, r := range j.listed[n.Name] {
		listed = listed || r.Topology == n.Reflector
		if r.Role != "Reflector" {
			continue // what is under way need not be complete
		}
		if n.Reflector != r.Topology {
			row.differ(time.Time{}, "topology %s lists it as a reflector, and the Node does not have its label", r.Topology)
		} else if r.ClusterID != n.ClusterID {
			row.differ(time.Time{}, "topology %s lists it with cluster ID %s, and the Node has %s", r.Topology, cmp.Or(r.ClusterID, nothing), cmp.Or(n.ClusterID, nothing))
		}
	}
	switch {
	case n.Reflector == "" || listed:
	case !slices.Contains(j.Reflectors.Topologies, n.Reflector):
		row.differ(time.Time{}, "its label says that it is a reflector of topology %s, which there is not", n.Reflector)
	default:
		row.differ(time.Time{}, "its label says that it is a reflector of topology %s, which does not list it", n.Reflector)
	}
}
