// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"

	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/ui"
)

// What ConfigMaps of calico-node-sync's journal are marked with (package nodesync/controller, which links a whole manager). Their data, which is
// large, is not read.
const (
	journalComponent = "calico-node-sync"
	journalLabel     = "nodes.mooring.dev/journal"
	journalPart      = "nodes.mooring.dev/journal-part"
	journalHost      = "nodes.mooring.dev/host"
	journalBecause   = "nodes.mooring.dev/because"
	journalTime      = "nodes.mooring.dev/time"
	journalSteps     = "nodes.mooring.dev/steps"
)

// mostEvents bounds how many Events of one component are shown.
const mostEvents = 4 * listPage

// balancers lists the Services of type LoadBalancer.
func (c *cluster) balancers(ctx context.Context) ([]ui.Balancer, error) {
	var out []ui.Balancer
	options := metav1.ListOptions{Limit: listPage}
	for {
		list, err := c.typed.CoreV1().Services(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing Services: %w", err)
		}
		for i := range list.Items {
			if s := &list.Items[i]; s.Spec.Type == corev1.ServiceTypeLoadBalancer {
				out = append(out, balancerOf(s))
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

func balancerOf(s *corev1.Service) ui.Balancer {
	b := ui.Balancer{
		Namespace: s.Namespace, Name: s.Name, Created: s.CreationTimestamp.Time, Deleting: !s.DeletionTimestamp.IsZero(), ID: s.Annotations[annotation.LoadBalancerID],
		Local: s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
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
func (u *uiReader) tenants(ctx context.Context, w *ui.World) {
	resource := etcdv1alpha1.GroupVersion.WithResource("etcdstorages")
	options := metav1.ListOptions{Limit: listPage}
	for {
		list, err := u.cluster.dynamic.Resource(resource).List(ctx, options)
		if apierrors.IsNotFound(err) {
			w.TenantsAbsent = true
			return
		}
		if err != nil {
			w.TenantProblem = fmt.Sprintf("listing EtcdStorages: %v", err)
			return
		}
		for i := range list.Items {
			var s etcdv1alpha1.EtcdStorage
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &s); err != nil {
				w.TenantProblem = fmt.Sprintf("decoding EtcdStorage %s: %v", list.Items[i].GetName(), err)
				continue
			}
			w.Tenants = append(w.Tenants, tenantOf(&s))
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return
		}
	}
}

func tenantOf(s *etcdv1alpha1.EtcdStorage) ui.Tenant {
	t := ui.Tenant{Name: s.Name, Endpoint: s.Status.Endpoint, Proxies: s.Status.Proxies, Deleting: !s.DeletionTimestamp.IsZero(), Counted: s.Status.Usage != nil}
	if ready := meta.FindStatusCondition(s.Status.Conditions, "Ready"); ready != nil {
		t.Ready, t.Reason, t.Message, t.Since = string(ready.Status), ready.Reason, ready.Message, ready.LastTransitionTime.Time
	}
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
func (c *cluster) entries(ctx context.Context) (out []ui.Entry, problems []string) {
	journal, err := c.journal(ctx)
	if err != nil {
		problems = append(problems, err.Error())
	}
	out = journal
	events, whole, err := c.mooringEvents(ctx, mostEvents)
	if err != nil {
		return out, append(problems, err.Error())
	}
	// Events about Services are in the Services' namespaces, where their authors may write Events as well.
	services, wholeToo, err := c.events(ctx, metav1.NamespaceAll, fields.Set{"involvedObject.kind": "Service"}, mostEvents)
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, e := range append(events, services...) {
		if t := c.trustIn(&e); t != foreign {
			out = append(out, entryOf(&e, t))
		}
	}
	if !whole || !wholeToo {
		problems = append(problems, fmt.Sprintf("a namespace has more than %d Events, of which some are not shown", mostEvents))
	}
	return out, problems
}

// journal reads what calico-node-sync keeps of what it removed, without the objects.
func (c *cluster) journal(ctx context.Context) ([]ui.Entry, error) {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	var out []ui.Entry
	for _, namespace := range c.namespaces { // others may have ConfigMaps with the same label in theirs
		list, err := pages(func(options metav1.ListOptions) ([]metav1.PartialObjectMetadata, string, error) {
			options.LabelSelector = journalLabel
			list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).List(ctx, options)
			if err != nil {
				return nil, "", err
			}
			return list.Items, list.Continue, nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing the journal of %s: %w", journalComponent, err)
		}
		for i := range list {
			if part, _, _ := strings.Cut(list[i].Annotations[journalPart], "/"); part == "1" {
				out = append(out, journalEntry(&list[i]))
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
	return ui.Entry{At: at, Component: journalComponent, About: recorded[journalHost], Reason: "Journaled", Text: text + ", because " + recorded[journalBecause]}
}

func entryOf(e *corev1.Event, t trust) ui.Entry {
	about := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
	if e.InvolvedObject.Namespace != "" {
		about = e.InvolvedObject.Kind + " " + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
	}
	at, times := lastSeen(e)
	return ui.Entry{
		At: at, Component: sourceOf(e), Unverified: t != verified, About: about, Reason: e.Reason, Text: e.Message, Times: max(int(times), 1), Warning: e.Type == corev1.EventTypeWarning,
	}
}
