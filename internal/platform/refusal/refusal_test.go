// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A refusal without a message still says what it was, and one with a message is as it was sent.
func TestARefusalWithoutAMessage(t *testing.T) {
	t.Parallel()
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403`
	large := strings.Repeat("x", 2*longestRefusal)
	for name, test := range map[string]struct {
		code       int
		kind, body string
		want       string
	}{
		"403":                     {403, "text/plain", "", "the API server responded with 403 Forbidden and no message (get nodes n1)"},
		"403 with an empty line":  {403, "text/html", "\n", "the API server responded with 403 Forbidden and no message (get nodes n1)"},
		"403 of no kind":          {403, "", "", "the API server responded with 403 Forbidden and no message (get nodes n1)"},
		"410":                     {410, "text/plain", "", "responded with the status code 410"},
		"415":                     {415, "text/plain", "", "the API server responded with 415 Unsupported Media Type and no message (get nodes n1)"},
		"a Status":                {403, "application/json", status + `}`, "the API server responded with 403 Forbidden and no message"},
		"a Status of 410":         {410, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410}`, "the API server responded with 410 Gone and no message"},
		"a Status that says why":  {403, "application/json", status + `,"message":"no role"}`, "no role"},
		"a proxy's page":          {403, "text/html", "blocked by policy", "blocked by policy (get nodes n1)"},
		"a page that is too long": {403, "text/plain", large, large[:1000]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.code)
				fmt.Fprint(w, test.body)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			config.Wrap(Explain)
			client, err := kubernetes.NewForConfig(config)
			must.Do(t, err)
			_, err = client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
