// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// The group of the spines, and the one whose reflectors have no label ([v1alpha1.GroupLabel]). In a flat topology no node has labels of groups.
const (
	spine      = "spine"
	firstGroup = "1"
)

// GroupedAbove is the number of nodes above which drawings show how many clients a zone has instead of their names.
const GroupedAbove = 200

// Node is a Kubernetes Node, as far as a drawing is concerned.
type Node struct {
	Name   string
	Labels map[string]string
	// Speaks reports that the node speaks BGP as far as is known, so that it may be a client.
	Speaks bool
	// NotReady reports that the Node does not have the condition Ready: what a status says of its sessions may be older than that.
	NotReady bool
	// ClusterID is the one that Calico's annotation has, "" if Calico keeps it elsewhere.
	ClusterID string
}

// Map is one topology as it is seen. Its JSON form is a contract with programs.
type Map struct {
	Name     string `json:"name"`
	Phase    string `json:"phase,omitempty"`
	Mode     string `json:"mode,omitempty"`
	Mesh     string `json:"mesh,omitempty"`
	Clients  int    `json:"clients"`
	Sessions string `json:"sessions,omitempty"` // established/expected, empty while nobody has counted
	// WaitingFor is what the operator waits for, empty for nothing.
	WaitingFor string `json:"waitingFor,omitempty"`
	// Since is when its operator began with the steps that it takes, nil while it takes none.
	Since *time.Time `json:"since,omitempty"`
	// Troubles are what its operator reports to be wrong with it as a whole.
	Troubles []string `json:"troubles,omitempty"`
	// Spares are the nodes that take the place of lost reflectors, or would.
	Spares []v1alpha1.Spare `json:"spares,omitempty"`
	// Groups are the spines first, then the groups by number, then clients that are in no group.
	Groups []Group `json:"groups"`
}

// Group is reflectors of one cluster ID, and their clients.
type Group struct {
	// Name is empty in a flat topology, "spine", or a number; "none" holds clients whose group has no reflectors.
	Name       string      `json:"name,omitempty"`
	ClusterID  string      `json:"clusterID,omitempty"`
	Clients    int         `json:"clients"`
	Reflectors []Reflector `json:"reflectors,omitempty"`
	Zones      []Zone      `json:"zones,omitempty"`
}

// Reflector is a node that is a reflector, becomes one, or ceases to be one.
type Reflector struct {
	Node string `json:"node"`
	Zone string `json:"zone,omitempty"`
	// Role is Reflector, Joining or Leaving; NotReported for a Node that has the label although the topology's status does not list it.
	Role string `json:"role"`
	// Expected and Established count its sessions with clients, by the topology's status.
	Expected    int `json:"expected"`
	Established int `json:"established"`
	// Missing reports that there is no Node of that name, NotReady that it is not Ready.
	Missing  bool `json:"missing,omitempty"`
	NotReady bool `json:"notReady,omitempty"`
	// Unlike is how its Node differs from what the topology's status has of it, "" if it does not.
	Unlike string `json:"unlike,omitempty"`
}

// NotReported is the role of a Node that has a topology's label although the topology's status does not list it.
const NotReported = "NotReported"

// Zone is the clients of a group in one zone.
type Zone struct {
	// Name is the value of the topology's first topology key, empty where nodes have none.
	Name    string   `json:"name,omitempty"`
	Clients []string `json:"clients"`
}

// Maps returns the observed state of each topology, in the order of their names. The order of the lists does not matter.
// An error is one sentence about a spec.clientSelector that cannot be read.
func Maps(topologies []v1alpha1.RouteReflectorTopology, nodes []Node) ([]Map, error) {
	out := make([]Map, 0, len(topologies))
	for i := range topologies {
		m, err := mapOf(&topologies[i], nodes)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Map) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// troubles are the conditions that are not as they must be. One that nobody has reported is none.
func troubles(t *v1alpha1.RouteReflectorTopology) (out []string) {
	for _, c := range t.Status.Conditions {
		bad := map[string]metav1.ConditionStatus{
			v1alpha1.ConditionAccepted: metav1.ConditionFalse, v1alpha1.ConditionDegraded: metav1.ConditionTrue, v1alpha1.ConditionFrozen: metav1.ConditionTrue,
		}
		if status, known := bad[c.Type]; known && c.Status == status {
			out = append(out, fmt.Sprintf("%s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return out
}

func mapOf(t *v1alpha1.RouteReflectorTopology, nodes []Node) (Map, error) {
	m := Map{
		Name: t.Name, Phase: string(t.Status.Phase), Mode: string(t.Status.Mode), Mesh: string(t.Status.Mesh),
		Sessions: t.Status.Sessions.Summary, Troubles: troubles(t), Spares: t.Status.Spares,
	}
	for _, c := range t.Status.Conditions {
		if c.Type == v1alpha1.ConditionProgressing && c.Status == metav1.ConditionTrue {
			at := c.LastTransitionTime.UTC()
			m.Since = &at
		}
	}
	if t.Status.Plan != nil {
		m.WaitingFor = t.Status.Plan.WaitingFor
	}
	selector, err := metav1.LabelSelectorAsSelector(&t.Spec.ClientSelector)
	if err != nil {
		return m, fmt.Errorf("spec.clientSelector of RouteReflectorTopology %s: %w", t.Name, err)
	}
	b := newBuilder(t, nodes)
	for _, node := range nodes {
		if !b.isReflector[node.Name] && node.Speaks && selector.Matches(labels.Set(node.Labels)) {
			b.client(node)
			m.Clients++
		}
	}
	m.Groups = b.sorted()
	return m, nil
}

// builder gathers the groups of one topology.
type builder struct {
	zoneKey     string
	groups      map[string]*Group
	zones       map[[2]string]*Zone
	isReflector map[string]bool
	// hierarchical reports that there is a group alongside the first.
	hierarchical bool
}

// unlike is how a reflector's Node differs from a topology's status.
func (n Node) unlike(topology, clusterID string) string {
	switch {
	case n.Labels[v1alpha1.ReflectorLabel] != topology:
		return "its Node does not have the label " + v1alpha1.ReflectorLabel
	case clusterID != "" && n.ClusterID != "" && n.ClusterID != clusterID:
		return "its Node has the cluster ID " + n.ClusterID + ", not " + clusterID
	}
	return ""
}

func newBuilder(t *v1alpha1.RouteReflectorTopology, nodes []Node) *builder {
	b := &builder{
		zoneKey: corev1.LabelTopologyZone, groups: map[string]*Group{}, zones: map[[2]string]*Zone{}, isReflector: map[string]bool{},
	}
	if len(t.Spec.TopologyKeys) > 0 {
		b.zoneKey = t.Spec.TopologyKeys[0]
	}
	byName := make(map[string]Node, len(nodes))
	for _, node := range nodes {
		byName[node.Name] = node
	}
	labeled := slices.ContainsFunc(t.Status.Reflectors, func(r v1alpha1.ReflectorStatus) bool {
		return byName[r.Node].Labels[v1alpha1.ReflectorLabel] == t.Name
	})
	for _, r := range t.Status.Reflectors {
		node, there := byName[r.Node]
		unlike := ""
		if there && r.Role == "Reflector" && labeled { // with Calico's etcdv3 datastore no Node has the label
			unlike = node.unlike(t.Name, r.ClusterID)
		}
		b.reflector(cmp.Or(node.Labels[v1alpha1.GroupLabel], r.Group, firstGroup), r.ClusterID, Reflector{
			Node: r.Node, Zone: cmp.Or(r.Zone, node.Labels[b.zoneKey]), Role: r.Role, Expected: int(r.Clients), Established: int(r.Established), Missing: !there, NotReady: node.NotReady,
			Unlike: unlike,
		})
	}
	for _, node := range nodes {
		if node.Labels[v1alpha1.ReflectorLabel] == t.Name && !b.isReflector[node.Name] {
			b.reflector(cmp.Or(node.Labels[v1alpha1.GroupLabel], firstGroup), "", Reflector{Node: node.Name, Zone: node.Labels[b.zoneKey], Role: NotReported, NotReady: node.NotReady})
		}
	}
	if len(b.groups) == 0 {
		b.groups[firstGroup] = &Group{Name: firstGroup} // whose clients are still without reflectors
	}
	if g := b.groups[firstGroup]; g != nil && g.ClusterID == "" {
		g.ClusterID = t.Spec.ClusterID
	}
	b.hierarchical = len(b.groups) > 1 || b.groups[firstGroup] == nil
	return b
}

func (b *builder) reflector(group, clusterID string, r Reflector) {
	b.isReflector[r.Node] = true
	g := b.groups[group]
	if g == nil {
		g = &Group{Name: group}
		b.groups[group] = g
	}
	// During a change of the ID both are about; the greater is shown, whatever the order.
	g.ClusterID = max(g.ClusterID, clusterID)
	g.Reflectors = append(g.Reflectors, r)
}

// none is the group of clients of a hierarchy whose label names no group that has reflectors.
const none = "none"

func (b *builder) client(node Node) {
	group := firstGroup
	if b.hierarchical {
		if group = node.Labels[v1alpha1.ClientLabel]; group == spine || b.groups[group] == nil {
			group = none
		}
	}
	g := b.groups[group]
	if g == nil {
		g = &Group{Name: group}
		b.groups[group] = g
	}
	g.Clients++
	key := [2]string{group, node.Labels[b.zoneKey]}
	if b.zones[key] == nil {
		b.zones[key] = &Zone{Name: key[1]}
	}
	b.zones[key].Clients = append(b.zones[key].Clients, node.Name)
}

func (b *builder) sorted() []Group {
	for key, zone := range b.zones {
		slices.Sort(zone.Clients)
		b.groups[key[0]].Zones = append(b.groups[key[0]].Zones, *zone)
	}
	out := make([]Group, 0, len(b.groups))
	for _, g := range b.groups {
		slices.SortFunc(g.Reflectors, func(x, y Reflector) int { return cmp.Compare(x.Node, y.Node) })
		slices.SortFunc(g.Zones, func(x, y Zone) int { return cmp.Compare(x.Name, y.Name) })
		if !b.hierarchical {
			g.Name = ""
		}
		out = append(out, *g)
	}
	slices.SortFunc(out, func(x, y Group) int {
		return cmp.Or(cmp.Compare(rank(x.Name), rank(y.Name)), cmp.Compare(x.Name, y.Name))
	})
	return out
}

// rank puts the spines first, then numbers in their order, then everything else.
func rank(group string) int {
	number, err := strconv.Atoi(group)
	switch {
	case group == spine:
		return -1
	case err == nil:
		return number
	}
	return 1 << 30
}

// grouped reports whether the drawing of these topologies shows counts instead of names.
func grouped(maps []Map) bool {
	nodes := 0
	for _, m := range maps {
		nodes += m.Clients
		for _, g := range m.Groups {
			nodes += len(g.Reflectors)
		}
	}
	return nodes > GroupedAbove
}

// Title is a topology in one line.
func (m Map) Title() string {
	reflectors := 0
	for _, g := range m.Groups {
		reflectors += len(g.Reflectors)
	}
	text := "Topology " + m.Name + ": " + cmp.Or(m.Phase, "no status yet")
	if m.Mode != "" {
		text += ", " + m.Mode
	}
	text += ", " + prose.Plural(m.Clients, "client") + " of " + prose.Plural(reflectors, "reflector")
	if m.Sessions != "" {
		text += ", sessions " + m.Sessions
	}
	if m.Mesh != "" {
		text += ", mesh " + m.Mesh
	}
	return text
}

// heading is a group in one line.
func (g Group) heading() string {
	name := "group " + g.Name
	switch g.Name {
	case "":
		name = "one group"
	case spine:
		name = "spines"
	case none:
		return "without a group: " + prose.Plural(g.Clients, "client")
	}
	if g.ClusterID != "" {
		name += " (cluster ID " + g.ClusterID + ")"
	}
	name += ": " + prose.Plural(len(g.Reflectors), "reflector")
	if g.Name != spine {
		name += ", " + prose.Plural(g.Clients, "client")
	}
	return name
}

// State is a reflector's state in a few words, and whether it is fine. What the status reports of a Node that is NotReady is shown as a last report.
func (r Reflector) State() (text string, well bool) {
	switch {
	case r.Missing:
		return "there is no such Node", false
	case r.Role == NotReported:
		return "has the label, but the topology's status does not list it", false
	}
	if text = "no clients"; r.Expected > 0 {
		text = fmt.Sprintf("%d/%d sessions", r.Established, r.Expected)
	}
	if r.Role != "Reflector" {
		text = r.Role + ", " + text
	}
	if r.NotReady {
		return "the Node is NotReady; last report: " + text, false
	}
	if r.Unlike != "" {
		return r.Unlike + "; last report: " + text, false
	}
	if r.Role != "Reflector" {
		return text, false
	}
	return text, r.Established >= r.Expected
}

// label is the zone's name for people.
func (z Zone) label() string {
	if z.Name == "" {
		return "no zone"
	}
	return "zone " + z.Name
}
