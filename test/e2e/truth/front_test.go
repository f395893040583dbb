// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// front is what views reach the API server through: it counts requests, and can be slow or gone.
type front struct {
	server *httptest.Server
	mu     sync.Mutex
	paths  []string
	// slow is how long each response takes; refuses answers requests instead of the API server.
	slow    time.Duration
	refuses func(*http.Request) bool
	// ahead is by how much the API server's clock is ahead of this machine's.
	ahead time.Duration
}

func newFront(t *testing.T, host string) *front {
	t.Helper()
	target, err := url.Parse(host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 50}
	f := &front{}
	proxy.ModifyResponse = func(r *http.Response) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if at, err := http.ParseTime(r.Header.Get("Date")); err == nil {
			r.Header.Set("Date", at.Add(f.ahead).Format(http.TimeFormat))
		}
		return nil
	}
	f.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.paths = append(f.paths, r.Method+" "+r.URL.RequestURI())
		slow, refuses := f.slow, f.refuses
		f.mu.Unlock()
		if refuses != nil && refuses(r) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not for this person"}`))
			return
		}
		timer := time.NewTimer(slow)
		defer timer.Stop()
		select {
		case <-timer.C:
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(f.server.Close)
	return f
}

// set makes responses slow or refused, and forgets what was counted.
func (f *front) set(slow time.Duration, refuses func(*http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow, f.refuses, f.paths = slow, refuses, nil
}

func (f *front) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.paths
}

// through runs a body with the API server behind the front.
func (s *stage) through(f *front, body func()) {
	s.Helper()
	text, err := os.ReadFile(s.kubeconfig)
	s.must(err)
	behind := strings.Replace(string(text), s.server.Config.Host, f.server.URL, 1)
	s.must(os.WriteFile(s.kubeconfig, []byte(behind), 0o600))
	defer func() { s.must(os.WriteFile(s.kubeconfig, text, 0o600)) }()
	body()
}
