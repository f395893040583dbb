// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events on Services, in addition to those of warnings (package annotation). Alerts and scripts select by them: they MUST
// not be changed. LoadBalancerConfigError is the upstream project's; UnAvailableLoadBalancer and UpdateLoadBalancerFailed are the framework's.
const (
	// ReasonConfig, Warning: a value is refused; the message names it and the allowed values.
	ReasonConfig = "LoadBalancerConfigError"
	// ReasonNoNodes, Warning: no Node can be a target.
	ReasonNoNodes = "UnAvailableLoadBalancer"
	// ReasonFailed, Warning: a check of the load balancer failed and is retried.
	ReasonFailed = "UpdateLoadBalancerFailed"
	// ReasonSyncFailed, Warning: the load balancer could not be created or changed. The reason is that of Kubernetes' framework for cloud controllers.
	ReasonSyncFailed = "SyncLoadBalancerFailed"
	// ReasonForeign, Warning: a load balancer with another owner prevents the creation.
	ReasonForeign = "LoadBalancerForeign"
	// ReasonNotDeleted, Warning: the load balancer is kept although the Service is deleted, because it does not belong to the Service alone.
	ReasonNotDeleted = "LoadBalancerNotDeleted"
	// ReasonDoubt, Warning: nothing is created or deleted while it is unknown which cluster the DigitalOcean account belongs to.
	ReasonDoubt = "DigitalOceanAccountInDoubt"
	// ReasonLeftOut, Warning: Nodes get no traffic; the message has the reasons.
	ReasonLeftOut = "LoadBalancerNodesLeftOut"
	// ReasonNoEndpoints, Warning: the Service's endpoints could not be read; all Nodes are targets.
	ReasonNoEndpoints = "LoadBalancerEndpointsUnknown"
	// ReasonHeldBack, Warning: the settings change too often; the latest ones are sent later.
	ReasonHeldBack = "LoadBalancerHeldBack"
	// ReasonRepaired, Normal: settings were changed elsewhere and are repaired.
	ReasonRepaired = "LoadBalancerRepaired"
	// ReasonRecreated, Warning: the load balancer was deleted elsewhere; the new one has another address.
	ReasonRecreated = "LoadBalancerRecreated"
	// ReasonLeftOver, Warning: a load balancer with this cluster's tag and the Service's ports belongs to no Service; it may be left over.
	ReasonLeftOver = "LoadBalancerLeftOver"
	// ReasonAdopted, Normal: the upstream project created the load balancer, and nothing but its name or ID, tag and age shows that it is the Service's.
	ReasonAdopted = "LoadBalancerAdopted"
	// ReasonPending, Normal: DigitalOcean is creating the load balancer; its address follows.
	ReasonPending = "LoadBalancerPending"
	// ReasonCertPending, Normal: the certificate is being issued; the message says what is needed.
	ReasonCertPending = "LoadBalancerCertificatePending"
	// ReasonCertReady, Normal: the certificate is ready.
	ReasonCertReady = "LoadBalancerCertificateReady"
	// ReasonCertFailed, Warning: the certificate could not be created or issued; the message says what to do.
	ReasonCertFailed = "LoadBalancerCertificateFailed"
	// ReasonEnsured, Normal: an address was published. The reason is that of Kubernetes' framework for cloud controllers.
	ReasonEnsured = "EnsuredLoadBalancer"
)

// Note is one thing to tell about a Service as an event: its type (Normal or Warning), its reason, and one sentence.
type Note struct{ Kind, Reason, Message string }

func warning(reason, message string) Note { return Note{corev1.EventTypeWarning, reason, message} }

func normal(reason, message string) Note { return Note{corev1.EventTypeNormal, reason, message} }

// reasonOfProblem is the reason of the event of a problem.
func reasonOfProblem(problem error) string {
	if errors.Is(problem, ErrNoNodes) {
		return ReasonNoNodes
	}
	if _, ok := errors.AsType[*CertificateWait](problem); ok {
		return ReasonCertFailed
	}
	return ReasonConfig
}

// Unexpected is a sentence for each Node that gets no traffic although nobody wants it so and it is not about to get its
// addresses.
func Unexpected(all []LeftOut, nodes []*corev1.Node) (sentences []string) {
	expected := map[string]bool{}
	for _, node := range nodes {
		_, labeled := node.Labels[corev1.LabelNodeExcludeBalancers]
		private := IsPrivate(node) && !addressesOf(node).public4
		expected[node.Name] = labeled || private || node.DeletionTimestamp != nil || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == autoscalerTaint || t.Key == uninitializedTaint
		})
	}
	for _, l := range all {
		if !expected[l.Node] && l.Reason != notSelected {
			sentences = append(sentences, fmt.Sprintf("node %s %s", l.Node, l.Reason))
		}
	}
	return sentences
}

// Texts are differences in words.
func Texts(all []Difference) string {
	out := make([]string, len(all))
	for i, d := range all {
		out[i] = d.Message
	}
	return strings.Join(out, "; ")
}
