// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// ConfirmedLabel on a Node: the ID of the droplet that the Node is, as an administrator has confirmed. Kubernetes'
// NodeRestriction does not let kubelets write labels under this prefix. It MUST NOT be changed.
const ConfirmedLabel = "mooring.node-restriction.kubernetes.io/droplet"

// Dispute is why a Node may not be the droplet that its provider ID names.
type Dispute struct {
	// Droplet is the ID of that droplet; Why completes the sentence "node X …".
	Droplet int
	Why     string
	// Owned reports that another Node is that droplet, so that it stays a target for the sake of that Node.
	Owned bool
}

// Identities report which Nodes may not be the droplets that they name. A provider ID is the kubelet's word: it can
// name any droplet of the account, such as a database's.
type Identities struct {
	// Disputed are those Nodes by name.
	Disputed map[string]Dispute
	// Unseen are the droplets of Nodes, by name, that may be younger than what was read of DigitalOcean: a new list
	// decides.
	Unseen map[string]int
	// Tag is the cluster's tag, empty for none; with Required only droplets that have it are targets.
	Tag      string
	Required bool
}

// listLag is how long after a Node was created a list may begin that lacks its droplet all the same.
const listLag = time.Minute

// What speaks for a Node being a droplet, in ascending order: nothing, that the droplet has the cluster's tag, that the
// Node has its name, and the word of an administrator.
const (
	proofNone = iota
	proofTag
	proofName
	proofConfirmed
)

// claim is what a Node has to show for the droplet that it names; why says what it lacks if that is nothing.
type claim struct {
	node  string
	proof int
	why   string
}

// Identify compares Nodes with the droplets that DigitalOcean has shown; the newest list began at listed. A Node is the
// droplet that it names if it has the best proof of all that name it, and no other has the same:
//
//	an administrator has confirmed it with [ConfirmedLabel]
//	its name is the droplet's, with or without a domain, or one of the droplet's addresses
//	the droplet has the cluster's tag
//
// Where the tag is required a droplet without it needs the administrator's word.
func Identify(nodes []*corev1.Node, shown map[int]Droplet, listed time.Time, tag string, required bool) Identities {
	out := Identities{Disputed: map[string]Dispute{}, Unseen: map[string]int{}, Tag: tag, Required: required}
	claims := map[int][]claim{}
	for _, node := range nodes {
		id, err := providerid.Parse(node.Spec.ProviderID)
		if err != nil {
			continue // it is found by its name or address, or has another problem
		}
		d, there := shown[id]
		c := claim{node: node.Name}
		switch {
		case node.Labels[ConfirmedLabel] == strconv.Itoa(id):
			c.proof = proofConfirmed
		case !there && listed.Sub(node.CreationTimestamp.Time) < listLag:
			out.Unseen[node.Name] = id
			continue
		case !there:
			c.why = fmt.Sprintf("names droplet %d, which DigitalOcean has not shown", id)
		case required && !out.Tagged(d):
			c.why = fmt.Sprintf("names %s, which lacks the tag %s", d, tag)
		case bears(node.Name, d):
			c.proof = proofName
		case out.Tagged(d):
			c.proof = proofTag
		default:
			c.why = fmt.Sprintf("names %s, and has neither its name nor one of its addresses as name", d)
		}
		claims[id] = append(claims[id], c)
	}
	for id, all := range claims {
		out.decide(id, all)
	}
	return out
}

// decide decides which of the Nodes that name a droplet is that droplet.
func (i *Identities) decide(id int, claims []claim) {
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Or(b.proof-a.proof, strings.Compare(a.node, b.node)) })
	best := claims[0].proof
	owned := best == proofConfirmed || best > proofNone && (len(claims) == 1 || claims[1].proof < best)
	for _, c := range claims {
		if owned && c.proof == best {
			continue
		}
		if c.why == "" {
			other := claims[0].node
			if other == c.node {
				other = claims[1].node
			}
			c.why = fmt.Sprintf("names droplet %d, and so does node %s", id, other)
		}
		why := fmt.Sprintf("%s: an administrator confirms it with kubectl label node %s %s=%d", c.why, c.node, ConfirmedLabel, id)
		i.Disputed[c.node] = Dispute{Droplet: id, Owned: owned, Why: why}
	}
}

// Tagged reports whether a droplet has the cluster's tag; DigitalOcean tells tags apart without regard to case.
func (i Identities) Tagged(d Droplet) bool {
	return i.Tag != "" && slices.ContainsFunc(d.Tags, func(tag string) bool { return strings.EqualFold(tag, i.Tag) })
}

// bears reports whether the name of a Node is a droplet's name or one of its addresses. A kubelet's name is the host's,
// which may be the droplet's name without its domain, or with one.
func bears(name string, d Droplet) bool {
	long, short := strings.ToLower(name), strings.ToLower(d.Name)
	if len(long) < len(short) {
		long, short = short, long
	}
	if long == short || short != "" && strings.HasPrefix(long, short+".") {
		return true
	}
	address, err := netip.ParseAddr(name)
	return err == nil && slices.ContainsFunc(d.Networks, func(n Network) bool { return n.Address == address.Unmap() })
}
