// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// asProgram makes the test binary the program, so that tests run it as a process of its own without linking it again.
const asProgram = "MOORING_TEST_AS_ADMISSION_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(command.Main(NewCommand(), command.WithSingleDash()))
	}
	testkit.Main(m)
}

// p begins the names of most annotations.
const p = annotation.Prefix

// scene is a namespace of a real API server whose Services go through the program, and DigitalOcean alongside it.
type scene struct {
	t         *testing.T
	sim       *digitalocean.Simulator
	account   *digitalocean.Account
	ca        *testkit.Authority
	certs     testkit.TLSFolder
	process   *testkit.Process
	address   string
	namespace string
	client    kubernetes.Interface

	mu       sync.Mutex
	warnings []string // guarded by mu
}

// HandleWarningHeader implements rest.WarningHandler.
func (s *scene) HandleWarningHeader(_ int, _, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings = append(s.warnings, text)
}

// heard are the warnings since it was called last.
func (s *scene) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.warnings
	s.warnings = nil
	return out
}

// setting changes what a scene is made of.
type setting struct {
	options digitalocean.Options
	args    []string
	env     []string
	policy  admissionregistrationv1.FailurePolicyType
}

// newScene starts all of it. Without another policy the API server refuses what the program does not respond, so that a test sees it.
func newScene(t *testing.T, change ...func(*setting)) *scene {
	t.Helper()
	o := setting{policy: admissionregistrationv1.Fail, env: []string{"REGION=nyc1", "DO_ACCESS_TOKEN=" + digitalocean.DefaultToken, "DO_CLUSTER_ID=c"}}
	for _, c := range change {
		c(&o)
	}
	s := &scene{t: t, sim: digitalocean.New(o.options), ca: testkit.NewAuthority(t, "ca")}
	s.account = s.sim.Account("")
	api := httptest.NewServer(s.sim.Handler())
	t.Cleanup(api.CloseClientConnections)
	t.Cleanup(api.Close)
	s.certs = testkit.NewTLSFolder(t, s.ca.Issue(t, testkit.Leaf{}), s.ca.PEM)
	s.namespace = strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	s.namespace = s.namespace[:min(len(s.namespace), 60)]
	s.start(append([]string{"DO_OVERRIDE_URL=" + api.URL}, o.env...), o.args)

	config := rest.CopyConfig(controlplane.Shared(t).Config)
	config.WarningHandler = s
	s.client = kubernetes.NewForConfigOrDie(controlplane.Protobuf(config))
	_, err := s.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	s.must(err)
	s.register(o.policy)
	return s
}

func (s *scene) must(err error) {
	s.t.Helper()
	must.Do(s.t, err)
}

// start runs the program and waits until it is ready.
func (s *scene) start(env, args []string) {
	s.t.Helper()
	self, err := os.Executable()
	s.must(err)
	s.address = testkit.FreeAddress(s.t)
	health := testkit.FreeAddress(s.t)
	args = append([]string{
		"--cert-dir=" + string(s.certs), "--webhook-bind-address=" + s.address, "--health-probe-bind-address=" + health, "--metrics-bind-address=" + health,
		"-v=2", "--log-format=json", "--drain-delay=0s",
	}, args...)
	s.process = testkit.Start(s.t, filepath.Join(s.t.TempDir(), "log"), append(env, asProgram+"=1"), self, args...)
	s.t.Cleanup(func() {
		s.process.Stop()
		if s.t.Failed() {
			s.t.Logf("the program's log:\n%s", s.process.Output())
		}
	})
	testkit.Eventually(s.t, "the program", func() string {
		if code, _ := get(s.t.Context(), "http://"+health+"/readyz"); code != http.StatusOK {
			return fmt.Sprintf("/readyz: %d; log: %s", code, s.process.Output())
		}
		return ""
	})
	s.address = "https://" + s.address + path + "#" + health
}

// ops is where health and metrics are served.
func (s *scene) ops() string { return "http://" + s.address[strings.Index(s.address, "#")+1:] }

// url is the webhook's.
func (s *scene) url() string { return s.address[:strings.Index(s.address, "#")] }

func get(ctx context.Context, url string) (code int, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	content, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(content)
}

// register has the API server ask the program about the Services of the scene's namespace, and waits until it does.
func (s *scene) register(policy admissionregistrationv1.FailurePolicyType) {
	s.t.Helper()
	url, none, timeout := s.url(), admissionregistrationv1.SideEffectClassNone, int32(5)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validation-webhook.cloud-controller-manager.digitalocean.com", FailurePolicy: &policy, SideEffects: &none, TimeoutSeconds: &timeout,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: s.ca.PEM},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services", "services/status"}},
			}},
		}},
	}
	_, err := s.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(s.t.Context(), configuration, metav1.CreateOptions{})
	s.must(err)
	testkit.Eventually(s.t, "the webhook to be asked", func() string {
		err := s.try(service("probe", "type", "GLOBAL"))
		if !strings.Contains(fmt.Sprint(err), "denied the request") {
			return fmt.Sprintf("a wrong type is answered with %v", err)
		}
		return ""
	})
	s.heard()
}

// try creates a Service in dry run, create for real, and update updates one.
func (s *scene) try(one *corev1.Service) error {
	_, err := s.client.CoreV1().Services(s.namespace).Create(s.t.Context(), one, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (s *scene) create(one *corev1.Service) *corev1.Service {
	s.t.Helper()
	created, err := s.client.CoreV1().Services(s.namespace).Create(s.t.Context(), one, metav1.CreateOptions{})
	s.must(err)
	return created
}

func (s *scene) update(one *corev1.Service) error {
	_, err := s.client.CoreV1().Services(s.namespace).Update(s.t.Context(), one, metav1.UpdateOptions{})
	return err
}

// calls are those to DigitalOcean so far, by method and path.
func (s *scene) calls() []string {
	var out []string
	for _, e := range s.sim.Requests(journal.Filter{}) {
		out = append(out, e.Method+" "+e.URL)
	}
	return out
}

// metric is the value of a series, -1 if it is not there.
func (s *scene) metric(series string) string {
	s.t.Helper()
	_, body := get(s.t.Context(), s.ops()+"/metrics")
	testkit.CheckMetrics(s.t, Component, body)
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return "-1"
}

// says wants one of the warnings to contain a text.
func (s *scene) says(what, want string) {
	s.t.Helper()
	if heard := s.heard(); !slices.ContainsFunc(heard, func(w string) bool { return strings.Contains(w, want) }) {
		s.t.Errorf("%s: no warning with %q, but %q", what, want, heard)
	}
}

// service is a Service of type LoadBalancer with TCP ports 80 and 443; pairs are annotations, whose names get the prefix unless they have a slash.
func service(name string, pairs ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "https", Protocol: corev1.ProtocolTCP, Port: 443},
		}},
	}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		if !strings.Contains(name, "/") {
			name = p + name
		}
		s.Annotations[name] = pairs[i+1]
	}
	return s
}
