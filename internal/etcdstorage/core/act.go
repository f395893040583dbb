// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// ErrConflict reports that the core is not as it was when the deed was decided, and that nothing was written.
var ErrConflict = errors.New("the core etcd has changed meanwhile")

// Bounds of one DeleteKeys.
const (
	pageKeys = 500
	mostPage = 20
)

// Claim writes a tenant's record in place of others, if no record was written since the revision at which it was
// decided. It returns the record's revision.
func (c *Client) Claim(ctx context.Context, s operator.Claim) (revision int64, err error) {
	compares := []clientv3.Cmp{
		// No record of any tenant is newer, so that nobody else has claimed a prefix that overlaps.
		clientv3.Compare(clientv3.ModRevision(operator.OwnersPrefix).WithPrefix(), "<", s.Revision+1),
	}
	value, err := json.Marshal(s.Owner)
	if err != nil {
		return 0, err
	}
	var puts []clientv3.Op
	for _, o := range s.Replaces {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(operator.OwnersPrefix+o.Tenant), "=", o.Modified))
		if o.Tenant != s.Owner.Tenant {
			puts = append(puts, clientv3.OpDelete(operator.OwnersPrefix+o.Tenant))
		}
	}
	puts = append(puts, clientv3.OpPut(operator.OwnersPrefix+s.Owner.Tenant, string(value)))
	return c.commit(ctx, "claiming "+s.Owner.Prefix, compares, puts...)
}

// Release marks a tenant's record: its data is left, and nobody's.
func (c *Client) Release(ctx context.Context, o operator.Owner) error {
	unchanged := clientv3.Compare(clientv3.ModRevision(operator.OwnersPrefix+o.Tenant), "=", o.Modified)
	o.Released = true
	value, err := json.Marshal(o)
	if err != nil {
		return err
	}
	put := clientv3.OpPut(operator.OwnersPrefix+o.Tenant, string(value))
	_, err = c.commit(ctx, "releasing "+o.Prefix, []clientv3.Cmp{unchanged}, put)
	return err
}

// Forget removes a tenant's record. That no key and no lease is left is counted again, just before and in the same transaction.
func (c *Client) Forget(ctx context.Context, o operator.Owner) error {
	prefix, err := tenancy.ParsePrefix(o.Prefix)
	if err != nil {
		return err
	}
	leases, err := c.leasesOf(ctx, o.LeaseSpace)
	if err != nil {
		return err
	}
	if len(leases) > 0 {
		return fmt.Errorf("%w: %d leases of tenant %s are left", ErrConflict, len(leases), o.Tenant)
	}
	compares := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(operator.OwnersPrefix+o.Tenant), "=", o.Modified),
		// A comparison of a range holds if each key of it passes, and so if there is none (etcd's applyCompares); no key has version 0.
		clientv3.Compare(clientv3.Version(prefix.String()).WithRange(prefix.End()), "=", 0),
		clientv3.Compare(clientv3.Version(operator.SystemPrefix(o.Tenant)).WithPrefix(), "=", 0),
	}
	_, err = c.commit(ctx, "forgetting tenant "+o.Tenant, compares, clientv3.OpDelete(operator.OwnersPrefix+o.Tenant))
	return err
}

func (c *Client) commit(
	ctx context.Context, deed string, compares []clientv3.Cmp, ops ...clientv3.Op,
) (revision int64, err error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.kv.Txn(ctx).If(compares...).Then(ops...).Commit()
	if err != nil {
		return 0, fmt.Errorf("%s in the core etcd: %w", deed, err)
	}
	if !answer.Succeeded {
		return 0, fmt.Errorf("%s: %w", deed, ErrConflict)
	}
	return answer.Header.Revision, nil
}

// DeleteKeys deletes the keys of a tenant, some pages of them at a time; the caller counts again. Each page is deleted only while the record
// is the tenant's.
func (c *Client) DeleteKeys(ctx context.Context, o operator.Owner) error {
	prefix, err := tenancy.ParsePrefix(o.Prefix)
	if err != nil {
		return err
	}
	return c.deleteRange(ctx, o, prefix.String(), prefix.End())
}

// DeleteRecords deletes what the proxies of a tenant have noted.
func (c *Client) DeleteRecords(ctx context.Context, o operator.Owner) error {
	system := operator.SystemPrefix(o.Tenant)
	return c.deleteRange(ctx, o, system, clientv3.GetPrefixRangeEnd(system))
}

func (c *Client) deleteRange(ctx context.Context, o operator.Owner, from, to string) error {
	owned := clientv3.Compare(clientv3.ModRevision(operator.OwnersPrefix+o.Tenant), "=", o.Modified)
	for range mostPage {
		page, err := c.page(ctx, from, to)
		if err != nil {
			return err
		}
		if page == "" {
			return nil
		}
		// From the first key of the range to the last of the page: nothing outside of [from, to).
		keys := clientv3.OpDelete(from, clientv3.WithRange(page+"\x00"))
		if _, err := c.commit(ctx, "deleting keys under "+from, []clientv3.Cmp{owned}, keys); err != nil {
			return err
		}
	}
	return nil
}

// page is the last key of the first page of a range, "" if the range is empty.
func (c *Client) page(ctx context.Context, from, to string) (string, error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.kv.Get(ctx, from, clientv3.WithRange(to), clientv3.WithKeysOnly(), clientv3.WithLimit(pageKeys))
	if err != nil {
		return "", fmt.Errorf("listing keys under %s in the core etcd: %w", from, err)
	}
	if len(answer.Kvs) == 0 {
		return "", nil
	}
	return string(answer.Kvs[len(answer.Kvs)-1].Key), nil
}

// RevokeLeases revokes leases of a tenant. One to which a key of somebody else is attached, which only the core's administrator can bring about, is
// an error.
func (c *Client) RevokeLeases(ctx context.Context, o operator.Owner, leases []int64) error {
	prefix, err := tenancy.ParsePrefix(o.Prefix)
	if err != nil {
		return err
	}
	for _, id := range leases {
		if err := c.revoke(ctx, prefix, clientv3.LeaseID(id)); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) revoke(ctx context.Context, prefix tenancy.Prefix, id clientv3.LeaseID) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.etcd.TimeToLive(ctx, id, clientv3.WithAttachedKeys())
	if err != nil {
		return fmt.Errorf("asking for the keys of lease %d: %w", id, err)
	}
	if slices.ContainsFunc(answer.Keys, func(key []byte) bool { return !prefix.Contains(key) }) {
		return fmt.Errorf("lease %d of the core etcd is the tenant's, but a key outside of %s is attached to it; revoke it by hand", id, prefix)
	}
	if _, err := c.etcd.Revoke(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("revoking lease %d: %w", id, err)
	}
	return nil
}

// EnsureUser makes the tenant's role what it should be, and a user that has it. A user that is there keeps its password, since each name is used with
// one password alone.
func (c *Client) EnsureUser(ctx context.Context, tenant, prefixText, user, password string) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	prefix, err := tenancy.ParsePrefix(prefixText)
	if err != nil {
		return err
	}
	if err := c.ensureRole(ctx, tenant, prefix); err != nil {
		return err
	}
	role, got := operator.EtcdRole(tenant), &clientv3.AuthUserGetResponse{}
	if _, err = c.auth.UserAdd(ctx, user, password); errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		got, err = c.auth.UserGet(ctx, user)
	}
	if err != nil {
		return fmt.Errorf("adding user %s to the core etcd: %w", user, err)
	}
	for _, other := range got.Roles {
		if other != role {
			if _, err := c.auth.UserRevokeRole(ctx, user, other); err != nil {
				return fmt.Errorf("taking role %s from user %s of the core etcd: %w", other, user, err)
			}
		}
	}
	if slices.Contains(got.Roles, role) {
		return nil
	}
	if _, err := c.auth.UserGrantRole(ctx, user, role); err != nil {
		return fmt.Errorf("granting role %s to user %s of the core etcd: %w", role, user, err)
	}
	return nil
}

func (c *Client) ensureRole(ctx context.Context, tenant string, prefix tenancy.Prefix) error {
	role, want := operator.EtcdRole(tenant), grants(tenant, prefix)
	has, err := c.permissions(ctx, role)
	if err != nil {
		return err
	}
	for _, p := range has {
		if !slices.ContainsFunc(want, func(g grant) bool { return g.is(p) }) {
			if _, err := c.auth.RoleRevokePermission(ctx, role, string(p.Key), string(p.RangeEnd)); err != nil {
				return fmt.Errorf("taking a range from role %s of the core etcd: %w", role, err)
			}
		}
	}
	for _, g := range want {
		if slices.ContainsFunc(has, g.is) {
			continue
		}
		// The end is written out: etcdctl's --from-key and an end of "\0" would give away everything behind.
		if _, err := c.auth.RoleGrantPermission(ctx, role, g.from, g.to, clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
			return fmt.Errorf("granting %s to role %s of the core etcd: %w", g.from, role, err)
		}
	}
	return nil
}

// permissions are those of a role, which is made if there is none. What is there is not written again: each write about authentication makes the core
// turn the tokens of all users away once, and a process that dies early again and again must come further each time.
func (c *Client) permissions(ctx context.Context, role string) ([]*authpb.Permission, error) {
	_, err := c.auth.RoleAdd(ctx, role)
	if err == nil {
		return nil, nil
	}
	if !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return nil, fmt.Errorf("adding role %s to the core etcd: %w", role, err)
	}
	got, err := c.auth.RoleGet(ctx, role)
	if err != nil {
		return nil, fmt.Errorf("reading role %s of the core etcd: %w", role, err)
	}
	return got.Perm, nil
}

// RetireUsers removes users of a tenant, and its role if the tenant goes.
func (c *Client) RetireUsers(ctx context.Context, tenant string, users []string, withRole bool) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	for _, user := range users {
		if _, err := c.auth.UserDelete(ctx, user); err != nil && !errors.Is(err, rpctypes.ErrUserNotFound) {
			return fmt.Errorf("removing user %s from the core etcd: %w", user, err)
		}
	}
	if !withRole {
		return nil
	}
	if _, err := c.auth.RoleDelete(ctx, operator.EtcdRole(tenant)); err != nil && !errors.Is(err, rpctypes.ErrRoleNotFound) {
		return fmt.Errorf("removing role %s from the core etcd: %w", operator.EtcdRole(tenant), err)
	}
	return nil
}
