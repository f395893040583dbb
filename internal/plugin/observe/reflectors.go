// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/routereflector/clusterroutes"
	"github.com/mooring-dev/mooring/internal/topology"
)

// mostCounted is how many Nodes a cluster may have for its pods to be counted: to list those of a greater one takes longer than a person waits.
const mostCounted = 1000

// BGP is what all topologies' Worlds are made of.
type BGP struct {
	now        time.Time
	view       calico.BGPView
	cluster    string
	nodes      []*corev1.Node
	workloads  map[string]int
	Uncounted  string
	Topologies []v1alpha1.RouteReflectorTopology
	// Routes decide whether BGP carries routes between nodes. NoRoutes is why they could not be read, "" if they were.
	Routes   clusterroutes.Settings
	NoRoutes string
}

// ReadBGP reads it; served reports whether the cluster has the kind of topologies at all. Where there is no topology nothing else is read.
func ReadBGP(ctx context.Context, c *Cluster, config calico.Config, now clock.PassiveClock) (s BGP, served bool, err error) {
	if s.Topologies, served, err = c.Topologies(ctx); err != nil || len(s.Topologies) == 0 {
		return s, served, err
	}
	if err = s.look(ctx, c, config); err != nil {
		return s, true, err
	}
	if s.nodes, err = c.Nodes(ctx); err != nil {
		return s, true, err
	}
	s.workloads, s.Uncounted = countedPods(ctx, c, s.Topologies, len(s.nodes))
	s.now = c.ServerTime(now.Now())
	return s, true, nil
}

// World is the World of one topology. Nodes come from a list just made, so that what it shows is confirmed.
func (s BGP) World(at int) (w routereflector.World, unread []string) {
	w = routereflector.World{Now: s.now, Confirmed: true, Topology: *s.Topologies[at].DeepCopy()}
	v1alpha1.SetDefaults(&w.Topology)
	w.Others = slices.Delete(slices.Clone(s.Topologies), at, at+1)
	configuration, unread := s.view.Into(&w)
	if s.NoRoutes == "" {
		w.Uncarried = s.Routes.Judge().NotNeeded()
	}
	as := routereflector.ASNumberFrom(configuration)
	if s.cluster == "" {
		for _, n := range s.nodes {
			w.Nodes = append(w.Nodes, routereflector.NodeFrom(n, s.workloads[n.Name], as))
		}
	} else {
		b := routereflector.Binding{Cluster: s.cluster, Recorded: s.view.Recorded()}
		w.Nodes, b.Present, b.Referenced = routereflector.NodesFrom(s.view.Nodes, Values(s.nodes), s.workloads, as)
		w.Binding = &b
		for i := range w.Nodes {
			if w.Nodes[i].ReadySince.IsZero() {
				w.Nodes[i].ReadySince = s.now // since when a Calico Node has no Kubernetes Node is known to who watches
			}
		}
	}
	for i := range s.view.Statuses {
		if status := &s.view.Statuses[i]; status.Labels[v1alpha1.TopologyLabel] == w.Topology.Name {
			if sighting, filled := routereflector.SightingFrom(status); filled {
				w.Sightings = append(w.Sightings, sighting)
			}
		}
	}
	return w, unread
}

// Drawn is what the status of a topology and the Nodes show; one whose selector cannot be read has its status alone.
func (s BGP) Drawn(at int) topology.Map {
	all := s.Topologies[at : at+1]
	maps, err := topology.Maps(all, DrawnNodes(s.nodes))
	if err != nil {
		t := all[0].DeepCopy()
		t.Spec.ClientSelector = metav1.LabelSelector{}
		maps, _ = topology.Maps([]v1alpha1.RouteReflectorTopology{*t}, DrawnNodes(s.nodes)) // with the selector of all
	}
	return maps[0]
}

// look reads Calico's side of route reflectors, and the UID of the cluster where the datastore is alongside it.
func (s *BGP) look(ctx context.Context, c *Cluster, config calico.Config) error {
	routes := func(read func(context.Context) (clusterroutes.Settings, error)) {
		var err error
		s.Routes, err = read(ctx)
		s.NoRoutes = OneLine(err)
	}
	if config.Kind == calico.Kubernetes {
		bgp, err := calico.OpenBGP(ctx, c.Config)
		if err != nil {
			return err
		}
		routes(bgp.ClusterRoutes)
		s.view, err = bgp.Look(ctx)
		return err
	}
	system, err := c.Typed.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading namespace kube-system: %w", err)
	}
	etcd, err := calico.OpenEtcd(config.Etcd)
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }()
	routes(etcd.ClusterRoutes)
	s.cluster = string(system.UID)
	s.view, err = calico.NewBGPEtcd(etcd, s.cluster, clock.RealClock{}).Look(ctx)
	return err
}

// countedPods counts the pods of nodes if a topology wants to know; uncounted says why nobody did, although one does.
func countedPods(ctx context.Context, c *Cluster, topologies []v1alpha1.RouteReflectorTopology, nodes int) (counts map[string]int, uncounted string) {
	wanted := slices.ContainsFunc(topologies, func(t v1alpha1.RouteReflectorTopology) bool {
		v1alpha1.SetDefaults(&t)
		s := t.Spec.Reflectors
		return s.Dedicated || s.AvoidWorkloads == nil || *s.AvoidWorkloads
	})
	if !wanted {
		return nil, ""
	}
	if nodes > mostCounted {
		return nil, fmt.Sprintf("the cluster has more than %d Nodes", mostCounted)
	}
	counts = map[string]int{}
	ended := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	)
	pods, err := All[corev1.Pod](
		ctx, "pods", c.Typed.CoreV1().Pods(metav1.NamespaceAll).List, metav1.ListOptions{FieldSelector: ended.String()},
	)
	if err != nil {
		return nil, SideOf(err).Problem
	}
	for _, p := range pods {
		if routereflector.IsWorkload(p) {
			counts[p.Spec.NodeName]++
		}
	}
	return counts, ""
}

// Values are Nodes as the planners of route reflectors take them.
func Values(nodes []*corev1.Node) (values []corev1.Node) {
	for _, n := range nodes {
		values = append(values, *n)
	}
	return values
}

// DrawnNodes are the Nodes as far as drawings are concerned.
func DrawnNodes(nodes []*corev1.Node) []topology.Node {
	drawn := make([]topology.Node, len(nodes))
	anyone := false
	for i, n := range nodes {
		calico := routereflector.NodeFrom(n, 0, 0)
		speaks, notReady := calico.IPv4.IsValid() || calico.IPv6.IsValid(), calico.Ready != corev1.ConditionTrue
		drawn[i] = topology.Node{Name: n.Name, Labels: n.Labels, Speaks: speaks, NotReady: notReady, ClusterID: calico.ClusterID}
		anyone = anyone || drawn[i].Speaks
	}
	for i := range drawn {
		// With Calico's etcdv3 datastore no Node says its address here, so that each counts.
		drawn[i].Speaks = drawn[i].Speaks || !anyone
	}
	return drawn
}
