// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"net/http"
	"slices"
)

// busyMessage is DigitalOcean's own (github.com/digitalocean/openapi issue 1173).
const busyMessage = "Load Balancer can't be updated while it processes previous actions"

// listLoadBalancers knows the filters names and uuids, which godo sends and the description lacks.
func listLoadBalancers(c *call) result {
	names, ids := c.query["names"], c.query["uuids"]
	wanted := func(lb *loadBalancer) bool {
		return (len(names) == 0 || slices.Contains(names, lb.shown.Name)) && (len(ids) == 0 || slices.Contains(ids, lb.shown.ID))
	}
	when := c.whenListed()
	return listing(c, "load_balancers", filter(c.account.balancers.valuesAt(when), wanted), func(lb *loadBalancer) any {
		lb.noteRead()
		return c.account.showBalancer(lb, when)
	})
}

func getLoadBalancer(c *call) result {
	when := c.whenSeenByGet()
	lb, found := c.account.balancers.getAt(c.params["lb_id"], when)
	if !found {
		return notFound().result()
	}
	lb.noteRead()
	return ok(map[string]any{"load_balancer": c.account.showBalancer(lb, when)})
}

// createLoadBalancer responds with 202 with a load balancer that is new, whatever the options say. With validate_only it answers
// the same without an ID, and creates nothing (assumed: the description does not know validate_only).
func createLoadBalancer(c *call) result {
	var request balancerRequest
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	if request.Tags != nil && len(*request.Tags) > 0 && !c.can("tag:create") { // assumed, as for droplets
		return forbidden().result()
	}
	desired, refused := c.account.planBalancer(&request, nil, c)
	if refused != nil {
		return refused.result()
	}
	if request.ValidateOnly {
		desired.Status, desired.IP = statusNew, ""
		return result{status: http.StatusAccepted, body: map[string]any{"load_balancer": desired}}
	}
	lb, refused := c.account.addBalancer(*desired, c.now)
	if refused != nil {
		return refused.result()
	}
	shown := c.account.showBalancer(lb, c.now)
	shown.Status, shown.IP, shown.IPv6 = statusNew, "", ""
	return result{status: http.StatusAccepted, body: map[string]any{"load_balancer": shown}}
}

// planBalancer returns what a request asks for, if DigitalOcean would do it.
func (a *account) planBalancer(request *balancerRequest, old *loadBalancer, c *call) (*LoadBalancer, *refusal) {
	var before *LoadBalancer
	if old != nil {
		before = &old.shown
		if refused := a.immutable(request, before); refused != nil {
			return nil, refused
		}
	}
	desired := request.desired(before)
	if old == nil {
		region, known := a.sim.catalog.byRegion[request.Region]
		if !known {
			return nil, invalid("region %q is not available", request.Region)
		}
		vpc, refused := a.vpcFor(request.VPCUUID, request.Region, c.now)
		if refused != nil {
			return nil, refused
		}
		desired.Region, desired.VPCUUID = region, vpc.ID
	}
	check := &balancerCheck{account: a, now: c.now, old: old, request: request, desired: &desired}
	for _, rule := range balancerRules() {
		if refused := rule(check); refused != nil {
			return nil, refused
		}
	}
	return &desired, nil
}

// immutable refuses a change of what cannot be changed, or takes it out of the request if the options say so.
func (a *account) immutable(request *balancerRequest, old *LoadBalancer) *refusal {
	for _, field := range []struct {
		name   string
		wanted *string
		is     string
	}{
		{"type", &request.Type, old.Type},
		{"network", &request.Network, old.Network},
		{"network_stack", &request.NetworkStack, old.NetworkStack},
		{"region", &request.Region, old.Region.Slug},
		{"vpc_uuid", &request.VPCUUID, old.VPCUUID},
	} {
		if *field.wanted == "" || *field.wanted == field.is {
			continue
		}
		if !a.sim.options.LoadBalancers.IgnoreImmutable {
			return invalid("%s cannot be changed from %q to %q", field.name, field.is, *field.wanted)
		}
		*field.wanted = ""
	}
	return nil
}

// changeable returns the load balancer that the path names, if it can be changed now.
func (c *call) changeable() (*loadBalancer, *refusal) {
	lb, found := c.account.balancers.get(c.params["lb_id"])
	if !found {
		return nil, notFound()
	}
	if lb.busy(c.now) && !c.sim.options.LoadBalancers.AcceptWhileBusy {
		return nil, refuse(http.StatusForbidden, busyMessage)
	}
	return lb, nil
}

// updateLoadBalancer replaces everything that can be changed.
func updateLoadBalancer(c *call) result {
	var request balancerRequest
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	if request.ValidateOnly {
		return c.validateUpdate(&request)
	}
	lb, refused := c.changeable()
	if refused != nil {
		return refused.result()
	}
	desired, refused := c.account.planBalancer(&request, lb, c)
	if refused != nil {
		return refused.result()
	}
	for _, tag := range desired.Tags {
		c.account.ensureTag(tag, c.now)
	}
	lb = c.change(lb, func(lb *loadBalancer) {
		if desired.SizeUnit != lb.shown.SizeUnit {
			lb.resizedAt = c.now
		}
		lb.shown = *desired
	})
	return ok(map[string]any{"load_balancer": c.account.showBalancer(lb, c.now)})
}

// validateUpdate says what a PUT would answer, busy or not.
func (c *call) validateUpdate(request *balancerRequest) result {
	lb, found := c.account.balancers.get(c.params["lb_id"])
	if !found {
		return notFound().result()
	}
	desired, refused := c.account.planBalancer(request, lb, c)
	if refused != nil {
		return refused.result()
	}
	return ok(map[string]any{"load_balancer": c.account.showBalancer(&loadBalancer{shown: *desired, progress: lb.progress}, c.now)})
}

// change replaces a load balancer and makes it busy.
func (c *call) change(lb *loadBalancer, change func(*loadBalancer)) *loadBalancer {
	return c.account.changeBalancer(lb, c.now, func(lb *loadBalancer) {
		change(lb)
		lb.busyUntil = c.now.Add(c.sim.options.LoadBalancers.BusyAfterUpdate)
	})
}

func deleteLoadBalancer(c *call) result {
	lb, found := c.account.balancers.get(c.params["lb_id"])
	if !found {
		return notFound().result()
	}
	if c.sim.options.LoadBalancers.BusyRefusesDelete && lb.busy(c.now) {
		return refuse(http.StatusForbidden, busyMessage).result()
	}
	c.account.deleteBalancer(lb, c.now)
	return noContent()
}

// backends reads a request to add or remove droplets. A load balancer with a tag takes none (OpenAPI), nor does an empty list
// mean anything (github.com/digitalocean/droplet_kit issue 153).
func (c *call) backends() (*loadBalancer, []int, *refusal) {
	var request struct {
		DropletIDs []int `json:"droplet_ids"`
	}
	if refused := c.decode(&request); refused != nil {
		return nil, nil, refused
	}
	lb, refused := c.changeable()
	switch {
	case refused != nil:
		return nil, nil, refused
	case lb.shown.Tag != "":
		return nil, nil, invalid("the load balancer has a tag: droplets cannot be assigned one by one")
	case len(request.DropletIDs) == 0:
		return nil, nil, invalid("droplet_ids is needed")
	}
	return lb, request.DropletIDs, nil
}

func addBackends(c *call) result {
	lb, ids, refused := c.backends()
	if refused == nil {
		refused = c.account.targetsFit(&lb.shown, ids)
	}
	if refused != nil {
		return refused.result()
	}
	c.change(lb, func(lb *loadBalancer) { lb.shown.DropletIDs = sortedUnique(append(lb.shown.DropletIDs, ids...)) })
	return noContent()
}

// removeBackends ignores droplets that are not there.
func removeBackends(c *call) result {
	lb, ids, refused := c.backends()
	if refused != nil {
		return refused.result()
	}
	c.change(lb, func(lb *loadBalancer) {
		lb.shown.DropletIDs = slices.DeleteFunc(lb.shown.DropletIDs, func(id int) bool { return slices.Contains(ids, id) })
	})
	return noContent()
}

// changeRules reads a request to add or remove forwarding rules, applies it and checks what comes of it.
func (c *call) changeRules(change func(old, given []ForwardingRule) []ForwardingRule) result {
	var request struct {
		ForwardingRules []ForwardingRule `json:"forwarding_rules"`
	}
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	lb, refused := c.changeable()
	if refused != nil {
		return refused.result()
	}
	desired := lb.clone().shown
	desired.ForwardingRules = change(desired.ForwardingRules, request.ForwardingRules)
	check := &balancerCheck{account: c.account, now: c.now, old: lb, request: &balancerRequest{}, desired: &desired}
	for _, rule := range []func(*balancerCheck) *refusal{rulesAreThere, rulesAreValid, portsAreDistinct, certificatesExist} {
		if refused := rule(check); refused != nil {
			return refused.result()
		}
	}
	c.change(lb, func(lb *loadBalancer) { lb.shown = desired })
	return noContent()
}

func addForwardingRules(c *call) result {
	return c.changeRules(func(old, given []ForwardingRule) []ForwardingRule { return append(old, given...) })
}

func removeForwardingRules(c *call) result {
	return c.changeRules(func(old, given []ForwardingRule) []ForwardingRule {
		return slices.DeleteFunc(old, func(rule ForwardingRule) bool { return slices.Contains(given, rule) })
	})
}
