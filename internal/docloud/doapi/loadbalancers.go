// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// Routes of load balancers.
const (
	loadBalancersPath = "v2/load_balancers"
	loadBalancerRoute = "v2/load_balancers/{id}"
)

// wireLoadBalancer is a load balancer as the API writes it (schema "load_balancer").
type wireLoadBalancer struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
	// Created is the time in RFC 3339's form.
	Created string `json:"created_at"`
	IP      string `json:"ip"`
	IPv6    string `json:"ipv6"`
	Region  struct {
		Slug string `json:"slug"`
	} `json:"region"`
	Type                   string                        `json:"type"`
	Network                string                        `json:"network"`
	NetworkStack           string                        `json:"network_stack"`
	VPC                    string                        `json:"vpc_uuid"`
	Subnet                 string                        `json:"subnet_uuid"`
	Project                string                        `json:"project_id"`
	TLSCipherPolicy        string                        `json:"tls_cipher_policy"`
	Size                   string                        `json:"size"`
	SizeUnit               uint32                        `json:"size_unit"`
	ForwardingRules        []loadbalancer.ForwardingRule `json:"forwarding_rules"`
	HealthCheck            *loadbalancer.HealthCheck     `json:"health_check"`
	StickySessions         *loadbalancer.StickySessions  `json:"sticky_sessions"`
	DropletIDs             []int                         `json:"droplet_ids"`
	Tag                    string                        `json:"tag"`
	Tags                   []string                      `json:"tags"`
	RedirectHTTPToHTTPS    bool                          `json:"redirect_http_to_https"`
	EnableProxyProtocol    bool                          `json:"enable_proxy_protocol"`
	EnableBackendKeepalive bool                          `json:"enable_backend_keepalive"`
	DisableLetsEncryptDNS  bool                          `json:"disable_lets_encrypt_dns_records"`
	HTTPIdleTimeoutSeconds *uint64                       `json:"http_idle_timeout_seconds"`
	Firewall               *loadbalancer.Firewall        `json:"firewall"`
}

func (w wireLoadBalancer) key() string { return w.ID }

func (w wireLoadBalancer) translate() loadbalancer.Observed {
	created, _ := time.Parse(time.RFC3339, w.Created) // the zero time proves nothing
	return loadbalancer.Observed{
		ID: w.ID, Name: w.Name, CreatedAt: created, Status: loadbalancer.Status(w.Status), IP: w.IP, IPv6: w.IPv6, Region: w.Region.Slug, Type: w.Type, Network: w.Network,
		NetworkStack: w.NetworkStack, VPC: w.VPC, Subnet: w.Subnet, Project: w.Project, TLSCipherPolicy: w.TLSCipherPolicy, SizeSlug: w.Size, SizeUnit: w.SizeUnit, ForwardingRules: w.ForwardingRules,
		HealthCheck: w.HealthCheck, StickySessions: w.StickySessions, DropletIDs: w.DropletIDs, DropletTag: w.Tag, Tags: w.Tags,
		RedirectHTTPToHTTPS: w.RedirectHTTPToHTTPS, EnableProxyProtocol: w.EnableProxyProtocol, EnableBackendKeepalive: w.EnableBackendKeepalive,
		DisableLetsEncryptDNSRecords: w.DisableLetsEncryptDNS, HTTPIdleTimeoutSeconds: w.HTTPIdleTimeoutSeconds, Firewall: w.Firewall,
	}
}

// LoadBalancers lists all load balancers of the account (GET /v2/load_balancers). It is all of them or an error.
func (c *Client) LoadBalancers(ctx context.Context) ([]loadbalancer.Observed, error) {
	return list[wireLoadBalancer](ctx, c, loadBalancersPath, nil)
}

// LoadBalancer reads one load balancer (GET /v2/load_balancers/{id}). errors.Is(err, ErrNotFound) holds only for the API's own 404.
func (c *Client) LoadBalancer(ctx context.Context, id string) (loadbalancer.Observed, error) {
	return c.oneLoadBalancer(ctx, call{method: http.MethodGet, route: loadBalancerRoute, path: loadBalancersPath + "/" + url.PathEscape(id)}, id)
}

// CreateLoadBalancer makes a load balancer (POST /v2/load_balancers); it is new, without an address, when this returns. With an error for which
// errors.Is(err, ErrAmbiguous) holds it may have been made: names are unique in an account, so look for it by name before trying again.
func (c *Client) CreateLoadBalancer(ctx context.Context, r loadbalancer.Request, only loadbalancer.CreateOnly) (loadbalancer.Observed, error) {
	body := struct {
		loadbalancer.Request
		loadbalancer.CreateOnly
	}{r, only}
	return c.oneLoadBalancer(ctx, call{method: http.MethodPost, route: loadBalancersPath, path: loadBalancersPath, body: body}, "")
}

// UpdateLoadBalancer replaces a load balancer's settings (PUT /v2/load_balancers/{id}): what the request leaves out gets its default.
func (c *Client) UpdateLoadBalancer(ctx context.Context, id string, r loadbalancer.Request) (loadbalancer.Observed, error) {
	return c.oneLoadBalancer(ctx, call{method: http.MethodPut, route: loadBalancerRoute, path: loadBalancersPath + "/" + url.PathEscape(id), body: r}, id)
}

// oneLoadBalancer makes a call that answers with one load balancer: that with the ID, if there is one already.
func (c *Client) oneLoadBalancer(ctx context.Context, request call, id string) (loadbalancer.Observed, error) {
	var answer struct {
		LoadBalancer *wireLoadBalancer `json:"load_balancer"`
	}
	request.answer = &answer
	if name := path.Base(request.path); request.route == loadBalancerRoute && (strings.HasSuffix(request.path, "/") || name == "." || name == "..") {
		return loadbalancer.Observed{}, fmt.Errorf("a load balancer cannot be read by the ID %q: that is another address of the API", id)
	}
	if err := c.do(ctx, request); err != nil {
		return loadbalancer.Observed{}, err
	}
	if answer.LoadBalancer == nil || answer.LoadBalancer.ID == "" || id != "" && answer.LoadBalancer.ID != id {
		return loadbalancer.Observed{}, noAnswer(request, true, fmt.Errorf("the response is not about load balancer %q", id))
	}
	return answer.LoadBalancer.translate(), nil
}

// DeleteLoadBalancer deletes a load balancer (DELETE /v2/load_balancers/{id}). One that is gone already is not an error.
func (c *Client) DeleteLoadBalancer(ctx context.Context, id string) error {
	if id == "" {
		return errors.New("a load balancer without an ID cannot be deleted")
	}
	err := c.do(ctx, call{method: http.MethodDelete, route: loadBalancerRoute, path: loadBalancersPath + "/" + url.PathEscape(id)})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// AddDroplets and RemoveDroplets change only which droplets a load balancer has (POST and DELETE /v2/load_balancers/{id}/droplets).
func (c *Client) AddDroplets(ctx context.Context, id string, droplets []int) error {
	return c.changeDroplets(ctx, http.MethodPost, id, droplets)
}

// RemoveDroplets is the counterpart of AddDroplets.
func (c *Client) RemoveDroplets(ctx context.Context, id string, droplets []int) error {
	return c.changeDroplets(ctx, http.MethodDelete, id, droplets)
}

func (c *Client) changeDroplets(ctx context.Context, method, id string, droplets []int) error {
	if id == "" || len(droplets) == 0 {
		return errors.New("changing droplets needs a load balancer and at least one droplet")
	}
	body := struct {
		DropletIDs []int `json:"droplet_ids"`
	}{droplets}
	return c.do(ctx, call{
		method: method, route: loadBalancerRoute + "/droplets", path: loadBalancersPath + "/" + url.PathEscape(id) + "/droplets", body: body,
	})
}
