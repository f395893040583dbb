// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// takeOver refuses a Service that begins to name a load balancer by its ID, or domains for a certificate, but for those
// that its namespace allows and for users who may change the namespace. The controller refuses both by itself; here the
// author learns of it at once.
func takeOver() Pair {
	domains := func(object string) string {
		return `(` + ours(object) + ` ? ` + object + ".metadata.?annotations[?" + lit(annotation.CertificateDomains) +
			`].orValue("").lowerAscii().split(",").filter(d, d != "") : [])`
	}
	id := func(object string) string {
		return object + ".metadata.?annotations[?" + lit(annotation.LoadBalancerID) + `].orValue("")`
	}
	return pair(TakeOver, []admissionregistrationv1.Variable{
		{Name: "id", Expression: id("object")},
		{Name: "before", Expression: `oldObject != null && ` + id("oldObject") + ` == variables.id && (` + ours("oldObject") +
			` || size(oldObject.?status.loadBalancer.ingress.orValue([])) > 0)`},
		{Name: "allowed", Expression: "namespaceObject.metadata.?annotations[?" + lit(loadbalancer.TakeOverAnnotation) +
			`].orValue("").split(",").exists(a, a.trim() == "*" || a.trim() == variables.id)`},
		{Name: "mayAllow", Expression: `authorizer.group("").resource("namespaces").name(object.metadata.namespace).check("update").allowed()`},
		{Name: "had", Expression: `oldObject == null ? [] : ` + domains("oldObject")},
		{Name: "mayHave", Expression: "namespaceObject.metadata.?annotations[?" + lit(loadbalancer.DomainsAnnotation) +
			`].orValue("").lowerAscii().split(",").map(a, a.trim())`},
		{Name: "refused", Expression: domains("object") + `.filter(d, !(d in variables.had) && !variables.mayHave.exists(a, ` +
			`a == "*" || a == d || a.startsWith("*.") && d.endsWith(a.substring(1))))`},
	}, []admissionregistrationv1.Validation{{
		Expression: `variables.id == "" || variables.before || variables.allowed || variables.mayAllow`,
		Message:    "a load balancer is taken over by its ID only where the namespace allows it",
		MessageExpression: `"annotation ` + annotation.LoadBalancerID + ` names load balancer " + variables.id + ", which the namespace may not take over: an administrator ` +
			`allows it with kubectl annotate namespace " + object.metadata.namespace + " ` + loadbalancer.TakeOverAnnotation + `=" + variables.id`,
	}, {
		Expression: `variables.refused.size() == 0 || variables.mayAllow`,
		Message:    "a certificate is made only for domains that the namespace allows",
		MessageExpression: `"annotation ` + annotation.CertificateDomains + ` names " + variables.refused.join(", ") + ", for which the namespace may not have certificates: ` +
			`an administrator allows it with kubectl annotate namespace " + object.metadata.namespace + " ` + loadbalancer.DomainsAnnotation + `=" + variables.refused.join(",")`,
	}}, admissionregistrationv1.Deny)
}
