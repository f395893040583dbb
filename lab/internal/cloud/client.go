// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// callTimeout bounds one call.
const callTimeout = 15 * time.Second

// Client does as the administrator of the simulated cloud.
type Client struct {
	base string
	http *http.Client
}

// Droplet is a droplet as `lab droplet list -o json` prints it.
type Droplet struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
	// Status is new, active, off or archive.
	Status    string `json:"status"`
	Region    string `json:"region"`
	Size      string `json:"size"`
	PrivateIP string `json:"privateIP,omitempty"`
	PublicIP  string `json:"publicIP,omitempty"`
	// Node reports that the droplet is a machine of the cluster, in Zone of the lab.
	Node bool   `json:"node"`
	Zone string `json:"zone,omitempty"`
}

// Connect returns a client. It makes no call.
func Connect(access blueprint.CloudAccess) (*Client, error) {
	authority, err := os.ReadFile(access.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of the simulated cloud: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(access.CertFile, access.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate for the simulated cloud: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &Client{base: access.AdminURL, http: &http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		},
	}}, nil
}

// Droplets lists all droplets in the order of their creation.
func (c *Client) Droplets(ctx context.Context) ([]Droplet, error) {
	var found []digitalocean.Droplet
	if err := c.call(ctx, http.MethodGet, "droplets", nil, &found); err != nil {
		return nil, fmt.Errorf("listing droplets: %w", err)
	}
	list := make([]Droplet, 0, len(found))
	for _, d := range found {
		list = append(list, describe(d))
	}
	return list, nil
}

// Create creates the droplet of a machine, simulated or real. An empty size is the simulator's default.
func (c *Client) Create(ctx context.Context, name, zone, size string, isReal bool) (Droplet, error) {
	spec, created := specOf(name, zone, isReal), digitalocean.Droplet{}
	spec.Size = size
	if err := c.call(ctx, http.MethodPost, "droplets", spec, &created); err != nil {
		return Droplet{}, fmt.Errorf("creating droplet %s: %w", name, err)
	}
	return describe(created), nil
}

// Delete destroys a droplet.
func (c *Client) Delete(ctx context.Context, d Droplet) error {
	if err := c.call(ctx, http.MethodDelete, fmt.Sprintf("droplets/%d", d.ID), nil, nil); err != nil {
		return fmt.Errorf("deleting droplet %s: %w", d.Name, err)
	}
	return nil
}

// SetStatus makes a droplet active or off.
func (c *Client) SetStatus(ctx context.Context, d Droplet, status string) error {
	if err := c.call(ctx, http.MethodPut, fmt.Sprintf("droplets/%d/status", d.ID), map[string]string{"status": status}, nil); err != nil {
		return fmt.Errorf("making droplet %s %s: %w", d.Name, status, err)
	}
	return nil
}

// LoadBalancers lists all load balancers in the order of their creation.
func (c *Client) LoadBalancers(ctx context.Context) ([]digitalocean.LoadBalancer, error) {
	var found []digitalocean.LoadBalancer
	if err := c.call(ctx, http.MethodGet, "load_balancers", nil, &found); err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	return found, nil
}

func describe(d digitalocean.Droplet) Droplet {
	described := Droplet{
		ID: d.ID, Name: d.Name, Status: d.Status, Size: d.SizeSlug, PrivateIP: addressOf(d, "private"), PublicIP: addressOf(d, "public"),
		Node: isNode(d), Zone: zoneOf(d),
	}
	if d.Region != nil {
		described.Region = d.Region.Slug
	}
	return described
}

// call makes one call below the account and decodes what it answers, if that is wanted.
func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+"/v1/accounts/"+Account+"/"+path, content)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return fmt.Errorf("the simulated cloud does not respond (%w); look at `lab status`", err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		var refused struct{ Error string }
		_ = json.NewDecoder(response.Body).Decode(&refused) // without it the status is all there is
		return fmt.Errorf("the simulated cloud refuses: %s %s", response.Status, refused.Error)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}
