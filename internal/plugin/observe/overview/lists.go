// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/evidence"
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
const mostEvents = 2 * observe.Page

// tenants fills in the EtcdStorages.
func (u *Reader) tenants(ctx context.Context, w *ui.World) {
	all, served, unread := u.cluster.Storages(ctx)
	for _, s := range unread {
		w.TenantProblem = "listing " + s.Name + ": " + s.Problem
	}
	w.TenantsAbsent = !served && len(unread) == 0
	w.Tenants = all
}

// entries are the reported steps of the components, with a sentence for each place that could not be read.
func entries(ctx context.Context, c *observe.Cluster, services serviceEvents) (out []finding.Event, problems []string) {
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
		if c.TrustIn(&e, services.keys) != observe.Foreign {
			out = append(out, evidence.EventOf(c, &e, services.keys))
		}
	}
	if !whole || !services.whole {
		problems = append(problems, fmt.Sprintf("a namespace has more than %d Events, of which some are not shown", mostEvents))
	}
	return out, problems
}

// journal reads what calico-node-sync keeps of what it removed, without the objects.
func journal(ctx context.Context, c *observe.Cluster) ([]finding.Event, error) {
	client, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	maps, journal := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")), metav1.ListOptions{LabelSelector: journalLabel}
	// A page of all namespaces has it, unless that may not be read, or others have many ConfigMaps with the same label.
	first := journal
	first.Limit = observe.Page
	page, err := maps.List(ctx, first)
	if err != nil || page.Continue != "" {
		page = &metav1.PartialObjectMetadataList{}
		for _, namespace := range c.Namespaces {
			items, err := observe.All[metav1.PartialObjectMetadata](ctx, "the journal of "+observe.NodeSync, maps.Namespace(namespace).List, journal)
			if err != nil {
				return nil, err
			}
			for _, item := range items {
				page.Items = append(page.Items, *item)
			}
		}
	}
	var out []finding.Event
	for i := range page.Items {
		item := &page.Items[i]
		part, _, _ := strings.Cut(item.Annotations[journalPart], "/")
		if part == "1" && slices.Contains(c.Namespaces, item.Namespace) {
			out = append(out, journalEntry(item))
		}
	}
	return out, nil
}

func journalEntry(item *metav1.PartialObjectMetadata) finding.Event {
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
	return finding.Event{At: at, Source: observe.NodeSync, About: recorded[journalHost], Reason: "Journaled", Text: text + ", because " + recorded[journalBecause]}
}
