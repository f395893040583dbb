// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// sighting is what this process has seen of one machine, by its own clock.
type sighting struct {
	outofservice.Machine

	// shown reports that DigitalOcean has shown the droplet: only then, or if the Node is established, is one gone of which
	// it says 404.
	shown   bool
	node    *corev1.Node
	renewed string // the kubelet's last renewal, as text: it is compared, and no clock but ours counts
}

// scene is what a round knows besides: whether any machine is in doubt, why the record could not be read, whose the account is, and what was decided.
type scene struct {
	doubt, asked bool
	unread       error
	distrust     string
	plan         outofservice.Plan
}

// need is a droplet that is to be read by ID; the zero value is whose the account is.
type need struct {
	droplet int
	// later says that the droplet is called active: its call is of those for such. spare says that nobody else wants these.
	later, spare bool
}

// observe takes in the Nodes, what is to be read of each machine in doubt, and the record.
func (c *Controller) observe(ctx context.Context, _ string) (*scene, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	c.look(nodes)
	c.readLeases(ctx)
	s := &scene{}
	list := false
	for _, seen := range c.seen {
		s.doubt = s.doubt || c.doubtful(seen)
		list = list || !seen.Ready && c.Enabled || seen.Ours
	}
	if list {
		c.readList(ctx)
	}
	if c.Enabled {
		s.unread = c.record.refresh(ctx, c.Clock.Now())
	}
	return s, nil
}

// look takes in the Nodes as they are now.
func (c *Controller) look(nodes []*corev1.Node) {
	now := c.Clock.Now()
	if epoch := c.API.Epoch(); epoch != c.epoch {
		c.epoch = epoch
		for _, s := range c.seen { // it may have been another account's
			s.State, s.StateAt, s.Proof = outofservice.StateUnknown, time.Time{}, outofservice.Proof{}
		}
	}
	there := make(map[types.UID]bool, len(nodes))
	for _, node := range nodes {
		id, err := providerid.Parse(node.Spec.ProviderID)
		if err != nil {
			continue
		}
		there[node.UID] = true
		s := c.seen[node.UID]
		if s == nil || s.Droplet != id {
			s = &sighting{Machine: outofservice.Machine{Node: node.Name, UID: string(node.UID), Droplet: id}}
			c.seen[node.UID] = s
		}
		s.node = node
		s.Ours, s.Foreign = outofservice.Taints(node.Spec.Taints)
		s.Ready, s.Reports, s.Volumes = ready(node), reporting(node), len(node.Status.VolumesAttached) > 0
		switch {
		case !s.Ready:
			if s.NotReadySince.IsZero() {
				s.NotReadySince = now
			}
		case s.MissedRenewal(now, c.Config):
			s.NotReadySince = time.Time{}
		default:
			s.NotReadySince, s.Proof = time.Time{}, outofservice.Proof{}
			if !s.Ours && s.State != outofservice.StateActive {
				s.State, s.StateAt = outofservice.StateUnknown, time.Time{} // nobody reads it
			}
		}
	}
	for uid := range c.seen {
		if !there[uid] {
			delete(c.seen, uid)
		}
	}
}

// doubtful reports whether DigitalOcean's word about a machine matters: its Node has our taint, or taints may be set and it is not ready, or its
// kubelet has missed a renewal of its Lease.
func (c *Controller) doubtful(s *sighting) bool {
	return s.Ours || c.Enabled && (!s.Ready || s.MissedRenewal(c.Clock.Now(), c.Config))
}

// returns reports whether the machine runs again while its Node has our taint.
func (s *sighting) returns() bool { return s.Ours && s.State == outofservice.StateActive }

// hear takes in a word of DigitalOcean that was asked for at a time. What is older than another says nothing.
func (s *sighting) hear(state outofservice.State, at time.Time) {
	if !at.Before(s.StateAt) {
		s.State, s.StateAt = state, at
	}
}

// readList takes in the list of droplets, of which only what it holds counts. It is the list that the monitor of Nodes reads anyway for Nodes that are
// not ready.
func (c *Controller) readList(ctx context.Context) {
	list, err := c.Surroundings.Doubtful(doapi.Urgent(ctx, budget.Join), c.newestDoubt())
	if err != nil {
		c.Log.V(1).Info("The list of droplets cannot be read", "error", err.Error())
		return
	}
	if list.Epoch != c.epoch {
		return
	}
	for _, s := range c.seen {
		droplet, held := list.Droplet(s.Droplet)
		s.shown = s.shown || held
		switch {
		case !c.doubtful(s):
		case held:
			c.listed(s, droplet, list.Oldest())
		case !s.State.Out() && s.StateAt.Before(list.Oldest()):
			s.State, s.StateAt = outofservice.StateUnknown, time.Time{} // a list that lacks it proves nothing; it is read by ID
		}
	}
}

// newestDoubt is since when the machine is in doubt that came last into doubt; one that is back is since now.
func (c *Controller) newestDoubt() (newest time.Time) {
	for _, s := range c.seen {
		switch {
		case s.Ready && s.Ours:
			newest = c.Clock.Now()
		case !s.Ready && s.NotReadySince.After(newest):
			newest = s.NotReadySince
		}
	}
	return newest
}

// listed takes in what a list that was asked for at a time says of a droplet.
func (c *Controller) listed(s *sighting, droplet instance.Droplet, at time.Time) {
	if c.outdated(s, droplet, at) {
		return
	}
	s.hear(stateOf(droplet), at)
	if !s.State.Out() {
		s.Proof = outofservice.Proof{} // what was proven before is about another time
	}
}

// outdated reports whether a list says of a droplet that it runs while a GET by ID has said shortly before that it does not: lists lag behind those,
// and one more is made before the taint.
func (c *Controller) outdated(s *sighting, d instance.Droplet, listed time.Time) bool {
	return !stateOf(d).Out() && !s.Ours && s.Proof.State.Out() && listed.Sub(s.Proof.Last) <= c.Config.ProofAge
}

func stateOf(d instance.Droplet) outofservice.State {
	switch {
	case instance.IsShutdown(d):
		return outofservice.StateOff
	case d.Status == instance.StatusActive:
		return outofservice.StateActive
	default:
		return outofservice.StateOther
	}
}

// ask reads a droplet by ID if it is its turn, or whose the account is.
func (c *Controller) ask(ctx context.Context, round *scene, n need) (reconcile.Learned, error) {
	at := c.Clock.Now()
	switch {
	case n == need{}:
		if err := c.Surroundings.Trusted(ctx); err != nil {
			round.distrust = err.Error()
		}
		return func() { round.asked = true }, nil
	case c.API.Epoch() != c.epoch:
		return nil, nil
	case n.later || !c.turns.Take(at, n.droplet):
		if !n.later && !n.spare || !c.later.Take(at, n.droplet) {
			return nil, nil
		}
	}
	return c.get(ctx, n.droplet), nil
}

// get reads a droplet by ID, and returns what takes in the response, nil if nothing was learned.
func (c *Controller) get(ctx context.Context, id int) reconcile.Learned {
	at := c.Clock.Now()
	droplet, err := c.API.Droplet(doapi.Once(doapi.Urgent(ctx, budget.Join)), id)
	state := stateOf(droplet)
	switch {
	case errors.Is(err, doapi.ErrNotFound):
		state = outofservice.StateGone
	case err != nil:
		c.Log.V(1).Info("A droplet cannot be read", "droplet", id, "error", err.Error())
		return nil
	}
	if c.API.Epoch() != c.epoch { // of which account the answer was is not known
		return nil
	}
	return func() { c.hear(id, state, at, err == nil) }
}

// hear takes in what a GET by ID said of a droplet.
func (c *Controller) hear(id int, state outofservice.State, at time.Time, shown bool) {
	for _, s := range c.seen {
		if s.Droplet == id && c.doubtful(s) {
			s.shown = s.shown || shown
			said := state
			if said == outofservice.StateGone && !s.shown && !instance.Established(s.node, at) {
				said = outofservice.StateUnknown
			}
			s.hear(said, at)
			s.Proof = s.Proof.Add(said, at)
		}
	}
}

// readLeases takes in the Leases of all kubelets, where what is known is not new: one list from the API server's cache. Where that is behind, it shows
// renewals late and invents none; right before the taint a Lease is read by itself. What was not read for a while counts as renewed meanwhile.
func (c *Controller) readLeases(ctx context.Context) {
	at := c.Clock.Now()
	if !c.Enabled || at.Sub(c.leasesAt) < c.timing.LeaseEvery {
		return
	}
	list, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		c.notListed(err)
		return
	}
	lapsed := at.Sub(c.leasesAt) > c.Config.LeaseAge
	c.leasesAt, c.unlisted = at, ""
	of := make(map[string]*coordinationv1.Lease, len(list.Items))
	for i := range list.Items {
		of[list.Items[i].Name] = &list.Items[i]
	}
	for _, s := range c.seen {
		s.take(of[s.Node], at, c.Config.Grace)
		if lapsed && !s.Lease.SilentSince.IsZero() {
			s.Lease.SilentSince = at
		}
		if !s.returns() {
			s.Lease.RenewedSince = time.Time{} // it counts from when the machine is back
		}
	}
}

// notListed leaves what is known of Leases in place, which becomes old, and logs each cause once.
func (c *Controller) notListed(err error) {
	if err.Error() != c.unlisted {
		c.Log.Info("The kubelets' Leases cannot be listed: no taint is set until they can", "namespace", corev1.NamespaceNodeLease, "error", err.Error())
	}
	c.unlisted = err.Error()
	for _, s := range c.seen {
		s.Lease.Problem = err.Error()
	}
}

// readLease reads one kubelet's Lease, past all caches. A failure leaves what is known in place.
func (c *Controller) readLease(ctx context.Context, s *sighting) {
	at := c.Clock.Now()
	lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, s.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.take(nil, at, c.Config.Grace)
	case err != nil:
		s.Lease.Problem = err.Error()
	default:
		s.take(lease, at, c.Config.Grace)
	}
}

// take takes in a kubelet's Lease as it was read at a time, nil for none.
func (s *sighting) take(lease *coordinationv1.Lease, at time.Time, grace time.Duration) {
	switch {
	case lease == nil:
		s.Lease = outofservice.Lease{Problem: "there is no Lease of it in namespace " + corev1.NamespaceNodeLease}
		return
	case lease.Spec.RenewTime == nil:
		s.Lease = outofservice.Lease{Problem: "it was never renewed"}
		return
	}
	renewed := fmt.Sprint(lease.UID, " ", lease.Spec.RenewTime.UnixNano())
	switch again := renewed != s.renewed; {
	case s.renewed == "" || s.Lease.SilentSince.IsZero():
		s.renewed, s.Lease.SilentSince, s.Lease.RenewedSince = renewed, at, time.Time{}
	case again:
		s.renewed, s.Lease.SilentSince = renewed, at
		if s.Lease.RenewedSince.IsZero() {
			s.Lease.RenewedSince = at
		}
	case at.Sub(s.Lease.SilentSince) >= grace:
		s.Lease.RenewedSince = time.Time{}
	}
	s.Lease.ReadAt, s.Lease.Problem = at, ""
}
