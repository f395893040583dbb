// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// SIGTERM under load: /readyz says so at once, requests that run come to their end, streams are told that they must go elsewhere, nobody new is
// let in, and the process ends with 0 and leaves nothing behind.
func TestDrain(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	p := start(t, slices.Concat(plainCore(etcd), []string{"--tenant=team-a", "--drain-delay=1s"})...)
	p.awaitReady(t, "")
	conn := dial(t, p.address, nil)
	must.Do(t, write(t.Context(), conn, "k", "v"))
	watch := openWatch(t, etcdserverpb.NewWatchClient(conn), "k")
	lease, err := etcdserverpb.NewLeaseClient(conn).LeaseGrant(t.Context(), &etcdserverpb.LeaseGrantRequest{TTL: 600})
	must.Do(t, err)
	alive := must.Get(etcdserverpb.NewLeaseClient(conn).LeaseKeepAlive(t.Context())).Or(t)
	must.Do(t, alive.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: lease.ID}))
	must.Get(alive.Recv()).Or(t)

	etcd.Pause(t)
	defer etcd.Resume()
	written := make(chan error, 1)
	go func() { written <- write(t.Context(), conn, "k", "last") }()
	p.awaitPut(t, written)
	p.Signal(syscall.SIGTERM)
	p.awaitReady(t, "the process is ending")
	if code, _ := p.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz while it drains: %d", code)
	}
	told := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "etcd-storage-proxy: shutting down" {
			t.Errorf("%s: ended with %v, want Unavailable", what, err)
		}
	}
	_, err = alive.Recv()
	told("keepalive", err)
	told("watch", watch.end())
	if err := knock(t.Context(), p.address, nil); err == nil {
		t.Error("a new connection is served while the proxy drains")
	}
	etcd.Resume()
	if err := <-written; err != nil {
		t.Errorf("the request that was on its way: %v", err)
	}
	<-p.Done()
	if p.ExitCode() != 0 || p.logged("Stopped") == nil || p.logged("Some requests did not end in time and were aborted") != nil {
		t.Errorf("it ended with %d: %s", p.ExitCode(), p.Output())
	}
	if err := syscall.Kill(-p.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("something of it is left: %v", err)
	}
	if got := etcd.Dump(t)["/team-a/k"]; got != "last" {
		t.Errorf("the last write reads %q", got)
	}
}

// A core that answers nothing does not hold the end up for longer than --drain-timeout.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	p := start(t, slices.Concat(plainCore(etcd), []string{"--tenant=team-a", "--drain-timeout=1s"})...)
	p.awaitReady(t, "")
	conn := dial(t, p.address, nil)
	must.Do(t, write(t.Context(), conn, "k", "v"))
	etcd.Pause(t)
	defer etcd.Resume()
	written := make(chan error, 1)
	go func() { written <- write(t.Context(), conn, "k", "last") }()
	p.awaitPut(t, written)
	p.Signal(syscall.SIGTERM)
	if err := <-written; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("the request that was truncated: %v", err)
	}
	<-p.Done()
	if p.ExitCode() != 0 || p.logged("Some requests did not end in time and were aborted") == nil {
		t.Errorf("it ended with %d: %s", p.ExitCode(), p.Output())
	}
}

// awaitPut waits until one Put is on its way to the core.
func (p *running) awaitPut(t *testing.T, written <-chan error) {
	t.Helper()
	testkit.Eventually(t, "the request to be on its way", func() string {
		select {
		case err := <-written:
			t.Fatalf("it ended at once: %v; log: %s", err, p.Output())
		default:
		}
		if n := p.metric(t, `mooring_etcdstorage_proxy_requests_in_flight{method="/etcdserverpb.KV/Put",tenant="team-a"}`); n != 1 {
			return fmt.Sprintf("%v of them are in flight", n)
		}
		return ""
	})
}

// watching is a watch whose stream is not opened again when it breaks, as a client library would do.
type watching struct {
	stream etcdserverpb.Watch_WatchClient
}

func openWatch(t *testing.T, client etcdserverpb.WatchClient, key string) *watching {
	t.Helper()
	stream := must.Get(client.Watch(t.Context())).Or(t)
	create := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte(key)}}}
	must.Do(t, stream.Send(create))
	created, err := stream.Recv()
	if err != nil || !created.Created || created.Canceled {
		t.Fatalf("creating a watch: %v, %v", created, err)
	}
	return &watching{stream: stream}
}

// values returns the values of the next events.
func (w *watching) values() ([]string, error) {
	response, err := w.stream.Recv()
	if err != nil {
		return nil, err
	}
	if response.Canceled {
		return nil, fmt.Errorf("canceled: %s", response.CancelReason)
	}
	var out []string
	for _, event := range response.Events {
		out = append(out, string(event.Kv.Value))
	}
	return out, nil
}

// end reads until the stream ends and returns how.
func (w *watching) end() error {
	for {
		if _, err := w.values(); err != nil {
			if errors.Is(err, io.EOF) || strings.HasPrefix(err.Error(), "canceled") {
				return fmt.Errorf("without a status: %w", err)
			}
			return err
		}
	}
}
