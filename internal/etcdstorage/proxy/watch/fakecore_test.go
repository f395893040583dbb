// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// fakeRevision is the revision at which the fake core stands.
const fakeRevision = 100

// fakeCore is a core for what a real one does only with a lost quorum or after ten minutes.
type fakeCore struct {
	pb.UnimplementedWatchServer
	pb.UnimplementedKVServer
	address  string
	noLeader chan struct{} // close it to lose the leader

	mu      sync.Mutex
	streams map[*fakeStream]struct{}
}

type fakeStream struct {
	pb.Watch_WatchServer
	mu       sync.Mutex
	notified []int64
}

func newFakeCore(tb testing.TB) *fakeCore {
	tb.Helper()
	f := &fakeCore{noLeader: make(chan struct{}), streams: map[*fakeStream]struct{}{}}
	l := must.Get(new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")).Or(tb)
	server := grpc.NewServer()
	pb.RegisterWatchServer(server, f)
	pb.RegisterKVServer(server, f)
	go func() { _ = server.Serve(l) }()
	tb.Cleanup(server.Stop)
	f.address = l.Addr().String()
	return f
}

func (f *fakeCore) header(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 1, MemberId: 1, RaftTerm: 1, Revision: revision}
}

// Range answers with the revision.
func (f *fakeCore) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: f.header(fakeRevision)}, nil
}

// Watch makes watches that see nothing.
func (f *fakeCore) Watch(g pb.Watch_WatchServer) error {
	s := &fakeStream{Watch_WatchServer: g}
	f.mu.Lock()
	f.streams[s] = struct{}{}
	f.mu.Unlock()
	ended := make(chan error, 1)
	go func() { ended <- f.answer(s) }()
	var noLeader chan struct{}
	if md, _ := metadata.FromIncomingContext(g.Context()); len(md.Get("hasleader")) > 0 {
		noLeader = f.noLeader
	}
	select {
	case err := <-ended:
		return err
	case <-noLeader:
		return rpctypes.ErrGRPCNoLeader
	}
}

func (f *fakeCore) answer(s *fakeStream) error {
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		switch u := r.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			if u.CreateRequest.ProgressNotify {
				s.notified = append(s.notified, u.CreateRequest.WatchId)
			}
			err = s.Send(&pb.WatchResponse{Header: f.header(fakeRevision), WatchId: u.CreateRequest.WatchId, Created: true})
		case *pb.WatchRequest_CancelRequest:
			err = s.Send(&pb.WatchResponse{Header: f.header(fakeRevision), WatchId: u.CancelRequest.WatchId, Canceled: true})
		case *pb.WatchRequest_ProgressRequest:
			err = s.Send(&pb.WatchResponse{Header: f.header(fakeRevision), WatchId: -1})
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// notify sends a progress notice to each watch that asked for them.
func (f *fakeCore) notify(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		s.mu.Lock()
		for _, id := range s.notified {
			_ = s.Send(&pb.WatchResponse{Header: f.header(revision), WatchId: id})
		}
		s.mu.Unlock()
	}
}
