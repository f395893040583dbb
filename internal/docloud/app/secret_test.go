// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// secret is a token that nothing else looks like.
const secret = "dop_v1_Zk3QwvXr9LtYb7NcMd5HsGf2JpAe8Tu4"

// failing is an API that fails in each way in turn, once it is told to, and counts how often it did in each.
type failing struct {
	http.Handler
	on       atomic.Bool
	requests atomic.Int64
	struck   [9]atomic.Int64
}

func (f *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !f.on.Load() {
		f.Handler.ServeHTTP(w, r)
		return
	}
	way := int(f.requests.Add(1)) % len(f.struck)
	f.struck[way].Add(1)
	refuse := func(status int, id, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"id":%q,"message":%q}`, id, message)
	}
	switch way {
	case 0:
		refuse(http.StatusUnauthorized, "unauthorized", "Unable to authenticate you")
	case 1:
		refuse(http.StatusForbidden, "forbidden", "You are missing the required permission")
	case 2:
		refuse(http.StatusTooManyRequests, "too_many_requests", "API rate limit exceeded.")
	case 3:
		refuse(http.StatusInternalServerError, "server_error", "Unexpected server-side error")
	case 4: // a proxy that shows the request in its complaint
		w.WriteHeader(http.StatusBadGateway)
		_, _ = fmt.Fprintf(w, "<html>%v</html>", r.Header)
	case 5: // an API that does
		refuse(http.StatusUnprocessableEntity, "unprocessable_entity", fmt.Sprintf("cannot parse %v", r.Header))
	case 6: // the connection is cut
		panic(http.ErrAbortHandler)
	case 7: // half an answer
		_, _ = io.WriteString(w, `{"droplets":[{"id":`)
	default:
		f.Handler.ServeHTTP(w, r)
	}
}

// The token is in no log, whatever its verbosity, in no event, on no page, and in no error, whether calls succeed or fail.
func TestTokenIsNowhere(t *testing.T) {
	c := controlplane.Shared(t)
	forgetRecord(t, c)
	cloud := sim.New(sim.Options{Seed: 7, Accounts: []sim.AccountOptions{{Name: "a", Tokens: []sim.Token{{Value: sim.DefaultToken}, {Value: secret}}}}})
	api := &failing{Handler: cloud.Handler()}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	m := startManager(t, cloud, c.Kubeconfig, []string{
		"DO_OVERRIDE_URL=" + server.URL, "DO_ACCESS_TOKEN=" + secret, "DEBUG_ADDR=127.0.0.1:0", "METRICS_ADDR=127.0.0.1:0", "DEFAULT_LB_TYPE=REGIONAL",
	}, "--v=10")
	readyFleet(t, c, cloud, "secret-1", "secret-2")
	service(t, c, "secret-web")
	testkit.Eventually(t, "a load balancer", func() string {
		s, err := c.Client.CoreV1().Services("default").Get(t.Context(), "secret-web", metav1.GetOptions{})
		if err != nil || len(s.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Sprint(err)
		}
		return ""
	})
	api.on.Store(true)
	for i := range 3 {
		service(t, c, fmt.Sprintf("secret-failing-%d", i))
	}
	node(t, c, "secret-late")
	notReady(t, c, "secret-1")
	var health strings.Builder
	debug := addressIn(t, m, "DEBUG_ADDR")
	testkit.Eventually(t, "every kind of failure", func() string {
		bodies := make(chan string)
		for range 6 { // each of them is a few calls, some of which wait for others
			go func() { bodies <- page(t.Context(), "http://"+debug+"/healthz") }()
		}
		for range 6 {
			health.WriteString(<-bodies)
		}
		for way := range api.struck {
			if n := api.struck[way].Load(); n < 2 {
				return fmt.Sprintf("way %d struck %d times", way, n)
			}
		}
		// What is searched below is what there is to see: without these words nothing would have been looked at.
		if !strings.Contains(health.String(), "GET v2/account: ") || !strings.Contains(m.Output(), "422 cannot parse") {
			return "no failure is in the log or on /healthz"
		}
		return ""
	})
	_, metrics := fetch(t, addressIn(t, m, "METRICS_ADDR")+"/metrics")
	list := must.Get(c.Client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})).Or(t)
	var events strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&events, "%+v\n", e)
	}
	m.Stop()
	for where, what := range map[string]string{"log": m.Output(), "metrics": metrics, "events": events.String(), "healthz": health.String()} {
		searchSecret(t, where, what)
	}
	if !strings.Contains(metrics, `mooring_digitalocean_api_requests_total{code="422"`) || !strings.Contains(events.String(), "secret-failing-0") {
		t.Error("the failures are not in the metrics, or not in the events")
	}
}

// page returns what a page says, or why it does not.
func page(ctx context.Context, address string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return fmt.Sprint(string(body), err)
}

// searchSecret looks for the token, for parts of it, and for how a header or a Secret would encode it.
func searchSecret(t *testing.T, where, what string) {
	t.Helper()
	for _, form := range []string{secret, secret[7:23], secret[len(secret)-12:], base64.StdEncoding.EncodeToString([]byte(secret))} {
		if i := strings.Index(what, form); i >= 0 {
			t.Errorf("the token is in the %s: %s", where, what[max(0, i-300):min(len(what), i+100)])
		}
	}
}

// A start that fails does not show the token either, though it was pasted where it does not belong.
func TestTokenIsNotInErrorsAtStart(t *testing.T) {
	t.Parallel()
	for name, env := range map[string][]string{
		"unreachable":            {"DO_OVERRIDE_URL=http://127.0.0.1:1", "REGION=nyc1"},
		"no URL":                 {"DO_OVERRIDE_URL=" + secret, "REGION=nyc1"},
		"no URL at all":          {"DO_OVERRIDE_URL=http://" + secret + ":x:%zz", "REGION=nyc1"},
		"as the URL's user":      {"DO_OVERRIDE_URL=http://" + secret + "@127.0.0.1:1/", "REGION=nyc1"},
		"as the URL's password":  {"DO_OVERRIDE_URL=http://x:" + secret + "@127.0.0.1:1/", "REGION=nyc1"},
		"in the URL's path":      {"DO_OVERRIDE_URL=http://127.0.0.1:1/" + secret, "REGION=nyc1"},
		"no metadata service":    {"DO_METADATA_URL=http://127.0.0.1:1/" + secret},
		"as the token's file":    {"DO_ACCESS_TOKEN_FILE=" + secret, "REGION=nyc1"},
		"with blanks":            {"DO_ACCESS_TOKEN=" + secret + " " + secret, "REGION=nyc1"},
		"a rate that is a token": {"DO_API_RATE_LIMIT_QPS=" + secret, "REGION=nyc1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out := program(t.Context(), t, append([]string{"DO_ACCESS_TOKEN=" + secret}, env...), "--kubeconfig=none", "--v=10")
			if code != 1 || !strings.Contains(out, "error: ") {
				t.Errorf("exit code %d: %s", code, out)
			}
			searchSecret(t, "output", out)
		})
	}
}
