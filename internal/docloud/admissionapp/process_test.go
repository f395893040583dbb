// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// served is the serial number of the certificate that the webhook shows now.
func (s *scene) served() string {
	dialer := &tls.Dialer{Config: testkit.Pair{}.Client(s.t, s.ca)}
	host := strings.TrimSuffix(strings.TrimPrefix(s.url(), "https://"), path)
	conn, err := dialer.DialContext(s.t.Context(), "tcp", host)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String() //nolint:forcetypeassert // tls.Dialer makes no other
}

// A new certificate is taken up while requests go on; one that does not fit its key is not.
func TestCertificateReloads(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	before := s.served()
	s.certs.Put(t, "tls.crt", s.ca.Issue(t, testkit.Leaf{}).Cert)
	testkit.Eventually(t, "the wrong certificate to be reported", func() string {
		if got := s.metric(`mooring_certreload_failing{certificate="webhook"}`); got != "1" {
			return "the metric is " + got
		}
		return ""
	})
	if got := s.served(); got != before {
		t.Errorf("it serves %s, not the last good certificate %s", got, before)
	}
	s.must(s.try(service("web")))
	s.certs.PutPair(t, s.ca.Issue(t, testkit.Leaf{}))
	testkit.Eventually(t, "the new certificate", func() string {
		if got := s.served(); got == before {
			return "still the old one"
		}
		return ""
	})
	s.must(s.try(service("web")))
}

// A signal: it says that it is not ready, goes on serving for the drain delay, lets a request that waits for DigitalOcean end, and ends with 0.
func TestDrains(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(o *setting) {
		o.args = []string{"--drain-delay=1s", "--ask-timeout=2s"}
		o.options.Faults = []fault.Rule{{Kind: fault.Hang, Nth: 1, Times: -1}}
	})
	answered := make(chan error, 1)
	go func() { answered <- s.try(service("web")) }()
	testkit.Eventually(t, "the request to wait for DigitalOcean", func() string {
		if len(s.calls()) == 0 {
			return "no call"
		}
		return ""
	})
	s.process.Signal(syscall.SIGTERM)
	testkit.Eventually(t, "it to be not ready", func() string {
		if code, body := get(t.Context(), s.ops()+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "ending") {
			return body
		}
		return ""
	})
	if err := s.try(service("web", "type", "GLOBAL")); err == nil || !strings.Contains(err.Error(), "denied the request") {
		t.Errorf("during the drain delay: %v", err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the request that waited: %v", err)
	}
	<-s.process.Done()
	if code := s.process.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if log := s.process.Output(); !strings.Contains(log, "Stopped") || strings.Contains(log, "Not every request") {
		t.Errorf("log: %s", log)
	}
}

// The program is gone: Services can be written, as the manifests have it.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(o *setting) { o.policy = admissionregistrationv1.Ignore })
	s.process.Kill()
	if err := s.try(service("web", "type", "GLOBAL")); err != nil {
		t.Error(err)
	}
}

// Where it runs without the metadata service and without REGION it says so, and asks about load balancers that exist only.
func TestWithoutARegion(t *testing.T) {
	t.Parallel()
	metadata := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(metadata.Close)
	s := newScene(t, func(o *setting) {
		o.env = []string{"DO_ACCESS_TOKEN=" + digitalocean.DefaultToken, "DO_METADATA_URL=" + metadata.URL}
	})
	s.must(s.try(service("web")))
	s.says("a new Service", "the region is not known, set REGION")
	s.existing("old", digitalocean.LoadBalancer{Name: "old", Type: "REGIONAL_NETWORK"}, "name", "old")
	if calls := s.calls(); !slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "PUT ") }) {
		t.Errorf("calls %q", calls)
	}
}

// refusal runs the program in this process with settings that it must refuse, and returns the sentence.
func refusal(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code := command.Run(ctx, NewCommand(), args, &stdout, &stderr, command.WithSingleDash())
	out, ok := strings.CutPrefix(stderr.String(), "error: ")
	if code != command.ExitError || !ok || strings.Count(out, "\n") != 1 {
		t.Errorf("%q: got exit code %d and %q; want 1 and one line", args, code, stderr.String())
	}
	return strings.TrimSuffix(out, "\n")
}

// Each wrong setting is one sentence that says what may stand there.
func TestRefusesToStart(t *testing.T) {
	ca := testkit.NewAuthority(t, "ca")
	good := string(testkit.NewTLSFolder(t, ca.Issue(t, testkit.Leaf{}), ca.PEM))
	empty := t.TempDir()
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte(" \n"), 0o600))
	for _, tc := range []struct {
		env, args []string
		want      string
	}{
		{nil, []string{"--cert-dir=" + empty}, `--cert-dir "` + empty + `" must hold a certificate for the webhook's Service in tls.crt and its key in tls.key`},
		{nil, []string{"-cert-dir=" + good, "--webhook-bind-address=9443"}, `--webhook-bind-address is "9443": it must be HOST:PORT, such as :9443`},
		{nil, []string{"--cert-dir=" + good, "--webhook-bind-address=192.0.2.1:1"}, `--webhook-bind-address is "192.0.2.1:1", where nothing can listen`},
		{[]string{"METRICS_ADDR=x"}, []string{"--cert-dir=" + good}, `--metrics-bind-address is "x": it must be HOST:PORT`},
		{[]string{"DO_ACCESS_TOKEN=a b"}, []string{"--cert-dir=" + good}, "the DigitalOcean token in DO_ACCESS_TOKEN"},
		{[]string{"DO_ACCESS_TOKEN=dop_v1_abc"}, []string{"--token-file=" + token}, "there are two DigitalOcean tokens, DO_ACCESS_TOKEN and the file"},
		{nil, []string{"--cert-dir=" + good, "--token-file=" + token}, token},
		{[]string{"DO_ACCESS_TOKEN=dop_v1_abc", "DO_OVERRIDE_URL=api"}, []string{"--cert-dir=" + good}, `DO_OVERRIDE_URL: the API's URL is "api": it must be of the form https://HOST/`},
		{[]string{"DO_API_RATE_LIMIT_QPS=-1"}, nil, `DO_API_RATE_LIMIT_QPS is "-1": it must be a positive number`},
		{[]string{"DO_ACCESS_TOKEN=dop_v1_abc", "DO_API_RATE_LIMIT_QPS=dop_v1_abc"}, nil, `DO_API_RATE_LIMIT_QPS is "(the token)"`},
		{nil, []string{"--ask-timeout=0s"}, "--ask-timeout is 0s: it must be more than 0"},
		{nil, []string{"--drain-delay=-1s"}, "--drain-delay and --drain-timeout must not be negative"},
	} {
		for _, one := range tc.env {
			name, value, _ := strings.Cut(one, "=")
			t.Setenv(name, value)
		}
		if got := refusal(t, tc.args...); !strings.Contains(got, tc.want) {
			t.Errorf("%q %q: %q, want %q", tc.env, tc.args, got, tc.want)
		}
		for _, one := range tc.env {
			name, _, _ := strings.Cut(one, "=")
			t.Setenv(name, "")
		}
	}
}

// What is not a request of an API server is 400, by which it goes on as its failure policy says; what is not a Service is allowed.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	h := &handler{metrics: NewMetrics(prometheus.NewRegistry()), clock: clock.RealClock{}, log: logr.Discard()}
	review := func(request string) string {
		return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":` + request + `}`
	}
	for name, tc := range map[string]struct {
		method, body string
		code         int
		want         string
	}{
		"a GET":             {http.MethodGet, "", 400, "the method is GET"},
		"nothing":           {http.MethodPost, "", 400, "is not an AdmissionReview"},
		"no JSON":           {http.MethodPost, "x", 400, "is not an AdmissionReview"},
		"another version":   {http.MethodPost, strings.Replace(review(`{"uid":"1"}`), "v1", "v1beta1", 1), 400, "it must be AdmissionReview of admission.k8s.io/v1"},
		"no request":        {http.MethodPost, review("null"), 400, "with a request"},
		"no UID":            {http.MethodPost, review("{}"), 400, "no UID"},
		"too much":          {http.MethodPost, review(`{"uid":"` + strings.Repeat("1", largestReview) + `"}`), 400, "too large"},
		"something else":    {http.MethodPost, review(`{"uid":"1","resource":{"resource":"pods"},"operation":"CREATE","object":{}}`), 200, `"uid":"1","allowed":true`},
		"no Service":        {http.MethodPost, review(`{"uid":"1","resource":{"resource":"services"},"operation":"CREATE","object":{"spec":7}}`), 200, `the Service was not validated`},
		"a Service":         {http.MethodPost, review(`{"uid":"1","resource":{"resource":"services"},"operation":"CREATE","object":{"spec":{"type":"LoadBalancer"}},"oldObject":null}`), 200, `"allowed":true`},
		"a deleted Service": {http.MethodPost, review(`{"uid":"1","resource":{"resource":"services"},"operation":"DELETE","object":null,"oldObject":{"spec":{"type":"LoadBalancer"}}}`), 200, `"allowed":true`},
	} {
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), tc.method, path+"?timeout=1s", strings.NewReader(tc.body)))
		if recorder.Code != tc.code || !strings.Contains(recorder.Body.String(), tc.want) {
			t.Errorf("%s: %d %.300s, want %d with %q", name, recorder.Code, recorder.Body.String(), tc.code, tc.want)
		}
	}
}

// FuzzReview: no request makes it fail, and each is answered.
func FuzzReview(f *testing.F) {
	f.Add(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","resource":{"resource":"services"},"operation":"UPDATE","object":{"metadata":{"annotations":null},"spec":{"type":"LoadBalancer","ports":[{}]}},"oldObject":{}}}`)
	f.Add(`{"request":{}}`)
	h := &handler{metrics: NewMetrics(prometheus.NewRegistry()), clock: clock.RealClock{}, log: logr.Discard()}
	f.Fuzz(func(t *testing.T, body string) {
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
		if code := recorder.Code; code != http.StatusOK && code != http.StatusBadRequest {
			t.Errorf("%d for %q", code, body)
		}
	})
}

// TestMetricsAreDocumented: each metric has its line on the component's page.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(testkit.Root(t), "docs", "components", "digitalocean-cloud-controller-manager.md"))
	must.Do(t, err)
	registry := prometheus.NewRegistry()
	NewMetrics(registry)
	families, err := registry.Gather()
	if err != nil || len(families) != 3 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	for _, family := range families {
		if !regexp.MustCompile("(?m)^\\| `" + family.GetName() + "[`{]").Match(page) {
			t.Errorf("%s has no line on the page", family.GetName())
		}
	}
}
