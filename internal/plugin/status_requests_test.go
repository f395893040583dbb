// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// counting is a kubeconfig of a server that counts requests and passes them on.
func counting(t *testing.T, cluster *controlplane.Cluster) (kubeconfig string, asked func() map[string]int) {
	t.Helper()
	proxy := &httputil.ReverseProxy{Transport: must.Get(rest.TransportFor(cluster.Config)).Or(t)}
	target := must.Get(url.Parse(cluster.Config.Host)).Or(t)
	proxy.Rewrite = func(r *httputil.ProxyRequest) { r.SetURL(target) }
	var mu sync.Mutex
	counts := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		counts[r.Method+" "+r.URL.Path]++
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	kubeconfig = write(t, "kubeconfig", `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "`+server.URL+`"}}]
users: [{name: u, user: {}}]
`)
	return kubeconfig, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}
}

// status asks the API server for each list once, however many of its parts need it: 1,000 Nodes are two pages. Before, it
// sent 58 requests to this cluster.
func TestStatusReadsEachListOnce(t *testing.T) {
	clearEnvironment(t)
	cluster := controlplane.Lend(t)
	for i := range 1000 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i)}}
		must.Get(cluster.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})).Or(t)
	}
	kubeconfig, asked := counting(t, cluster)
	if code, out, problems := run(t, []string{"status", "--kubeconfig=" + kubeconfig}); !strings.Contains(out, "1000 down") {
		t.Fatalf("exit code %d: %s%s", code, out, problems)
	}
	total, counts := 0, asked()
	for _, path := range slices.Sorted(maps.Keys(counts)) {
		total += counts[path]
		if counts[path] > 2 { // pages, or two clients that ask for different forms
			t.Errorf("%d times %s", counts[path], path)
		}
	}
	if total > 44 {
		t.Errorf("%d requests: %v", total, counts)
	}
	t.Logf("%d requests", total)
}
