// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math"
	"slices"
)

// LeastPart is the part of the whole that a replica has at least, so that one without demand can begin at once. With
// more than 32 replicas it is an equal part.
const LeastPart = 1.0 / 32

// Differs reports whether a demand is another than the one that is recorded: by more than a fifth of that, and by more
// than LeastPart, below which chance has the word.
func Differs(recorded, demand float64) bool {
	return math.Abs(demand-recorded) > max(recorded/5, LeastPart) || recorded == 0 && demand > 0
}

// Shares divides a whole, 1, among replicas by their demands, each a part of it. A demand of 0 is unknown, and counts as
// an equal part. Replicas that demand little have that, and the others have equal parts of what is left (max-min
// fairness). What no replica demands is added to all of them in equal parts.
//
// Parts in proportion to demand would not do: clients that wait for responses ask for no more than they are given, so
// that a replica with a small part would never show that its clients need a larger one.
func Shares(demands []float64) []float64 {
	n := float64(len(demands))
	shares := make([]float64, len(demands))
	for i, demand := range demands {
		if demand <= 0 {
			demand = 1 / n
		}
		shares[i] = min(max(demand, LeastPart), 1)
	}
	most, left := mostOfEach(shares), 1.0
	for i := range shares {
		shares[i] = min(shares[i], most)
		left -= shares[i]
	}
	for i := range shares {
		shares[i] += max(left, 0) / n
	}
	return shares
}

// mostOfEach is what each may have so that all together have no more than 1.
func mostOfEach(demands []float64) float64 {
	sorted := slices.Sorted(slices.Values(demands))
	left := 1.0
	for i, demand := range sorted {
		if equal := left / float64(len(sorted)-i); demand > equal {
			return equal
		}
		left -= demand
	}
	return 1
}

// ShareOfPlaces is how many of some places the replica of a rank has, from 0, by all replicas' shares: each has one,
// and together they have all of the others. 0 places are no limit.
func ShareOfPlaces(whole int, shares []float64, rank int) int {
	if whole <= 0 {
		return whole
	}
	others, before := float64(max(whole-len(shares), 0)), 0.0
	for _, share := range shares[:rank] {
		before += share
	}
	return 1 + int(math.Round((before+shares[rank])*others)) - int(math.Round(before*others))
}
