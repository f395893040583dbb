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

// operation is a line of the table of operations.
type operation struct {
	method, pattern, scopes string
	handle                  func(*call) result
}

// operations are all that is simulated. The scopes are those that the OpenAPI description asks for.
func operations() []operation {
	return []operation{
		{http.MethodGet, "/v2/account", "account:read", getAccount},
		{http.MethodGet, "/v2/regions", "regions:read", listRegions},
		{http.MethodGet, "/v2/sizes", "sizes:read regions:read", listSizes},
		{http.MethodGet, "/v2/vpcs", "vpc:read", listVPCs},
		{http.MethodGet, "/v2/vpcs/{vpc_id}", "vpc:read", getVPC},

		{http.MethodGet, "/v2/droplets", "droplet:read", listDroplets},
		{http.MethodPost, "/v2/droplets", "droplet:create", createDroplets},
		{http.MethodDelete, "/v2/droplets", "droplet:delete tag:read", deleteDropletsByTag},
		{http.MethodGet, "/v2/droplets/{droplet_id}", "droplet:read", getDroplet},
		{http.MethodDelete, "/v2/droplets/{droplet_id}", "droplet:delete", deleteDroplet},
		{http.MethodPost, "/v2/droplets/{droplet_id}/actions", "droplet:update", actOnDroplet},
		{http.MethodGet, "/v2/droplets/{droplet_id}/actions/{action_id}", "droplet:read", getDropletAction},

		{http.MethodGet, "/v2/actions", "actions:read", listActions},
		{http.MethodGet, "/v2/volumes", "api:read api:write block_storage:read", listVolumes},
		{http.MethodPost, "/v2/volumes", "api:write block_storage:create", createVolume},
		{http.MethodGet, "/v2/volumes/{volume_id}", "block_storage:read", getVolume},
		{http.MethodDelete, "/v2/volumes/{volume_id}", "block_storage:delete", deleteVolume},
		{http.MethodGet, "/v2/volumes/{volume_id}/actions", "block_storage_action:read", listVolumeActions},
		{http.MethodPost, "/v2/volumes/{volume_id}/actions", "block_storage_action:create", actOnVolume},
		{http.MethodGet, "/v2/volumes/{volume_id}/actions/{action_id}", "block_storage_action:read", getVolumeAction},
		{http.MethodGet, "/v2/volumes/{volume_id}/snapshots", "block_storage_snapshot:read", listVolumeSnapshots},
		{http.MethodPost, "/v2/volumes/{volume_id}/snapshots", "block_storage_snapshot:create", createSnapshot},
		{http.MethodGet, "/v2/snapshots", "snapshot:read", listSnapshots},
		{http.MethodGet, "/v2/snapshots/{snapshot_id}", "snapshot:read block_storage_snapshot:read", getSnapshot},
		{http.MethodDelete, "/v2/snapshots/{snapshot_id}", "image:delete snapshot:delete", deleteSnapshot},

		{http.MethodGet, "/v2/load_balancers", "load_balancer:read", listLoadBalancers},
		{http.MethodPost, "/v2/load_balancers", "load_balancer:create", createLoadBalancer},
		{http.MethodGet, "/v2/load_balancers/{lb_id}", "load_balancer:read", getLoadBalancer},
		{http.MethodPut, "/v2/load_balancers/{lb_id}", "load_balancer:update", updateLoadBalancer},
		{http.MethodDelete, "/v2/load_balancers/{lb_id}", "load_balancer:delete", deleteLoadBalancer},
		{http.MethodPost, "/v2/load_balancers/{lb_id}/droplets", "load_balancer:update", addBackends},
		{http.MethodDelete, "/v2/load_balancers/{lb_id}/droplets", "load_balancer:update", removeBackends},
		{http.MethodPost, "/v2/load_balancers/{lb_id}/forwarding_rules", "load_balancer:update", addForwardingRules},
		{http.MethodDelete, "/v2/load_balancers/{lb_id}/forwarding_rules", "load_balancer:update", removeForwardingRules},

		{http.MethodGet, "/v2/certificates", "certificate:read", listCertificates},
		{http.MethodPost, "/v2/certificates", "certificate:create", createCertificate},
		{http.MethodGet, "/v2/certificates/{certificate_id}", "certificate:read", getCertificate},
		{http.MethodDelete, "/v2/certificates/{certificate_id}", "certificate:delete", deleteCertificate},

		{http.MethodGet, "/v2/firewalls", "firewall:read", listFirewalls},
		{http.MethodPost, "/v2/firewalls", "firewall:create", createFirewall},
		{http.MethodGet, "/v2/firewalls/{firewall_id}", "firewall:read", getFirewall},
		{http.MethodPut, "/v2/firewalls/{firewall_id}", "firewall:update", updateFirewall},
		{http.MethodDelete, "/v2/firewalls/{firewall_id}", "firewall:delete", deleteFirewall},

		{http.MethodGet, "/v2/tags", "tag:read", listTags},
		{http.MethodPost, "/v2/tags", "tag:create", createTag},
		{http.MethodGet, "/v2/tags/{tag_id}", "tag:read", getTag},
		{http.MethodDelete, "/v2/tags/{tag_id}", "tag:delete", deleteTag},
		{http.MethodPost, "/v2/tags/{tag_id}/resources", "tag:create", tagResources},
		{http.MethodDelete, "/v2/tags/{tag_id}/resources", "tag:delete", untagResources},
	}
}

// routes returns the operations, ready to be matched.
func routes() []route {
	table := operations()
	all := make([]route, 0, len(table))
	for _, o := range table {
		all = append(all, route{
			method: o.method, pattern: o.pattern, segments: strings.Split(o.pattern, "/"), scopes: strings.Fields(o.scopes), handle: o.handle,
		})
	}
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
