// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
)

// Health asks each of the URLs for the status of its member, all at one time and once: as many calls as there are URLs. Nothing is written, and no majority
// of the members is needed.
func (c *Client) Health(ctx context.Context, now time.Time) operator.Health {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	out, urls := operator.Health{At: now}, c.etcd.Endpoints()
	type answer struct {
		member operator.CoreMember
		errors []string
	}
	answers := make([]chan answer, len(urls))
	for i, url := range urls {
		answers[i] = make(chan answer, 1)
		go func() {
			member, errors := c.member(ctx, url)
			answers[i] <- answer{member, errors}
		}()
	}
	answered := false
	for _, one := range answers {
		a := <-one
		answered = answered || a.member.Problem == ""
		out.Members = append(out.Members, a.member)
		out.NoSpace = append(out.NoSpace, alarmed(a.errors, etcdserverpb.AlarmType_NOSPACE)...)
		out.Corrupt = append(out.Corrupt, alarmed(a.errors, etcdserverpb.AlarmType_CORRUPT)...)
	}
	slices.Sort(out.NoSpace)
	slices.Sort(out.Corrupt)
	out.NoSpace, out.Corrupt = slices.Compact(out.NoSpace), slices.Compact(out.Corrupt)
	if !answered {
		out.Problem = out.Members[0].Problem
	}
	return out
}

// member is the status of the member behind a URL, and what it says is wrong.
func (c *Client) member(ctx context.Context, url string) (out operator.CoreMember, errors []string) {
	out.URL = url
	status, err := c.etcd.Status(ctx, url)
	if err != nil {
		out.Problem = c.explain(ctx, []string{url}, fmt.Errorf("asking the core etcd %s for its status: %w", url, err))
		return out, nil
	}
	out.ID, out.ClusterID = strconv.FormatUint(status.Header.GetMemberId(), 16), clusterID(status.Header)
	out.IsLeader = status.Leader == status.Header.GetMemberId()
	out.Leader, out.Size, out.InUse, out.Quota = status.Leader != 0, status.DbSize, status.DbSizeInUse, status.DbSizeQuota
	return out, status.Errors
}

// alarmed are the IDs, in hexadecimal, of the members that have an alarm. Each member reports the alarms of all of them, as text of the message AlarmMember;
// the list of alarms itself is a request that needs a majority.
func alarmed(errors []string, alarm etcdserverpb.AlarmType) (out []string) {
	pattern := regexp.MustCompile(`memberID:\s*(\d+)\s+alarm:\s*` + alarm.String())
	for _, text := range errors {
		if found := pattern.FindStringSubmatch(text); found != nil {
			if id, err := strconv.ParseUint(found[1], 10, 64); err == nil {
				out = append(out, strconv.FormatUint(id, 16))
			}
		}
	}
	return out
}
