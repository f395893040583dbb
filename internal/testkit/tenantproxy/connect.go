// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenantproxy

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Connections returns plaintext connections to an address, which are closed at the end of the test.
func Connections(tb testing.TB, address string, count int) []*grpc.ClientConn {
	tb.Helper()
	var out []*grpc.ClientConn
	for range count {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must.Do(tb, err)
		tb.Cleanup(func() { _ = conn.Close() })
		out = append(out, conn)
	}
	return out
}
