// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// Reasons of Events. They MUST NOT change.
const (
	// EventTaintSet, Warning: a machine is off or gone, and its Node got the taint out-of-service.
	EventTaintSet = "OutOfServiceTaintSet"
	// EventTaintRemoved, Normal: a machine is back, and the taint was removed from its Node.
	EventTaintRemoved = "OutOfServiceTaintRemoved"
	// EventHeld, Warning: so many machines are off at the same time that a person has to confirm it.
	EventHeld = "OutOfServiceHeld"
)

// Metrics show where machines stand. Their names are a contract with dashboards and alerts: MUST NOT change.
type Metrics struct {
	changes *prometheus.CounterVec
	desc    *prometheus.Desc

	mu     sync.Mutex // guards counts
	counts map[outofservice.Reason]int
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_out_of_service_taints_total",
			Help: "Taints node.kubernetes.io/out-of-service that were set or removed, by change (set, removed) and outcome (done, failed).",
		}, []string{"change", "outcome"}),
		desc: prometheus.NewDesc("mooring_digitalocean_out_of_service_machines",
			"Machines by state: in service, out of service, or the reason why a machine that does not run is not out of service yet.", []string{"reason"}, nil),
	}
	for _, change := range []string{"set", "removed"} {
		for _, outcome := range []string{"done", "failed"} {
			m.changes.WithLabelValues(change, outcome)
		}
	}
	registry.MustRegister(m.changes, m)
	return m
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) { out <- m.desc }

// Collect implements prometheus.Collector. Every reason is always there, so that an alert need not know of absence; before the first
// reconcile, and on a replica that does not lead, all are 0.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, reason := range outofservice.Reasons() {
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(m.counts[reason]), string(reason))
	}
}

func (m *Metrics) show(p outofservice.Plan) {
	counts := map[outofservice.Reason]int{}
	for _, v := range p.Verdicts {
		counts[v.Reason]++
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts = counts
}

func (m *Metrics) count(step outofservice.Step, o reconcile.Outcome) {
	change, outcome := "set", "done"
	if _, remove := step.(outofservice.RemoveTaint); remove {
		change = "removed"
	}
	switch o {
	case reconcile.Done:
	case reconcile.Conflict:
		return
	default:
		outcome = "failed"
	}
	m.changes.WithLabelValues(change, outcome).Inc()
}

// done reports a step that was made.
func (c *Controller) done(node *corev1.Node, step outofservice.Step) {
	c.Log.Info("Applied step", "step", step.String())
	if s, set := step.(outofservice.SetTaint); set {
		c.Events.Eventf(node, corev1.EventTypeWarning, EventTaintSet,
			"Droplet %d is %s, the Node is not ready and its kubelet does not renew its Lease: set the taint %s, so that its Pods and volumes go elsewhere", s.Droplet, s.State, corev1.TaintNodeOutOfService)
		return
	}
	why := "the Node is ready"
	if r, remove := step.(outofservice.RemoveTaint); remove {
		why = r.Why()
	}
	c.Events.Eventf(node, corev1.EventTypeNormal, EventTaintRemoved, "The droplet is active and %s: removed the taint %s", why, corev1.TaintNodeOutOfService)
}

// report shows where machines stand, and counts steps.
func (c *Controller) report(_ context.Context, r *reconcile.Round[*scene, need, outofservice.Step, outofservice.Record]) {
	if r.World != nil && r.World.unread == nil {
		c.Metrics.show(r.World.plan)
	}
	for _, a := range r.Applied {
		c.Metrics.count(a.Step, a.Outcome)
	}
}

// notes are about the machines that wait for a person. Others that wait are another cause.
func (c *Controller) notes(p outofservice.Plan) (notes []reconcile.Note) {
	if p.Awaiting.Hash == "" {
		return nil
	}
	for _, s := range c.seen {
		if !slices.Contains(p.Awaiting.Machines, s.Node) {
			continue
		}
		notes = append(notes, reconcile.Note{
			About: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.Node, UID: types.UID(s.UID)},
			Type:  corev1.EventTypeWarning, Reason: EventHeld, Cause: p.Awaiting.Hash,
			Message: fmt.Sprintf("The taint %s is not set: %s; if they are certainly off, run kubectl mooring confirm machines %s",
				corev1.TaintNodeOutOfService, p.Awaiting.Why, p.Awaiting.Hash),
		})
	}
	return notes
}
