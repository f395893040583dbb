// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Row is one machine. Its JSON form is a contract with programs.
type Row struct {
	// Machine is the Node's name, or the one by which another side knows a machine that has no Node.
	Machine string `json:"machine"`
	// Droplet, Node, CalicoNode and Reflector are what each side says, for people.
	Droplet    string `json:"droplet"`
	Node       string `json:"node"`
	CalicoNode string `json:"calicoNode"`
	Reflector  string `json:"reflector"`
	// Volumes is how many volumes DigitalOcean has attached, and of how many at most; "" if they were not compared.
	Volumes string        `json:"volumes,omitempty"`
	Verdict finding.State `json:"verdict"`
	// Findings are the reasons for the verdict, worst first; none where the sides agree.
	Findings []finding.Verdict `json:"findings,omitempty"`
	// HasNode reports whether there is a Kubernetes Node.
	HasNode bool `json:"hasNode"`
}

// SettleTime is how old a Node must be before it is missed on other sides: one side after the other knows a machine
// that joins.
const SettleTime = 2 * time.Minute

// goneTime is for how long the Node of a droplet that is gone may stay: its cloud controller needs proof, and deletes
// it then.
const goneTime = 5 * time.Minute

// repairs is who ends a contradiction between a topology and its Nodes.
const repairs = "calico-route-reflector-operator repairs it if it works: kubectl mooring doctor controllers"

// CloudNext is what a person can do who could not read DigitalOcean.
const CloudNext = "set DO_ACCESS_TOKEN to a token of the cluster's account that may read it, or ask a person who has one"

// The words of a side that has nothing, was not queried, or could not be read.
const (
	nothing  = "none"
	notAsked = "not queried"
	unknown  = "unknown"
)

// Rows compares the sides: one row for each machine that any side knows, in the natural order of names.
func Rows(w World) []Row {
	j := newJudge(w)
	for _, n := range w.Nodes {
		j.row(n.Name).HasNode = true
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		row := j.row(n.Name)
		row.Node = j.nodeText(n)
		j.life(n, row)
		j.droplet(n, row)
		j.attachments(n, row)
		j.calicoOf(n, row)
	}
	j.leftInCalico()
	j.reflectors()
	out := make([]Row, 0, len(j.rows))
	for _, row := range j.rows {
		row.finish(j.compared[row.Machine])
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b Row) int { return prose.Natural(a.Machine, b.Machine) })
	return out
}

// judge is a World by name.
type judge struct {
	World
	rows map[string]*Row
	// compared reports of a Node's name that a side other than Kubernetes was compared with it.
	compared map[string]bool
	// addressed reports that calico-node has written some Node's address, so that one without is missing something.
	addressed bool
	droplets  map[string]Droplet
	byID      map[string][]*Node
	calico    map[string][]CalicoNode
	listed    map[string][]Reflector
}

func newJudge(w World) *judge {
	j := &judge{
		World: w, rows: map[string]*Row{}, compared: map[string]bool{}, droplets: map[string]Droplet{},
		byID: map[string][]*Node{}, calico: map[string][]CalicoNode{}, listed: map[string][]Reflector{},
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

// row is the machine's row, empty when it is new.
func (j *judge) row(machine string) *Row {
	row := j.rows[machine]
	if row == nil {
		row = &Row{Machine: machine, Droplet: nothing, Node: nothing, CalicoNode: word(j.Calico.Side),
			Reflector: word(j.Reflectors.Side)}
		if j.Cloud.NotAsked != "" {
			row.Droplet = notAsked
		}
		j.rows[machine] = row
	}
	return row
}

// word is the text in a side's column for a machine that it does not know.
func word(s finding.Side) string {
	switch {
	case s.NotAsked != "":
		return notAsked
	case s.Problem != "":
		return unknown
	}
	return nothing
}

// add adds a finding; a zero since is none.
func (r *Row) add(v finding.State, since time.Time, next, format string, args ...any) {
	f := finding.Verdict{State: v, What: fmt.Sprintf(format, args...), Next: next}
	if !since.IsZero() {
		f.Since = &since
	}
	r.Findings = append(r.Findings, f)
}

func (r *Row) differ(since time.Time, format string, args ...any) {
	r.add(finding.Disagree, since, "", format, args...)
}

func (r *Row) settle(since time.Time, next, format string, args ...any) {
	r.add(finding.Settling, since, next, format, args...)
}

func (r *Row) doubt(format string, args ...any) {
	r.add(finding.Unknown, time.Time{}, "", format, args...)
}

// finish orders the findings, each once, and gives the verdict.
func (r *Row) finish(compared bool) {
	slices.SortStableFunc(r.Findings, func(a, b finding.Verdict) int {
		if c := cmp.Compare(a.State.Rank(), b.State.Rank()); c != 0 || a.State != finding.Unknown {
			return c
		}
		return cmp.Compare(a.What, b.What)
	})
	r.Findings = slices.CompactFunc(r.Findings, func(a, b finding.Verdict) bool {
		return a.State == b.State &&
			a.What == b.What
	})
	r.Verdict = finding.WorstOf(r.Findings,
		map[bool]finding.State{true: finding.OneSide, false: finding.Agree}[r.HasNode && !compared])
}

// settled reports whether a Node is old enough to be missed elsewhere.
func (j *judge) settled(n *Node) bool { return j.Now.Sub(n.Created) >= SettleTime }

// nodeText is the Node's status in kubectl's words.
func (j *judge) nodeText(n *Node) string {
	status := map[string]string{"True": "Ready", "": "Unknown"}[n.Ready]
	if status = cmp.Or(status, "NotReady"); n.Deleting {
		status += ", deleting"
	}
	if !j.settled(n) {
		status += ", new"
	}
	return status
}

// life judges the Node by itself: whether it works, joins or leaves.
func (j *judge) life(n *Node, row *Row) {
	switch {
	case n.Deleting && !n.DeletedAt.IsZero() && j.Now.Sub(n.DeletedAt) >= goneTime:
		row.add(finding.Disagree, n.DeletedAt,
			"see which finalizers hold it: kubectl get node "+n.Name+" -o jsonpath='{.metadata.finalizers}'",
			"the deletion of the Node is not done")
	case n.Deleting:
		row.settle(time.Time{}, "it is removed when its finalizers are done", "the Node is being deleted")
	case n.Ready == "True" && j.Unwatched != "" && !j.gone(n):
		row.add(finding.Unknown, time.Time{},
			"see why: kubectl -n kube-system get lease kube-controller-manager, and the log of that program",
			"whether it is still Ready is unknown: %s", j.Unwatched)
	case n.Ready == "True", j.gone(n):
	case !j.settled(n) && n.Ready != "Unknown": // which only a kubelet that has stopped to report gets
		row.settle(n.Created, "its kubelet reports Ready when the network is available",
			"the Node has just joined and is not Ready yet")
	case n.Ready == "":
		row.add(finding.Down, n.Created, "check whether its kubelet runs",
			"no kubelet has reported the status of the Node")
	case j.droplets[n.Name].Off:
		row.add(finding.Down, n.ReadySince, "switch the droplet on, or delete it: its Node is then deleted",
			"droplet %d is switched off", j.droplets[n.Name].Droplet)
	case n.Ready == "False":
		row.add(finding.Down, n.ReadySince, "see the Node's condition Ready: kubectl describe node "+n.Name,
			"the Node is NotReady")
	default:
		row.add(finding.Down, n.ReadySince, "check whether the machine runs and reaches the API server",
			"the Node is NotReady: its kubelet no longer reports")
	}
}

// gone reports proof that the Node's droplet no longer exists.
func (j *judge) gone(n *Node) bool {
	return j.Cloud.Read() && j.droplets[n.Name].Existence == instance.Gone
}

// droplet compares a Node with the cloud.
func (j *judge) droplet(n *Node, row *Row) {
	if n.Uninitialized {
		j.missing(n, row,
			"check whether digitalocean-cloud-controller-manager runs: kubectl mooring status; and its Events: kubectl describe node "+n.Name, "the Node waits for its cloud controller (taint uninitialized)")
	}
	j.sameID(n, row)
	d, judged := j.droplets[n.Name]
	name := n.ProviderID
	if d.Droplet != 0 {
		name = fmt.Sprintf("droplet %d", d.Droplet)
	}
	if j.Cloud.Read() {
		j.compared[n.Name] = true
	}
	switch {
	case j.Cloud.NotAsked != "":
		row.Droplet = cmp.Or(n.ProviderID, "no ID") + ", " + notAsked
	case j.Cloud.Problem != "":
		row.Droplet = cmp.Or(n.ProviderID, "no ID") + ", " + unknown
		row.add(finding.Unknown, time.Time{}, CloudNext, "the cloud could not be read: %s", j.Cloud.Problem)
	case !judged || d.Existence == instance.Unknown:
		row.Droplet = cmp.Or(name, "no ID") + ", " + unknown
		row.add(finding.Unknown, time.Time{}, "run this again in a minute, with a token of the cluster's account",
			"%s", cmp.Or(d.Message, "its droplet is unknown"))
	case d.Existence == instance.Gone:
		row.Droplet = name + ", gone"
		j.leaves(n, row, name)
	case d.Off:
		row.Droplet = name + ", off"
		if n.Ready == "True" {
			row.add(finding.Down, time.Time{},
				"its Node becomes NotReady within a minute; switch the droplet on, or delete it", "%s is switched off",
				name)
		}
	default:
		row.Droplet = name
	}
}

// leaves judges the Node of a droplet that is gone. Its cloud controller deletes it as soon as it has proof; a Node
// that is drained, or that is NotReady for a short time only, is not a contradiction.
func (j *judge) leaves(n *Node, row *Row, droplet string) {
	since := n.ReadySince
	if n.Ready == "True" {
		since = time.Time{}
	}
	if n.Deleting || n.Leaving || !since.IsZero() && j.Now.Sub(since) < goneTime {
		row.settle(since, "the cloud controller manager deletes the Node when that is proven",
			"%s is gone, and its Node still exists", droplet)
		return
	}
	next := "check whether digitalocean-cloud-controller-manager runs, which deletes such Nodes: kubectl mooring status"
	if n.Ready == "True" {
		next = "wait a minute: its Node becomes NotReady, and is deleted then; if it stays Ready, another machine reports under its name"
	}
	row.add(finding.Disagree, since, next, "%s is gone, and its Node still exists", droplet)
}

// missing judges what a Node does not have yet: while it is new that is settling, later it is a contradiction, about
// which a person can do next.
func (j *judge) missing(n *Node, row *Row, next, what string) {
	if j.settled(n) {
		row.add(finding.Disagree, n.Created, next, "%s", what)
		return
	}
	row.settle(n.Created, "the Node has just joined", "%s", what)
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
		row.doubt("Calico's datastore could not be read: %s", j.Calico.Problem)
	case j.Calico.OnNodes:
		if j.addressed {
			j.compared[n.Name] = true
		}
		if row.CalicoNode = cmp.Or(n.Address, nothing); n.Address == "" && j.addressed {
			j.missing(n, row, "check whether calico-node runs there",
				"calico-node has not written its address on this Node, as it has on others")
		}
	default:
		j.compared[n.Name] = true
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
		row.doubt("its Calico Node may be one of those that cannot be parsed: %s", strings.Join(unreadable, ", "))
	case len(hosts) > 0:
		row.differ(time.Time{}, "Calico holds addresses for this Node, and has no Calico Node for it")
	default:
		j.missing(n, row, "check whether calico-node runs there", "Calico has no Calico Node for this Node")
	}
}

// leftInCalico finds what Calico has of machines without a Node.
func (j *judge) leftInCalico() {
	if !j.Calico.Read() {
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
			j.left(row, "Calico holds addresses for a host that is not a Kubernetes Node")
		case named: // without that name it may be a host that never was one
			j.left(row, "there is a Calico Node and no Kubernetes Node")
		}
	}
	for _, name := range j.Calico.Unreadable {
		row := j.row(name)
		if row.CalicoNode == nothing || row.CalicoNode == unknown {
			row.CalicoNode = unknown
			row.doubt("Calico Node %s cannot be parsed", name)
		}
	}
}

// left judges what Calico holds of a machine that is gone by what calico-node-sync does about it.
func (j *judge) left(row *Row, what string) {
	at := slices.IndexFunc(j.CleanUps, func(c CleanUp) bool { return c.Machine == row.Machine })
	switch {
	case at < 0:
		row.add(finding.Disagree, time.Time{}, "a calico-node-sync that runs removes it: kubectl mooring status", "%s",
			what)
	case j.CleanUps[at].Pending:
		row.settle(time.Time{}, "calico-node-sync removes it: "+j.CleanUps[at].Message, "%s", what)
	default:
		row.add(finding.Disagree, time.Time{}, "calico-node-sync keeps it: "+j.CleanUps[at].Message, "%s", what)
	}
}

// reflectors compares the topologies with the Nodes.
func (j *judge) reflectors() {
	if j.Reflectors.NotAsked != "" {
		return
	}
	if j.Reflectors.Problem != "" {
		for _, row := range j.rows {
			row.doubt("the RouteReflectorTopologies could not be read: %s", j.Reflectors.Problem)
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
			j.unmatched(r, row)
			if r.Role != "Reflector" {
				row.settle(time.Time{}, "calico-route-reflector-operator completes it",
					"topology %s changes its role: %s", r.Topology, r.Role)
			}
		}
		row.Reflector = strings.Join(texts, ", ")
	}
	if j.Calico.OnNodes {
		for i := range j.Nodes {
			j.labels(&j.Nodes[i])
		}
	}
}

// unmatched judges a reflector whose name no Node has. Where reflectors are Calico Nodes the name alone proves nothing.
func (j *judge) unmatched(r Reflector, row *Row) {
	switch {
	case row.HasNode:
	case !j.Calico.OnNodes && (!j.Calico.Read() || slices.Contains(j.Calico.Unreadable, r.Node)):
		row.doubt("topology %s lists it as a reflector, by a name of Calico's that could not be looked up", r.Topology)
	default:
		row.differ(time.Time{}, "topology %s lists it as a reflector and there is no Node", r.Topology)
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

// labels compares what is written on a Node with what topologies list; with the kubernetes datastore alone, since else
// it is not written there.
func (j *judge) labels(n *Node) {
	row, listed := j.row(n.Name), false
	for _, r := range j.listed[n.Name] {
		listed = listed || r.Topology == n.Reflector
		if r.Role != "Reflector" {
			continue // what is under way need not be complete
		}
		if n.Reflector != r.Topology {
			row.add(finding.Disagree, time.Time{}, repairs,
				"topology %s lists it as a reflector, and the Node does not have its label", r.Topology)
		} else if r.ClusterID != n.ClusterID {
			row.add(finding.Disagree, time.Time{}, repairs,
				"topology %s lists it with cluster ID %s, and the Node has %s", r.Topology, cmp.Or(r.ClusterID,
					nothing), cmp.Or(n.ClusterID, nothing))
		}
	}
	switch {
	case n.Reflector == "" || listed:
	case !slices.Contains(j.Reflectors.Topologies, n.Reflector):
		row.differ(time.Time{}, "its label names it a reflector of topology %s, which does not exist", n.Reflector)
	default:
		row.differ(time.Time{}, "its label names it a reflector of topology %s, which does not list it", n.Reflector)
	}
}
