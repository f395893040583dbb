// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// takeOver refuses a Service that begins to name a load balancer by its ID, but for those that its namespace may take over and for who may change the
// namespace. The controller refuses by itself what is not the cluster's; here the author hears of it at once.
func takeOver() Pair {
	id := func(object string) string {
		return object + ".metadata.?annotations[?" + lit(annotation.LoadBalancerID) + `].orValue("")`
	}
	return pair(TakeOver, []admissionregistrationv1.Variable{
		{Name: "id", Expression: id("object")},
		{Name: "before", Expression: `oldObject != null && ` + id("oldObject") + ` == variables.id && (` + ours("oldObject") +
			` || size(oldObject.?status.loadBalancer.ingress.orValue([])) > 0)`},
		{Name: "allowed", Expression: "namespaceObject.metadata.?annotations[?" + lit(loadbalancer.TakeOverAnnotation) +
			`].orValue("").split(",").exists(a, a.trim() == "*" || a.trim() == variables.id)`},
	}, []admissionregistrationv1.Validation{{
		Expression: `variables.id == "" || variables.before || variables.allowed || ` +
			`authorizer.group("").resource("namespaces").name(object.metadata.namespace).check("update").allowed()`,
		Message: "a load balancer is taken over by its ID only where the namespace allows it",
		MessageExpression: `"annotation ` + annotation.LoadBalancerID + ` names load balancer " + variables.id + ", which the namespace may not take over: an administrator ` +
			`allows it with kubectl annotate namespace " + object.metadata.namespace + " ` + loadbalancer.TakeOverAnnotation + `=" + variables.id`,
	}}, admissionregistrationv1.Deny)
}
