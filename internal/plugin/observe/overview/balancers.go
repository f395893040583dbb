// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/platform/eventsign"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/evidence"
	"github.com/mooring-dev/mooring/internal/ui"
)

// serviceEvents are the Events about Services. They are in the Services' namespaces, where their authors may write
// Events as well.
type serviceEvents struct {
	list  []corev1.Event
	whole bool
	err   error
	// keys are those that a component signs them with.
	keys eventsign.Keys
}

func readServiceEvents(ctx context.Context, c *observe.Cluster) (out serviceEvents) {
	about := fields.Set{"involvedObject.kind": "Service"}
	out.list, out.whole, out.err = c.Events(ctx, metav1.NamespaceAll, about, mostEvents)
	if len(out.list) > 0 {
		out.keys = c.EventKeys(ctx)
	}
	return out
}

// balancers lists the Services of type LoadBalancer, with what is wrong with them as kubectl mooring explain service
// has it.
func (u *Reader) balancers(ctx context.Context, nodes []*corev1.Node, events serviceEvents) (out []ui.Balancer, err error) {
	u.listBalancers(ctx)
	about := map[string][]finding.Event{}
	for i := range events.list {
		e := &events.list[i]
		if name := e.Namespace + "/" + e.InvolvedObject.Name; u.cluster.TrustIn(e, events.keys) != observe.Foreign {
			about[name] = append(about[name], evidence.EventOf(u.cluster, e, events.keys))
		}
	}
	services, err := observe.All[corev1.Service](
		ctx, "Services", u.cluster.Typed.CoreV1().Services(metav1.NamespaceAll).List,
	)
	for _, s := range services {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		e := explain.ServiceEvidence{Now: u.cluster.ServerTime(u.clock.Now()), Events: about[s.Namespace+"/"+s.Name]}
		e.Input.Service, e.Input.Nodes, e.Cloud.NotAsked = s, nodes, "droplets and certificates are taken for granted"
		e.Input.Observed, e.Lost = u.atDigitalOcean(ctx, s.Annotations[annotation.LoadBalancerID])
		out = append(out, ui.Balancer{Service: *s, ID: s.Annotations[annotation.LoadBalancerID], Verdict: e.Judge()})
	}
	if err == nil && u.listProblem != nil && len(out) > 0 {
		err = fmt.Errorf("DigitalOcean: %w", u.listProblem)
	}
	return out, err
}

// listBalancers lists the load balancers at DigitalOcean, or keeps what it listed before. Without a token nobody asks.
// What could not be read is not well.
func (u *Reader) listBalancers(ctx context.Context) {
	if now := u.clock.Now(); u.listedAt.IsZero() || now.Sub(u.listedAt) >= cloudStands {
		u.listed, u.listedAt, u.listProblem = nil, now, nil
		client, err := u.cluster.OwnCloud(ctx, u.clock)
		if err == nil && client == nil {
			return // nobody asks, and the cloud component's word counts
		}
		var list []loadbalancer.Observed
		if err == nil {
			list, err = client.LoadBalancers(ctx)
		}
		if u.listProblem = err; err == nil {
			u.listed, u.digitalOcean = map[string]loadbalancer.Observed{}, client
			for _, o := range list {
				u.listed[o.ID] = o
			}
		}
	}
}

// atDigitalOcean returns the load balancer with that ID, or that DigitalOcean responds with 404 for it. One that is not
// listed may have been made since.
func (u *Reader) atDigitalOcean(ctx context.Context, id string) (o *loadbalancer.Observed, lost bool) {
	if id == "" || u.listed == nil {
		return nil, false
	}
	if listed, ok := u.listed[id]; ok {
		return &listed, false
	}
	found, err := u.digitalOcean.LoadBalancer(ctx, id)
	if err != nil {
		return nil, errors.Is(err, doapi.ErrNotFound)
	}
	u.listed[id] = found
	return &found, false
}
