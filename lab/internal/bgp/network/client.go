// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
)

// SocketName is the network's socket in its folder.
const SocketName = "network.sock"

// ErrDown reports that nobody answers.
var ErrDown = errors.New("the BGP network does not run now; look at `lab logs bgp-network`")

// Client talks to a running network.
type Client struct {
	http *http.Client
}

// Connect returns a client of the network in that folder.
func Connect(dir string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		folder, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		defer func() { _ = folder.Close() }()
		// The folder's path may be longer than the path of a socket may be.
		short := filepath.Join("/proc/self/fd", fmt.Sprint(folder.Fd()), SocketName)
		return (&net.Dialer{}).DialContext(ctx, "unix", short)
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// State asks which routes are there.
func (c *Client) State(ctx context.Context) (State, error) {
	var out State
	return out, c.call(ctx, http.MethodGet, "/state", nil, &out)
}

// StartProbe starts an all-pairs probe.
func (c *Client) StartProbe(ctx context.Context, interval time.Duration) (id string, err error) {
	return id, c.call(ctx, http.MethodPost, "/probes", url.Values{"interval": {interval.String()}}, &id)
}

// StopProbe ends a probe. changed are the nodes whose role has changed meanwhile.
func (c *Client) StopProbe(ctx context.Context, id string, changed []string) (probe.Report, error) {
	var out probe.Report
	return out, c.call(ctx, http.MethodDelete, "/probes/"+id, url.Values{"changed": {strings.Join(changed, ",")}}, &out)
}

// AwaitRoutes waits until every node has a route to every pod, and returns how long that took.
func (c *Client) AwaitRoutes(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		state, err := c.State(ctx)
		if err == nil && state.Converged() {
			return time.Since(begun), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("not every node has a route to every pod (%s): %w", missing(state, err), ctx.Err())
		case <-ticker.C:
		}
	}
}

func missing(state State, err error) string {
	if err != nil {
		return err.Error()
	}
	if len(state.Pending) > 0 {
		return "the network has yet to follow " + strings.Join(state.Pending, ", ")
	}
	for _, n := range state.Nodes {
		if len(n.Missing) > 0 {
			return fmt.Sprintf("%s has none to %v", n.Name, n.Missing[0])
		}
	}
	return "there are no nodes"
}

func (c *Client) call(ctx context.Context, method, path string, form url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://network"+path+"?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return ErrDown
	}
	if err != nil {
		return fmt.Errorf("asking the BGP network: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("the BGP network answers: %s", strings.TrimSpace(string(text)))
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("reading the BGP network's answer: %w", err)
	}
	return nil
}
