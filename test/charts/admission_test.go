// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/internal/docloud/admission/policy"
	"github.com/mooring-dev/mooring/internal/docloud/admissionapp"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

const admissionServer = "digitalocean-cloud-controller-manager-admission-server"

// authority is something that looks like a certificate.
const authority = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

// admissionScenarios are values of the admission part that must work, without the component's own objects in what they render.
func admissionScenarios() map[string]string {
	const on = "digitaloceanCloudControllerManager:\n  enabled: true\n"
	return map[string]string{
		"policies":                   on,
		"policies without warnings":  on + "  admission: {policies: {enabled: true, warnings: false}}",
		"policies for another type":  on + "  defaultLoadBalancerType: REGIONAL\n  admission: {policies: {enabled: true}}",
		"by cert-manager":            on + "  token: {from: environment}\n  admission: {policies: {enabled: false}, server: {enabled: true, certificates: {certManager: true}}}",
		"by hand, nobody is asked":   on + "  admission: {policies: {enabled: false}, server: {enabled: true, askDigitalOcean: false, certificates: {caBundle: " + strconv.Quote(authority) + "}}}",
		"the token in a file":        on + "  admission: {server: {enabled: true, certificates: {certManager: true}}}",
		"everything, with the token": on + everythingOfAdmission,
	}
}

const everythingOfAdmission = `
  region: nyc1
  clusterID: 5a1f0c9e-0000-4000-8000-000000000000
  vpcID: 7b2e1d8f-0000-4000-8000-000000000000
  defaultLoadBalancerType: REGIONAL
  token: {secret: tokens, key: cloud}
  admission:
    policies: {enabled: true}
    server:
      enabled: true
      certificates: {certManager: true, secret: certificates}
      extraArgs: [--ask-timeout=2s, -v=1]
      extraEnv: [{name: HTTPS_PROXY, value: "http://192.0.2.1:3128"}]
      image: {repository: registry.example:5000/admission, digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, pullPolicy: Always}
      replicas: 3
      resources: {limits: {memory: 1Gi, cpu: "1"}}
      priorityClassName: ""
      nodeSelector: {node-role.kubernetes.io/control-plane: ""}
      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]}}}
      tolerations: [{operator: Exists}]
      podLabels: {team: network}
      podAnnotations: {example.com/note: "any text, also: this"}
  metrics: {serviceMonitor: {enabled: true, interval: 45s, labels: {release: prometheus}}}`

// renderAdmission returns what a scenario adds to the component's own objects.
func renderAdmission(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	own := names(render(t, cloudNamespace, "digitaloceanCloudControllerManager: {enabled: true, admission: {policies: {enabled: false}}}"))
	return slices.DeleteFunc(render(t, cloudNamespace, values), func(u *unstructured.Unstructured) bool {
		return slices.Contains(own, u.GetKind()+" "+u.GetName())
	})
}

// TestAdmissionRendersWhatConfigRenders, but for the labels that Helm's users expect.
func TestAdmissionRendersWhatConfigRenders(t *testing.T) {
	t.Parallel()
	for scenario, overlay := range map[string]string{"policies": "admission-policies", "by cert-manager": "admission-cert-manager"} {
		out, complaint, err := run(t, "kustomize", "build", "../../config/"+cloudComponent+"/overlays/"+overlay)
		if err != nil {
			t.Fatalf("kustomize build: %v\n%s", err, complaint)
		}
		want := byName(objects.Parse(t, "kustomize build", []byte(out)))
		have := byName(renderAdmission(t, admissionScenarios()[scenario]))
		for _, u := range have {
			withoutHelmsLabels(t, u)
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("charts/mooring and config/ differ in %s; change both (- config, + chart):\n%s", overlay, diff)
		}
	}
}

// TestAdmissionIsSafeWithAllValues: restricted pods without a token of Kubernetes', no roles, and a webhook that stops nobody.
func TestAdmissionIsSafeWithAllValues(t *testing.T) {
	t.Parallel()
	for name, values := range admissionScenarios() {
		all := renderAdmission(t, values)
		server := strings.Contains(values, "server:")
		if judged := objects.CheckPods(t, name, all); (judged == 1) != server {
			t.Errorf("%s: %d Deployments", name, judged)
		}
		for _, u := range all {
			if kind := u.GetKind(); strings.Contains(kind, "Role") || kind == "ServiceAccount" || kind == "Secret" {
				t.Errorf("%s: there is a %s", name, kind)
			}
		}
		for _, d := range objects.OfKind[appsv1.Deployment](t, all, "Deployment") {
			if token := d.Spec.Template.Spec.AutomountServiceAccountToken; token == nil || *token {
				t.Errorf("%s: the pods get a token", name)
			}
			if err := objects.ParseFlags(t, objects.Sure(admissionapp.NewCommand), d.Spec.Template.Spec.Containers[0].Args); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, w := range objects.OfKind[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration") {
			if hook := w.Webhooks[0]; *hook.FailurePolicy != admissionregistrationv1.Ignore || *hook.TimeoutSeconds > 5 || len(hook.MatchConditions) != len(policy.Conditions()) {
				t.Errorf("%s: the webhook is %+v", name, hook)
			}
		}
	}
}

// TestAdmissionPoliciesAreTheCodes: the rendered policies are those of the code, with the cluster's default type.
func TestAdmissionPoliciesAreTheCodes(t *testing.T) {
	t.Parallel()
	for scenario, defaultType := range map[string]string{"policies": annotation.TypeRegionalNetwork, "policies for another type": annotation.TypeRegional} {
		want := map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{}
		for _, pair := range policy.All(defaultType) {
			want[pair.Policy.Name] = pair.Policy.Spec
		}
		have := map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{}
		for _, p := range objects.OfKind[admissionregistrationv1.ValidatingAdmissionPolicy](t, renderAdmission(t, admissionScenarios()[scenario]), "ValidatingAdmissionPolicy") {
			have[p.Name] = p.Spec
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s (- code, + chart):\n%s", scenario, diff)
		}
	}
	if left := names(renderAdmission(t, admissionScenarios()["policies without warnings"])); len(left) != 4 {
		t.Errorf("without warnings there are %q", left)
	}
}

// TestAdmissionValuesHaveEffects looks for each value of the scenario with everything in what it renders.
func TestAdmissionValuesHaveEffects(t *testing.T) {
	t.Parallel()
	rendered(t, renderAdmission(t, admissionScenarios()["everything, with the token"]),
		`{"name":"REGION","value":"nyc1"}`, `{"name":"DO_CLUSTER_ID","value":"5a1f0c9e-0000-4000-8000-000000000000"}`,
		`{"name":"DO_CLUSTER_VPC_ID","value":"7b2e1d8f-0000-4000-8000-000000000000"}`, `{"name":"DEFAULT_LB_TYPE","value":"REGIONAL"}`,
		`{"name":"HTTPS_PROXY","value":"http://192.0.2.1:3128"}`, `"--token-file=/var/run/secrets/digitalocean/cloud"`, `"secretName":"tokens"`,
		`"items":[{"key":"cloud","path":"cloud"}]`, `"secretName":"certificates"`, `"--ask-timeout=2s"`, `"-v=1"`,
		`"image":"registry.example:5000/admission@sha256:0123456789abcdef`, `"imagePullPolicy":"Always"`, `"replicas":3`, `"cpu":"1"`,
		`"nodeSelector":{"node-role.kubernetes.io/control-plane":""}`, `"tolerations":[{"operator":"Exists"}]`, `"key":"disk"`, `"team":"network"`,
		`"example.com/note":"any text, also: this"`, `"interval":"45s"`, `"release":"prometheus"`, `"port":"metrics"`, `"expression":"\"REGIONAL\""`,
		`"cert-manager.io/inject-ca-from":"kube-system/`+admissionServer+`-serving-certs"`)
	byHand := must.Get(json.Marshal(byName(renderAdmission(t, admissionScenarios()["by hand, nobody is asked"])))).Or(t)
	for _, want := range []string{`"--ask-digitalocean=false"`, `"caBundle":"` + base64.StdEncoding.EncodeToString([]byte(authority)) + `"`} {
		if !strings.Contains(string(byHand), want) {
			t.Errorf("by hand, not rendered: %s", want)
		}
	}
	for _, absent := range []string{"DO_ACCESS_TOKEN", "cert-manager", "digitalocean-token"} {
		if strings.Contains(string(byHand), absent) {
			t.Errorf("by hand, rendered: %s", absent)
		}
	}
}

// TestAdmissionRefusals returns which values are refused, and what is said then.
func TestAdmissionRefusals(t *testing.T) {
	t.Parallel()
	const server = "digitaloceanCloudControllerManager: {enabled: true, admission: {server: {enabled: true, "
	const managed = server + "certificates: {certManager: true}, "
	checkRefusals(t, cloudNamespace, map[string]refusal{
		"no certificate":          {server + "}}}", "set certManager, or caBundle to the authority (PEM) of the certificate in the Secret"},
		"two authorities":         {server + "certificates: {certManager: true, caBundle: " + strconv.Quote(authority) + "}}}}", "set one of certManager and caBundle"},
		"no PEM":                  {server + "certificates: {caBundle: LS0t}}}}", "admission/server/certificates/caBundle': 'LS0t' does not match pattern"},
		"a flag with a value":     {managed + "extraArgs: [--token-file=/x]}}}", "--token-file is not for here: set digitaloceanCloudControllerManager.token"},
		"a flag that would break": {managed + "extraArgs: [--cert-dir=/x]}}}", "--cert-dir is not for here: the Secret is mounted there"},
		"a variable with a value": {managed + "extraEnv: [{name: REGION, value: x}]}}}", "REGION is not for here: it is the cloud controller manager's value"},
		"no replicas":             {managed + "replicas: 0}}}", "admission/server/replicas': minimum: got 0, want 1"},
		"an unknown value":        {managed + "failurePolicy: Fail}}}", "additional properties 'failurePolicy' not allowed"},
	})
}
