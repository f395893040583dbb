// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
)

// Revision returns the core's newest revision, and the ID of the cluster that answered, in hexadecimal.
func (c *Client) Revision(ctx context.Context) (id string, revision int64, err error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.kv.Get(ctx, operator.OwnersPrefix, clientv3.WithCountOnly())
	if err != nil {
		return "", 0, fmt.Errorf("reading the revision of the core etcd: %w", err)
	}
	return clusterID(answer.Header), answer.Header.Revision, nil
}

// Compact drops the history before a revision (etcd's KV.Compact), if the etcd with this cluster ID answers; otherwise the error is an
// [ErrConflict]. That somebody else has compacted at a later revision is not an error.
func (c *Client) Compact(ctx context.Context, id string, revision int64) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	return c.compact(ctx, id, revision)
}

// CompactNow is Compact that returns only when the space of what was dropped is free, so that a defragmentation can give it back.
func (c *Client) CompactNow(ctx context.Context, id string, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, defragmentPatience)
	defer cancel()
	return c.compact(ctx, id, revision, clientv3.WithCompactPhysical())
}

func (c *Client) compact(ctx context.Context, id string, revision int64, options ...clientv3.CompactOption) error {
	if err := c.At(ctx, id); err != nil {
		return err
	}
	if _, err := c.kv.Compact(ctx, revision, options...); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compacting the core etcd at revision %d: %w", revision, err)
	}
	return nil
}
