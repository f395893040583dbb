// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/firewall"
)

// Routes of firewalls.
const (
	firewallsPath = "v2/firewalls"
	firewallRoute = "v2/firewalls/{id}"
)

// wireFirewall is a firewall as the API writes it (schema "firewall").
type wireFirewall struct {
	ID            string                  `json:"id"`
	Name          string                  `json:"name"`
	Status        string                  `json:"status"`
	InboundRules  []firewall.InboundRule  `json:"inbound_rules"`
	OutboundRules []firewall.OutboundRule `json:"outbound_rules"`
	DropletIDs    []int                   `json:"droplet_ids"`
	Tags          []string                `json:"tags"`
	CreatedAt     time.Time               `json:"created_at"`
}

func (w wireFirewall) key() string { return w.ID }

func (w wireFirewall) translate() firewall.Observed { return firewall.Observed(w) }

// Firewalls lists all firewalls of the account (GET /v2/firewalls). It is all of them or an error.
func (c *Client) Firewalls(ctx context.Context) ([]firewall.Observed, error) {
	return list[wireFirewall](ctx, c, firewallsPath, nil)
}

// Firewall reads one firewall (GET /v2/firewalls/{id}). errors.Is(err, ErrNotFound) holds only for the API's own 404.
func (c *Client) Firewall(ctx context.Context, id string) (firewall.Observed, error) {
	if err := checkFirewallID(id); err != nil {
		return firewall.Observed{}, err
	}
	return c.oneFirewall(ctx, call{method: http.MethodGet, route: firewallRoute, path: firewallPath(id)}, id)
}

// CreateFirewall makes a firewall (POST /v2/firewalls). With an error for which errors.Is(err, ErrAmbiguous) holds it may have been made: names
// are unique in an account, so look for it by name before trying again.
func (c *Client) CreateFirewall(ctx context.Context, r firewall.Request) (firewall.Observed, error) {
	return c.oneFirewall(ctx, call{method: http.MethodPost, route: firewallsPath, path: firewallsPath, body: r}, "")
}

// UpdateFirewall replaces a firewall (PUT /v2/firewalls/{id}): what the request leaves out is empty then.
func (c *Client) UpdateFirewall(ctx context.Context, id string, r firewall.Request) (firewall.Observed, error) {
	if err := checkFirewallID(id); err != nil {
		return firewall.Observed{}, err
	}
	return c.oneFirewall(ctx, call{method: http.MethodPut, route: firewallRoute, path: firewallPath(id), body: r}, id)
}

// DeleteFirewall deletes a firewall (DELETE /v2/firewalls/{id}). One that is gone already is not an error.
func (c *Client) DeleteFirewall(ctx context.Context, id string) error {
	if err := checkFirewallID(id); err != nil {
		return err
	}
	err := c.do(ctx, call{method: http.MethodDelete, route: firewallRoute, path: firewallPath(id)})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// checkFirewallID refuses an ID that would be another address of the API.
func checkFirewallID(id string) error {
	if id == "" || id == "." || id == ".." {
		return fmt.Errorf("a firewall cannot be read by the ID %q: that is another address of the API", id)
	}
	return nil
}

func firewallPath(id string) string { return firewallsPath + "/" + url.PathEscape(id) }

// oneFirewall makes a call that answers with one firewall: that with the ID, if there is one already.
func (c *Client) oneFirewall(ctx context.Context, request call, id string) (firewall.Observed, error) {
	var answer struct {
		Firewall *wireFirewall `json:"firewall"`
	}
	request.answer = &answer
	if err := c.do(ctx, request); err != nil {
		return firewall.Observed{}, err
	}
	if answer.Firewall == nil || answer.Firewall.ID == "" || id != "" && answer.Firewall.ID != id {
		return firewall.Observed{}, noAnswer(request, true, fmt.Errorf("the response is not about firewall %q", id))
	}
	return answer.Firewall.translate(), nil
}
