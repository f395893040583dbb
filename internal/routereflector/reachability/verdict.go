// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package reachability

// Pair is two speakers: From lacks a route to To.
type Pair struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// maxExamples is how many of the unreachable pairs a Verdict names.
const maxExamples = 5

// Verdict is what the model says of a network.
type Verdict struct {
	// UnreachablePairs counts the ordered pairs of speakers of which the first has no route to the second.
	UnreachablePairs int
	// Examples names some of them, the first in the order of the speakers.
	Examples []Pair
	// MaxPaths is the greatest number of paths that a speaker of the cluster's AS has to one prefix of it. ForeignPaths is the same where either is of
	// another AS: to that, and of that, reflectors pass on what they have from each other. Both are at most [MaxPaths].
	MaxPaths, ForeignPaths int
}

// Judge looks at all ordered pairs of speakers, but for those with a speaker for which exempt is true. The work grows with the number of
// classes of speakers, which is small where speakers follow rules, and not with the number of pairs.
func (n *Network) Judge(exempt func(i int32) bool) Verdict {
	var v Verdict
	classes := n.classes()
	counted := make([]int, len(classes))
	for i, c := range classes {
		for _, m := range c.members {
			if exempt == nil || !exempt(m) {
				counted[i]++
			}
		}
	}
	routes := n.flooder()
	for i, c := range classes {
		if counted[i] == 0 {
			continue
		}
		held, all := routes.flood(c.members[0])
		if !all {
			v.MaxPaths = MaxPaths
		}
		n.judgeOrigin(&v, classes, counted, i, held, exempt)
	}
	return v
}

// judgeOrigin judges the routes to the members of class i, given what the reflectors hold of the first of them.
func (n *Network) judgeOrigin(v *Verdict, classes []class, counted []int, i int, held holdings, exempt func(i int32) bool) {
	origin := classes[i].members[0]
	for j, to := range classes {
		if counted[j] == 0 {
			continue
		}
		receiver, pairs := to.members[0], counted[i]*counted[j]
		if i == j {
			if len(to.members) < 2 {
				continue
			}
			receiver, pairs = to.members[1], counted[i]*(counted[i]-1)
		}
		paths := n.paths(origin, receiver, held)
		most := &v.MaxPaths
		if n.speakers[receiver].AS != 0 || n.speakers[origin].AS != 0 {
			most = &v.ForeignPaths
		}
		*most = min(max(*most, paths), MaxPaths)
		if paths == 0 && pairs > 0 {
			v.UnreachablePairs += pairs
			n.example(v, to, classes[i], exempt)
		}
	}
}

// example names a pair of the two classes.
func (n *Network) example(v *Verdict, from, to class, exempt func(i int32) bool) {
	for _, a := range from.members {
		for _, b := range to.members {
			if len(v.Examples) == maxExamples {
				return
			}
			if a != b && (exempt == nil || !exempt(a) && !exempt(b)) {
				v.Examples = append(v.Examples, Pair{From: n.speakers[a].Name, To: n.speakers[b].Name})
				return
			}
		}
	}
}
