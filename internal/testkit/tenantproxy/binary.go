// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenantproxy

import (
	"path/filepath"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// A Binary is etcd-storage-proxy as a process of its own, which may be killed and started again on the same address.
type Binary struct {
	Endpoint

	path, log string
	args      []string
}

// NewBinary starts bin/etcd-storage-proxy for a tenant in front of a plaintext core, without budgets: what is tested or measured with it is faster
// than any tenant, and who tests a budget gives it. Flags are added to the usual ones, which make it serve plaintext as long as no TLS files are
// given.
func NewBinary(tb testing.TB, core, prefix, tenant string, flags ...string) *Binary {
	tb.Helper()
	return NewShipped(tb, core, prefix, tenant, append([]string{
		"--max-units-per-second=0", "--max-in-flight=0", "--max-keep-alives-per-second=0", "--max-watch-messages-per-second=0", "--quota-history-bytes=0",
	}, flags...)...)
}

// NewShipped is NewBinary with the budgets that the flags have by default.
func NewShipped(tb testing.TB, core, prefix, tenant string, flags ...string) *Binary {
	tb.Helper()
	address := testkit.FreeAddress(tb)
	b := &Binary{
		path: binary(tb, "etcd-storage-proxy", ProxyBinaryVariable), log: filepath.Join(tb.TempDir(), "proxy.log"),
		args: append([]string{
			"--core-endpoints=" + core, "--listen-address=" + address, "--prefix=" + prefix, "--tenant=" + tenant, "--insecure-plaintext",
			"--health-address=0", "--metrics-address=0", "--advertise-client-url=http://" + address,
		}, flags...),
	}
	b.Address = address
	b.Start(tb)
	tb.Cleanup(func() { b.Kill() })
	return b
}

// Start starts the process, after Kill or Stop, and does not wait until it serves.
func (b *Binary) Start(tb testing.TB) {
	tb.Helper()
	b.Process = testkit.Start(tb, b.log, nil, b.path, b.args...)
}
