// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// oldest is how old a list may be by which something is said to be left over: the lists are read every quarter of an hour
// at least while they are needed.
const oldest = time.Hour

// Known returns what the newest lists and the informers show. What is not known is not read there. It makes no call.
func (c *Controller) Known() estate.World {
	w := estate.World{Now: c.o.Clock.Now(), Cluster: c.o.Cluster}
	if !c.loop.Followed() {
		return w
	}
	services, err := c.services.List(labels.Everything())
	if err != nil {
		return w
	}
	machines, err := c.ClusterDroplets()
	if err != nil {
		return w
	}
	w.Services, w.Machines = services, machines
	w.LoadBalancers.Items, w.LoadBalancers.Read = c.list.known(oldest)
	if r := c.certificates.Last(); r != nil && c.o.Clock.Since(r.At) <= oldest {
		w.Certificates.Items, w.Certificates.Read = r.Value, true
	}
	return w
}

// known returns the load balancers of the newest reading, with what was learned since; false if it is older than age or
// there is none. It reads nothing.
func (l *balancerList) known(age time.Duration) ([]loadbalancer.Observed, bool) {
	r := l.Last()
	if r == nil || l.clock.Since(r.At) > age {
		return nil, false
	}
	return l.merged(r), true
}
