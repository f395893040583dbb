// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// refuseUndeclared is a client's interceptor that sends no write which the controller of the round does not declare. It
// returns [outputs.ErrUndeclared] then.
func refuseUndeclared(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	service, rpc, _ := strings.Cut(strings.TrimPrefix(method, "/etcdserverpb."), "/")
	if !reads(rpc, req) {
		if _, err := outputs.Allowed(ctx, outputs.CoreEtcd, service, rpc); err != nil {
			return err
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// reads reports that an RPC of etcd's API (api/etcdserverpb/rpc.proto) changes nothing. One that is not known is a write.
func reads(rpc string, req any) bool {
	switch rpc {
	case "Range", "Authenticate", "AuthStatus", "UserGet", "UserList", "RoleGet", "RoleList", "MemberList",
		"LeaseLeases", "LeaseTimeToLive", "Status", "Hash", "HashKV":
		return true
	case "Alarm":
		alarm, ok := req.(*etcdserverpb.AlarmRequest)
		return ok && alarm.Action == etcdserverpb.AlarmRequest_GET
	}
	return false
}
