// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"strconv"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// Groups are numbered. The first is the one that a flat topology consists of, so that a flat topology is a hierarchy of
// one group without spines.
const (
	// Nowhere is the group of a client that no label puts into a group that there is.
	Nowhere = -1
	// Spines is the number by which the spines are known, which have no clients.
	Spines     = 0
	FirstGroup = 1
	// MaxGroups is how many groups a topology may have: the status has room for 256 reflectors.
	MaxGroups = 100
)

const (
	// SpineCount is how many spines there are. Between clients of two groups there are redundancy × spineCount ×
	// redundancy paths.
	SpineCount = 2
	// groupRedundancy is the number of reflectors of a group of a hierarchy where the spec names none.
	groupRedundancy = 2
	// LeastGroups is how many groups a hierarchy has.
	LeastGroups = 2
)

// SpineValue is the value of the group label on spines.
const SpineValue = "spine"

// GroupName is what a group is called in reports, and as value of labels.
func GroupName(g int) string {
	if g == Spines {
		return SpineValue
	}
	return strconv.Itoa(g)
}

// parseGroup reads the number of a group of clients, [nowhere] if it is none.
func parseGroup(text string) int {
	if text == "" {
		return Nowhere // as most nodes of most clusters have it: an error would be allocated for each
	}
	g, err := strconv.Atoi(text)
	if err != nil || g < FirstGroup || g > MaxGroups || strconv.Itoa(g) != text {
		return Nowhere
	}
	return g
}

// Group is the group of a node that is a reflector, by what was written on it.
func (n *Node) Group() int {
	if n.Written != nil {
		return n.Written.Group
	}
	return n.LabeledGroup()
}

// LabeledGroup is the group that the labels of a reflector name. The first group's have no label for it, so that a flat
// topology's reflectors stay as they are.
func (n *Node) LabeledGroup() int {
	label, has := n.Labels[v1alpha1.GroupLabel]
	switch {
	case !has:
		return FirstGroup
	case label == SpineValue:
		return Spines
	case parseGroup(label) == FirstGroup:
		return Nowhere
	}
	return parseGroup(label)
}

// hasGroupsID reports whether a marked node has a cluster ID that may be its group's.
func (n *Node) hasGroupsID(t *v1alpha1.RouteReflectorTopology) bool {
	if n.altered() {
		return false
	}
	if n.Group() == FirstGroup {
		return n.ClusterID == t.Spec.ClusterID
	}
	return n.ClusterID != "" && n.ClusterID != t.Spec.ClusterID
}

// Linked reports whether two reflectors have a session: those of a group, and every one with the spines. Reflectors of
// different groups never have, so that the cluster IDs are the vertices of a tree, and paths do not multiply.
func (n *Node) Linked(other *Node) bool {
	a, b := n.Group(), other.Group()
	return a == b || a == Spines || b == Spines
}
