// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// scene is what a round knows.
type scene struct {
	nodesync.World
	// plan is the latest of this round, which began then; reading is how long what it depends on took to read.
	plan    nodesync.Plan
	began   time.Time
	reading time.Duration
	// unread is why something could not be read or promised: nothing is done then.
	unread error
	// objects are the stored objects of the suspects, for the journal, and addresses what they hold.
	objects   map[string][]calico.Object
	addresses map[string][]calico.HeldAddress
	*work
}

// gather is the World as it is now, both sides and what is known from before, or an error; it never returns a part of it without one.
//
// Kubernetes is listed after Calico was read, so that a machine which joined in between is seen alive: a Calico Node cannot be older than
// the Kubernetes Node that it was started for.
func (r *Reconciler) gather(ctx context.Context, _ string) (s *scene, err error) {
	s = &scene{World: nodesync.World{Memory: r.memory}, began: r.Clock.Now(), work: &work{}}
	defer func() { s.unread, s.reading = err, r.Clock.Since(s.began) }()
	confirmation, err := r.recall(ctx)
	if err != nil {
		return s, fmt.Errorf("reading what was saved: %w", err)
	}
	s.World = nodesync.World{Now: r.Clock.Now(), Memory: r.memory, Confirmation: confirmation}
	snapshot, err := r.Datastore.Snapshot(ctx)
	if err != nil {
		return s, err
	}
	s.Calico = translateSnapshot(snapshot)
	if err := r.sweep(ctx, &s.World); err != nil {
		return s, err
	}
	s.World = s.WithStrays()
	// Synced is asked before the list: a watch that was filled in between could hold less than the list.
	s.Kubernetes.Synced = r.Cluster.Synced()
	if s.Kubernetes.Nodes, err = r.Cluster.ListNodes(ctx); err != nil {
		return s, fmt.Errorf("listing Kubernetes Nodes: %w", unknown(err))
	}
	if !snapshot.OwnCluster { // whose binding is judged by the UID
		if s.Kubernetes.ClusterUID, err = r.Cluster.UID(ctx); err != nil {
			return s, fmt.Errorf("reading namespace kube-system: %w", err)
		}
	}
	s.Sightings = r.Cluster.Sightings()
	return s, nil
}

// unknown says what to do where the API server does not know the client, of which it says one word.
func unknown(err error) error {
	if !apierrors.IsUnauthorized(err) {
		return err
	}
	return fmt.Errorf("%w: the server has asked for the client to provide credentials; check the token or the certificate",
		err)
}

// need is a kind of what a plan needs to know: what only concerns suspects is read for them alone.
type need string

const (
	needHeartbeats need = "heartbeats"
	needReports    need = "reports"
	needSuspects   need = "suspects"
	needPods       need = "pods"
	needAddresses  need = "addresses"
)

// needs are the kinds of what the plan of a scene needs, in the order in which it is read.
func (r *Reconciler) needs(of nodesync.Needs) (all []need) {
	due := []bool{
		len(of.Heartbeats) > 0 && r.Leftovers, len(of.Reports) > 0, len(of.Suspects) > 0, len(of.Pods) > 0 && r.Leftovers, len(of.Addresses) > 0,
	}
	for i, n := range []need{needHeartbeats, needReports, needSuspects, needPods, needAddresses} {
		if due[i] {
			all = append(all, n)
		}
	}
	return all
}

// satisfy reads what the plan of a scene needs of a kind. What cannot be read ends the round: a plan without would
// hold machines back.
func (r *Reconciler) satisfy(ctx context.Context, s *scene, n need) (_ reconcile.Learned, err error) {
	if s.unread != nil {
		return nil, nil
	}
	switch needs := s.plan.Needs; n {
	case needHeartbeats:
		for _, node := range needs.Heartbeats {
			s.Kubernetes.Heartbeats = append(s.Kubernetes.Heartbeats, r.Cluster.Heartbeat(ctx, node))
		}
	case needReports:
		var read []nodesync.Report
		read, err = r.Datastore.Reports(ctx, s.Calico.Revision, needs.Reports)
		s.Calico.Reports = append(s.Calico.Reports, read...)
	case needSuspects:
		err = r.observeSuspects(ctx, s, needs.Suspects)
	case needPods:
		s.Kubernetes.Pods = r.lookUpPods(ctx, needs.Pods)
	case needAddresses:
		if s.Kubernetes.PodAddresses, err = r.Cluster.PodsWithAddresses(ctx, needs.Addresses); err != nil {
			err = fmt.Errorf("asking which pods have the addresses of hosts without a Calico Node: %w", err)
		}
	}
	return func() { s.unread, s.reading = err, r.Clock.Since(s.began) }, err
}

// observeSuspects reads what both sides have of suspects.
func (r *Reconciler) observeSuspects(ctx context.Context, s *scene, suspects []nodesync.Subject) error {
	names, read := make([]string, len(suspects)), make([]nodesync.Kubernetes, len(suspects))
	group, live := workers(ctx, r.Workers)
	for i, of := range suspects {
		names[i] = of.Host
		group.Go(func() (err error) {
			k := &read[i]
			if of.Second {
				if k.CalicoPods, err = r.Cluster.CalicoPods(live, of.KubernetesNode); err != nil {
					return fmt.Errorf("listing the calico-node pods of %s: %w", of.KubernetesNode, err)
				}
			}
			for _, name := range r.Config.NamesOf(of) {
				k.Lookups = append(k.Lookups, r.Cluster.LookUp(live, name))
				pods, err := r.Cluster.RunningPods(live, name)
				if err != nil {
					return fmt.Errorf("listing pods bound to %s: %w", name, err)
				}
				k.RunningPods = append(k.RunningPods, pods)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, k := range read {
		s.Kubernetes.CalicoPods = append(s.Kubernetes.CalicoPods, k.CalicoPods...)
		s.Kubernetes.Lookups = append(s.Kubernetes.Lookups, k.Lookups...)
		s.Kubernetes.RunningPods = append(s.Kubernetes.RunningPods, k.RunningPods...)
	}
	hosts, err := r.Datastore.Hosts(ctx, s.Calico.Revision, names)
	if err != nil {
		return err
	}
	s.objects, s.addresses = make(map[string][]calico.Object, len(hosts)), make(map[string][]calico.HeldAddress, len(hosts))
	s.Calico.Hosts = make([]nodesync.Host, 0, len(hosts))
	for _, h := range hosts {
		s.Calico.Hosts = append(s.Calico.Hosts, h.Host)
		s.objects[h.Name], s.addresses[h.Name] = h.Objects, h.Addresses
	}
	return nil
}

func translateSnapshot(s calico.Snapshot) nodesync.Calico {
	c := nodesync.Calico{
		Revision: s.Revision, Ready: s.DatastoreReady, Unreadable: s.Unreadable, Nodes: make([]nodesync.CalicoNode, 0, len(s.Nodes)),
		Binding: nodesync.Binding{
			ClusterUID: s.ClusterInformation.Annotations[nodesync.BindingAnnotation], Revision: s.ClusterInformation.Revision, Implied: s.OwnCluster,
		},
	}
	for _, n := range s.Nodes {
		c.Nodes = append(c.Nodes, CalicoNode(n))
	}
	for _, name := range s.ResourceHosts {
		c.Nodes = append(c.Nodes, nodesync.OnlyMentioned(name))
	}
	return c
}

// CalicoNode is a Calico Node as a plan sees it.
func CalicoNode(n calico.Node) nodesync.CalicoNode {
	keep, annotated := n.Annotations[nodesync.KeepAnnotation]
	return nodesync.CalicoNode{
		Name: n.Name, Revision: n.Revision, FencedFor: n.Annotations[nodesync.FenceAnnotation], Keep: annotated && keep != "false", Implied: n.Implied,
		OrchRefs: n.OrchRefs,
	}
}
