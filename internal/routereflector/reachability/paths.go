// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reachability

// Paths counts, for each speaker by its index, the paths that it has to the prefix of one speaker: what its BIRD lists, whichever of them it uses.
// A speaker's own prefix counts as none. all is false, and the numbers are too small, if there are more than [MaxPaths] routes to follow.
//
// Unlike [Network.Judge] it looks at every speaker.
func (n *Network) Paths(origin int32) (paths []int, all bool) {
	held, all := n.flood(origin)
	paths = make([]int, len(n.speakers))
	for to := range n.speakers {
		if int32(to) != origin {
			paths[to] = n.paths(origin, int32(to), held)
		}
	}
	return paths, all
}
