// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// roles are what this test binary does as a process of its own, by the variable whose value tells it how.
func roles() map[string]func(string) error {
	return map[string]func(string) error{asSplice: splice, asHostile: beHostile}
}

func TestMain(m *testing.M) {
	for variable, play := range roles() {
		if what := os.Getenv(variable); what != "" {
			if err := play(what); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	testkit.Main(m)
}

// asSplice makes the test binary a TCP relay between the two addresses in it.
const asSplice = "MOORING_BENCH_AS_SPLICE"

// splice relays bytes, which the kernel moves itself (splice(2)): what any process between clients and the core costs.
func splice(addresses string) error {
	core, address, _ := strings.Cut(addresses, ",")
	core = strings.TrimPrefix(core, "http://")
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		server, err := net.Dial("tcp", core)
		if err != nil {
			return err
		}
		go relay(client, server)
		go relay(server, client)
	}
}

func relay(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
}

func startSplice(b *testing.B, core string) *tenantproxy.Endpoint {
	b.Helper()
	address := testkit.FreeAddress(b)
	self := must.Get(os.Executable()).Or(b)
	process := testkit.Start(b, filepath.Join(b.TempDir(), "splice.log"), []string{asSplice + "=" + core + "," + address}, self)
	b.Cleanup(process.Kill)
	e := &tenantproxy.Endpoint{Process: process, Address: address}
	e.WaitReady(b)
	return e
}
