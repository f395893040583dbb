// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs through it, to the person at the terminal
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/nodesync"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// mostCounted is how many Nodes a cluster may have for its pods to be counted: to list those of a greater one takes longer than a person waits.
const mostCounted = 1000

// node explains a machine that any side knows.
func (e *explainCommand) node(ctx context.Context, name string) (explain.Explanation, error) {
	w, err := (&agreementCommand{env: e.env, clock: e.clock}).world(ctx)
	if err != nil {
		return explain.Explanation{}, err
	}
	rows, err := only(agreement.Rows(w), []string{name})
	if err != nil {
		return explain.Explanation{}, err
	}
	c, err := e.env.cluster()
	if err != nil {
		return explain.Explanation{}, err
	}
	config, err := calicoConfig()
	if err != nil {
		return explain.Explanation{}, err
	}
	if config.Kind == calico.EtcdV3 {
		logrus.SetOutput(io.Discard) // libcalico-go's; what cannot be read is said
	}
	evidence := explain.NodeEvidence{Name: name, Machine: rows[0]}
	for _, side := range sidesOf(w) {
		if side.side.NotAsked != "" {
			evidence.NotAsked = append(evidence.NotAsked, explain.Named{Name: side.name, Text: side.side.NotAsked})
		}
	}
	for _, n := range w.Calico.Nodes {
		if n.Kubernetes == name {
			evidence.CalicoNames = append(evidence.CalicoNames, n.Name)
		}
	}
	evidence.NodeSync, evidence.Reflectors.Side = explain.NodeSync{Side: explain.Side(w.Calico.Side)}, explain.Side(w.Calico.Side)
	if w.Calico.Side == (agreement.Side{}) {
		evidence.NodeSync = e.nodeSync(ctx, c, config)
		evidence.Reflectors = e.reflectors(ctx, c, config, append([]string{name}, evidence.CalicoNames...))
	}
	evidence.Events, evidence.EventsRead = c.eventsOfMachine(ctx, append([]string{name}, evidence.CalicoNames...))
	evidence.Now = e.clock.Now()
	return explain.Node(evidence), nil
}

// nodeSync plans as calico-node-sync would without flags, with what a running one remembers if that is found.
func (e *explainCommand) nodeSync(ctx context.Context, c *cluster, config calico.Config) explain.NodeSync {
	limits := nodesync.DefaultConfig()
	limits.SweepPeriod = 0 // what no Node leads to is not this machine's
	out := explain.NodeSync{Grace: limits.Grace}
	store, done, err := openStore(c, config)
	if err != nil {
		return explain.NodeSync{Side: sideOf(err)}
	}
	defer done()
	live, err := nodesynccontroller.NewLive(c.config)
	if err != nil {
		return explain.NodeSync{Side: sideOf(err)}
	}
	var state nodesynccontroller.State
	if namespace := c.stateNamespace(ctx); namespace != "" {
		state = &nodesynccontroller.ConfigMapState{Client: live, Namespace: namespace, Name: nodesynccontroller.StateName}
	}
	watched, err := nodesynccontroller.WatchKept(ctx, state, limits, e.clock.Now())
	if err != nil {
		return explain.NodeSync{Side: sideOf(fmt.Errorf("reading what calico-node-sync remembers: %w", err))}
	}
	if watched {
		out.Memory = "that of the running controller"
	}
	limits.OneShot = !watched
	out.Plan, err = nodesynccontroller.NewOneShot(limits, store, nodesynccontroller.ReadOnce(live, e.clock), state, clock.RealClock{}).Preview(ctx)
	out.Side = sideOf(err)
	return out
}

// openStore connects to Calico's datastore; done ends that.
func openStore(c *cluster, config calico.Config) (store nodesynccontroller.Datastore, done func(), err error) {
	if config.Kind == calico.Kubernetes {
		kubernetes, err := calico.OpenKubernetes(c.config)
		return kubernetes, func() {}, err
	}
	etcd, err := calico.OpenEtcd(config.Etcd)
	if err != nil {
		return nil, nil, err
	}
	return etcd, func() { _ = etcd.Close() }, nil
}

// stateNamespace is where a calico-node-sync keeps what it remembers, "" if none is found, or several, or nobody may look.
func (c *cluster) stateNamespace(ctx context.Context) string {
	list, err := c.typed.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, nodesynccontroller.StateName).String(),
	})
	if err != nil || len(list.Items) != 1 {
		return ""
	}
	return list.Items[0].Namespace
}

// reflectors plans as the route reflectors' operator would, for each topology.
func (e *explainCommand) reflectors(ctx context.Context, c *cluster, config calico.Config, names []string) explain.Reflectors {
	topologies, served, err := c.topologies(ctx)
	switch {
	case err != nil:
		return explain.Reflectors{Side: sideOf(err)}
	case !served:
		return explain.Reflectors{Side: explain.Side{NotAsked: "there is no kind RouteReflectorTopology"}}
	case len(topologies) == 0:
		return explain.Reflectors{}
	}
	view, cluster, err := lookAtBGP(ctx, c, config)
	if err != nil {
		return explain.Reflectors{Side: sideOf(err)}
	}
	nodes, err := c.nodes(ctx)
	if err != nil {
		return explain.Reflectors{Side: sideOf(err)}
	}
	s := bgpScene{now: e.clock.Now(), view: view, cluster: cluster, nodes: nodes, topologies: topologies}
	s.workloads, s.uncounted = c.workloads(ctx, topologies, len(nodes))
	var out explain.Reflectors
	for i := range s.topologies {
		w, unread := s.world(i)
		t := explain.Topology{World: w, Plan: routereflector.Make(w), Unread: unread, PodsUncounted: s.uncounted, Node: names[0]}
		for _, n := range w.Nodes {
			if slices.Contains(names[1:], n.Name) {
				t.Node = n.Name
			}
		}
		out.Topologies = append(out.Topologies, t)
	}
	return out
}

// lookAtBGP reads Calico's side of route reflectors. cluster is the UID of the cluster where the datastore is beside it, else "".
func lookAtBGP(ctx context.Context, c *cluster, config calico.Config) (view calico.BGPView, cluster string, err error) {
	if config.Kind == calico.Kubernetes {
		bgp, err := calico.OpenBGP(ctx, c.config)
		if err != nil {
			return view, "", err
		}
		view, err = bgp.Look(ctx)
		return view, "", err
	}
	system, err := c.typed.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return view, "", fmt.Errorf("reading namespace kube-system: %w", err)
	}
	etcd, err := calico.OpenEtcd(config.Etcd)
	if err != nil {
		return view, "", err
	}
	defer func() { _ = etcd.Close() }()
	cluster = string(system.UID)
	view, err = calico.NewBGPEtcd(etcd, cluster, clock.RealClock{}).Look(ctx)
	return view, cluster, err
}

// workloads counts the pods of nodes if a topology wants to know; uncounted says why nobody did, although one does.
func (c *cluster) workloads(ctx context.Context, topologies []v1alpha1.RouteReflectorTopology, nodes int) (counts map[string]int, uncounted string) {
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
	options := metav1.ListOptions{Limit: listPage, FieldSelector: fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	).String()}
	for {
		page, err := c.typed.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, sideOf(fmt.Errorf("listing pods: %w", err)).Problem
		}
		for i := range page.Items {
			if p := &page.Items[i]; routereflector.IsWorkload(p) {
				counts[p.Spec.NodeName]++
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return counts, ""
		}
	}
}

// bgpScene is what all topologies' Worlds are made of.
type bgpScene struct {
	now        time.Time
	view       calico.BGPView
	cluster    string
	nodes      []corev1.Node
	workloads  map[string]int
	uncounted  string
	topologies []v1alpha1.RouteReflectorTopology
}

// world is the World of one topology. Nodes come from a list just made, so that what it shows is confirmed.
func (s bgpScene) world(at int) (w routereflector.World, unread []string) {
	w = routereflector.World{Now: s.now, Confirmed: true, Topology: *s.topologies[at].DeepCopy()}
	v1alpha1.SetDefaults(&w.Topology)
	w.Others = slices.Delete(slices.Clone(s.topologies), at, at+1)
	configuration, unread := s.view.Into(&w)
	as := routereflector.ASNumberFrom(configuration)
	if s.cluster == "" {
		for i := range s.nodes {
			w.Nodes = append(w.Nodes, routereflector.NodeFrom(&s.nodes[i], s.workloads[s.nodes[i].Name], as))
		}
	} else {
		b := routereflector.Binding{Cluster: s.cluster, Recorded: s.view.Recorded()}
		w.Nodes, b.Present, b.Referenced = routereflector.NodesFrom(s.view.Nodes, s.nodes, s.workloads, as)
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
