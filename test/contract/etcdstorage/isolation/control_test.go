// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/etcdisolation"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// TestTheCampaignFindsThatNothingIsInBetween attacks etcd itself: requests that name others' keys get them, and the campaign must both see it
// and say which request it was.
func TestTheCampaignFindsThatNothingIsInBetween(t *testing.T) {
	t.Parallel()
	endpoint, _ := tenantproxy.StartEtcd(t, false)
	world, err := worlds(tenantproxy.Dial(t, endpoint))(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	report, err := world.Run(t.Context(), etcdisolation.Campaign{
		Conns: dial(t, endpoint, 2, nil), Seed: 1, Requests: 60, Batch: 60, Workers: 4, Patience: time.Second, Alive: alive,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	if len(report.Violations) == 0 {
		t.Fatal("nothing was found")
	}
	for _, v := range report.Violations {
		t.Log(v)
	}
}

// TestEveryProbeFindsItsLeakInEtcdsGRPCProxy is the control: what the product's tests find nothing with must find what is known to be there.
func TestEveryProbeFindsItsLeakInEtcdsGRPCProxy(t *testing.T) {
	t.Parallel()
	endpoint, _ := tenantproxy.StartEtcd(t, false)
	peer := tenantproxy.GRPCProxy(t, endpoint, tenantPrefix)
	got, err := etcdisolation.Probe(t.Context(), worlds(tenantproxy.Dial(t, endpoint)), dial(t, peer.Address, 1, nil)[0], func() string {
		select {
		case <-peer.Done():
			return peer.Output()
		default:
			return ""
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range etcdisolation.Probes() {
		if got[name] == "" {
			t.Errorf("it was not found that a tenant can %s", name)
		} else {
			t.Logf("%s: %.300s", name, got[name])
		}
	}
}

// TestPlainHTTPFindsWhatEtcdsGRPCProxyServes is the control of the attacks in HTTP/1.1.
func TestPlainHTTPFindsWhatEtcdsGRPCProxyServes(t *testing.T) {
	t.Parallel()
	endpoint, _ := tenantproxy.StartEtcd(t, false)
	peer := tenantproxy.GRPCProxy(t, endpoint, tenantPrefix)
	if got := etcdisolation.PlainHTTP(t.Context(), peer.Address); got["/metrics"] == "" {
		t.Errorf("the core's metrics were not found behind the tenant's port; found %d paths", len(got))
	}
}
