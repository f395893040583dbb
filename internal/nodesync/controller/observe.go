// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
)

// observe adds both sides to what is known already and so gathers a whole World, or returns an error; it never returns a part of one.
//
// Kubernetes is listed after Calico was read, so that a machine which joined in between is seen alive: a Calico Node cannot be older than
// the Kubernetes Node that it was started for. What only concerns suspects is read for them alone.
func (r *Reconciler) observe(ctx context.Context, w nodesync.World) (nodesync.World, error) {
	snapshot, err := r.Datastore.Snapshot(ctx)
	if err != nil {
		return w, err
	}
	w.Calico = translateSnapshot(snapshot)
	if err := r.sweep(ctx, &w, snapshot.Revision); err != nil {
		return w, err
	}
	// Synced is asked before the list: a watch that was filled in between could hold less than the list.
	w.Kubernetes.Synced = r.Cluster.Synced()
	if w.Kubernetes.Nodes, err = r.Cluster.ListNodes(ctx); err != nil {
		return w, fmt.Errorf("listing Kubernetes Nodes: %w", err)
	}
	if w.Kubernetes.ClusterUID, err = r.Cluster.UID(ctx); err != nil {
		return w, fmt.Errorf("reading namespace kube-system: %w", err)
	}
	w.Sightings = r.Cluster.Sightings()
	if len(w.Memory.Leftovers)+len(w.Calico.Leftovers) > 0 {
		r.observeLeftovers(ctx, &w)
	}
	suspects, reports := nodesync.Suspects(w, r.effective())
	if len(reports) > 0 && !snapshot.OwnCluster {
		read, err := r.Datastore.Reports(ctx, snapshot.Revision, reports)
		if err != nil {
			return w, err
		}
		for _, report := range read {
			w.Calico.Reports = append(w.Calico.Reports, nodesync.Report(report))
		}
	}
	if len(suspects) == 0 {
		return w, nil
	}
	return w, r.observeSuspects(ctx, &w, snapshot.Revision, suspects)
}

func (r *Reconciler) observeSuspects(ctx context.Context, w *nodesync.World, revision int64, suspects []nodesync.Subject) error {
	names, read := make([]string, len(suspects)), make([]nodesync.Kubernetes, len(suspects))
	group, live := workers(ctx, r.Workers)
	for i, s := range suspects {
		names[i] = s.Host
		group.Go(func() (err error) {
			read[i], err = readSuspect(live, r.Cluster, s, r.Config)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, k := range read {
		w.Kubernetes.CalicoPods = append(w.Kubernetes.CalicoPods, k.CalicoPods...)
		w.Kubernetes.Lookups = append(w.Kubernetes.Lookups, k.Lookups...)
		w.Kubernetes.RunningPods = append(w.Kubernetes.RunningPods, k.RunningPods...)
	}
	hosts, err := r.Datastore.Hosts(ctx, revision, names)
	if err != nil {
		return err
	}
	r.forgetEmpty(hosts)
	w.Calico.Hosts = translateHosts(hosts)
	r.objects, r.addresses = make(map[string][]calico.Object, len(hosts)), make(map[string][]calico.HeldAddress, len(hosts))
	for _, h := range hosts {
		r.objects[h.Name] = h.Objects
		r.addresses[h.Name] = h.Addresses
	}
	return r.observeAddresses(ctx, w, nodesync.Orphans(*w, suspects))
}

// readSuspect reads what Kubernetes says of one suspect.
func readSuspect(
	ctx context.Context, cluster Cluster, s nodesync.Subject, c nodesync.Config,
) (k nodesync.Kubernetes, err error) {
	if s.Second {
		if k.CalicoPods, err = cluster.CalicoPods(ctx, s.KubernetesNode); err != nil {
			return k, fmt.Errorf("listing the calico-node pods of %s: %w", s.KubernetesNode, err)
		}
	}
	for _, name := range c.NamesOf(s) {
		k.Lookups = append(k.Lookups, cluster.LookUp(ctx, name))
		pods, err := cluster.RunningPods(ctx, name)
		if err != nil {
			return k, fmt.Errorf("listing pods bound to %s: %w", name, err)
		}
		k.RunningPods = append(k.RunningPods, pods)
	}
	return k, nil
}

// observeAddresses asks which addresses of hosts without identity a running pod has, and whether the pods exist whose
// endpoints are under a name that is not all that its machine goes by.
func (r *Reconciler) observeAddresses(ctx context.Context, w *nodesync.World, orphans map[string]bool) error {
	var addresses []netip.Addr
	for _, h := range w.Calico.Hosts {
		exact, orphan := orphans[h.Name]
		for _, e := range h.Endpoints {
			if exact && r.LeftoverCluster != nil {
				w.Kubernetes.Pods = append(w.Kubernetes.Pods, r.LeftoverCluster.LookUpPod(ctx, e.Namespace, e.Pod))
			}
		}
		for _, b := range h.Blocks {
			for _, a := range b.Allocations {
				if a.Host == h.Name && orphan {
					addresses = append(addresses, a.Address)
				}
			}
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	var err error
	if w.Kubernetes.PodAddresses, err = r.Cluster.PodsWithAddresses(ctx, addresses); err != nil {
		return fmt.Errorf("asking which pods have the addresses of hosts without a Calico Node: %w", err)
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
		keep, annotated := n.Annotations[nodesync.KeepAnnotation]
		node := nodesync.CalicoNode{
			Name: n.Name, Revision: n.Revision, FencedFor: n.Annotations[nodesync.FenceAnnotation], Keep: annotated && keep != "false", Implied: n.Implied,
		}
		for _, ref := range n.OrchRefs {
			node.OrchRefs = append(node.OrchRefs, nodesync.OrchRef(ref))
		}
		c.Nodes = append(c.Nodes, node)
	}
	for _, name := range s.ResourceHosts {
		c.Nodes = append(c.Nodes, onlyMentioned(name))
	}
	return c
}

func translateHosts(hosts []calico.Host) []nodesync.Host {
	out := make([]nodesync.Host, 0, len(hosts))
	for _, h := range hosts {
		host := nodesync.Host{Name: h.Name, Unreadable: h.Unreadable, Mentions: h.Mentions, IPCooldown: h.IPCooldown}
		for _, x := range h.Resources {
			host.Resources = append(host.Resources, nodesync.Resource{
				Kind: nodesync.ResourceKind(x.Kind), Name: x.Name, Revision: x.Revision, Automatic: x.Automatic, StatusAt: x.StatusAt,
			})
		}
		for _, e := range h.Endpoints {
			host.Endpoints = append(host.Endpoints, nodesync.Endpoint(e))
		}
		for _, a := range h.Affinities {
			host.Affinities = append(host.Affinities, nodesync.Affinity(a))
		}
		for _, b := range h.Blocks {
			block := nodesync.Block{CIDR: b.CIDR, AffineTo: b.AffineTo}
			for _, a := range b.Allocations {
				block.Allocations = append(block.Allocations, nodesync.Allocation{
					Address: a.Address, Handle: a.Handle, Sequence: a.Sequence, Host: a.Host, ReleasedAt: a.ReleasedAt, AssignedAt: a.AssignedAt,
					VirtualMachine: a.VirtualMachine, AlternateHost: a.AlternateHost, Unknown: a.Unknown,
				})
			}
			host.Blocks = append(host.Blocks, block)
		}
		out = append(out, host)
	}
	return out
}
