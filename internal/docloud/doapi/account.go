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
	var slugs []string
	err := c.list(ctx, "v2/regions", nil, func() (any, *page, func() int) {
		slugs = nil
		answer := &struct {
			page
			Regions []struct {
				Slug string `json:"slug"`
			} `json:"regions"`
		}{}
		return answer, &answer.page, func() int {
			for _, r := range answer.Regions {
				slugs = append(slugs, r.Slug)
			}
			answer.Regions = nil
			return len(slugs)
		}
	})
	return slugs, err
}
