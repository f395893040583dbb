// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package routereflector

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
)

// SpreadOver picks some of the nodes, one of each class in turn. The choice depends on nothing but their names and
// classes.
func SpreadOver(nodes []Node, topology string, class func(*Node) string, size int) []Node {
	type member struct {
		at   int
		hash uint64
	}
	classes := map[string][]member{}
	for i := range nodes {
		of := class(&nodes[i])
		classes[of] = append(classes[of], member{i, Rendezvous(topology, nodes[i].Name)})
	}
	for _, members := range classes {
		slices.SortFunc(members, func(a, b member) int {
			return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(nodes[a.at].Name, nodes[b.at].Name))
		})
	}
	var out []Node
	for turn := 0; ; turn++ {
		some := false
		for _, of := range SortedKeys(classes) {
			if members := classes[of]; turn < len(members) && len(out) < size {
				out, some = append(out, nodes[members[turn].at]), true
			}
		}
		if !some {
			return out
		}
	}
}

// SortedKeys are the keys of a map.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// IsOneOf reports whether a node is among others, by its name.
func IsOneOf(n Node, nodes []Node) bool {
	return slices.ContainsFunc(nodes, func(other Node) bool { return other.Name == n.Name })
}

// Rendezvous orders nodes that suit equally well, so that the choice depends on nothing but the names.
func Rendezvous(topology, node string) uint64 {
	sum := sha256.Sum256([]byte(topology + "\x00" + node))
	return binary.BigEndian.Uint64(sum[:8])
}

// Second is a time as the API server keeps it.
func Second(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// ConfirmationWord is what a person repeats in an annotation to confirm the observed state. It is another one for every
// baseline.
func ConfirmationWord(b *v1alpha1.Baseline) string {
	sum := sha256.Sum256(
		fmt.Append(nil, b.Time.Unix(), b.Newest.Unix(), b.Nodes, b.Clients, b.Candidates, b.Reflectors, b.Selectors))
	return hex.EncodeToString(sum[:4])
}
