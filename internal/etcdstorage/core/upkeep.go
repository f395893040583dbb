// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// defragmentPatience bounds one defragmentation: etcd rewrites the whole file, up to some GiB.
const defragmentPatience = 10 * time.Minute

// Defragment gives the free space of a member's database back (etcd's Maintenance.Defragment), if the member behind the URL is of the etcd with this cluster
// ID; otherwise the error is an [ErrConflict]. The member does not serve until it returns, which takes some seconds for each GiB.
func (c *Client) Defragment(ctx context.Context, id, url string) error {
	if member, _ := c.member(ctx, url); member.Problem != "" || member.ClusterID != id {
		if member.Problem != "" {
			return fmt.Errorf("defragmenting the core etcd: %s", member.Problem)
		}
		return fmt.Errorf("%w: the cluster ID of the member %s is %s and was %s", ErrConflict, url, member.ClusterID, id)
	}
	ctx, cancel := context.WithTimeout(ctx, defragmentPatience)
	defer cancel()
	if _, err := c.etcd.Defragment(ctx, url); err != nil {
		return fmt.Errorf("defragmenting the member %s of the core etcd: %w", url, err)
	}
	return nil
}

// Disarm disarms the alarm NOSPACE of members (etcd's Maintenance.Alarm), given by their IDs in hexadecimal, if the etcd with this cluster ID answers;
// otherwise the error is an [ErrConflict]. A member that has no space raises it again.
func (c *Client) Disarm(ctx context.Context, id string, members []string) error {
	if err := c.At(ctx, id); err != nil {
		return err
	}
	for _, member := range members {
		number, err := strconv.ParseUint(member, 16, 64)
		if err != nil {
			return fmt.Errorf("the ID %q of a member of the core etcd: %w", member, err)
		}
		if err := c.disarm(ctx, number); err != nil {
			return fmt.Errorf("disarming the alarm NOSPACE of member %s of the core etcd: %w", member, err)
		}
	}
	return nil
}

func (c *Client) disarm(ctx context.Context, member uint64) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	_, err := c.etcd.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: member, Alarm: etcdserverpb.AlarmType_NOSPACE})
	return err
}
