// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Timeline is what became of a machine that failed, on all sides, in the order of time. Its JSON form is a contract
// with programs.
type Timeline struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Moments are what is known.
	Moments []Moment `json:"moments"`
	// Unknown is what is not known, or no longer, and why.
	Unknown []Gap `json:"unknown"`
}

// Moment is one thing that happened.
type Moment struct {
	At time.Time `json:"at"`
	// Seconds is how long after the first moment it was.
	Seconds float64 `json:"seconds"`
	// Side is what it happened on: one of those that sides lists.
	Side string `json:"side"`
	What string `json:"what"`
	// Source is the field, the record or the Event that has it.
	Source string `json:"source"`
}

// Gap is a side of which nothing is known, and why.
type Gap struct {
	Side string `json:"side"`
	Why  string `json:"why"`
}

// The sides of a machine.
const (
	onCloud     = "cloud"
	onNode      = "Node"
	onReflector = "reflector"
	onCalico    = "Calico"
	onVolume    = "volume"
	onBalancer  = "load balancer"
)

// TimelineEvidence is what was read of the past of a machine.
type TimelineEvidence struct {
	Now  time.Time
	Name string
	// Node is its Node, nil if there is none. Renewed is when its kubelet renewed its Lease last, the zero time if there
	// is no Lease.
	Node     *corev1.Node
	NodeRead finding.Side
	Renewed  time.Time
	// Intents are the machines about to be taken out of service, as digitalocean-cloud-controller-manager has recorded.
	Intents   []outofservice.Intent
	CloudRead finding.Side
	// Absences are those that calico-node-sync has recorded.
	Absences   []nodesync.Absence
	CalicoRead finding.Side
	Topologies []v1alpha1.RouteReflectorTopology
	RoutesRead finding.Side
	// Attachments and Volumes are those of the cluster.
	Attachments []*storagev1.VolumeAttachment
	Volumes     []*corev1.PersistentVolume
	VolumesRead finding.Side
	// Events are those about the machine that may be believed, each with the time of the first. Oldest is when the oldest
	// Event was recorded that the API server still has, of those that were read.
	Events     []finding.Event
	EventsRead finding.Side
	Oldest     time.Time
}

// TimelineOf puts what is known in the order of time, and names what is not known.
func TimelineOf(e TimelineEvidence) Timeline {
	t := Timeline{Kind: "Node", Name: e.Name, Moments: []Moment{}, Unknown: []Gap{}}
	for _, part := range []func(*Timeline){e.node, e.recorded, e.routes, e.moved, e.events, e.returned} {
		part(&t)
	}
	slices.SortStableFunc(t.Moments, func(a, b Moment) int { return a.At.Compare(b.At) })
	for i := range t.Moments {
		m := &t.Moments[i]
		m.What, m.Source = plain(m.What), plain(m.Source)
		m.At, m.Seconds = m.At.UTC(), m.At.Sub(t.Moments[0].At).Seconds()
	}
	e.gaps(&t)
	return t
}

// add adds what happened.
func (t *Timeline) add(at time.Time, side, what, source string) {
	t.Moments = append(t.Moments, Moment{At: at, Side: side, What: what, Source: source})
}

// failing reports that the machine has no Node, or one that is not Ready.
func (e TimelineEvidence) failing() bool {
	ready := readyOf(e.Node)
	return ready == nil || ready.Status != corev1.ConditionTrue
}

func readyOf(n *corev1.Node) *corev1.NodeCondition {
	if n == nil {
		return nil
	}
	at := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if at < 0 {
		return nil
	}
	return &n.Status.Conditions[at]
}

// node is what the Node and its Lease say.
func (e TimelineEvidence) node(t *Timeline) {
	if e.failing() && !e.Renewed.IsZero() {
		t.add(e.Renewed, onNode, "its kubelet renewed its Lease for the last time", "Lease kube-node-lease/"+e.Name)
	}
	if e.Node == nil {
		return
	}
	if ready := readyOf(e.Node); ready != nil && ready.Status != corev1.ConditionTrue {
		t.add(ready.LastTransitionTime.Time, onNode, "the Node became NotReady: "+ready.Reason, "condition Ready")
	}
	for i := range e.Node.Spec.Taints {
		t.tainted(&e.Node.Spec.Taints[i])
	}
	if at := e.Node.DeletionTimestamp; at != nil {
		t.add(at.Time, onNode, "the deletion of the Node was requested", "metadata.deletionTimestamp")
	}
}

// tainted is when a taint was set that a failure brings about, if the one who set it has said so.
func (t *Timeline) tainted(taint *corev1.Taint) {
	evicts := taint.Effect == corev1.TaintEffectNoExecute &&
		slices.Contains([]string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady}, taint.Key)
	side := onNode
	var what string
	switch ours, foreign := outofservice.Taints([]corev1.Taint{*taint}); {
	case taint.TimeAdded == nil:
		return
	case ours:
		side, what = onCloud,
			"the machine was seen to be off, and its Node taken out of service: Pods are deleted, volumes detached"
	case foreign:
		what = "another party took the Node out of service"
	case evicts:
		what = "the taint that evicts its Pods was set"
	default:
		return
	}
	t.add(taint.TimeAdded.Time, side, what, "taint "+taint.Key)
}

// returned is when the Node became Ready, if something had happened before.
func (e TimelineEvidence) returned(t *Timeline) {
	ready := readyOf(e.Node)
	if !e.failing() &&
		slices.ContainsFunc(t.Moments, func(m Moment) bool { return m.At.Before(ready.LastTransitionTime.Time) }) {
		t.add(ready.LastTransitionTime.Time, onNode, "the Node is Ready", "condition Ready")
	}
}

// recorded is what components have recorded of the machine: that it is off, and since when its Node is missed.
func (e TimelineEvidence) recorded(t *Timeline) {
	for _, i := range e.Intents {
		if i.Node == e.Name {
			t.add(i.At, onCloud, "the machine was seen to be off, and its Node is about to be taken out of service",
				"record of digitalocean-cloud-controller-manager")
		}
	}
	for _, a := range e.Absences {
		if a.KubernetesNode == e.Name || a.CalicoNode == e.Name {
			t.add(a.Since, onCalico, "calico-node-sync found Calico Node "+a.CalicoNode+" without a Kubernetes Node",
				"state of calico-node-sync")
		}
	}
}

// Names are those that the machine has in Kubernetes and in Calico's datastore.
func (e TimelineEvidence) Names() []string {
	out := []string{e.Name}
	for _, a := range e.Absences {
		if a.KubernetesNode == e.Name {
			out = append(out, a.CalicoNode)
		}
	}
	return out
}

// routes is what topologies report of it as a reflector.
func (e TimelineEvidence) routes(t *Timeline) {
	names := e.Names()
	for i := range e.Topologies {
		topology := &e.Topologies[i]
		say := func(at *metav1.Time, field, what string) {
			if at != nil {
				t.add(at.Time, onReflector, what, "RouteReflectorTopology "+topology.Name+", status."+field)
			}
		}
		for _, l := range topology.Status.LostReflectors {
			if slices.Contains(names, l.Node) {
				say(&l.Since, "lostReflectors", "a second node lost its session with it")
				say(l.Until, "lostReflectors", "nodes have sessions with it again, or it is no reflector any more")
			}
		}
		for _, s := range topology.Status.Spares {
			if slices.Contains(names, s.Reflector) {
				say(s.Since, "spares", "the spare "+s.Node+" takes its place")
				say(s.Until, "spares", "it returned; it or "+s.Node+" ceases to be a reflector")
			}
		}
	}
}

// moved is what becomes of the volumes that its kubelet reported to use.
func (e TimelineEvidence) moved(t *Timeline) {
	for _, pv := range e.Volumes {
		if pv.Spec.CSI == nil {
			continue
		}
		name := "volume " + pv.Name
		if claim := pv.Spec.ClaimRef; claim != nil {
			name = "the volume of claim " + claim.Namespace + "/" + claim.Name
		}
		handle := corev1.UniqueVolumeName("kubernetes.io/csi/" + pv.Spec.CSI.Driver + "^" + pv.Spec.CSI.VolumeHandle)
		for _, a := range e.Attachments {
			if of := a.Spec.Source.PersistentVolumeName; of == nil || *of != pv.Name {
				continue
			}
			source, here := "VolumeAttachment "+a.Name, a.Spec.NodeName == e.Name
			switch {
			case !here && e.Node != nil && slices.Contains(e.Node.Status.VolumesInUse, handle):
				is := map[bool]string{true: "is attached there", false: "is not attached yet"}[a.Status.Attached]
				t.add(a.CreationTimestamp.Time, onVolume, name+" was requested on "+a.Spec.NodeName+", and "+is, source)
			case here && a.DeletionTimestamp != nil:
				t.add(a.DeletionTimestamp.Time, onVolume, name+" is being detached", source)
			}
			if failed := a.Status.DetachError; failed != nil && here {
				t.add(failed.Time.Time, onVolume, name+" could not be detached: "+failed.Message, source)
			}
		}
	}
}

// sideOf is the side that Events of a reason are about, "" for those that have no place in a timeline.
func sideOf(reason string) string {
	switch reason {
	case "OutOfServiceTaintSet", "OutOfServiceTaintRemoved", "OutOfServiceHeld", "DropletGoneWaiting",
		"DropletExistenceUnknown", "NoDropletVisible":
		return onCloud
	case "DeletingNode":
		return onNode
	case "ReflectorLost", "ReflectorNotReady", "Promoted", "Demoted":
		return onReflector
	case "MachineCleaned", "FenceWithdrawn", "HeldByMassGuard":
		return onCalico
	case "LoadBalancerNodesLeftOut":
		return onBalancer
	}
	return ""
}

// events are the Events with a place in a timeline. What the Node itself shows is not said twice.
func (e TimelineEvidence) events(t *Timeline) {
	shown := e.Node != nil && slices.ContainsFunc(e.Node.Spec.Taints, func(t corev1.Taint) bool {
		ours, _ := outofservice.Taints([]corev1.Taint{t})
		return ours && t.TimeAdded != nil
	})
	for _, event := range e.Events {
		side := sideOf(event.Reason)
		if side == "" || event.Unverified || shown && event.Reason == "OutOfServiceTaintSet" {
			continue
		}
		what := event.Text
		if event.Count > 1 {
			what += fmt.Sprintf(" (%d times since)", event.Count)
		}
		t.add(event.At, side, what, "Event "+event.Reason+" of "+event.Source+" about "+event.About)
	}
}

// gaps says what is not known of each side, and why: of a machine that fails each of them has something to say.
func (e TimelineEvidence) gaps(t *Timeline) {
	known := t.Moments
	add := func(side, format string, args ...any) {
		t.Unknown = append(t.Unknown, Gap{side, plain(fmt.Sprintf(format, args...))})
	}
	for _, s := range []struct {
		side string
		read finding.Side
		none string
	}{
		{onCloud, e.CloudRead, "no taint, record or Event shows when the machine was seen to be off or gone"},
		{onNode, e.NodeRead, "neither a Node nor an Event shows what became of the Node"},
		{onReflector, e.RoutesRead, "no topology and no Event names it as a reflector that was lost"},
		{onCalico, e.CalicoRead, "no record or Event of calico-node-sync shows that its Calico Node was missed or removed"},
		{onVolume, e.VolumesRead, "no volume that its kubelet reported to use was detached or attached elsewhere"},
		{onBalancer, finding.Side{}, "no Event shows that it was left out of a load balancer"},
	} {
		switch some := slices.ContainsFunc(known, func(m Moment) bool { return m.Side == s.side }); {
		case s.read.Problem != "":
			add(s.side, "not read: %s", s.read.Problem)
		case e.Node == nil && s.side == onNode:
			add(s.side, "when it became NotReady: only a Node shows that, and there is none")
		case e.Node == nil && s.side == onVolume:
			add(s.side, "which volumes it had: only a Node shows that, and there is none")
		case !some && (e.failing() || len(known) > 0):
			add(s.side, "%s", s.none)
		}
	}
	switch {
	case e.EventsRead.Problem != "":
		add("Events", "not read: %s", e.EventsRead.Problem)
	case e.Oldest.IsZero():
		add("Events", "the API server has none of Mooring's: it keeps each for an hour, unless --event-ttl is set otherwise")
	case len(known) > 0 && known[0].At.Before(e.Oldest):
		add("Events", "those from before %s have expired, when the oldest was recorded that the API server still has",
			e.Oldest.UTC().Format(time.TimeOnly))
	}
}

// Text is the timeline for a terminal of that width in columns, 0 for one without end. Times are UTC.
func (t Timeline) Text(width int) string {
	var b strings.Builder
	b.WriteString("Node " + t.Name + ": ")
	layout := time.TimeOnly
	if count := len(t.Moments); count == 0 {
		b.WriteString("nothing is known of a failure\n")
	} else {
		first, last := t.Moments[0].At, t.Moments[count-1].At
		if first.Format(time.DateOnly) != last.Format(time.DateOnly) {
			layout = time.DateTime
		}
		fmt.Fprintf(&b, "%s in %s, from %s UTC\n\n", prose.Plural(count, "moment"), prose.Span(last.Sub(first)),
			first.Format(time.DateTime))
	}
	for _, m := range t.Moments {
		head := fmt.Sprintf("  %s %8s  %-13s  ", m.At.Format(layout), fmt.Sprintf("+%.0f s", m.Seconds), m.Side)
		b.WriteString(prose.Wrap(head, strings.Repeat(" ", len(head)), m.What+" ("+m.Source+")", width))
	}
	if len(t.Unknown) > 0 {
		b.WriteString("\nNot known\n")
	}
	for _, gap := range t.Unknown {
		head := fmt.Sprintf("  %-13s  ", gap.Side)
		b.WriteString(prose.Wrap(head, strings.Repeat(" ", len(head)), gap.Why, width))
	}
	return b.String()
}
