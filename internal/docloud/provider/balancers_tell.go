// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	events "k8s.io/client-go/tools/record"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// Reasons of events on Services, besides those of warnings (packages annotation and loadbalancer). Alerts and scripts select by them: they MUST
// not be changed. LoadBalancerConfigError is the predecessor's; UnAvailableLoadBalancer and UpdateLoadBalancerFailed are the framework's.
const (
	// reasonConfig, Warning: a value is refused; which, and what may stand there.
	reasonConfig = "LoadBalancerConfigError"
	// reasonNoNodes, Warning: no Node can be a target.
	reasonNoNodes = "UnAvailableLoadBalancer"
	// reasonFailed, Warning: a look at the load balancer failed, and is tried again.
	reasonFailed = "UpdateLoadBalancerFailed"
	// reasonForeign, Warning: a load balancer that is somebody else's is in the way.
	reasonForeign = "LoadBalancerForeign"
	// reasonKept, Warning: the load balancer is kept although the Service goes, since it is not the Service's alone.
	reasonKept = "LoadBalancerNotDeleted"
	// reasonDoubt, Warning: nothing is made or given up while it is in doubt whose the DigitalOcean account is.
	reasonDoubt = "DigitalOceanAccountInDoubt"
	// reasonLeftOut, Warning: Nodes that get no traffic, and why.
	reasonLeftOut = "LoadBalancerNodesLeftOut"
	// reasonRepaired, Normal: settings were changed elsewhere, and are put right.
	reasonRepaired = "LoadBalancerRepaired"
	// reasonRecreated, Warning: the load balancer was deleted elsewhere; the new one has another address.
	reasonRecreated = "LoadBalancerRecreated"
	// reasonLeftover, Warning: a load balancer with this cluster's tag and the Service's ports is no Service's; it may be left over.
	reasonLeftover = "LoadBalancerLeftOver"
	// reasonPending, Normal: DigitalOcean is making the load balancer; its address follows.
	reasonPending = "LoadBalancerPending"
	// reasonCertPending, Normal: the certificate is being issued, and what that needs.
	reasonCertPending = "LoadBalancerCertificatePending"
	// reasonCertFailed, Warning: the certificate could not be made or issued; what to do.
	reasonCertFailed = "LoadBalancerCertificateFailed"
	// reasonEnsured, Normal: an address is published. It is the framework's reason, for what that leaves to this controller.
	reasonEnsured = "EnsuredLoadBalancer"
)

// source is who sends the events.
const source = "digitalocean-cloud-controller-manager"

// note is one thing to tell about a Service.
type note struct{ kind, reason, message string }

func (b *Balancers) startRecorder(ctx context.Context) events.EventRecorder {
	broadcaster := events.NewBroadcaster(events.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: b.client.CoreV1().Events("")})
	go func() {
		<-ctx.Done()
		broadcaster.Shutdown()
	}()
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: source})
}

func (p *pass) warn(reason, message string) {
	n := note{corev1.EventTypeWarning, reason, message}
	if !slices.Contains(p.notes, n) {
		p.notes = append(p.notes, n)
	}
}

// tell sends an event for each note that did not hold before this pass. A pass that ended early does not know what has stopped to hold.
func (p *pass) tell() {
	told := map[note]bool{}
	for _, n := range p.notes {
		told[n] = true
		if !p.memory.told[n] {
			p.b.recorder.Event(p.service, n.kind, n.reason, n.message)
		}
	}
	if !p.complete {
		for n := range p.memory.told {
			told[n] = true
		}
	}
	p.memory.told = told
}

// mention notes the Nodes that get no traffic, unless somebody wants it so or they are about to get their addresses.
func (p *pass) mention(all []loadbalancer.LeftOut) {
	const shown = 5
	if len(all) == 0 {
		return
	}
	nodes, err := p.b.sortedNodes()
	if err != nil {
		return
	}
	expected := map[string]bool{}
	for _, node := range nodes {
		_, labeled := node.Labels[corev1.LabelNodeExcludeBalancers]
		expected[node.Name] = labeled || node.DeletionTimestamp != nil || uninitialized(node) ||
			slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
	}
	var parts []string
	for _, l := range all {
		if !expected[l.Node] {
			parts = append(parts, fmt.Sprintf("node %s %s", l.Node, l.Reason))
		}
	}
	if len(parts) == 0 {
		return
	}
	text := strings.Join(parts[:min(len(parts), shown)], ", ")
	if more := len(parts) - shown; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	p.warn(reasonLeftOut, "gets no traffic from the load balancer: "+text)
}

// autoscalerTaint is what the cluster autoscaler puts on a Node that it is about to delete.
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// repaired tells what was changed elsewhere and put right. New and lost Nodes are everyday life and not told.
func (p *pass) repaired(lb loadbalancer.Observed, differences []loadbalancer.Difference) {
	others := slices.DeleteFunc(slices.Clone(differences), func(d loadbalancer.Difference) bool { return d.Field == loadbalancer.FieldDroplets })
	if len(others) > 0 {
		p.b.recorder.Event(p.service, corev1.EventTypeNormal, reasonRepaired, fmt.Sprintf("%s was changed elsewhere and is as it must be again: %s", lb, texts(others)))
	}
}
