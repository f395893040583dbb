// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/tenants"
	"github.com/mooring-dev/mooring/internal/topology"
)

// List is a section of the page that is a table.
type List struct {
	// Key names the section: waits, doctor, components, reflectors, balancers, volumes, tenants or journal.
	Key     string `json:"key"`
	Title   string `json:"title"`
	Summary string `json:"summary"`
	// Problem says why it could not be read, or not wholly, "" if it could.
	Problem string   `json:"problem,omitempty"`
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rows,omitempty"`
	// All and Ill count the rows, and those that need attention, whatever the filter.
	All int `json:"all"`
	Ill int `json:"ill"`
	// More counts the rows that are not shown, "" if there are none.
	More string `json:"more,omitempty"`
	// Checked is when it was found out, where that is not when the rest was read; Old reports that it was well before.
	Checked *time.Time `json:"checked,omitempty"`
	Old     bool       `json:"old,omitempty"`
	// State and Text are those of its tile.
	State State  `json:"-"`
	Text  string `json:"-"`
}

// Row is a line of a table, with as many cells as there are columns.
type Row struct {
	// Ill reports that it needs attention, Old that it was reported long ago.
	Ill   bool   `json:"ill,omitempty"`
	Old   bool   `json:"old,omitempty"`
	Cells []Cell `json:"cells"`
	// settling says that something in it differs, which ends by itself.
	settling bool
	// zone is that of its machine; also are texts by which a filter finds it, alongside its cells.
	zone string
	also []string
	// trouble is what a person or a component does about it, since when it is so, and the row in one sentence if that is
	// not its cells.
	trouble trouble
}

// texts are what a filter looks at.
func (r Row) texts() []string {
	out := slices.Clone(r.also)
	for _, c := range r.Cells {
		out = append(out, c.Text, c.ID, c.Command)
	}
	return out
}

// Cell is a text, and instead of it or alongside it a moment or bars.
type Cell struct {
	Text string `json:"text,omitempty"`
	// Machine is the machine that it is about, by which it is found on the map; "" for none.
	Machine string `json:"machine,omitempty"`
	// ID is a long identifier that is shown in short and copied whole.
	ID string `json:"id,omitempty"`
	// Command is what a person may run, shown and copied whole.
	Command string     `json:"command,omitempty"`
	At      *time.Time `json:"at,omitempty"`
	Bars    []Bar      `json:"bars,omitempty"`
}

// Bar is what is used of a limit.
type Bar struct {
	Label string `json:"label"`
	// Percent is 0 to 100, -1 without a limit.
	Percent int `json:"percent"`
}

// list filters and bounds the rows, which are in their final order.
func (m matcher) list(l List, thing string, rows []Row) List {
	matched := 0
	l.count(rows)
	for _, r := range rows {
		state := map[bool]State{true: Bad, false: Good}[r.Ill]
		if !m.matches(facts{string(state), r.zone, !r.Ill, r.texts()}) {
			continue
		}
		if matched++; matched <= MostShown {
			l.Rows = append(l.Rows, r)
		}
	}
	if matched > MostShown {
		l.More = fmt.Sprintf("and %d more; filter to see them", matched-MostShown)
	}
	if (m.narrows() || m.attention) && len(rows) > 0 {
		l.Summary = fmt.Sprintf("%d of %s", matched, prose.Plural(len(rows), thing))
	} else if l.Summary == "" {
		l.Summary = prose.Plural(len(rows), thing)
	}
	return l
}

// count fills in what the list is as a whole, whatever the filter.
func (l *List) count(rows []Row) {
	settling := 0
	l.All = len(rows)
	for _, r := range rows {
		if r.Ill {
			l.Ill++
		}
		if r.settling {
			settling++
		}
	}
	l.Problem = tidy(l.Problem)
	l.State, l.Text = Good, fmt.Sprint(l.All)
	switch {
	case l.Ill > 0:
		l.State, l.Text = Bad, fmt.Sprintf("%d of %d need attention", l.Ill, l.All)
	case l.Problem != "":
		l.State, l.Text = Unread, l.Problem
	case settling > 0:
		l.State, l.Text = Changing, fmt.Sprintf("%d of %d settling", settling, l.All)
	case l.All == 0:
		l.State, l.Text = Absent, "none"
	}
}

// kept is a list of what a component keeps up to date. While that does not work, or may not run, what was last observed
// is not good, however good it was.
func (w World) kept(l List, component string) List {
	why := finding.Unkept(w.Components, component, w.ComponentProblem, w.now())
	if why == "" || l.All == 0 {
		return l
	}
	l.Problem = tidy(strings.TrimPrefix(l.Problem+"; "+why, "; "))
	if l.State != Bad {
		l.State, l.Text = Unread, l.Problem
	}
	return l
}

// cells are tidy texts.
func cells(texts ...string) []Cell {
	out := make([]Cell, len(texts))
	for i, text := range texts {
		out[i].Text = tidy(text)
	}
	return out
}

// moment is a cell with a time, empty if nobody knows it.
func moment(at time.Time) Cell {
	if at.IsZero() {
		return Cell{Text: "unknown"}
	}
	at = at.UTC()
	return Cell{At: &at}
}

func componentsOf(w World, m matcher) List {
	l := List{
		Key: "components", Title: "Components", Problem: w.ComponentProblem,
		Columns: []string{"Component", "Where", "Version", "Ready", "Leader", "Renewed"},
	}
	rows := make([]Row, len(w.Components))
	for i, c := range w.Components {
		renewed, version := Cell{Text: "-"}, cmp.Or(c.Version, "unknown")
		is, leader := "running", cmp.Or(c.Problem, c.Unread, c.Leader, "none")
		if pods := c.Pods(); pods != "" {
			is = pods + " ready"
		}
		if c.Unread != "" {
			is = "unknown: " + c.Unread
		}
		is = strings.TrimSpace(c.Name+" "+c.Version) + " (" + c.Where() + "): " + cmp.Or(c.Problem, is)
		if c.Leader != "" {
			is += ", leader " + c.Leader
		}
		if c.Renewed != nil {
			renewed = moment(*c.Renewed)
			is += ", its Lease renewed " + prose.Span(max(0, w.now().Sub(*c.Renewed))) + " ago"
		}
		rows[i] = Row{Ill: c.Problem != "",
			Cells: append(cells(c.Name, c.Where(), version, cmp.Or(c.Pods(), "-"), leader), renewed)}
		rows[i].trouble = trouble{
			Fault: Fault{What: tidy(is), Command: "kubectl mooring doctor controllers", Since: renewed.At},
			well:  c.Problem+c.Unread == "",
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return order(!a.trouble.well) - order(!b.trouble.well) })
	return m.list(l, "component", rows)
}

func reflectorsOf(w World, m matcher) List {
	l := List{Key: "reflectors", Title: "Route reflectors", Problem: w.TopologyProblem,
		Columns: []string{"Topology", "Group", "Node", "Zone", "State"}}
	if w.TopologiesAbsent {
		l.Summary = "the cluster has no kind RouteReflectorTopology"
	}
	var rows []Row
	var waits []string
	draws := trouble{Fault: Fault{Command: "kubectl mooring topology"}}
	for _, t := range sortedMaps(w.Topologies) {
		for _, text := range t.Troubles {
			rows = append(rows, Row{Ill: true, Cells: cells(t.Name, "", "", "", text), trouble: draws})
		}
		if t.WaitingFor != "" {
			waits = append(waits, "topology "+t.Name+" waits for "+t.WaitingFor)
		}
		for _, g := range t.Groups {
			for _, r := range g.Reflectors {
				state, well := r.State()
				replacing := t.Replacing(r, w.now())
				row := Row{
					Ill: !well && !replacing, Cells: cells(t.Name, g.Name, r.Node, r.Zone, state),
					settling: replacing, zone: r.Zone, trouble: draws,
				}
				row.Cells[2].Machine = row.Cells[2].Text
				rows = append(rows, row)
			}
		}
	}
	l = w.kept(m.list(l, "reflector", rows), "calico-route-reflector-operator")
	l.Summary = tidy(strings.Join(append([]string{l.Summary}, some(waits)...), "; "))
	return l
}

func sortedMaps(maps []topology.Map) []topology.Map {
	out := slices.Clone(maps)
	slices.SortFunc(out, func(a, b topology.Map) int { return prose.Natural(a.Name, b.Name) })
	return out
}

func balancersOf(w World, m matcher) List {
	l := List{
		Key: "balancers", Title: "Load balancers", Problem: w.BalancerProblem,
		Columns: []string{"Service", "Addresses", "Problem", "Ports", "Targets", "Since"},
	}
	list := slices.Clone(w.Balancers)
	slices.SortFunc(list, func(a, b Balancer) int {
		return cmp.Or(prose.Natural(a.Namespace, b.Namespace), prose.Natural(a.Name, b.Name))
	})
	targets := targetsOf(w)
	rows := make([]Row, len(list))
	for i, b := range list {
		v, name, address, target := b.Verdict, b.Namespace+"/"+b.Name, cmp.Or(b.addresses(), "none yet"), targets
		if class := b.Spec.LoadBalancerClass; class != nil {
			name += " (class " + *class + ")"
		}
		if b.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			target += ", of which those with its pods (externalTrafficPolicy Local)"
		}
		if b.ID == "" && len(b.Status.LoadBalancer.Ingress) == 0 {
			target = "no targets yet"
		}
		row := Row{
			Ill: v.State.NeedsAttention(), settling: v.State == finding.Settling,
			Cells: append(cells(name, address, v.What, portsOf(b.Spec.Ports), target), moment(b.CreationTimestamp.Time)),
		}
		row.Cells[1].ID = tidy(b.ID)
		row.trouble = trouble{Fault: Fault{Command: "kubectl mooring status", Since: v.Since, Next: tidy(v.Next)}, dated: true}
		if about("", b.Name, "")+about("", b.Namespace, "") == b.Name+b.Namespace {
			row.trouble.Command = "kubectl mooring explain service " + b.Name + " -n " + b.Namespace
		}
		rows[i] = row
	}
	return w.kept(m.list(l, "load balancer", rows), "digitalocean-cloud-controller-manager")
}

// addresses are IP addresses and host names at which it serves, "" while there is no load balancer.
func (b Balancer) addresses() string {
	var out []string
	for _, in := range b.Status.LoadBalancer.Ingress {
		out = append(out, cmp.Or(in.Hostname, in.IP))
	}
	return strings.Join(slices.Sorted(slices.Values(out)), ", ")
}

// portsOf are a Service's ports: what is served, and at which port of Nodes.
func portsOf(ports []corev1.ServicePort) string {
	var out []string
	for _, p := range ports {
		text := fmt.Sprintf("%d/%s", p.Port, cmp.Or(p.Protocol, "TCP"))
		if p.NodePort != 0 {
			text += fmt.Sprintf(" → %d", p.NodePort)
		}
		out = append(out, text)
	}
	return finding.First(out, MostSaid)
}

// targetsOf are the Nodes that get traffic, the same for all, and how many of them are down.
func targetsOf(w World) string {
	excluded, down := map[string]bool{}, 0
	for _, e := range w.Excluded {
		excluded[e.Node] = true
	}
	for _, r := range w.Machines {
		if r.HasNode && r.Verdict == finding.Down && !excluded[r.Machine] {
			down++
		}
	}
	text := fmt.Sprintf("%d of %s", w.Candidates-len(w.Excluded), prose.Plural(w.Candidates, "Node"))
	if down > 0 {
		text += fmt.Sprintf(", %d of them down", down)
	}
	if len(w.Excluded) == 0 {
		return text
	}
	list := slices.SortedFunc(slices.Values(w.Excluded), func(a, b Excluded) int { return prose.Natural(a.Node, b.Node) })
	var parts []string
	for _, e := range list {
		parts = append(parts, e.Node+" ("+e.Reason+")")
	}
	return text + ", without " + finding.First(parts, 3)
}

func tenantsOf(w World, m matcher) List {
	l := List{Key: "tenants", Title: "Tenants of etcd", Problem: w.TenantProblem,
		Columns: []string{"EtcdStorage", "State", "Since", "Proxies", "Usage"}}
	if w.TenantsAbsent {
		l.Summary = "the cluster has no kind EtcdStorage"
	}
	list := slices.Clone(w.Tenants)
	slices.SortFunc(list, func(a, b Tenant) int { return prose.Natural(a.Name, b.Name) })
	rows := make([]Row, len(list))
	for i, t := range list {
		rows[i] = tenantRow(t, w.now())
	}
	return w.kept(m.list(l, "tenant", rows), "etcd-storage-operator")
}

// tenantRow is a tenant, with what is not well of it.
func tenantRow(t Tenant, now time.Time) Row {
	var since time.Time
	if ready := meta.FindStatusCondition(t.Status.Conditions, "Ready"); ready != nil {
		since = ready.LastTransitionTime.Time
	}
	report, state, ill, dated, next := tenants.Judge(t, now), "", false, false, ""
	for _, v := range report.Troubles() {
		if !ill && v.State.NeedsAttention() && v.Since != nil { // the worst is the first
			since, dated = *v.Since, true
		}
		ill, next = ill || v.State.NeedsAttention(), cmp.Or(next, v.Next)
		state += "; " + v.What
	}
	usage := Cell{}
	if t.Status.Usage == nil {
		usage.Text = "not counted yet"
	}
	for _, v := range report.Usage {
		usage.Bars = append(usage.Bars, Bar{Label: v.Source + ": " + v.What, Percent: v.Percent})
	}
	state = cmp.Or(strings.TrimPrefix(state, "; "), "Ready")
	row := Row{
		Ill: ill, settling: !ill && state != "Ready", also: []string{state, t.Status.Endpoint},
		Cells: append(cells(t.Name, state), moment(since), Cell{Text: tidy(t.Status.Proxies)}, usage),
	}
	about := about("kubectl mooring explain etcdstorage ", t.Name, "kubectl mooring status")
	row.trouble = trouble{dated: dated, Fault: Fault{
		What: t.Name + ": " + state, Command: about, Since: row.Cells[2].At, Next: tidy(next),
	}}
	if meta.IsStatusConditionTrue(t.Status.Conditions, "Reconciling") {
		row.trouble.Who = "etcd-storage-operator"
	}
	return row
}

func journalOf(w World, m matcher) List {
	l := List{
		Key: "journal", Title: "Recent steps", Problem: strings.Join(w.JournalProblems, "; "),
		Columns: []string{"When", "Component", "About", "Reason", "What"},
	}
	list := slices.SortedFunc(slices.Values(w.Entries), finding.Event.Compare)
	known := map[string]bool{}
	for _, r := range w.Machines {
		known[r.Machine] = true
	}
	rows := make([]Row, len(list))
	for i, e := range list {
		component := e.Source
		if e.Unverified {
			component = "unverified: " + component
		}
		rows[i] = Row{Ill: e.Warning && !e.Unverified,
			Cells: append([]Cell{moment(e.At)}, cells(component, e.About, e.Reason, e.Said())...)}
		if known[e.About] {
			rows[i].Cells[2].Machine = rows[i].Cells[2].Text
		}
	}
	return m.list(l, "step", rows)
}
