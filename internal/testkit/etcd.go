// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Etcd is a real etcd of one member on loopback, without TLS.
type Etcd struct {
	// Endpoint is its client URL; it stays the same over Restart.
	Endpoint string
	// Client is a client of it.
	Client *clientv3.Client

	binary, folder string
	flags          []string // alongside the usual ones
	process        *Process
}

// NewEtcd returns an empty etcd that no other test uses meanwhile. Afterwards it is emptied and used again.
func NewEtcd(tb testing.TB) *Etcd {
	tb.Helper()
	binary := Binary(tb, "lab")
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if n := len(shared.etcds); n > 0 {
		e := shared.etcds[n-1]
		shared.etcds = shared.etcds[:n-1]
		e.lend(tb, &shared.etcds)
		return e
	}
	e := &Etcd{binary: binary, folder: Folder(tb, "etcd-")}
	e.start(tb, "http://"+FreeAddress(tb))
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	must.Do(tb, err)
	e.Client = client
	e.stopAtEnd()
	e.lend(tb, &shared.etcds)
	return e
}

// stopAtEnd stops it after all tests.
func (e *Etcd) stopAtEnd() {
	shared.stops = append(shared.stops, func() {
		_ = e.Client.Close()
		e.process.Stop()
	})
}

// lend gives the etcd to one test, and takes it back empty, among the idle ones. One that the test compacted, or gave users, is stopped.
func (e *Etcd) lend(tb testing.TB, idle *[]*Etcd) {
	tb.Helper()
	lent := e.Revision(tb)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if e.empty(ctx, lent) != nil {
			e.process.Stop()
			return
		}
		shared.mu.Lock()
		defer shared.mu.Unlock()
		*idle = append(*idle, e)
	})
}

// empty removes all keys and leases. It fails on an etcd whose past since the revision is cut off, and on one with authentication.
func (e *Etcd) empty(ctx context.Context, since int64) error {
	if _, err := e.Client.Get(ctx, "any", clientv3.WithCountOnly(), clientv3.WithRev(since)); err != nil {
		return err
	}
	if _, err := e.Client.Delete(ctx, "\x00", clientv3.WithFromKey()); err != nil {
		return err
	}
	leases, err := e.Client.Leases(ctx)
	if err != nil {
		return err
	}
	for _, lease := range leases.Leases {
		if _, err := e.Client.Revoke(ctx, lease.ID); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return err
		}
	}
	return nil
}

func (e *Etcd) start(tb testing.TB, clientURL string) {
	tb.Helper()
	ready := filepath.Join(e.folder, "ready.json")
	_ = os.Remove(ready)
	args := append([]string{
		"etcd", "--data-dir", filepath.Join(e.folder, "data"), "--listen-client", clientURL, "--listen-peer", "http://127.0.0.1:0",
		"--unsafe-no-fsync", "--ready-file", ready,
	}, e.flags...)
	e.process = Start(tb, filepath.Join(e.folder, "log"), nil, e.binary, args...)
	Eventually(tb, "etcd", func() string {
		data, err := os.ReadFile(ready)
		if err != nil {
			return "it has not written its address yet; its log: " + e.process.Output()
		}
		var answer struct {
			Client string `json:"client"`
		}
		if err := json.Unmarshal(data, &answer); err != nil {
			return err.Error()
		}
		e.Endpoint = answer.Client
		return ""
	})
}

// Kill ends etcd as kill -9 does.
func (e *Etcd) Kill() { e.process.Kill() }

// Stop ends etcd as an orderly shutdown does.
func (e *Etcd) Stop() { e.process.Stop() }

// Restart starts it again on the same address with the same data.
func (e *Etcd) Restart(tb testing.TB) {
	tb.Helper()
	e.start(tb, e.Endpoint)
}

// Backup saves a snapshot as etcdctl does, and returns its path.
func (e *Etcd) Backup(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "backup.db")
	snapshot := must.Get(e.Client.Snapshot(tb.Context())).Or(tb)
	defer func() { _ = snapshot.Close() }()
	data := must.Get(io.ReadAll(snapshot)).Or(tb)
	must.Do(tb, os.WriteFile(path, data, 0o600))
	return path
}

// Restore stops etcd, replaces its data by a backup with etcdutl, and starts it again on the same address. Flags are those of `etcdutl snapshot restore`;
// with --initial-cluster-token the cluster gets another ID.
func (e *Etcd) Restore(tb testing.TB, backup string, flags ...string) {
	tb.Helper()
	e.Kill()
	data := filepath.Join(e.folder, "data")
	must.Do(tb, os.RemoveAll(data))
	const peer = "http://127.0.0.1:0" // as start has it
	run(tb, "etcdutl", append([]string{
		"snapshot", "restore", backup, "--data-dir=" + data, "--name=default", "--initial-cluster=default=" + peer, "--initial-advertise-peer-urls=" + peer,
	}, flags...)...)
	e.Restart(tb)
}

// run runs a program of bin.
func run(tb testing.TB, name string, args ...string) {
	tb.Helper()
	if out, err := exec.CommandContext(tb.Context(), Binary(tb, name), args...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// Revision is the store's revision: it moves with every write and with nothing else.
func (e *Etcd) Revision(tb testing.TB) int64 {
	tb.Helper()
	resp := must.Get(e.Client.Get(tb.Context(), "any", clientv3.WithCountOnly())).Or(tb)
	return resp.Header.Revision
}

// Dump returns every key with its value.
func (e *Etcd) Dump(tb testing.TB) map[string]string {
	tb.Helper()
	resp := must.Get(e.Client.Get(tb.Context(), "\x00", clientv3.WithFromKey())).Or(tb)
	out := make(map[string]string, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		out[string(kv.Key)] = string(kv.Value)
	}
	return out
}
