// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"net"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// fakeRevision is the revision at which the fake core stands.
const fakeRevision = 100

// fakeCore is a core for what a real one does only with a lost quorum.
type fakeCore struct {
	pb.UnimplementedWatchServer
	pb.UnimplementedKVServer
	address  string
	noLeader chan struct{} // close it to lose the leader
}

func newFakeCore(tb testing.TB) *fakeCore {
	tb.Helper()
	f := &fakeCore{noLeader: make(chan struct{})}
	l := must.Get(new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")).Or(tb)
	server := grpc.NewServer()
	pb.RegisterWatchServer(server, f)
	pb.RegisterKVServer(server, f)
	go func() { _ = server.Serve(l) }()
	tb.Cleanup(server.Stop)
	f.address = l.Addr().String()
	return f
}

// Range answers with the revision.
func (f *fakeCore) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: at(fakeRevision)}, nil
}

// Watch makes watches that see nothing.
func (f *fakeCore) Watch(g pb.Watch_WatchServer) error {
	ended := make(chan error, 1)
	go func() { ended <- answer(g) }()
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

func answer(s pb.Watch_WatchServer) error {
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		switch u := r.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			err = s.Send(&pb.WatchResponse{Header: at(fakeRevision), WatchId: u.CreateRequest.WatchId, Created: true})
		case *pb.WatchRequest_CancelRequest:
			err = s.Send(&pb.WatchResponse{Header: at(fakeRevision), WatchId: u.CancelRequest.WatchId, Canceled: true})
		case *pb.WatchRequest_ProgressRequest:
			err = s.Send(&pb.WatchResponse{Header: at(fakeRevision), WatchId: -1})
		}
		if err != nil {
			return err
		}
	}
}
