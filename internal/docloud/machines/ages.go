// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// doubtAge is how old the list may be when a Node is not ready, pendingAge when one is new: the longer the list the older, but always young
// enough to be believed about what it lacks. One that holds the Node's droplet says that it is there, and may be older:
// what is lost then is noticed later, and not believed before a new list lacks it.
func (m *Instances) doubtAge(since time.Time, droplet int) time.Duration {
	base, latest := max(m.config.DoubtAge, m.clock.Since(since)/doubtPart), m.snapshot.Latest()
	if _, listed := latest.Droplet(droplet); listed {
		perCall := m.config.PageAge
		if m.clock.Since(since) > lastLook {
			perCall = max(perCall, doubtPace)
		}
		return min(max(base, time.Duration(latest.pages())*perCall), max(m.config.SettledMost, m.config.DoubtAge))
	}
	return m.age(base, m.config.PageAge)
}

// doubtPart is which part of the time that a Node has not been ready may pass until DigitalOcean's newest word is read: a
// machine that has been lost for an hour is no news.
const doubtPart = 5

// doubtPace is how old the list must be, for each call that it takes, to be read again on behalf of Nodes that have not
// been ready for a while: 80 calls in an hour.
const doubtPace = 45 * time.Second

// unready is since when a Node has not been ready, now if it does not say.
func (m *Instances) unready(node *corev1.Node) time.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Time
		}
	}
	return m.clock.Now()
}

// ready reports whether a Node's kubelet says that it is well.
func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (m *Instances) pendingAge() time.Duration { return m.age(m.config.PendingAge, m.config.PageAge/2) }

func (m *Instances) age(base, perCall time.Duration) time.Duration {
	return min(max(base, time.Duration(m.snapshot.Latest().pages())*perCall), m.config.Decision.MaxListAge*4/5)
}

// doubt returns the list for a Node that is not ready since then and has that droplet, 0 for one of which the list must
// be new enough to be believed about what it lacks. The one of droplets with GPUs has to be as new, where there are any.
func (m *Instances) doubt(ctx context.Context, since time.Time, droplet int) (*DropletList, error) {
	age := m.doubtAge(since, droplet)
	if m.snapshot.Latest().gpus > 0 {
		return m.snapshot.GetWhole(ctx, age)
	}
	return m.snapshot.Get(ctx, age)
}

// described returns the list by which a Node is described. What a running droplet has does not change but for its tags:
// where these are no labels, the list for Nodes that have long been ready and described may be old if it takes several
// calls, and for one that is not ready it is the one that shows whether its droplet is there. A Node that stops being
// ready, waits or is new makes somebody read it in any case.
func (m *Instances) described(ctx context.Context, node *corev1.Node) (*DropletList, error) {
	age, latest := m.age(m.config.StatusAge, m.config.PageAge), m.snapshot.Latest()
	id, err := providerid.Parse(node.Spec.ProviderID)
	if _, listed := latest.Droplet(id); err == nil && listed && len(m.config.Labels) == 0 {
		switch since := m.unready(node); {
		case settled(node, m.clock.Now()):
			age = max(age, min(time.Duration(latest.pages()-1)*m.config.SettledAge, m.config.SettledMost))
		case !uninitialized(node) && m.clock.Since(since) > lastLook:
			age = max(age, m.doubtAge(since, id))
		}
	}
	return m.snapshot.Get(ctx, age)
}

// settled reports whether a Node has all addresses, and has been ready for a while: an older list shows it as it is.
func settled(node *corev1.Node, now time.Time) bool {
	forLong := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && now.Sub(c.LastTransitionTime.Time) > lastLook
	})
	private := slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	return forLong && private && (public(node.Status.Addresses) || loadbalancer.IsPrivate(node)) &&
		!uninitialized(node) && now.Sub(node.CreationTimestamp.Time) > lastLook
}
