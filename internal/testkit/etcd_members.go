// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// EtcdMembers are the members of one etcd, each a process of its own.
type EtcdMembers struct {
	// URLs are the members' client URLs, and Processes the members, in the same order.
	URLs      []string
	Processes []*Process
	// Client is a client of all of them.
	Client *clientv3.Client
}

// NewEtcdMembers starts an etcd of three members on loopback without TLS, for one test alone, and waits until each knows a leader. More flags of etcd may
// follow.
func NewEtcdMembers(tb testing.TB, flags ...string) *EtcdMembers {
	tb.Helper()
	const size = 3
	e := &EtcdMembers{}
	var names, peers []string
	for i := range size {
		e.URLs, peers = append(e.URLs, "http://"+FreeAddress(tb)), append(peers, "http://"+FreeAddress(tb))
		names = append(names, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i, url := range e.URLs {
		folder := tb.TempDir()
		process := Start(tb, filepath.Join(folder, "log"), nil, Binary(tb, "etcd"), append([]string{
			fmt.Sprintf("--name=m%d", i), "--data-dir=" + filepath.Join(folder, "data"), "--listen-client-urls=" + url, "--advertise-client-urls=" + url,
			"--listen-peer-urls=" + peers[i], "--initial-advertise-peer-urls=" + peers[i], "--initial-cluster=" + strings.Join(names, ","),
			"--unsafe-no-fsync", "--log-level=error",
		}, flags...)...)
		tb.Cleanup(process.Kill)
		e.Processes = append(e.Processes, process)
	}
	client := must.Get(clientv3.New(clientv3.Config{Endpoints: e.URLs, Logger: zap.NewNop()})).Or(tb)
	tb.Cleanup(func() { _ = client.Close() })
	e.Client = client
	Eventually(tb, "an etcd of three members", func() string {
		for _, url := range e.URLs {
			if status, err := client.Status(tb.Context(), url); err != nil || status.Leader == 0 {
				return fmt.Sprint(url, " has no leader: ", err)
			}
		}
		return ""
	})
	return e
}
