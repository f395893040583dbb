// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// ErrNoDroplet means that no droplet of the list is the Node's. It is not proof that there is none: a list may be partial, and a Node of
// another provider is never in it.
var ErrNoDroplet = errors.New("no droplet matches")

// AmbiguousError means that several droplets could be a Node's, so that none of them may be taken.
type AmbiguousError struct {
	// Node is the Node's name, By is what they share with it: "name" or "address".
	Node, By string
	// Droplets are the candidates' IDs in ascending order.
	Droplets []int
}

// Error implements error.
func (e *AmbiguousError) Error() string {
	ids := make([]string, len(e.Droplets))
	for i, id := range e.Droplets {
		ids[i] = strconv.Itoa(id)
	}
	return fmt.Sprintf("node %s has the %s of %d droplets, %s: delete or rename those that are not this node, or start its kubelet with "+
		"--provider-id=%sID", e.Node, e.By, len(ids), strings.Join(ids, " and "), providerid.Prefix)
}

// Match returns the droplet of a Node: the one that its provider ID names and no other; without a provider ID the one with the Node's name
// (names are compared without regard to case, as the API does); and without such a one, if the Node's name is an IP address, the one with
// that address. The droplets must be all of the account's, GPU droplets included, which the API lists apart.
//
// Errors: [ErrNoDroplet], [*AmbiguousError], or one of package providerid.
func Match(node *corev1.Node, droplets []Droplet) (Droplet, error) {
	if node.Spec.ProviderID != "" {
		id, err := providerid.Parse(node.Spec.ProviderID)
		if err != nil {
			return Droplet{}, err
		}
		i := slices.IndexFunc(droplets, func(d Droplet) bool { return d.ID == id })
		if i < 0 {
			return Droplet{}, fmt.Errorf("%w node %s: there is no droplet %d", ErrNoDroplet, node.Name, id)
		}
		return droplets[i], nil
	}
	if d, err := single(node, "name", droplets, func(d Droplet) bool { return strings.EqualFold(d.Name, node.Name) }); !errors.Is(err, ErrNoDroplet) {
		return d, err
	}
	address, err := netip.ParseAddr(node.Name)
	if err != nil {
		return Droplet{}, fmt.Errorf("%w node %s: there is no droplet of that name", ErrNoDroplet, node.Name)
	}
	return single(node, "address", droplets, func(d Droplet) bool {
		return slices.ContainsFunc(d.Networks, func(n Network) bool { return n.Address == address.Unmap() })
	})
}

// single returns the one droplet for which is holds.
func single(node *corev1.Node, by string, droplets []Droplet, is func(Droplet) bool) (Droplet, error) {
	var found []Droplet
	for _, d := range droplets {
		// The same droplet may stand twice in a list that was read page by page.
		if is(d) && !slices.ContainsFunc(found, func(f Droplet) bool { return f.ID == d.ID }) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 0:
		return Droplet{}, fmt.Errorf("%w node %s: there is no droplet with that %s", ErrNoDroplet, node.Name, by)
	case 1:
		return found[0], nil
	}
	ids := make([]int, len(found))
	for i, d := range found {
		ids[i] = d.ID
	}
	slices.Sort(ids)
	return Droplet{}, &AmbiguousError{Node: node.Name, By: by, Droplets: ids}
}
