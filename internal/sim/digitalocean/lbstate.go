// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// The words of a load balancer (OpenAPI: load_balancer).
const (
	statusErrored = "errored"

	typeRegional = assumed.TypeRegional
	typeNetwork  = assumed.TypeRegionalNetwork

	networkExternal = assumed.NetworkExternal
	networkInternal = assumed.NetworkInternal

	stackIPv4 = assumed.StackIPv4
	stackDual = assumed.StackDual
)

// loadBalancer is a load balancer. It is never changed in place, see table; only progress is shared by all its versions.
type loadBalancer struct {
	// shown is what the API shows, except for what depends on the time: status, and the addresses that come with it.
	// DropletIDs are sorted and, with a tag, empty: then the droplets are those that carry the tag.
	shown     LoadBalancer
	progress  *progress
	resizedAt time.Time
	busyUntil time.Time
	claimed   []string // addresses that go back to their pools
}

// progress is how far the making of a load balancer is.
type progress struct {
	activeAt time.Time
	reads    int // that are still needed until it is active
	errored  bool
	forced   string // a status that was set from outside
}

func (lb *loadBalancer) clone() *loadBalancer {
	copied := *lb
	copied.shown.DropletIDs = slices.Clone(lb.shown.DropletIDs)
	copied.shown.ForwardingRules = slices.Clone(lb.shown.ForwardingRules)
	copied.shown.Tags = slices.Clone(lb.shown.Tags)
	copied.shown.Firewall.Allow = slices.Clone(lb.shown.Firewall.Allow)
	copied.shown.Firewall.Deny = slices.Clone(lb.shown.Firewall.Deny)
	if sends := lb.shown.HealthCheck.ProxyProtocol; sends != nil {
		copied.shown.HealthCheck.ProxyProtocol = new(*sends)
	}
	return &copied
}

func (lb *loadBalancer) status(when time.Time) string {
	p := lb.progress
	switch {
	case p.forced != "":
		return p.forced
	case p.reads > 0 || when.Before(p.activeAt):
		return statusNew
	case p.errored:
		return statusErrored
	}
	return statusActive
}

// busy reports whether a change would be refused.
func (lb *loadBalancer) busy(now time.Time) bool {
	return lb.status(now) == statusNew || now.Before(lb.busyUntil)
}

// noteRead counts a read of a load balancer that is new. It does nothing for others.
func (lb *loadBalancer) noteRead() {
	if lb.progress.reads > 0 {
		lb.progress.reads-- // not told as a change: a restart may need the read again
	}
}

// showBalancer returns a load balancer as it was at a time.
func (a *account) showBalancer(lb *loadBalancer, when time.Time) LoadBalancer {
	shown := lb.shown
	shown.Status = lb.status(when)
	if shown.Status != statusActive {
		shown.IP, shown.IPv6 = "", ""
	}
	if shown.Tag != "" {
		shown.DropletIDs = a.taggedDroplets(shown.Tag, when)
	}
	return shown
}

// taggedDroplets returns the sorted IDs of the droplets that carry a tag; it is never nil.
func (a *account) taggedDroplets(tag string, when time.Time) []int {
	ids := []int{}
	for d := range a.droplets.valuesAt(when) {
		if d.hasTag(tag) {
			ids = append(ids, d.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// balancerNamed returns the load balancer of this name. Names are unique within an account.
func (a *account) balancerNamed(name string) (*loadBalancer, bool) {
	for lb := range a.balancers.values() {
		if lb.shown.Name == name {
			return lb, true
		}
	}
	return nil, false
}

// addBalancer gives a checked load balancer its identity and its addresses.
func (a *account) addBalancer(shown LoadBalancer, now time.Time) (*loadBalancer, *refusal) {
	o := a.sim.options.LoadBalancers
	lb := &loadBalancer{shown: shown, resizedAt: now, progress: &progress{
		activeAt: now.Add(o.ActiveAfter), reads: o.ActiveAfterReads, errored: a.sim.chance(o.ErrorProbability),
	}}
	lb.shown.ID = a.sim.newUUID()
	lb.shown.CreatedAt = rfc3339(now)
	if refused := a.addressBalancer(lb); refused != nil {
		a.releaseBalancer(lb)
		return nil, refused
	}
	for _, tag := range lb.shown.Tags {
		a.ensureTag(tag, now)
	}
	a.balancers.put(lb.shown.ID, lb, now)
	return lb, nil
}

// addressBalancer takes the addresses: of the VPC for INTERNAL, public ones else, IPv6 for DUALSTACK only. An address that was
// asked for (BYOIP) is taken as it is.
func (a *account) addressBalancer(lb *loadBalancer) *refusal {
	take := func(p *pool, into *string) *refusal {
		address, err := p.take()
		if err != nil {
			return refuse(http.StatusServiceUnavailable, "%s", err)
		}
		*into = address.String()
		lb.claimed = append(lb.claimed, *into)
		return nil
	}
	if lb.shown.Network == networkInternal {
		return take(a.networks[lb.shown.VPCUUID], &lb.shown.IP)
	}
	if lb.shown.IP == "" {
		if refused := take(a.sim.balancers, &lb.shown.IP); refused != nil {
			return refused
		}
	} else if address, err := netip.ParseAddr(lb.shown.IP); err != nil || !a.sim.balancers.claim(address) {
		return invalid("ip %q is not available", lb.shown.IP)
	} else {
		lb.claimed = append(lb.claimed, lb.shown.IP)
	}
	if lb.shown.NetworkStack == stackDual {
		return take(a.sim.public6, &lb.shown.IPv6)
	}
	return nil
}

func (a *account) releaseBalancer(lb *loadBalancer) {
	for _, address := range lb.claimed {
		if network, found := a.networks[lb.shown.VPCUUID]; found {
			network.give(address)
		}
		a.sim.balancers.give(address)
		a.sim.public6.give(address)
	}
}

func (a *account) deleteBalancer(lb *loadBalancer, now time.Time) {
	a.balancers.remove(lb.shown.ID, now)
	a.releaseBalancer(lb)
}

// changeBalancer replaces a load balancer by a changed copy.
func (a *account) changeBalancer(lb *loadBalancer, now time.Time, change func(*loadBalancer)) *loadBalancer {
	changed := lb.clone()
	change(changed)
	a.balancers.put(lb.shown.ID, changed, now)
	return changed
}
