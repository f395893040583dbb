// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"

	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
)

// Core holds the connection to the core, and makes another when the credentials change.
type Core struct {
	mu          sync.Mutex // guards what follows
	client      *core.Client
	credentials core.Credentials
}

// connect returns the connection for these credentials. One that is in use by a round that began before is closed under its hands, which the round
// reports as any other failure of the core, and does again.
func (c *Core) connect(urls []string, credentials core.Credentials) (*core.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil && c.credentials.Equal(credentials) {
		return c.client, nil
	}
	client, err := core.Dial(urls, credentials)
	if err != nil {
		return nil, err
	}
	if c.client != nil {
		_ = c.client.Close()
	}
	c.client, c.credentials = client, credentials
	return client, nil
}

// Start closes the connection when the process ends.
func (c *Core) Start(ctx context.Context) error {
	<-ctx.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		_ = c.client.Close()
		c.client = nil
	}
	return nil
}
