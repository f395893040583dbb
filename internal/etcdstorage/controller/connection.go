// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
)

// Core holds the connection to the core, and makes another when the credentials change. All EtcdStorages share it, and what is known of a
// core that does not respond: each question to it takes seconds, and with hundreds of them no certificate would be renewed in time.
type Core struct {
	// Patience is how long one call of the core may take; [core.Patience] if it is 0.
	Patience time.Duration

	mu          sync.Mutex // guards what follows
	client      *core.Client
	credentials core.Credentials

	// away says why the core did not respond credentials, "" if it did; since when; and asked how often it was asked.
	away  string
	tired core.Credentials
	since time.Time
	asked int

	looking sync.Mutex      // held while the members are asked
	health  operator.Health // what they said last; guarded by looking
	looks   int             // how often they were asked; guarded by looking
}

// healthy asks the members of the core how they are, unless that was done less than fresh ago: all EtcdStorages share one answer. It reports
// whether they were asked.
func (c *Core) healthy(ctx context.Context, now time.Time, fresh time.Duration, client *core.Client) (operator.Health, bool) {
	c.looking.Lock()
	defer c.looking.Unlock()
	if at := c.health.At; client == nil || !at.IsZero() && !now.Before(at) && now.Before(at.Add(fresh)) {
		return c.health, false
	}
	c.looks++
	c.health = client.Health(ctx, now)
	return c.health, true
}

// ask looks at what the core has of a tenant, unless it did not respond to the same credentials less than rest ago: then it says the same
// again. The client is nil where it was not queried. A clock that was set back ends the rest.
func (c *Core) ask(ctx context.Context, now time.Time, rest time.Duration, urls []string, credentials core.Credentials, q core.Question) (*core.Client, operator.Core) {
	c.mu.Lock()
	if c.away != "" && c.tired.Equal(credentials) && !now.Before(c.since) && now.Before(c.since.Add(rest)) {
		defer c.mu.Unlock()
		return nil, operator.Core{Problem: c.away, Silent: true}
	}
	c.asked++
	c.mu.Unlock()
	client, err := c.connect(ctx, urls, credentials)
	if err != nil {
		_, silent := errors.AsType[core.SilentError](err)
		return nil, c.heard(now, credentials, operator.Core{Problem: err.Error(), Silent: silent})
	}
	return client, c.heard(now, credentials, client.Observe(ctx, q))
}

// heard notes whether the core has answered.
func (c *Core) heard(now time.Time, credentials core.Credentials, answer operator.Core) operator.Core {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = ""
	if answer.Silent {
		c.away, c.tired, c.since = answer.Problem, credentials, now
	}
	return answer
}

// connect returns the connection for these credentials. One that is in use by a round that began before is closed under its hands, which the round
// reports as any other failure of the core, and does again.
func (c *Core) connect(ctx context.Context, urls []string, credentials core.Credentials) (*core.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil && c.credentials.Equal(credentials) {
		return c.client, nil
	}
	client, err := core.Dial(ctx, urls, credentials, cmp.Or(c.Patience, core.Patience))
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
