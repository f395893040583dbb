// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/attacks"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	tenantPrefix = "/isolation/a-tenant/"
	systemPrefix = "/.etcd.mooring.dev/"
	tenantName   = "a-tenant"
)

// dial returns connections to an address.
func dial(tb testing.TB, address string, n int, creds credentials.TransportCredentials) []*grpc.ClientConn {
	tb.Helper()
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	var conns []*grpc.ClientConn
	for range n {
		conn, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(address, "http://"), grpc.WithTransportCredentials(creds))
		must.Do(tb, err)
		tb.Cleanup(func() { _ = conn.Close() })
		conns = append(conns, conn)
	}
	return conns
}

// worlds makes worlds on a core, one for each call.
func worlds(core *clientv3.Client) func(context.Context) (*attacks.World, error) {
	return func(ctx context.Context) (*attacks.World, error) {
		return attacks.NewWorld(ctx, core, tenantPrefix, systemPrefix+"tenants/"+tenantName+"/")
	}
}

// alive is for endpoints in this process: when they end, so does the test.
func alive() string { return "" }
