// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/tenantproxy"
)

// prefix is the tenant's; direct clients write it themselves, so that all targets touch the same keys of etcd.
const prefix = "/bench/"

const connections = 64

// flagsVariable has flags of the proxy that is measured, with spaces between them, in addition to those it has by default.
const flagsVariable = "MOORING_BENCH_FLAGS"

// Targets that a row is judged by: a TCP relay, and the proxy as it is shipped, with the budgets that it has by default.
const (
	spliced = "splice"
	shipped = "proxy"
)

// A target is what clients connect to.
type target struct {
	name    string
	pid     int
	prefix  string
	clients []*clientv3.Client
}

func (t *target) client(n int) *clientv3.Client { return t.clients[n%len(t.clients)] }

// A site is one etcd and its targets. The first is direct.
type site struct {
	targets []*target
	core    *clientv3.Client
}

func newSite(b *testing.B, fsync bool) *site {
	b.Helper()
	endpoint, process := tenantproxy.StartEtcd(b, fsync)
	s := &site{core: tenantproxy.Dial(b, endpoint)}
	s.add(b, "direct", endpoint, process.PID(), prefix)
	if wanted(spliced) {
		relay := startSplice(b, endpoint)
		s.add(b, spliced, relay.Address, relay.PID(), prefix)
	}
	if wanted(shipped) {
		proxy := tenantproxy.NewShipped(b, endpoint, prefix, "bench", strings.Fields(os.Getenv(flagsVariable))...)
		proxy.WaitReady(b)
		s.add(b, shipped, proxy.Address, proxy.PID(), "")
	}
	if _, err := os.Stat(filepath.Join(testkit.Root(b), "bin", "etcd")); wanted("grpcproxy") && (err == nil || os.Getenv(tenantproxy.EtcdBinaryVariable) != "") {
		peer := tenantproxy.GRPCProxy(b, endpoint, prefix)
		s.add(b, "grpcproxy", peer.Address, peer.PID(), "")
	}
	return s
}

func (s *site) add(b *testing.B, name, endpoint string, pid int, prefix string) {
	b.Helper()
	t := &target{name: name, pid: pid, prefix: prefix}
	for range connections {
		t.clients = append(t.clients, tenantproxy.Dial(b, endpoint))
	}
	s.targets = append(s.targets, t)
}

// fill writes n keys of one KiB each.
func (s *site) fill(b *testing.B, dir string, n int) {
	b.Helper()
	value := strings.Repeat("v", 1024)
	for i := range n {
		must.Get(s.core.Put(b.Context(), fmt.Sprintf("%s%s%06d", prefix, dir, i), value)).Or(b)
	}
}

// compact does what the operator does every five minutes, so that a tenant may write history again: the rounds are minutes of full speed.
func (s *site) compact(b *testing.B) {
	b.Helper()
	now := must.Get(s.core.Get(b.Context(), prefix)).Or(b).Header.Revision
	if _, err := s.core.Compact(b.Context(), now); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		b.Fatal(err)
	}
}

// residentKiB is the memory of a process that is in RAM, now and at its highest, from proc_pid_status(5).
func residentKiB(b *testing.B, pid int) (now, peak int) {
	b.Helper()
	data := must.Get(os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))).Or(b)
	field := func(name string) int {
		_, rest, _ := strings.Cut(string(data), name+":")
		line, _, _ := strings.Cut(rest, "\n")
		n := must.Get(strconv.Atoi(strings.Fields(line)[0])).Or(b)
		return n
	}
	return field("VmRSS"), field("VmHWM")
}

// cpu is the CPU time that a process has used, from proc_pid_stat(5), whose clock ticks are hundredths on every Linux that Go runs on.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	data := must.Get(os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))).Or(b)
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, field := range fields[11:13] {
		n := must.Get(strconv.Atoi(field)).Or(b)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func wanted(name string) bool {
	list := os.Getenv("MOORING_BENCH_TARGETS")
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

func number(b *testing.B, variable string, otherwise int) int {
	b.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatalf("%s is %q: it must be a number", variable, text)
	}
	return n
}

// within bounds one round; a request that hangs must end the benchmark rather than be waited for.
func within(b *testing.B, d time.Duration) (context.Context, context.CancelFunc) {
	b.Helper()
	return context.WithTimeout(b.Context(), d)
}
