// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// A certificate that stays pending costs little, however many Services wait for it, and one that is in use costs what one by name does.
func TestCertificatesThatAreAwaitedCostLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := settled(t, 3, 0)
		defer b.stop()
		account := b.cloud.Account("")
		pending, err := account.CreateCertificate(sim.CertificateSpec{Name: loadbalancer.ManagedName([]string{"example.com"}), DNSNames: []string{"example.com"}})
		must.Do(t, err)
		must.Do(t, account.SetCertificateState(pending.ID, "pending"))
		const services = 10
		b.cloud.ResetJournal()
		for i := range services {
			b.serve(fmt.Sprintf("s%d", i), 443, func(s *corev1.Service) {
				s.Annotations = map[string]string{
					annotation.Type: "REGIONAL", annotation.Prefix + "protocol": "https", annotation.CertificateDomains: "example.com",
				}
			})
		}
		elapse(time.Hour)
		lists, balancers := b.lists("/v2/certificates", ""), b.lists("/v2/load_balancers", "")
		t.Logf("%d Services that wait for an hour: %d lists of certificates, %d of load balancers", services, lists, balancers)
		if lists > 50 || balancers > 120 {
			t.Errorf("%d lists of certificates and %d of load balancers in an hour", lists, balancers)
		}
		stats := b.cloud.Stats()
		if n := stats.Count("POST /v2/load") + stats.Count("PUT /v2/load") + stats.Count("DELETE /v2/load") + stats.Count("POST /v2/certificates"); n > 0 {
			t.Errorf("waiting made %d writes: %v", n, stats.Routes)
		}
		must.Do(t, account.SetCertificateState(pending.ID, "verified"))
		elapse(15 * time.Minute)
		for i := range services {
			lb, err := account.LoadBalancer(b.service(fmt.Sprintf("s%d", i)).Annotations[annotation.LoadBalancerID])
			if err != nil || lb.ForwardingRules[0].CertificateID != pending.ID {
				t.Errorf("service s%d: %+v, %v", i, lb, err)
			}
		}
		b.cloud.ResetJournal()
		elapse(time.Hour)
		if n, stats := b.lists("/v2/certificates", ""), b.cloud.Stats(); n > 5 || stats.Writes() > 0 {
			t.Errorf("in use: %d lists of certificates in an hour, writes %v", n, stats.Routes)
		}
	})
}
