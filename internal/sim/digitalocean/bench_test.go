// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"errors"
	"fmt"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"io"
	"net/http"
	"runtime"
	"testing"
)

// fullAccount has 1,000 droplets and 50 load balancers with all of them.
func fullAccount(b *testing.B, options Options) *Simulator {
	b.Helper()
	options.RateLimits, options.JournalKeep = unlimited(), -1
	s := New(options)
	var ids []int
	for i := range 1000 {
		d, err := s.Account("").CreateDroplet(DropletSpec{Name: fmt.Sprintf("node-%d", i), Tags: []string{"k8s:worker"}})
		must.Do(b, err)
		ids = append(ids, d.ID)
	}
	for i := range 50 {
		_, err := s.Account("").CreateLoadBalancer(LoadBalancer{
			Name: fmt.Sprintf("lb-%d", i), DropletIDs: ids, ForwardingRules: []ForwardingRule{{EntryProtocol: "tcp", EntryPort: 80}},
		})
		must.Do(b, err)
	}
	return s
}

func BenchmarkRequests(b *testing.B) {
	s := fullAccount(b, Options{})
	id := s.Account("").LoadBalancers()[0].ID
	for name, path := range map[string]string{
		"list 200 droplets":      "/v2/droplets?per_page=200&page=3",
		"list 50 load balancers": "/v2/load_balancers?per_page=200",
		"find a droplet by name": "/v2/droplets?name=node-999",
		"get a droplet":          "/v2/droplets/400000500",
		"get a load balancer":    "/v2/load_balancers/" + id,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				request := must.Get(http.NewRequest(http.MethodGet, "http://api"+path, nil)).Or(b)
				request.Header.Set("Authorization", "Bearer "+DefaultToken)
				response, err := s.Transport().RoundTrip(request)
				if err != nil || response.StatusCode != http.StatusOK {
					b.Fatal(response, err)
				}
				n, err := io.Copy(io.Discard, response.Body)
				must.Do(b, errors.Join(err, response.Body.Close()))
				b.SetBytes(n)
			}
		})
	}
}

func BenchmarkMemory(b *testing.B) {
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		s := fullAccount(b, Options{})
		b.ReportMetric(float64(heap()-before)/1024, "KiB/account")
		runtime.KeepAlive(s)
	}
}
