// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// recorder stands between a program and the API server, passes everything on as it is, and notes what was asked for and what was forbidden. Requests
// are taken apart by the API server's own code, so that what is noted are the words of RBAC.
type recorder struct {
	url     string
	ca      []byte // PEM
	resolve *request.RequestInfoFactory
	proxy   *httputil.ReverseProxy

	mu        sync.Mutex
	used      []*request.RequestInfo // guarded by mu
	forbidden []string               // guarded by mu
}

func newRecorder(t *testing.T, c *controlplane.Cluster) *recorder {
	t.Helper()
	target := must.Get(url.Parse(c.Config.Host)).Or(t)
	secure := must.Get(rest.TransportFor(rest.AnonymousClientConfig(c.Config))).Or(t)
	r := &recorder{resolve: &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}}
	r.proxy = &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, Transport: secure, FlushInterval: -1, ModifyResponse: r.note,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }, // who asked has gone
	}
	server := httptest.NewTLSServer(r) // clients send tokens over TLS only
	t.Cleanup(func() {
		server.CloseClientConnections() // watches
		server.Close()
	})
	r.url, r.ca = server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return r
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if info, err := r.resolve.NewRequestInfo(req); err == nil && info.IsResourceRequest {
		r.mu.Lock()
		r.used = append(r.used, info)
		if info.Verb == "watch" && req.URL.Query().Get("sendInitialEvents") == "true" {
			// A watch that begins with all there is. Where the API server does not serve that, client-go lists instead.
			listed := *info
			listed.Verb = "list"
			r.used = append(r.used, &listed)
		}
		r.mu.Unlock()
	}
	r.proxy.ServeHTTP(w, req)
}

func (r *recorder) note(response *http.Response) error {
	if response.StatusCode == http.StatusForbidden {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.forbidden = append(r.forbidden, response.Request.Method+" "+response.Request.URL.Path)
	}
	return nil
}

// refusals are the requests that were forbidden.
func (r *recorder) refusals() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.forbidden)
}

// unused returns the rights of a rule that no request made use of, one for each combination of its lists.
func (r *recorder) unused(namespace string, rule rbacv1.PolicyRule) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var out []string
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range names {
					right := rightTo{group, resource, verb, name, namespace}
					if !slices.ContainsFunc(r.used, right.covers) {
						out = append(out, right.String())
					}
				}
			}
		}
	}
	return out
}

// rightTo is one right; an empty name or namespace is any.
type rightTo struct{ group, resource, verb, name, namespace string }

func (r rightTo) covers(i *request.RequestInfo) bool {
	resource := i.Resource
	if i.Subresource != "" {
		resource += "/" + i.Subresource
	}
	return i.APIGroup == r.group && resource == r.resource && i.Verb == r.verb && (r.name == "" || i.Name == r.name) &&
		(r.namespace == "" || i.Namespace == r.namespace)
}

func (r rightTo) String() string {
	return strings.TrimSpace(strings.Join([]string{r.verb, r.group, r.resource, r.name, r.namespace}, " "))
}
