// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// typeLoadBalancer is the type of load balancers among what carries tags. The API's description does not list it; the upstream project sends it.
const typeLoadBalancer = "load_balancer"

// CreateTag makes a tag (POST /v2/tags). One that is there already is not an error.
func (c *Client) CreateTag(ctx context.Context, name string) error {
	body := struct {
		Name string `json:"name"`
	}{name}
	return c.do(ctx, call{method: http.MethodPost, route: "v2/tags", path: "v2/tags", body: body})
}

// TagLoadBalancers puts a tag on load balancers (POST /v2/tags/{name}/resources); on those that carry it already nothing changes.
// errors.Is(err, ErrNotFound) holds if there is no such tag, or one of the load balancers does not exist: then none is changed.
func (c *Client) TagLoadBalancers(ctx context.Context, name string, ids []string) error {
	if name == "" || len(ids) == 0 {
		return errors.New("tagging needs a tag and at least one load balancer")
	}
	return c.tag(ctx, name, typeLoadBalancer, ids)
}

func (c *Client) tag(ctx context.Context, name, kind string, ids []string) error {
	type resource struct {
		ID   string `json:"resource_id"`
		Type string `json:"resource_type"`
	}
	var body struct {
		Resources []resource `json:"resources"`
	}
	for _, id := range ids {
		body.Resources = append(body.Resources, resource{ID: id, Type: kind})
	}
	return c.do(ctx, call{method: http.MethodPost, route: "v2/tags/{name}/resources", path: "v2/tags/" + url.PathEscape(name) + "/resources", body: body})
}
