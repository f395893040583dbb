// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// asProxy makes the test binary a proxy between the two addresses in it, so that tuning needs no other binary.
const asProxy = "MOORING_BENCH_AS_PROXY"

func TestMain(m *testing.M) {
	if addresses := os.Getenv(asProxy); addresses != "" {
		if err := serve(addresses); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if what := os.Getenv(asNoise); what != "" {
		if err := makeNoise(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if what := os.Getenv(asHostile); what != "" {
		if err := beHostile(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testkit.Main(m)
}

func serve(addresses string) error {
	core, address, _ := strings.Cut(addresses, ",")
	cfg, err := tenantproxy.Configure(core, prefix, "bench")
	if err != nil {
		return err
	}
	p, err := proxy.New(context.Background(), cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return p.Serve(listener)
}

// startProxy starts the proxy in front of an etcd, plaintext, in a process of its own: bin/etcd-storage-proxy, or this test binary if there
// is none.
func startProxy(b *testing.B, core string) *tenantproxy.Endpoint {
	b.Helper()
	if tenantproxy.HasBinary(b) {
		proxy := tenantproxy.NewBinary(b, core, prefix, "bench")
		proxy.WaitReady(b)
		return &proxy.Endpoint
	}
	address := testkit.FreeAddress(b)
	self := must.Get(os.Executable()).Or(b)
	process := testkit.Start(b, filepath.Join(b.TempDir(), "proxy.log"), []string{asProxy + "=" + core + "," + address}, self)
	b.Cleanup(process.Kill)
	e := &tenantproxy.Endpoint{Process: process, Address: address}
	e.WaitReady(b)
	return e
}
