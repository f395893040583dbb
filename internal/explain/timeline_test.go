// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// after is a time so many seconds after a machine died, ten minutes ago.
func after(seconds int) time.Time {
	return now.Add(-10*time.Minute + time.Duration(seconds)*time.Second)
}

func stamp(seconds int) *metav1.Time { return new(metav1.NewTime(after(seconds))) }

// died is a machine that lost its power, with a reflector's role, a volume and a load balancer's traffic.
func died() explain.TimelineEvidence {
	volume := func(name, handle string) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "dobs.csi.digitalocean.com", VolumeHandle: handle}
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data-" + name}
		return pv
	}
	attachment := func(name, node, pv string, at int) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: *stamp(at)},
			Spec:       storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}},
		}
	}
	moved, stuck, other := attachment("csi-1", "node-3", "db", 71), attachment("csi-2", "node-2", "log", -9000), attachment("csi-3", "node-3", "else", 60)
	moved.Status.Attached = true
	stuck.DeletionTimestamp = stamp(66)
	stuck.Status.DetachError = &storagev1.VolumeError{Time: *stamp(80), Message: "the machine\n still has it"}
	return explain.TimelineEvidence{
		Now: now, Name: "node-2", Renewed: after(-4),
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-2"},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{
				{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: stamp(41)},
				{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: stamp(41)},
				{Key: corev1.TaintNodeOutOfService, Value: outofservice.TaintValue, Effect: corev1.TaintEffectNoExecute, TimeAdded: stamp(65)},
			}},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: *stamp(40)},
				},
				VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/csi/dobs.csi.digitalocean.com^1", "kubernetes.io/csi/dobs.csi.digitalocean.com^2"},
			},
		},
		Intents: []outofservice.Intent{{Node: "node-1", At: after(1)}, {Node: "node-2", At: after(64)}},
		Topologies: []v1alpha1.RouteReflectorTopology{{
			ObjectMeta: metav1.ObjectMeta{Name: "main"},
			Status: v1alpha1.RouteReflectorTopologyStatus{
				LostReflectors: []v1alpha1.LostReflector{{Node: "node-2", Since: *stamp(6)}, {Node: "node-9", Since: *stamp(7)}},
				Spares:         []v1alpha1.Spare{{Node: "node-4", Reflector: "node-2", Since: stamp(9)}, {Node: "node-5"}},
			},
		}},
		Volumes:     []*corev1.PersistentVolume{volume("db", "1"), volume("log", "2"), volume("else", "3")},
		Attachments: []*storagev1.VolumeAttachment{moved, stuck, other},
		Events: []finding.Event{
			{At: after(65), Reason: "OutOfServiceTaintSet", Source: "digitalocean-cloud-controller-manager", About: "Node node-2", Text: "is on the Node"},
			{At: after(11), Reason: "Promoted", Source: "calico-route-reflector-operator", About: "RouteReflectorTopology main", Text: "Node/node-4: in place of node-2"},
			{At: after(52), Count: 3, Reason: "LoadBalancerNodesLeftOut", Source: "digitalocean-cloud-controller-manager", About: "Service shop/web", Text: "gets no traffic from the load balancer: node node-2 is not ready"},
			{At: after(30), Reason: "Demoted", Source: "calico-route-reflector-operator", Unverified: true, Text: "forged"},
			{At: after(31), Reason: "Other", Source: "calico-route-reflector-operator", Text: "has no place here"},
		},
		Oldest: after(-2000),
	}
}

// what are the texts of moments, in their order, with their sides and seconds.
func what(t explain.Timeline) (out []string) {
	for _, m := range t.Moments {
		out = append(out, m.Side+": "+m.What)
	}
	return out
}

// The death of a machine across the cloud, Node, reflector, volume and load balancer, with the seconds that each took.
func TestTimeline(t *testing.T) {
	t.Parallel()
	is := explain.TimelineOf(died())
	goldenText(t, "timeline-off", []int{80, 120}, is.Text)
	for _, text := range what(is) {
		if strings.Contains(text, "forged") || strings.Contains(text, "no place") || strings.Contains(text, "else") || strings.Contains(text, "node-9") {
			t.Errorf("it tells %q", text)
		}
	}
	if first := is.Moments[0]; first.Seconds != 0 || is.Moments[1].Seconds != 10 || first.At.Location() != time.UTC {
		t.Errorf("%+v", is.Moments[:2])
	}
}

// A machine whose Node is deleted has left less, and the timeline says what is not known any more, and why.
func TestTimelineWithoutANode(t *testing.T) {
	t.Parallel()
	e := died()
	e.Node, e.Renewed, e.Topologies, e.Oldest = nil, time.Time{}, nil, after(100)
	e.Intents, e.RoutesRead = nil, finding.Side{Problem: "listing topologies: forbidden"}
	e.Attachments = e.Attachments[1:]
	e.Absences = []nodesync.Absence{{CalicoNode: "node-2.example", KubernetesNode: "node-2", Since: after(305)}, {CalicoNode: "node-7", KubernetesNode: "node-7"}}
	e.Events = []finding.Event{
		{At: after(300), Reason: "DeletingNode", Source: "cloud-node-lifecycle-controller", About: "Node node-2", Text: "Deleting node node-2 because it does not exist in the cloud provider"},
		{At: after(365), Reason: "MachineCleaned", Source: "calico-node-sync", About: "Deployment kube-system/calico-node-sync", Text: "Cleaned up machine node-2.example: 4 objects removed"},
	}
	goldenText(t, "timeline-gone", []int{80, 120}, explain.TimelineOf(e).Text)
	e.Events, e.Absences, e.Attachments, e.Oldest = nil, nil, nil, time.Time{}
	goldenText(t, "timeline-nothing", []int{80, 120}, explain.TimelineOf(e).Text)
}

// A machine that came back says so; one that never failed has nothing to say.
func TestTimelineOfAMachineThatIsWell(t *testing.T) {
	t.Parallel()
	e := died()
	e.Node.Spec.Taints, e.Intents, e.Attachments, e.Events = nil, nil, nil, nil
	e.Node.Status.Conditions[0].Status, e.Node.Status.Conditions[0].LastTransitionTime = corev1.ConditionTrue, *stamp(90)
	e.Topologies[0].Status.LostReflectors[0].Until = stamp(95)
	want := []string{
		"reflector: a second node lost its session with it", "reflector: the spare node-4 takes its place", "Node: the Node is Ready",
		"reflector: nodes have sessions with it again, or it is no reflector any more",
	}
	if got := what(explain.TimelineOf(e)); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	e.Topologies = nil
	if is := explain.TimelineOf(e); len(is.Moments) != 0 || len(is.Unknown) != 0 || is.Text(80) != "Node node-2: nothing is known of a failure\n" {
		t.Errorf("%+v", is)
	}
}

// Laws: moments are in the order of time, the first one at zero seconds; none is of an Event that is not verified; each side
// that has no moment is named as unknown while the machine fails.
func TestTimelineLaws(t *testing.T) {
	t.Parallel()
	reasons := []string{"OutOfServiceTaintSet", "DeletingNode", "ReflectorLost", "MachineCleaned", "LoadBalancerNodesLeftOut", "Other"}
	cases.Check(t, func(t *rapid.T) {
		e := explain.TimelineEvidence{Now: now, Name: "a", Oldest: after(0)}
		for range rapid.IntRange(0, 8).Draw(t, "events") {
			unverified := rapid.Bool().Draw(t, "unverified")
			text := map[bool]string{true: "forged", false: "true"}[unverified]
			e.Events = append(e.Events, finding.Event{
				At: after(rapid.IntRange(-600, 600).Draw(t, "at")), Reason: rapid.SampledFrom(reasons).Draw(t, "reason"), Text: text, Unverified: unverified,
			})
		}
		is := explain.TimelineOf(e)
		seen := map[string]bool{}
		for i, m := range is.Moments {
			seen[m.Side] = true
			if m.What == "forged" || i == 0 && m.Seconds != 0 || i > 0 && (m.At.Before(is.Moments[i-1].At) || m.Seconds != m.At.Sub(is.Moments[0].At).Seconds()) {
				t.Fatalf("moment %d of %+v", i, is.Moments)
			}
		}
		for _, gap := range is.Unknown {
			seen[gap.Side] = true
		}
		for _, side := range []string{"cloud", "Node", "reflector", "Calico", "volume", "load balancer"} {
			if !seen[side] {
				t.Fatalf("nothing is said of %s: %+v", side, is)
			}
		}
	})
}

// The reasons that have a place in a timeline are those of docs/reference, and of Kubernetes' controller of cloud Nodes.
func TestTimelineKnowsTheReasons(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "reference", "events.md"))).Or(t)
	for _, reason := range []string{
		"OutOfServiceTaintSet", "OutOfServiceTaintRemoved", "OutOfServiceHeld", "DropletGoneWaiting", "DropletExistenceUnknown", "NoDropletVisible",
		"ReflectorLost", "ReflectorNotReady", "Promoted", "Demoted", "MachineCleaned", "FenceWithdrawn", "HeldByMassGuard", "LoadBalancerNodesLeftOut",
		"DeletingNode",
	} {
		is := explain.TimelineOf(explain.TimelineEvidence{Now: now, Name: "a", Events: []finding.Event{{At: after(1), Reason: reason, Text: "text"}}})
		if len(is.Moments) != 1 {
			t.Errorf("an Event %s has no place", reason)
		}
		if !strings.Contains(string(page), "| `"+reason+"` |") && reason != "DeletingNode" {
			t.Errorf("docs/reference/events.md does not have %s", reason)
		}
	}
}
