// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shutdowns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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
	renewed string    // the kubelet's last renewal, as text: it is compared, and no clock but ours counts
	tried   time.Time // when its Lease was last read, or that was tried
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
	s := &scene{doubt: c.look(nodes)}
	if s.doubt {
		c.readList(ctx)
		c.readLeases(ctx)
	}
	if c.Enabled {
		s.unread = c.record.refresh(ctx, c.Clock.Now())
	}
	return s, nil
}

// look takes in the Nodes as they are now, and reports whether any is in doubt: with our taint, or not ready where taints may be set.
func (c *Controller) look(nodes []*corev1.Node) (doubt bool) {
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
		case s.Ready:
			s.NotReadySince, s.Lease, s.Proof, s.renewed = time.Time{}, outofservice.Lease{}, outofservice.Proof{}, ""
			if !s.Ours {
				s.State, s.StateAt = outofservice.StateUnknown, time.Time{} // nobody reads it
			}
		case s.NotReadySince.IsZero():
			s.NotReadySince = now
		}
		doubt = doubt || !s.Ready && c.Enabled || s.Ours
	}
	for uid := range c.seen {
		if !there[uid] {
			delete(c.seen, uid)
		}
	}
	return doubt
}

// doubtful reports whether DigitalOcean's word about a machine matters.
func (s *sighting) doubtful() bool { return !s.Ready || s.Ours }

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
	var newest time.Time // since when the machine is in doubt that came last into doubt; one that is back is since now
	for _, s := range c.seen {
		switch {
		case s.Ready && s.Ours:
			newest = c.Clock.Now()
		case !s.Ready && s.NotReadySince.After(newest):
			newest = s.NotReadySince
		}
	}
	list, err := c.Surroundings.Doubtful(doapi.Urgent(ctx, budget.Join), newest)
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
		case !s.doubtful():
		case held:
			s.hear(stateOf(droplet), list.Oldest())
			if !s.State.Out() {
				s.Proof = outofservice.Proof{} // what was proven before is about another time
			}
		case !s.State.Out() && s.StateAt.Before(list.Oldest()):
			s.State, s.StateAt = outofservice.StateUnknown, time.Time{} // a list that lacks it proves nothing; it is read by ID
		}
	}
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
	droplet, err := c.API.Droplet(doapi.Once(doapi.Urgent(ctx, budget.Join)), n.droplet)
	state := stateOf(droplet)
	switch {
	case errors.Is(err, doapi.ErrNotFound):
		state = outofservice.StateGone
	case err != nil:
		c.Log.V(1).Info("A droplet cannot be read", "droplet", n.droplet, "error", err.Error())
		return nil, nil //nolint:nilerr // nothing was learned; the list of droplets may still say
	}
	if c.API.Epoch() != c.epoch { // of which account the answer was is not known
		return nil, nil
	}
	return func() { c.hear(n.droplet, state, at, err == nil) }, nil
}

// hear takes in what a GET by ID said of a droplet.
func (c *Controller) hear(id int, state outofservice.State, at time.Time, shown bool) {
	for _, s := range c.seen {
		if s.Droplet == id && s.doubtful() {
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

// readLeases reads the Leases of the kubelets whose machines do not run, or run again with our taint, where what is known is not new: so many in one
// reconcile, those first whose droplets are proven to be off, since the proof does not last, and then those that were tried longest ago.
func (c *Controller) readLeases(ctx context.Context) {
	if !c.Enabled {
		return
	}
	var due []*sighting
	for _, s := range c.seen {
		matters := !s.Ours && !s.Foreign && s.State.Out() || s.returns()
		if !s.returns() {
			s.Lease.RenewedSince = time.Time{} // it counts from when the machine is back
		}
		if !s.Ready && matters && c.Clock.Since(s.tried) >= c.timing.LeaseEvery {
			due = append(due, s)
		}
	}
	old := func(s *sighting) int {
		if s.Proof.State == s.State && c.Clock.Since(s.Proof.Last) <= c.Config.ProofAge {
			return 0
		}
		return 1
	}
	slices.SortFunc(due, func(a, b *sighting) int {
		return cmp.Or(cmp.Compare(old(a), old(b)), a.tried.Compare(b.tried), strings.Compare(a.Node, b.Node))
	})
	for _, s := range due[:min(len(due), c.timing.LeaseBurst)] {
		if ctx.Err() != nil {
			return
		}
		c.readLease(ctx, s)
	}
}

// readLease reads a kubelet's Lease. A failure leaves what is known in place, which becomes old.
func (c *Controller) readLease(ctx context.Context, s *sighting) {
	at := c.Clock.Now()
	s.tried = at
	lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, s.Node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		s.Lease = outofservice.Lease{Problem: "there is no Lease of it in namespace " + corev1.NamespaceNodeLease}
		return
	case err != nil:
		s.Lease.Problem = err.Error()
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
	case at.Sub(s.Lease.SilentSince) >= c.Config.Grace:
		s.Lease.RenewedSince = time.Time{}
	}
	s.Lease.ReadAt, s.Lease.Problem = at, ""
}
