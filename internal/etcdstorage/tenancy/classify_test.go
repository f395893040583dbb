// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"testing"

	_ "go.etcd.io/etcd/api/v3/etcdserverpb"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
)

// methods returns all RPCs of all services that are linked, as gRPC names them.
func methods(t *testing.T) (all []string) {
	t.Helper()
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				all = append(all, "/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name()))
			}
		}
		return true
	})
	return all
}

// TestEachRPCIsClassified breaks the build when the linked etcd API gains an RPC, until a person has classified it.
func TestEachRPCIsClassified(t *testing.T) {
	t.Parallel()
	all := methods(t)
	// etcd v3.7.3 has 6 KV, 1 Watch, 5 Lease, 5 Cluster, 8 Maintenance and 17 Auth RPCs; gRPC's health service has 3.
	if len(all) < 45 {
		t.Fatalf("only %d RPCs are linked: the test does not see etcd's API: %v", len(all), all)
	}
	for _, method := range all {
		if _, known := tenancy.Classify(method); !known {
			t.Errorf("%s is not classified: add it to classify.go, as denied unless it can be shown to stay inside a tenant", method)
		}
	}
}

// TestWhatIsNotDenied is the list that a security review reads: adding to it must be deliberate.
func TestWhatIsNotDenied(t *testing.T) {
	t.Parallel()
	want := map[string]tenancy.Class{
		"/etcdserverpb.KV/Range": tenancy.Forward, "/etcdserverpb.KV/RangeStream": tenancy.Forward, "/etcdserverpb.KV/Put": tenancy.Forward,
		"/etcdserverpb.KV/DeleteRange": tenancy.Forward, "/etcdserverpb.KV/Txn": tenancy.Forward, "/etcdserverpb.KV/Compact": tenancy.Synthetic,
		"/etcdserverpb.Watch/Watch": tenancy.Forward, "/etcdserverpb.Lease/LeaseGrant": tenancy.Forward,
		"/etcdserverpb.Lease/LeaseRevoke": tenancy.Forward, "/etcdserverpb.Lease/LeaseKeepAlive": tenancy.Forward,
		"/etcdserverpb.Lease/LeaseTimeToLive": tenancy.Forward, "/etcdserverpb.Lease/LeaseLeases": tenancy.Forward,
		"/etcdserverpb.Maintenance/Status": tenancy.Synthetic, "/etcdserverpb.Maintenance/Alarm": tenancy.Synthetic,
		"/etcdserverpb.Cluster/MemberList": tenancy.Synthetic, "/etcdserverpb.Auth/AuthStatus": tenancy.Synthetic,
		"/grpc.health.v1.Health/Check": tenancy.Synthetic, "/grpc.health.v1.Health/List": tenancy.Synthetic,
		"/grpc.health.v1.Health/Watch": tenancy.Synthetic,
	}
	seen := 0
	for _, method := range methods(t) {
		class, _ := tenancy.Classify(method)
		if class != want[method] {
			t.Errorf("%s is %s, want %s", method, class, want[method])
		}
		if _, listed := want[method]; listed {
			seen++
		}
	}
	if seen != len(want) {
		t.Errorf("%d of the %d RPCs that are answered exist", seen, len(want))
	}
}

// TestRPCsOfOtherModules: services of etcd that this module does not link are denied by name, and all else is unknown and so denied.
func TestRPCsOfOtherModules(t *testing.T) {
	t.Parallel()
	for method, wantKnown := range map[string]bool{
		"/v3lockpb.Lock/Lock": true, "/v3lockpb.Lock/Unlock": true,
		"/v3electionpb.Election/Campaign": true, "/v3electionpb.Election/Proclaim": true, "/v3electionpb.Election/Leader": true,
		"/v3electionpb.Election/Observe": true, "/v3electionpb.Election/Resign": true,
		"": false, "/": false, "/etcdserverpb.KV/": false, "etcdserverpb.KV/Range": false, "/etcdserverpb.KV/range": false,
		"/etcdserverpb.KV/Range/": false, "/etcdserverpb.KV/Erase": false, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": false,
	} {
		if class, known := tenancy.Classify(method); class != tenancy.Denied || known != wantKnown {
			t.Errorf("%q is %s, known %v", method, class, known)
		}
	}
}

func TestClassNames(t *testing.T) {
	t.Parallel()
	for class, name := range map[tenancy.Class]string{
		tenancy.Denied: "denied", tenancy.Forward: "forward", tenancy.Synthetic: "synthetic", tenancy.Class(9): "unknown",
	} {
		if class.String() != name {
			t.Errorf("class %d is called %s", class, class)
		}
	}
}
