// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/platform/conditions"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// setConditions sets all conditions of a status.
func setConditions(is *v1alpha1.RouteReflectorTopologyStatus, s *scene, o outcome) {
	set := func(kind string, yes bool, reason, message string) metav1.Condition {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: s.topology.Generation,
		}
		if yes {
			c.Status = metav1.ConditionTrue
		}
		conditions.Set(&is.Conditions, c, s.world.Now)
		return c
	}
	refused, reason, message := worded(acceptance(o.plan), reasonAccepted)
	no := []metav1.Condition{set(v1alpha1.ConditionAccepted, !refused, reason, message)}
	frozen, reason, message := worded(freeze(o.plan), reasonNotFrozen)
	f := set(v1alpha1.ConditionFrozen, frozen, reason, message)
	yes, reason, message := degradation(o, !s.world.Mesh.On, s.world.Now)
	d := set(v1alpha1.ConditionDegraded, yes, reason, message)
	going, why, what := progress(s, o)
	p := set(v1alpha1.ConditionProgressing, going, why, what)
	if off := !s.world.Mesh.On; off {
		set(v1alpha1.ConditionMeshDisabled, true, reasonMeshOff, "the node-to-node mesh is off")
	} else {
		set(v1alpha1.ConditionMeshDisabled, false, reasonMeshOn, "the node-to-node mesh is on")
	}
	reason = reasonNoForeignMarks
	if len(o.plan.Foreign) > 0 {
		reason = reasonForeignMarks
	}
	set(v1alpha1.ConditionForeignMarks, len(o.plan.Foreign) > 0, reason, foreignMarks(o.plan.Foreign))
	ready := metav1.Condition{Type: conditions.Ready, Status: metav1.ConditionTrue, Reason: conditions.ReasonReady, ObservedGeneration: s.topology.Generation}
	// What is good when it is False stands in the way of Ready when it is True. A plan that waits for a person is not what is wanted either.
	if o.held != "" {
		p.Status = metav1.ConditionTrue
	}
	for _, bad := range []metav1.Condition{f, d, p} {
		if bad.Status == metav1.ConditionTrue {
			bad.Status = metav1.ConditionFalse
			no = append(no, bad)
		}
	}
	for _, c := range no {
		if c.Status == metav1.ConditionFalse {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, c.Reason, c.Type+": "+c.Message
			break
		}
	}
	conditions.SetReady(&is.Conditions, ready, nil, stalls(), s.world.Now)
}

// stalls are the reasons of Ready=False that only a person can bring to an end.
func stalls() []string {
	out := []string{reasonSessionTimeout, reasonSilentClients, reasonAwaitingApproval, reasonDryRun}
	for _, r := range []routereflector.Reason{
		routereflector.ReasonPaused, routereflector.ReasonForeignDatastore, routereflector.ReasonHierarchy, routereflector.ReasonSizing,
		routereflector.ReasonClusterID, routereflector.ReasonSelector, routereflector.ReasonClusterIDTaken, routereflector.ReasonOverlap,
		routereflector.ReasonConflict, routereflector.ReasonNotNeeded, routereflector.ReasonUnsafe, routereflector.ReasonSessionOptions,
		routereflector.ReasonFilterMissing, routereflector.ReasonMatchesNothing, routereflector.ReasonMatchesTooFew,
		routereflector.ReasonMeshTooLarge, routereflector.ReasonMeshNotManaged, routereflector.ReasonCannotAdopt,
	} {
		out = append(out, string(r))
	}
	return out
}

// maxForeign is how many foreign labels a message describes.
const maxForeign = 3

// foreignMarks describes labels that somebody else wrote, and what to do.
func foreignMarks(all []routereflector.Foreign) string {
	if len(all) == 0 {
		return ""
	}
	var out []string
	for _, f := range all[:min(len(all), maxForeign)] {
		out = append(out, f.What)
	}
	if more := len(all) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s; it has no influence on the plan; find out which program wrote it (a kubelet can write its own Node), then remove label %s and annotation %s from the Node, "+
		"or from its annotation %s",
		strings.Join(out, "; "), v1alpha1.ReflectorLabel, routereflector.ClusterIDAnnotation, routereflector.LabelsAnnotation)
}

// worded is a refusal as a condition has it; otherwise is the reason if there is none.
func worded(r *routereflector.Refusal, otherwise string) (refused bool, reason, message string) {
	if r == nil {
		return false, otherwise, ""
	}
	return true, string(r.Reason), r.Message
}

// acceptance is the refusal for what the spec says, nil if it can be worked with.
func acceptance(plan routereflector.Plan) *routereflector.Refusal {
	return firstOf(plan, routereflector.ReasonHierarchy, routereflector.ReasonSizing, routereflector.ReasonSelector, routereflector.ReasonClusterID, routereflector.ReasonClusterIDTaken,
		routereflector.ReasonOverlap, routereflector.ReasonConflict, routereflector.ReasonFilterMissing, routereflector.ReasonSessionOptions, routereflector.ReasonCannotAdopt, routereflector.ReasonNotNeeded, routereflector.ReasonNoClients,
		routereflector.ReasonMeshTooLarge, routereflector.ReasonMeshNotManaged)
}

// freeze is the refusal for which nothing at all is written.
func freeze(plan routereflector.Plan) *routereflector.Refusal {
	return firstOf(plan, routereflector.ReasonPaused, routereflector.ReasonDatastoreNotReady, routereflector.ReasonForeignDatastore,
		routereflector.ReasonNodesVanished, routereflector.ReasonMatchesNothing, routereflector.ReasonMatchesTooFew)
}

func firstOf(plan routereflector.Plan, reasons ...routereflector.Reason) *routereflector.Refusal {
	i := slices.IndexFunc(plan.Refusals, func(r routereflector.Refusal) bool { return slices.Contains(reasons, r.Reason) })
	if i < 0 {
		return nil
	}
	return &plan.Refusals[i]
}

// degradation says what is worse than wanted, beyond being on the way.
func degradation(o outcome, meshIsOff bool, now time.Time) (degraded bool, reason, message string) {
	if r := firstOf(o.plan, routereflector.ReasonUnsafe, routereflector.ReasonNoReflectors); r != nil {
		return true, string(r.Reason), r.Message
	}
	if o.trouble != "" {
		return true, reasonWriteFailed, o.trouble
	}
	if len(o.plan.Troubles) > 0 {
		reason := reasonReflectorNotReady
		if !slices.ContainsFunc(o.plan.Troubles, func(t routereflector.Trouble) bool { return !t.IsLost() }) {
			reason = reasonReflectorLost
		}
		return true, reason, troubles(o.plan.Troubles, now)
	}
	if o.plan.Isolated != "" {
		return true, reasonReflectorLost, o.plan.Isolated
	}
	if o.timedOut {
		return true, reasonSessionTimeout, fmt.Sprintf("%s waits for longer than spec.rollout.sessionTimeout, and nothing is removed meanwhile: %s",
			waiter(o.plan), o.plan.Waiting)
	}
	if o.silentCount > 0 && meshIsOff {
		return true, reasonSilentClients, silentMessage(o)
	}
	if i := slices.IndexFunc(o.plan.Notes, func(n routereflector.Note) bool { return n.Kind == routereflector.NoteTooFew }); i >= 0 {
		return true, reasonTooFew, o.plan.Notes[i].Message
	}
	return false, reasonNotDegraded, strings.Join(routereflector.Messages(o.plan.Notes), "; ")
}

// silentMessage names silent clients, with the reason of the first.
func silentMessage(o outcome) string {
	names := make([]string, 0, o.silentCount)
	for _, c := range o.silent {
		names = append(names, c.Node)
	}
	return fmt.Sprintf("clients with which none of their reflectors has a session, since %s: %d, see status.silentClients: %s; of %s: %s",
		o.silent[0].Since.UTC().Format(time.RFC3339), o.silentCount, routereflector.Few(names), names[0], o.silent[0].Reason)
}

// maxTroubles is how many reflectors in trouble a message names.
const maxTroubles = 3

// troubles describes reflectors in trouble.
func troubles(all []routereflector.Trouble, now time.Time) string {
	var out []string
	for i := range all[:min(len(all), maxTroubles)] {
		out = append(out, all[i].Describe(now))
	}
	if more := len(all) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// waiter names what waits: the first step, or the end of the last one.
func waiter(plan routereflector.Plan) string {
	if len(plan.Steps) == 0 {
		return "the end of the last change"
	}
	return fmt.Sprintf("%s %s", routereflector.Kind(plan.Steps[0]), plan.Steps[0].What().Object)
}

// progress says what is under way.
func progress(s *scene, o outcome) (going bool, reason, message string) {
	switch {
	case o.held != "":
		return false, o.held, o.why
	case o.plan.Waiting != "":
		return true, reasonWaiting, fmt.Sprintf("%s waits: %s", waiter(o.plan), o.plan.Waiting)
	case len(o.plan.Steps) == 0:
		return false, reasonUpToDate, cmp.Or(strings.Join(s.unread, "; "), "the cluster matches the topology")
	}
	return true, reasonStepPending, o.plan.Steps[0].String()
}
