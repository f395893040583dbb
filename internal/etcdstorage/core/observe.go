// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// Question is what to look for.
type Question struct {
	Tenant string
	// Prefix is the tenant's.
	Prefix string
	// CertificateUser is the common name of the certificate that the proxies use.
	CertificateUser string
	// Users reports that users of tenants matter.
	Users bool
	// Exiting asks for leases and records as well.
	Exiting bool
}

// Observe looks at what the core has of a tenant. That the core cannot be asked is in Problem, as one sentence.
func (c *Client) Observe(ctx context.Context, q Question) operator.Core {
	var out operator.Core
	err := c.observe(ctx, q, &out)
	if err != nil {
		return operator.Core{Problem: c.explain(ctx, c.etcd.Endpoints(), err), Silent: silent(err)}
	}
	return out
}

// explain makes a sentence of an error of the core at these addresses, with what there is to do about it.
func (c *Client) explain(ctx context.Context, urls []string, err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty):
		return "the core etcd has authentication enabled, and the operator may not read users: put the name and password of an administrator into the Secret of " +
			"--etcd-core-admin-secret (keys username and password)"
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return "the core etcd refuses the operator's user name or password: correct them in the Secret of --etcd-core-admin-secret"
	case silent(err):
		if why := c.refusedTLS(ctx, urls); why != "" {
			return why
		}
		return fmt.Sprintf("the core etcd %s does not respond within %s: check whether it runs, whether a network policy blocks it, and whether its certificate and the "+
			"operator's are signed by a CA that the other side trusts", strings.Join(urls, ","), c.patience)
	}
	return err.Error()
}

// silent reports that no response came.
func silent(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.Unavailable
}

func (c *Client) observe(ctx context.Context, q Question, out *operator.Core) error {
	prefix, err := tenancy.ParsePrefix(q.Prefix)
	if err != nil {
		return err
	}
	if err := c.owners(ctx, out); err != nil {
		return err
	}
	if out.Keys, err = c.count(ctx, out, prefix.String(), prefix.End()); err != nil {
		return err
	}
	if q.Users {
		if err := c.users(ctx, q, prefix, out); err != nil {
			return err
		}
	}
	if !q.Exiting {
		return nil
	}
	system := operator.SystemPrefix(q.Tenant)
	if out.Records, err = c.count(ctx, out, system, clientv3.GetPrefixRangeEnd(system)); err != nil {
		return err
	}
	out.Leases, err = c.leases(ctx, q.Tenant, out.Owners)
	return err
}

// Owners are the records of all tenants of the core, and its cluster ID. The error is one sentence.
func (c *Client) Owners(ctx context.Context) (owners []operator.Owner, id string, err error) {
	var out operator.Core
	if err := c.owners(ctx, &out); err != nil {
		return nil, "", errors.New(c.explain(ctx, c.etcd.Endpoints(), err))
	}
	return out.Owners, out.ClusterID, nil
}

// owners reads all records of tenants. One that cannot be read stands for a tenant about whom nothing is known but that it is there.
func (c *Client) owners(ctx context.Context, out *operator.Core) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.kv.Get(ctx, operator.OwnersPrefix, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("reading the records of tenants in the core etcd: %w", err)
	}
	out.Revision = answer.Header.Revision
	if err := sameCluster(out, answer.Header); err != nil {
		return err
	}
	for _, kv := range answer.Kvs {
		var o operator.Owner
		if err := json.Unmarshal(kv.Value, &o); err != nil {
			return fmt.Errorf("the record %s in the core etcd cannot be read, and its owner must be found first: %w", kv.Key, err)
		}
		o.Tenant, o.Modified = strings.TrimPrefix(string(kv.Key), operator.OwnersPrefix), kv.ModRevision
		out.Owners = append(out.Owners, o)
	}
	return nil
}

// sameCluster notes which etcd answered. URLs that lead to several would make a plan of one and carry it out at the other.
func sameCluster(out *operator.Core, header *etcdserverpb.ResponseHeader) error {
	id := clusterID(header)
	if out.ClusterID != "" && out.ClusterID != id {
		return fmt.Errorf("the URLs of --etcd-core-url belong to several etcds, with cluster IDs %s and %s: name the members of one", out.ClusterID, id)
	}
	out.ClusterID = id
	return nil
}

// clusterID is the ID of the etcd cluster of an answer in hexadecimal.
func clusterID(header *etcdserverpb.ResponseHeader) string {
	return strconv.FormatUint(header.GetClusterId(), 16)
}

// At returns [ErrConflict] unless the etcd that answers is the one with this cluster ID.
func (c *Client) At(ctx context.Context, id string) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.kv.Get(ctx, operator.OwnersPrefix, clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("reading the cluster ID of the core etcd: %w", err)
	}
	if is := clusterID(answer.Header); is != id {
		return fmt.Errorf("%w: its cluster ID is %s and was %s", ErrConflict, is, id)
	}
	return nil
}

// count counts the keys of a range.
func (c *Client) count(ctx context.Context, out *operator.Core, from, to string) (int64, error) {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.kv.Get(ctx, from, clientv3.WithRange(to), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("counting the keys under %s in the core etcd: %w", from, err)
	}
	return answer.Count, sameCluster(out, answer.Header)
}

func (c *Client) users(ctx context.Context, q Question, prefix tenancy.Prefix, out *operator.Core) error {
	ctx, cancel := c.limited(ctx)
	defer cancel()
	status, err := c.auth.AuthStatus(ctx)
	if err != nil {
		return fmt.Errorf("asking the core etcd whether authentication is on: %w", err)
	}
	if out.Auth = status.Enabled; !out.Auth {
		return nil
	}
	list, err := c.auth.UserList(ctx)
	if err != nil {
		return fmt.Errorf("listing the users of the core etcd: %w", err)
	}
	role := operator.EtcdRole(q.Tenant)
	for _, user := range list.Users {
		switch {
		case user == q.CertificateUser && user != "":
			out.SharedUser = user
		case strings.HasPrefix(user, role+"/"):
			out.Users = append(out.Users, user)
			got, err := c.auth.UserGet(ctx, user)
			if err != nil {
				return fmt.Errorf("reading user %s of the core etcd: %w", user, err)
			}
			if slices.Equal(got.Roles, []string{role}) {
				out.Granted = append(out.Granted, user)
			}
		}
	}
	if len(out.Users) == 0 && !q.Exiting {
		return nil // EnsureUser looks for the role
	}
	got, err := c.auth.RoleGet(ctx, role)
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading role %s of the core etcd: %w", role, err)
	}
	out.RoleExists = true
	out.RoleReady = holdsExactly(got.Perm, grants(q.Tenant, prefix))
	return nil
}

// grant is a range that a tenant's role may read and write.
type grant struct{ from, to string }

// grants are all that a role has: the tenant's keys, and its proxies' records.
func grants(tenant string, prefix tenancy.Prefix) []grant {
	system := operator.SystemPrefix(tenant)
	return []grant{{prefix.String(), prefix.End()}, {system, clientv3.GetPrefixRangeEnd(system)}}
}

// holdsExactly reports that a role has these ranges and nothing else.
func holdsExactly(has []*authpb.Permission, want []grant) bool {
	if len(has) != len(want) {
		return false
	}
	return !slices.ContainsFunc(want, func(g grant) bool {
		return !slices.ContainsFunc(has, func(p *authpb.Permission) bool { return g.is(p) })
	})
}

func (g grant) is(p *authpb.Permission) bool {
	return p.PermType == authpb.Permission_READWRITE && string(p.Key) == g.from && string(p.RangeEnd) == g.to
}

// leases are those in the tenant's space.
func (c *Client) leases(ctx context.Context, tenant string, owners []operator.Owner) ([]int64, error) {
	i := slices.IndexFunc(owners, func(o operator.Owner) bool { return o.Tenant == tenant })
	if i < 0 {
		return nil, nil
	}
	return c.leasesOf(ctx, owners[i].LeaseSpace)
}

func (c *Client) leasesOf(ctx context.Context, number string) ([]int64, error) {
	space, err := tenancy.ParseLeaseSpace(number)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.limited(ctx)
	defer cancel()
	answer, err := c.etcd.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the leases of the core etcd: %w", err)
	}
	var out []int64
	for _, lease := range answer.Leases {
		if _, ours := space.Visible(int64(lease.ID)); ours {
			out = append(out, int64(lease.ID))
		}
	}
	return out, nil
}

func firstCertificate(text []byte) ([]byte, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no certificate in PEM")
	}
	return block.Bytes, nil
}
