// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/mooring-dev/mooring/lab/internal/podagent/probe"
)

// TestRun gives a probe answers, one a period, and notes when which verdict is told.
func TestRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		probe   corev1.Probe
		answers string // + or -, one a question; the last one for ever
		want    string // second and verdict
	}{
		"well from the start":            {corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10}, "+", "5+"},
		"three failures in a row":        {corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3}, "+--+---", "0+ 60-"},
		"two successes in a row":         {corev1.Probe{PeriodSeconds: 1, SuccessThreshold: 2, FailureThreshold: 1}, "-+-++", "0- 4+"},
		"never well":                     {corev1.Probe{PeriodSeconds: 2, FailureThreshold: 3}, "-", "4-"},
		"and well again":                 {corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1}, "+-+", "0+ 1- 2+"},
		"no period is one of one second": {corev1.Probe{}, "-+", "0- 1+"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
				defer cancel()
				start, asked, got := time.Now(), 0, []string{}
				check := func(context.Context) error {
					answer := test.answers[min(asked, len(test.answers)-1)]
					asked++
					if answer == '-' {
						return errors.New("no")
					}
					return nil
				}
				probe.Run(ctx, &test.probe, check, func(v probe.Verdict) {
					sign := "-"
					if v.Well {
						sign = "+"
					}
					if !v.Decided || v.Well != (v.Message == "") {
						t.Errorf("verdict %+v", v)
					}
					got = append(got, strconv.Itoa(int(time.Since(start)/time.Second))+sign)
				})
				if text := strings.Join(got, " "); text != test.want {
					t.Errorf("told %s, want %s", text, test.want)
				}
			})
		})
	}
}

// TestTimeout sees that a question which is not answered counts as a no.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		probe.Run(ctx, &corev1.Probe{TimeoutSeconds: 3, PeriodSeconds: 1, FailureThreshold: 2}, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}, func(v probe.Verdict) {
			if v.Well || time.Since(start) != 7*time.Second {
				t.Errorf("%+v after %v", v, time.Since(start))
			}
		})
	})
}

// nobodys is a port that nobody listens on: tcpmux, which only root may.
const nobodys = 1

func TestCheck(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/bad", http.StatusFound)
			return
		}
		if r.URL.Path != "/good" || r.FormValue("x") != "1" || r.Host != "name" || r.Header.Get("Color") != "blue" || !strings.HasPrefix(r.UserAgent(), "kube-probe/") {
			http.Error(w, "no "+r.URL.Path, http.StatusServiceUnavailable)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	portOf := func(s *httptest.Server) int32 {
		return int32(s.Listener.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
	}
	container := corev1.Container{Name: "main", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: portOf(plain)}}}
	headers := []corev1.HTTPHeader{{Name: "host", Value: "name"}, {Name: "Color", Value: "blue"}}
	get := func(path string, port intstr.IntOrString, scheme corev1.URIScheme) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: port, Scheme: scheme, HTTPHeaders: headers}}
	}
	for name, test := range map[string]struct {
		handler corev1.ProbeHandler
		want    string // beginning of the error
		refused string
	}{
		"a port by name":                {handler: get("/good?x=1", intstr.FromString("http"), "")},
		"a port by number":              {handler: get("/good?x=1", intstr.FromInt32(portOf(plain)), corev1.URISchemeHTTP)},
		"a certificate of no authority": {handler: get("/good?x=1", intstr.FromInt32(portOf(secure)), corev1.URISchemeHTTPS)},
		"a redirect is a yes":           {handler: get("/moved", intstr.FromString("http"), "")},
		"another answer":                {handler: get("/bad", intstr.FromString("http"), ""), want: "it answers 503 Service Unavailable: no /bad"},
		"an open port":                  {handler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}}},
		"a closed port": {
			handler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(nobodys)}}, want: "dial tcp 127.0.0.1:",
		},
		"a port that is not there": {handler: get("/", intstr.FromString("grpc"), ""), refused: `container main has no port called "grpc"`},
		"a kind that is not there": {handler: corev1.ProbeHandler{Exec: &corev1.ExecAction{}}, refused: "the lab's probes are httpGet and tcpSocket only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check, err := probe.Check(&corev1.Probe{ProbeHandler: test.handler}, container, "127.0.0.1")
			if err != nil || test.refused != "" {
				if err == nil || err.Error() != test.refused {
					t.Errorf("got %v", err)
				}
				return
			}
			if err := check(t.Context()); err == nil && test.want != "" || err != nil && (test.want == "" || !strings.HasPrefix(err.Error(), test.want)) {
				t.Errorf("got %v", err)
			}
		})
	}
}
