// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/cached"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// Reasons of events about Nodes. They are a contract with anyone who filters events: MUST NOT change.
const (
	// EventAnotherAccount, Warning: the token is of another account than the recorded one, or the account or its record cannot be read. The
	// Node is kept, or not initialized.
	EventAnotherAccount = "CloudAccountNotVerified"
	// EventNothingVisible, Warning: none of the cluster's droplets is visible; the Node is kept.
	EventNothingVisible = "NoDropletVisible"
	// EventExistenceUnknown, Warning: the Node is kept because it is unknown whether its droplet exists.
	EventExistenceUnknown = "DropletExistenceUnknown"
	// EventNotItsTurn, Warning: many droplets are gone, this one among them; Nodes are deleted at a limited rate.
	EventNotItsTurn = "DropletGoneWaiting"
	// EventAmbiguous, Warning: several droplets could be the Node's.
	EventAmbiguous = "AmbiguousDroplet"
	// EventNoDroplet, Warning: the Node has been waiting, and there is no droplet with its name.
	EventNoDroplet = "DropletNotFound"
	// EventDisputed, Warning: the Node may not be the droplet that its provider ID names: the names differ, another Node
	// names it as well, or it lacks the cluster's tag. Load balancers do not get it as a target, and it is not initialized.
	EventDisputed = "DropletDisputed"
	// EventNotInitialized, Warning: the Node is still not initialized; the message has the reason.
	EventNotInitialized = "NodeNotInitialized"
	// EventTagNoLabel, Warning: a tag of the droplet cannot become a label of the Node, or the label has another owner.
	EventTagNoLabel = "DropletTagNotLabel"
)

// Outcomes of writing labels. They are values of a metric's label and MUST NOT change.
const (
	labelsWritten = "written"
	labelsFailed  = "failed"
)

// joinTime is how long a new Node may take until its droplet is in the list, before people are told.
const joinTime = time.Minute

// reporter tells people what Instances found: events on Nodes, metrics, and one line in the log for each change.
type reporter struct {
	clock clock.PassiveClock
	every time.Duration

	trusted *prometheus.GaugeVec
	deleted prometheus.Counter
	labels  *prometheus.CounterVec

	mu       sync.Mutex // guards all below
	recorder record.EventRecorder
	sent     map[sentKey]sentEvent
	unknown  map[string]unknownNode // by Node
	state    instance.Trust
	why      string // the message of the state
}

type sentKey struct{ node, reason string }

// unknownNode is a Node of unknown existence, and when that was found last: no one asks again about a Node that has become ready.
type unknownNode struct {
	reason instance.Reason
	at     time.Time
}

// unknownAge is how long a Node counts as one of unknown existence. The framework asks every few seconds.
const unknownAge = time.Minute

type sentEvent struct {
	message string
	at      time.Time
}

// newReporter makes the metrics and registers them. Their names and labels are a contract with dashboards and alerts: MUST NOT change.
func newReporter(every time.Duration, clock clock.PassiveClock, snapshot *Snapshot, registry prometheus.Registerer) *reporter {
	r := &reporter{
		clock: clock, every: every, sent: map[sentKey]sentEvent{}, unknown: map[string]unknownNode{},
		trusted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mooring_digitalocean_trust",
			Help: "1 for the current state of trust in DigitalOcean's responses: trusted, another account, nothing visible, unverified. Nodes are deleted only while it is trusted.",
		}, []string{"state"}),
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mooring_digitalocean_nodes_gone_total", Help: "Nodes whose droplets were proven to be gone, so that they are deleted.",
		}),
		labels: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mooring_digitalocean_node_labels_total",
			Help: "Writes of Node labels that come from droplet tags, by outcome: written or failed.",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{labelsWritten, labelsFailed} {
		r.labels.WithLabelValues(outcome)
	}
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mooring_digitalocean_droplets_age_seconds", Help: "Age of the newest list of droplets in seconds; -1 for none.",
	}, func() float64 {
		list := snapshot.Latest()
		if list.At.IsZero() {
			return -1
		}
		return clock.Since(list.At).Seconds()
	})
	cached.RegisterAge(registry, "droplets", clock, func() time.Time { return snapshot.Latest().At })
	cached.RegisterAge(registry, "gpu_droplets", clock, func() time.Time { return snapshot.Latest().GPUsAt })
	registry.MustRegister(r.trusted, r.deleted, r.labels, age, &unknownCollector{r: r, desc: prometheus.NewDesc(
		"mooring_digitalocean_nodes_existence_unknown",
		"Nodes that are not ready and for which it is unknown whether their droplet exists, by reason.", []string{"reason"}, nil)})
	return r
}

// start sends events from now on.
func (r *reporter) start(events record.EventRecorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorder = events
}

// trust notes the state of trust, and logs it when it changes.
func (r *reporter) trust(d instance.Plan) {
	r.mu.Lock()
	changed := r.state != d.Trust
	r.state, r.why = d.Trust, d.Message
	r.mu.Unlock()
	if !changed {
		return
	}
	for _, state := range []instance.Trust{instance.Trusted, instance.AnotherAccount, instance.NothingVisible, instance.Unverified} {
		value := 0.0
		if state == d.Trust {
			value = 1
		}
		r.trusted.WithLabelValues(string(state)).Set(value)
	}
	if d.Trust == instance.Trusted {
		klog.InfoS("DigitalOcean's responses are about this cluster")
		return
	}
	klog.InfoS("Keeping all Nodes: DigitalOcean's responses may not be about this cluster", "state", d.Trust, "why", d.Message)
}

// trustNow returns the state of trust that holds, empty before there was any, and why.
func (r *reporter) trustNow() (instance.Trust, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, r.why
}

// verdict notes what was found of one Node.
func (r *reporter) verdict(node *corev1.Node, v instance.Verdict) {
	r.mu.Lock()
	if v.Existence == instance.Unknown {
		r.unknown[node.Name] = unknownNode{v.Reason, r.clock.Now()}
	} else {
		delete(r.unknown, node.Name)
	}
	r.mu.Unlock()
	if v.Existence == instance.Unknown {
		r.event(node, eventReason(v.Reason), v.Message)
	}
}

// eventReason returns the event's reason for a reason of a verdict.
func eventReason(reason instance.Reason) string {
	switch reason {
	case instance.ReasonAccount:
		return EventAnotherAccount
	case instance.ReasonNothingVisible:
		return EventNothingVisible
	case instance.ReasonPace:
		return EventNotItsTurn
	default:
		return EventExistenceUnknown
	}
}

// gone notes that a Node is given up.
func (r *reporter) gone(node *corev1.Node, v instance.Verdict) {
	r.deleted.Inc()
	r.forget(node.Name)
	klog.InfoS("Node will be deleted, its droplet is gone", "node", node.Name, "droplet", v.Droplet)
}

// unmatched notes that a Node's droplet could not be found.
func (r *reporter) unmatched(node *corev1.Node, err error) {
	if ambiguous := (*instance.AmbiguousError)(nil); errors.As(err, &ambiguous) {
		r.event(node, EventAmbiguous, ambiguous.Error())
		return
	}
	switch waited := r.clock.Since(node.CreationTimestamp.Time) > joinTime; {
	case !waited:
	case errors.Is(err, instance.ErrNoDroplet) && node.Spec.ProviderID == "":
		r.event(node, EventNoDroplet, err.Error()+": name the droplet as the Node, or start its kubelet with --hostname-override or --provider-id")
	case uninitialized(node) && !errors.Is(err, context.Canceled):
		r.event(node, EventNotInitialized, "the Node is not initialized yet and gets no Pods: "+err.Error())
	}
}

// event sends a Warning about a Node, unless the same was said not long ago.
func (r *reporter) event(node *corev1.Node, reason, message string) {
	now, key := r.clock.Now(), sentKey{node.Name, reason}
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.sent[key]; r.recorder == nil || ok && last.message == message && now.Sub(last.at) < r.every {
		return
	}
	r.sent[key] = sentEvent{message, now}
	// Events about Nodes belong to the namespace default; the recorder sees to that, since Nodes have none.
	r.recorder.Event(node, corev1.EventTypeWarning, reason, message)
}

// once sends a Warning about a Node when it begins to hold, and not again before it has stopped to; an empty message says that it has.
func (r *reporter) once(node *corev1.Node, reason, message string) {
	key := sentKey{node.Name, reason}
	said := string(node.UID) + " " + message // another Node of the same name is another one
	r.mu.Lock()
	defer r.mu.Unlock()
	switch last, ok := r.sent[key]; {
	case message == "":
		delete(r.sent, key)
	case r.recorder != nil && (!ok || last.message != said):
		r.sent[key] = sentEvent{said, r.clock.Now()}
		r.recorder.Event(node, corev1.EventTypeWarning, reason, message)
	}
}

// forget drops what is known of a Node that is no more.
func (r *reporter) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unknown, node)
	for key := range r.sent {
		if key.node == node {
			delete(r.sent, key)
		}
	}
}

// unknownCollector counts Nodes of unknown existence by reason. Every reason is always there, so that an alert need not know of absence.
type unknownCollector struct {
	r    *reporter
	desc *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *unknownCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *unknownCollector) Collect(out chan<- prometheus.Metric) {
	counts := map[instance.Reason]int{
		instance.ReasonAccount: 0, instance.ReasonNothingVisible: 0, instance.ReasonProviderID: 0,
		instance.ReasonList: 0, instance.ReasonAnswer: 0, instance.ReasonPace: 0, instance.ReasonUnseen: 0,
	}
	c.r.mu.Lock()
	for _, node := range c.r.unknown {
		if c.r.clock.Since(node.at) < unknownAge {
			counts[node.reason]++
		}
	}
	c.r.mu.Unlock()
	for reason, n := range counts {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), string(reason))
	}
}
