// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// The three answers, on a real API server: a wrong Service is refused in the words of the events and DigitalOcean is not queried, a doubtful one is
// allowed with a warning, a right one without, and nothing is made at DigitalOcean in any case.
func TestRefusedWarnedAllowed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	err := s.try(service("web", "enable-proxy-protocol", "on", "type", "GLOBAL"))
	const want = `admission webhook "validation-webhook.cloud-controller-manager.digitalocean.com" denied the request: ` +
		`annotation service.beta.kubernetes.io/do-loadbalancer-type is "GLOBAL", it must be REGIONAL or REGIONAL_NETWORK; ` +
		`annotation service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol is "on", it must be true or false`
	if err == nil || err.Error() != want {
		t.Errorf("refused with %v\nwant %s", err, want)
	}
	if calls := s.calls(); len(calls) > 0 {
		t.Errorf("DigitalOcean was asked %q", calls)
	}
	s.must(s.try(service("web", "healthcheck-path", "/ok", "unheard-of", "x")))
	s.says("a path without the override", `healthcheck-path is "/ok", which has no effect without`)
	s.must(s.try(service("web", "unheard-of", "x")))
	s.says("an unknown name", "do-loadbalancer-unheard-of is not known and has no effect")
	s.must(s.try(service("web", "type", "REGIONAL", "protocol", "http")))
	if heard := s.heard(); len(heard) > 0 {
		t.Errorf("a right Service is warned of: %q", heard)
	}
	if calls := s.calls(); len(calls) != 3 || slices.ContainsFunc(calls, func(c string) bool { return c != "POST /v2/load_balancers" }) {
		t.Errorf("calls %q, want one for each allowed Service", calls)
	}
	if made := s.account.LoadBalancers(); len(made) > 0 {
		t.Errorf("load balancers were made: %+v", made)
	}
	for outcome, want := range map[string]string{"refused": "1", "warned": "2", "allowed": "1"} {
		if got := s.metric(fmt.Sprintf("mooring_digitalocean_admission_requests_total{outcome=%q}", outcome)); got < want || got == "-1" {
			t.Errorf("the metric of %s is %s, want at least %s", outcome, got, want)
		}
	}
	if got := s.metric(`mooring_digitalocean_admission_questions_total{verdict="taken"}`); got != "3" {
		t.Errorf("the metric of questions is %s", got)
	}
}

// What only DigitalOcean knows: it refuses, and what it says is what people read.
func TestDigitalOceanRefuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for name, tc := range map[string]struct {
		service *corev1.Service
		want    string
	}{
		"a number":           {service("web", "http-idle-timeout-seconds", "5"), "DigitalOcean refuses the load balancer: "},
		"a certificate's ID": {service("web", "type", "REGIONAL", "certificate-id", "892071a0-bb95-49bc-8021-3afd67a210bf"), "DigitalOcean refuses the load balancer: "},
		"a certificate's name": {service("web", "type", "REGIONAL", "certificate-name", "nobodys"),
			`certificate-name is "nobodys", but the account has no certificate of that name`},
	} {
		if err := s.try(tc.service); err == nil || !strings.Contains(err.Error(), "denied the request: ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	certificate, err := s.account.CreateCertificate(digitalocean.CertificateSpec{Name: "ours", Custom: true})
	s.must(err)
	for _, pair := range [][]string{{"certificate-name", "ours"}, {"certificate-id", certificate.ID}} {
		if err := s.try(service("web", append([]string{"type", "REGIONAL"}, pair...)...)); err != nil {
			t.Errorf("%q: %v", pair, err)
		}
	}
}

// A name that is taken may be the load balancer that the controller takes over, or has just made.
func TestNameThatIsTakenIsNoRefusal(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	_, err := s.account.CreateLoadBalancer(digitalocean.LoadBalancer{Name: "edge"})
	s.must(err)
	if err := s.try(service("web", "name", "edge")); err != nil {
		t.Error(err)
	}
	s.says("a name that is taken", "it would not accept it now: name is not unique")
}

// troubles are what DigitalOcean may do instead of answering.
func troubles() map[string]struct {
	rule fault.Rule
	want string
} {
	always := func(kind fault.Kind, status int) fault.Rule {
		return fault.Rule{Kind: kind, Nth: 1, Times: -1, Status: status}
	}
	return map[string]struct {
		rule fault.Rule
		want string
	}{
		"429":              {always(fault.TooManyRequests, 0), "its limit of calls is used up"},
		"500":              {always(fault.Error, 500), "it responds with 500"},
		"503":              {always(fault.Error, 503), "it responds with 503"},
		"502 of a proxy":   {always(fault.ProxyError, 0), "it responds with 502"},
		"401":              {always(fault.Error, 401), "it does not accept the token"},
		"403":              {always(fault.Error, 403), "the token lacks a scope"},
		"404":              {always(fault.Error, 404), "it responds with 404"},
		"409":              {always(fault.Error, 409), "it would not accept it now"},
		"no response":      {always(fault.Hang, 0), "it does not respond in time"},
		"a cut connection": {always(fault.Reset, 0), "it cannot be reached"},
		"half an answer":   {always(fault.ShortBody, 0), "it cannot be reached"},
	}
}

// Whatever DigitalOcean does but refuse: the Service is allowed, a warning says why, and while it does not respond nobody waits for it again.
func TestDigitalOceanInTrouble(t *testing.T) {
	t.Parallel()
	for name, tc := range troubles() {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, func(o *setting) {
				o.options.Faults, o.args = []fault.Rule{tc.rule}, []string{"--ask-timeout=1s"}
			})
			for range 3 {
				if err := s.try(service("web")); err != nil {
					t.Errorf("refused: %v", err)
				}
				s.says("a Service", "DigitalOcean was not queried whether it accepts this load balancer: "+tc.want)
			}
			resting := name != "403" && name != "409"
			if calls := s.calls(); resting && len(calls) != 1 || len(calls) == 0 {
				t.Errorf("%d calls %q for three Services, resting: %v", len(calls), calls, resting)
			}
			if err := s.try(service("web", "type", "GLOBAL")); err == nil {
				t.Error("what is wrong by itself is allowed")
			}
			if got := s.metric(`mooring_digitalocean_admission_questions_total{verdict="unknown"}`); got != "3" {
				t.Errorf("the metric of unknown verdicts is %s", got)
			}
			if strings.Contains(s.process.Output(), digitalocean.DefaultToken) {
				t.Error("the token is in the log")
			}
		})
	}
}

// existing makes a Service whose load balancer exists, as the controller leaves it.
func (s *scene) existing(name string, lb digitalocean.LoadBalancer, pairs ...string) *corev1.Service {
	s.t.Helper()
	made, err := s.account.CreateLoadBalancer(lb)
	s.must(err)
	created := s.create(service(name, append([]string{annotation.LoadBalancerID, made.ID, "type", made.Type}, pairs...)...))
	s.heard()
	return created
}

// Changes of a Service whose load balancer exists: DigitalOcean is asked about that one, and only when what it would be sent differs.
func TestChanges(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	rules := []digitalocean.ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80, TargetProtocol: "tcp", TargetPort: 30080}}
	web := s.existing("web", digitalocean.LoadBalancer{Name: "web", Type: "REGIONAL", Network: "EXTERNAL", NetworkStack: "DUALSTACK", ForwardingRules: rules}, "name", "web")
	put := "PUT /v2/load_balancers/" + web.Annotations[annotation.LoadBalancerID]
	step := func(what string, change func(*corev1.Service), refused string, calls ...string) {
		t.Helper()
		before := len(s.calls())
		next, err := s.client.CoreV1().Services(s.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		s.must(err)
		change(next)
		s.heard()
		switch err := s.update(next); {
		case refused == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
			t.Errorf("%s: %v, want a refusal with %q", what, err, refused)
		}
		if got := s.calls()[before:]; !slices.Equal(got, calls) && len(got)+len(calls) > 0 {
			t.Errorf("%s: calls %q, want %q", what, got, calls)
		}
	}
	get := strings.Replace(put, "PUT", "GET", 1)
	step("a label", func(x *corev1.Service) { x.Labels = map[string]string{"a": "b"} }, "")
	step("somebody else's annotation", func(x *corev1.Service) { x.Annotations["example.com/a"] = "b" }, "")
	step("a right value", func(x *corev1.Service) { x.Annotations[p+"enable-proxy-protocol"] = "true" }, "", get, put)
	step("a wrong value", func(x *corev1.Service) { x.Annotations[p+"enable-proxy-protocol"] = "on" }, `enable-proxy-protocol is "on", it must be`)
	step("what DigitalOcean refuses", func(x *corev1.Service) { x.Annotations[p+"http-idle-timeout-seconds"] = "5" }, "DigitalOcean refuses", get, put)
	step("another type", func(x *corev1.Service) { x.Annotations[p+"type"] = "REGIONAL_NETWORK" },
		`type is "REGIONAL_NETWORK", but the load balancer is of type REGIONAL, which DigitalOcean does not change`)
	step("another network", func(x *corev1.Service) { x.Annotations[p+"network"] = "INTERNAL" }, "", get, put)
	s.says("another network", "the load balancer's network stays EXTERNAL, INTERNAL is asked for")
	step("no type", func(x *corev1.Service) { delete(x.Annotations, annotation.Type) }, "", get, put)
	if lb := s.account.LoadBalancers()[0]; lb.EnableProxyProtocol || lb.HTTPIdleTimeoutSeconds == 5 {
		t.Errorf("the load balancer was changed: %+v", lb)
	}
	// A mistake that is there, and everything that is not a change of the Service's load balancer.
	s.must(s.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}))
	testkit.Eventually(t, "the webhook to go", func() string {
		if err := s.try(service("probe", "type", "GLOBAL")); err != nil {
			return err.Error()
		}
		return ""
	})
	step("a mistake while there is no webhook", func(x *corev1.Service) { x.Annotations[p+"size-slug"] = "x" }, "")
	s.register(admissionregistrationv1.Fail)
	step("another mistake", func(x *corev1.Service) { x.Annotations[p+"size-unit"] = "x" }, "size-unit")
	step("a label alongside a mistake", func(x *corev1.Service) { x.Labels = nil }, "")
	step("a doubt alongside a mistake", func(x *corev1.Service) { x.Annotations[p+"unheard-of"] = "x" }, "")
	s.says("a doubt alongside a mistake", "size-slug is")
	status, err := s.client.CoreV1().Services(s.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	s.must(err)
	status.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	_, err = s.client.CoreV1().Services(s.namespace).UpdateStatus(t.Context(), status, metav1.UpdateOptions{})
	s.must(err)
	s.must(s.client.CoreV1().Services(s.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
}

// Services that are none of DigitalOcean's concern may hold anything.
func TestOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	class, plain := service("class", "type", "GLOBAL"), service("plain", "type", "GLOBAL")
	name := "example.com/other"
	class.Spec.LoadBalancerClass, plain.Spec.Type = &name, corev1.ServiceTypeClusterIP
	for _, one := range []*corev1.Service{class, plain, service("disowned", "type", "GLOBAL", annotation.Disown, "true")} {
		if err := s.try(one); err != nil {
			t.Errorf("%s: %v", one.Name, err)
		}
	}
	if calls := s.calls(); len(calls)+len(s.heard()) > 0 {
		t.Errorf("DigitalOcean was asked %q, or there were warnings", calls)
	}
}

// A renewed certificate of Let's Encrypt whose old ID is still in somebody's manifest does not stop them.
func TestRenewedCertificate(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	old, err := s.account.CreateCertificate(digitalocean.CertificateSpec{Name: "le", DNSNames: []string{"example.com"}})
	s.must(err)
	renewed, err := s.account.RotateCertificate(old.ID)
	s.must(err)
	web := s.existing("web", digitalocean.LoadBalancer{Name: "web", Type: "REGIONAL", ForwardingRules: []digitalocean.ForwardingRule{
		{EntryProtocol: "https", EntryPort: 443, TargetProtocol: "http", TargetPort: 30443, CertificateID: renewed.ID},
	}}, "name", "web", "certificate-id", renewed.ID)
	web.Annotations[annotation.CertificateID] = old.ID
	if err := s.update(web); err != nil {
		t.Errorf("with the old certificate's ID: %v", err)
	}
	if heard := s.heard(); slices.ContainsFunc(heard, func(w string) bool { return strings.Contains(w, "DigitalOcean") }) {
		t.Errorf("warnings %q", heard)
	}
}

// Without a token it does what it can, and asks nobody.
func TestWithoutAToken(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(o *setting) { o.env = nil })
	s.must(s.try(service("web", "http-idle-timeout-seconds", "5")))
	s.says("a doubtful number", "it takes 30 to 600 seconds")
	if calls := s.calls(); len(calls) > 0 {
		t.Errorf("calls %q", calls)
	}
}
