// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// TestTheCampaignFindsThatNothingIsInBetween attacks etcd itself: requests that name others' keys get them, and the campaign must both see it
// and say which request it was.
func TestTheCampaignFindsThatNothingIsInBetween(t *testing.T) {
	t.Parallel()
	endpoint, _ := tenantproxy.StartEtcd(t, false)
	world := must.Get(worlds(tenantproxy.Dial(t, endpoint))(t.Context())).Or(t)
	report := must.Get(world.Run(t.Context(), attacks.Campaign{
		Conns: dial(t, endpoint, 2, nil), Seed: 1, Requests: 60, Batch: 60, Workers: 4, Patience: time.Second, Alive: alive,
	})).Or(t)
	t.Log(report)
	if len(report.Violations) == 0 {
		t.Fatal("nothing was found")
	}
	for _, v := range report.Violations {
		t.Log(v)
	}
}
