// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// droplet is a droplet as the API writes it (schema "droplet").
type droplet struct {
	ID       int    `json:"id"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	SizeSlug string `json:"size_slug"`
	Region   struct {
		Slug string `json:"slug"`
	} `json:"region"`
	Networks struct {
		V4 []address `json:"v4"`
		V6 []address `json:"v6"`
	} `json:"networks"`
	Tags    []string `json:"tags"`
	VPCUUID string   `json:"vpc_uuid"`
	Created string   `json:"created_at"`
	// VolumeIDs is missing without the scope block_storage:read.
	VolumeIDs []string `json:"volume_ids"`
}

type address struct {
	IPAddress string `json:"ip_address"`
	Type      string `json:"type"`
}

func (d droplet) key() string { return strconv.Itoa(d.ID) }

// translate makes a domain droplet. An address that cannot be parsed is left out: nobody could use it. So is a time: a list must not be lost
// for a field that decides nothing.
func (d droplet) translate() instance.Droplet {
	out := instance.Droplet{
		ID: d.ID, Name: d.Name, Status: instance.Status(d.Status), Size: d.SizeSlug, Region: d.Region.Slug, Tags: d.Tags, VPC: d.VPCUUID, Volumes: d.VolumeIDs,
	}
	if created, err := time.Parse(time.RFC3339, d.Created); err == nil {
		out.Created = created
	}
	for _, list := range [][]address{d.Networks.V4, d.Networks.V6} {
		for _, a := range list {
			if ip, err := netip.ParseAddr(a.IPAddress); err == nil {
				out.Networks = append(out.Networks, instance.Network{Address: ip, Public: a.Type == "public"})
			}
		}
	}
	return out
}

// Droplet reads one droplet (GET /v2/droplets/{id}). errors.Is(err, ErrNotFound) holds only for the API's own 404.
func (c *Client) Droplet(ctx context.Context, id int) (instance.Droplet, error) {
	var answer struct {
		Droplet *droplet `json:"droplet"`
	}
	get := call{method: http.MethodGet, route: "v2/droplets/{id}", path: fmt.Sprintf("v2/droplets/%d", id), answer: &answer}
	if err := c.do(ctx, get); err != nil {
		return instance.Droplet{}, err
	}
	if answer.Droplet == nil || answer.Droplet.ID != id {
		return instance.Droplet{}, noAnswer(get, true, fmt.Errorf("the response is not about droplet %d", id))
	}
	return answer.Droplet.translate(), nil
}

// Droplets lists all droplets of the account, those with GPUs included, which the API lists apart (GET /v2/droplets and with type=gpus).
// It is all of them or an error.
func (c *Client) Droplets(ctx context.Context) ([]instance.Droplet, error) {
	ordinary, err := c.OrdinaryDroplets(ctx)
	if err != nil {
		return nil, err
	}
	gpus, err := c.GPUDroplets(ctx)
	return append(ordinary, gpus...), err
}

// OrdinaryDroplets lists all droplets without GPUs (GET /v2/droplets). It is all of them or an error.
func (c *Client) OrdinaryDroplets(ctx context.Context) ([]instance.Droplet, error) {
	return c.droplets(ctx, nil)
}

// DropletsNamed lists the droplets of a name, those with GPUs left out (GET /v2/droplets?name=, which compares without regard to case).
func (c *Client) DropletsNamed(ctx context.Context, name string) ([]instance.Droplet, error) {
	return c.droplets(ctx, url.Values{"name": {name}})
}

// GPUDroplets lists all droplets with GPUs (GET /v2/droplets?type=gpus). It is all of them or an error.
func (c *Client) GPUDroplets(ctx context.Context) ([]instance.Droplet, error) {
	return c.droplets(ctx, url.Values{"type": {"gpus"}})
}

func (c *Client) droplets(ctx context.Context, query url.Values) ([]instance.Droplet, error) {
	return list[droplet](ctx, c, "v2/droplets", query)
}
