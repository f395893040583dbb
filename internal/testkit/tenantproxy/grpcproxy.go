// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenantproxy

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Variables that name binaries to use instead of those in bin/.
const (
	// EtcdBinaryVariable names etcd's own binary.
	EtcdBinaryVariable = "MOORING_ETCD_BINARY"
	// ProxyBinaryVariable names etcd-storage-proxy.
	ProxyBinaryVariable = "MOORING_ETCD_STORAGE_PROXY_BINARY"
)

// An Endpoint is a process that a tenant's clients connect to.
type Endpoint struct {
	*testkit.Process
	// Address is the host:port that it serves on; it stays the same when the process is started again.
	Address string
}

// GRPCProxy starts etcd's grpc-proxy, plaintext, with a namespace, in front of an etcd.
func GRPCProxy(tb testing.TB, core, namespace string) *Endpoint {
	tb.Helper()
	address := testkit.FreeAddress(tb)
	process := testkit.Start(tb, filepath.Join(tb.TempDir(), "grpc-proxy.log"), nil, binary(tb, "etcd", EtcdBinaryVariable),
		"grpc-proxy", "start", "--endpoints="+core, "--listen-addr="+address, "--namespace="+namespace,
		"--advertise-client-url="+address, "--data-dir="+tb.TempDir())
	tb.Cleanup(process.Kill)
	e := &Endpoint{Process: process, Address: address}
	e.WaitReady(tb)
	return e
}

// WaitReady waits until a read succeeds through it.
func (e *Endpoint) WaitReady(tb testing.TB) {
	tb.Helper()
	client := Dial(tb, e.Address)
	defer func() { _ = client.Close() }()
	testkit.Eventually(tb, "a proxy to answer", func() string {
		select {
		case <-e.Done():
			tb.Fatalf("the proxy ended:\n%s", e.Output())
		default:
		}
		ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Second)
		defer cancel()
		if _, err := client.Get(ctx, "any", clientv3.WithCountOnly()); err != nil {
			return err.Error() + "; its log: " + e.Output()
		}
		return ""
	})
}

// Dial returns a plaintext client of an address; it is closed with the test.
func Dial(tb testing.TB, address string) *clientv3.Client {
	tb.Helper()
	client := must.Get(clientv3.New(clientv3.Config{
		Endpoints: []string{strings.TrimPrefix(address, "http://")}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		MaxCallSendMsgSize: 64 << 20,
	})).Or(tb)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// binary returns the path in the variable, or that in bin/, or skips the test.
func binary(tb testing.TB, name, variable string) string {
	tb.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	return testkit.Binary(tb, name)
}
