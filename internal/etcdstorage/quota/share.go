// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package quota

// Share is the part of a rate that each of some replicas has: an equal one, and no less than one of least parts.
func Share(whole float64, replicas, least int) float64 {
	return whole / float64(max(min(replicas, least), 1))
}

// ShareOfPlaces is how many of some places the replica of a rank, from 0, has among replicas: together they have all of
// them, but each has one at least. 0 places are as many as anybody wants.
func ShareOfPlaces(whole, replicas, rank int) int {
	if whole <= 0 {
		return whole
	}
	n := max(replicas, 1)
	places := whole / n
	if rank < whole%n {
		places++
	}
	return max(places, 1)
}
