// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// BenchmarkProxy is for profiles of the proxy's own code; ratios to direct etcd are test/contract/etcdstorage/bench's.
func BenchmarkProxy(b *testing.B) {
	core := testkit.NewEtcd(b)
	p := start(b, configure(b, core.Endpoint))
	value := strings.Repeat("v", 1024)
	for i := range 500 {
		must.Get(p.Client.Put(b.Context(), fmt.Sprintf("list/%04d", i), value)).Or(b)
	}
	clients := []*clientv3.Client{client(b, p.Endpoint), client(b, p.Endpoint), client(b, p.Endpoint), client(b, p.Endpoint)}
	run := func(name string, parallel int, call func(c *clientv3.Client) error) {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(parallel)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if err := call(clients[i%len(clients)]); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
	run("get", 8, func(c *clientv3.Client) error {
		_, err := c.Get(b.Context(), "list/0001")
		return err
	})
	run("put", 8, func(c *clientv3.Client) error {
		_, err := c.Put(b.Context(), "put", value)
		return err
	})
	run("list", 2, func(c *clientv3.Client) error {
		_, err := c.Get(b.Context(), "list/", clientv3.WithPrefix())
		return err
	})
}
