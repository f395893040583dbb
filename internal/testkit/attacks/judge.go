// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

func grantRequest(id int64) *pb.LeaseGrantRequest {
	return &pb.LeaseGrantRequest{ID: id, TTL: victimTTL}
}

// Judge compares the core with what it was and returns one sentence for each thing that somebody changed. An error means that it could not.
func (w *World) Judge(ctx context.Context) ([]string, error) {
	found, err := w.judgeKeys(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := w.judgeLeases(ctx)
	if err != nil {
		return nil, err
	}
	cluster, err := w.describeCluster(ctx)
	if err != nil {
		return nil, err
	}
	found = append(found, leases...)
	if cluster != w.cluster {
		found = append(found, fmt.Sprintf("the cluster changed from\n%s\nto\n%s", w.cluster, cluster))
	}
	switch _, err := w.core.Get(ctx, "any", clientv3.WithRev(w.revision), clientv3.WithCountOnly()); {
	case errors.Is(err, rpctypes.ErrCompacted):
		found = append(found, fmt.Sprintf("the core was compacted: revision %d is gone", w.revision))
	case err != nil:
		return nil, fmt.Errorf("reading at revision %d: %w", w.revision, err)
	}
	return found, nil
}

func (w *World) judgeKeys(ctx context.Context) ([]string, error) {
	now, _, err := w.outside(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, key := range slices.Sorted(maps.Keys(w.planted)) {
		switch kv, ok := now[key]; {
		case !ok:
			found = append(found, fmt.Sprintf("another's key was deleted: %q", key))
		case !proto.Equal(kv, w.planted[key]):
			found = append(found, fmt.Sprintf("another's key was changed: %v became %v", describe(w.planted[key]), describe(kv)))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, ok := w.planted[key]; !ok {
			found = append(found, fmt.Sprintf("a key appeared outside the tenant's prefix: %s", describe(now[key])))
		}
	}
	return found, nil
}

func describe(kv *mvccpb.KeyValue) string {
	return fmt.Sprintf("%q = %.60q (version %d, created %d, modified %d, lease %x)", kv.Key, kv.Value, kv.Version, kv.CreateRevision, kv.ModRevision, kv.Lease)
}

func (w *World) judgeLeases(ctx context.Context) ([]string, error) {
	var found []string
	for _, v := range w.leases {
		before := time.Since(w.granted)
		state, err := w.core.TimeToLive(ctx, clientv3.LeaseID(v.id), clientv3.WithAttachedKeys())
		if err != nil {
			return nil, fmt.Errorf("reading the lease %x: %w", v.id, err)
		}
		var keys []string
		for _, key := range state.Keys {
			keys = append(keys, string(key))
		}
		// The granted TTL counts whole seconds, and the lease was granted up to a moment before the clock was read.
		most := int64((victimTTL*time.Second - before).Seconds()) + 2
		switch {
		case state.TTL < 0:
			found = append(found, fmt.Sprintf("another's lease %x was revoked", v.id))
		case state.GrantedTTL != victimTTL:
			found = append(found, fmt.Sprintf("another's lease %x was granted %d s and has %d s", v.id, victimTTL, state.GrantedTTL))
		case state.TTL > most:
			found = append(found, fmt.Sprintf("another's lease %x was renewed: it has %d s left, %d at most without", v.id, state.TTL, most))
		case !slices.Equal(slices.Sorted(slices.Values(keys)), v.keys):
			found = append(found, fmt.Sprintf("another's lease %x has the keys %q instead of %q", v.id, keys, v.keys))
		}
	}
	return found, nil
}

// describeCluster is everything about the core that no tenant may change, in words.
func (w *World) describeCluster(ctx context.Context) (string, error) {
	endpoint := w.core.Endpoints()[0]
	members, err := w.core.MemberList(ctx)
	if err != nil {
		return "", fmt.Errorf("listing members: %w", err)
	}
	alarms, err := w.core.AlarmList(ctx)
	if err != nil {
		return "", fmt.Errorf("listing alarms: %w", err)
	}
	auth, err := w.core.AuthStatus(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the state of authentication: %w", err)
	}
	users, err := w.core.UserList(ctx)
	if err != nil {
		return "", fmt.Errorf("listing users: %w", err)
	}
	roles, err := w.core.RoleList(ctx)
	if err != nil {
		return "", fmt.Errorf("listing roles: %w", err)
	}
	state, err := w.core.Status(ctx, endpoint)
	if err != nil {
		return "", fmt.Errorf("reading the state of %s: %w", endpoint, err)
	}
	defragmented, err := defragmentations(ctx, endpoint)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("members %v\nalarms %v\nauthentication %v, revision %d, users %v, roles %v\nversion %s, storage %s, downgrade %v, leader %x\n%s",
		members.Members, alarms.Alarms, auth.Enabled, auth.AuthRevision, users.Users, roles.Roles, state.Version, state.StorageVersion,
		state.DowngradeInfo, state.Leader, defragmented), nil
}

// defragmentations is the line of etcd's metrics that counts them, if it serves metrics in plain text.
func defragmentations(ctx context.Context, endpoint string) (string, error) {
	if !strings.HasPrefix(endpoint, "http://") {
		return "", nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/metrics", nil)
	if err != nil {
		return "", fmt.Errorf("asking for etcd's metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("reading etcd's metrics: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("reading etcd's metrics: %w", err)
	}
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "etcd_disk_backend_defrag_duration_seconds_count") {
			return strings.TrimSpace(line), nil
		}
	}
	return "", nil
}

// repair takes away what an attack has left in the core, as far as that is possible.
func (w *World) repair(ctx context.Context) error {
	members, err := w.core.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("listing members: %w", err)
	}
	for _, m := range members.Members {
		if m.IsLearner {
			if _, err := w.core.MemberRemove(ctx, m.ID); err != nil {
				return fmt.Errorf("removing the member %x: %w", m.ID, err)
			}
		}
	}
	if _, err := w.core.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		return fmt.Errorf("ending alarms: %w", err)
	}
	_, _ = w.core.UserDelete(ctx, "mallory")
	now, _, err := w.outside(ctx)
	if err != nil {
		return err
	}
	for key := range now {
		if _, err := w.core.Delete(ctx, key); err != nil {
			return fmt.Errorf("deleting %q: %w", key, err)
		}
	}
	for _, v := range w.leases {
		_, _ = w.core.Revoke(ctx, clientv3.LeaseID(v.id)) // it may be gone
	}
	return nil
}
