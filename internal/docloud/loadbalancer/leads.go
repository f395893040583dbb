// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// Lead is the Service that leads to a load balancer, the zero value for none.
type Lead struct {
	Service *corev1.Service
	// Proven reports that the Service's status, or the name that is made of its UID, leads there. Otherwise the Service
	// only asks for the load balancer, by an ID or a name that anyone can write who may write Services.
	Proven bool
}

// Leads finds the Services that lead to load balancers.
type Leads struct {
	proven, asks map[string]*corev1.Service // by what a load balancer has: see traces
	attempts     map[string][]*corev1.Service
}

// Keys of what a load balancer has.
const (
	traceID      = "ID "
	traceName    = "name "
	traceAddress = "address "
)

// IndexLeads makes an index of all Services of a cluster, whatever their type is: one that does not ask for a load
// balancer any more has its load balancer until that is deleted. Of several Services that lead to one load balancer the
// first counts.
func IndexLeads(services []*corev1.Service) Leads {
	x := Leads{proven: map[string]*corev1.Service{}, asks: map[string]*corev1.Service{}, attempts: map[string][]*corev1.Service{}}
	for _, service := range services {
		add := func(to map[string]*corev1.Service, kind, value string) {
			if value != "" {
				to[kind+value] = cmp.Or(to[kind+value], service)
			}
		}
		add(x.proven, traceName, DefaultName(service))
		add(x.proven, traceID, heldID(service))
		if heldID(service) == "" {
			for _, in := range service.Status.LoadBalancer.Ingress {
				add(x.proven, traceAddress, in.IP)
			}
		}
		for _, a := range attemptsOf(service) {
			x.attempts[a.Name] = append(x.attempts[a.Name], service)
			add(x.asks, traceName, a.Name)
		}
		add(x.asks, traceName, service.Annotations[annotation.Name])
		add(x.asks, traceID, service.Annotations[annotation.LoadBalancerID])
	}
	return x
}

// To returns the Service that leads to a load balancer.
func (x Leads) To(o Observed) Lead {
	found := cmp.Or(x.proven[traceID+o.ID], x.proven[traceName+o.Name])
	for _, address := range []string{o.IP, o.IPv6} {
		if address != "" {
			found = cmp.Or(found, x.proven[traceAddress+address])
		}
	}
	for _, service := range x.attempts[o.Name] {
		if found == nil && madeBy(attemptsOf(service), o) {
			found = service
		}
	}
	if found != nil {
		return Lead{Service: found, Proven: true}
	}
	return Lead{Service: cmp.Or(x.asks[traceID+o.ID], x.asks[traceName+o.Name])}
}

// Held returns the ID of the load balancer that the status of a Service records, empty for none.
func Held(service *corev1.Service) string { return heldID(service) }
