// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/mooring-dev/mooring/internal/explain"
)

// ours are the components that tell of machines in Events, by the names under which they do.
func ours() []string {
	return []string{"calico-node-sync", "calico-route-reflector-operator", "digitalocean-cloud-controller-manager"}
}

// events lists Events, of all namespaces if none is named.
func (c *cluster) events(ctx context.Context, namespace string, selector fields.Set) ([]corev1.Event, error) {
	var out []corev1.Event
	options := metav1.ListOptions{Limit: listPage, FieldSelector: selector.AsSelector().String()}
	for {
		page, err := c.typed.CoreV1().Events(namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing Events: %w", err)
		}
		out = append(out, page.Items...)
		if options.Continue = page.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

// eventsAbout are the Events about one object.
func (c *cluster) eventsAbout(ctx context.Context, kind, namespace, name string) ([]explain.Event, explain.Side) {
	list, err := c.events(ctx, namespace, fields.Set{"involvedObject.kind": kind, "involvedObject.name": name})
	var out []explain.Event
	for i := range list {
		out = append(out, eventOf(&list[i]))
	}
	return out, sideOf(err)
}

// eventsOfMachine are the Events of Mooring's components that are about a machine: those about its Node, and those that name it, since a Node that is
// gone has none.
func (c *cluster) eventsOfMachine(ctx context.Context, names []string) ([]explain.Event, explain.Side) {
	var out []explain.Event
	for _, source := range ours() {
		list, err := c.events(ctx, metav1.NamespaceAll, fields.Set{"source": source})
		if err != nil {
			return nil, sideOf(err)
		}
		for i := range list {
			if tellsOf(&list[i], names) {
				out = append(out, eventOf(&list[i]))
			}
		}
	}
	return out, explain.Side{}
}

// tellsOf says that an Event is about one of the names of a machine.
func tellsOf(e *corev1.Event, names []string) bool {
	for _, name := range names {
		about := e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == name
		related := e.Related != nil && e.Related.Kind == "Node" && e.Related.Name == name
		if about || related || regexp.MustCompile(`(?i)\bnode[ /]"?`+regexp.QuoteMeta(name)+`([^-.a-z0-9]|\.?$|\.\s)`).MatchString(e.Message) {
			return true
		}
	}
	return false
}

func eventOf(e *corev1.Event) explain.Event {
	out := explain.Event{
		At: e.CreationTimestamp.Time, Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Text: e.Message,
		Source: cmp.Or(e.ReportingController, e.Source.Component), Count: e.Count,
	}
	times := []time.Time{e.FirstTimestamp.Time, e.EventTime.Time, e.LastTimestamp.Time}
	if e.Series != nil {
		times, out.Count = append(times, e.Series.LastObservedTime.Time), max(out.Count, e.Series.Count)
	}
	for _, t := range times {
		if t.After(out.At) {
			out.At = t
		}
	}
	return out
}
