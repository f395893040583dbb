// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// manyPeers is a number of BGPPeers from which on each change costs every node dearly: confd evaluates every selector over all nodes
// (projectcalico/calico issue 7681, projectcalico/confd pull request 234).
const manyPeers = 200

// session names the two ends of a session, the lesser index first.
type session struct{ a, b int32 }

// clash is two BGPPeers that ask for the same sessions with different options.
type clash struct{ first, second int }

// options finds BGPPeers that ask for the same sessions with different options.
func options(x examined) []finding.Finding {
	clashes, example := map[clash]int{}, map[clash]session{}
	for _, f := range x.families {
		askedBy := map[session]int{}
		for i := range x.Peers {
			x.sessions(f, i, func(s session) {
				first, asked := askedBy[s]
				switch {
				case !asked:
					askedBy[s] = i
				case first != i && !x.Peers[first].SameSessions(x.Peers[i].PeerSpec):
					c := clash{first, i}
					if clashes[c]++; clashes[c] == 1 {
						example[c] = s
					}
				}
			})
		}
	}
	var out []finding.Finding
	for c, n := range clashes {
		s := example[c]
		out = append(out, finding.Warning.Say("BGPPeers %s and %s ask for %s with different options, such as that of %s with %s",
			x.Peers[c.first].Name, x.Peers[c.second].Name, prose.Plural(n, "common session"), x.Nodes[s.a].Name, x.Nodes[s.b].Name).
			Because("a session has the options of one of them alone, and when that one goes the other's take its place, which resets the session").
			Advise("give both the same password, filters, restart time, TTL security and source address, or let one of them select fewer nodes"))
	}
	return out
}

// sessions calls visit for the sessions between nodes of the cluster that a BGPPeer asks for.
func (x examined) sessions(f routereflector.Family, peer int, visit func(session)) {
	from, to := x.Peers[peer].Ends(f.Name, x.Nodes)
	for _, b := range to {
		for _, a := range from {
			if a != b && f.Up[a] && f.Up[b] {
				visit(session{min(a, b), max(a, b)})
			}
		}
	}
}

// changing are labels that Kubernetes itself has dropped, has announced to drop, or sets by a role that may be another one after an upgrade.
func changing() []string {
	return []string{"node-role.kubernetes.io/", "beta.kubernetes.io/", "failure-domain.beta.kubernetes.io/", "kubernetes.io/role", "kubernetes.io/cluster-service"}
}

// selectors finds BGPPeers whose selectors hang on labels that may vanish, or that select nobody.
func selectors(x examined) []finding.Finding {
	var out []finding.Finding
	for i := range x.Peers {
		p := &x.Peers[i]
		for field, text := range map[string]string{"nodeSelector": p.NodeSelector, "peerSelector": p.PeerSelector} {
			at := slices.IndexFunc(changing(), func(label string) bool { return strings.Contains(text, label) })
			if at < 0 {
				continue
			}
			out = append(out, finding.Warning.Say("spec.%s of BGPPeer %s depends on a label of Kubernetes: %s", field, p.Name, text).
				Because("an upgrade can remove such a label, and the sessions with it: node-role.kubernetes.io/master went with Kubernetes 1.24, and whole clusters lost their routes").
				Advise("select by a label of your own, or let a RouteReflectorTopology do it"))
		}
		out = append(out, x.nobody(p)...)
	}
	if len(out) == 0 && len(x.Peers) > 0 {
		out = append(out, finding.OK.Say("%s select nodes by labels of your own", prose.Plural(len(x.Peers), "BGPPeer")))
	}
	return out
}

// nobody says of a BGPPeer that its selectors select no node.
func (x examined) nobody(p *routereflector.Peer) []finding.Finding {
	none := func(m routereflector.Matcher) bool {
		return m != nil && !slices.ContainsFunc(x.Nodes, func(n routereflector.Node) bool { return m.Evaluate(n.Labels) })
	}
	switch {
	case none(p.PeerMatcher):
		return []finding.Finding{finding.Warning.Say("spec.peerSelector of BGPPeer %s selects no node: %s", p.Name, p.PeerSelector).
			Because("it creates no session; if reflectors had that label before, they have lost it").
			Advise("put the label back, or delete the BGPPeer")}
	case none(p.NodeMatcher):
		return []finding.Finding{finding.Note.Say("spec.nodeSelector of BGPPeer %s selects no node: %s", p.Name, p.NodeSelector).
			Because("it creates no session").
			Advise("delete it if no node is to have that label")}
	}
	return nil
}

// peers looks at how many BGPPeers there are.
func peers(x examined) []finding.Finding {
	if len(x.Peers) <= manyPeers {
		return nil
	}
	return []finding.Finding{finding.Warning.Say("there are %d BGPPeers for %d nodes", len(x.Peers), len(x.Nodes)).
		Because("at each change of a node or a BGPPeer, every calico-node evaluates every selector over all nodes: with thousands, calico-node takes minutes to start").
		Advise("BGPPeers with selectors instead of one for each node: a flat RouteReflectorTopology has two")}
}

// unread passes on what could not be read.
func unread(x examined) []finding.Finding {
	out := make([]finding.Finding, 0, len(x.Unread))
	for _, sentence := range x.Unread {
		out = append(out, finding.Problem.Say("%s", sentence).
			Because("it is ignored in these findings, and Calico ignores it as well").
			Advise("write it again with calicoctl, or delete it"))
	}
	return out
}
