// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"context"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// TestEveryProbeFindsItsLeakInEtcdsGRPCProxy is the control: what the product's tests find nothing with must find what is known to be there.
func TestEveryProbeFindsItsLeakInEtcdsGRPCProxy(t *testing.T) {
	t.Parallel()
	endpoint, _ := tenantproxy.StartEtcd(t, false)
	peer := tenantproxy.GRPCProxy(t, endpoint, prefix)
	core := tenantproxy.Dial(t, endpoint)
	worlds := func(ctx context.Context) (*attacks.World, error) { return attacks.NewWorld(ctx, core, prefix) }
	got := must.Get(attacks.Probe(t.Context(), worlds, tenantproxy.Connections(t, peer.Address, 1)[0], func() string {
		select {
		case <-peer.Done():
			return peer.Output()
		default:
			return ""
		}
	})).Or(t)
	for _, name := range attacks.Probes() {
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
	peer := tenantproxy.GRPCProxy(t, endpoint, prefix)
	if got := attacks.PlainHTTP(t.Context(), peer.Address); got["/metrics"] == "" {
		t.Errorf("the core's metrics were not found behind the tenant's port; found %d paths", len(got))
	}
}
