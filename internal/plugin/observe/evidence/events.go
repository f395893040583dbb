// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"context"
	"math"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/mooring-dev/mooring/internal/platform/eventsign"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// eventsAbout are the Events about one object, in the namespace where they are recorded: its own, or default if it has none.
func eventsAbout(ctx context.Context, c *observe.Cluster, kind, namespace, name string) ([]finding.Event, finding.Side) {
	list, _, err := c.Events(ctx, cmp.Or(namespace, metav1.NamespaceDefault), fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}, math.MaxInt)
	var keys eventsign.Keys
	if kind == "Service" { // those about others are where only components write
		keys = c.EventKeys(ctx)
	}
	var out []finding.Event
	for i := range list {
		out = append(out, EventOf(c, &list[i], keys))
	}
	return out, observe.SideOf(err)
}

// eventsOfMachine are the Events of Mooring's components that are about a machine: those about its Node, and those that name it, since a Node that is
// gone has none.
func eventsOfMachine(ctx context.Context, c *observe.Cluster, names []string) ([]finding.Event, finding.Side) {
	var out []finding.Event
	list, _, err := c.MooringEvents(ctx, math.MaxInt)
	for i := range list {
		if concerns(&list[i], names) {
			out = append(out, EventOf(c, &list[i], nil))
		}
	}
	return out, observe.SideOf(err)
}

// concerns reports whether an Event is about one of the names of a machine.
func concerns(e *corev1.Event, names []string) bool {
	for _, name := range names {
		about := e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == name
		related := e.Related != nil && e.Related.Kind == "Node" && e.Related.Name == name
		if about || related || regexp.MustCompile(`(?i)\bnode[ /]"?`+regexp.QuoteMeta(name)+`([^-.a-z0-9]|\.?$|\.\s)`).MatchString(e.Message) {
			return true
		}
	}
	return false
}

// EventOf is an Event as it is explained. keys are those of [observe.Cluster.EventKeys], nil for none.
func EventOf(c *observe.Cluster, e *corev1.Event, keys eventsign.Keys) finding.Event {
	at, count := observe.LastSeen(e)
	about := e.InvolvedObject.Name
	if e.InvolvedObject.Namespace != "" {
		about = e.InvolvedObject.Namespace + "/" + about
	}
	return finding.Event{
		About: e.InvolvedObject.Kind + " " + about, At: at, Count: count, Source: observe.SourceOf(e), Reason: e.Reason,
		Text: e.Message, Warning: e.Type == corev1.EventTypeWarning,
		Unverified: c.TrustIn(e, keys) != observe.Verified,
	}
}
