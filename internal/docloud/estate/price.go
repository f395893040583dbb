// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package estate

import (
	"fmt"
	"math"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// balancerCents is what a load balancer costs in a month, nil for one whose type has no price in the assumptions.
func balancerCents(o loadbalancer.Observed) *int {
	if o.Type != assumed.TypeRegional {
		return nil
	}
	return new(o.Units() * assumed.PriceBalancerNode)
}

// storageCents is what a volume or a snapshot costs in a month.
func storageCents(s Stored) *int {
	price := float64(assumed.PriceVolumeGiB)
	if s.Kind == Snapshot {
		price = assumed.PriceSnapshotGiB
	}
	return new(int(math.Round(s.GiB * price)))
}

// Dollars is an amount for people, "unknown" for nil.
func Dollars(cents *int) string {
	const hundred = 100
	if cents == nil {
		return "unknown"
	}
	return fmt.Sprintf("$%d.%02d", *cents/hundred, *cents%hundred)
}

// sum is what objects cost together, and how many have no price.
func sum(objects []Object) (cents, unpriced int) {
	for _, o := range objects {
		if o.MonthlyCents == nil {
			unpriced++
			continue
		}
		cents += *o.MonthlyCents
	}
	return cents, unpriced
}
