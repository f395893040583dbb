// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"net/http"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// Account returns whose the token is (GET /v2/account).
func (c *Client) Account(ctx context.Context) (instance.Account, error) {
	var answer struct {
		Account struct {
			UUID string `json:"uuid"`
			Team struct {
				UUID string `json:"uuid"`
			} `json:"team"`
		} `json:"account"`
	}
	err := c.do(ctx, call{method: http.MethodGet, route: "v2/account", path: "v2/account", answer: &answer})
	if err != nil {
		return instance.Account{}, err
	}
	if answer.Account.UUID == "" {
		return instance.Account{}, &Error{Method: http.MethodGet, Route: "v2/account", Message: "the response names no account"}
	}
	return instance.Account{UUID: answer.Account.UUID, Team: answer.Account.Team.UUID}, nil
}

// Regions returns the slugs of all regions (GET /v2/regions).
func (c *Client) Regions(ctx context.Context) ([]string, error) {
	all, err := offers(ctx, c, "v2/regions")
	slugs := make([]string, len(all))
	for i, one := range all {
		slugs[i] = one.Slug
	}
	return slugs, err
}

// offer is a region or a size as the API writes it; only a size has a price (schemas "region" and "size").
type offer struct {
	Slug    string  `json:"slug"`
	Monthly float64 `json:"price_monthly"`
}

func (o offer) key() string { return o.Slug }

func (o offer) translate() offer { return o }

// offers lists what DigitalOcean offers. It is all of them or an error.
func offers(ctx context.Context, c *Client, path string) ([]offer, error) {
	return list[offer](ctx, c, path, nil)
}
