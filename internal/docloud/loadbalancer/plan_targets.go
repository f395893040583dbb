// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// DigitalOcean refuses a whole request for one droplet that cannot be a target, and does not always say which one. So
// that one Node harms no other: after a refusal those are left out that the list of droplets shows to be unfit. If that
// does not help, settings are sent with the targets that there are, and new targets are tried in halves until one is
// refused alone.

// Trial is what is remembered of targets that DigitalOcean refused.
type Trial struct {
	// On reports that at most Most new targets are sent at a time.
	On   bool
	Most int
	// Refused are the droplets that were refused alone, by ID.
	Refused map[int]RefusedTarget
}

// RefusedTarget is when a droplet was refused as a target, and DigitalOcean's words.
type RefusedTarget struct {
	At   time.Time
	Said string
}

// refusedFor is how long a droplet is not tried again that was refused alone.
const refusedFor = time.Hour

// young is the age below which a Node's droplet may be missing in a list that is not quite new.
const young = 2 * time.Minute

// fit leaves out what DigitalOcean would refuse a request for, and holds back what it may. What is a target already is
// fit, unless it is gone. If nothing would be left the request stays as it is.
func (p *planning) fit(observed *Observed, result *Result) {
	current := []int{}
	if observed != nil {
		current = observed.DropletIDs
	}
	m, unfit := &p.plan.Memory, map[int]reason{}
	maps.DeleteFunc(m.Trial.Refused, func(_ int, r RefusedTarget) bool { return p.Now.Sub(r.At) >= refusedFor })
	for id, r := range m.Trial.Refused {
		unfit[id] = reason{text: strings.TrimSuffix("which DigitalOcean refuses as a target: "+r.Said, ": ")}
	}
	if m.Suspect {
		maps.Copy(unfit, p.unfitByList(result.Request, observed))
		p.unfit = len(unfit) > 0
	}
	left := slices.DeleteFunc(slices.Clone(result.Request.DropletIDs), func(id int) bool {
		why, is := unfit[id]
		return is && (why.gone || !slices.Contains(current, id))
	})
	if len(left) == 0 {
		return
	}
	result.Request.DropletIDs = left
	result.Targets = slices.DeleteFunc(slices.Clone(result.Targets), func(t Target) bool {
		if _, is := unfit[t.Droplet]; !is || slices.Contains(left, t.Droplet) {
			return false
		}
		why := fmt.Sprintf("has droplet %d, %s", t.Droplet, unfit[t.Droplet].text)
		result.LeftOut = append(result.LeftOut, LeftOut{t.Node, why})
		return true
	})
	slices.SortStableFunc(result.LeftOut, func(a, b LeftOut) int { return strings.Compare(a.Node, b.Node) })
	if !m.Trial.On {
		return
	}
	most := m.Trial.Most
	if len(current) == 0 {
		most = max(1, most) // a load balancer is made with one target at least
	}
	result.Request.DropletIDs = slices.DeleteFunc(left, func(id int) bool {
		if slices.Contains(current, id) {
			return false
		}
		most--
		if most < 0 {
			p.held++
		}
		return most < 0
	})
	m.Trial.On = p.held > 0
}

// reason is why a droplet is left out, as the end of the sentence "droplet 7, …"; gone is one that does not exist.
type reason struct {
	text string
	gone bool
}

// unfitByList returns the droplets of a request that the list shows to be of another region or VPC, and those that it
// lacks. The droplet of a young Node may be younger than the list.
func (p *planning) unfitByList(r Request, observed *Observed) map[int]reason {
	listed := make(map[int]instance.Droplet, len(p.Droplets.Items))
	for _, d := range p.Droplets.Items {
		listed[d.ID] = d
	}
	vpc := r.VPC
	if observed != nil && observed.VPC != "" {
		vpc = observed.VPC
	}
	recent, found := map[int]bool{}, map[int]reason{}
	for _, node := range p.Nodes {
		if id, err := providerid.Parse(node.Spec.ProviderID); err == nil && p.Now.Sub(node.CreationTimestamp.Time) < young {
			recent[id] = true
		}
	}
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	for _, id := range r.DropletIDs {
		switch d, is := listed[id]; {
		case !is && !recent[id]:
			found[id] = reason{"which DigitalOcean does not list", true}
		case !is:
		case differ(d.Region, r.Region):
			found[id] = reason{text: fmt.Sprintf("which is in region %s, and the load balancer is in %s", d.Region, r.Region)}
		case differ(d.VPC, vpc):
			found[id] = reason{text: fmt.Sprintf("which is in VPC %s, and the load balancer is in %s", d.VPC, vpc)}
		}
	}
	return found
}

// learn learns from a request with new targets, and settings, that DigitalOcean took or refused, with its words, and
// reports whether the next request is another one. After a refusal the lists are looked at first. After a success what is held back is tried soon: twice as
// many at a time, or half of them after a request without new targets.
func (p *planning) learn(added []int, settings bool, refused *Trouble) bool {
	m, sent := &p.plan.Memory, len(added)
	switch {
	case refused == nil && p.held == 0:
		m.Suspect = p.unfit
	case refused == nil && sent == 0:
		m.Suspect, m.Trial.Most, p.again = true, (p.held+1)/2, p.Pace.Pending
	case refused == nil:
		m.Suspect, m.Trial.Most, p.again = true, 2*sent, p.Pace.Pending
	case !m.Suspect:
		m.Suspect = true
	case sent == 0:
		m.Trial.On = false // it is not for a target
		return false
	case !m.Trial.On && settings:
		m.Trial.On, m.Trial.Most = true, 0
	case sent == 1:
		if m.Trial.Refused == nil {
			m.Trial.Refused = map[int]RefusedTarget{}
		}
		m.Trial.Refused[added[0]] = RefusedTarget{p.Now, refused.Said}
	default:
		m.Trial.On, m.Trial.Most = true, sent/2
	}
	return true
}
