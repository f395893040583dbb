// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Until waits until a condition holds.
func (w *World) Until(what string, holds func() bool) {
	w.T.Helper()
	testkit.Eventually(w.T, what, func() string {
		if holds() {
			return ""
		}
		return w.Story()
	})
}

// Events are those about the World's objects, and those that name it.
func (w *World) Events() []corev1.Event {
	list, err := w.Client.CoreV1().Events("").List(context.WithoutCancel(w.T.Context()), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return w.real && !strings.HasPrefix(e.Namespace, w.Name) &&
			!strings.Contains(e.InvolvedObject.Name, w.Name) && !strings.Contains(e.Message, w.Name)
	})
}

// CountEvents counts the events about an object, empty for any, that have a reason, and all parts in the message.
func (w *World) CountEvents(on, reason string, parts ...string) int {
	found := 0
	for _, e := range w.Events() {
		lacks := func(part string) bool { return !strings.Contains(e.Message, part) }
		if (on == "" || e.InvolvedObject.Name == on) && e.Reason == reason && !slices.ContainsFunc(parts, lacks) {
			found += max(1, int(e.Count))
		}
	}
	return found
}

// Reported waits for an event.
func (w *World) Reported(on, reason string, parts ...string) {
	w.T.Helper()
	what := fmt.Sprintf("event %s about %s with %q", reason, on, parts)
	w.Until(what, func() bool { return w.CountEvents(on, reason, parts...) > 0 })
}

// ReportedOnce waits for an event and fails if it was recorded more than once.
func (w *World) ReportedOnce(on, reason string, parts ...string) {
	w.T.Helper()
	w.Reported(on, reason, parts...)
	if n := w.CountEvents(on, reason, parts...); n != 1 {
		w.T.Fatalf("event %s with %q was recorded %d times: %s", reason, parts, n, w.Story())
	}
}

// Writes counts the requests to DigitalOcean that write anything, by route, since a mark of the simulator.
func (w *World) Writes(mark uint64) map[string]int {
	out := map[string]int{}
	for _, e := range w.Sim.Requests(journal.Filter{After: mark}) {
		if e.Method != http.MethodGet {
			out[e.Route]++
		}
	}
	return out
}

// Requested waits until so many more requests were made whose route begins so.
func (w *World) Requested(n int, route string) {
	w.T.Helper()
	count := func() (n int) {
		for _, e := range w.Sim.Requests(journal.Filter{}) {
			if strings.HasPrefix(e.Route, route) {
				n++
			}
		}
		return n
	}
	before := count()
	w.Until(fmt.Sprintf("%d more requests %s", n, route), func() bool { return count() >= before+n })
}

// Struck waits until so many requests since a mark have met a fault.
func (w *World) Struck(mark uint64, times int) {
	w.T.Helper()
	w.Until(fmt.Sprintf("%d requests that fail", times), func() bool {
		n := 0
		for _, e := range w.Sim.Requests(journal.Filter{After: mark}) {
			if e.Fault != "" {
				n++
			}
		}
		return n >= times
	})
}

// Metric is the sum of a metric's series, of those with a value of a label if one is given.
func (w *World) Metric(name string, label ...string) float64 {
	w.T.Helper()
	families := must.Get(w.Registry.Gather()).Or(w.T)
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			matches := len(label) == 0
			for _, pair := range m.GetLabel() {
				matches = matches || pair.GetValue() == label[0]
			}
			if f.GetName() == name && matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// Story is the last requests and all events, for failures.
func (w *World) Story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "writes %v", w.Writes(0))
	requests := w.Sim.Requests(journal.Filter{})
	for _, e := range requests[max(0, len(requests)-15):] {
		fmt.Fprintf(&b, "\n  %s %d %s", e.Route, e.Status, e.Fault)
	}
	for _, e := range w.Events() {
		fmt.Fprintf(&b, "\n  %s ×%d %s %s", e.InvolvedObject.Name, e.Count, e.Reason, e.Message)
	}
	return b.String()
}
