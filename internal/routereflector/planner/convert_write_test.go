// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"testing"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"pgregory.net/rapid"

	rr "github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// What is written is read back as it was meant, whatever the options.
func TestPeerSpecRoundTrip(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		want := rr.PeerSpec{
			NodeSelector: "all()", PeerSelector: "has(x)", SourceAddress: rapid.SampledFrom([]string{"UseNodeIP", "None"}).Draw(t, "source"),
			MaxRestartSeconds: rapid.Int64Range(0, 3600).Draw(t, "restart"), TTLSecurity: rapid.Int32Range(0, 254).Draw(t, "ttl"),
			Filters: rapid.SampledFrom([]string{"", "a", "a,b"}).Draw(t, "filters"),
		}
		if rapid.Bool().Draw(t, "password") {
			want.PasswordSecret, want.PasswordKey = "s", "k"
		}
		got, err := rr.PeerFrom(&calicov3.BGPPeer{Spec: want.Spec()}, func(string) (rr.Matcher, error) { return allBut("x"), nil })
		if err != nil || got.PeerSpec != want {
			t.Fatalf("%+v came back as %+v, %v", want, got.PeerSpec, err)
		}
	})
}
