// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/internal/docloud/admission/policy"
	"github.com/mooring-dev/mooring/test/objects"
)

// admissionRelease replaces the upstream project's file for its admission server.
const admissionRelease = "releases/" + admissionName + "/latest.yml"

// TestAdmissionReleaseHasThePredecessorsShape: what its users name, and what its certificate is made out to (v0.1.68).
func TestAdmissionReleaseHasThePredecessorsShape(t *testing.T) {
	t.Parallel()
	all := files(t)[admissionRelease]
	for _, want := range []string{
		"Deployment kube-system/" + admissionName, "Service kube-system/" + admissionName, "Certificate kube-system/" + admissionName + "-serving-certs",
		"Issuer kube-system/digitalocean-cloud-controller-manager-selfsigned-issuer",
		"ValidatingWebhookConfiguration /digitalocean-cloud-controller-manager-admission-webhook",
	} {
		if !slices.ContainsFunc(all, func(u *unstructured.Unstructured) bool {
			return u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName() == want
		}) {
			t.Errorf("%s is missing", want)
		}
	}
	d := deploymentIn(t, all)
	if s := d.Spec.Selector.MatchLabels; len(s) != 1 || s["app"] != admissionName {
		t.Errorf("the selector is %+v", d.Spec.Selector)
	}
	pod := d.Spec.Template.Spec
	container := pod.Containers[0]
	if pod.HostNetwork || pod.ServiceAccountName != "" || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		t.Errorf("the pod is on the host's network, or has an account or its token: %+v", pod)
	}
	if container.Name != admissionName || len(container.Env) != 1 || container.Env[0].Name != "DO_ACCESS_TOKEN" || container.Env[0].ValueFrom.SecretKeyRef.Name != "digitalocean" {
		t.Errorf("the container is %+v", container)
	}
	if volume := pod.Volumes[0].Secret; volume.SecretName != admissionName+"-serving-certs" || container.VolumeMounts[0].MountPath != "/tmp/k8s-webhook-server/serving-certs" {
		t.Errorf("the certificate is %+v at %+v", volume, container.VolumeMounts)
	}
	for _, s := range objects.OfKind[corev1.Service](t, all, "Service") {
		if s.Name == admissionName && (s.Spec.Ports[0].Port != 443 || s.Spec.Selector["app"] != admissionName) {
			t.Errorf("the Service is %+v", s.Spec)
		}
	}
}

// TestWebhookStopsNobody: it names the upstream project's webhook, is asked only about what the policies look at, and when it does not
// respond all goes on.
func TestWebhookStopsNobody(t *testing.T) {
	t.Parallel()
	seen := 0
	for name, all := range files(t) {
		for _, w := range objects.OfKind[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration") {
			seen++
			hook := w.Webhooks[0]
			if len(w.Webhooks) != 1 || hook.Name != "validation-webhook.cloud-controller-manager.digitalocean.com" {
				t.Errorf("%s: the webhook is %s", name, hook.Name)
			}
			if s := hook.ClientConfig.Service; s == nil || s.Namespace != metav1.NamespaceSystem || s.Name != admissionName || *s.Path != "/lb-service" {
				t.Errorf("%s: it is at %+v", name, hook.ClientConfig)
			}
			if *hook.FailurePolicy != admissionregistrationv1.Ignore || *hook.TimeoutSeconds > 5 || *hook.SideEffects != admissionregistrationv1.SideEffectClassNone {
				t.Errorf("%s: failure policy %s, %d s, side effects %s", name, *hook.FailurePolicy, *hook.TimeoutSeconds, *hook.SideEffects)
			}
			if rule := hook.Rules[0]; len(hook.Rules) != 1 || !slices.Equal(rule.Resources, []string{"services"}) ||
				!slices.Equal(rule.Operations, []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}) {
				t.Errorf("%s: it is asked about %+v", name, hook.Rules)
			}
			if diff := cmp.Diff(policy.Conditions(), hook.MatchConditions); diff != "" {
				t.Errorf("%s: (- policies, + webhook):\n%s", name, diff)
			}
		}
	}
	if seen != 3 {
		t.Errorf("%d webhook configurations", seen)
	}
}

// TestPoliciesStopNobodyByFailing: an expression that cannot be evaluated is not a refusal, and each policy has its binding.
func TestPoliciesStopNobodyByFailing(t *testing.T) {
	t.Parallel()
	all := files(t)["dist/"+cloudName+"-admission-policies.yaml"]
	actions := map[string][]admissionregistrationv1.ValidationAction{}
	for _, b := range objects.OfKind[admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, all, "ValidatingAdmissionPolicyBinding") {
		actions[b.Spec.PolicyName] = b.Spec.ValidationActions
	}
	for _, p := range objects.OfKind[admissionregistrationv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy") {
		if *p.Spec.FailurePolicy != admissionregistrationv1.Ignore || len(actions[p.Name]) != 1 {
			t.Errorf("%s: failure policy %s, actions %v", p.Name, *p.Spec.FailurePolicy, actions[p.Name])
		}
	}
	want := map[string][]admissionregistrationv1.ValidationAction{
		policy.Annotations: {admissionregistrationv1.Deny}, policy.Doubts: {admissionregistrationv1.Warn}, policy.TakeOver: {admissionregistrationv1.Deny},
	}
	if diff := cmp.Diff(want, actions); diff != "" {
		t.Error(diff)
	}
}
