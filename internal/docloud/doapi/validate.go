// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// validateRoute stands for the two calls that change nothing, so that metrics tell them from those that do.
const validateRoute = loadBalancersPath + "/{validate_only}"

// ValidateLoadBalancer asks whether DigitalOcean would make a load balancer (POST /v2/load_balancers), or change the one with the ID (PUT
// /v2/load_balancers/{id}), without doing it: the body carries validate_only. The API's description does not know that field; the upstream project's
// admission server relies on it. Nil means that it would; errors.Is(err, ErrRefused) that it would not. It is asked once, since who asks has a
// person waiting.
func (c *Client) ValidateLoadBalancer(ctx context.Context, id string, r loadbalancer.Request, only loadbalancer.CreateOnly) error {
	type dry struct {
		loadbalancer.Request
		ValidateOnly bool `json:"validate_only"`
	}
	request := call{method: http.MethodPost, route: validateRoute, path: loadBalancersPath}
	var body any = struct {
		dry
		loadbalancer.CreateOnly
	}{dry{r, true}, only}
	if id != "" {
		request.method, request.path, body = http.MethodPut, loadBalancersPath+"/"+url.PathEscape(id), dry{r, true}
	}
	content, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s %s: encoding the request: %w", request.method, request.route, err)
	}
	return c.attempt(ctx, request, content)
}
