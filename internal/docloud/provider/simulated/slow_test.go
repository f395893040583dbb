// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// lists counts how often objects were listed, by a part of the query.
func (b *bubble) lists(route, query string) (n int) {
	for _, e := range b.cloud.Requests(journal.Filter{Route: "GET " + route}) {
		if strings.Contains(e.URL, query) {
			n++
		}
	}
	return n
}

// Droplets with GPUs, which have a list of their own, are listed rarely; a new one joins as soon as any other, and one that is lost goes as soon.
func TestDropletsWithGPUsAreListedWhenTheyMatter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 3, 0)
		defer b.stop()
		b.cloud.ResetJournal()
		elapse(time.Hour)
		if n := b.lists("/v2/droplets", "type=gpus"); n > 4 {
			t.Errorf("they were listed %d times in an hour without any", n)
		}
		must.Get(b.cloud.Account("").CreateDroplet(sim.DropletSpec{Name: "gpu-0", Size: "gpu-h100x1-80gb"})).Or(t)
		elapse(30 * time.Second)
		b.join("gpu-0")
		elapse(15 * time.Second)
		if node := b.node("gpu-0"); node.Spec.ProviderID == "" || len(node.Spec.Taints) > 0 {
			t.Errorf("after 15 s it is not initialized: %+v", node.Spec)
		}
		b.cloud.ResetJournal()
		elapse(time.Hour)
		if n := b.lists("/v2/droplets", "type=gpus"); n > 4 {
			t.Errorf("they were listed %d times in an hour with one", n)
		}
		must.Do(t, b.cloud.Account("").DeleteDroplet("gpu-0"))
		b.unready("gpu-0")
		elapse(time.Minute)
		if b.has("gpu-0") {
			t.Error("a minute after its droplet was deleted it is still there")
		}
		if b.nodes() != 3 {
			t.Errorf("%d Nodes are left", b.nodes())
		}
	})
}

// Certificates are listed rarely, and at once when a name is not among them or the load balancer has another one.
func TestCertificatesAreListedWhenTheyMatter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 3, 0)
		defer b.stop()
		certificate := func(name string) sim.Certificate {
			c, err := b.cloud.Account("").CreateCertificate(sim.CertificateSpec{Name: name, DNSNames: []string{name + ".example.com"}})
			must.Do(t, err)
			return c
		}
		secure := func(service, name string) {
			b.serve(service, 443, func(s *corev1.Service) {
				s.Annotations = map[string]string{
					annotation.Type: "REGIONAL", annotation.Prefix + "protocol": "https", annotation.CertificateName: name,
				}
			})
		}
		used := func(service, id string) {
			t.Helper()
			lb, err := b.cloud.Account("").LoadBalancer(b.service(service).Annotations[annotation.LoadBalancerID])
			if err != nil || len(lb.ForwardingRules) != 1 || lb.ForwardingRules[0].CertificateID != id {
				t.Errorf("service %s should have certificate %s: %+v, %v", service, id, lb.ForwardingRules, err)
			}
		}
		one := certificate("one")
		secure("a", "one")
		elapse(3 * time.Minute)
		used("a", one.ID)

		b.cloud.ResetJournal()
		elapse(time.Hour)
		if n := b.lists("/v2/certificates", ""); n > 5 {
			t.Errorf("certificates were listed %d times in an hour", n)
		}
		two := certificate("two") // the list that is known lacks it
		secure("b", "two")
		elapse(3 * time.Minute)
		used("b", two.ID)

		renewed := must.Get(b.cloud.Account("").RotateCertificate(one.ID)).Or(t)
		b.cloud.ResetJournal()
		elapse(10 * time.Minute)
		used("a", renewed.ID)
		if stats := b.cloud.Stats(); stats.Writes() > 0 {
			t.Errorf("a renewed certificate made writes: %v", stats.Routes)
		}
	})
}

// DigitalOcean renews certificates whenever it likes, and load balancers that use them have the new ID at once: whatever list is being read just then,
// nothing is changed.
func TestRenewalsAtAnyMomentMakeNoWrites(t *testing.T) {
	t.Parallel()
	seed := cases.Seed(t)
	synctest.Test(t, func(t *testing.T) {
		options := likeDigitalOcean()
		options.Latency = 200 * time.Millisecond
		b := newBubble(t, options)
		random := seeded(seed)
		b.member("node")
		ids := map[string]string{}
		for name, annotations := range map[string]map[string]string{
			"by-id": {annotation.CertificateID: ""}, "by-name": {annotation.CertificateName: "by-name"}, "by-domains": {annotation.CertificateDomains: "by-domains.example"},
		} {
			c, err := b.cloud.Account("").CreateCertificate(sim.CertificateSpec{Name: name, DNSNames: []string{name + ".example"}})
			must.Do(t, err)
			ids[name] = c.ID
			b.serve(name, 443, func(s *corev1.Service) {
				s.Annotations = map[string]string{annotation.Type: "REGIONAL", annotation.Prefix + "protocol": "https"}
				maps.Copy(s.Annotations, annotations)
				if name == "by-id" {
					s.Annotations[annotation.CertificateID] = c.ID
				}
			})
		}
		b.start(death{})
		elapse(30 * time.Minute)
		b.cloud.ResetJournal()
		// Each list of either kind may be what a renewal meets: shortly before, while it is read, or shortly after.
		moments := make(chan time.Duration, 100)
		var mu sync.Mutex // guards random
		var renewals int
		b.watch = func(r *http.Request) {
			if r.URL.Path != "/v2/load_balancers" && r.URL.Path != "/v2/certificates" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			select {
			case moments <- time.Duration(random.Int64N(int64(time.Second))):
			default:
			}
		}
		b.process.kill()
		b.process.ended()
		b.start(death{})
		hours := cases.Number(t, 4, 8, 24)
		for end := time.Now().Add(time.Duration(hours) * time.Hour); time.Now().Before(end); {
			select {
			case wait := <-moments:
				elapse(wait)
				name := []string{"by-id", "by-name", "by-domains"}[renewals%3]
				c := must.Get(b.cloud.Account("").RotateCertificate(ids[name])).Or(t)
				ids[name] = c.ID
				renewals++
			case <-time.After(time.Hour):
			}
		}
		b.watch = nil
		t.Logf("%d renewals, %v", renewals, b.cloud.Stats().Routes)
		// Between the last read and a write there is always room for one more renewal: such a write names a certificate that is gone, and changes nothing.
		late := b.cloud.Stats().Routes["PUT /v2/load_balancers/{lb_id}"].Statuses[http.StatusNotFound]
		if n := b.cloud.Stats().Writes() - late; n > 0 || late > 2 || renewals < 200*hours/24 {
			t.Errorf("%d writes and %d of a certificate that was gone, %d renewals: %v", n, late, renewals, b.cloud.Stats().Routes)
		}
		b.stop()
	})
}

// Ages of what is known are shown by kind, and none for what nothing needs.
func TestAgesAreShown(t *testing.T) {
	t.Parallel()
	for _, services := range []int{0, 1} {
		t.Run(fmt.Sprint(services), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := settled(t, 2, services)
				defer b.stop()
				ages := map[string]float64{}
				families := must.Get(b.process.registry.Gather()).Or(t)
				for _, f := range families {
					if f.GetName() == "mooring_digitalocean_snapshot_age_seconds" {
						for _, m := range f.GetMetric() {
							ages[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
						}
					}
				}
				for kind, most := range map[string]float64{"droplets": 301, "gpu_droplets": 1201, "load_balancers": float64(361*services) - 0.5, "certificates": -0.5} {
					if age, ok := ages[kind]; !ok || age > most || most > 0 && age < 0 {
						t.Errorf("%s: %v %t, want %v at most", kind, age, ok, most)
					}
				}
			})
		})
	}
}
