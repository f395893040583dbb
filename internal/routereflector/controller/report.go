// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Reasons of conditions and Events, alongside those of [routereflector.Reason]. They are a contract with users' alerts: MUST NOT change.
const (
	// reasonUpToDate of Progressing=False: there is nothing to do.
	reasonUpToDate = "UpToDate"
	// reasonStepPending of Progressing=True: steps are in progress; the message names the first one.
	reasonStepPending = "StepPending"
	// reasonWaiting of Progressing=True: a step, or the completion of the last one, waits for sessions; the message says for which.
	reasonWaiting = "WaitingForSessions"
	// reasonSessionTimeout of Degraded=True, Stalled=True: the wait for sessions is longer than spec.rollout.sessionTimeout; nothing is removed meanwhile.
	reasonSessionTimeout = "SessionTimeout"
	// reasonAwaitingApproval of Progressing=False, Stalled=True: spec.rollout.mode is Manual; the message has the hash that approves the plan.
	reasonAwaitingApproval = "AwaitingApproval"
	// reasonDryRun of Progressing=False, Stalled=True: spec.rollout.mode is DryRun; the plan is shown and nothing is written.
	reasonDryRun = "DryRun"
	// reasonReflectorNotReady of Degraded=True: the Node of a reflector is not Ready; the message says what its replacement waits for, and for how long.
	reasonReflectorNotReady = "ReflectorNotReady"
	// reasonReflectorLost of Degraded=True: at least two nodes have lost a reflector, although its Node is Ready; the message names both, and says when it is
	// replaced and what to check. Or they have lost all reflectors, for which none is replaced.
	reasonReflectorLost = "ReflectorLost"
	// reasonSilentClients of Degraded=True, Stalled=True: the mesh is off, and some clients have no session with any of their reflectors; the message names them.
	reasonSilentClients = "SilentClients"
	// reasonTooFew of Degraded=True: fewer nodes than desired may be reflectors; the message counts the reasons.
	reasonTooFew = "TooFewReflectors"
	// reasonNotFrozen of Frozen=False: the observed state is trusted.
	reasonNotFrozen = "NotFrozen"
	// reasonNotDegraded of Degraded=False: nothing is wrong. The message may have a note for information.
	reasonNotDegraded = "NotDegraded"
	// reasonAccepted of Accepted=True: the spec is valid.
	reasonAccepted = "Accepted"
	// reasonMeshOn of MeshDisabled=False: the node-to-node mesh is on.
	reasonMeshOn = "MeshOn"
	// reasonMeshOff of MeshDisabled=True: the node-to-node mesh is off.
	reasonMeshOff = "MeshOff"
	// reasonPodsUnread of Progressing=False: the list of pods has not been read yet.
	reasonPodsUnread = "PodsUnread"
	// reasonForeignMarks of ForeignMarks=True: another party labeled Nodes as reflectors of this topology, or gave them its cluster ID; the
	// message names them.
	reasonForeignMarks = "ForeignMarks"
	// reasonNoForeignMarks of ForeignMarks=False: all labels and cluster IDs of this topology were written by the operator.
	reasonNoForeignMarks = "NoForeignMarks"
	// reasonWriteFailed of Degraded=True: a write failed; the message is that of the API server.
	reasonWriteFailed = "WriteFailed"
)

// quiet is how long a change of mere numbers or words may wait to be written to the status, brisk how long the beginning of another step may.
const (
	quiet = 30 * time.Second
	brisk = 5 * time.Second
)

// maxSteps is how many steps the status shows; the CRD allows no more.
const maxSteps = 64

// outcome is what comes of a plan.
type outcome struct {
	plan routereflector.Plan
	// act reports that steps are carried out. If not, held and why say what is in the way, unless there is nothing to do.
	act       bool
	held, why string
	// asks reports that nodes are asked although no step is carried out.
	asks bool
	// trouble is why the last write failed, "" if it did not.
	trouble string
	// silent are the clients that the status names as silent, of silentCount.
	silent      []v1alpha1.SilentClient
	silentCount int
	// timedOut reports that the first step has waited for too long.
	timedOut bool
}

// decide reports whether a plan is carried out.
func decide(s *scene, m *memory, plan routereflector.Plan) outcome {
	o := outcome{plan: plan, act: true, trouble: m.trouble}
	rollout, exiting := s.world.Topology.Spec.Rollout, s.topology.DeletionTimestamp != nil
	rescues := plan.Emergency != nil && len(plan.Steps) > 0 && routereflector.Is[routereflector.MeshOn](plan.Steps[0])
	switch {
	case blocked(plan) != nil:
		o.act, o.held, o.why = false, string(blocked(plan).Reason), blocked(plan).Message
	case !s.podsRead && !exiting && !rescues: // the mesh is turned on wherever pods run, once no reflector is left
		o.act, o.held = false, reasonPodsUnread
		o.asks = len(plan.Troubles) > 0 && s.world.Approval(plan) == ""
		o.why = "the list of pods has not been read yet, and spec.reflectors avoids nodes with workloads; if this persists, the right to list and watch pods is missing"
	case s.world.Approval(plan) != "":
		o.act, o.held, o.why = false, reasonDryRun, s.world.Approval(plan)
		if rollout.Mode == v1alpha1.RolloutManual {
			o.held = reasonAwaitingApproval
		}
	}
	if plan.Waiting == "" || plan.Lasting || !o.act {
		m.waitingSince = time.Time{}
		return o
	}
	if m.waitingSince.IsZero() {
		m.waitingSince = s.world.Now
	}
	o.timedOut = s.world.Now.Sub(m.waitingSince) >= rollout.SessionTimeout.Duration
	return o
}

// permitted is what of the plan may be done: all of it, or nothing. Where nothing but the list of pods is missing, no approval either, nodes are asked about
// reflectors in trouble all the same, as what they say may turn the mesh on.
func (o outcome) permitted() routereflector.Plan {
	plan := o.plan
	if o.act {
		return plan
	}
	plan.Steps = nil
	if !o.asks {
		plan.Witnesses, plan.Samples = nil, nil
	}
	if o.held == reasonDryRun {
		plan.Standing = nil
	}
	return plan
}

// blocked is the refusal for which nothing is done, nil if steps remain that may be carried out.
func blocked(plan routereflector.Plan) *routereflector.Refusal {
	if len(plan.Refusals) == 0 || len(plan.Steps) > 0 {
		return nil
	}
	return &plan.Refusals[0]
}

// report remembers what a round decided, and writes the status if it says something new. Its resourceVersion is a precondition: of two that believe to lead,
// one fails here before each step.
func (r *Reconciler) report(ctx context.Context, out saved) error {
	s, m, was := out.scene, out.scene.memory, out.topology.Status
	is := statusOf(s, out.outcome)
	r.Metrics.observe(s, out.outcome, is)
	*m = out.memory
	if s.rehearsal || equality.Semantic.DeepEqual(was, is) {
		return nil
	}
	if s.later = max(patience(was, is)-s.world.Now.Sub(m.reported), 0); s.later > 0 {
		return nil
	}
	object := s.topology.DeepCopy()
	object.Status = is
	if err := r.wrote(s, "Status", "writing the status of", object, r.Client.Status().Update(ctx, object)); err != nil {
		m.trouble = out.outcome.trouble
		return err
	}
	m.reported = s.world.Now
	r.announce(object, was, is)
	r.announceRecord(object, was.Record, is.Record)
	return nil
}

// conclude ends a round: the next report says why a write failed, unless somebody else was faster, and a topology that is gone is forgotten.
func (r *Reconciler) conclude(ctx context.Context, done *reconcile.Round[*scene, need, step, saved]) {
	if calico.NotServed(done.Err) || meta.IsNoMatchError(done.Err) {
		if moved := r.Calico.Rediscover(ctx); errors.Is(moved, calico.ErrGroupMoved) && r.Stop != nil {
			r.Stop(moved)
		}
	}
	s := done.World
	if s != nil && s.rehearsal && done.Plan.Memory != nil {
		done.Fail(r.report(ctx, *done.Plan.Memory))
	}
	if s != nil && s.topology == nil {
		delete(r.memories, done.Key)
		r.Metrics.forget(done.Key)
		return
	}
	var failed []error
	for _, a := range done.Applied {
		if a.Outcome != reconcile.Conflict && a.Outcome != reconcile.Gone {
			failed = append(failed, a.Err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		s.memory.trouble = err.Error()
	}
	if s != nil {
		done.Plan.Next = cmp.Or(done.Plan.Next, s.later)
	}
}

// patience is how long after one status the next may be written: at once if it says what a person acts on, later if it only says how far things
// are. Else a cluster in which a step takes a second would have more writes of what is being done than of what is done.
func patience(was, is v1alpha1.RouteReflectorTopologyStatus) time.Duration {
	switch {
	case !equality.Semantic.DeepEqual(essence(was), essence(is)):
		return 0
	case !slices.Equal(course(was), course(is)):
		return brisk
	}
	return quiet
}

// essence is a status without the steps that remain, and without numbers and words.
func essence(in v1alpha1.RouteReflectorTopologyStatus) v1alpha1.RouteReflectorTopologyStatus {
	out := *in.DeepCopy()
	out.Clients, out.ReadyReflectors, out.Sessions, out.Reflectors, out.Baseline = 0, 0, v1alpha1.SessionCount{}, nil, nil
	for i := range out.SilentClients {
		out.SilentClients[i].LastObserved, out.SilentClients[i].Reason = metav1.Time{}, ""
	}
	out.Spares = slices.DeleteFunc(out.Spares, func(c v1alpha1.Spare) bool { return c.Reflector == "" })
	if out.Plan != nil {
		out.Plan.WaitingFor, out.Plan.Steps = "", nil
	}
	for i := range out.Conditions {
		c := &out.Conditions[i]
		c.LastTransitionTime = metav1.Time{}
		if c.Type != v1alpha1.ConditionForeignMarks { // who is believed is written before anything is done by it
			c.Message = ""
		}
		if c.Reason == reasonWaiting || c.Reason == reasonStepPending {
			c.Reason = "" // both are progress, and take turns with each step
		}
	}
	return out
}

// course is what a status says of roles, of how many reflectors are ready, and of the steps that remain.
func course(in v1alpha1.RouteReflectorTopologyStatus) []string {
	out := []string{fmt.Sprintf("%d ready", in.ReadyReflectors)}
	for _, r := range in.Reflectors {
		out = append(out, r.Node+" "+r.Role)
	}
	if in.Plan != nil {
		for _, step := range in.Plan.Steps {
			out = append(out, step.Kind+" "+step.Object)
		}
	}
	return out
}

// statusOf is the status that the topology should have.
func statusOf(s *scene, o outcome) v1alpha1.RouteReflectorTopologyStatus {
	was, plan := s.topology.Status, o.plan
	is := v1alpha1.RouteReflectorTopologyStatus{
		ObservedGeneration: s.topology.Generation, Mode: plan.Mode, Clients: int32(plan.Clients), Groups: groups(plan),
		Mesh: meshState(s), Baseline: plan.Baseline, LostReflectors: plan.Lost,
		Spares: plan.Spares, Record: routereflector.Without(plan.Record, plan.Stale...), Emergency: plan.Emergency,
		Conditions: slices.Clone(was.Conditions),
	}
	for _, reflector := range plan.Reflectors {
		is.Reflectors = append(is.Reflectors, reflectorStatus(s, was, reflector, plan))
		if reflector.Role != routereflector.RoleLeaving {
			is.DesiredReflectors++
		}
	}
	for _, reflector := range is.Reflectors {
		if reflector.Role == string(routereflector.RoleReflector) && reflector.LastObserved != nil && reflector.Established >= reflector.Clients &&
			troubleOf(plan, reflector.Node) == nil {
			is.ReadyReflectors++
		}
		is.Sessions.Established += reflector.Established
		is.Sessions.Expected += reflector.Clients
	}
	is.Sessions.Summary = fmt.Sprintf("%d/%d", is.Sessions.Established, is.Sessions.Expected)
	if len(plan.Steps) > 0 {
		is.Plan = &v1alpha1.PlanStatus{Hash: plan.Hash, WaitingFor: plan.Waiting}
		for _, step := range plan.Steps[:min(len(plan.Steps), maxSteps)] {
			is.Plan.Steps = append(is.Plan.Steps, routereflector.Shown(step))
		}
	}
	is.SilentClients, is.Sessions.SilentClients = o.silent, int32(o.silentCount)
	setConditions(&is, s, o)
	is.Phase = phaseOf(o, is)
	return is
}

// groups counts the groups that clients are divided among.
func groups(plan routereflector.Plan) int32 {
	count := int32(len(plan.Groups))
	if plan.Mode == v1alpha1.ModeHierarchical {
		count-- // the spines have no clients
	}
	return count
}

func meshState(s *scene) v1alpha1.MeshState {
	switch {
	case s.world.Topology.Spec.Mesh == v1alpha1.MeshIgnore:
		return v1alpha1.MeshUnknown
	case s.world.Mesh.On:
		return v1alpha1.MeshOn
	}
	return v1alpha1.MeshOff
}

// troubleOf is the trouble of a reflector whose Node is not Ready, or that is lost; nil for none.
func troubleOf(plan routereflector.Plan, node string) *routereflector.Trouble {
	at := slices.IndexFunc(plan.Troubles, func(t routereflector.Trouble) bool { return t.Node == node })
	if at < 0 {
		return nil
	}
	return &plan.Troubles[at]
}

// reflectorStatus is one reflector's. What nobody has asked for lately stays as it was last seen: with how many clients, of how many. While its
// Node is not Ready, or it is lost, none of its sessions count.
func reflectorStatus(s *scene, was v1alpha1.RouteReflectorTopologyStatus, reflector routereflector.Reflector, plan routereflector.Plan) v1alpha1.ReflectorStatus {
	out := v1alpha1.ReflectorStatus{Node: reflector.Node, Zone: reflector.Zone, Role: string(reflector.Role)}
	if reflector.Group != s.topology.Name {
		out.Group = reflector.Group
	}
	for _, n := range s.world.Nodes {
		if n.Name == reflector.Node {
			out.ClusterID = n.ClusterID
		}
	}
	established, expected, at := s.world.Sessions(reflector.Node)
	out.Clients = int32(expected)
	trouble := troubleOf(plan, out.Node)
	if !at.IsZero() && trouble == nil {
		seen := metav1.NewTime(at.UTC().Truncate(time.Second))
		out.Established, out.LastObserved = int32(established), &seen
		return out
	}
	before := slices.IndexFunc(was.Reflectors, func(b v1alpha1.ReflectorStatus) bool { return b.Node == out.Node })
	if before >= 0 && was.Reflectors[before].LastObserved != nil && was.Reflectors[before].ClusterID == out.ClusterID {
		b := was.Reflectors[before]
		out.Clients, out.Established, out.LastObserved = b.Clients, b.Established, b.LastObserved
	}
	if trouble != nil && out.LastObserved != nil { // since then none of them has counted
		out.Established, out.LastObserved = 0, new(metav1.NewTime(trouble.Since.UTC().Truncate(time.Second)))
	}
	return out
}

func phaseOf(o outcome, is v1alpha1.RouteReflectorTopologyStatus) v1alpha1.Phase {
	generation := is.ObservedGeneration
	switch {
	case conditions.IsTrue(is.Conditions, v1alpha1.ConditionFrozen, generation):
		return v1alpha1.PhaseFrozen
	case !conditions.IsTrue(is.Conditions, v1alpha1.ConditionAccepted, generation):
		return v1alpha1.PhaseRefused
	case conditions.IsTrue(is.Conditions, v1alpha1.ConditionDegraded, generation):
		return v1alpha1.PhaseDegraded
	case o.held != "":
		return v1alpha1.PhasePending
	case conditions.IsTrue(is.Conditions, v1alpha1.ConditionProgressing, generation):
		return v1alpha1.PhaseProgressing
	}
	return v1alpha1.PhaseReady
}

// announce tells of conditions that changed.
func (r *Reconciler) announce(object *v1alpha1.RouteReflectorTopology, was, is v1alpha1.RouteReflectorTopologyStatus) {
	for _, c := range is.Conditions {
		var before metav1.Condition
		if i := slices.IndexFunc(was.Conditions, func(b metav1.Condition) bool { return b.Type == c.Type }); i >= 0 {
			before = was.Conditions[i]
		}
		if before.Status == c.Status && before.Reason == c.Reason {
			continue
		}
		bad := c.Status == metav1.ConditionTrue && slices.Contains([]string{v1alpha1.ConditionDegraded, v1alpha1.ConditionFrozen, v1alpha1.ConditionForeignMarks}, c.Type) ||
			c.Status == metav1.ConditionFalse && c.Type == v1alpha1.ConditionAccepted
		if bad {
			r.event(object, corev1.EventTypeWarning, c.Reason, c.Message)
		}
	}
}

// announceRecord tells which reflectors were recorded although this version did not label them.
func (r *Reconciler) announceRecord(object *v1alpha1.RouteReflectorTopology, was, is *v1alpha1.Record) {
	if was != nil || is == nil || len(is.Reflectors) == 0 {
		return
	}
	var nodes []string
	for _, e := range is.Reflectors {
		nodes = append(nodes, e.Node)
	}
	r.event(object, corev1.EventTypeNormal, eventRecorded, fmt.Sprintf("status had no record of reflectors; recorded as this topology's: %s",
		routereflector.Few(nodes)))
}

// event records an Event about the topology.
func (r *Reconciler) event(object *v1alpha1.RouteReflectorTopology, kind, reason, note string) {
	if r.Events != nil {
		r.Events.Eventf(object, nil, kind, reason, "RouteReflectors", "%s", note)
	}
}

// Reasons of Events about steps. They are a contract with anyone who watches them: MUST NOT change.
const (
	// eventPeerWritten, Normal: a BGPPeer was created or updated.
	eventPeerWritten = "PeerWritten"
	// eventPeerRemoved, Normal: a BGPPeer was removed.
	eventPeerRemoved = "PeerRemoved"
	// eventPromoted, Normal: a node became a reflector; the message has the reason.
	eventPromoted = "Promoted"
	// eventDemoted, Normal: a node is no longer a reflector; the message has the reason.
	eventDemoted = "Demoted"
	// eventAdopted, Normal: a reflector that spec.adopt names was adopted.
	eventAdopted = "Adopted"
	// eventPeerRetired, Normal: a BGPPeer that spec.adopt names was deleted.
	eventPeerRetired = "PeerRetired"
	// eventMeshEnabled, Normal: the node-to-node mesh was turned on.
	eventMeshEnabled = "MeshEnabled"
	// eventRecorded, Normal: the reflectors of an earlier version, or of a topology that was restored, were recorded as this topology's; the
	// message names them.
	eventRecorded = "ReflectorsRecorded"
	// eventMeshDisabled, Normal: the node-to-node mesh was turned off.
	eventMeshDisabled = "MeshDisabled"
)

// told are the reasons of the Events of steps, "" for steps of which there is none: of clients there is one for each, or two.
func told(step routereflector.Step) string {
	switch step.(type) {
	case routereflector.EnsurePeer:
		return eventPeerWritten
	case routereflector.RemovePeer:
		return eventPeerRemoved
	case routereflector.RetirePeer:
		return eventPeerRetired
	case routereflector.Promote:
		return eventPromoted
	case routereflector.Demote:
		return eventDemoted
	case routereflector.Adopt:
		return eventAdopted
	case routereflector.MeshOn:
		return eventMeshEnabled
	case routereflector.MeshOff:
		return eventMeshDisabled
	case routereflector.Assign, routereflector.Join, routereflector.Leave, routereflector.Release:
	}
	return ""
}
