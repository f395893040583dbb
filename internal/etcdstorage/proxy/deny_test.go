// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestDefaultDeny calls every method of every service that is linked, and some that are not, and expects a refusal that names it unless it is
// classified otherwise. The core is an address where nobody listens: what is refused must not need it.
func TestDefaultDeny(t *testing.T) {
	t.Parallel()
	p := start(t, configure(t, "127.0.0.1:1"))
	conn := raw(t, p.Endpoint)
	denied, served := 0, 0
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				method := service.Methods().Get(j)
				name := "/" + string(service.FullName()) + "/" + string(method.Name())
				err := once(t, conn, name, dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output()))
				want := "etcd-storage-proxy: " + strings.TrimPrefix(string(service.FullName()), string(file.Package())+".") + "." +
					string(method.Name()) + " is not available to tenants"
				switch class, known := tenancy.Classify(name); {
				case !known && strings.HasPrefix(string(file.Package()), "etcdserverpb"):
					t.Errorf("%s is not classified", name)
				case class == tenancy.Denied && known:
					denied++
					if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != want {
						t.Errorf("%s: %v, want %q", name, err, want)
					}
				case class == tenancy.Denied:
					if status.Code(err) != codes.PermissionDenied {
						t.Errorf("%s: %v", name, err)
					}
				default:
					served++
					if strings.Contains(status.Convert(err).Message(), "not available to tenants") {
						t.Errorf("%s is classified as %v and has no handler: %v", name, class, err)
					}
				}
			}
		}
		return true
	})
	if denied < 20 || served < 15 {
		t.Errorf("%d methods were denied and %d served: there are more", denied, served)
	}
	for method, want := range map[string]string{
		"/v3lockpb.Lock/Lock":           "etcd-storage-proxy: Lock.Lock is not available to tenants",
		"/v3electionpb.Election/Leader": "etcd-storage-proxy: Election.Leader is not available to tenants",
		"/etcdserverpb.KV/range":        `etcd-storage-proxy: the RPC "etcdserverpb.KV/range" is not available to tenants`,
		"/other.Service/Method":         `etcd-storage-proxy: the RPC "other.Service/Method" is not available to tenants`,
	} {
		err := once(t, conn, method, &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) != codes.PermissionDenied || status.Convert(err).Message() != want {
			t.Errorf("%s: %v, want %q", method, err, want)
		}
	}
}

// once makes a call as a stream, so that it works for methods of all kinds, and returns its first error or nil.
func once(tb testing.TB, conn *grpc.ClientConn, method string, request, answer proto.Message) error {
	tb.Helper()
	wait := patience
	if method == etcdserverpb.Watch_Watch_FullMethodName {
		wait = 200 * time.Millisecond // as etcd's, it stays open when it is asked for nothing
	}
	ctx, cancel := context.WithTimeout(tb.Context(), wait)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	_ = s.SendMsg(request)
	_ = s.CloseSend()
	return s.RecvMsg(answer)
}

func TestSynthetic(t *testing.T) {
	t.Parallel()
	core := testkit.NewEtcd(t)
	p := start(t, configure(t, core.Endpoint))
	conn := raw(t, p.Endpoint)
	ctx := t.Context()
	must.Get(core.Client.Put(ctx, "/b/large", strings.Repeat("x", 100000))).Or(t)
	must.Get(p.Client.Put(ctx, "key", "value")).Or(t)
	direct := must.Get(core.Client.Status(ctx, core.Endpoint)).Or(t)
	st := must.Get(etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{})).Or(t)
	if want := int64(len("/a/key") + len("value")); st.Version != direct.Version || st.DbSize != want || st.DbSizeInUse != want || st.Leader != direct.Leader ||
		st.Header.ClusterId != direct.Header.ClusterId || st.DbSizeQuota != 0 {
		t.Errorf("status %v, want the core's version %s and the tenant's size %d", st, direct.Version, want)
	}
	list, err := p.Client.MemberList(ctx)
	if err != nil || len(list.Members) != 1 || list.Members[0].ClientURLs[0] != "http://proxy.example:2379" || list.Members[0].Name != "a" {
		t.Errorf("members %v, %v", list, err)
	}
	auth, err := p.Client.AuthStatus(ctx)
	if err != nil || auth.Enabled {
		t.Errorf("auth status %v, %v", auth, err)
	}
	if alarms, err := p.Client.AlarmList(ctx); err != nil || len(alarms.Alarms) != 0 {
		t.Errorf("alarms %v, %v", alarms, err)
	}
	for _, action := range []etcdserverpb.AlarmRequest_AlarmAction{etcdserverpb.AlarmRequest_ACTIVATE, etcdserverpb.AlarmRequest_DEACTIVATE, 7} {
		_, err := etcdserverpb.NewMaintenanceClient(conn).Alarm(ctx, &etcdserverpb.AlarmRequest{Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE})
		if want := "etcd-storage-proxy: Maintenance.Alarm is available to tenants for reading only"; status.Code(err) != codes.PermissionDenied ||
			status.Convert(err).Message() != want {
			t.Errorf("alarm action %v: %v", action, err)
		}
	}
	health := healthpb.NewHealthClient(conn)
	if answer, err := health.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health %v, %v", answer, err)
	}
	if answer, err := health.List(ctx, &healthpb.HealthListRequest{}); err != nil || answer.Statuses[""].Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health %v, %v", answer, err)
	}
}
