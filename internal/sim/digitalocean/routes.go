// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"net/http"
	"strings"
)

// route is one operation of the API. Its pattern is the path of the OpenAPI description.
type route struct {
	method   string
	pattern  string
	segments []string
	scopes   []string // all of them are needed
	handle   func(*call) result
}

// name is how faults and the journal call the route.
func (r *route) name() string { return r.method + " " + r.pattern }

// routes returns all operations. The scopes are those that the OpenAPI description asks for.
func routes() []route {
	var all []route
	add := func(method, pattern, scope string, handle func(*call) result) {
		all = append(all, route{
			method: method, pattern: pattern, segments: strings.Split(pattern, "/"), scopes: strings.Fields(scope), handle: handle,
		})
	}
	get, post, put, remove := http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete

	add(get, "/v2/account", "account:read", getAccount)
	add(get, "/v2/regions", "regions:read", listRegions)
	add(get, "/v2/sizes", "sizes:read regions:read", listSizes)
	add(get, "/v2/vpcs", "vpc:read", listVPCs)
	add(get, "/v2/vpcs/{vpc_id}", "vpc:read", getVPC)

	add(get, "/v2/droplets", "droplet:read", listDroplets)
	add(post, "/v2/droplets", "droplet:create", createDroplets)
	add(remove, "/v2/droplets", "droplet:delete tag:read", deleteDropletsByTag)
	add(get, "/v2/droplets/{droplet_id}", "droplet:read", getDroplet)
	add(remove, "/v2/droplets/{droplet_id}", "droplet:delete", deleteDroplet)
	add(post, "/v2/droplets/{droplet_id}/actions", "droplet:update", actOnDroplet)
	add(get, "/v2/droplets/{droplet_id}/actions/{action_id}", "droplet:read", getDropletAction)

	add(get, "/v2/actions", "actions:read", listActions)
	add(get, "/v2/volumes", "api:read api:write block_storage:read", listVolumes)
	add(post, "/v2/volumes", "api:write block_storage:create", createVolume)
	add(get, "/v2/volumes/{volume_id}", "block_storage:read", getVolume)
	add(remove, "/v2/volumes/{volume_id}", "block_storage:delete", deleteVolume)
	add(get, "/v2/volumes/{volume_id}/actions", "block_storage_action:read", listVolumeActions)
	add(post, "/v2/volumes/{volume_id}/actions", "block_storage_action:create", actOnVolume)
	add(get, "/v2/volumes/{volume_id}/actions/{action_id}", "block_storage_action:read", getVolumeAction)
	add(get, "/v2/volumes/{volume_id}/snapshots", "block_storage_snapshot:read", listVolumeSnapshots)
	add(post, "/v2/volumes/{volume_id}/snapshots", "block_storage_snapshot:create", createSnapshot)
	add(get, "/v2/snapshots", "snapshot:read", listSnapshots)
	add(get, "/v2/snapshots/{snapshot_id}", "snapshot:read block_storage_snapshot:read", getSnapshot)
	add(remove, "/v2/snapshots/{snapshot_id}", "image:delete snapshot:delete", deleteSnapshot)

	add(get, "/v2/load_balancers", "load_balancer:read", listLoadBalancers)
	add(post, "/v2/load_balancers", "load_balancer:create", createLoadBalancer)
	add(get, "/v2/load_balancers/{lb_id}", "load_balancer:read", getLoadBalancer)
	add(put, "/v2/load_balancers/{lb_id}", "load_balancer:update", updateLoadBalancer)
	add(remove, "/v2/load_balancers/{lb_id}", "load_balancer:delete", deleteLoadBalancer)
	add(post, "/v2/load_balancers/{lb_id}/droplets", "load_balancer:update", addBackends)
	add(remove, "/v2/load_balancers/{lb_id}/droplets", "load_balancer:update", removeBackends)
	add(post, "/v2/load_balancers/{lb_id}/forwarding_rules", "load_balancer:update", addForwardingRules)
	add(remove, "/v2/load_balancers/{lb_id}/forwarding_rules", "load_balancer:update", removeForwardingRules)

	add(get, "/v2/certificates", "certificate:read", listCertificates)
	add(post, "/v2/certificates", "certificate:create", createCertificate)
	add(get, "/v2/certificates/{certificate_id}", "certificate:read", getCertificate)
	add(remove, "/v2/certificates/{certificate_id}", "certificate:delete", deleteCertificate)

	add(get, "/v2/firewalls", "firewall:read", listFirewalls)
	add(post, "/v2/firewalls", "firewall:create", createFirewall)
	add(get, "/v2/firewalls/{firewall_id}", "firewall:read", getFirewall)
	add(put, "/v2/firewalls/{firewall_id}", "firewall:update", updateFirewall)
	add(remove, "/v2/firewalls/{firewall_id}", "firewall:delete", deleteFirewall)

	add(get, "/v2/tags", "tag:read", listTags)
	add(post, "/v2/tags", "tag:create", createTag)
	add(get, "/v2/tags/{tag_id}", "tag:read", getTag)
	add(remove, "/v2/tags/{tag_id}", "tag:delete", deleteTag)
	add(post, "/v2/tags/{tag_id}/resources", "tag:create", tagResources)
	add(remove, "/v2/tags/{tag_id}/resources", "tag:delete", untagResources)
	return all
}

// match finds the route of a request and the variable parts of its path.
func match(routes []route, method, path string) (*route, map[string]string) {
	segments := strings.Split(path, "/")
	for i := range routes {
		if routes[i].method != method {
			continue
		}
		if params, ok := matchSegments(routes[i].segments, segments); ok {
			return &routes[i], params
		}
	}
	return nil, nil
}

func matchSegments(pattern, segments []string) (map[string]string, bool) {
	if len(pattern) != len(segments) {
		return nil, false
	}
	var params map[string]string
	for i, want := range pattern {
		switch {
		case strings.HasPrefix(want, "{") && segments[i] != "":
			if params == nil {
				params = map[string]string{}
			}
			params[strings.Trim(want, "{}")] = segments[i]
		case want != segments[i]:
			return nil, false
		}
	}
	return params, true
}

// Route is an operation as others see it.
type Route struct {
	// Name is what faults and the journal call it: "GET /v2/droplets/{droplet_id}".
	Name string
	// Scopes are what a token needs, all of them.
	Scopes []string
}

// Routes returns all operations.
func Routes() []Route {
	var all []Route
	for _, r := range routes() {
		all = append(all, Route{Name: r.name(), Scopes: r.scopes})
	}
	return all
}
