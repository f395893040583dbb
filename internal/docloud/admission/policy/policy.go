// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Names of the policies, and of the binding of each. They MUST NOT change: people exempt namespaces in the bindings.
const (
	Annotations = "digitalocean-cloud-controller-manager-annotations"
	Doubts      = "digitalocean-cloud-controller-manager-doubts"
	TakeOver    = "digitalocean-cloud-controller-manager-take-over"
)

// A Pair is a policy and the binding that puts it into force.
type Pair struct {
	Policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	Binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
}

// All returns the policies for a cluster whose controller gives load balancers this type if a Service asks for none (DEFAULT_LB_TYPE); all but
// REGIONAL means REGIONAL_NETWORK. Defaulted are the names of annotations for which the cluster has defaults (DO_LOAD_BALANCER_DEFAULTS): a
// Service is not refused for what it lacks and they give it. What it carries is judged as ever.
func All(defaultType string, defaulted ...string) []Pair {
	if defaultType != annotation.TypeRegional {
		defaultType = annotation.DefaultType
	}
	base := slices.Concat([]admissionregistrationv1.Variable{
		{Name: "defaultType", Expression: lit(defaultType)},
		{Name: "defaulted", Expression: list(defaulted)},
		{Name: "oldOurs", Expression: `oldObject != null && ` + ours("oldObject")},
	}, sides()[0].variables(), sides()[1].variables())
	refuse := append(slices.Clone(base),
		admissionregistrationv1.Variable{Name: "fixed", Expression: fixed()},
		admissionregistrationv1.Variable{Name: "problems", Expression: "variables.newProblems.filter(p, !(p in variables.oldProblems)) + variables.fixed"},
	)
	warn := append([]admissionregistrationv1.Variable{base[0], base[2]}, slices.DeleteFunc(slices.Clone(base[3:]), func(v admissionregistrationv1.Variable) bool {
		return !slices.Contains([]string{"newAnnotations", "oldAnnotations", "newRegional"}, v.Name)
	})...)
	var reasons []admissionregistrationv1.Validation
	for _, d := range doubts() {
		warn = append(warn, admissionregistrationv1.Variable{Name: d.variable, Expression: d.expression})
		reasons = append(reasons, validation(d.variable, d.message))
	}
	return []Pair{
		pair(Annotations, refuse, []admissionregistrationv1.Validation{
			validation("problems", "an annotation or a port of the Service cannot be: the events of the cloud controller manager would say which"),
		}, admissionregistrationv1.Deny),
		pair(Doubts, warn, reasons, admissionregistrationv1.Warn),
		takeOver(),
	}
}

// longestMessage is how much is said at once, in characters: of more than 5 KiB the API server says nothing (k8s.io/apiserver, cel.Config).
const longestMessage = 4800

// validation wants a list of sentences to be empty, and says them otherwise.
func validation(variable, message string) admissionregistrationv1.Validation {
	text := "variables." + variable + `.join("; ")`
	return admissionregistrationv1.Validation{
		Expression: "size(variables." + variable + ") == 0", Message: message,
		MessageExpression: fmt.Sprintf("%s.substring(0, [size(%s), %d].min())", text, text, longestMessage),
	}
}

// ours says of an object that it is to have a load balancer that the controller minds, as package admission does.
func ours(object string) string {
	return object + `.spec.?type.orValue("") == "LoadBalancer" && !has(` + object + `.spec.loadBalancerClass) && !(` +
		object + ".metadata.?annotations[?" + lit(annotation.Disown) + `].orValue("") in ` + list(yes()) + ")"
}

// Conditions are when a Service is worth a check of all. The webhook's configuration has the same.
func Conditions() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{
		{Name: "a-load-balancer-of-ours", Expression: ours("object")},
		{Name: "not-the-controller", Expression: "!(request.userInfo.username in " + list(admission.Controllers()) + ")"},
		{Name: "not-going", Expression: "!has(object.metadata.deletionTimestamp)"},
		{Name: "changed", Expression: `oldObject == null || object.spec != oldObject.spec || ` +
			`object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({})`},
	}
}

func pair(name string, variables []admissionregistrationv1.Variable, validations []admissionregistrationv1.Validation, action admissionregistrationv1.ValidationAction) Pair {
	ignore, scope := admissionregistrationv1.Ignore, admissionregistrationv1.NamespacedScope
	return Pair{
		Policy: &admissionregistrationv1.ValidatingAdmissionPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: &ignore,
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
						// Not services/status: who writes the status says nothing about annotations.
						Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}, Scope: &scope},
					},
				}}},
				MatchConditions: Conditions(),
				Variables:       variables, Validations: validations,
			},
		},
		Binding: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{action},
			},
		},
	}
}
