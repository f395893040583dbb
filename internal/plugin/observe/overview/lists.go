// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"

	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/ui"
)

// What ConfigMaps of calico-node-sync's journal are marked with (package nodesync/controller, which links a whole manager). Their data, which is
// large, is not read.
const (
	journalLabel   = "nodes.mooring.dev/journal"
	journalPart    = "nodes.mooring.dev/journal-part"
	journalHost    = "nodes.mooring.dev/host"
	journalBecause = "nodes.mooring.dev/because"
	journalTime    = "nodes.mooring.dev/time"
	journalSteps   = "nodes.mooring.dev/steps"
)

// mostEvents bounds how many Events of one component are shown.
const mostEvents = 4 * observe.Page

func balancerOf(s *corev1.Service) ui.Balancer {
	b := ui.Balancer{
		Namespace: s.Namespace, Name: s.Name, Created: s.CreationTimestamp.Time, Deleting: !s.DeletionTimestamp.IsZero(), ID: s.Annotations[annotation.LoadBalancerID],
		Local: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
	}
	if b.Deleting {
		b.DeletedAt = s.DeletionTimestamp.Time
	}
	if s.Spec.LoadBalancerClass != nil {
		b.Class = *s.Spec.LoadBalancerClass
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		b.Addresses = append(b.Addresses, cmp.Or(in.Hostname, in.IP))
	}
	for _, p := range s.Spec.Ports {
		b.Ports = append(b.Ports, ui.Port{Protocol: string(p.Protocol), Port: p.Port, Node: p.NodePort})
	}
	return b
}

// tenants fills in the EtcdStorages.
func (u *Reader) tenants(ctx context.Context, w *ui.World) {
	all, served, err := u.cluster.List(ctx, observe.EtcdStorages())
	if err != nil {
		w.TenantProblem = fmt.Sprintf("listing EtcdStorages: %v", err)
		return
	}
	w.TenantsAbsent = !served
	for i := range all {
		var s etcdv1alpha1.EtcdStorage
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all[i].Object, &s); err != nil {
			w.TenantProblem = fmt.Sprintf("decoding EtcdStorage %s: %v", all[i].GetName(), err)
			continue
		}
		w.Tenants = append(w.Tenants, tenantOf(&s, u.cluster.ServerTime(u.clock.Now())))
	}
}

func tenantOf(s *etcdv1alpha1.EtcdStorage, now time.Time) ui.Tenant {
	t := ui.Tenant{Name: s.Name, Endpoint: s.Status.Endpoint, Proxies: s.Status.Proxies, Deleting: !s.DeletionTimestamp.IsZero(), Counted: s.Status.Usage != nil}
	if ready := meta.FindStatusCondition(s.Status.Conditions, "Ready"); ready != nil {
		t.Ready, t.Reason, t.Message, t.Since = string(ready.Status), ready.Reason, ready.Message, ready.LastTransitionTime.Time
	}
	var trouble []string
	for _, section := range explain.EtcdStorage(explain.EtcdStorageEvidence{Now: now, Storage: *s}).Sections {
		for _, l := range section.Lines {
			if l.Attention && l.Topic != "pending" { // which ends by itself while an operator runs
				trouble = append(trouble, l.Topic+": "+l.Text)
			}
		}
	}
	t.Trouble = strings.Join(trouble, "; ")
	if usage := s.Status.Usage; usage != nil {
		limit := func(n *int64) int64 {
			if n == nil {
				return 0
			}
			return *n
		}
		bytes := int64(0)
		if bound := s.BytesBound(); bound != nil {
			bytes = bound.Value()
		}
		t.Usage = []ui.Usage{
			{What: "bytes", Used: usage.Bytes.Value(), Limit: bytes}, {What: "keys", Used: usage.Keys, Limit: limit(s.Spec.Quota.Keys)},
			{What: "leases", Used: usage.Leases, Limit: limit(s.Spec.Quota.Leases)},
		}
	}
	return t
}

// entries are the reported steps of the components, with a sentence for each place that could not be read.
func entries(ctx context.Context, c *observe.Cluster, services serviceEvents) (out []ui.Entry, problems []string) {
	journal, err := journal(ctx, c)
	if err != nil {
		problems = append(problems, err.Error())
	}
	out = journal
	events, whole, err := c.MooringEvents(ctx, mostEvents)
	if err != nil {
		return out, append(problems, err.Error())
	}
	if services.err != nil {
		problems = append(problems, services.err.Error())
	}
	for _, e := range append(events, services.list...) {
		if t := c.TrustIn(&e, services.keys); t != observe.Foreign {
			out = append(out, entryOf(&e, t))
		}
	}
	if !whole || !services.whole {
		problems = append(problems, fmt.Sprintf("a namespace has more than %d Events, of which some are not shown", mostEvents))
	}
	return out, problems
}

// journal reads what calico-node-sync keeps of what it removed, without the objects.
func journal(ctx context.Context, c *observe.Cluster) ([]ui.Entry, error) {
	client, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	var out []ui.Entry
	for _, namespace := range c.Namespaces { // others may have ConfigMaps with the same label in theirs
		maps := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)
		journal := metav1.ListOptions{LabelSelector: journalLabel}
		items, err := observe.All[metav1.PartialObjectMetadata](ctx, "the journal of "+observe.NodeSync, maps.List, journal)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			if part, _, _ := strings.Cut(item.Annotations[journalPart], "/"); part == "1" {
				out = append(out, journalEntry(item))
			}
		}
	}
	return out, nil
}

func journalEntry(item *metav1.PartialObjectMetadata) ui.Entry {
	recorded := item.Annotations
	at, err := time.Parse(time.RFC3339Nano, recorded[journalTime])
	if err != nil {
		at = item.CreationTimestamp.Time
	}
	steps, err := strconv.Atoi(recorded[journalSteps])
	text := prose.Plural(steps, "step")
	if err != nil {
		text = "steps"
	}
	return ui.Entry{At: at, Component: observe.NodeSync, About: recorded[journalHost], Reason: "Journaled", Text: text + ", because " + recorded[journalBecause]}
}

func entryOf(e *corev1.Event, t observe.Trust) ui.Entry {
	about := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
	if e.InvolvedObject.Namespace != "" {
		about = e.InvolvedObject.Kind + " " + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
	}
	at, times := observe.LastSeen(e)
	return ui.Entry{
		At: at, Component: observe.SourceOf(e), Unverified: t != observe.Verified, About: about, Reason: e.Reason, Text: e.Message, Times: max(int(times), 1), Warning: e.Type == corev1.EventTypeWarning,
	}
}
